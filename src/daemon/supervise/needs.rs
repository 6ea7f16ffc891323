//! Which models a job needs: only those are loaded, in the order in which it comes to them.

use std::collections::BTreeSet;

use mien_base::id::ModelId;
use mien_base::model::{Family, Manifest, Role};
use mien_base::recipe::{Action, Detect, MaskKind, Recipe, SelectMode};
use mien_vault::models::ModelSource;

use crate::Result;

/// One model that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// This one; without it the job fails.
    Model(ModelId),
    /// Whichever fills the role; when none is installed the worker decides what that means.
    Role(Role),
    /// Who is known, who agreed, and whose face may be used.
    People,
}

/// What a worker must have before a job.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) models: Vec<Manifest>,
    /// The policy in force. A job that asks for nobody goes without: to hand it over costs an
    /// unrolled skin for each source.
    pub(super) people: bool,
}

/// What finding faces needs.
#[must_use]
pub(super) fn of_detect(detect: &Detect) -> Vec<Need> {
    vec![Need::Role(Role::Gate), Need::Model(detect.model.clone())]
}

/// What enrolment needs.
#[must_use]
pub(super) fn of_enrol(detect: &Detect) -> Vec<Need> {
    vec![
        Need::Role(Role::Gate),
        Need::Model(detect.model.clone()),
        Need::Role(Role::Landmarks),
        Need::Role(Role::Embedder),
    ]
}

/// What a recipe needs.
#[must_use]
pub(super) fn of_recipe(recipe: &Recipe) -> Vec<Need> {
    let actions = || {
        let rules = recipe.rules.iter().map(|rule| &rule.action);
        [&recipe.action, &recipe.others].into_iter().chain(rules)
    };
    let models: BTreeSet<&ModelId> = actions()
        .filter_map(|action| match action {
            Action::Swap(swap) => swap.model.as_ref(),
            _ => None,
        })
        .collect();
    let makes = actions().any(Action::makes_a_face);
    // A generator is fed from the source's own record: it needs no embedder here.
    let recognises = !recipe.rules.is_empty() || recipe.select.mode == SelectMode::Reference;
    let masks = |kind| recipe.mask.kinds.contains(&kind);

    let mut needs = vec![Need::Role(Role::Gate), Need::Model(recipe.detect.model.clone())];
    if makes || masks(MaskKind::Area) {
        needs.push(Need::Role(Role::Landmarks));
    }
    if recognises || !models.is_empty() {
        needs.push(Need::Role(Role::Embedder));
    }
    if masks(MaskKind::Person) {
        needs.push(Need::Role(Role::Segmenter));
    }
    needs.extend(models.into_iter().cloned().map(Need::Model));
    if recognises || actions().any(|action| matches!(action, Action::Swap(_))) {
        needs.push(Need::People);
    }
    needs
}

/// What fills the needs; a generator that wants a crossface brings its role along.
///
/// # Errors
/// `Vault` when a named model is not known.
pub(super) fn resolve(needs: &[Need], models: &dyn ModelSource) -> Result<Wanted> {
    let mut found: Vec<Manifest> = Vec::new();
    let mut people = false;
    let mut add = |manifest: Manifest| {
        if !found.iter().any(|m| m.id == manifest.id) {
            found.push(manifest);
        }
    };
    for need in needs {
        match need {
            Need::Model(id) => {
                let manifest = models.by_id(id)?;
                let crossface = matches!(manifest.family, Family::SimSwap | Family::Ghost);
                add(manifest);
                if crossface && let Some(crossface) = models.by_role(Role::Crossface)? {
                    add(crossface);
                }
            }
            Need::Role(role) => {
                if let Some(manifest) = models.by_role(*role)? {
                    add(manifest);
                }
            }
            Need::People => people = true,
        }
    }
    Ok(Wanted { models: found, people })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::recipe::{Rule, Swap};

    fn swap(model: Option<&str>) -> Action {
        Action::Swap(Swap {
            source: "ada".parse().unwrap(),
            model: model.map(|m| m.parse().unwrap()),
            weight: 0.5,
            boost: 1,
        })
    }

    #[test]
    fn a_plain_recipe_needs_gate_and_detector_alone() {
        let needs = of_recipe(&Recipe::default());
        let detector = Need::Model("centerface".parse().unwrap());
        assert_eq!(needs, [Need::Role(Role::Gate), detector]);
    }

    #[test]
    fn what_a_rule_asks_for_is_needed_too() {
        let mut recipe = Recipe::default();
        recipe.rules.push(Rule { who: "ada".parse().unwrap(), action: swap(Some("mine")) });
        recipe.mask.kinds.push(MaskKind::Person);
        let needs = of_recipe(&recipe);
        for need in [
            Need::Role(Role::Landmarks),
            Need::Role(Role::Embedder),
            Need::Role(Role::Segmenter),
            Need::Model("mine".parse().unwrap()),
            Need::People,
        ] {
            assert!(needs.contains(&need), "{need:?}");
        }
    }

    #[test]
    fn a_mesh_swap_needs_people_and_landmarks_but_no_embedder() {
        let recipe = Recipe { action: swap(None), ..Recipe::default() };
        let needs = of_recipe(&recipe);
        assert!(needs.contains(&Need::People));
        assert!(needs.contains(&Need::Role(Role::Landmarks)));
        assert!(!needs.contains(&Need::Role(Role::Embedder)));
    }
}
