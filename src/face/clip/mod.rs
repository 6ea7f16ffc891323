//! One clip: frames in order in, frames with every face altered out, a bounded window later.
//!
//! ```text
//! push ─ glance ─ gate ─ look ─ votes ─► waiting ─ meshes (LAG behind) ─ … ─ alter ─► next
//!                                        └────────────── WINDOW frames ──────────────┘
//! ```
//! A frame is altered when the looks of the window after it are known. The window never reaches
//! over the end of a segment: there it empties, so that what comes after depends only on `state`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::id::IdentityId;
use mien_base::limits;
use mien_engine::backend::Backend;
use mien_pixels::geometry::{Rect, Roi, Size};
use mien_pixels::i420::I420;

use crate::anonymise::Overlay;
use crate::gallery::Gallery;
use crate::mark::Altered;
use crate::meter::{Inference, Meter};
use crate::models::Models;
use crate::pipeline;
use crate::policy::Policy;
use crate::recipe::Checked;
use crate::subject::Landmarks5;
use crate::track::{Presence, Tracker, Watch};
use crate::{Error, Result};

mod canvas;
mod look;
mod alter;
mod state;
mod live;

use alter::Lists;
use canvas::Canvas;
pub use live::{LiveRun, Looker};
use look::Sight;

/// What a clip is worked on with; the policy may be another one at each call.
pub struct Tools<'a, B: Backend> {
    pub models: &'a mut Models<B>,
    pub policy: &'a Policy<B>,
    pub overlay: Option<&'a Overlay<B>>,
    pub clock: &'a dyn Clock,
}

impl<B: Backend> std::fmt::Debug for Tools<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// What is known of a clip before its first frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Of every frame, as it is coded.
    pub size: Size,
    /// How far a frame must be turned clockwise to stand upright: 0, 90, 180 or 270. Frames are
    /// worked on as they lie.
    pub rotation: u16,
    /// Frames of a segment: the window is empty and the state can be taken after each of them.
    pub segment: u64,
}

/// A frame on its way through.
#[derive(Debug)]
pub struct Frame {
    /// From 0, without gaps; the same in a clip that is resumed.
    pub number: u64,
    /// When it is shown, from the clip's start.
    pub at: Duration,
    /// As it is coded.
    pub image: I420,
}

/// A face of one frame.
#[derive(Debug, Clone, PartialEq)]
pub struct TrackedFace {
    /// The same person in the same scene has one number, which no other has.
    pub track: u32,
    pub rect: Rect,
    pub landmarks: Landmarks5,
    /// Of the nearest detection.
    pub score: f32,
    /// By votes over the track, with the cosine.
    pub identity: Option<(IdentityId, f32)>,
    /// What was done, as `grammar` writes an action.
    pub done: Arc<str>,
    /// Why something else was done than asked for, when it was.
    pub reason: Option<Arc<str>>,
}

/// What became of one frame.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameReport {
    pub number: u64,
    pub altered: Altered,
    pub faces: Vec<TrackedFace>,
    /// Where pixels may have changed; all others have their bytes.
    pub regions: Vec<Roi>,
    /// Why the frame is covered whole, when it is.
    pub covered: Option<Arc<str>>,
    /// The detector looked at this very frame.
    pub detected: bool,
    /// A scene begins here.
    pub scene: bool,
}

/// A frame in the window, and what is known of it.
#[derive(Debug)]
struct Slot {
    frame: Frame,
    detected: bool,
    scene: bool,
    /// Why the gate gave no verdict. Nothing that comes after makes that good.
    ungated: Option<Arc<str>>,
    /// Why nobody looked at it. Looks around it may make that good.
    unseen: Option<Arc<str>>,
}

/// A clip in work. Frames come out in order and each exactly once, also those that failed: they
/// are covered whole.
pub struct ClipRun<B: Backend> {
    recipe: Checked,
    shape: Shape,
    gallery: Gallery,
    waiting: VecDeque<Slot>,
    /// Of the frame that is pushed next.
    next: u64,
    canvas: Canvas<B>,
    watch: Watch,
    tracker: Tracker,
    sight: Sight,
    present: Vec<Presence>,
    lists: Option<Lists<B>>,
    /// Some action may need landmarks in every frame.
    meshes: bool,
    /// Frames leave without waiting for others: the segment or the clip has ended.
    flushing: bool,
    ended: bool,
    spare: Vec<FrameReport>,
    /// Time of all models.
    inference: Cell<Inference>,
}

