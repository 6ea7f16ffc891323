//! What must be provable later: entries, their canonical line, the chain of hashes, signed heads.
//!
//! ```text
//!   entry ──▶ row n: line = {"at","body","faces","kind","prev","seq",…}   (canonical JSON)
//!             hash n = SHA-256(line n),  prev n+1 = hash n
//!   head:  Ed25519 over (device, n, hash n), at intervals and at stop
//! ```
//! An export is these lines, so each link can be checked by hand: the `prev` of a line is what
//! `sha256sum` gives for the line before it, without its end of line.
//!
//! Nothing here knows a database: `store` keeps the rows.

mod line;
mod chain;
mod head;
mod export;

use mien_base::clock::Wall;
use mien_base::id::{IdentityId, JobId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use chain::{Chain, Fault, Link};
pub use export::{Export, Statement, Verified, Writer, follow_file, verify_file};
pub use head::Head;
pub use line::{BadEntry, Hash, Row, hash_of};
pub(crate) use line::{Columns, body_text, faces_text};

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A job ended: what was done to whom, what the output carries; or why there is none.
    Job,
    ModelInstall,
    ModelActivate,
    ModelRemove,
    Enrol,
    /// Consent was recorded.
    Grant,
    /// Consent was taken back.
    Revoke,
    /// A source was erased.
    Forget,
    /// Mark settings other than the usual ones came into use.
    Marks,
    /// A command was refused.
    Refused,
    /// A key was made, rotated, revoked or trusted.
    Key,
    Config,
    Start,
    Stop,
    /// Something did not hold that should.
    Fault,
    /// A record left the device, or a segment was sealed.
    Export,
    /// Records of an older store were taken over.
    Import,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Job,
        Self::ModelInstall,
        Self::ModelActivate,
        Self::ModelRemove,
        Self::Enrol,
        Self::Grant,
        Self::Revoke,
        Self::Forget,
        Self::Marks,
        Self::Refused,
        Self::Key,
        Self::Config,
        Self::Start,
        Self::Stop,
        Self::Fault,
        Self::Export,
        Self::Import,
    ];

    /// The word in the record and on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::ModelInstall => "model-install",
            Self::ModelActivate => "model-activate",
            Self::ModelRemove => "model-remove",
            Self::Enrol => "enrol",
            Self::Grant => "grant",
            Self::Revoke => "revoke",
            Self::Forget => "forget",
            Self::Marks => "marks",
            Self::Refused => "refused",
            Self::Key => "key",
            Self::Config => "config",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Fault => "fault",
            Self::Export => "export",
            Self::Import => "import",
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// A place in a picture, in ten-thousandths of its width and height: x0, y0, x1, y1.
pub type Place = [u16; 4];

/// One end of a `Place`: the whole width or height.
pub const WHOLE: u16 = 10_000;

/// One face that something was done to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Face {
    #[serde(rename = "box")]
    pub place: Place,
    /// What was done, as recipes write it.
    pub did: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<IdentityId>,
}

/// One entry before it has its place in the chain. Pseudonyms only: no name, path or embedding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    pub at: Wall,
    pub camera: Option<String>,
    pub job: Option<JobId>,
    /// Whom it is about.
    pub who: Option<IdentityId>,
    pub faces: Vec<Face>,
    /// The rest. Texts, whole numbers, truth values, lists and tables: no fractions, whose printed
    /// form is not one.
    pub body: Map<String, Value>,
}

impl Entry {
    /// An entry with nothing but its kind, time and body; a body that is no table is `value` in one.
    #[must_use]
    pub fn new(kind: Kind, at: Wall, body: Value) -> Self {
        let body = match body {
            Value::Object(body) => body,
            Value::Null => Map::new(),
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        Self { kind, at, camera: None, job: None, who: None, faces: Vec::new(), body }
    }

    /// Of this job.
    #[must_use]
    pub fn of_job(mut self, job: JobId) -> Self {
        self.job = Some(job);
        self
    }

    /// About this identity.
    #[must_use]
    pub fn about(mut self, who: &IdentityId) -> Self {
        self.who = Some(who.clone());
        self
    }
}

/// A box of pixels as a place in a picture of this size.
#[must_use]
pub fn place(rect: [f32; 4], width: u32, height: u32) -> Place {
    let part = |v: f32, whole: u32| {
        let share = f64::from(v) / f64::from(whole.max(1)) * f64::from(WHOLE);
        // A NaN is cast to zero: the box then reaches to the edge.
        share.round().clamp(0.0, f64::from(WHOLE)) as u16
    };
    let [x0, y0, x1, y1] = rect;
    let (x0, x1) = (part(x0, width), part(x1, width));
    let (y0, y1) = (part(y0, height), part(y1, height));
    [x0.min(x1), y0.min(y1), x0.max(x1), y0.max(y1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_word_that_leads_back_and_is_the_one_in_json() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_word(kind.word()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), Value::from(kind.word()));
        }
        assert_eq!(Kind::of_word("Job"), None);
    }

    #[test]
    fn a_place_is_a_share_of_the_picture_whatever_the_box_holds() {
        assert_eq!(place([0.0, 50.0, 100.0, 100.0], 200, 100), [0, 5000, 5000, 10_000]);
        assert_eq!(place([-9.0, 900.0, 1e30, -1.0], 200, 100), [0, 0, 10_000, 10_000]);
        assert_eq!(place([f32::NAN; 4], 0, 0), [0; 4]);
    }
}
