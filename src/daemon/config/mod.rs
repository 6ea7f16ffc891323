//! What `mien run` is asked for: the TOML file as it is written becomes a checked `Config`.
//!
//! ```text
//!   file ──▶ text (bounded) ──▶ tables with places ──▶ sections ──▶ Config
//!                                    └── every fault, each with line, key, what is allowed ──▶ Faults
//! ```

mod faults;
mod units;
mod table;
mod recipe;
mod sections;
mod outputs;
mod profile;
mod load;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mien_base::recipe::Recipe;

pub use faults::{Fault, Faults};
pub use profile::{Day, Profile, TimeOfDay};
pub use recipe::{known, machine_number, swapped};

/// Everything that one configuration file asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file that it came from.
    pub path: PathBuf,
    /// SHA-256 of its text.
    pub digest: String,
    pub device: Device,
    pub worker: Worker,
    pub cameras: Vec<Camera>,
    pub outputs: Vec<Output>,
    pub pipelines: Vec<Pipeline>,
    pub profiles: Vec<Profile>,
    pub control: Control,
    pub telemetry: Telemetry,
    pub jobs: Jobs,
    pub fleet: Option<Fleet>,
}

/// This machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// What people call it.
    pub name: String,
    /// Stands in the invisible mark, below 2^28.
    pub number: u32,
    /// Seconds east of Greenwich, for the times of day of profiles.
    pub utc_offset: i32,
}

/// How workers are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Another program in the worker's role, or the socket of `mien-worker.socket`; `None` is this
    /// one.
    pub program: Option<PathBuf>,
    /// Compute threads; `None`: as many as the machine has cores.
    pub threads: Option<u16>,
    pub memory_mib: u32,
    /// Works on a kernel without seccomp (emulators).
    pub allow_unsandboxed: bool,
}

/// Where frames come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Camera {
    pub name: String,
    pub device: CameraDevice,
    /// Width and height; `None`: the largest that the camera delivers at its rate.
    pub size: Option<(u32, u32)>,
    /// Frames a second; `None`: the camera's own.
    pub fps: Option<f32>,
    pub format: Option<PixelFormat>,
    /// Longest time without a frame before the camera is opened anew.
    pub timeout: Duration,
    pub exposure: Option<Exposure>,
    pub power_line: Option<PowerLine>,
}

/// By what a camera is known. Only the first four find it again under another number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CameraDevice {
    /// `by-id:NAME`: a name under `/dev/v4l/by-id`.
    ById(String),
    /// `by-path:NAME`: a name under `/dev/v4l/by-path`.
    ByPath(String),
    /// `serial:TEXT`: the serial number of a USB camera.
    Serial(String),
    /// `bus:TEXT`: what the driver says as `bus_info`, for example `platform:vivid-000`.
    Bus(String),
    /// A device node, for example `/dev/video0`.
    Node(PathBuf),
    /// `file:PATH`: a Y4M or MP4 file, played at its rate, over and over.
    File(PathBuf),
    /// `pattern`: a picture that moves, made by the worker.
    Pattern,
}

/// What a `CameraDevice` is written as.
pub const DEVICE: &str = sections::DEVICE;

impl CameraDevice {
    /// Reads what `Display` writes; paths are as they stand.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        sections::camera_device(text, |path| PathBuf::from(path))
    }
}

impl std::fmt::Display for CameraDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ById(name) => write!(f, "by-id:{name}"),
            Self::ByPath(name) => write!(f, "by-path:{name}"),
            Self::Serial(text) => write!(f, "serial:{text}"),
            Self::Bus(text) => write!(f, "bus:{text}"),
            Self::Node(path) => write!(f, "{}", path.display()),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Pattern => f.write_str("pattern"),
        }
    }
}

/// What a camera is asked to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PixelFormat {
    Mjpg,
    Yuyv,
    Nv12,
}

/// How long a camera's frames are exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    Auto,
    /// In units of 100 microseconds, as V4L2 counts.
    Manual(u32),
}

/// Against flicker of lamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerLine {
    Off,
    Hz50,
    Hz60,
    Auto,
}

/// Camera, rules, outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    pub name: String,
    /// Name of a camera.
    pub camera: String,
    /// Names of outputs; each belongs to this pipeline alone.
    pub outputs: Vec<String>,
    pub enabled: bool,
    pub recipe: Recipe,
    /// Picture for `image` covers.
    pub overlay: Option<PathBuf>,
}

/// Where marked frames go.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    pub name: String,
    pub kind: OutputKind,
}