impl<B: Backend> std::fmt::Debug for ClipRun<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClipRun")
            .field("shape", &self.shape)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl<B: Backend> ClipRun<B> {
    /// Most frames that are inside: what a pool of frames must hold beside those elsewhere.
    pub const WINDOW: usize = 17;
    /// Frames by which meshes are behind the newest frame.
    const LAG: u64 = 9;

    /// Begins a clip.
    ///
    /// # Errors
    /// When a model is missing that the recipe needs, or somebody whom it names; `Empty`.
    pub fn new(tools: &mut Tools<'_, B>, recipe: Checked, shape: Shape) -> Result<Self> {
        let Size { width, height } = shape.size;
        if shape.size.pixels() == 0 {
            return Err(Error::Empty);
        }
        if shape.size.pixels() > limits::PICTURE_PIXELS
            || width.max(height) > limits::PICTURE_SIDE
            || !matches!(shape.rotation, 0 | 90 | 180 | 270)
            || shape.segment == 0
        {
            let detail = format!("no clip has frames of {width}x{height} and this shape");
            return Err(Error::Clip { detail });
        }
        let gallery =
            pipeline::ready(tools.models, tools.policy, &recipe, tools.overlay.is_some())?;
        tools.models.detector(&recipe.recipe().detect.model)?;
        let meshes = recipe.wants_meshes();
        Ok(Self {
            sight: Sight::new(&recipe, shape.rotation),
            recipe,
            shape,
            gallery,
            waiting: VecDeque::with_capacity(Self::WINDOW),
            next: 0,
            canvas: Canvas::new(shape.size),
            watch: Watch::default(),
            tracker: Tracker::new(shape.size),
            present: Vec::new(),
            lists: None,
            meshes,
            flushing: false,
            ended: false,
            spare: Vec::new(),
            inference: Cell::default(),
        })
    }

    /// Takes the next frame. `next` must be asked until it is `None` before another is pushed.
    ///
    /// # Errors
    /// `Refused` when the gate says no: then no more frames leave. `Clip` for a frame out of order
    /// or of another size, or when more frames are inside than may be.
    pub fn push(&mut self, tools: &mut Tools<'_, B>, frame: Frame) -> Result<()> {
        let no = |detail: String| Err(Error::Clip { detail });
        let (number, size) = (frame.number, frame.image.size());
        if number != self.next || self.ended || self.flushing {
            return no(format!("frame {number} came where {} was due", self.next));
        }
        if size != self.shape.size {
            return no(format!("frame {number} has another size: {}x{}", size.width, size.height));
        }
        if self.waiting.len() >= Self::WINDOW {
            return no(format!("frame {number} came before those inside were taken"));
        }
        self.next += 1;
        let last = (number + 1).is_multiple_of(self.shape.segment);
        let mut meter = Meter::of_models(tools.clock);
        let slot = self.see(tools, frame, last, &mut meter)?;
        self.waiting.push_back(slot);
        if self.meshes && number >= Self::LAG {
            self.mesh(tools, number - Self::LAG, &mut meter)?;
        }
        if last {
            self.flush(tools, &mut meter)?;
        }
        self.count(meter.inference());
        Ok(())
    }

    fn count(&self, more: Inference) {
        let mut all = self.inference.get();
        all += more;
        self.inference.set(all);
    }

    /// What all models took so far.
    #[must_use]
    pub fn inference(&self) -> Inference {
        self.inference.get()
    }

    /// No more frames come: those inside come out.
    ///
    /// # Errors
    /// As `push`.
    pub fn end(&mut self, tools: &mut Tools<'_, B>) -> Result<()> {
        let mut meter = Meter::of_models(tools.clock);
        self.ended = true;
        if let Some(mut slot) = self.waiting.pop_back() {
            if !slot.detected {
                self.look(tools, &mut slot, &mut meter)?;
            }
            self.waiting.push_back(slot);
        }
        self.flush(tools, &mut meter)?;
        self.count(meter.inference());
        Ok(())
    }

    fn flush(&mut self, tools: &mut Tools<'_, B>, meter: &mut Meter<'_>) -> Result<()> {
        if self.meshes {
            let left = self.next.saturating_sub(Self::LAG);
            for number in left..self.next {
                self.mesh(tools, number, meter)?;
            }
        }
        self.flushing = !self.waiting.is_empty();
        Ok(())
    }

    /// The next finished frame, when one is finished.
    pub fn next(&mut self, tools: &mut Tools<'_, B>) -> Option<Result<(Frame, FrameReport)>> {
        if !self.flushing && self.waiting.len() < Self::WINDOW {
            return None;
        }
        let slot = self.waiting.pop_front()?;
        let number = slot.frame.number;
        let done = self.alter(tools, slot);
        self.tracker.forget(number + 1);
        if self.flushing && self.waiting.is_empty() {
            self.flushing = false;
            self.rest();
        }
        Some(done)
    }

    /// A report that is read comes back, so that its lists are used again.
    pub fn recycle(&mut self, mut report: FrameReport) {
        if self.spare.len() < Self::WINDOW {
            report.faces.clear();
            report.regions.clear();
            self.spare.push(report);
        }
    }
}
