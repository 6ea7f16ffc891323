//! The marks of a clip, read back from its frames: of all of a short one, of parts of a long one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use mien_base::id::JobId;
use mien_base::limits;
use mien_base::report::Verdict;
use mien_base::wire::clip::Range;
use mien_base::wire::{Event, Stage};
use mien_engine::backend::Backend;
use mien_face::mark::ClipCheck;
use mien_media::clip::{ClipInfo, Format};
use mien_media::{mp4, y4m};
use rustix::io::Errno;

use super::decode::{DecodeJob, Decoded};
use super::stage::{self, Stages};
use super::{Costs, HANDS, QUEUE, source, turn};
use crate::still::Desk;
use crate::{Error, Result};

/// Whether a file begins as a clip does.
///
/// # Errors
/// `File`.
pub fn is_clip(fd: &OwnedFd) -> Result<bool> {
    let mut head = [0; 12];
    let mut known = 0;
    while known < head.len() {
        match rustix::io::pread(fd, &mut head[known..], known as u64) {
            Ok(0) => break,
            Ok(more) => known += more,
            Err(Errno::INTR) => {}
            Err(source) => return Err(Error::File { what: "file", verb: "read", source }),
        }
    }
    Ok(mp4::is_one(&head[..known]) || head[..known].starts_with(y4m::MAGIC))
}

impl<B: Backend> Desk<'_, B> {
    /// Reads the marks of a clip.
    ///
    /// # Errors
    /// Of the input; `Cancelled`.
    pub fn verify_clip(&self, job: JobId, input: OwnedFd, stages: &Stages) -> Result<Event> {
        let input = Arc::new(input);
        let costs = Costs::new(self.machine);
        let begin = |range| -> Result<_> {
            let pool = QUEUE + HANDS;
            let (empty, frames) = self.decode(stages, pool, |empty, frames| {
                let (input, cost) = (source(&input, Vec::new())?, costs.decode.clone());
                Ok(DecodeJob { input, range, after: None, ended: false, cost, empty, frames })
            })?;
            let (info, record) = frames.begin()?;
            Ok((empty, frames, info, record))
        };
        let (mut empty, mut frames, info, record) = begin(None)?;
        self.pulse.pixels(info.size.pixels());
        let mut check = ClipCheck::new(info.size, turn(&info), info.colour.range);
        let mut parts = parts(&info).into_iter();
        loop {
            let part = parts.next();
            if let Some(range) = part {
                self.pulse.enter(Stage::Decode)?;
                drop(empty);
                frames.end();
                (empty, frames, _, _) = begin(Some(range))?;
            }
            let mut go = || loop {
                match frames.0.recv() {
                    Ok(Decoded::Frame(image, _)) => {
                        self.pulse.boundary()?;
                        self.pulse.enter(Stage::Face)?;
                        check.push(&image);
                        // Nobody decodes any more: the end or an error comes next.
                        let _ = empty.send(image);
                    }
                    Ok(Decoded::End) => return Ok(()),
                    Ok(Decoded::Failed(error)) => return Err(error),
                    Ok(Decoded::Info(..)) | Err(_) => return Err(stage::gone()),
                }
            };
            let read: Result<()> = go();
            check.end_gop();
            if read.is_err() || part.is_none() || parts.len() == 0 {
                if read.is_err() {
                    self.pulse.cancel();
                }
                drop(empty);
                frames.end();
                read?;
                let marks = verdict(check, &info, record.as_deref());
                return Ok(Event::Verified { job, marks });
            }
        }
    }
}

/// The parts of a long clip that are looked at, a GOP each; none where all is.
fn parts(info: &ClipInfo) -> Vec<Range> {
    let (Some(frames), Some(lasts)) = (info.frames, info.duration) else { return Vec::new() };
    if frames <= limits::CLIP_CHECKED * limits::CLIP_GOP {
        return Vec::new();
    }
    let micros = |ticks: u128| {
        let micros = ticks * 1_000_000 / u128::from(info.timescale.max(1));
        u64::try_from(micros).unwrap_or(u64::MAX)
    };
    let (lasts, count) = (u128::from(lasts), u128::from(limits::CLIP_CHECKED));
    let gop = micros(lasts * u128::from(limits::CLIP_GOP) / u128::from(frames));
    (0..count)
        .map(|i| {
            let start = micros(lasts * i / count);
            Range { start, end: Some(start.saturating_add(gop)) }
        })
        .collect()
}

fn verdict(check: ClipCheck, info: &ClipInfo, record: Option<&str>) -> Verdict {
    match info.format {
        Format::Y4m => check.finish(None),
        Format::Mp4 => check.finish(Some(record)),
    }
}
