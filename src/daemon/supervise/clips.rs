//! Clips: sent whole, kept segment by segment, gone on with after a crash of worker or root.
//!
//! ```text
//!   from the last whole segment ──▶ worker ──▶ Segment … ──▶ ClipDone ──▶ published
//!        ▲                            │ died or hung
//!        └──── not twice in one ──────┤
//!                                     └ twice in one segment: quarantined
//! ```

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use mien_base::clock::Wall;
use mien_base::id::JobId;
use mien_base::limits;
use mien_base::recipe::{Detect, Recipe};
use mien_base::report::ClipReport;
use mien_base::wire::clip::{
    Clip, ClipDetect, ClipOutput, ClipWritten, Container, FrameFaces, Plan, Range,
};
use mien_base::wire::{Event, Request};
use mien_vault::digest::{self, Hasher};

use super::Supervisor;
use super::jobs::{Ended, Seal};
use super::needs::{self, Wanted};
use crate::files::{Input, Output, Pending};
use crate::segments::{Key, Segments};
use crate::{Error, Result};

/// One clip to process.
#[derive(Debug, Clone, Copy)]
pub struct ClipJob<'a> {
    pub job: JobId,
    pub recipe: &'a Recipe,
    pub input: &'a Input,
    pub output: &'a Output,
    /// The picture of `Anonymise::Image`.
    pub overlay: Option<&'a Input>,
    pub write: ClipOutput,
    pub range: Option<Range>,
    /// The wall clock of the job: the same job twice gives the same bytes.
    pub wall: Wall,
}

/// One clip in which faces are found.
#[derive(Debug, Clone, Copy)]
pub struct ClipDetectJob<'a> {
    pub job: JobId,
    pub detect: &'a Detect,
    pub input: &'a Input,
    pub range: Option<Range>,
    pub wall: Wall,
}

/// What became of a clip.
#[derive(Debug, Clone, PartialEq)]
pub struct ClipFinished {
    pub report: ClipReport,
    pub written: ClipWritten,
    /// Workers that it took.
    pub attempts: u32,
    /// Frames that an interrupted run had left.
    pub resumed: u64,
}

/// Frames that are written, of how many where that is known.
pub type Watch<'a> = dyn FnMut(u64, Option<u64>) + 'a;

/// What a clip is sent with, made anew for each attempt.
struct Sent {
    fds: Vec<OwnedFd>,
    head: Vec<u8>,
    plan: Plan,
    /// The output, unless frames go straight to a pipe.
    pending: Option<Pending>,
}

impl Supervisor {
    /// Opens the segments of a clip, or those that an interrupted run of it left. `job` and `wall`
    /// of the given job do not count: take those of `Segments::begun` where there are some, or
    /// `pinned` ones. `None` when the output is raw frames or has no place.
    ///
    /// # Errors
    /// Of the files; `Vault` for a model that is not known; `Cancelled`.
    pub fn segments(
        &mut self,
        job: &ClipJob<'_>,
        pinned: (Option<JobId>, Option<Wall>),
    ) -> Result<Option<Segments>> {
        let Output::Path(target) = job.output else { return Ok(None) };
        if job.write.container == Container::Y4m
            || job.output.pipe()?.is_some()
            || job.input.pipe()?.is_some()
        {
            return Ok(None);
        }
        let target = std::fs::canonicalize(target).unwrap_or_else(|_| target.clone());
        let key = Key { digest: self.digest(job)?, job: pinned.0, wall: pinned.1 };
        Segments::open(&target, &key).map(Some)
    }

