//! What is done to one face, and why: from the recipe, the policy and what recognition says.

use mien_base::clock::Clock;
use mien_base::consent::Scope;
use mien_base::id::IdentityId;
use mien_base::recipe::{Action, Anonymise, SelectMode, Swap};
use mien_engine::backend::Backend;

use crate::consent::Consent;
use crate::gallery::Match;
use crate::policy::{Policy, Source};
use crate::recipe::Checked;

/// What is known about who a face is.
#[derive(Debug, Clone, PartialEq)]
pub enum Who {
    /// The recipe does not ask, or the face lies where it does not matter.
    Unasked,
    /// Recognition ran.
    Seen(Match),
    /// It could not run on this face.
    Failed(String),
}

/// What is done.
#[derive(Debug)]
pub enum Deed<'a, B: Backend> {
    /// Left as it is.
    Pass,
    Anonymise(&'a Anonymise),
    /// Only with the source's consent.
    Swap {
        swap: &'a Swap,
        source: &'a Source<B>,
        consent: Consent,
    },
    /// Covered, because something else can't be done.
    Cover,
}

/// What is done, and the reason where it is not what was asked for.
#[derive(Debug)]
pub struct Decision<'a, B: Backend> {
    pub deed: Deed<'a, B>,
    pub reason: Option<String>,
}

impl<B: Backend> Decision<'_, B> {
    fn cover(reason: String) -> Self {
        Self { deed: Deed::Cover, reason: Some(reason) }
    }
}

/// Decides about one face. `left_out` says that the selector or the zones do not mean it, and
/// `in_zones` that at least the zones do.
#[must_use]
pub fn decide<'a, B: Backend>(
    recipe: &'a Checked,
    policy: &'a Policy<B>,
    who: &Who,
    in_zones: bool,
    left_out: bool,
    clock: &dyn Clock,
) -> Decision<'a, B> {
    let asked = recipe.recipe();
    if !in_zones {
        return carry_out(&asked.others, None, policy, clock);
    }
    let by_reference = asked.select.mode == SelectMode::Reference;
    let known = match who {
        Who::Failed(why) => return Decision::cover(format!("not to be recognised: {why}")),
        Who::Unasked if recipe.recognises() => {
            return Decision::cover("not to be recognised".to_owned());
        }
        Who::Seen(Match::Ambiguous(a, b)) => {
            let is_named = |i: &IdentityId| {
                asked.rules.iter().any(|r| r.who == *i)
                    || asked.select.reference.as_ref() == Some(i)
            };
            if is_named(a) || is_named(b) {
                return Decision::cover(format!("it could be {a} or {b}"));
            }
            None
        }
        Who::Seen(found) => found.known(),
        Who::Unasked => None,
    };
    if left_out {
        return carry_out(&asked.others, None, policy, clock);
    }
    let rule = known.and_then(|k| asked.rules.iter().find(|r| r.who == *k));
    let action = rule.map_or(&asked.action, |r| &r.action);
    // To be shown because one was recognised takes that person's consent.
    let shown = known.filter(|_| rule.is_some() || by_reference);
    carry_out(action, shown, policy, clock)
}

