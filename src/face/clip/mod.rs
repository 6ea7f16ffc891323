//! One clip: frames in order in, frames with every face altered out, a bounded window later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::id::IdentityId;
use mien_engine::backend::Backend;
use mien_pixels::geometry::{Rect, Roi, Size};
use mien_pixels::i420::I420;
use mien_pixels::view::Rgb;

use crate::alteration::{Subject, Work};
use crate::anonymise::Overlay;
use crate::decision::Who;
use crate::gallery::{Gallery, Match};
use crate::gate::Passed;
use crate::mark::Altered;
use crate::meter::Meter;
use crate::models::Models;
use crate::pipeline;
use crate::policy::Policy;
use crate::recipe::Checked;
use crate::select;
use crate::subject::Landmarks5;
use crate::{Error, Result};

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

/// A clip in work. Frames come out in order and each exactly once, also those that failed: they
/// are covered whole.
pub struct ClipRun<B: Backend> {
    recipe: Checked,
    shape: Shape,
    gallery: Gallery,
    waiting: VecDeque<Frame>,
    canvas: Option<B::Picture>,
    ended: bool,
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

    /// Begins a clip.
    ///
    /// # Errors
    /// When a model is missing that the recipe needs, or somebody whom it names; `Empty`.
    pub fn new(tools: &mut Tools<'_, B>, recipe: Checked, shape: Shape) -> Result<Self> {
        if shape.size.pixels() == 0 {
            return Err(Error::Empty);
        }
        let has_overlay = tools.overlay.is_some();
        let gallery = pipeline::ready(tools.models, tools.policy, &recipe, has_overlay)?;
        let waiting = VecDeque::with_capacity(Self::WINDOW);
        Ok(Self { recipe, shape, gallery, waiting, canvas: None, ended: false })
    }

    /// Takes the next frame. `next` must be asked until it is `None` before another is pushed.
    ///
    /// # Errors
    /// `Refused` when the gate says no; what makes the clip impossible to go on with.
    pub fn push(&mut self, _tools: &mut Tools<'_, B>, frame: Frame) -> Result<()> {
        self.waiting.push_back(frame);
        Ok(())
    }

    /// No more frames come: those inside come out.
    ///
    /// # Errors
    /// As `push`.
    pub fn end(&mut self, _tools: &mut Tools<'_, B>) -> Result<()> {
        self.ended = true;
        Ok(())
    }

    /// The next finished frame, when one is finished.
    pub fn next(&mut self, tools: &mut Tools<'_, B>) -> Option<Result<(Frame, FrameReport)>> {
        let frame = self.waiting.pop_front()?;
        Some(self.work(tools, frame))
    }

    /// A report that is read comes back, so that its lists are used again.
    pub fn recycle(&mut self, _report: FrameReport) {}

    /// What the frames after a whole segment need to know of those before: a clip that is resumed
    /// with it at that frame gives the same bytes. To be asked when `next` has given the last frame
    /// of a segment, before the next is pushed.
    ///
    /// # Errors
    /// `Internal` when frames are inside.
    pub fn state(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Goes on where another run gave `state`.
    ///
    /// # Errors
    /// When it is no state of such a clip.
    pub fn restore(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }

    fn work(&mut self, tools: &mut Tools<'_, B>, mut frame: Frame) -> Result<(Frame, FrameReport)> {
        let backend = Arc::clone(tools.models.backend());
        let mut meter = Meter::new(tools.clock);
        let (size, whole) = (self.shape.size, Roi::whole(self.shape.size));
        let mut rgb = match self.canvas.take() {
            Some(canvas) => backend.release(canvas).map_err(Error::engine("frame"))?,
            None => Rgb::filled(size, [0; 3]),
        };
        frame.image.view().to_rgb(whole, &mut rgb.view_mut());
        let (mut passed, _) = pipeline::admit(tools.models, &backend, rgb, &mut meter)?;
        let options = self.recipe.options();
        let detector = tools.models.detector(&self.recipe.recipe().detect.model)?;
        let faces = detector.detect(&backend, passed.get(), &options, &mut meter)?;
        let zones = select::in_zones(&faces, &self.recipe.recipe().select.zones, size);
        let subject = |(face, in_zones)| Subject { face, in_zones, mesh: None, who: Who::Unasked };
        let mut subjects: Vec<Subject> = faces.into_iter().zip(zones).map(subject).collect();
        if self.recipe.recognises() {
            for subject in subjects.iter_mut().filter(|s| s.in_zones) {
                let picture = passed.get();
                pipeline::recognise(
                    tools.models,
                    &backend,
                    picture,
                    subject,
                    &self.gallery,
                    &mut meter,
                )?;
            }
        }
        let decisions = pipeline::decide(&self.recipe, tools.policy, &subjects, size, tools.clock);
        let mut work = Work {
            models: tools.models,
            backend: &backend,
            recipe: &self.recipe,
            overlay: tools.overlay,
            subjects: &mut subjects,
            decisions: &decisions,
            outcomes: Vec::new(),
            person: None,
        };
        let altered = work.carry_out(&mut passed, &mut meter)?;
        let outcomes = work.outcomes;
        let faces = subjects.iter().zip(outcomes).enumerate().map(|(i, (subject, outcome))| {
            let identity = match &subject.who {
                Who::Seen(Match::Known(identity, cosine)) => Some((identity.clone(), *cosine)),
                _ => None,
            };
            TrackedFace {
                track: i as u32,
                rect: subject.face.rect,
                landmarks: subject.face.landmarks,
                score: subject.face.score,
                identity,
                done: outcome.0.into(),
                reason: outcome.1.map(Into::into),
            }
        });
        let faces = faces.collect();
        let rgb = backend.release(Passed::into_inner(passed)).map_err(Error::engine("frame"))?;
        frame.image.write_back(rgb.view(), whole);
        self.canvas = Some(backend.adopt(rgb).map_err(Error::engine("frame"))?);
        let report = FrameReport {
            number: frame.number,
            altered,
            faces,
            regions: vec![whole],
            covered: None,
            detected: true,
            scene: frame.number == 0,
        };
        Ok((frame, report))
    }
}
