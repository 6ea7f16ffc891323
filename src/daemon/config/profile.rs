//! Which pipelines run at which time of day, and how.

use std::collections::BTreeMap;

use super::table::Section;
use super::{Pipeline, recipe, units};

/// Minutes since midnight, local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(pub u16);

impl std::fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

const DAYS: [(&str, Day); 7] = [
    ("mon", Day::Mon),
    ("tue", Day::Tue),
    ("wed", Day::Wed),
    ("thu", Day::Thu),
    ("fri", Day::Fri),
    ("sat", Day::Sat),
    ("sun", Day::Sun),
];

/// What is different at certain times.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub name: String,
    pub from: TimeOfDay,
    /// Not included; at or before `from` it is the next day's.
    pub to: TimeOfDay,
    /// Days on which it begins; empty is every day.
    pub days: Vec<Day>,
    /// Pipelines as they are while it holds; what it does not name stays as it is.
    pub pipelines: BTreeMap<String, Pipeline>,
}

const DAY: u64 = 24 * 60;

impl Profile {
    /// Whether it holds at a local time, in seconds since 1970-01-01.
    #[must_use]
    pub fn holds(&self, local: u64) -> bool {
        let minute = local / 60;
        let (from, to) = (u64::from(self.from.0), u64::from(self.to.0));
        let long = if to > from { to - from } else { to + DAY - from };
        // When it began last, seen from now.
        let Some(begun) = minute.checked_sub(from).map(|since| since / DAY) else { return false };
        if minute - (begun * DAY + from) >= long {
            return false;
        }
        // 1970-01-01 was a Thursday.
        let (_, day) = DAYS[usize::try_from((begun + 3) % 7).unwrap_or(0)];
        self.days.is_empty() || self.days.contains(&day)
    }
}

/// Reads `[profile.NAME]` and the pipelines below it, as far as they differ from `base`.
pub(super) fn read<'s, 't>(
    name: &str,
    table: Section<'s, 't>,
    base: &[(Pipeline, Section<'s, 't>)],
    device: u32,
) -> Option<Profile> {
    let time = |key| table.read(key, "a time of day, 00:00 to 23:59", units::clock);
    let from = table.must("from", time("from"), "from = \"22:00\"");
    let to = table.must("to", time("to"), "to = \"06:00\"");
    let words: Vec<&str> = DAYS.iter().map(|(word, _)| *word).collect();
    let day = |text: &str| DAYS.iter().find(|(word, _)| *word == text).map(|(_, day)| *day);
    let days = table.texts("days", DAYS.len(), &words.join(", "), day).unwrap_or_default();
    let mut pipelines = BTreeMap::new();
    for (name, changed) in table.named("pipeline", mien_base::limits::PIPELINES) {
        let Some((pipeline, below)) = base.iter().find(|(pipeline, _)| pipeline.name == name)
        else {
            let names: Vec<&str> =
                base.iter().map(|(pipeline, _)| pipeline.name.as_str()).collect();
            let message = format!("there is no such pipeline; there are {}", names.join(", "));
            changed.sheet().fault(changed.at, &changed.key, message);
            continue;
        };
        let merged = changed.over(below);
        let enabled = merged.truth("enabled").unwrap_or(true);
        let (recipe, overlay) = recipe::read(&merged, device);
        let pipeline = Pipeline { enabled, recipe, overlay, ..pipeline.clone() };
        pipelines.insert(name.to_owned(), pipeline);
        merged.finish();
    }
    table.finish();
    let (from, to) = (TimeOfDay(from?), TimeOfDay(to?));
    Some(Profile { name: name.to_owned(), from, to, days, pipelines })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::clock::Wall;

    fn at(date: (u64, u64, u64), hour: u64, minute: u64) -> u64 {
        Wall::from_date(date.0, date.1, date.2).unwrap().0 + hour * 3600 + minute * 60
    }

    #[test]
    fn a_night_belongs_to_the_day_on_which_it_begins() {
        let mut night = Profile {
            name: "night".to_owned(),
            from: TimeOfDay(22 * 60),
            to: TimeOfDay(6 * 60),
            days: vec![Day::Fri],
            pipelines: BTreeMap::new(),
        };
        // 2026-12-04 is a Friday.
        let (friday, saturday) = ((2026, 12, 4), (2026, 12, 5));
        assert!(!night.holds(at(friday, 21, 59)) && night.holds(at(friday, 22, 0)));
        assert!(night.holds(at(saturday, 5, 59)) && !night.holds(at(saturday, 6, 0)));
        assert!(!night.holds(at(saturday, 23, 0)) && !night.holds(at(friday, 5, 0)));
        night.days.clear();
        assert!(night.holds(at(saturday, 23, 0)) && night.holds(at(friday, 5, 0)));
        (night.from, night.to) = (TimeOfDay(0), TimeOfDay(0));
        assert!(night.holds(at(friday, 0, 0)) && night.holds(at(friday, 23, 59)), "a whole day");
    }
}
