//! The rules of a job (who → what) as a recipe; whoever no rule names is covered.

use mien_base::id::IdentityId;
use mien_base::recipe::{Action, Anonymise, Recipe, Rule as RecipeRule, Swap};
use mien_daemon::contract::{Reason, Refusal};
use serde::Deserialize;

use super::artifact::Artifact;

/// One rule of a document.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Rule {
    who: String,
    #[serde(default)]
    zone: Option<String>,
    then: Op,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Op {
    Swap {
        source: String,
    },
    Anonymise {
        how: String,
        #[serde(default)]
        image: Option<Artifact>,
    },
    Pass,
}

fn wrong(at: &str, detail: impl Into<String>) -> Refusal {
    Refusal::at(Reason::InvalidRequest, at, detail)
}

fn action(op: &Op, at: &str) -> Result<Action, Refusal> {
    Ok(match op {
        Op::Pass => Action::Pass,
        Op::Swap { source } => {
            let source = source
                .parse()
                .map_err(|error| wrong(&format!("{at}/then/source"), format!("{error}")))?;
            Action::Swap(Swap { source, model: None, weight: 0.5, boost: 1 })
        }
        Op::Anonymise { how, .. } if how == "image" => Action::Anonymise(Anonymise::Image),
        Op::Anonymise { how, .. } => {
            how.parse().map_err(|_| wrong(&format!("{at}/then/how"), "is not known here"))?
        }
    })
}

/// What can be told of rules before the work begins.
pub(super) fn admit(rules: &[Rule]) -> Result<(), Refusal> {
    for (n, rule) in rules.iter().enumerate() {
        let at = format!("/params/rules/{n}");
        action(&rule.then, &at)?;
        if rule.zone.is_some() {
            let detail = "rules of jobs for pictures and clips hold everywhere";
            return Err(Refusal::at(Reason::Unavailable, format!("{at}/zone"), detail));
        }
    }
    overlay(rules).map(drop)
}

/// The picture that is laid over faces, when a rule asks for one; all rules share it.
pub(super) fn overlay(rules: &[Rule]) -> Result<Option<&Artifact>, Refusal> {
    let images = rules.iter().filter_map(|rule| match &rule.then {
        Op::Anonymise { how, image: Some(image) } if how == "image" => Some(image),
        _ => None,
    });
    let all: Vec<&Artifact> = images.collect();
    match all.as_slice() {
        [] => Ok(None),
        [one] => one.admit("/params/rules").map(|()| Some(*one)),
        _ => Err(wrong("/params/rules", "one picture for all `image` rules")),
    }
}

/// Identities whose faces are put on others.
pub(super) fn sources(rules: &[Rule]) -> Vec<IdentityId> {
    let named = rules.iter().filter_map(|rule| match &rule.then {
        Op::Swap { source } => source.parse().ok(),
        _ => None,
    });
    named.collect()
}

/// The recipe: the first rule that fits somebody holds, and who fits none is covered.
pub(super) fn recipe(rules: &[Rule], enrolled: &[IdentityId]) -> Result<Recipe, Refusal> {
    let mut recipe = Recipe::default();
    let mut default: Option<Action> = None;
    for (n, rule) in rules.iter().enumerate() {
        let at = format!("/params/rules/{n}");
        let action = action(&rule.then, &at)?;
        let mut name = |who: &IdentityId| {
            if !recipe.rules.iter().any(|known| known.who == *who) {
                recipe.rules.push(RecipeRule { who: who.clone(), action: action.clone() });
            }
        };
        match rule.who.as_str() {
            "known" => enrolled.iter().for_each(&mut name),
            // Strangers are those whom no rule names: everybody enrolled gets one.
            "stranger" => {
                default.get_or_insert(action);
            }
            "anyone" => {
                enrolled.iter().for_each(&mut name);
                default.get_or_insert(action);
            }
            who => {
                let who =
                    who.parse().map_err(|error| wrong(&format!("{at}/who"), format!("{error}")))?;
                name(&who);
            }
        }
    }
    let solid = recipe.action.clone();
    let strangers = default.unwrap_or_else(|| solid.clone());
    // Somebody enrolled whom no rule fits is no stranger: covered.
    for who in enrolled {
        if !recipe.rules.iter().any(|known| known.who == *who) {
            recipe.rules.push(RecipeRule { who: who.clone(), action: solid.clone() });
        }
    }
    recipe.action = strangers;
    Ok(recipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn made(rules: serde_json::Value) -> Recipe {
        let rules: Vec<Rule> = serde_json::from_value(rules).unwrap();
        admit(&rules).unwrap();
        recipe(&rules, &["anna".parse().unwrap(), "bert".parse().unwrap()]).unwrap()
    }

    fn of(recipe: &Recipe, who: &str) -> Action {
        let rule = recipe.rules.iter().find(|rule| rule.who.as_str() == who);
        rule.map_or(&recipe.action, |rule| &rule.action).clone()
    }

    #[test]
    fn the_first_rule_that_fits_holds_and_who_fits_none_is_covered() {
        let solid = Recipe::default().action;
        let pass = json!({ "do": "pass" });
        let one = made(json!([{ "who": "anna", "then": pass }]));
        assert_eq!(
            [of(&one, "anna"), of(&one, "bert"), of(&one, "x")],
            [Action::Pass, solid.clone(), solid.clone()]
        );
        let known = made(json!([
            { "who": "bert", "then": { "do": "anonymise", "how": "solid" } },
            { "who": "known", "then": pass },
        ]));
        assert_eq!(
            [of(&known, "anna"), of(&known, "bert"), of(&known, "x")],
            [Action::Pass, solid.clone(), solid.clone()]
        );
        let strangers = made(json!([{ "who": "stranger", "then": pass }]));
        assert_eq!([of(&strangers, "anna"), of(&strangers, "x")], [solid.clone(), Action::Pass]);
        let all = made(json!([
            { "who": "anyone", "then": { "do": "swap", "source": "anna" } },
            { "who": "stranger", "then": pass },
        ]));
        assert!(matches!(of(&all, "x"), Action::Swap(_)));
        assert!(matches!(of(&all, "bert"), Action::Swap(_)));
    }
}