    /// Digest of all that decides a byte of the output but job id and clock.
    fn digest(&mut self, job: &ClipJob<'_>) -> Result<String> {
        let mut recipe = job.recipe.clone();
        recipe.mark.counter = 0;
        let wanted = needs::resolve(&needs::of_recipe(&recipe), self.models.as_ref())?;
        let models: Vec<&str> = wanted.models.iter().map(|m| m.sha256.as_str()).collect();
        let overlay = job.overlay.map(|input| self.digest_of(input)).transpose()?;
        let input = self.digest_of(job.input)?;
        let mut hasher = Hasher::default();
        let facts = (
            (env!("CARGO_PKG_VERSION"), mien_base::wire::PROTOCOL, limits::CLIP_SEGMENT),
            (&recipe, &job.write, &job.range, models),
            (input, overlay),
        );
        hasher.update(&json(&facts));
        if wanted.people {
            for source in &self.policy.sources {
                // A consent that begins or ends between two runs makes them two jobs.
                let holds: Vec<bool> = source
                    .consents
                    .iter()
                    .map(|c| {
                        let revoked = c.revoked.is_some_and(|at| at <= job.wall);
                        !revoked && c.granted <= job.wall && job.wall < c.expires
                    })
                    .collect();
                hasher.update(&json(&(&source.record, &source.consents, holds)));
                hasher.update(digest::of(&source.portrait).as_bytes());
            }
        }
        Ok(hasher.hex())
    }

    fn digest_of(&self, input: &Input) -> Result<String> {
        let fd = input.open_clip(&self.stop)?;
        let reader = Stoppable { file: File::from(fd), stop: &self.stop };
        match digest::of_reader(reader, limits::CLIP_FILE) {
            Ok((digest, _)) => Ok(digest),
            Err(_) if self.stop.load(Ordering::Relaxed) => Err(Error::Cancelled),
            Err(error) => {
                let source = error.raw_os_error().map_or(rustix::io::Errno::IO, |code| {
                    rustix::io::Errno::from_raw_os_error(code)
                });
                Err(Error::Read { name: input.name(), source })
            }
        }
    }

    fn digest_of_fd(&self, fd: BorrowedFd<'_>, output: &Output) -> Result<String> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let failed = |_| Error::Write { name: output.name(), source: rustix::io::Errno::IO };
        let file = File::open(path).map_err(failed)?;
        digest::of_reader(file, limits::CLIP_FILE).map(|(digest, _)| digest).map_err(failed)
    }

    /// Processes one clip; the output is there, whole and marked, or untouched. On an error that a
    /// later run can go on after, whole segments are kept beside the output.
    ///
    /// # Errors
    /// Of the files, of the worker, `Failed` as the worker says, `Quarantined`, `Cancelled`, of the
    /// seal.
    pub fn clip(
        &mut self,
        job: &ClipJob<'_>,
        mut segments: Option<Segments>,
        seal: Option<&dyn Seal>,
        watch: &mut Watch<'_>,
    ) -> Result<ClipFinished> {
        let resumed = segments.as_ref().and_then(Segments::end).map_or(0, |end| end.frames);
        let done = self.try_clip(job, &mut segments, watch);
        let (report, written, pending, attempts) = match done {
            Ok(done) => done,
            Err(error) => {
                if let Some(segments) = segments
                    && !can_go_on(&error)
                {
                    segments.discard();
                }
                return Err(error);
            }
        };
        let (mut written, mark) = (written, &job.recipe.mark);
        let tell = |this: &Self, bytes, digest: Option<&str>| {
            this.tell(job.job, &Ended::Clip { mark, report: &report, bytes, digest })
        };
        match (pending, seal) {
            (Some(pending), Some(seal)) if written.container == Container::Mp4 => {
                let clip = File::from(pending.into_written(written.bytes)?);
                let sealed = job.output.begin()?;
                let to = File::from(duplicate(sealed.as_fd())?);
                written.bytes = seal.seal_clip(clip, to, &report)?;
                tell(self, written.bytes, Some(&self.digest_of_fd(sealed.as_fd(), job.output)?))?;
                sealed.commit(written.bytes)?;
            }
            (Some(pending), _) => {
                tell(self, written.bytes, Some(&self.digest_of_fd(pending.as_fd(), job.output)?))?;
                pending.commit(written.bytes)?;
            }
            // Its frames are where they went.
            (None, _) => tell(self, written.bytes, None)?,
        }
        if let Some(segments) = segments {
            segments.discard();
        }
        Ok(ClipFinished { report, written, attempts, resumed })
    }

