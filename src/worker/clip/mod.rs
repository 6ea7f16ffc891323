//! One clip: decoded, worked on and encoded by three threads, in the order of its frames.
//!
//! ```text
//!   decode ══▶ ClipRun ─▶ marks ══▶ encode ─▶ segments ─▶ one file
//! ```
//! A segment ends at a fixed frame. What the frames after it need to know is said there; a worker
//! that is told goes on as if it had been there from the start.

mod file;
mod tally;
pub(crate) mod stage;
mod decode;
mod encode;
mod changes;
mod middle;
mod look;
mod check;
mod made;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use mien_base::clock::SystemClock;
use mien_base::report::{ClipMarks, ClipReport};
use mien_base::wire::Event;
use mien_base::wire::clip::{Clip, Plan};
use mien_engine::backend::Backend;
use mien_face::clip::ClipRun;
use mien_face::mark;
use mien_face::policy::Policy;
use mien_face::recipe;
use mien_media::clip::ClipInfo;
use mien_pixels::i420::I420;
use mien_pixels::stamp::Turn;
use rustix::fs::FileType;

pub use changes::Changes;
pub use check::is_clip;
pub use file::{FileIn, FileOut};
pub use stage::Stages;

use crate::meter::JobClock;
use crate::still::{Desk, Files};
use crate::{Error, Result};
use decode::{DecodeJob, Decoded, Input, Ticks};
use encode::{EncodeJob, Segments, To};
use middle::{Halt, Middle, State};
use stage::Cost;
use tally::Tally;

/// Frames that wait between two stages.
const QUEUE: usize = 1;
/// Frames that are in the hands of the stages, one each.
const HANDS: usize = 3;

/// The costs of the stages.
#[derive(Debug, Clone)]
struct Costs {
    decode: Cost,
    face: Cost,
    mark: Cost,
    encode: Cost,
}

impl Costs {
    fn new(machine: SystemClock) -> Self {
        let new = || Cost::new(machine);
        Self { decode: new(), face: new(), mark: new(), encode: new() }
    }

    /// The counts with what this run has cost so far.
    fn add_to(&self, mut tally: Tally) -> Tally {
        let all = [&self.decode, &self.face, &self.mark, &self.encode];
        for (cost, name) in all.into_iter().zip(["decode", "face", "mark", "encode"]) {
            tally.cost(cost.report(name));
        }
        tally
    }
}

/// Frames as they are decoded.
#[derive(Debug)]
struct Frames(Receiver<Decoded>);

impl Frames {
    /// What comes before the first.
    fn begin(&self) -> Result<(Box<ClipInfo>, Option<String>)> {
        match self.0.recv() {
            Ok(Decoded::Info(info, record)) => Ok((info, record)),
            Ok(Decoded::Failed(error)) => Err(error),
            _ => Err(stage::gone()),
        }
    }

    /// Waits until nobody decodes any more.
    fn end(self) {
        self.0.into_iter().for_each(drop);
    }
}

fn source(fd: &Arc<OwnedFd>, head: Vec<u8>) -> Result<Input> {
    let failed = |source| Error::File { what: "clip", verb: "read", source };
    let stat = rustix::fs::fstat(fd).map_err(failed)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Input::File(Arc::clone(fd)),
        _ => Input::Pipe(Arc::clone(fd), head),
    })
}

fn turn(info: &ClipInfo) -> Turn {
    Turn::from_degrees(info.rotation.degrees()).unwrap_or_default()
}

/// Frames that there will be, where that is known.
fn expected(info: &ClipInfo, ticks: Ticks) -> Option<u64> {
    let all = info.frames?;
    let lasts = info.duration.filter(|lasts| *lasts > 0)?;
    let start = ticks.start.map_or(0, i64::unsigned_abs).min(lasts);
    let end = ticks.end.map_or(lasts, i64::unsigned_abs).clamp(start, lasts);
    let part = u128::from(all) * u128::from(end - start) / u128::from(lasts);
    u64::try_from(part).ok().map(|part| part.clamp(1, all.max(1)))
}

fn report(tally: Tally, info: &ClipInfo, marks: ClipMarks) -> Box<ClipReport> {
    let size = info.rotation.upright(info.size);
    let size = (size.width, size.height);
    Box::new(tally.report(size, info.format.name(), info.timescale, marks))
}

