//! One live pipeline: a camera's newest frames, looked at, altered, marked, delivered.
//!
//! ```text
//!   capture ══ newest two ══▶ chain (compute) ══ marked frames ══▶ sink ─▶ recordings,
//!      ▲                      │    ▲                                │      V4L2, JPEG
//!      │               pictures    faces, verdicts                  │
//!      │                      ▼    │                                │
//!      │                       look                                 │
//!      └═════════════════════ empty frames ◀════════════════════════┘
//! ```
//! All queues are bounded; a full one drops the oldest frame, or the newest, and counts it. A frame
//! leaves only through the chain: looked at, or held, or covered whole, or not at all.

mod board;
mod ladder;
mod queue;
mod capture;
mod look;
mod sink;
mod recording;
mod wishes;
mod chain;
mod watch;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use mien_base::limits;
use mien_base::wire::live::{Camera, Delivers, Live, Output};
use mien_base::wire::{Attempt, Event};
use mien_engine::backend::Backend;
use mien_face::clip::{LiveRun, Tools};
use mien_face::mark;
use mien_face::policy::Policy;
use mien_face::recipe;
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;
use mien_pixels::stamp::Turn;

pub use board::{Board, Steps};
pub use capture::Source;
pub use ladder::{Ladder, Rung};
pub use queue::{Newest, Popped, Taken};
pub use sink::{Deliver, Hand, Left};
pub use wishes::Wishes;

use crate::camera::v4l2;
use crate::clip::stage::{Order, gone, start};
use crate::meter::{JobClock, Pulse};
use crate::still::{Desk, Files};
use crate::{Error, Result, seccomp};
use capture::CaptureJob;
use chain::Chain;
use look::Look;
use recording::{Pictures, Recording, Shape, Voice};
use sink::{Loopback, SinkJob};

/// Frames that wait for the sink.
const SINK: usize = 2;
/// Frames in the hands of camera, chain and sink, and some to spare.
const HANDS: usize = 5;
/// What the root program may hand to outputs before they take it.
const HANDED: usize = 64;
/// How long the sink may take for what it has when a pipeline ends.
const END: Duration = Duration::from_secs(5);
/// The marks are made anew as often, in seconds.
const GOP_SECONDS: u64 = 2;

/// The threads of pipelines beside compute: each is held by a list of its own from the start.
pub struct Threads {
    capture: SyncSender<Order<CaptureJob>>,
    sink: SyncSender<Order<SinkJob>>,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Threads")
    }
}

impl Threads {
    /// Starts them; true when their lists hold.
    ///
    /// # Errors
    /// `Thread`, `Rules`.
    pub fn start(pulse: &Arc<Pulse>) -> Result<(Self, bool)> {
        let (capture, first) = start("capture", seccomp::CAPTURE, pulse)?;
        let (sink, second) = start("sink", seccomp::ENCODE, pulse)?;
        Ok((Self { capture, sink }, first && second))
    }

    /// Each thread tries what it must not be able to do.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        let (give, take) = sync_channel(2);
        // A thread that is gone answers nothing, which whoever asked counts.
        let _ = self.capture.send(Order::Try(give.clone()));
        let _ = self.sink.send(Order::Try(give));
        take.into_iter().flatten().collect()
    }
}

/// What the root program passed along with a pipeline.
struct Passed {
    source: Source,
    /// Of each output, in order.
    outputs: Vec<Vec<OwnedFd>>,
    overlay: Option<OwnedFd>,
}

fn unpack(live: &Live, mut files: Files) -> Result<Passed> {
    if live.outputs.len() > limits::LIVE_OUTPUTS {
        return Err(Error::Protocol { what: "a pipeline with too many outputs" });
    }
    let is_made = matches!(live.camera, Camera::Pattern { .. });
    let fd = if is_made { None } else { Some(files.take()?) };
    let source = Source::Passed { camera: live.camera.clone(), fd };
    let mut outputs = Vec::new();
    for output in &live.outputs {
        let fds: Result<Vec<OwnedFd>> = (0..output.descriptors()).map(|_| files.take()).collect();
        outputs.push(fds?);
    }
    let overlay = if live.overlay { Some(files.take()?) } else { None };
    Ok(Passed { source, outputs, overlay })
}

