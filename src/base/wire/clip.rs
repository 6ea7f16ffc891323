//! Clips on the wire: what is asked for, where an interrupted one goes on, what came out.

use serde::{Deserialize, Serialize};

use crate::clock::Wall;
use crate::id::JobId;
use crate::limits;
use crate::recipe::{Detect, Recipe};
use crate::report::{ClipReport, FaceReport};

/// One clip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clip {
    pub job: JobId,
    pub recipe: Recipe,
    pub write: ClipOutput,
    pub range: Option<Range>,
    /// The wall clock of the job: the same job twice gives the same bytes.
    pub wall: Wall,
    /// The last descriptor holds the picture of `Anonymise::Image`.
    pub overlay: bool,
    /// What the root program has read from a pipe already, at most `limits::CLIP_HEAD` bytes.
    pub head: Vec<u8>,
    pub plan: Plan,
}

/// How the output comes about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Plan {
    /// Frames go straight to the output: pipes and raw frames. Nothing of it is kept on a crash.
    Stream,
    /// Whole segments are appended to a file and joined at the end.
    Segments { from: Option<Resume> },
}

/// The end of the last whole segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resume {
    /// Number of the segment that comes next.
    pub segment: u64,
    /// Frames that are written.
    pub frames: u64,
    /// Bytes of the file of segments that count.
    pub bytes: u64,
    /// What the worker left behind, at most `limits::CLIP_RESUME` bytes; only a worker reads it.
    pub state: Vec<u8>,
}

/// Frames that begin in `start..end`, in microseconds from the clip's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub start: u64,
    /// `None`: to the last.
    pub end: Option<u64>,
}

/// How a clip is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClipOutput {
    pub container: Container,
    pub rate: Rate,
    /// Sound of the input travels on as it is.
    pub audio: bool,
}

/// File formats of clips that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// H.264 in MP4.
    Mp4,
    /// Raw frames.
    Y4m,
}

/// How many bits a frame gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rate {
    /// As good as the input.
    AsInput,
    /// 1..=100, as JPEG counts it.
    Quality(u8),
    /// Kilobits a second.
    Bitrate(u32),
}

/// Faces of a clip's frames, one event a frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClipDetect {
    pub job: JobId,
    pub detect: Detect,
    pub range: Option<Range>,
    pub wall: Wall,
    /// As in `Clip`.
    pub head: Vec<u8>,
}

/// One frame in which faces were looked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameFaces {
    /// From 0, of those that were looked at.
    pub frame: u64,
    /// From the clip's first frame, in microseconds.
    pub at: u64,
    pub faces: Vec<FaceReport>,
    /// Of each face: the same person in the same scene has one number.
    pub tracks: Vec<u32>,
}

/// A clip as the worker wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClipWritten {
    pub bytes: u64,
    pub container: Container,
}

impl Clip {
    /// Input, the file of segments when there is one, output, the overlay when there is one.
    pub(super) fn descriptors(&self) -> usize {
        let segments = usize::from(matches!(self.plan, Plan::Segments { .. }));
        2 + segments + usize::from(self.overlay)
    }
}

pub(super) fn bound(report: &mut ClipReport) {
    report.identities.truncate(limits::CLIP_LISTED);
    for list in [&mut report.done, &mut report.reasons] {
        list.truncate(limits::CLIP_LISTED);
        list.iter_mut().for_each(|(text, _)| super::cut(text, limits::WIRE_TEXT));
    }
    report.marks.unmarked.truncate(limits::CLIP_LISTED);
    report.marks.reasons.truncate(limits::CLIP_LISTED);
    report.marks.reasons.iter_mut().for_each(|text| super::cut(text, limits::WIRE_TEXT));
    report.stages.truncate(limits::CLIP_LISTED);
}
