//! Live pipelines on the wire: what is captured, what becomes of a frame that comes late, what is
//! delivered, and how it stands.

use serde::{Deserialize, Serialize};

use crate::clock::Wall;
use crate::id::JobId;
use crate::limits;
use crate::recipe::Recipe;

/// One pipeline, which runs until it is cancelled or its camera is gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Live {
    pub job: JobId,
    pub recipe: Recipe,
    pub camera: Camera,
    pub patience: Patience,
    /// At most `limits::LIVE_OUTPUTS`.
    pub outputs: Vec<Output>,
    /// The wall clock at the start; the marks of pictures state it.
    pub wall: Wall,
    /// The last descriptor holds the picture of `Anonymise::Image`.
    pub overlay: bool,
}

/// How a camera codes its pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pixel {
    Mjpg,
    Yuyv,
    Nv12,
}

impl Pixel {
    /// As reports name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mjpg => "MJPG",
            Self::Yuyv => "YUYV",
            Self::Nv12 => "NV12",
        }
    }
}

/// What a camera is asked to deliver; what is not named the camera decides.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Mode {
    pub pixel: Option<Pixel>,
    pub size: Option<(u32, u32)>,
    /// Thousandths of frames a second.
    pub millihertz: Option<u32>,
}

/// A setting of a camera, by its V4L2 number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    pub id: u32,
    pub value: i32,
}

/// Where frames come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Camera {
    /// [node]: a V4L2 capture device.
    V4l2 { mode: Mode, controls: Vec<Control>, timeout_ms: u32 },
    /// [clip]: a file that is played over and over, at its own rate or another one.
    Clip { millihertz: Option<u32> },
    /// Nothing to open: a picture that moves.
    Pattern { size: (u32, u32), millihertz: u32 },
}

/// What becomes of a frame that nobody has looked at in time: from the start of the silence, grown
/// masks, then the whole frame covered, then nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// How long a frame waits for its look.
    pub look_ms: u32,
    /// How long masks are held where nothing else moved.
    pub hold_ms: u32,
    /// From here on nothing leaves, and the worker is given up.
    pub withhold_ms: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { look_ms: 250, hold_ms: 1000, withhold_ms: 5000 }
    }
}

/// Where marked frames go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// [file, file]: MP4 files. Each is closed after so much time or so many bytes; another comes
    /// by `Request::LiveFile`. Without one, frames are dropped.
    Segments { millis: u32, bytes: u64, quality: u8 },
    /// [node]: a V4L2 output device.
    V4l2,
    /// [memory]: JPEG pictures in `limits::LIVE_SLOTS` slots of `slot` bytes, at most one in
    /// `every_ms`. A slot is written again once it was given back by `Request::LiveTaken`.
    Jpeg { slot: u32, quality: u8, every_ms: u32 },
}

impl Output {
    /// Descriptors that come with it.
    #[must_use]
    pub const fn descriptors(&self) -> usize {
        match self {
            Self::Segments { .. } => 2,
            Self::V4l2 | Self::Jpeg { .. } => 1,
        }
    }
}

/// One camera to be watched, until it is cancelled or the camera is gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    pub job: JobId,
    pub camera: Camera,
}

impl Camera {
    /// Descriptors that come with it.
    #[must_use]
    pub const fn descriptors(&self) -> usize {
        match self {
            Self::V4l2 { .. } | Self::Clip { .. } => 1,
            Self::Pattern { .. } => 0,
        }
    }
}

impl Live {
    /// The camera, those of each output, the overlay when there is one.
    pub(super) fn descriptors(&self) -> usize {
        let camera = self.camera.descriptors();
        let outputs: usize = self.outputs.iter().map(Output::descriptors).sum();
        camera + outputs + usize::from(self.overlay)
    }
}

/// What a camera delivers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivers {
    pub size: (u32, u32),
    /// As the driver or the file names it.
    pub pixel: String,
    /// Thousandths of frames a second, as the camera says.
    pub millihertz: u32,
}

/// A file of a recording that is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// Index of the output.
    pub output: u8,
    pub bytes: u64,
    pub frames: u32,
    pub millis: u64,
}

/// Microseconds of the steps of one stage, in steps of about an eighth.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lag {
    pub stage: String,
    pub count: u64,
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
}

/// How a pipeline stands. Counts are from its start in this worker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LiveStats {
    /// Frames that the camera gave, and frames that left.
    pub captured: u64,
    pub left: u64,
    /// Frames that left covered whole, and frames that were not let out.
    pub covered: u64,
    pub withheld: u64,
    /// Frames that left with masks held, of which nobody had looked in time.
    pub held: u64,
    /// Times the detector looked, and frames for which it did not have to.
    pub looks: u64,
    pub still: u64,
    /// Faces in the newest frame, and how many of them are held.
    pub faces: u32,
    pub masks: u32,
    /// Age of the oldest frame that was worked on lately, when it was taken up, in microseconds.
    pub queue_us: u64,
    pub lags: Vec<Lag>,
    /// Frames that were dropped, by reason.
    pub drops: Vec<(String, u64)>,
    /// Why faces or frames were covered, and not as asked for.
    pub reasons: Vec<(String, u64)>,
}

pub(super) fn bound(stats: &mut LiveStats) {
    stats.lags.truncate(limits::CLIP_LISTED);
    stats.lags.iter_mut().for_each(|lag| super::cut(&mut lag.stage, limits::WIRE_TEXT));
    for list in [&mut stats.drops, &mut stats.reasons] {
        list.truncate(limits::CLIP_LISTED);
        list.iter_mut().for_each(|(text, _)| super::cut(text, limits::WIRE_TEXT));
    }
}
