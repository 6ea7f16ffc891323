//! Control protocol between daemon and worker, over one seqpacket socket.
//!
//! ```text
//!            root                                   worker
//!   spawn ────────────────────────────────────────▶ sandbox itself
//!          ◀─────────────────────────── Hello       (nothing is read before)
//!   Load + model fd ──────────────────────────────▶
//!          ◀────────────────────────── Loaded | NotLoaded
//!   Policy, Source + portrait fd … ───────────────▶
//!          ◀──────────────────────── PolicyHolds    (the old one holds until then)
//!   Process + in, out fds ────────────────────────▶
//!          ◀── Started, Heartbeat …, Done | Failed  (one job at a time)
//!   Clip + in, segments, out fds ─────────────────▶
//!          ◀── Started, Progress …, Segment …, ClipDone | Failed
//!   Live + camera, output fds ────────────────────▶
//!          ◀── Started, LiveBegan, LiveStats …      (until Cancel, or the camera is gone: Failed)
//!   Drain, or end of file ────────────────────────▶ exit
//! ```
//! Pixels, models and files never cross it: they travel as descriptors.

pub mod codec;
pub mod fds;
pub mod clip;
pub mod live;

use serde::{Deserialize, Serialize};

use crate::clock::Wall;
use crate::consent::{ConsentRecord, SourceRecord};
use crate::id::{IdentityId, JobId, ModelId};
use crate::limits;
use crate::model::{Distance, Manifest, Survey};
use crate::recipe::{Detect, Mark, Recipe};
use crate::report::{ClipReport, FaceReport, Failure, PictureReport};
use clip::{Clip, ClipDetect, ClipWritten, FrameFaces, Resume};
use live::{Delivers, Live, LiveStats, Watch, Whole};

/// Version of the protocol; both sides say it in their first message.
pub const PROTOCOL: u16 = 4;

/// Five landmarks in pixels of the upright picture, in the order of `FaceReport`.
pub type Landmarks = [[f32; 2]; 5];

/// From the root to the worker. The descriptors of each are named in brackets, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// [model]: the file whose digest the root has checked.
    Load(Manifest),
    /// A new policy begins; it holds when `sources` sources have followed.
    Policy { revision: u64, sources: u16 },
    /// [portrait]: one source of the policy that began, with the records that bind its use.
    Source { revision: u64, record: Box<SourceRecord>, consents: Vec<ConsentRecord> },
    /// The records of a known source from here on, also for the clip at hand: from its next frame.
    Consents { revision: u64, identity: IdentityId, consents: Vec<ConsentRecord> },
    /// [in, out] or [in, out, overlay].
    Process(Box<Process>),
    /// [in, out], [in, segments, out], and an overlay after them.
    Clip(Box<Clip>),
    /// [in].
    ClipDetect(Box<ClipDetect>),
    /// [in] or [in, out]: with `draw` a marked picture with the boxes is written.
    Detect { job: JobId, detect: Detect, draw: Option<(Output, Mark)>, wall: Wall },
    /// [in].
    Verify { job: JobId },
    /// [in, portrait out].
    Enrol { job: JobId, identity: IdentityId, detect: Detect, wall: Wall },
    /// [in]: embeddings of the given faces by the independent judge, at most `limits::JUDGED`. Of a
    /// clip, those of frame `frame`, or of the last where it has fewer.
    Judge { job: JobId, frame: u64, faces: Vec<Landmarks> },
    /// [in…, out]: one picture of several finished ones, in rows of `columns` cells of `cell` pixels
    /// (width, height). It is marked as the strongest of what it shows.
    Sheet { job: JobId, columns: u8, cell: (u16, u16), output: Output, mark: Mark, wall: Wall },
    /// [astronaut, Hopper, carphone clip, out]: so many raw frames of a made clip in which all three
    /// move. It carries the invisible mark of what is not altered.
    Made { job: JobId, frames: u16, mark: Mark },
    /// [reference, candidate, in…]: how far one model is from the other of its role, at most
    /// `limits::MEASURED` pictures.
    Measure { job: JobId, reference: Box<Manifest>, candidate: Box<Manifest>, detect: Detect },
    /// [model, out]: what a model's file holds; written again with what is safe to fold folded.
    Inspect { job: JobId, manifest: Box<Manifest> },
    /// [camera, outputs…, overlay]: a pipeline, which takes the worker for itself until it ends.
    Live(Box<Live>),
    /// [camera]: as a pipeline, with nobody who looks and nothing that leaves: what a camera really
    /// delivers is measured, and told as a pipeline's figures.
    Watch(Box<Watch>),
    /// [file]: the next file of a recording.
    LiveFile { job: JobId, output: u8 },
    /// A slot of a JPEG output was read.
    LiveTaken { job: JobId, output: u8, slot: u8 },
    /// Each thread tries what it must not be able to do.
    SelfTest,
    /// Ends a job at the next boundary between stages.
    Cancel { job: JobId },
    /// Holds a clip between two frames, or lets it go on.
    Pause { job: JobId, paused: bool },
    /// Ends the worker when the job at hand is done.
    Drain,
}

