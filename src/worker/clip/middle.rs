//! The stage between decode and encode: faces, marks, counts, and what a new worker must know.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::limits;
use mien_base::report::ClipMarks;
use mien_base::wire::{Stage, codec};
use mien_engine::backend::Backend;
use mien_face::anonymise::Overlay;
use mien_face::clip::{ClipRun, Frame, FrameReport, Shape, Tools};
use mien_face::mark::{self, Altered};
use mien_face::models::Models;
use mien_face::policy::Policy;
use mien_face::recipe::Checked;
use mien_media::clip::{ClipInfo, Timing};
use serde::{Deserialize, Serialize};

use super::Costs;
use super::changes::Changes;
use super::decode::{Decoded, Ticks};
use super::encode::ToEncode;
use super::tally::Tally;
use crate::meter::Pulse;
use crate::{Error, Result};

/// What a worker leaves behind at the end of a segment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    run: Vec<u8>,
    tally: Tally,
    marks: ClipMarks,
    altered: u8,
    /// When the last frame began, in ticks of the clip.
    pub(super) last: i64,
    /// It was the clip's last segment.
    pub(super) ended: bool,
}

impl State {
    /// # Errors
    /// `Segments` when a worker of another kind wrote it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        codec::decode(bytes).map_err(|_| Error::Segments { detail: "their state does not read" })
    }

    fn write(&self) -> Result<Vec<u8>> {
        let bytes = codec::encode(self).ok().filter(|b| b.len() <= limits::CLIP_RESUME);
        bytes.ok_or(Error::Protocol { what: "the state of a clip that does not fit its bound" })
    }
}

/// What a clip says was done to it, from the weakest.
const ALTERED: [Altered; 3] = [Altered::Nothing, Altered::Masked, Altered::Generated];

/// Why the stage stopped.
#[derive(Debug)]
pub(super) enum Halt {
    /// Of itself, or because of the stage before it.
    Error(Error),
    /// The stage after it is gone and says why.
    Encode,
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<mien_face::Error> for Halt {
    fn from(error: mien_face::Error) -> Self {
        Self::Error(Error::Face(error))
    }
}

/// What one clip is worked on with.
pub(super) struct Middle<'a, B: Backend> {
    pub(super) pulse: &'a Pulse,
    pub(super) info: &'a ClipInfo,
    pub(super) ticks: Ticks,
    pub(super) costs: &'a Costs,
    pub(super) models: &'a mut Models<B>,
    pub(super) policy: &'a mut Policy<B>,
    pub(super) overlay: Option<&'a Overlay<B>>,
    pub(super) clock: &'a dyn Clock,
    pub(super) changes: Changes<'a>,
    pub(super) marker: mark::clip::Clip,
}

/// One clip on its way through.
struct Passage<B: Backend> {
    run: ClipRun<B>,
    tally: Tally,
    /// What the workers before marked.
    before: ClipMarks,
    /// Of the frames that are inside.
    times: VecDeque<Timing>,
    /// When the last frame that came out began.
    last: i64,
    /// Number of the next frame that comes out.
    out: u64,
    encode: SyncSender<ToEncode>,
}

