//! Arguments and rule files into a recipe; every fault names the option or key and what is allowed.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use mien_base::clock::Wall;
use mien_base::grammar;
use mien_base::id::{DeviceId, IdentityId, JobId};
use mien_base::limits;
use mien_base::recipe::{
    Action, Corner, Detect, Mark, Mask, MaskKind, Order, Recipe, Rule, Select, SelectMode, Stands,
    Swap,
};
use mien_daemon::config::machine_number;

use super::args::{
    CornerArg, DetectorArgs, LabelArg, MarkArgs, MaskArg, MaskArgs, ModeArg, OrderArg, ProcessArgs,
    SelectArgs,
};
use super::error::{Error, Result};

/// A recipe, and what it needs beside the gallery.
#[derive(Debug)]
pub(crate) struct Asked {
    pub recipe: Recipe,
    /// Picture for `image` covers.
    pub overlay: Option<PathBuf>,
}

/// What `mien process` asks for. `source` is the identity that `--swap` stands for.
pub(crate) fn from_process(args: &ProcessArgs, source: Option<IdentityId>) -> Result<Asked> {
    let mut overlay = None;
    let swap = |source| {
        let model = args.swapper.as_deref().map(|name| parse("--swapper", name)).transpose()?;
        Ok::<_, Error>(Swap { source, model, weight: args.weight, boost: args.boost })
    };
    let action = match (source, &args.anonymise) {
        (Some(source), _) => Action::Swap(swap(source)?),
        (None, Some(how)) => action("--anonymise", how, &mut overlay)?,
        (None, None) => Recipe::default().action,
    };
    let others = action_or("--others", &args.others, &mut overlay)?;
    let mut rules = match &args.rules {
        Some(path) => read_rules(path, &mut overlay)?,
        None => Vec::new(),
    };
    for rule in &mut rules {
        if let Action::Swap(rule_swap) = &mut rule.action {
            *rule_swap = swap(rule_swap.source.clone())?;
        }
    }
    let recipe = Recipe {
        detect: detect(&args.detect)?,
        select: select(&args.select)?,
        action,
        others,
        rules,
        mask: mask(&args.mask)?,
        mark: mark(&args.mark)?,
    };
    Ok(Asked { recipe, overlay })
}

/// The detector part alone.
pub(crate) fn detect(args: &DetectorArgs) -> Result<Detect> {
    let model = parse("--detector", &args.detector)?;
    if let Some(size) = args.detector_size
        && (size == 0 || size % 32 != 0 || size > 4096)
    {
        return Err(usage("--detector-size", &size.to_string(), "a multiple of 32 up to 4096"));
    }
    if let Some(score) = args.score {
        within("--score", score, 0.0, 1.0)?;
    }
    within("--margin", args.margin, 0.0, 100.0)?;
    if let Some(angle) = args.angles.iter().find(|a| ![0, 90, 180, 270].contains(*a)) {
        return Err(usage("--angles", &angle.to_string(), "of 0, 90, 180, 270"));
    }
    Ok(Detect {
        model,
        size: args.detector_size,
        score: args.score,
        margin: args.margin,
        angles: args.angles.clone(),
    })
}

fn usage(option: &str, value: &str, wanted: &str) -> Error {
    let value: String = value.chars().take(80).flat_map(char::escape_debug).collect();
    Error::Usage(format!("`{value}` does not fit {option}: {wanted}"))
}

fn within(option: &str, value: f32, least: f32, most: f32) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(usage(option, &value.to_string(), &format!("{least} to {most}")))
}

fn parse<T: std::str::FromStr<Err = mien_base::id::BadName>>(
    option: &str,
    name: &str,
) -> Result<T> {
    name.parse().map_err(|error| Error::Usage(format!("{option}: {error}")))
}

/// An action of `--anonymise`: everything but pass and swap.
fn action(option: &str, how: &str, overlay: &mut Option<PathBuf>) -> Result<Action> {
    match action_or(option, how, overlay)? {
        action @ Action::Anonymise(_) => Ok(action),
        Action::Pass => {
            Err(usage(option, how, "to leave faces as they are use --others pass or a rule"))
        }
        Action::Swap(_) => Err(usage(option, how, "to swap use --swap NAME")),
    }
}

fn action_or(option: &str, how: &str, overlay: &mut Option<PathBuf>) -> Result<Action> {
    let (action, file) =
        grammar::action(how).map_err(|error| Error::Usage(format!("{option}: {error}")))?;
    if overlay.is_some() && file.is_some() && *overlay != file {
        return Err(usage(option, how, "one picture for all `image` actions"));
    }
    *overlay = file.or(overlay.take());
    Ok(action)
}

fn select(args: &SelectArgs) -> Result<Select> {
    let reference = args.reference.as_deref().map(|name| parse("--reference", name)).transpose()?;
    if args.zones.len() > limits::RULES {
        return Err(usage("--zone", &args.zones.len().to_string(), "at most 64 zones"));
    }
    Ok(Select {
        mode: match args.mode {
            ModeArg::Many => SelectMode::Many,
            ModeArg::One => SelectMode::One,
            ModeArg::Reference => SelectMode::Reference,
        },
        order: match args.order {
            OrderArg::LeftRight => Order::LeftRight,
            OrderArg::RightLeft => Order::RightLeft,
            OrderArg::TopBottom => Order::TopBottom,
            OrderArg::BottomTop => Order::BottomTop,
            OrderArg::SmallLarge => Order::SmallLarge,
            OrderArg::LargeSmall => Order::LargeSmall,
            OrderArg::BestWorst => Order::BestWorst,
            OrderArg::WorstBest => Order::WorstBest,
        },
        position: args.position,
        reference,
        zones: args
            .zones
            .iter()
            .map(|text| text.parse().map_err(|e| Error::Usage(format!("--zone: {e}"))))
            .collect::<Result<_>>()?,
    })
}

