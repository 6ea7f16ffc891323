//! One row as a line of canonical JSON, its hash, and the way back from a line.

use std::fmt::Write as _;

use mien_base::clock::Wall;
use mien_base::id::{IdentityId, JobId};
use mien_base::limits;
use mien_vault::text;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{Entry, Face, Kind, WHOLE};

/// SHA-256 of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What the first row of a record follows.
    pub const NONE: Self = Self([0; 32]);

    /// Of 64 lowercase hex digits.
    #[must_use]
    pub fn of_hex(digits: &str) -> Option<Self> {
        text::unhex(digits).map(Self)
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({self})")
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::of_hex(&text).ok_or_else(|| serde::de::Error::custom("not 64 lowercase hex digits"))
    }
}

/// Hash of a line, given without its end of line.
#[must_use]
pub fn hash_of(line: &[u8]) -> Hash {
    Hash(Sha256::digest(line).into())
}

/// An entry that can't be in the record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("The audit entry can't be: {0}")]
pub struct BadEntry(pub &'static str);

/// An entry at its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub seq: u64,
    pub prev: Hash,
    pub entry: Entry,
}

/// The line, with its keys in the order in which they are sorted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at: String,
    body: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    camera: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    faces: Vec<Face>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    kind: Kind,
    prev: Hash,
    seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    who: Option<IdentityId>,
}

impl Row {
    /// The canonical line, without an end of line.
    ///
    /// # Errors
    /// `BadEntry` for a fraction in the body, a body or a list of faces beyond its bound, a box or
    /// a camera that can't be.
    pub fn line(&self) -> Result<String, BadEntry> {
        check(&self.entry)?;
        let Entry { kind, at, camera, job, who, faces, body } = &self.entry;
        let (body, faces) = (body_text(body), faces_text(faces));
        let line = Columns {
            at: *at,
            body: &body,
            camera: camera.as_deref(),
            faces: faces.as_deref(),
            job: *job,
            kind: kind.word(),
            prev: self.prev,
            seq: self.seq,
            who: who.as_ref().map(IdentityId::as_str),
        }
        .line();
        if line.len() > limits::AUDIT_LINE {
            return Err(BadEntry("it is too long"));
        }
        Ok(line)
    }

    /// A row from its line.
    ///
    /// # Errors
    /// `BadEntry` for what is no row, or not in canonical form.
    pub fn parse(line: &str) -> Result<Self, BadEntry> {
        if line.len() > limits::AUDIT_LINE {
            return Err(BadEntry("its line is too long"));
        }
        let read: Line =
            serde_json::from_str(line).map_err(|_| BadEntry("its line is no audit row"))?;
        let at = wall(&read.at).ok_or(BadEntry("its time is none"))?;
        let job = read.job.map(|text| text.parse::<JobId>()).transpose();
        let job = job.map_err(|_| BadEntry("its job is none"))?;
        let Line { body, camera, faces, kind, prev, seq, who, .. } = read;
        let row = Self { seq, prev, entry: Entry { kind, at, camera, job, who, faces, body } };
        if row.line()? == line { Ok(row) } else { Err(BadEntry("its line is not canonical")) }
    }
}

/// The parts of a line as a database keeps them: texts that stand in the line as they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) at: Wall,
    pub(crate) body: &'a str,
    pub(crate) camera: Option<&'a str>,
    pub(crate) faces: Option<&'a str>,
    pub(crate) job: Option<JobId>,
    pub(crate) kind: &'a str,
    pub(crate) prev: Hash,
    pub(crate) seq: u64,
    pub(crate) who: Option<&'a str>,
}

impl Columns<'_> {
    /// The line of these parts. It is the row's own when its hash is the row's: what was hashed was
    /// canonical, and no two rows have one line.
    pub(crate) fn line(&self) -> String {
        let Self { at, body, camera, faces, job, kind, prev, seq, who } = self;
        // Written by hand in the order of `Line`: a million of them are hashed in one check.
        let mut line = String::with_capacity(256 + body.len());
        let _ = write!(line, "{{\"at\":\"{at}\",\"body\":{body}");
        if let Some(camera) = camera {
            line.push_str(",\"camera\":");
            push(&mut line, camera);
        }
        if let Some(faces) = faces {
            let _ = write!(line, ",\"faces\":{faces}");
        }
        if let Some(job) = job {
            let _ = write!(line, ",\"job\":\"{job}\"");
        }
        let _ = write!(line, ",\"kind\":\"{kind}\",\"prev\":\"{prev}\",\"seq\":{seq}");
        if let Some(who) = who {
            let _ = write!(line, ",\"who\":\"{who}\"");
        }
        line.push('}');
        line
    }
}