impl<B: Backend> Middle<'_, B> {
    /// Works until all frames are encoded or one can't be. `written` frames are already.
    pub(super) fn run(
        mut self,
        recipe: Checked,
        state: Option<State>,
        written: u64,
        frames: &Receiver<Decoded>,
        encode: SyncSender<ToEncode>,
    ) -> std::result::Result<(Tally, ClipMarks), Halt> {
        let shape = Shape {
            size: self.info.size,
            rotation: self.info.rotation.degrees() as u16,
            segment: limits::CLIP_SEGMENT,
        };
        let has_range = self.ticks.start.is_some() || self.ticks.end.is_some();
        let mut passage = Passage {
            run: ClipRun::new(&mut self.tools(), recipe, shape)?,
            tally: Tally::default(),
            before: ClipMarks::default(),
            times: VecDeque::with_capacity(ClipRun::<B>::WINDOW + 1),
            last: 0,
            out: written,
            encode,
        };
        let mut ended = false;
        if let Some(state) = state {
            ended = state.ended;
            if !ended {
                passage.run.restore(&state.run)?;
            }
            let altered = ALTERED.get(usize::from(state.altered)).copied();
            self.marker.declare(altered.unwrap_or(Altered::Generated));
            (passage.tally, passage.before, passage.last) = (state.tally, state.marks, state.last);
        }
        let mut number = written;
        loop {
            match frames.recv() {
                Ok(Decoded::Frame(image, timing)) => {
                    self.pulse.boundary()?;
                    passage.times.push_back(timing);
                    let frame = Frame { number, at: self.at(timing), image };
                    number += 1;
                    let running = self.costs.face.begin(self.pulse, Stage::Face);
                    let pushed = passage.run.push(&mut self.tools(), frame);
                    drop(running);
                    pushed?;
                    self.drain(&mut passage)?;
                }
                Ok(Decoded::End) => break,
                Ok(Decoded::Failed(error)) => return Err(error.into()),
                Ok(Decoded::Info(..)) | Err(_) => return Err(super::stage::gone().into()),
            }
        }
        if !ended {
            let running = self.costs.face.begin(self.pulse, Stage::Face);
            let end = passage.run.end(&mut self.tools());
            drop(running);
            end?;
            self.drain(&mut passage)?;
        }
        if number == 0 {
            return Err(Error::NoFrame { range: has_range }.into());
        }
        if !ended && !number.is_multiple_of(limits::CLIP_SEGMENT) {
            self.cut(&passage, Vec::new(), true)?;
        }
        passage.encode.send(ToEncode::End).map_err(|_| Halt::Encode)?;
        let mut marks = merged(&passage.before, self.marker.marks());
        let overstated = passage.tally.overstated(self.marker.declared());
        marks.reasons.extend(overstated.map(str::to_owned));
        Ok((passage.tally, marks))
    }

    /// What the next frame is worked on with.
    fn tools(&mut self) -> Tools<'_, B> {
        let (overlay, clock) = (self.overlay, self.clock);
        Tools { models: self.models, policy: self.policy, overlay, clock }
    }

    /// When a frame is shown, from the first one that is written.
    fn at(&self, timing: Timing) -> Duration {
        let ticks = timing.pts.saturating_sub(self.ticks.start.unwrap_or(0)).max(0);
        let nanos = u128::from(ticks.unsigned_abs()) * 1_000_000_000;
        let nanos = nanos / u128::from(self.info.timescale.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Marks and sends on what is finished.
    fn drain(&mut self, passage: &mut Passage<B>) -> std::result::Result<(), Halt> {
        loop {
            self.pulse.wait()?;
            self.changes.take_in(self.policy, passage.out)?;
            let running = self.costs.face.begin(self.pulse, Stage::Face);
            let next = passage.run.next(&mut self.tools());
            drop(running);
            self.costs.face.models(passage.run.inference());
            let Some(next) = next else { return Ok(()) };
            let (frame, report) = next?;
            let number = frame.number;
            self.send(passage, frame, &report)?;
            passage.run.recycle(report);
            if (number + 1).is_multiple_of(limits::CLIP_SEGMENT) {
                let state = passage.run.state()?;
                self.cut(passage, state, false)?;
                self.marker.rest();
            }
        }
    }

    fn send(
        &mut self,
        passage: &mut Passage<B>,
        frame: Frame,
        report: &FrameReport,
    ) -> std::result::Result<(), Halt> {
        let Some(timing) = passage.times.pop_front() else {
            return Err(super::stage::gone().into());
        };
        let idr = frame.number.is_multiple_of(limits::CLIP_GOP);
        let running = self.costs.mark.begin(self.pulse, Stage::Face);
        let marked = self.marker.apply(frame.image, report.altered, frame.at, idr);
        drop(running);
        passage.tally.frame(report, timing.duration);
        passage.last = timing.pts;
        passage.out = frame.number + 1;
        let frame = ToEncode::Frame { frame: marked?, timing, idr };
        passage.encode.send(frame).map_err(|_| Halt::Encode)
    }

    /// A segment ends.
    fn cut(
        &self,
        passage: &Passage<B>,
        run: Vec<u8>,
        ended: bool,
    ) -> std::result::Result<(), Halt> {
        let declared = self.marker.declared();
        let altered = ALTERED.iter().position(|altered| *altered == declared).unwrap_or(2);
        let state = State {
            run,
            tally: self.costs.add_to(passage.tally.clone()),
            marks: merged(&passage.before, self.marker.marks()),
            altered: altered as u8,
            last: passage.last,
            ended,
        };
        passage.encode.send(ToEncode::Cut(state.write()?)).map_err(|_| Halt::Encode)
    }
}

/// The marks of the frames before, and of those that this worker wrote.
fn merged(before: &ClipMarks, now: &ClipMarks) -> ClipMarks {
    let unmarked = now.unmarked.iter().map(|gop| gop + before.gops);
    let mut unmarked: Vec<u64> = before.unmarked.iter().copied().chain(unmarked).collect();
    unmarked.truncate(limits::CLIP_LISTED);
    let psnr = match (before.psnr, now.psnr) {
        (before, 0.0) => before,
        (0.0, now) => now,
        (before, now) => before.min(now),
    };
    ClipMarks {
        visible: now.visible,
        metadata: now.metadata,
        payload: now.payload.clone(),
        gops: before.gops + now.gops,
        marked: before.marked + now.marked,
        unmarked,
        psnr,
        reasons: now.reasons.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_two_workers_are_those_of_one_clip() {
        let of = |gops, marked, unmarked: &[u64], psnr| ClipMarks {
            visible: true,
            gops,
            marked,
            unmarked: unmarked.to_vec(),
            psnr,
            ..ClipMarks::default()
        };
        let both = merged(&of(4, 3, &[2], 44.0), &of(3, 2, &[0], 43.0));
        assert_eq!(both, of(7, 5, &[2, 4], 43.0));
        assert_eq!(merged(&ClipMarks::default(), &of(3, 3, &[], 43.0)), of(3, 3, &[], 43.0));
        assert_eq!(merged(&of(4, 4, &[], 44.0), &of(0, 0, &[], 0.0)).psnr, 44.0);
    }

    #[test]
    fn a_state_that_is_none_is_refused() {
        assert!(matches!(State::read(b"nothing"), Err(Error::Segments { .. })));
    }
}