fn carry_out<'a, B: Backend>(
    action: &'a Action,
    shown: Option<&IdentityId>,
    policy: &'a Policy<B>,
    clock: &dyn Clock,
) -> Decision<'a, B> {
    let done = |deed| Decision { deed, reason: None };
    match action {
        Action::Pass => match shown.map(|who| policy.consent(who, Scope::Reveal, clock)) {
            Some(Err(why)) => Decision::cover(why.to_string()),
            Some(Ok(_)) | None => done(Deed::Pass),
        },
        Action::Anonymise(how) => done(Deed::Anonymise(how)),
        Action::Swap(swap) => {
            let Some(source) = policy.source(&swap.source) else {
                return Decision::cover(format!("`{}` is not enrolled", swap.source));
            };
            match policy.consent(&swap.source, Scope::Swap, clock) {
                Ok(consent) => done(Deed::Swap { swap, source, consent }),
                Err(why) => Decision::cover(why.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::check;
    use mien_base::clock::{ManualClock, Wall};
    use mien_base::consent::{ConsentRecord, Quality, SourceRecord};
    use mien_base::recipe::{Recipe, Rule};
    use mien_engine::cpu::Cpu;
    use mien_pixels::geometry::Size;
    use mien_pixels::view::Rgb;

    fn id(name: &str) -> IdentityId {
        name.parse().unwrap()
    }

    /// ada may be put on others until 200, bob may be shown, eve is enrolled without consent.
    fn policy() -> Policy<Cpu> {
        let backend = Cpu::new(1);
        let mut policy = Policy::new(7);
        for (name, scope) in
            [("ada", Some(Scope::Swap)), ("bob", Some(Scope::Reveal)), ("eve", None)]
        {
            let record = SourceRecord {
                identity: id(name),
                embedder: None,
                embedding: Vec::new(),
                mesh: Vec::new(),
                landmarks: [[1.0, 1.0]; 5],
                quality: Quality {
                    face_px: 90.0,
                    sharpness: 90.0,
                    yaw: 0.0,
                    pitch: 0.0,
                    score: 0.9,
                },
                enrolled: Wall(1),
            };
            let portrait = Rgb::filled(Size::new(4, 4), [9; 3]);
            let consents = scope.map(|scope| ConsentRecord {
                identity: id(name),
                subject: "p".to_owned(),
                purpose: "test".to_owned(),
                scope: vec![scope],
                granted: Wall(100),
                expires: Wall(200),
                revoked: None,
                evidence: None,
                operator: "op".to_owned(),
            });
            let source = Source::new(&backend, record, portrait).unwrap();
            policy.add(source, consents.into_iter().collect()).unwrap();
        }
        policy
    }

    fn rules(rules: &[(&str, &str)], action: &str) -> Recipe {
        let rule =
            |&(who, action): &(&str, &str)| Rule { who: id(who), action: action.parse().unwrap() };
        Recipe {
            rules: rules.iter().map(rule).collect(),
            action: action.parse().unwrap(),
            ..Recipe::default()
        }
    }

    fn seen(name: &str) -> Who {
        Who::Seen(Match::Known(id(name), 0.8))
    }

    fn stranger() -> Who {
        Who::Seen(Match::Stranger)
    }

    fn between(a: &str, b: &str) -> Who {
        Who::Seen(Match::Ambiguous(id(a), id(b)))
    }

    /// What is done at 150 (consent holds) in one word, `!` where a reason is given.
    fn outcome(recipe: &Recipe, who: &Who, in_zones: bool, left_out: bool) -> String {
        outcome_at(150, recipe, who, in_zones, left_out)
    }

    fn outcome_at(at: u64, recipe: &Recipe, who: &Who, zones: bool, left: bool) -> String {
        let (checked, policy) = (check(recipe).unwrap(), policy());
        let decision = decide(&checked, &policy, who, zones, left, &ManualClock::at(Wall(at)));
        let word = match decision.deed {
            Deed::Pass => "pass".to_owned(),
            Deed::Anonymise(how) => Action::Anonymise(how.clone()).to_string(),
            Deed::Swap { source, consent, .. } => {
                assert_eq!((source.identity(), consent.scope()), (consent.identity(), Scope::Swap));
                format!("swap:{}", source.identity())
            }
            Deed::Cover => "cover".to_owned(),
        };
        word + if decision.reason.is_some() { "!" } else { "" }
    }

    #[test]
    fn the_first_rule_that_names_the_face_holds_else_the_action() {
        let recipe =
            rules(&[("ada", "mosaic:4"), ("bob", "pass"), ("eve", "swap:ada")], "blur:0.3");
        for (who, expected) in [
            (seen("ada"), "mosaic:4"),
            (seen("bob"), "pass"),
            (seen("eve"), "swap:ada"),
            (seen("zoe"), "blur:0.3"),
            (stranger(), "blur:0.3"),
        ] {
            assert_eq!(outcome(&recipe, &who, true, false), expected, "{who:?}");
        }
    }

    #[test]
    fn doubt_about_who_it_is_covers() {
        let recipe = rules(&[("bob", "pass")], "pass");
        for (who, expected) in [
            (Who::Failed("no landmarks".to_owned()), "cover!"),
            (Who::Unasked, "cover!"),
            (between("bob", "ada"), "cover!"),
            (between("ada", "bob"), "cover!"),
            // Nobody who is named: the action holds for either.
            (between("ada", "eve"), "pass"),
        ] {
            assert_eq!(outcome(&recipe, &who, true, false), expected, "{who:?}");
        }
    }

    #[test]
    fn to_be_shown_because_one_was_recognised_takes_consent() {
        let recipe = rules(&[("ada", "pass"), ("bob", "pass"), ("eve", "pass")], "solid");
        assert_eq!(outcome(&recipe, &seen("bob"), true, false), "pass");
        // ada agreed to something else, eve to nothing, and bob's consent ends.
        assert_eq!(outcome(&recipe, &seen("ada"), true, false), "cover!");
        assert_eq!(outcome(&recipe, &seen("eve"), true, false), "cover!");
        assert_eq!(outcome_at(200, &recipe, &seen("bob"), true, false), "cover!");
    }

    #[test]
    fn a_reference_is_shown_only_with_consent_too() {
        let mut recipe = rules(&[], "pass");
        recipe.select.mode = SelectMode::Reference;
        recipe.select.reference = Some(id("eve"));
        assert_eq!(outcome(&recipe, &seen("eve"), true, false), "cover!");
        recipe.select.reference = Some(id("bob"));
        assert_eq!(outcome(&recipe, &seen("bob"), true, false), "pass");
        assert_eq!(outcome(&recipe, &stranger(), true, true), "solid");
    }

    #[test]
    fn a_swap_takes_an_enrolled_source_and_consent_that_holds_now() {
        for (action, at, expected) in [
            ("swap:ada", 150, "swap:ada"),
            ("swap:ada", 99, "cover!"),
            ("swap:ada", 200, "cover!"),
            ("swap:bob", 150, "cover!"),
            ("swap:eve", 150, "cover!"),
            ("swap:zoe", 150, "cover!"),
        ] {
            let recipe = rules(&[], action);
            let found = outcome_at(at, &recipe, &Who::Unasked, true, false);
            assert_eq!(found, expected, "{action} at {at}");
        }
    }

    #[test]
    fn a_face_that_is_left_out_gets_what_others_get() {
        let mut recipe = rules(&[("bob", "pass")], "swap:ada");
        recipe.others = "mosaic:3".parse().unwrap();
        assert_eq!(outcome(&recipe, &seen("bob"), true, true), "mosaic:3");
        assert_eq!(outcome(&recipe, &Who::Unasked, false, true), "mosaic:3");
        recipe.others = "swap:eve".parse().unwrap();
        assert_eq!(outcome(&recipe, &Who::Unasked, false, true), "cover!");
    }
}
