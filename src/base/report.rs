//! What came out: faces, what was done to each, marks, time. The same words in JSON and on the wire.

use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;
use crate::id::IdentityId;

/// Report of one picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PictureReport {
    pub width: u32,
    pub height: u32,
    /// File format of the input: `jpeg`, `png` or `webp`.
    pub format: String,
    pub faces: Vec<FaceReport>,
    /// `None` when nothing was written (detection only).
    pub marks: Option<MarkReport>,
    pub stages: Vec<StageTime>,
}

/// One face.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaceReport {
    /// x0, y0, x1, y1 in pixels of the upright picture.
    #[serde(rename = "box")]
    pub rect: [f32; 4],
    pub score: f32,
    /// Image-left eye, image-right eye, nose, image-left and image-right mouth corner, in pixels.
    pub landmarks: [[f32; 2]; 5],
    /// Recognised identity and cosine.
    pub identity: Option<(IdentityId, f32)>,
    /// What was done, as `grammar` writes an action; `none` when faces were only looked for.
    pub done: String,
    /// Why something else was done than asked for, when it was.
    pub reason: Option<String>,
}

/// What the finished picture carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MarkReport {
    /// The visible label stands in the picture.
    pub visible: bool,
    /// The invisible mark was read back from the finished pixels.
    pub invisible: bool,
    /// The `AIGC` record and DigitalSourceType stand in the metadata.
    pub metadata: bool,
    /// 64-bit watermark payload, 16 hex digits.
    pub payload: String,
    /// Luma PSNR of the invisible mark in dB, 0 when there is none.
    pub psnr: f32,
    /// Why a mark is not there, one line each.
    pub reasons: Vec<String>,
}

/// The marks that a file was found to carry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Every mark is there that the invisible one calls for, and they agree.
    pub whole: bool,
    /// Payload of the invisible mark, 16 hex digits.
    pub payload: Option<String>,
    /// Faces were covered or made.
    pub altered: Option<bool>,
    /// Faces were made: swapped or synthetic.
    pub generated: Option<bool>,
    /// Device and counter that the payload names.
    pub device: Option<u32>,
    pub counter: Option<u32>,
    /// Words of the visible label.
    pub label: Option<String>,
    /// Last word of the IPTC DigitalSourceType as it stands.
    pub source_type: Option<String>,
    /// The `AIGC` record as it stands.
    pub aigc: Option<String>,
    /// Of a clip: how its frames were looked at.
    pub clip: Option<ClipVerdict>,
    /// Why the marks are not whole, one line each.
    pub reasons: Vec<String>,
}

/// Report of one clip. Lists hold at most `limits::CLIP_LISTED` entries.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClipReport {
    /// Of the upright picture, in pixels.
    pub width: u32,
    pub height: u32,
    /// Format of the input: `mp4` or `y4m`.
    pub format: String,
    /// Frames that were written.
    pub frames: u64,
    /// Of what was written.
    pub seconds: f64,
    /// Faces, counted in each frame.
    pub faces: u64,
    /// Faces that were followed from frame to frame.
    pub tracks: u64,
    /// Frames in which the detector ran.
    pub detected: u64,
    /// Recognised identities, and in how many frames each.
    pub identities: Vec<(IdentityId, u64)>,
    /// What was done, as `grammar` writes an action, and to how many faces, counted in each frame.
    pub done: Vec<(String, u64)>,
    /// Why something else was done than asked for, and how often.
    pub reasons: Vec<(String, u64)>,
    /// Frames that were covered whole.
    pub covered: u64,
    pub marks: ClipMarks,
    pub stages: Vec<StageCost>,
}

/// What a finished clip carries. An invisible mark is held from IDR to IDR, a GOP.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClipMarks {
    /// The visible label stands in the frames.
    pub visible: bool,
    /// The `AIGC` record stands in the file.
    pub metadata: bool,
    /// 64-bit watermark payload, 16 hex digits.
    pub payload: String,
    pub gops: u64,
    /// GOPs of which the invisible mark was read back.
    pub marked: u64,
    /// The first GOPs of which it was not, by number.
    pub unmarked: Vec<u64>,
    /// Least luma PSNR of the invisible mark in dB, 0 when there is none.
    pub psnr: f32,
    /// Why a mark is not there, one line each.
    pub reasons: Vec<String>,
}

/// What one stage of a clip cost, all frames together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StageCost {
    pub stage: String,
    /// At work, without waiting for other stages.
    pub ms: f64,
    /// CPU of the stage's own thread; threads of the models are not in it.
    pub cpu_ms: f64,
    /// Model runs inside the stage.
    pub inference_ms: f64,
    /// CPU of the stage's own thread in them.
    pub inference_cpu_ms: f64,
}

/// Where a clip was found to carry the invisible mark. A GOP here is `limits::CLIP_GOP` frames.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClipVerdict {
    /// Frames that were looked at.
    pub frames: u64,
    /// GOPs that were looked at: all of a short clip, some spread over a long one.
    pub gops: u64,
    /// GOPs from which the payload was read.
    pub marked: u64,
    /// GOPs from which another payload was read.
    pub others: u64,
    /// The first of those from which none was read, by number.
    pub unmarked: Vec<u64>,
}

/// Time of one stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    pub stage: String,
    pub ms: f32,
    /// Model runs inside the stage, in ms: what is left is ours.
    pub inference_ms: f32,
    /// CPU of the stage's thread in them.
    pub inference_cpu_ms: f32,
}

/// An error as the worker reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: ErrorKind,
    /// One line that names what, where and what to do.
    pub message: String,
}
