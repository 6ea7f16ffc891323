//! What a fleet may rely on: documents, states, reasons and topics, as types.
//!
//! Nothing here does anything: `jobs` takes documents in and runs them, `fleet` carries them.

mod reason;
mod state;
mod kind;
mod shape;
mod schema;
mod document;
mod topic;
mod message;
mod asyncapi;

pub use asyncapi::asyncapi;
pub use document::{CONTROL_TYPE, Control, Do, Document, Expect, JOB_TYPE, LARGEST, Retry, Window};
pub use kind::{Kind, Qos, Room};
pub use message::{Class, Draft, END_LIFE, JobState, Progress, STATE};
pub use reason::{Reason, Refusal};
pub use schema::{CONTROL, JOB, control_schema, job_schema, params};
pub use shape::Shape;
pub use state::{State, legal};
pub use topic::{Incoming, ROOT, Topics, is_name, of_device};

#[cfg(test)]
mod tests;
