//! Live pipelines: a camera, its worker, its outputs, kept going.

mod status;

pub use status::{OutputStatus, PipelineStatus, State, WorkerStatus};