/// A body in its canonical form.
pub(crate) fn body_text(body: &Map<String, Value>) -> String {
    let mut text = String::new();
    push_table(&mut text, body);
    text
}

/// Faces in their canonical form; none are left out.
pub(crate) fn faces_text(faces: &[Face]) -> Option<String> {
    if faces.is_empty() {
        return None;
    }
    let mut text = String::new();
    push(&mut text, &faces);
    Some(text)
}

fn push(line: &mut String, value: &impl Serialize) {
    line.push_str(&serde_json::to_string(value).expect("plain data with text keys"));
}

/// A table with its keys sorted by their bytes, whatever order the map keeps them in.
fn push_table(line: &mut String, table: &Map<String, Value>) {
    let mut items: Vec<(&String, &Value)> = table.iter().collect();
    items.sort_unstable_by_key(|(key, _)| *key);
    line.push('{');
    for (n, (key, value)) in items.into_iter().enumerate() {
        if n > 0 {
            line.push(',');
        }
        push(line, key);
        line.push(':');
        push_value(line, value);
    }
    line.push('}');
}

fn push_value(line: &mut String, value: &Value) {
    match value {
        Value::Object(table) => push_table(line, table),
        Value::Array(items) => {
            line.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    line.push(',');
                }
                push_value(line, item);
            }
            line.push(']');
        }
        other => push(line, other),
    }
}

/// What must hold of an entry.
fn check(entry: &Entry) -> Result<(), BadEntry> {
    if entry.at >= END {
        return Err(BadEntry("its time lies beyond the year 9999"));
    }
    if entry.faces.len() > limits::FACES {
        return Err(BadEntry("it has too many faces"));
    }
    let fits = |face: &Face| {
        let [x0, y0, x1, y1] = face.place;
        x0 <= x1 && y0 <= y1 && x1 <= WHOLE && y1 <= WHOLE && face.did.len() <= limits::WIRE_TEXT
    };
    if !entry.faces.iter().all(fits) {
        return Err(BadEntry("one of its faces lies outside the picture"));
    }
    let named = |name: &String| {
        (1..=limits::NAME).contains(&name.len()) && !name.chars().any(char::is_control)
    };
    if !entry.camera.as_ref().is_none_or(named) {
        return Err(BadEntry("its camera has no name that can be"));
    }
    if entry.body.values().all(|value| whole(value, 0)) {
        Ok(())
    } else {
        Err(BadEntry("its body holds a fraction, or is too deep"))
    }
}

/// 10000-01-01.
const END: Wall = Wall(253_402_300_800);
/// Deepest table in a body.
const DEEP: u32 = 8;

fn whole(value: &Value, depth: u32) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => depth < DEEP && items.iter().all(|v| whole(v, depth + 1)),
        Value::Object(items) => depth < DEEP && items.values().all(|v| whole(v, depth + 1)),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// The time that prints like this.