fn mask(args: &MaskArgs) -> Result<Mask> {
    within("--mask-scale", args.mask_scale, 1.0, 3.0)?;
    within("--mask-blur", args.mask_blur, 0.0, 1.0)?;
    for value in &args.mask_padding {
        within("--mask-padding", *value, 0.0, 50.0)?;
    }
    let padding = match *args.mask_padding.as_slice() {
        [] => [0.0; 4],
        [all] => [all; 4],
        [v, h] => [v, h, v, h],
        [t, h, b] => [t, h, b, h],
        [t, r, b, l] => [t, r, b, l],
        _ => {
            let given = args.mask_padding.len().to_string();
            return Err(usage("--mask-padding", &given, "one to four numbers"));
        }
    };
    let kinds = args.masks.iter().map(|kind| match kind {
        MaskArg::Box => MaskKind::Box,
        MaskArg::Ellipse => MaskKind::Ellipse,
        MaskArg::Area => MaskKind::Area,
        MaskArg::Person => MaskKind::Person,
    });
    Ok(Mask { kinds: kinds.collect(), scale: args.mask_scale, padding, blur: args.mask_blur })
}

fn mark(args: &MarkArgs) -> Result<Mark> {
    within("--label-height", args.label_height, 0.05, 0.25)?;
    let printable = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
    if args.producer.is_empty() || args.producer.len() > 64 || !args.producer.bytes().all(printable)
    {
        let wanted = "1 to 64 printable ASCII characters without space, quote, backslash";
        return Err(usage("--producer", &args.producer, wanted));
    }
    let number = args.device.unwrap_or_else(machine_number);
    let device = DeviceId::new(number)
        .ok_or_else(|| usage("--device", &number.to_string(), "a number below 2^28"))?;
    Ok(Mark {
        device,
        counter: 0,
        label_height: args.label_height,
        stands: match args.label {
            LabelArg::Always => Stands::Always,
            LabelArg::Start => Stands::Start,
        },
        corner: match args.label_corner {
            CornerArg::TopLeft => Corner::TopLeft,
            CornerArg::TopRight => Corner::TopRight,
            CornerArg::BottomLeft => Corner::BottomLeft,
            CornerArg::BottomRight => Corner::BottomRight,
        },
        producer: args.producer.clone(),
    })
}

/// The marks of what jobs make.
pub(crate) fn usual_mark() -> Mark {
    let usual = Recipe::default().mark;
    Mark { device: DeviceId::new(machine_number()).unwrap_or(usual.device), ..usual }
}

/// The counter of the watermark: 16 bits of the job id, and the hour since 2026 in 16 bits.
pub(crate) fn counter(job: JobId, wall: Wall) -> u32 {
    let start = Wall::from_date(2026, 1, 1).expect("a date").0;
    let hours = wall.0.saturating_sub(start) / 3600;
    u32::from(u16::from_be_bytes([job.0[0], job.0[1]])) << 16 | (hours & 0xffff) as u32
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    who: toml::Spanned<String>,
    r#do: toml::Spanned<String>,
}

fn read_rules(path: &Path, overlay: &mut Option<PathBuf>) -> Result<Vec<Rule>> {
    let text = super::desk::read_text("Can't read the rule file", path)?;
    rules(&text, overlay).map_err(|(at, message)| {
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        Error::Usage(format!("{} line {line}: {message}", path.display()))
    })
}

/// Rules of a file; an error says at which byte.
fn rules(
    text: &str,
    overlay: &mut Option<PathBuf>,
) -> std::result::Result<Vec<Rule>, (usize, String)> {
    let file: RuleFile = toml::from_str(text)
        .map_err(|error| (error.span().map_or(0, |s| s.start), error.message().to_owned()))?;
    if file.rule.len() > limits::RULES {
        return Err((0, format!("{} rules, at most {} are read", file.rule.len(), limits::RULES)));
    }
    let mut rules: Vec<Rule> = Vec::new();
    for entry in file.rule {
        let who: IdentityId = entry
            .who
            .get_ref()
            .parse()
            .map_err(|error| (entry.who.span().start, format!("who: {error}")))?;
        if rules.iter().any(|rule| rule.who == who) {
            return Err((entry.who.span().start, format!("who: `{who}` has a rule already")));
        }
        let action = action_or("do", entry.r#do.get_ref(), overlay)
            .map_err(|error| (entry.r#do.span().start, error.to_string()))?;
        rules.push(Rule { who, action });
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_file_says_where_it_is_wrong() {
        let mut overlay = None;
        let good = "[[rule]]\nwho = \"alice\"\ndo = \"swap:bob\"\n";
        assert_eq!(rules(good, &mut overlay).unwrap().len(), 1);
        let line = |text: &str| {
            let (at, message) = rules(text, &mut None).unwrap_err();
            (text[..at].matches('\n').count() + 1, message)
        };
        assert_eq!(line("[[rule]]\nwho = \"alice\"\ndo = \"explode\"\n").0, 3);
        assert_eq!(line("[[rule]]\nwho = \"Alice\"\ndo = \"pass\"\n").0, 2);
        let (at, message) = line("[[rule]]\nwho = \"a\"\ndo = \"pass\"\nwhen = 1\n");
        assert_eq!(at, 4);
        assert!(message.contains("when"), "{message}");
    }

    #[test]
    fn the_counter_holds_job_and_hour() {
        let job: JobId = "abcd0000000000000000000000000000".parse().unwrap();
        let wall = Wall(Wall::from_date(2026, 1, 2).unwrap().0 + 3599);
        assert_eq!(counter(job, wall), 0xabcd_0018);
    }
}
