//! The decode stage: container and codec, the only threads that read the clip's bytes.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use mien_base::wire::Stage;
use mien_base::wire::clip::Range;
use mien_media::clip::{ClipInfo, FrameSource, Timing};
use mien_media::mp4;
use mien_pixels::i420::I420;

use super::file::{FileIn, Live, PipeIn};
use super::stage::{Cost, Job, guard};
use crate::meter::Pulse;
use crate::{Error, Result};

/// Where a clip's bytes come from.
#[derive(Debug)]
pub(super) enum Input {
    File(Arc<OwnedFd>),
    /// A pipe of which the head was read.
    Pipe(Arc<OwnedFd>, Vec<u8>),
}

/// A clip to decode.
#[derive(Debug)]
pub(super) struct DecodeJob {
    pub(super) input: Input,
    pub(super) range: Option<Range>,
    /// Only frames after the one that begins there, in ticks of the clip.
    pub(super) after: Option<i64>,
    /// Only what is known of the clip.
    pub(super) ended: bool,
    pub(super) cost: Cost,
    /// Frames to fill.
    pub(super) empty: Receiver<I420>,
    pub(super) frames: SyncSender<Decoded>,
}

/// What comes out, in this order.
pub(super) enum Decoded {
    /// What is known of the clip, and the `AIGC` record that it carries.
    Info(Box<ClipInfo>, Option<String>),
    Frame(I420, Timing),
    End,
    /// Nothing follows.
    Failed(Error),
}

impl Job for DecodeJob {
    fn run(self, pulse: &Arc<Pulse>) {
        let Self { input, range, after, ended, cost, empty, frames } = self;
        let done = guard(|| {
            let running = cost.begin(pulse, Stage::Decode);
            let record = record(&input)?;
            let mut source = open(input, pulse)?;
            let info = source.info().clone();
            let ticks = Ticks::new(range, info.timescale);
            if let Some(from) = after.map(|after| after.saturating_add(1)).max(ticks.start) {
                source.seek(from).map_err(Error::Media)?;
            }
            drop(running);
            if frames.send(Decoded::Info(Box::new(info), record)).is_err() || ended {
                return Ok(());
            }
            while let Ok(mut frame) = empty.recv() {
                pulse.boundary()?;
                let running = cost.begin(pulse, Stage::Decode);
                let next = source.next(&mut frame).map_err(Error::Media)?;
                drop(running);
                let Some(timing) = next.filter(|t| ticks.end.is_none_or(|end| t.pts < end)) else {
                    break;
                };
                if frames.send(Decoded::Frame(frame, timing)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        // Whoever does not listen any more has an error of his own.
        let _ = frames.send(done.map_or_else(Decoded::Failed, |()| Decoded::End));
    }
}

fn open(input: Input, pulse: &Arc<Pulse>) -> Result<Box<dyn FrameSource>> {
    match input {
        Input::File(fd) => {
            let file = Live { inner: FileIn::new(fd).map_err(unread)?, pulse: Arc::clone(pulse) };
            mien_media::open::open(Box::new(file)).map_err(Error::Media)
        }
        Input::Pipe(fd, head) => {
            let pipe = PipeIn::new(fd, Arc::clone(pulse));
            mien_media::open::open_pipe(head, Box::new(pipe)).map_err(Error::Media)
        }
    }
}

/// The `AIGC` record of an MP4 file.
fn record(input: &Input) -> Result<Option<String>> {
    let Input::File(fd) = input else { return Ok(None) };
    let mut file = FileIn::new(Arc::clone(fd)).map_err(unread)?;
    let mut head = [0; 12];
    if file.read_exact(&mut head).is_err() || !mp4::is_one(&head) {
        return Ok(None);
    }
    mp4::aigc(&mut file).map_err(Error::Media)
}

fn unread(source: std::io::Error) -> Error {
    Error::Media(mien_media::errors::Error::Io { done: "read", source })
}

/// A range in ticks of a clip, whose first frame is shown at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticks {
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
}

impl Ticks {
    pub(super) fn new(range: Option<Range>, timescale: u32) -> Self {
        let ticks = |micros: u64| {
            let ticks = (u128::from(micros) * u128::from(timescale)).div_ceil(1_000_000);
            i64::try_from(ticks).unwrap_or(i64::MAX)
        };
        Self {
            start: range.map(|r| ticks(r.start)).filter(|start| *start > 0),
            end: range.and_then(|r| r.end).map(ticks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_takes_the_frames_that_begin_in_it() {
        let of = |start, end| Ticks::new(Some(Range { start, end }), 30);
        assert_eq!(of(0, None), Ticks { start: None, end: None });
        // Frame 3 begins at 100,000 µs: it is in, also when the range ends one later.
        assert_eq!(of(100_000, Some(100_001)), Ticks { start: Some(3), end: Some(4) });
        assert_eq!(of(100_001, Some(133_333)), Ticks { start: Some(4), end: Some(4) });
        assert_eq!(Ticks::new(None, 30), Ticks { start: None, end: None });
    }
}
