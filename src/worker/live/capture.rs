//! The capture thread: opens the camera, keeps it going, and hands out its newest frames.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use mien_base::clock::SystemClock;
use mien_base::wire::live::{Camera, Delivers};
use mien_pixels::i420::I420;

use super::board::{Board, one};
use super::queue::{Newest, Taken};
use crate::camera::v4l2::{Capture, Node, Sink};
use crate::camera::{Fault, FrameSource, clip, now, pattern};
use crate::clip::stage::{Job, guard};
use crate::meter::Pulse;
use crate::{Error, Result};

/// How long is waited before somebody is asked whether it goes on.
const LOOK: Duration = Duration::from_millis(100);
/// Waits before a camera that broke is opened anew, one after the other.
const BACKOFF: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(1000),
];
/// Times that a camera may be opened anew in `WITHIN`; then whoever passed it here does better.
const REOPENED: usize = 5;
const WITHIN: Duration = Duration::from_secs(10);
/// How long a clip or a pattern may be silent.
const SILENT: Duration = Duration::from_secs(5);

/// Where frames come from, with what the root program passed along.
pub enum Source {
    Passed {
        camera: Camera,
        fd: Option<OwnedFd>,
    },
    /// One of another kind, for tests and benches.
    Given(Box<dyn FrameSource>),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// What is known once the camera streams.
pub(super) type Begun = Result<(Delivers, Vec<Sink>)>;

/// One camera to capture from.
pub(super) struct CaptureJob {
    pub(super) source: Source,
    /// V4L2 output devices, which only this thread may call.
    pub(super) nodes: Vec<OwnedFd>,
    pub(super) machine: SystemClock,
    pub(super) queue: Arc<Newest>,
    pub(super) empty: Receiver<I420>,
    pub(super) back: SyncSender<I420>,
    pub(super) board: Arc<Board>,
    pub(super) begun: SyncSender<Begun>,
}

fn unusable(fault: &Fault) -> Error {
    Error::Camera { detail: fault.to_string(), gone: *fault == Fault::Gone }
}

fn open(source: Source, machine: SystemClock) -> Result<(Box<dyn FrameSource>, Duration)> {
    let (camera, fd) = match source {
        Source::Given(source) => return Ok((source, SILENT)),
        Source::Passed { camera, fd } => (camera, fd),
    };
    let node = || fd.ok_or(Error::Protocol { what: "a camera without its descriptor" });
    let (opened, silent): (std::result::Result<Box<dyn FrameSource>, Fault>, _) = match camera {
        Camera::V4l2 { mode, controls, timeout_ms } => {
            let opened = Node::new(node()?)
                .map_err(Fault::from)
                .and_then(|node| Capture::open(node, mode, controls));
            let silent = Duration::from_millis(timeout_ms.max(100).into());
            (opened.map(|c| Box::new(c) as Box<dyn FrameSource>), silent)
        }
        Camera::Clip { millihertz } => {
            let opened = clip::File::open(node()?, millihertz, machine);
            (opened.map(|c| Box::new(c) as Box<dyn FrameSource>), SILENT)
        }
        Camera::Pattern { size, millihertz } => {
            let opened = pattern::Pattern::new(size, millihertz, machine);
            (opened.map(|c| Box::new(c) as Box<dyn FrameSource>), SILENT)
        }
    };
    opened.map(|opened| (opened, silent)).map_err(|fault| unusable(&fault))
}

impl Job for CaptureJob {
    fn run(self, _: &Arc<Pulse>) {
        let queue = Arc::clone(&self.queue);
        let begun = self.begun.clone();
        let done = guard(|| self.capture());
        let fault = match done {
            Ok(fault) => fault,
            Err(error) => {
                let detail = error.to_string();
                // Who waits for the camera hears why; who has heard of it sees the queue end.
                let _ = begun.try_send(Err(error));
                Fault::Unusable { detail }
            }
        };
        queue.end(fault);
    }
}

impl CaptureJob {
    /// Captures until the camera is of no more use, or nobody takes its frames.
    fn capture(self) -> Result<Fault> {
        let Self { source, nodes, machine, queue, empty, back, board, begun } = self;
        let (mut camera, most) = open(source, machine)?;
        let size = camera.delivers().size;
        let sinks: std::result::Result<Vec<Sink>, Fault> =
            nodes.into_iter().map(|node| Sink::open(node, size)).collect();
        let sinks = sinks.map_err(|fault| Error::Camera {
            detail: format!("the V4L2 output: {fault}"),
            gone: false,
        })?;
        begun
            .send(Ok((camera.delivers().clone(), sinks)))
            .map_err(|_| crate::clip::stage::gone())?;
        drop(begun);
        let mut silent = Duration::ZERO;
        let (mut last, mut before) = (None, None);
        let mut reopened: Vec<Duration> = Vec::with_capacity(REOPENED + 1);
        let mut spare: Option<I420> = None;
        while !queue.is_closed() {
            let mut image = match spare.take().map_or_else(|| empty.recv_timeout(LOOK), Ok) {
                Ok(image) => image,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let fault = match camera.next(&mut image, LOOK.min(most)) {
                Ok(shot) => {
                    silent = Duration::ZERO;
                    one(&board.captured);
                    board.convert.add(now().saturating_sub(shot.fetched));
                    let at = shot.at.unwrap_or(shot.fetched);
                    board.driver.add(shot.fetched.saturating_sub(at));
                    if let Some(before) = before.replace(at) {
                        board.interval.add(at.saturating_sub(before));
                    }
                    if let Some(lost) = last.and_then(|n: u64| shot.sequence.checked_sub(n + 1))
                        && lost > 0
                    {
                        board.drop_many("lost by the camera", lost);
                    }
                    last = Some(shot.sequence);
                    if let Some(oldest) = queue.push(Taken { image, shot }) {
                        board.drop_for("the queue was full");
                        // The pool has room for all frames that there are.
                        let _ = back.try_send(oldest.image);
                    }
                    continue;
                }
                Err(fault) => fault,
            };
            spare = Some(image);
            if fault.passes() {
                silent = Duration::ZERO;
                board.drop_for(fault.name());
                continue;
            }
            if let Fault::Silent { .. } = fault {
                silent += LOOK.min(most);
                if silent < most {
                    continue;
                }
            }
            silent = Duration::ZERO;
            if fault == Fault::Gone {
                return Ok(fault);
            }
            board.reason(fault.name());
            reopened.retain(|at| now().saturating_sub(*at) < WITHIN);
            reopened.push(now());
            if reopened.len() > REOPENED || !again(camera.as_mut(), &queue) {
                return Ok(fault);
            }
            if camera.delivers().size != size {
                let detail = "its frames have another size since it was opened anew".to_owned();
                return Ok(Fault::Unusable { detail });
            }
        }
        Ok(Fault::Gone)
    }
}

/// Opens a camera anew, with patience; false when it can't be.
fn again(camera: &mut dyn FrameSource, queue: &Newest) -> bool {
    for wait in BACKOFF {
        std::thread::sleep(wait);
        if queue.is_closed() {
            return false;
        }
        match camera.reopen() {
            Ok(()) => return true,
            Err(Fault::Gone) => return false,
            Err(_) => {}
        }
    }
    false
}