impl<B: Backend> Desk<'_, B> {
    /// Alters each frame of a clip as asked and as the policy permits, and marks it.
    ///
    /// # Errors
    /// Of the input, the recipe, the stages, the output; `Cancelled`.
    pub fn clip(
        &mut self,
        policy: &mut Policy<B>,
        request: Clip,
        mut files: Files,
        stages: &Stages,
        changes: Changes<'_>,
    ) -> Result<Event> {
        let outbox = changes.outbox;
        let recipe = recipe::check(&request.recipe).map_err(Error::Face)?;
        let input = Arc::new(files.take()?);
        let (to, from) = match request.plan {
            Plan::Stream => (To::Stream, None),
            Plan::Segments { from } => {
                let (whole, bytes) =
                    from.as_ref().map_or((0, 0), |from| (from.segment, from.bytes));
                let (file, input) = (Arc::new(files.take()?), Arc::clone(&input));
                (To::Segments(Segments { file, whole, bytes, input }), from)
            }
        };
        let out = Arc::new(files.take()?);
        let overlay = if request.overlay { Some(self.overlay(&files.take()?)?) } else { None };
        let state = from.as_ref().map(|from| State::read(&from.state)).transpose()?;
        let written = from.as_ref().map_or(0, |from| from.frames);

        let costs = Costs::new(self.machine);
        let pool = ClipRun::<B>::WINDOW + 2 * QUEUE + HANDS;
        let (empty, frames) = self.decode(stages, pool, |empty, frames| {
            Ok(DecodeJob {
                input: source(&input, request.head)?,
                range: request.range,
                after: state.as_ref().map(|state| state.last),
                ended: state.as_ref().is_some_and(|state| state.ended),
                cost: costs.decode.clone(),
                empty,
                frames,
            })
        })?;
        let (info, before) = frames.begin()?;
        self.pulse.pixels(info.size.pixels());
        let ticks = Ticks::new(request.range, info.timescale);
        let mut marker = mark::clip::Clip::new(&recipe, info.size, turn(&info), info.colour);
        let (encode, take) = sync_channel(QUEUE);
        let (done, is_written) = sync_channel(1);
        stages.encode(EncodeJob {
            job: request.job,
            wall: request.wall,
            info: info.clone(),
            write: request.write,
            record: marker.record(before.as_deref()),
            span: ticks,
            to,
            out,
            written,
            of: expected(&info, ticks),
            cost: costs.encode.clone(),
            machine: self.machine,
            frames: take,
            empty,
            outbox: outbox.clone(),
            done,
        })?;

        let clock = JobClock::new(self.pulse, self.machine, request.wall);
        let middle = Middle {
            pulse: self.pulse,
            info: &info,
            ticks,
            costs: &costs,
            models: self.models,
            policy,
            overlay: overlay.as_ref(),
            clock: &clock,
            changes,
            marker,
        };
        let worked = middle.run(recipe, state, written, &frames.0, encode);
        if worked.is_err() {
            // Those who wait for a pipe hear of it too.
            self.pulse.cancel();
        }
        let written = is_written.recv().map_err(|_| stage::gone());
        frames.end();
        match (worked, written?) {
            (Ok((tally, marks)), Ok(written)) => {
                let report = report(costs.add_to(tally), &info, marks);
                Ok(Event::ClipDone { job: request.job, report, written })
            }
            (Err(Halt::Error(error)), _) | (_, Err(error)) => Err(error),
            (Err(Halt::Encode), Ok(_)) => Err(stage::gone()),
        }
    }

    /// Begins to decode into a pool of so many frames.
    fn decode(
        &self,
        stages: &Stages,
        pool: usize,
        job: impl FnOnce(Receiver<I420>, SyncSender<Decoded>) -> Result<DecodeJob>,
    ) -> Result<(SyncSender<I420>, Frames)> {
        let (give, empty) = sync_channel(pool);
        let (decoded, frames) = sync_channel(QUEUE);
        for _ in 0..pool {
            give.send(I420::default()).map_err(|_| stage::gone())?;
        }
        stages.decode(job(empty, decoded)?)?;
        Ok((give, Frames(frames)))
    }
}