/// One picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub job: JobId,
    pub recipe: Recipe,
    pub output: Output,
    /// The wall clock of the job: the same job twice gives the same bytes.
    pub wall: Wall,
    /// A third descriptor holds the picture of `Anonymise::Image`.
    pub overlay: bool,
}

/// How a picture is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// `None`: as the input, PNG for WebP.
    pub format: Option<Format>,
    /// 1..=100, for formats that lose.
    pub quality: u8,
}

/// File formats of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Jpeg,
    Png,
    WebP,
}

impl Request {
    /// The numbers of descriptors that may travel with this request.
    #[must_use]
    pub fn descriptors(&self) -> std::ops::RangeInclusive<usize> {
        match self {
            Self::Load(_)
            | Self::Source { .. }
            | Self::Verify { .. }
            | Self::Judge { .. }
            | Self::LiveFile { .. }
            | Self::ClipDetect(_) => 1..=1,
            Self::Live(live) => {
                let n = live.descriptors();
                n..=n
            }
            Self::Watch(watch) => {
                let n = watch.camera.descriptors();
                n..=n
            }
            Self::Clip(clip) => {
                let n = clip.descriptors();
                n..=n
            }
            Self::Process(p) if p.overlay => 3..=3,
            Self::Process(_) | Self::Enrol { .. } => 2..=2,
            Self::Detect { draw, .. } => {
                let n = 1 + usize::from(draw.is_some());
                n..=n
            }
            Self::Sheet { .. } => 2..=limits::WIRE_FDS,
            Self::Made { .. } => 4..=4,
            Self::Measure { .. } => 3..=2 + limits::MEASURED,
            Self::Inspect { .. } => 2..=2,
            Self::Policy { .. }
            | Self::Consents { .. }
            | Self::LiveTaken { .. }
            | Self::SelfTest
            | Self::Cancel { .. }
            | Self::Pause { .. }
            | Self::Drain => 0..=0,
        }
    }

    /// The job it belongs to.
    #[must_use]
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Process(p) => Some(p.job),
            Self::Clip(clip) => Some(clip.job),
            Self::ClipDetect(clip) => Some(clip.job),
            Self::Live(live) => Some(live.job),
            Self::Watch(watch) => Some(watch.job),
            Self::Detect { job, .. }
            | Self::Verify { job }
            | Self::Enrol { job, .. }
            | Self::Judge { job, .. }
            | Self::Sheet { job, .. }
            | Self::Made { job, .. }
            | Self::Measure { job, .. }
            | Self::Inspect { job, .. }
            | Self::Cancel { job }
            | Self::Pause { job, .. } => Some(*job),
            _ => None,
        }
    }
}

