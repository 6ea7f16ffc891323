//! Checks what was asked for: all faults at once, each with its key path.

use std::collections::BTreeSet;

use mien_base::recipe::{
    Action, Anonymise, Detect, Mark, Mask, MaskKind, Recipe, Select, SelectMode, Swap,
};
use mien_base::{grammar, limits};

use crate::detect::{Fit, Options, SIDE_MOST, SIDE_STEP};
use crate::{Error, Result};

/// Least score where privacy depends on it: a face too many is covered rather than one missed.
pub const SCORE_PRIVATE: f32 = 0.2;
/// Least score where faces are swapped.
pub const SCORE_SWAP: f32 = 0.5;
/// Least height of the visible label as a share of the shorter side (GB 45438).
pub const LABEL_LEAST: f32 = 0.05;

/// A recipe in which every number holds. Only `check` makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    recipe: Recipe,
}

impl Checked {
    /// What was asked for.
    #[must_use]
    pub const fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Every action that a face may get.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let others = self.leaves_out().then_some(&self.recipe.others);
        std::iter::once(&self.recipe.action)
            .chain(others)
            .chain(self.recipe.rules.iter().map(|r| &r.action))
    }

    /// True when the selector or the zones may leave a face out.
    #[must_use]
    pub fn leaves_out(&self) -> bool {
        self.recipe.select.mode != SelectMode::Many || !self.recipe.select.zones.is_empty()
    }

    /// True when somebody's privacy rests on finding faces.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.actions().any(|a| matches!(a, Action::Anonymise(_)))
    }

    /// True when faces must be recognised.
    #[must_use]
    pub fn recognises(&self) -> bool {
        !self.recipe.rules.is_empty() || self.recipe.select.mode == SelectMode::Reference
    }

    /// True when a face may need its mesh: where it is made anew, or masked by its landmarks.
    #[must_use]
    pub fn wants_meshes(&self) -> bool {
        self.recipe.mask.kinds.contains(&MaskKind::Area) || self.actions().any(Action::makes_a_face)
    }

    /// True when the mask needs the person map.
    #[must_use]
    pub fn wants_person(&self) -> bool {
        self.recipe.mask.kinds.contains(&MaskKind::Person)
    }

    /// How to look for faces.
    #[must_use]
    pub fn options(&self) -> Options {
        let thorough = self.is_private();
        let score = if thorough { SCORE_PRIVATE } else { SCORE_SWAP };
        Options { thorough, ..options(&self.recipe.detect, score) }
    }
}

/// Options of a checked way to look, with the score that counts where none is given.
#[must_use]
pub fn options(detect: &Detect, score: f32) -> Options {
    Options {
        size: detect.size,
        score: detect.score.unwrap_or(score),
        margin: detect.margin,
        angles: detect.angles.clone(),
        fit: Fit::Letterbox,
        thorough: false,
    }
}

/// Checks a recipe.
///
/// # Errors
/// `Recipe` with every fault.
pub fn check(recipe: &Recipe) -> Result<Checked> {
    let mut faults = Faults::default();
    faults.detect(&recipe.detect);
    faults.select(&recipe.select);
    faults.action("action", &recipe.action);
    faults.action("others", &recipe.others);
    faults.rules(recipe);
    faults.mask(&recipe.mask);
    faults.mark(&recipe.mark);
    if faults.0.is_empty() {
        return Ok(Checked { recipe: recipe.clone() });
    }
    Err(Error::Recipe { faults: faults.0 })
}

