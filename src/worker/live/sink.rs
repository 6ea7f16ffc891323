//! The sink thread: marked frames to the outputs. It takes nothing else.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use mien_face::mark::Altered;
use mien_face::mark::clip::MarkedFrame;
use mien_pixels::i420::I420;

use super::board::{Board, one};
use crate::Result;
use crate::camera::{now, v4l2};
use crate::clip::stage::{Job, guard};
use crate::meter::Pulse;

/// A marked frame on its way out.
#[derive(Debug)]
pub struct Left {
    pub frame: MarkedFrame,
    /// From the pipeline's first frame.
    pub at: Duration,
    /// Here the marks were made anew: a recording may begin.
    pub idr: bool,
    pub altered: Altered,
    /// The number that the camera gave it.
    pub sequence: u64,
    /// When it was fetched from the camera.
    pub fetched: Duration,
}

/// What the root program hands to an output.
#[derive(Debug)]
pub enum Hand {
    File { output: u8, fd: OwnedFd },
    Taken { output: u8, slot: u8 },
}

/// Takes marked frames.
pub trait Deliver: Send {
    /// Takes a frame; what it can't take is dropped, and why.
    ///
    /// # Errors
    /// Why the frame was dropped here.
    fn take(&mut self, left: &Left) -> std::result::Result<(), &'static str>;

    /// Takes what the root program hands to it.
    fn hand(&mut self, _: Hand) {}

    /// No more frames come.
    fn end(&mut self) {}
}

/// A pipeline's outputs.
pub(super) struct SinkJob {
    pub(super) frames: Receiver<Left>,
    pub(super) hands: Receiver<Hand>,
    /// By their index in the request.
    pub(super) outputs: Vec<Box<dyn Deliver>>,
    pub(super) back: SyncSender<I420>,
    pub(super) board: Arc<Board>,
    pub(super) done: SyncSender<Result<()>>,
}

impl Job for SinkJob {
    fn run(self, _: &Arc<Pulse>) {
        let done = self.done.clone();
        let ended = guard(|| {
            self.deliver();
            Ok(())
        });
        // Whoever does not listen has an error of his own.
        let _ = done.send(ended);
    }
}

impl SinkJob {
    fn deliver(self) {
        let Self { frames, hands, mut outputs, back, board, .. } = self;
        let mut last: Option<Duration> = None;
        while let Ok(left) = frames.recv() {
            while let Ok(hand) = hands.try_recv() {
                let (Hand::File { output, .. } | Hand::Taken { output, .. }) = &hand;
                if let Some(to) = outputs.get_mut(usize::from(*output)) {
                    to.hand(hand);
                }
            }
            let start = now();
            for output in &mut outputs {
                if let Err(why) = output.take(&left) {
                    board.drop_for(why);
                }
            }
            let end = now();
            board.deliver.add(end.saturating_sub(start));
            let total = end.saturating_sub(left.fetched);
            if let Some(last) = last.replace(total) {
                board.jitter.add(total.abs_diff(last));
            }
            board.total.add(total);
            one(&board.left);
            // The pool has room for all frames that there are.
            let _ = back.try_send(left.frame.into_image());
        }
        outputs.iter_mut().for_each(|output| output.end());
        board.faces.store(0, Ordering::Relaxed);
    }
}

/// Frames to a V4L2 output device.
#[derive(Debug)]
pub(super) struct Loopback(pub(super) v4l2::Sink);

impl Deliver for Loopback {
    fn take(&mut self, left: &Left) -> std::result::Result<(), &'static str> {
        match self.0.write(left.frame.image()) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the V4L2 output was full"),
            Err(_) => Err("the V4L2 output failed"),
        }
    }
}
