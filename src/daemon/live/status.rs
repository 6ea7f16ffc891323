//! How a pipeline stands, as it is told to people and to the fleet.

use mien_base::wire::live::{Delivers, LiveStats};
use serde::Serialize;

/// What a pipeline is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The worker starts, or its camera is opened.
    Starting,
    /// Frames leave.
    Running,
    /// The camera is not there; it is looked for.
    CameraLost,
    /// The worker died, or was given up; another one starts after a back-off.
    WorkerLost,
    /// Nothing that is tried helps: a model is missing, or the configuration can't be carried out.
    Failed,
    Stopped,
}

/// One output.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutputStatus {
    pub name: String,
    /// `segments`, `v4l2`, `mjpeg`, `snapshots`.
    pub kind: &'static str,
    /// Files or pictures that were delivered, and their bytes.
    pub delivered: u64,
    pub bytes: u64,
    /// Who looks at it just now.
    pub viewers: u32,
    /// Why nothing is delivered, when it is so.
    pub fault: Option<String>,
}

/// The worker of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerStatus {
    pub pid: u32,
    /// Resident memory in KiB, where the kernel says.
    pub rss_kib: Option<u64>,
    /// All layers hold without which no input is read.
    pub held: bool,
}

/// How a pipeline stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PipelineStatus {
    pub name: String,
    pub camera: String,
    pub state: State,
    /// Why it is not running.
    pub why: Option<String>,
    pub delivers: Option<Delivers>,
    /// Frames that left in the last second or two, a second.
    pub fps: f32,
    /// Frames that the camera gave, a second.
    pub captured_fps: f32,
    /// Frames that left since the pipeline was started, in whichever worker.
    pub moved: u64,
    /// Counts since the pipeline was started, in whichever worker; lags of the newest.
    pub stats: LiveStats,
    pub worker: Option<WorkerStatus>,
    /// Workers that were lost, and times that the camera was opened anew.
    pub workers_lost: u32,
    pub reopened: u32,
    /// From the last frame before a loss to the first one after it: the newest losses, in
    /// milliseconds, oldest first.
    pub recoveries_ms: Vec<u64>,
    pub outputs: Vec<OutputStatus>,
}

impl PipelineStatus {
    /// Before anything is known.
    #[must_use]
    pub fn new(name: &str, camera: &str) -> Self {
        Self {
            name: name.to_owned(),
            camera: camera.to_owned(),
            state: State::Starting,
            why: None,
            delivers: None,
            fps: 0.0,
            captured_fps: 0.0,
            moved: 0,
            stats: LiveStats::default(),
            worker: None,
            workers_lost: 0,
            reopened: 0,
            recoveries_ms: Vec::new(),
            outputs: Vec::new(),
        }
    }
}
