//! What is done to whom: the words of `mien process` as keys of a pipeline.

use std::path::PathBuf;

use mien_base::grammar;
use mien_base::id::{DeviceId, IdentityId, ModelId};
use mien_base::limits;
use mien_base::recipe::{
    Action, Corner, Detect, Mark, Mask, MaskKind, Order, Recipe, Rule, Select, SelectMode, Stands,
    Swap, Zone,
};

use super::table::Section;

/// 28 bits that tell machines apart and do not give the machine's id away; 0 where it has none.
#[must_use]
pub fn machine_number() -> u32 {
    let Ok(machine) = std::fs::read("/etc/machine-id") else { return 0 };
    let digest = mien_vault::digest::of(&[b"mien device ", machine.trim_ascii()].concat());
    u32::from_str_radix(&digest[..7], 16).expect("a digest is hex")
}

const MODES: &[(&str, SelectMode)] =
    &[("many", SelectMode::Many), ("one", SelectMode::One), ("reference", SelectMode::Reference)];
const ORDERS: &[(&str, Order)] = &[
    ("left-right", Order::LeftRight),
    ("right-left", Order::RightLeft),
    ("top-bottom", Order::TopBottom),
    ("bottom-top", Order::BottomTop),
    ("small-large", Order::SmallLarge),
    ("large-small", Order::LargeSmall),
    ("best-worst", Order::BestWorst),
    ("worst-best", Order::WorstBest),
];
const CORNERS: &[(&str, Corner)] = &[
    ("top-left", Corner::TopLeft),
    ("top-right", Corner::TopRight),
    ("bottom-left", Corner::BottomLeft),
    ("bottom-right", Corner::BottomRight),
];
const MASKS: &[(&str, MaskKind)] = &[
    ("box", MaskKind::Box),
    ("ellipse", MaskKind::Ellipse),
    ("area", MaskKind::Area),
    ("person", MaskKind::Person),
];

/// The recipe that a table asks for, and the picture of its `image` covers.
pub(super) fn read(table: &Section<'_, '_>, device: u32) -> (Recipe, Option<PathBuf>) {
    let usual = Recipe::default();
    let mut actions = Actions { table, overlay: None, model: None, weight: 0.5, boost: 1 };
    actions.model = table.read("swapper", NAMED, |text| text.parse::<ModelId>().ok());
    actions.weight = table.number("weight", 0.0..=1.0).unwrap_or(0.5);
    actions.boost = table.whole("boost", 1..=4).map_or(1, |n| n as u32);
    let (anonymise, swap) = (table.text("anonymise"), table.text("swap"));
    let action = match (anonymise, swap) {
        (Some(_), Some(_)) => {
            table.refuse("swap", "stands beside `anonymise`; write one of the two");
            usual.action.clone()
        }
        (Some(how), None) => match actions.parse(table, "anonymise", how) {
            Some(action @ Action::Anonymise(_)) => action,
            Some(_) => {
                let allowed = "solid, mosaic, blur, image=FILE, synthetic; use `swap`, or rules";
                table.refuse("anonymise", format!("`{how}` hides nobody; allowed are {allowed}"));
                usual.action.clone()
            }
            None => usual.action.clone(),
        },
        (None, Some(name)) => match actions.parse(table, "swap", &format!("swap:{name}")) {
            Some(action) => action,
            None => usual.action.clone(),
        },
        (None, None) => usual.action.clone(),
    };
    let others = table.text("others").and_then(|how| actions.parse(table, "others", how));
    let rules = rules(table, &mut actions);
    let recipe = Recipe {
        detect: detect(table, usual.detect),
        select: select(table),
        action,
        others: others.unwrap_or(usual.others),
        rules,
        mask: mask(table, usual.mask),
        mark: mark(table, device, usual.mark),
    };
    (recipe, actions.overlay)
}

const NAMED: &str = "a name of a-z, 0-9, `.`, `_`, `-`";

/// What the actions of one pipeline share.
struct Actions<'a, 's, 't> {
    /// Where paths are relative to.
    table: &'a Section<'s, 't>,
    overlay: Option<PathBuf>,
    model: Option<ModelId>,
    weight: f32,
    boost: u32,
}

impl Actions<'_, '_, '_> {
    fn parse(&mut self, at: &Section<'_, '_>, key: &'static str, how: &str) -> Option<Action> {
        let (action, file) = match grammar::action(how) {
            Ok(found) => found,
            Err(error) => {
                at.refuse(key, error.to_string());
                return None;
            }
        };
        if let Some(file) = file {
            let file = self.table.sheet().place(&file);
            if self.overlay.as_ref().is_some_and(|other| *other != file) {
                at.refuse(key, "names a second picture; all `image` actions share one");
            }
            self.overlay = Some(file);
        }
        Some(match action {
            Action::Swap(swap) => Action::Swap(Swap {
                source: swap.source,
                model: self.model.clone(),
                weight: self.weight,
                boost: self.boost,
            }),
            other => other,
        })
    }
}

