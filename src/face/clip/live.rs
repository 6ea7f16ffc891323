//! Live frames: each leaves before the next is known, by what was found so far.
//!
//! ```text
//!   frame ─ stir ─┬─ nothing moved ──────────────▶ stands ─┐
//!                 ├─ ask ─▶ Looker (a thread) ─▶ seen ─────┼─▶ leave ─▶ altered frame
//!                 └─ no answer in time ──────────▶ unseen ─┘
//! ```
//! The cover of a face is where it was found in this very frame, or the hull of where it was last
//! and where it is expected, grown with each frame of which nobody knows. Nothing is filled in
//! backwards, so a frame in which anything moved is looked at before it leaves.

use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::id::ModelId;
use mien_base::model::Manifest;
use mien_engine::backend::Backend;
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::i420::I420;

use super::look::Verdict;
use super::{Canvas, ClipRun, Frame, FrameReport, Shape, Sight, Slot, Tools};
use crate::gate::Passed;
use crate::meter::Meter;
use crate::models::Models;
use crate::recipe::Checked;
use crate::subject::Face;
use crate::track::Stir;
use crate::{Error, Result};

/// Looks at pictures of frames, on whatever thread it is put.
pub struct Looker<B: Backend> {
    models: Models<B>,
    detector: ModelId,
    sight: Sight,
}

impl<B: Backend> std::fmt::Debug for Looker<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looker").field("detector", &self.detector).finish_non_exhaustive()
    }
}

impl<B: Backend> Looker<B> {
    /// Faces of a frame. `fell`: some were there a moment ago.
    ///
    /// # Errors
    /// When nothing is known about the frame.
    pub fn faces(
        &mut self,
        number: u64,
        picture: &B::Picture,
        fell: bool,
        clock: &dyn Clock,
    ) -> Result<Vec<Face>> {
        let backend = Arc::clone(self.models.backend());
        let detector = self.models.detector(&self.detector)?;
        self.sight.faces(detector, &backend, picture, number, fell, &mut Meter::of_models(clock))
    }

    /// Shows a frame to the gate.
    ///
    /// # Errors
    /// `Refused`; whatever keeps the gate from a verdict.
    pub fn inspect(
        &mut self,
        picture: B::Picture,
        clock: &dyn Clock,
    ) -> Result<(B::Picture, Passed<()>)> {
        let backend = Arc::clone(self.models.backend());
        let gate = self.models.gate.as_mut();
        let gate = gate.ok_or(Error::NoModel { role: mien_base::model::Role::Gate })?;
        Ok(gate.inspect(&*backend, picture, &mut Meter::of_models(clock))?.into_parts())
    }

    /// Another detector or gate from here on.
    ///
    /// # Errors
    /// As `Models::load`; then the one before stays.
    pub fn load(&mut self, manifest: Manifest, bytes: &[u8]) -> Result<()> {
        self.models.load(manifest, bytes)
    }
}

/// A camera's frames in work.
pub struct LiveRun<B: Backend> {
    run: ClipRun<B>,
}

impl<B: Backend> std::fmt::Debug for LiveRun<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveRun").field("run", &self.run).finish()
    }
}

impl<B: Backend> LiveRun<B> {
    /// Begins a run; gate and detectors leave the models for the `Looker`, until `end`.
    ///
    /// # Errors
    /// As `ClipRun::new`.
    pub fn new(tools: &mut Tools<'_, B>, recipe: Checked, size: Size) -> Result<(Self, Looker<B>)> {
        let detector = recipe.recipe().detect.model.clone();
        let sight = Sight::new(&recipe, 0);
        let run = ClipRun::new(tools, recipe, Shape { size, rotation: 0, segment: u64::MAX })?;
        let models = tools.models.take_sight();
        let looker = Looker { models, detector, sight };
        Ok((Self { run }, looker))
    }

    /// Gives the models back that a looker had.
    pub fn end(models: &mut Models<B>, looker: Looker<B>) {
        models.put_sight(looker.models);
    }

    /// Compares a frame with those before. Numbers grow by one.
    pub fn stir(&mut self, number: u64, image: &I420) -> Stir {
        let run = &mut self.run;
        let stir = run.watch.compare_live(number, image.y(), run.tracker.known(number));
        if stir.scene {
            run.tracker.cut(number);
            run.sight.gate = None;
        }
        stir
    }