impl<B: Backend> Desk<'_, B> {
    /// Runs a pipeline until it is cancelled; never returns before.
    ///
    /// # Errors
    /// `Camera` when it is gone or can't be used, `Blind` when nobody looks any more; of the
    /// recipe, of the stages.
    pub fn live(
        &mut self,
        policy: &mut Policy<B>,
        live: &Live,
        files: Files,
        threads: &Threads,
        wishes: Wishes<'_>,
    ) -> Result<Event> {
        let Passed { source, outputs, overlay } = unpack(live, files)?;
        let overlay = overlay.map(|fd| self.overlay(&fd)).transpose()?;
        self.stream(policy, live, source, outputs, overlay.as_ref(), Vec::new(), threads, wishes)
    }

    /// As `live`, with a source of frames and outputs that are there already.
    ///
    /// # Errors
    /// As `live`.
    pub fn live_from(
        &mut self,
        policy: &mut Policy<B>,
        live: &Live,
        source: Source,
        given: Vec<Box<dyn Deliver>>,
        threads: &Threads,
        wishes: Wishes<'_>,
    ) -> Result<Event> {
        self.stream(policy, live, source, Vec::new(), None, given, threads, wishes)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a pipeline, each once")]
    fn stream(
        &mut self,
        policy: &mut Policy<B>,
        live: &Live,
        source: Source,
        mut outputs: Vec<Vec<OwnedFd>>,
        overlay: Option<&mien_face::anonymise::Overlay<B>>,
        given: Vec<Box<dyn Deliver>>,
        threads: &Threads,
        wishes: Wishes<'_>,
    ) -> Result<Event> {
        let recipe = recipe::check(&live.recipe).map_err(Error::Face)?;
        let board = Arc::new(Board::default());
        let queue = Arc::new(Newest::default());
        let pool = limits::LIVE_QUEUE + SINK + HANDS;
        let (back, empty) = sync_channel(pool);
        for _ in 0..pool {
            back.send(I420::default()).map_err(|_| gone())?;
        }
        let nodes = take_nodes(live, &mut outputs);
        let (begun, has_begun) = sync_channel(1);
        let capture = CaptureJob {
            source,
            nodes,
            machine: self.machine,
            queue: Arc::clone(&queue),
            empty,
            back: back.clone(),
            board: Arc::clone(&board),
            begun,
        };
        threads.capture.send(Order::Work(Box::new(capture))).map_err(|_| gone())?;
        let _closes = Closes(&queue);
        let (delivers, loopbacks) = has_begun.recv().map_err(|_| gone())??;
        let size = Size::new(delivers.size.0, delivers.size.1);
        self.pulse.pixels(size.pixels());
        let outbox = wishes.outbox.clone();
        outbox.send(Event::LiveBegan { job: live.job, delivers: delivers.clone() });

        // The first frame says what its values mean.
        let first = self.first_taken(&queue)?;
        let colour = first.image.colour();
        let mut marker = mark::clip::Clip::new(&recipe, size, Turn::default(), colour);
        let record = marker.record(None);
        let gop = gop(&delivers);
        let parts = Parts { live, size, delivers: &delivers, gop, record, outbox: &outbox };
        let mut sinks = parts.outputs(outputs, loopbacks)?;
        sinks.extend(given);
        let clock = JobClock::new(self.pulse, self.machine, live.wall);
        let (run, looker) = {
            let mut tools = Tools { models: self.models, policy, overlay, clock: &clock };
            LiveRun::new(&mut tools, recipe, size).map_err(Error::Face)?
        };
        let look = Look::start(looker, self.machine, outbox.clone())?;
        let (sink, frames) = sync_channel(SINK);
        let (hands, handed) = sync_channel(HANDED);
        let (done, is_done) = sync_channel(1);
        let job = SinkJob {
            frames,
            hands: handed,
            outputs: sinks,
            back: back.clone(),
            board: Arc::clone(&board),
            done,
        };
        threads.sink.send(Order::Work(Box::new(job))).map_err(|_| gone())?;
        let chain = Chain {
            live,
            pulse: self.pulse,
            board: &board,
            queue: &queue,
            models: &mut *self.models,
            policy,
            overlay,
            clock: &clock,
            wishes,
            run,
            look: &look,
            marker,
            sink,
            hands,
            back,
            gop,
        };
        let why = chain.run(first);
        // What has left the chain is delivered, and recordings are made whole.
        let delivered = is_done.recv_timeout(END);
        match look.end() {
            Some(looker) => LiveRun::end(self.models, looker),
            // Its models are lost with it: this worker is of no more use.
            None if matches!(why, Error::Cancelled) => {
                return Err(Error::Blind { seconds: END.as_secs() });
            }
            None => return Err(why),
        }
        match why {
            Error::Cancelled => {
                delivered.map_err(|_| gone())??;
                Ok(Event::LiveEnded { job: live.job, stats: Box::new(board.stats()) })
            }
            error => Err(error),
        }
    }

    /// Waits for the first frame.
    fn first_taken(&self, queue: &Newest) -> Result<Taken> {
        loop {
            self.pulse.boundary()?;
            match queue.pop(Duration::from_millis(50)) {
                Popped::Frame(taken) => return Ok(taken),
                Popped::Nothing => {}
                Popped::Over(fault) => {
                    let gone = fault == crate::camera::Fault::Gone;
                    return Err(Error::Camera { detail: fault.to_string(), gone });
                }
            }
        }
    }
}

