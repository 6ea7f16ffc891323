//! A TOML table whose keys are asked for by name: what nobody asked for is a fault.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::faults::{Fault, Faults, TOLD};
use super::units;

/// Gathers the faults of one text.
#[derive(Debug)]
pub(super) struct Sheet<'t> {
    path: &'t Path,
    text: &'t str,
    faults: RefCell<Vec<Fault>>,
}

impl<'t> Sheet<'t> {
    pub(super) fn new(path: &'t Path, text: &'t str) -> Self {
        Self { path, text, faults: RefCell::default() }
    }

    /// A fault at a byte of the text.
    pub(super) fn fault(&self, at: usize, key: &str, message: impl Into<String>) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < TOLD {
            let before = self.text.as_bytes().get(..at).unwrap_or_default();
            let line = before.iter().filter(|b| **b == b'\n').count() + 1;
            let key = key.to_owned();
            faults.push(Fault { line, key, message: message.into() });
        }
    }

    /// All that was found, if anything was.
    pub(super) fn close(&self) -> Result<(), Faults> {
        let mut faults = self.faults.take();
        if faults.is_empty() {
            return Ok(());
        }
        faults.sort_by_key(|fault| fault.line);
        // A profile looks at the keys of its pipelines again.
        faults.dedup_by(|a, b| a.line == b.line && a.message == b.message);
        Err(Faults { file: self.path.to_owned(), faults })
    }

    /// A path of the file: what is relative stands beside it.
    pub(super) fn place(&self, text: impl AsRef<Path>) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(text)
    }
}

/// A table at its place. Of several laid over each other the first one that has a key counts.
#[derive(Debug)]
pub(super) struct Section<'s, 't> {
    sheet: &'s Sheet<'t>,
    /// For example `camera.door`.
    pub(super) key: String,
    pub(super) at: usize,
    layers: Vec<&'s DeTable<'t>>,
    asked: RefCell<Vec<&'static str>>,
}

type Value<'s, 't> = &'s Spanned<DeValue<'t>>;

impl<'s, 't> Section<'s, 't> {
    pub(super) fn new(
        sheet: &'s Sheet<'t>,
        key: String,
        at: usize,
        table: &'s DeTable<'t>,
    ) -> Self {
        Self { sheet, key, at, layers: vec![table], asked: RefCell::default() }
    }

    /// This table, and where it has no such key that one; only its own keys are to be known.
    pub(super) fn over(mut self, below: &Self) -> Self {
        self.layers.extend(&below.layers);
        self
    }

    pub(super) fn sheet(&self) -> &'s Sheet<'t> {
        self.sheet
    }