/// From the worker to the root. No descriptors travel this way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The first message, once the sandbox holds.
    Hello(Hello),
    Loaded {
        model: ModelId,
        ms: f32,
    },
    NotLoaded {
        model: ModelId,
        failure: Failure,
    },
    /// From here on every job is held to this revision.
    PolicyHolds {
        revision: u64,
    },
    /// Records that came alone hold; with a clip at hand, from this frame of it on.
    ConsentsHold {
        revision: u64,
        identity: IdentityId,
        clip: Option<(JobId, u64)>,
    },
    Started {
        job: JobId,
    },
    /// The job moved: `seq` grows with each step inside a stage.
    Heartbeat {
        job: Option<JobId>,
        stage: Stage,
        seq: u64,
        /// Pixels of the picture, once known.
        pixels: u64,
    },
    Done {
        job: JobId,
        report: PictureReport,
        written: Written,
    },
    Detected {
        job: JobId,
        report: PictureReport,
        written: Option<Written>,
    },
    Verified {
        job: JobId,
        marks: Marks,
    },
    Enrolled {
        job: JobId,
        record: Box<SourceRecord>,
        written: Written,
    },
    /// One embedding a face, in the order of the request.
    Judged {
        job: JobId,
        embeddings: Vec<Vec<f32>>,
    },
    Sheeted {
        job: JobId,
        written: Written,
    },
    Made {
        job: JobId,
        written: ClipWritten,
    },
    /// Frames of a clip that are written, of how many where that is known.
    Progress {
        job: JobId,
        frame: u64,
        of: Option<u64>,
    },
    /// One more segment is whole: an interrupted clip goes on after it.
    Segment {
        job: JobId,
        end: Resume,
    },
    ClipDone {
        job: JobId,
        report: Box<ClipReport>,
        written: ClipWritten,
    },
    FrameFaces {
        job: JobId,
        faces: FrameFaces,
    },
    /// The camera of a pipeline streams.
    LiveBegan {
        job: JobId,
        delivers: Delivers,
    },
    /// About once a second.
    LiveStats {
        job: JobId,
        stats: Box<LiveStats>,
    },
    LiveWhole {
        job: JobId,
        whole: Whole,
    },
    /// A picture stands in a slot of a JPEG output.
    LiveJpeg {
        job: JobId,
        output: u8,
        slot: u8,
        bytes: u32,
    },
    /// The pipeline ended because it was asked to.
    LiveEnded {
        job: JobId,
        stats: Box<LiveStats>,
    },
    /// All frames were looked at.
    ClipDetected {
        job: JobId,
        report: Box<ClipReport>,
    },
    Measured {
        job: JobId,
        distance: Distance,
    },
    /// `bytes` of the folded file; 0 when nothing was folded.
    Inspected {
        job: JobId,
        survey: Box<Survey>,
        bytes: u64,
    },
    SelfTested(Vec<Attempt>),
    /// A job, a policy or a request without a job failed; the worker goes on.
    Failed {
        job: Option<JobId>,
        failure: Failure,
    },
}

impl Event {
    /// Cuts every text to its bound, so that the message fits the wire whatever was found.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        match &mut self {
            Self::Done { report, .. } | Self::Detected { report, .. } => bound(&mut report.faces),
            Self::FrameFaces { faces, .. } => {
                bound(&mut faces.faces);
                faces.tracks.truncate(faces.faces.len());
            }
            Self::ClipDone { report, .. } | Self::ClipDetected { report, .. } => {
                clip::bound(report);
            }
            Self::LiveStats { stats, .. } | Self::LiveEnded { stats, .. } => live::bound(stats),
            Self::LiveBegan { delivers, .. } => cut(&mut delivers.pixel, limits::WIRE_TEXT),
            Self::Inspected { survey, .. } => {
                let whole = std::mem::take(&mut **survey);
                **survey = whole.bounded();
            }
            Self::Failed { failure, .. } | Self::NotLoaded { failure, .. } => {
                cut(&mut failure.message, limits::WIRE_FAILURE);
            }
            _ => {}
        }
        self
    }
}

fn bound(faces: &mut Vec<FaceReport>) {
    faces.truncate(limits::FACES);
    for face in faces {
        cut(&mut face.done, limits::WIRE_TEXT);
        if let Some(reason) = &mut face.reason {
            cut(reason, limits::WIRE_TEXT);
        }
    }
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
    }
}

