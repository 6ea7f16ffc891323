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
    /// Luma PSNR of the invisible mark in dB.
    pub psnr: f32,
}

/// Time of one stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    pub stage: String,
    pub ms: f32,
    /// Model runs inside the stage, in ms: what is left is ours.
    pub inference_ms: f32,
}

/// An error as the worker reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: ErrorKind,
    /// One line that names what, where and what to do.
    pub message: String,
}