fn wall(text: &str) -> Option<Wall> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let day = Wall::from_date(number(0..4)?, number(5..7)?, number(8..10)?)?;
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let wall = Wall(day.0 + hour * 3_600 + minute * 60 + second);
    (wall.to_string() == text).then_some(wall)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn row() -> Row {
        let entry = Entry {
            kind: Kind::Job,
            at: Wall(1_796_063_974),
            camera: Some("door \"1\"".to_owned()),
            job: Some(JobId([0xab; 16])),
            who: Some("ada".parse().unwrap()),
            faces: vec![Face { place: [1, 2, 3, 4], did: "solid".to_owned(), who: None }],
            body: json!({"b": 1, "a": ["x", null, true]}).as_object().unwrap().clone(),
        };
        Row { seq: 7, prev: Hash([0x11; 32]), entry }
    }

    #[test]
    fn the_line_is_this_one_and_its_keys_are_sorted() {
        let prev = "11".repeat(32);
        let job = "ab".repeat(16);
        let line = row().line().unwrap();
        assert_eq!(
            line,
            format!(
                "{{\"at\":\"2026-11-30T18:39:34Z\",\"body\":{{\"a\":[\"x\",null,true],\"b\":1}},\
                 \"camera\":\"door \\\"1\\\"\",\"faces\":[{{\"box\":[1,2,3,4],\"did\":\"solid\"}}],\
                 \"job\":\"{job}\",\"kind\":\"job\",\"prev\":\"{prev}\",\"seq\":7,\"who\":\"ada\"}}"
            )
        );
        let sorted: std::collections::BTreeMap<String, Value> =
            serde_json::from_str(&line).unwrap();
        let keys: Vec<&String> = sorted.keys().collect();
        let stands = |key: &&&String| line.find(&format!("\"{key}\":")).unwrap();
        assert!(keys.iter().is_sorted_by_key(|key| stands(&key)), "{keys:?}");
    }

    #[test]
    fn a_line_in_any_other_form_is_refused() {
        let line = row().line().unwrap();
        assert_eq!(Row::parse(&line).unwrap(), row());
        for other in [
            line.replace(":7", ": 7"),
            line.replace(":7", ":7.0"),
            line.replace("18:39:34", "18:39:60"),
            line.replace("\"solid\"", "\"sol\\u0069d\""),
            line.replace("\"job\",\"prev\"", "\"job\",\"x\":1,\"prev\""),
            line.replace("\"kind\":\"job\"", "\"kind\":\"jobs\""),
            line.replacen('{', "{\"at\":\"2026-11-30T18:39:34Z\",", 1),
            format!("{line}\n"),
            String::new(),
        ] {
            assert!(Row::parse(&other).is_err(), "{other}");
        }
    }

    #[test]
    fn what_has_no_one_form_or_is_beyond_a_bound_does_not_enter() {
        let with = |change: fn(&mut Entry)| {
            let mut row = row();
            change(&mut row.entry);
            row.line()
        };
        assert!(with(|e| drop(e.body.insert("x".into(), json!(0.5)))).is_err());
        assert!(with(|e| e.faces[0].place = [3, 0, 1, 0]).is_err());
        assert!(with(|e| e.faces[0].place[3] = 10_001).is_err());
        assert!(with(|e| e.camera = Some(String::new())).is_err());
        assert!(with(|e| e.at = END).is_err());
        assert!(with(|e| drop(e.body.insert("x".into(), json!("y".repeat(1 << 20))))).is_err());
        let deep = |e: &mut Entry| {
            let value = (0..20).fold(json!(1), |inner, _| json!([inner]));
            e.body.insert("x".into(), value);
        };
        assert!(with(deep).is_err());
    }

    pub(crate) fn any_entry() -> impl Strategy<Value = Entry> {
        let body = proptest::collection::btree_map("\\PC{0,8}", 0..9_i64, 0..4);
        let face = (0..5000_u16, 0..5000_u16, "[a-z:]{1,12}");
        (0..17_usize, 0..2_000_000_000_u64, proptest::option::of("\\PC{1,9}"), body, face).prop_map(
            |(kind, at, camera, body, (x, y, did))| Entry {
                kind: Kind::ALL[kind],
                at: Wall(at),
                camera: camera.filter(|c| c.len() <= 64 && !c.chars().any(char::is_control)),
                job: (at % 2 == 0).then_some(JobId([9; 16])),
                who: (at % 3 == 0).then(|| "bob".parse().unwrap()),
                faces: vec![Face { place: [x, y, x + 5000, y + 5000], did, who: None }],
                body: body.into_iter().map(|(k, v)| (k, v.into())).collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn a_row_is_read_back_from_its_line(entry in any_entry(), seq in 0..u64::MAX) {
            let row = Row { seq, prev: Hash([3; 32]), entry };
            prop_assert_eq!(Row::parse(&row.line().unwrap()).unwrap(), row);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
            let _ = Row::parse(&text);
        }
    }
}