/// Who the worker is and what holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u16,
    /// Version of the program.
    pub build: String,
    /// Name of the backend.
    pub backend: String,
    /// Threads that compute.
    pub threads: u16,
    pub sandbox: Sandbox,
}

/// Which layers of the sandbox hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    pub no_new_privs: bool,
    pub not_dumpable: bool,
    pub dies_with_root: bool,
    pub rlimits: bool,
    /// Every descriptor but the socket is closed.
    pub closed: bool,
    pub seccomp: bool,
    pub landlock: Landlock,
}

impl Sandbox {
    /// The layers without which no input is read.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.no_new_privs && self.seccomp && self.closed
    }
}

/// How much of the file and network rules the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Landlock {
    Full,
    Partial,
    None,
}

/// What the worker does just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Idle,
    Load,
    Read,
    Decode,
    Face,
    Encode,
    Write,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 7] =
        [Self::Idle, Self::Load, Self::Read, Self::Decode, Self::Face, Self::Encode, Self::Write];
}

/// A file as the worker wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    pub bytes: u64,
    /// SHA-256.
    pub digest: [u8; 32],
    pub format: Format,
}

/// The marks that a file carries.
pub type Marks = crate::report::Verdict;

/// One thing that a thread of the worker tried and must not be able to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// `control` or `compute`.
    pub thread: String,
    /// What was tried.
    pub what: String,
    /// The errno; `None` when it worked, which is a hole.
    pub errno: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ClipMarks, StageCost, StageTime};

    #[test]
    fn the_worst_report_fits_one_message() {
        let face = FaceReport {
            rect: [1.0; 4],
            score: 1.0,
            landmarks: [[1.0; 2]; 5],
            identity: Some(("a".repeat(limits::NAME).parse().unwrap(), 1.0)),
            done: "d".repeat(10_000),
            reason: Some("é".repeat(10_000)),
        };
        let stage =
            StageTime { stage: "s".repeat(32), ms: 1.0, inference_ms: 1.0, inference_cpu_ms: 1.0 };
        let report = PictureReport {
            width: u32::MAX,
            height: u32::MAX,
            format: "jpeg".into(),
            faces: vec![face; 2 * limits::FACES],
            marks: None,
            stages: vec![stage; 32],
        };
        let written = Written { bytes: u64::MAX, digest: [255; 32], format: Format::Jpeg };
        let event = Event::Done { job: JobId([255; 16]), report, written }.bounded();
        let bytes = codec::encode(&event).unwrap();
        assert_eq!(codec::decode::<Event>(&bytes).unwrap(), event);
    }

    #[test]
    fn the_worst_report_of_a_clip_and_the_widest_state_fit_one_message() {
        let text = || "é".repeat(10_000);
        let many = || vec![(text(), u64::MAX); 1000];
        let report = ClipReport {
            identities: vec![("a".repeat(limits::NAME).parse().unwrap(), u64::MAX); 1000],
            done: many(),
            reasons: many(),
            marks: ClipMarks {
                unmarked: vec![u64::MAX; 1000],
                reasons: vec![text(); 1000],
                ..ClipMarks::default()
            },
            stages: vec![StageCost { stage: "s".repeat(32), ..StageCost::default() }; 1000],
            ..ClipReport::default()
        };
        let written = ClipWritten { bytes: u64::MAX, container: clip::Container::Y4m };
        let job = JobId([255; 16]);
        let event = Event::ClipDone { job, report: Box::new(report), written }.bounded();
        let bytes = codec::encode(&event).unwrap();
        assert_eq!(codec::decode::<Event>(&bytes).unwrap(), event);
        let state = vec![255; limits::CLIP_RESUME];
        let end = Resume { segment: u64::MAX, frames: u64::MAX, bytes: u64::MAX, state };
        assert!(codec::encode(&Event::Segment { job, end }).is_ok());
    }

    #[test]
    fn the_widest_source_and_judgement_fit_one_message() {
        let judged = Event::Judged {
            job: JobId([1; 16]),
            embeddings: vec![vec![1.0; limits::EMBEDDING]; limits::JUDGED],
        };
        assert!(codec::encode(&judged).is_ok());
    }
}