    /// The full name of a key of this table.
    pub(super) fn full(&self, key: &str) -> String {
        if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) }
    }

    /// A fault of a key, or of the whole table where it has no such key.
    pub(super) fn fault(&self, key: &str, message: impl Into<String>) {
        let at = self.layers.iter().find_map(|layer| find(layer, key)).map(|(at, _)| at.start);
        self.sheet.fault(at.unwrap_or(self.at), &self.full(key), message);
    }

    fn value(&self, key: &'static str) -> Option<Value<'s, 't>> {
        self.asked.borrow_mut().push(key);
        self.layers.iter().find_map(|layer| find(layer, key)).map(|(_, value)| value)
    }

    fn wanted(&self, key: &str, value: Value<'s, 't>, wanted: &str) {
        let given = match value.get_ref() {
            DeValue::String(text) => format!("`{}`", printable(text)),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(truth) => truth.to_string(),
            other => format!("this {}", other.type_str()),
        };
        let message = format!("{given} does not fit; allowed is {wanted}");
        self.sheet.fault(value.span().start, &self.full(key), message);
    }

    /// A text as it stands, for what the caller parses; its faults are told with `refuse`.
    pub(super) fn text(&self, key: &'static str) -> Option<&'s str> {
        let value = self.value(key)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wanted(key, value, "a text in quotes");
        }
        text
    }

    /// The text of a key, whoever asks for it later.
    pub(super) fn peek(&self, key: &str) -> Option<&'s str> {
        self.layers.iter().find_map(|layer| find(layer, key))?.1.get_ref().as_str()
    }

    /// A text that `read` takes.
    pub(super) fn read<T>(
        &self,
        key: &'static str,
        wanted: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(key)?;
        let found = value.get_ref().as_str().and_then(read);
        if found.is_none() {
            self.wanted(key, value, wanted);
        }
        found
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let wanted = allowed.join(", ");
        self.read(key, &wanted, |text| {
            words.iter().find(|(word, _)| *word == text).map(|(_, one)| *one)
        })
    }

    pub(super) fn truth(&self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let truth = value.get_ref().as_bool();
        if truth.is_none() {
            self.wanted(key, value, "true or false");
        }
        truth
    }

    /// A whole number.
    pub(super) fn whole(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(key)?;
        let found = whole(value.get_ref()).filter(|n| range.contains(n));
        if found.is_none() {
            let wanted = format!("a whole number, {} to {}", range.start(), range.end());
            self.wanted(key, value, &wanted);
        }
        found
    }

    /// A number with or without a fraction.
    pub(super) fn number(&self, key: &'static str, range: RangeInclusive<f32>) -> Option<f32> {
        let value = self.value(key)?;
        let found = number(value.get_ref()).filter(|n| range.contains(n));
        if found.is_none() {
            self.wanted(key, value, &format!("a number, {} to {}", range.start(), range.end()));
        }
        found
    }

    /// A time span.
    pub(super) fn span(
        &self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let (least, most) = (units::span_text(*range.start()), units::span_text(*range.end()));
        let wanted = format!("a time with its unit (ms, s, min, h, d), {least} to {most}");
        self.read(key, &wanted, |text| units::span(text).filter(|span| range.contains(span)))
    }

    /// A number of bytes.
    pub(super) fn bytes(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let (least, most) = (units::bytes_text(*range.start()), units::bytes_text(*range.end()));
        let wanted = format!("a size with its unit (KiB, MiB, GiB, TiB), {least} to {most}");
        self.read(key, &wanted, |text| units::bytes(text).filter(|bytes| range.contains(bytes)))
    }

    /// A path; what is relative stands beside the file.
    pub(super) fn path(&self, key: &'static str) -> Option<PathBuf> {
        self.read(key, "the name of a file or folder", |text| {
            (!text.is_empty() && !text.contains('\0')).then(|| self.sheet.place(text))
        })
    }

    /// Texts in brackets, each of which `read` takes.
    pub(super) fn texts<T>(
        &self,
        key: &'static str,
        most: usize,
        wanted: &str,
        mut read: impl FnMut(&str) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.list(key, most, &format!("{wanted}, in quotes"), |value| {
            value.as_str().and_then(&mut read)
        })
    }

    /// Whole numbers in brackets.
    pub(super) fn wholes(
        &self,
        key: &'static str,
        most: usize,
        wanted: &str,
        allowed: impl Fn(u64) -> bool,
    ) -> Option<Vec<u64>> {
        self.list(key, most, wanted, |value| whole(value).filter(|n| allowed(*n)))
    }

    /// Numbers in brackets.
    pub(super) fn numbers(
        &self,
        key: &'static str,
        most: usize,
        range: RangeInclusive<f32>,
    ) -> Option<Vec<f32>> {
        let wanted = format!("numbers, {} to {}", range.start(), range.end());
        self.list(key, most, &wanted, |value| number(value).filter(|n| range.contains(n)))
    }

    fn list<T>(
        &self,
        key: &'static str,
        most: usize,
        wanted: &str,
        mut read: impl FnMut(&DeValue<'t>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let value = self.value(key)?;
        let Some(items) = value.get_ref().as_array() else {
            self.wanted(key, value, &format!("a list in brackets: {wanted}"));
            return None;
        };
        if items.len() > most {
            let message = format!("{} entries; allowed are at most {most}", items.len());
            self.sheet.fault(value.span().start, &self.full(key), message);
            return None;
        }
        let mut found = Vec::with_capacity(items.len());
        for item in items.iter() {
            match read(item.get_ref()) {
                Some(one) => found.push(one),
                None => self.wanted(key, item, wanted),
            }
        }
        (found.len() == items.len()).then_some(found)
    }

    /// Refuses a key's value in the words of whoever parsed it.
    pub(super) fn refuse(&self, key: &str, message: impl Into<String>) {
        let value = self.layers.iter().find_map(|layer| find(layer, key));
        let at = value.map_or(self.at, |(_, value)| value.span().start);
        self.sheet.fault(at, &self.full(key), message);
    }

    /// A key that has to be there.
    pub(super) fn must<T>(&self, key: &'static str, found: Option<T>, wanted: &str) -> Option<T> {
        if found.is_none() && !self.layers.iter().any(|layer| find(layer, key).is_some()) {
            self.sheet.fault(self.at, &self.full(key), format!("is missing; write {wanted}"));
        }
        found
    }

    /// The table of a key.
    pub(super) fn section(&self, key: &'static str) -> Option<Self> {
        let value = self.value(key)?;
        match value.get_ref().as_table() {
            Some(table) => Some(Self::new(self.sheet, self.full(key), value.span().start, table)),
            None => {
                self.wanted(key, value, &format!("a table, [{}]", self.full(key)));
                None
            }
        }
    }

    /// The tables of a key that is written as `[[key]]`; each is told by its `name`, or its number.
    pub(super) fn sections(&self, key: &'static str, most: usize) -> Vec<Self> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let wanted = format!("tables, [[{}]]", self.full(key));
        let Some(items) = value.get_ref().as_array() else {
            self.wanted(key, value, &wanted);
            return Vec::new();
        };
        if items.len() > most {
            let message = format!("{} of them; allowed are at most {most}", items.len());
            self.sheet.fault(value.span().start, &self.full(key), message);
        }
        let mut sections = Vec::new();
        for (n, item) in items.iter().take(most).enumerate() {
            let Some(table) = item.get_ref().as_table() else {
                self.wanted(key, item, &wanted);
                continue;
            };
            let name = find(table, "name").and_then(|(_, name)| name.get_ref().as_str());
            let name = name.map_or_else(|| (n + 1).to_string(), printable);
            let full = format!("{}.{name}", self.full(key));
            sections.push(Self::new(self.sheet, full, item.span().start, table));
        }
        sections
    }

    /// The tables below a key, each under its own name.
    pub(super) fn named(&self, key: &'static str, most: usize) -> Vec<(&'s str, Self)> {
        let Some(below) = self.section(key) else { return Vec::new() };
        let table = below.layers.first().copied();
        let items: Vec<_> = table.into_iter().flatten().collect();
        if items.len() > most {
            let message = format!("{} of them; allowed are at most {most}", items.len());
            self.sheet.fault(below.at, &below.key, message);
        }
        let mut sections = Vec::new();
        for (name, value) in items.into_iter().take(most) {
            let full = below.full(&printable(name.get_ref()));
            match value.get_ref().as_table() {
                Some(table) => {
                    let section = Self::new(self.sheet, full, name.span().start, table);
                    sections.push((name.get_ref().as_ref(), section));
                }
                None => {
                    let message = format!("is no table; write [{full}]");
                    self.sheet.fault(name.span().start, &full, message);
                }
            }
        }
        // In the order of the file, which is what decides between them.
        sections.sort_by_key(|(_, section)| section.at);
        sections
    }

    /// Tells the keys that nobody asked for. Comes last.
    pub(super) fn finish(self) {
        let asked = self.asked.take();
        let Some(own) = self.layers.first() else { return };
        for (key, _) in own.iter() {
            let name: &str = key.get_ref();
            if asked.contains(&name) {
                continue;
            }
            let mut known = asked.clone();
            known.sort_unstable();
            known.dedup();
            let near = nearest(name, &known);
            let near = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            let message = format!("is not known{near}; allowed are {}", known.join(", "));
            let full = self.full(&printable(name));
            self.sheet.fault(key.span().start, &full, message);
        }
    }
}

fn find<'s, 't>(table: &'s DeTable<'t>, key: &str) -> Option<(Range<usize>, Value<'s, 't>)> {
    table.iter().find(|(name, _)| name.get_ref() == key).map(|(name, value)| (name.span(), value))
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn number(value: &DeValue<'_>) -> Option<f32> {
    match value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        _ => None,
    }
}

pub(super) fn printable(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// The known word that is most like this one, if any is.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = known.iter().map(|other| (distance(word, other), *other)).min()?;
    (near.0 <= 1 + word.len() / 4).then_some(near.1)
}

/// Letters to add, drop, change or swap with their neighbour, until one word is the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut least = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_one_that_was_meant() {
        let known = ["fps", "format", "device", "size"];
        assert_eq!(nearest("fsp", &known), Some("fps"));
        assert_eq!(nearest("fromat", &known), Some("format"));
        assert_eq!(nearest("colour", &known), None);
    }
}