    fn try_clip(
        &mut self,
        job: &ClipJob<'_>,
        segments: &mut Option<Segments>,
        watch: &mut Watch<'_>,
    ) -> Result<(ClipReport, ClipWritten, Option<Pending>, u32)> {
        if self.quarantined.contains(&job.job) {
            return Err(Error::Quarantined { job: job.job, last: "it was before".to_owned() });
        }
        let wanted = needs::resolve(&needs::of_recipe(job.recipe), self.models.as_ref())?;
        let mut fleeting = None;
        // The segment in which a worker died last.
        let (mut died_in, mut wait, mut attempts) = (None, self.config.backoff.first, 0);
        loop {
            attempts += 1;
            let keeper = match segments {
                Some(segments) => Some(&mut *segments),
                None => {
                    if fleeting.is_none() && job.write.container == Container::Mp4 {
                        fleeting = Some(Segments::fleeting(job.output.begin()?));
                    }
                    fleeting.as_mut()
                }
            };
            let at = keeper.as_ref().and_then(|s| s.end()).map_or(0, |end| end.segment);
            let last_try = died_in == Some(at);
            let error = match self.attempt_clip(job, &wanted, keeper, last_try, watch) {
                Ok((report, written, pending)) => return Ok((report, written, pending, attempts)),
                Err(error) if error.blames_worker() => error,
                Err(error) => return Err(error),
            };
            self.lose();
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            // What a pipe gave is gone, and what went into one can't be taken back.
            let streams = job.write.container == Container::Y4m && job.output.pipe()?.is_some();
            if job.input.pipe()?.is_some() || streams {
                return Err(error);
            }
            let keeper = segments.as_ref().or(fleeting.as_ref());
            let now = keeper.and_then(Segments::end).map_or(0, |end| end.segment);
            if died_in == Some(now) {
                self.quarantine(job.job);
                return Err(Error::Quarantined { job: job.job, last: error.to_string() });
            }
            died_in = Some(now);
            self.pause(wait)?;
            wait = (wait * 2).min(self.config.backoff.most);
        }
    }

    fn attempt_clip(
        &mut self,
        job: &ClipJob<'_>,
        wanted: &Wanted,
        segments: Option<&mut Segments>,
        last_try: bool,
        watch: &mut Watch<'_>,
    ) -> Result<(ClipReport, ClipWritten, Option<Pending>)> {
        self.prepare(wanted)?;
        let Sent { fds, head, plan, pending } = self.gather(job, segments.as_deref())?;
        let request = Request::Clip(Box::new(Clip {
            job: job.job,
            recipe: job.recipe.clone(),
            write: job.write,
            range: job.range,
            wall: job.wall,
            overlay: job.overlay.is_some(),
            head,
            plan,
        }));
        self.ask(job.job, &request, fds)?;
        let hang = self.config.hang;
        if last_try {
            self.config.hang.least = hang.most;
        }
        let done = self.answer_clip(job, wanted, segments, watch);
        self.config.hang = hang;
        let (report, written) = done?;
        Ok((report, written, pending))
    }

    fn gather(&mut self, job: &ClipJob<'_>, segments: Option<&Segments>) -> Result<Sent> {
        let (input, head) = match job.input.pipe()? {
            Some((fd, head)) => (fd, head.to_vec()),
            None => (job.input.open_clip(&self.stop)?, Vec::new()),
        };
        let mut fds = vec![input];
        let plan = match segments {
            Some(segments) => {
                segments.rewind()?;
                fds.push(duplicate(segments.as_fd())?);
                Plan::Segments { from: segments.end().cloned() }
            }
            None => Plan::Stream,
        };
        let pipe = if segments.is_none() { job.output.pipe()? } else { None };
        let pending = match pipe {
            Some(pipe) => {
                fds.push(pipe);
                None
            }
            None => {
                let pending = job.output.begin()?;
                fds.push(duplicate(pending.as_fd())?);
                Some(pending)
            }
        };
        if let Some(overlay) = job.overlay {
            fds.push(overlay.open(&self.stop)?);
        }
        Ok(Sent { fds, head, plan, pending })
    }

