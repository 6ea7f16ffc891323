//! A camera that is only watched: what it really delivers, without a model and without an output.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use mien_base::clock::SystemClock;
use mien_base::wire::Event;
use mien_base::wire::live::Watch;
use mien_engine::backend::Backend;
use mien_pixels::i420::I420;

use super::board::{Board, one};
use super::capture::{CaptureJob, Source};
use super::queue::{Newest, Popped};
use super::{Closes, Threads};
use crate::camera::{Fault, now};
use crate::clip::stage::{Order, gone};
use crate::link::Outbox;
use crate::still::{Desk, Files};
use crate::{Error, Result};

/// Frames in the hands of the camera and of the watcher.
const POOL: usize = mien_base::limits::LIVE_QUEUE + 2;
const WAIT: Duration = Duration::from_millis(50);
/// How often figures are told.
const TOLD: Duration = Duration::from_secs(1);

impl<B: Backend> Desk<'_, B> {
    /// Watches a camera until it is cancelled; never returns before.
    ///
    /// # Errors
    /// `Camera` when it is gone or can't be used; `Cancelled` before it delivers.
    pub fn watch(
        &mut self,
        watch: Watch,
        mut files: Files,
        threads: &Threads,
        outbox: &Outbox,
    ) -> Result<Event> {
        let Watch { job, camera } = watch;
        let fd = if camera.descriptors() > 0 { Some(files.take()?) } else { None };
        let board = Arc::new(Board::default());
        let queue = Arc::new(Newest::default());
        let (back, empty) = sync_channel(POOL);
        for _ in 0..POOL {
            back.send(I420::default()).map_err(|_| gone())?;
        }
        let (begun, has_begun) = sync_channel(1);
        let machine: SystemClock = self.machine;
        let capture = CaptureJob {
            source: Source::Passed { camera, fd },
            nodes: Vec::new(),
            machine,
            queue: Arc::clone(&queue),
            empty,
            back: back.clone(),
            board: Arc::clone(&board),
            begun,
        };
        threads.capture.send(Order::Work(Box::new(capture))).map_err(|_| gone())?;
        let _closes = Closes(&queue);
        let (delivers, _) = has_begun.recv().map_err(|_| gone())??;
        outbox.send(Event::LiveBegan { job, delivers });
        let mut told = now();
        loop {
            match self.pulse.boundary() {
                Ok(()) => {}
                Err(Error::Cancelled) => {
                    return Ok(Event::LiveEnded { job, stats: Box::new(board.stats()) });
                }
                Err(error) => return Err(error),
            }
            if now().saturating_sub(told) >= TOLD {
                told = now();
                outbox.send(Event::LiveStats { job, stats: Box::new(board.stats()) });
            }
            match queue.pop(WAIT) {
                Popped::Frame(taken) => {
                    board.queued(now().saturating_sub(taken.shot.fetched));
                    one(&board.left);
                    // The pool has room for all frames that there are.
                    let _ = back.try_send(taken.image);
                }
                Popped::Nothing => {}
                Popped::Over(fault) => {
                    let gone = fault == Fault::Gone;
                    return Err(Error::Camera { detail: fault.to_string(), gone });
                }
            }
        }
    }
}
