//! What a device tells: messages with their class, and the state of a job.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kind::Kind;
use super::reason::Reason;
use super::state::State;

/// What becomes of a message that can't be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Kept until the broker has it: states of jobs, heads of the record.
    Must,
    /// Kept for seven days, the newest 10,000; what is dropped is told.
    Keep,
    /// Only the newest of a topic is kept.
    Latest,
}

impl Class {
    /// Its number in the database.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Must => 0,
            Self::Keep => 1,
            Self::Latest => 2,
        }
    }
}

/// A message on its way to the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub topic: String,
    pub class: Class,
    pub retain: bool,
    /// Seconds after which nobody needs it any more.
    pub life_s: Option<u32>,
    pub payload: Vec<u8>,
}

/// How far a running job is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What it does now.
    pub step: String,
    /// Thousandths of the whole, when that is known.
    pub permille: Option<u16>,
    /// Seconds to the end, when that is known.
    pub eta_s: Option<u32>,
}

/// The state of a job as it is told; readers must pass over fields that they don't know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    pub schema: String,
    pub id: String,
    pub kind: Kind,
    pub state: State,
    /// Rises by one at each change of state.
    pub version: u64,
    /// When, in ms since 1970.
    pub at: u64,
    pub attempt: u32,
    pub boot_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Whether another try of the same may do better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// JSON pointer to what was wrong with the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

/// What a state names itself.
pub const STATE: &str = "mien.state/1";
/// How long the retained end of a job stands, in seconds.
pub const END_LIFE: u32 = 86_400;

impl JobState {
    /// The message that tells it.
    #[must_use]
    pub fn draft(&self, topic: String, class: Class) -> Draft {
        let payload = serde_json::to_vec(self).expect("plain data with text keys");
        let life_s = self.state.is_end().then_some(END_LIFE);
        Draft { topic, class, retain: true, life_s, payload }
    }

    /// JSON Schema of what is told.
    #[must_use]
    pub fn json_schema() -> Value {
        let reasons: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        let states: Vec<&str> = State::ALL.iter().map(|state| state.name()).collect();
        let text = json!({ "type": "string" });
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "urn:mien:schema:state:1",
            "title": "State of a job, version 1",
            "description": "Published by the device; readers must pass over fields they don't know.",
            "type": "object",
            "required": ["schema", "id", "kind", "state", "version", "at", "attempt", "boot_id"],
            "properties": {
                "schema": { "const": STATE },
                "id": text,
                "kind": { "enum": Kind::WORDS },
                "state": { "enum": states },
                "version": { "type": "integer", "minimum": 1 },
                "at": { "type": "integer" },
                "attempt": { "type": "integer", "minimum": 0 },
                "boot_id": text,
                "progress": {
                    "type": "object",
                    "required": ["step"],
                    "properties": {
                        "step": text,
                        "permille": { "type": ["integer", "null"], "minimum": 0, "maximum": 1000 },
                        "eta_s": { "type": ["integer", "null"], "minimum": 0 },
                    },
                },
                "reason": { "enum": reasons },
                "retryable": { "type": "boolean" },
                "pointer": text,
                "detail": text,
                "result": { "type": "object" },
                "fence": { "type": "integer", "minimum": 1 },
            },
        })
    }
}