    fn ask(&mut self, job: JobId, request: &Request, fds: Vec<OwnedFd>) -> Result<()> {
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
        if let Some(link) = self.link.as_mut() {
            link.expect(self.clock.as_ref(), job);
        }
        self.send(request, &borrowed)?;
        drop(fds);
        Ok(())
    }

    fn answer_clip(
        &mut self,
        job: &ClipJob<'_>,
        wanted: &Wanted,
        mut segments: Option<&mut Segments>,
        watch: &mut Watch<'_>,
    ) -> Result<(ClipReport, ClipWritten)> {
        loop {
            match self.next_of(job.job, wanted)? {
                Event::Progress { frame, of, .. } => watch(frame, of),
                Event::Segment { end, .. } => {
                    let segments = segments.as_deref_mut().ok_or(super::jobs::OTHER)?;
                    let kept = segments.advance(job.job, job.wall, end);
                    if let Err(error) = kept {
                        // The worker is in the middle of the next one.
                        self.link = None;
                        return Err(error);
                    }
                }
                Event::ClipDone { report, written, .. }
                    if written.container == job.write.container =>
                {
                    return Ok((*report, written));
                }
                _ => return Err(super::jobs::OTHER),
            }
        }
    }

    /// Finds faces in each frame of a clip, until `each` does not want to hear more.
    ///
    /// # Errors
    /// As `clip`; `Cancelled` when `each` does not.
    pub fn detect_clip(
        &mut self,
        job: &ClipDetectJob<'_>,
        each: &mut dyn FnMut(FrameFaces) -> bool,
    ) -> Result<ClipReport> {
        let wanted = needs::resolve(&needs::of_detect(job.detect), self.models.as_ref())?;
        self.prepare(&wanted)?;
        let (input, head) = match job.input.pipe()? {
            Some((fd, head)) => (fd, head.to_vec()),
            None => (job.input.open_clip(&self.stop)?, Vec::new()),
        };
        let request = Request::ClipDetect(Box::new(ClipDetect {
            job: job.job,
            detect: job.detect.clone(),
            range: job.range,
            wall: job.wall,
            head,
        }));
        self.ask(job.job, &request, vec![input])?;
        loop {
            // What was printed can't be taken back: there is one attempt.
            let event = self.next_of(job.job, &wanted).inspect_err(|error| {
                if error.blames_worker() {
                    self.link = None;
                }
            });
            match event? {
                Event::FrameFaces { faces, .. } => {
                    if !each(faces) {
                        self.link = None;
                        return Err(Error::Cancelled);
                    }
                }
                Event::Progress { .. } => {}
                Event::ClipDetected { report, .. } => return Ok(*report),
                _ => return Err(super::jobs::OTHER),
            }
        }
    }
}

/// A later run may do better with what is there.
fn can_go_on(error: &Error) -> bool {
    match error {
        Error::Cancelled
        | Error::Quarantined { .. }
        | Error::Crashed { .. }
        | Error::Hung { .. }
        | Error::Wire(_)
        | Error::Full { .. }
        | Error::Write { .. }
        | Error::NeverReady { .. }
        | Error::Spawn { .. } => true,
        Error::Failed(failure) => failure.kind == mien_base::error::ErrorKind::Io,
        _ => false,
    }
}

fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data without maps of odd keys")
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
        .map_err(|source| Error::Memory { what: "an output", source })
}

/// A file whose reading ends when the stop flag is set.
struct Stoppable<'a> {
    file: File,
    stop: &'a std::sync::atomic::AtomicBool,
}

impl std::io::Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("stopped"));
        }
        self.file.read(buffer)
    }
}