    /// True when a frame must be looked at whatever moved: a face is lost, or was just found.
    #[must_use]
    pub fn doubts(&self) -> bool {
        self.run.tracker.doubts()
    }

    /// Faces are followed just now.
    #[must_use]
    pub fn follows(&self, number: u64) -> bool {
        self.run.tracker.known(number).next().is_some()
    }

    /// The frame of the last `stir` is being looked at.
    pub fn ask(&mut self) {
        self.run.watch.ask();
    }

    /// A frame as a picture for the looker, in the place of one that came back.
    ///
    /// # Errors
    /// `Engine`.
    pub fn show(&self, backend: &B, image: &I420, spare: Option<B::Picture>) -> Result<B::Picture> {
        let mut canvas = Canvas::new(self.run.shape.size);
        if let Some(spare) = spare {
            canvas.put(spare);
        }
        canvas.lay(backend, image, [Roi::whole(self.run.shape.size)].into_iter())
    }

    /// What was found in a frame that was asked for, which may be one of those that left.
    ///
    /// # Errors
    /// When those who are known can't be told apart; then nobody is.
    pub fn seen(
        &mut self,
        tools: &mut Tools<'_, B>,
        number: u64,
        picture: &B::Picture,
        faces: &[Face],
    ) -> Result<()> {
        let run = &mut self.run;
        run.watch.answered(number);
        if !run.recipe.recognises() {
            run.tracker.look(number, faces, |_, _| None);
            return Ok(());
        }
        let backend = Arc::clone(tools.models.backend());
        let mut meter = Meter::of_models(tools.clock);
        run.bind(tools, &backend, picture, number, faces, &mut meter)
    }

    /// Nobody looked at a frame in time, or the look failed.
    pub fn unseen(&mut self, number: u64) {
        self.run.tracker.fail(number);
    }

    /// Nothing has moved since the last look.
    pub fn stands(&mut self, number: u64) {
        self.run.tracker.stand(number);
    }

    /// What the gate said of a frame of this scene.
    pub fn judged(&mut self, verdict: Option<Passed<()>>, at: Duration) {
        self.run.sight.gate = verdict.map(|passed| Verdict { passed, at });
    }

    /// When the gate let a frame of this scene pass last.
    #[must_use]
    pub fn passed(&self) -> Option<Duration> {
        self.run.sight.gate.as_ref().map(|verdict| verdict.at)
    }

    /// Alters a frame by what is known; with `cover` nothing of it is shown.
    ///
    /// # Errors
    /// When not even a cover could be laid: then the frame must not leave.
    pub fn leave(
        &mut self,
        tools: &mut Tools<'_, B>,
        frame: Frame,
        looked: bool,
        cover: Option<Arc<str>>,
    ) -> Result<(Frame, FrameReport)> {
        let run = &mut self.run;
        let (number, size) = (frame.number, frame.image.size());
        if size != run.shape.size {
            let detail = format!("frame {number} has another size: {}x{}", size.width, size.height);
            return Err(Error::Clip { detail });
        }
        let meshes = run.meshes && cover.is_none();
        let mut slot = Slot { frame, detected: looked, scene: false, ungated: cover, unseen: None };
        if meshes {
            run.waiting.push_back(slot);
            let mut meter = Meter::of_models(tools.clock);
            let meshed = run.mesh(tools, number, &mut meter);
            let back = run.waiting.pop_front();
            slot = back.ok_or_else(|| Error::Clip { detail: "a frame was lost".to_owned() })?;
            if let Err(error) = meshed {
                let why = format!("the landmarks failed: {}", error.reason());
                slot.ungated = Some(why.into());
            }
        }
        let done = run.alter(tools, slot);
        run.tracker.forget(number + 1);
        done
    }

    /// A report that is read comes back, so that its lists are used again.
    pub fn recycle(&mut self, report: FrameReport) {
        self.run.recycle(report);
    }

    /// Faces of the last frame of which the masks are held: they were not found in it.
    #[must_use]
    pub fn held(&self) -> usize {
        self.run.present.iter().filter(|p| p.missed > 0).count()
    }
}