/// What kind of output, and its own settings.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputKind {
    /// MP4 files, each complete once it is closed.
    Segments(Segments),
    /// A V4L2 output device, for example a loopback.
    V4l2 { device: CameraDevice },
    /// MJPEG over HTTP.
    Mjpeg(Mjpeg),
    /// JPEG files at intervals.
    Snapshots(Snapshots),
}

/// What bounds a folder of recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Older files are removed; `None`: none for their age.
    pub age: Option<Duration>,
    /// The oldest are removed when all together have more bytes.
    pub bytes: u64,
    /// Nothing is written that would leave the disk with fewer free bytes.
    pub free: u64,
}

/// MP4 files one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments {
    pub dir: PathBuf,
    /// A file is closed and the next begun after so much time, or so many bytes.
    pub length: Duration,
    pub bytes: u64,
    /// 1 to 100.
    pub quality: u8,
    pub keep: Keep,
}

/// Who may look at a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mjpeg {
    pub listen: Listen,
    /// File with the token that each request has to carry.
    pub token: PathBuf,
    /// Frames a second at most.
    pub fps: u32,
    pub quality: u8,
}

/// Where something listens: never beyond this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Loopback(SocketAddr),
    Unix(PathBuf),
}

/// JPEG files at intervals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshots {
    pub dir: PathBuf,
    pub every: Duration,
    pub quality: u8,
    pub keep: Keep,
}

/// Who may speak to the running daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// `None`: `control.sock` in the home.
    pub socket: Option<PathBuf>,
    /// User ids that may connect, beside root and the daemon's own.
    pub users: Vec<u32>,
}

/// What is told of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telemetry {
    pub log: LogFormat,
    pub level: Level,
    /// Where metrics can be read; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// How long a pipeline may make no progress before the daemon is not healthy.
    pub stall: Duration,
}

/// How lines of the log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `<6>` and the message, as journald reads standard error.
    Journald,
    /// One JSON document a line.
    Json,
    /// Time and level before the message.
    Plain,
}

/// What is logged: this and all that is graver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// What jobs may touch, and how many there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jobs {
    /// Folders below which inputs of jobs lie.
    pub inputs: Vec<PathBuf>,
    /// Folders below which outputs of jobs may be written.
    pub outputs: Vec<PathBuf>,
    /// Jobs that may wait.
    pub waiting: u32,
    /// Jobs that run at the same time.
    pub running: u32,
}

/// The broker that the device belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Host and port.
    pub broker: (String, u16),
    /// `None` for a broker on this machine without TLS.
    pub tls: Option<Tls>,
    /// Of the second connection, for the pools; `None`: as the first.
    pub pool: Option<Tls>,
    /// The device in topics: 1 to 64 of `A-Za-z0-9_-`.
    pub device: String,
    /// First part of every topic.
    pub root: String,
    pub groups: Vec<String>,
    pub pools: Vec<String>,
    pub keep_alive: Duration,
    /// Home Assistant's discovery messages are published.
    pub discovery: bool,
    /// Bare commands of the `set` topics are taken.
    pub set: bool,
}

/// Certificates of the connection to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All faults of the file at once.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        load::load(path)
    }

    /// Checks a text as if it stood in that file.
    ///
    /// # Errors
    /// All faults of the text at once.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Faults> {
        load::parse(path, text)
    }

    /// The camera of that name.
    #[must_use]
    pub fn camera(&self, name: &str) -> Option<&Camera> {
        self.cameras.iter().find(|camera| camera.name == name)
    }

    /// The output of that name.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Output> {
        self.outputs.iter().find(|output| output.name == name)
    }

    /// The pipelines that run at a time, as the profile of that time wants them.
    #[must_use]
    pub fn pipelines_at(&self, wall: mien_base::clock::Wall) -> BTreeMap<&str, &Pipeline> {
        let profile = self.profile_at(wall);
        let chosen = self.pipelines.iter().map(|pipeline| {
            let changed = profile.and_then(|profile| profile.pipelines.get(&pipeline.name));
            changed.unwrap_or(pipeline)
        });
        chosen.filter(|p| p.enabled).map(|p| (p.name.as_str(), p)).collect()
    }

    /// The profile that holds at a time: the first one of the file whose days and hours fit.
    #[must_use]
    pub fn profile_at(&self, wall: mien_base::clock::Wall) -> Option<&Profile> {
        let local = wall.0.saturating_add_signed(i64::from(self.device.utc_offset));
        self.profiles.iter().find(|profile| profile.holds(local))
    }
}
