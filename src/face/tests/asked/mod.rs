//! What tests ask for: recipes in few words, and sources that agreed to everything.
#![allow(dead_code, clippy::unwrap_used)]

use mien_base::clock::{ManualClock, Wall};
use mien_base::consent::{ConsentRecord, Scope};
use mien_base::recipe::{Recipe, Rule};
use mien_engine::backend::Backend;
use mien_face::enrol::enrol;
use mien_face::meter::Meter;
use mien_face::models::Models;
use mien_face::policy::{Policy, Source};
use mien_pixels::view::Rgb;

pub(crate) fn clock() -> ManualClock {
    ManualClock::at(Wall(150))
}

pub(crate) fn recipe(action: &str, rules: &[(&str, &str)]) -> Recipe {
    let rule = |&(who, action): &(&str, &str)| Rule {
        who: who.parse().unwrap(),
        action: action.parse().unwrap(),
    };
    Recipe {
        action: action.parse().unwrap(),
        rules: rules.iter().map(rule).collect(),
        ..Recipe::default()
    }
}

/// Sources that agreed to everything, each from a picture.
pub(crate) fn policy<B: Backend>(models: &mut Models<B>, sources: &[(&str, &Rgb)]) -> Policy<B> {
    let mut policy = Policy::new(1);
    let clock = clock();
    for (name, picture) in sources {
        let how = Recipe::default().detect;
        let mut meter = Meter::new(&clock);
        let identity = name.parse().unwrap();
        let (record, portrait) =
            enrol(models, identity, &how, (*picture).clone(), Wall(100), &mut meter).unwrap();
        let consent = ConsentRecord {
            identity: name.parse().unwrap(),
            subject: "p".to_owned(),
            purpose: "test".to_owned(),
            scope: vec![Scope::Swap, Scope::Reveal],
            granted: Wall(100),
            expires: Wall(200),
            revoked: None,
            evidence: None,
            operator: "op".to_owned(),
        };
        let source = Source::new(&**models.backend(), record, portrait).unwrap();
        policy.add(source, vec![consent]).unwrap();
    }
    policy
}