fn rules(table: &Section<'_, '_>, actions: &mut Actions<'_, '_, '_>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for entry in table.sections("rule", limits::RULES) {
        let who = entry.read("who", NAMED, |text| text.parse::<IdentityId>().ok());
        let who = entry.must("who", who, "who = \"NAME\", an enrolled identity");
        let how = entry.text("do");
        let how = entry.must("do", how, "do = \"ACTION\", for example \"pass\" or \"swap:bob\"");
        let action = how.and_then(|how| actions.parse(&entry, "do", how));
        if let (Some(who), Some(action)) = (who, action) {
            if rules.iter().any(|rule| rule.who == who) {
                entry.refuse("who", format!("`{who}` has a rule already; the first one holds"));
            }
            rules.push(Rule { who, action });
        }
        entry.finish();
    }
    rules
}

fn detect(table: &Section<'_, '_>, usual: Detect) -> Detect {
    let model = table.read("detector", NAMED, |text| text.parse().ok());
    let size = table.whole("detector_size", 32..=4096).map(|n| n as u32);
    if size.is_some_and(|size| size % 32 != 0) {
        table.refuse("detector_size", "does not fit; allowed is a multiple of 32 up to 4096");
    }
    let turns = [0, 90, 180, 270];
    let angles = table.wholes("angles", 4, "0, 90, 180, 270", |n| turns.contains(&n));
    Detect {
        model: model.unwrap_or(usual.model),
        size,
        score: table.number("score", 0.0..=1.0),
        margin: table.number("margin", 0.0..=100.0).unwrap_or(usual.margin),
        angles: angles.map_or(usual.angles, |all| all.into_iter().map(|n| n as u16).collect()),
    }
}

fn select(table: &Section<'_, '_>) -> Select {
    let mode = table.choice("mode", MODES).unwrap_or(SelectMode::Many);
    let reference = table.read("reference", NAMED, |text| text.parse().ok());
    if mode == SelectMode::Reference && reference.is_none() {
        table.fault("reference", "is missing; with mode = \"reference\" it names who is meant");
    }
    let zone = "`x0,y0,x1,y1` or at least three corners `x,y x,y x,y`, each 0 to 100 percent";
    let zones = table.texts("zones", limits::RULES, zone, |text| text.parse::<Zone>().ok());
    Select {
        mode,
        order: table.choice("order", ORDERS).unwrap_or(Order::LargeSmall),
        position: table.whole("position", 0..=511).map_or(0, |n| n as u32),
        reference,
        zones: zones.unwrap_or_default(),
    }
}

fn mask(table: &Section<'_, '_>, usual: Mask) -> Mask {
    let words: Vec<&str> = MASKS.iter().map(|(word, _)| *word).collect();
    let kind = |text: &str| MASKS.iter().find(|(word, _)| *word == text).map(|(_, kind)| *kind);
    let padding = table.numbers("mask_padding", 4, 0.0..=50.0);
    let padding = match padding.as_deref() {
        None | Some([]) => usual.padding,
        Some(&[all]) => [all; 4],
        Some(&[v, h]) => [v, h, v, h],
        Some(&[t, h, b]) => [t, h, b, h],
        Some(four) => std::array::from_fn(|n| four[n]),
    };
    Mask {
        kinds: table.texts("mask", MASKS.len(), &words.join(", "), kind).unwrap_or(usual.kinds),
        scale: table.number("mask_scale", 1.0..=3.0).unwrap_or(usual.scale),
        padding,
        blur: table.number("mask_blur", 0.0..=1.0).unwrap_or(usual.blur),
    }
}

fn mark(table: &Section<'_, '_>, device: u32, usual: Mark) -> Mark {
    let printable = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
    let wanted = "1 to 64 printable ASCII characters without space, quote, backslash";
    let producer = table.read("producer", wanted, |text| {
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(printable);
        fits.then(|| text.to_owned())
    });
    let label = [("always", Stands::Always), ("start", Stands::Start)];
    Mark {
        device: DeviceId::new(device).unwrap_or(usual.device),
        counter: 0,
        label_height: table.number("label_height", 0.05..=0.25).unwrap_or(usual.label_height),
        corner: table.choice("label_corner", CORNERS).unwrap_or(usual.corner),
        stands: table.choice("label", &label).unwrap_or(usual.stands),
        producer: producer.unwrap_or(usual.producer),
    }
}

/// Sources that a recipe swaps in.
pub fn swapped(recipe: &Recipe) -> impl Iterator<Item = &IdentityId> {
    let ruled = recipe.rules.iter().map(|rule| &rule.action);
    ruled.chain([&recipe.action, &recipe.others]).filter_map(|action| match action {
        Action::Swap(swap) => Some(&swap.source),
        Action::Pass | Action::Anonymise(_) => None,
    })
}

/// Identities that a recipe knows by name and does not swap in.
pub fn known(recipe: &Recipe) -> impl Iterator<Item = &IdentityId> {
    recipe.rules.iter().map(|rule| &rule.who).chain(&recipe.select.reference)
}