/// Tells the capture thread to end, however the pipeline does.
struct Closes<'a>(&'a Newest);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Frames from one at which the marks are made anew to the next.
fn gop(delivers: &Delivers) -> u64 {
    (GOP_SECONDS * u64::from(delivers.millihertz) / 1000).clamp(10, limits::CLIP_GOP)
}

/// The V4L2 output devices among the outputs.
fn take_nodes(live: &Live, outputs: &mut [Vec<OwnedFd>]) -> Vec<OwnedFd> {
    let is_node = |(of, _): &(&Output, _)| matches!(of, Output::V4l2);
    live.outputs.iter().zip(outputs).filter(is_node).flat_map(|(_, fds)| fds.drain(..)).collect()
}

/// What outputs are made of.
struct Parts<'a> {
    live: &'a Live,
    size: Size,
    delivers: &'a Delivers,
    gop: u64,
    record: Option<String>,
    outbox: &'a crate::link::Outbox,
}

impl Parts<'_> {
    fn outputs(
        &self,
        passed: Vec<Vec<OwnedFd>>,
        loopbacks: Vec<v4l2::Sink>,
    ) -> Result<Vec<Box<dyn Deliver>>> {
        let missing = || Error::Protocol { what: "a descriptor is missing" };
        let mut loopbacks: VecDeque<v4l2::Sink> = loopbacks.into();
        let mut all: Vec<Box<dyn Deliver>> = Vec::new();
        for (index, (output, fds)) in self.live.outputs.iter().zip(passed).enumerate() {
            let voice =
                Voice { outbox: self.outbox.clone(), job: self.live.job, output: index as u8 };
            all.push(match *output {
                Output::V4l2 => Box::new(Loopback(loopbacks.pop_front().ok_or_else(missing)?)),
                Output::Segments { millis, bytes, quality } => {
                    let files = <[OwnedFd; 2]>::try_from(fds).map_err(|_| missing())?;
                    mien_media::h264::encode::check_size(self.size).map_err(Error::Media)?;
                    let millihertz = self.delivers.millihertz;
                    let gop = self.gop as u32;
                    let size = self.size;
                    let shape = Shape { size, millihertz, millis, bytes, quality, gop };
                    Box::new(Recording::new(voice, shape, self.record.clone(), files))
                }
                Output::Jpeg { slot, quality, every_ms } => {
                    let memory = fds.into_iter().next().ok_or_else(missing)?;
                    let how = (slot, quality, every_ms);
                    let (wall, record) = (self.live.wall, self.record.clone());
                    Box::new(Pictures::new(voice, memory, how, wall, record))
                }
            });
        }
        Ok(all)
    }
}
