//! Live pipelines: a camera, its worker, its outputs, kept going.
//!
//! ```text
//!   start ─▶ find the camera ─▶ worker, models, policy ─▶ Live ─▶ frames leave
//!                ▲                    ▲                             │
//!                │ away: looked for   │ another one, after a        │ camera gone, worker dead,
//!                └────────────────────┴──────── back-off ◀──────────┘ hung or blind
//! ```
//! While there is no worker nothing leaves: only it makes frames that may.

mod status;
mod find;
mod folder;
mod preview;
mod outputs;
mod drive;
mod line;

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use mien_base::clock::{Clock, Wall};
use mien_base::id::{IdentityId, JobId};
use mien_base::recipe::Recipe;
use serde_json::Value;

use crate::Result;
use crate::config::{Camera, Output, Worker};
use crate::supervise::{Policy, Supervisor};

pub use drive::capture;
pub use find::{Found, find, list};
pub use line::Pipelines;
pub use status::{OutputStatus, PipelineStatus, State, WorkerStatus};

/// All that decides how one pipeline runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub name: String,
    pub camera: Camera,
    pub outputs: Vec<Output>,
    pub recipe: Recipe,
    /// Picture for `image` covers.
    pub overlay: Option<PathBuf>,
    pub worker: Worker,
}

/// One running pipeline.
pub trait Line: Send {
    /// How it stands.
    fn status(&self) -> PipelineStatus;

    /// At once on another recipe; camera and outputs are as they were.
    ///
    /// # Errors
    /// When it can't be; then it goes on as it was.
    fn apply(&mut self, wanted: &Wanted) -> Result<()>;

    /// Called about once a second, for what has to be looked after.
    fn tend(&mut self) {}

    /// Ends it; what was recorded is whole.
    fn stop(self: Box<Self>);
}

/// Starts pipelines.
pub trait Lines: Send {
    /// Says whether it could be started, without touching what runs.
    ///
    /// # Errors
    /// What stands in the way: an unknown source, a folder that can't be written.
    fn check(&self, wanted: &Wanted) -> Result<()>;

    /// Starts it.
    ///
    /// # Errors
    /// What stands in the way.
    fn start(&self, wanted: &Wanted) -> Result<Box<dyn Line>>;
}

/// What pipelines get from whoever wires the program.
pub trait Means: Send + Sync {
    /// Time.
    fn clock(&self) -> &dyn Clock;

    /// A supervisor of workers that are held as the configuration says, whose consent is watched.
    ///
    /// # Errors
    /// When none can be started.
    fn worker(&self, worker: &Worker, known: &[IdentityId]) -> Result<Supervisor>;

    /// Who is enrolled.
    ///
    /// # Errors
    /// When that can't be read.
    fn known(&self) -> Result<Vec<IdentityId>>;

    /// The enrolled, with the records that bind their use.
    ///
    /// # Errors
    /// When they can't be read.
    fn policy(&self, known: &[IdentityId]) -> Result<Policy>;

    /// Id of a new run of a pipeline, and the counter of its marks.
    ///
    /// # Errors
    /// Without randomness.
    fn job(&self, wall: Wall) -> Result<(JobId, u32)>;

    /// What a V4L2 device says where it is attached.
    fn bus(&self, node: BorrowedFd<'_>) -> Option<String>;

    /// Keeps a row of the record about a file before it appears.
    ///
    /// # Errors
    /// When it can't be kept: then the file does not appear.
    fn record(&self, job: JobId, body: Value) -> Result<()>;
}
