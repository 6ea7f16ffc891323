//! Faces of each frame of a clip: followed as when it is processed, but nothing is written.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use mien_base::limits;
use mien_base::recipe::{Action, Recipe};
use mien_base::report::{ClipMarks, FaceReport};
use mien_base::wire::clip::{ClipDetect, FrameFaces};
use mien_base::wire::{Event, Stage};
use mien_engine::backend::Backend;
use mien_face::clip::{ClipRun, Frame, FrameReport, Shape, Tools, TrackedFace};
use mien_face::policy::Policy;
use mien_face::recipe;
use mien_pixels::i420::I420;

use super::decode::{DecodeJob, Decoded, Ticks};
use super::stage::{self, Stages};
use super::{Costs, HANDS, QUEUE, Tally, report, source};
use crate::link::Outbox;
use crate::meter::JobClock;
use crate::still::{Desk, Files};
use crate::{Error, Result};

/// Least score of a face that is listed, where none is given.
const SCORE: f32 = 0.5;

impl<B: Backend> Desk<'_, B> {
    /// Finds the faces of each frame.
    ///
    /// # Errors
    /// As `clip`.
    pub fn detect_clip(
        &mut self,
        request: ClipDetect,
        mut files: Files,
        stages: &Stages,
        outbox: &Outbox,
    ) -> Result<Event> {
        let ClipDetect { job, mut detect, range, wall, head } = request;
        detect.score = detect.score.or(Some(SCORE));
        let asked =
            Recipe { detect, action: Action::Pass, others: Action::Pass, ..Recipe::default() };
        let recipe = recipe::check(&asked).map_err(Error::Face)?;
        let input = Arc::new(files.take()?);
        let costs = Costs::new(self.machine);
        let pool = ClipRun::<B>::WINDOW + QUEUE + HANDS;
        let (empty, frames) = self.decode(stages, pool, |empty, frames| {
            let (input, cost) = (source(&input, head)?, costs.decode.clone());
            Ok(DecodeJob { input, range, after: None, ended: false, cost, empty, frames })
        })?;
        let (info, _) = frames.begin()?;
        self.pulse.pixels(info.size.pixels());
        let policy = Policy::new(0);
        let clock = JobClock::new(self.pulse, self.machine, wall);
        let mut tools =
            Tools { models: self.models, policy: &policy, overlay: None, clock: &clock };
        let shape = Shape {
            size: info.size,
            rotation: info.rotation.degrees() as u16,
            segment: limits::CLIP_SEGMENT,
        };
        let run = ClipRun::new(&mut tools, recipe, shape).map_err(Error::Face);
        let start = Ticks::new(range, info.timescale).start.unwrap_or(0);
        let per_second = f64::from(info.timescale.max(1));
        let mut look = Look { empty, outbox, job, tally: Tally::default() };
        let go = || {
            let (mut run, mut number) = (run?, 0);
            loop {
                let image = match frames.0.recv() {
                    Ok(Decoded::Frame(image, timing)) => {
                        self.pulse.boundary()?;
                        let seconds = (timing.pts - start).max(0) as f64 / per_second;
                        let at = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
                        Some(Frame { number, at, image })
                    }
                    Ok(Decoded::End) => None,
                    Ok(Decoded::Failed(error)) => return Err(error),
                    Ok(Decoded::Info(..)) | Err(_) => return Err(stage::gone()),
                };
                let ended = image.is_none();
                let running = costs.face.begin(self.pulse, Stage::Face);
                match image {
                    Some(frame) => run.push(&mut tools, frame),
                    None => run.end(&mut tools),
                }
                .map_err(Error::Face)?;
                while let Some(next) = run.next(&mut tools) {
                    let (frame, report) = next.map_err(Error::Face)?;
                    look.tell(frame, &report);
                    run.recycle(report);
                }
                drop(running);
                costs.face.models(run.inference());
                number += 1;
                if ended {
                    return Ok(());
                }
            }
        };
        let worked: Result<()> = go();
        if worked.is_err() {
            self.pulse.cancel();
        }
        let Look { empty, tally, .. } = look;
        drop(empty);
        frames.end();
        worked?;
        if tally.frames() == 0 {
            return Err(Error::NoFrame { range: range.is_some() });
        }
        let report = report(costs.add_to(tally), &info, ClipMarks::default());
        Ok(Event::ClipDetected { job, report })
    }
}

/// Where what was found goes.
struct Look<'a> {
    empty: SyncSender<I420>,
    outbox: &'a Outbox,
    job: mien_base::id::JobId,
    tally: Tally,
}

impl Look<'_> {
    fn tell(&mut self, frame: Frame, report: &FrameReport) {
        self.tally.frame(report, 0);
        let faces = FrameFaces {
            frame: frame.number,
            at: u64::try_from(frame.at.as_micros()).unwrap_or(u64::MAX),
            tracks: report.faces.iter().map(|face| face.track).collect(),
            faces: report.faces.iter().map(listed).collect(),
        };
        self.outbox.send(Event::FrameFaces { job: self.job, faces });
        // Whoever decodes may have ended.
        let _ = self.empty.send(frame.image);
    }
}

fn listed(face: &TrackedFace) -> FaceReport {
    FaceReport {
        rect: [face.rect.x0, face.rect.y0, face.rect.x1, face.rect.y1],
        score: face.score,
        landmarks: face.landmarks.points().map(|p| [p.x, p.y]),
        identity: face.identity.clone(),
        done: "none".to_owned(),
        reason: None,
    }
}