/// Checks only how to look.
///
/// # Errors
/// `Recipe` with every fault.
pub fn check_detect(detect: &Detect) -> Result<()> {
    let mut faults = Faults::default();
    faults.detect(detect);
    if faults.0.is_empty() { Ok(()) } else { Err(Error::Recipe { faults: faults.0 }) }
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    /// Notes a fault unless the claim holds. The list is bounded as its recipe is.
    fn unless(&mut self, holds: bool, path: &str, wanted: &str) {
        if !holds {
            self.0.push(format!("`{path}` {wanted}"));
        }
    }

    fn within(&mut self, value: f32, range: std::ops::RangeInclusive<f32>, path: &str) {
        let wanted = format!("must lie in {} to {}, not {value}", range.start(), range.end());
        self.unless(range.contains(&value), path, &wanted);
    }

    fn detect(&mut self, detect: &Detect) {
        if let Some(size) = detect.size {
            let fine = (SIDE_STEP..=SIDE_MOST).contains(&size) && size % SIDE_STEP == 0;
            let wanted = format!("must be a multiple of {SIDE_STEP} up to {SIDE_MOST}, not {size}");
            self.unless(fine, "detect.size", &wanted);
        }
        if let Some(score) = detect.score {
            self.within(score, 0.01..=0.99, "detect.score");
        }
        self.within(detect.margin, 0.0..=100.0, "detect.margin");
        let angles: BTreeSet<u16> = detect.angles.iter().copied().collect();
        let fine = angles.iter().all(|a| [0, 90, 180, 270].contains(a))
            && angles.len() == detect.angles.len();
        self.unless(fine, "detect.angles", "may hold 0, 90, 180 and 270, each once");
    }

    fn select(&mut self, select: &Select) {
        let reference = select.mode == SelectMode::Reference;
        let wanted =
            "names whose face is meant: it belongs to `select.mode = reference`, and to no other";
        self.unless(reference == select.reference.is_some(), "select.reference", wanted);
        let fine = (select.position as usize) < limits::FACES;
        self.unless(fine, "select.position", &format!("must be below {}", limits::FACES));
        let fine = select.zones.len() <= limits::RULES;
        self.unless(fine, "select.zones", &format!("may hold {} at most", limits::RULES));
        for (i, zone) in select.zones.iter().enumerate().take(limits::RULES) {
            let path = format!("select.zones[{i}].points");
            let wanted = format!("must be 3 to {} corners", limits::ZONE_POINTS);
            self.unless((3..=limits::ZONE_POINTS).contains(&zone.points.len()), &path, &wanted);
            let inside = |v: f32| (0.0..=1.0).contains(&v);
            let fine = zone.points.iter().all(|&(x, y)| inside(x) && inside(y));
            self.unless(fine, &path, "must be fractions of the picture, 0 to 1");
        }
    }

    fn rules(&mut self, recipe: &Recipe) {
        let rules = &recipe.rules;
        let wanted = format!("may hold {} at most", limits::RULES);
        self.unless(rules.len() <= limits::RULES, "rules", &wanted);
        let mut seen = BTreeSet::new();
        for (i, rule) in rules.iter().enumerate().take(limits::RULES) {
            let wanted = format!("names `{}` again: the earlier rule holds", rule.who);
            self.unless(seen.insert(&rule.who), &format!("rules[{i}].who"), &wanted);
            self.action(&format!("rules[{i}].action"), &rule.action);
        }
    }

    fn action(&mut self, path: &str, action: &Action) {
        match action {
            Action::Pass
            | Action::Anonymise(
                Anonymise::Solid { .. } | Anonymise::Image | Anonymise::Synthetic { .. },
            ) => {}
            Action::Anonymise(Anonymise::Mosaic { cells }) => {
                let wanted = format!(
                    "must be 1 to {most} cells across the face, not {cells}: more can be recognised, \
                     and so can cells of a fixed number of pixels",
                    most = grammar::MOSAIC_CELLS
                );
                let fine = (1..=grammar::MOSAIC_CELLS).contains(cells);
                self.unless(fine, &format!("{path}.mosaic.cells"), &wanted);
            }
            Action::Anonymise(Anonymise::Blur { sigma }) => {
                let wanted = format!(
                    "must be {least} to 2 of the face's width, not {sigma}: a weaker blur can be \
                     recognised",
                    least = grammar::BLUR_SIGMA_LEAST
                );
                let fine = (grammar::BLUR_SIGMA_LEAST..=2.0).contains(sigma);
                self.unless(fine, &format!("{path}.blur.sigma"), &wanted);
            }
            Action::Swap(swap) => self.swap(&format!("{path}.swap"), swap),
        }
    }

    fn swap(&mut self, path: &str, swap: &Swap) {
        self.within(swap.weight, 0.0..=1.0, &format!("{path}.weight"));
        let path = format!("{path}.boost");
        self.unless((1..=4).contains(&swap.boost), &path, "must be 1, 2, 3 or 4");
        let fine = swap.model.is_some() || swap.boost == 1;
        self.unless(fine, &path, "belongs to a generator: name a `model`, or leave it at 1");
    }

    fn mask(&mut self, mask: &Mask) {
        let kinds = [MaskKind::Box, MaskKind::Ellipse, MaskKind::Area, MaskKind::Person];
        let once = |k: MaskKind| mask.kinds.iter().filter(|&&m| m == k).count() <= 1;
        self.unless(kinds.into_iter().all(once), "mask.kinds", "may hold each kind once");
        self.within(mask.scale, 0.5..=3.0, "mask.scale");
        self.within(mask.blur, 0.0..=1.0, "mask.blur");
        for (i, padding) in mask.padding.into_iter().enumerate() {
            self.within(padding, 0.0..=50.0, &format!("mask.padding[{i}]"));
        }
        let [top, right, bottom, left] = mask.padding;
        let fine = top + bottom < 100.0 && left + right < 100.0;
        self.unless(fine, "mask.padding", "must leave something between opposite sides");
    }

    fn mark(&mut self, mark: &Mark) {
        self.within(mark.label_height, LABEL_LEAST..=0.5, "mark.label_height");
        let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'\\');
        let fine =
            (1..=limits::NAME).contains(&mark.producer.len()) && mark.producer.bytes().all(plain);
        let wanted = format!(
            "must be 1 to {} printable characters, no space, quote, backslash",
            limits::NAME
        );
        self.unless(fine, "mark.producer", &wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::recipe::{Rule, Zone};

    fn faults(change: impl FnOnce(&mut Recipe)) -> Vec<String> {
        let mut recipe = Recipe::default();
        change(&mut recipe);
        match check(&recipe) {
            Ok(_) => Vec::new(),
            Err(Error::Recipe { faults }) => faults,
            Err(other) => panic!("{other}"),
        }
    }

    fn rule(who: &str, action: Action) -> Rule {
        Rule { who: who.parse().unwrap(), action }
    }

    fn swap(model: Option<&str>, weight: f32, boost: u32) -> Action {
        let model = model.map(|m| m.parse().unwrap());
        Action::Swap(Swap { source: "ada".parse().unwrap(), model, weight, boost })
    }

    #[test]
    fn the_default_holds_and_is_private() {
        let checked = check(&Recipe::default()).unwrap();
        assert!(checked.is_private() && !checked.recognises());
        assert_eq!(checked.options().score, SCORE_PRIVATE);
    }

    #[test]
    fn each_fault_is_named_by_its_key_path() {
        let mosaic = |cells| Action::Anonymise(Anonymise::Mosaic { cells });
        let blur = |sigma| Action::Anonymise(Anonymise::Blur { sigma });
        type Change = Box<dyn FnOnce(&mut Recipe)>;
        let cases: Vec<(&str, Change)> = vec![
            ("`detect.size`", Box::new(|r| r.detect.size = Some(100))),
            ("`detect.size`", Box::new(|r| r.detect.size = Some(0))),
            ("`detect.size`", Box::new(|r| r.detect.size = Some(4096))),
            ("`detect.score`", Box::new(|r| r.detect.score = Some(f32::NAN))),
            ("`detect.score`", Box::new(|r| r.detect.score = Some(1.0))),
            ("`detect.margin`", Box::new(|r| r.detect.margin = -1.0)),
            ("`detect.angles`", Box::new(|r| r.detect.angles = vec![45])),
            ("`detect.angles`", Box::new(|r| r.detect.angles = vec![90, 90])),
            ("`select.reference`", Box::new(|r| r.select.mode = SelectMode::Reference)),
            ("`select.reference`", Box::new(|r| r.select.reference = "a".parse().ok())),
            ("`select.position`", Box::new(|r| r.select.position = 512)),
            (
                "`select.zones[0].points`",
                Box::new(|r| r.select.zones = vec![Zone { points: vec![(0.0, 0.0); 2] }]),
            ),
            (
                "`select.zones[0].points`",
                Box::new(|r| r.select.zones = vec![Zone { points: vec![(0.0, 1.5); 3] }]),
            ),
            ("`action.mosaic.cells`", Box::new(move |r| r.action = mosaic(7))),
            ("`others.mosaic.cells`", Box::new(move |r| r.others = mosaic(0))),
            ("`action.blur.sigma`", Box::new(move |r| r.action = blur(0.149))),
            ("`action.blur.sigma`", Box::new(move |r| r.action = blur(f32::NAN))),
            (
                "`rules[1].action.blur.sigma`",
                Box::new(move |r| r.rules = vec![rule("a", Action::Pass), rule("b", blur(0.1))]),
            ),
            (
                "`rules[1].who`",
                Box::new(|r| r.rules = vec![rule("a", Action::Pass), rule("a", Action::Pass)]),
            ),
            ("`action.swap.weight`", Box::new(|r| r.action = swap(None, 1.5, 1))),
            ("`action.swap.boost`", Box::new(|r| r.action = swap(Some("m"), 0.5, 5))),
            ("`action.swap.boost`", Box::new(|r| r.action = swap(None, 0.5, 2))),
            ("`mask.kinds`", Box::new(|r| r.mask.kinds = vec![MaskKind::Box, MaskKind::Box])),
            ("`mask.scale`", Box::new(|r| r.mask.scale = 0.0)),
            ("`mask.blur`", Box::new(|r| r.mask.blur = 1.1)),
            ("`mask.padding[2]`", Box::new(|r| r.mask.padding[2] = 51.0)),
            ("`mask.padding`", Box::new(|r| r.mask.padding = [50.0, 0.0, 50.0, 0.0])),
            ("`mark.label_height`", Box::new(|r| r.mark.label_height = 0.04)),
            ("`mark.producer`", Box::new(|r| r.mark.producer = "a b".to_owned())),
            ("`mark.producer`", Box::new(|r| r.mark.producer = String::new())),
        ];
        for (path, change) in cases {
            let found = faults(change);
            assert!(found.len() == 1 && found[0].starts_with(path), "{path}: {found:?}");
        }
    }

    #[test]
    fn all_faults_come_at_once() {
        let found = faults(|r| {
            r.detect.margin = 200.0;
            r.mask.blur = -1.0;
            r.mark.producer = "\"".to_owned();
        });
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn the_score_is_low_only_where_a_cover_may_be_asked_for() {
        let recipe = |change: fn(&mut Recipe)| {
            let mut recipe = Recipe { action: swap(None, 0.5, 1), ..Recipe::default() };
            change(&mut recipe);
            check(&recipe).unwrap().options().score
        };
        // All faces are swapped: nobody is left out for `others` to cover.
        assert_eq!(recipe(|_| ()), SCORE_SWAP);
        assert_eq!(recipe(|r| r.select.mode = SelectMode::One), SCORE_PRIVATE);
        assert_eq!(
            recipe(|r| {
                r.select.mode = SelectMode::One;
                r.others = Action::Pass;
            }),
            SCORE_SWAP
        );
        assert_eq!(recipe(|r| r.rules = vec![rule("a", "solid".parse().unwrap())]), SCORE_PRIVATE);
        assert_eq!(recipe(|r| r.detect.score = Some(0.4)), 0.4);
    }
}
