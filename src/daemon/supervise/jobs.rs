//! The jobs: what each sends, and what its answer becomes.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;

use mien_base::clock::Wall;
use mien_base::consent::SourceRecord;
use mien_base::id::{IdentityId, JobId};
use mien_base::limits;
use mien_base::model::{Distance, Manifest, Role, Survey};
use mien_base::recipe::{Detect, Mark, Recipe};
use mien_base::report::{ClipReport, PictureReport};
use mien_base::wire::{self, Event, Landmarks, Marks, Process, Request, Written};

use super::Supervisor;
use super::attempt::Sent;
use super::needs::{self, Need};
use crate::files::{Input, Output, Pending};
use crate::{Error, Result};

/// One picture to process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessJob<'a> {
    pub job: JobId,
    pub recipe: &'a Recipe,
    pub input: &'a Input,
    pub output: &'a Output,
    /// The picture of `Anonymise::Image`.
    pub overlay: Option<&'a Input>,
    pub write: wire::Output,
    /// The wall clock of the job: the same job twice gives the same bytes.
    pub wall: Wall,
}

/// One picture in which faces are found.
#[derive(Debug, Clone, Copy)]
pub struct DetectJob<'a> {
    pub job: JobId,
    pub detect: &'a Detect,
    pub input: &'a Input,
    /// Where the picture with the boxes goes.
    pub draw: Option<(&'a Output, wire::Output, &'a Mark)>,
    pub wall: Wall,
}

/// One picture whose face becomes a source.
#[derive(Debug, Clone, Copy)]
pub struct EnrolJob<'a> {
    pub job: JobId,
    pub identity: &'a IdentityId,
    pub detect: &'a Detect,
    pub input: &'a Input,
    pub wall: Wall,
}

/// Two models that are compared.
#[derive(Debug, Clone, Copy)]
pub struct MeasureJob<'a> {
    pub job: JobId,
    pub reference: &'a Manifest,
    pub candidate: &'a Manifest,
    pub models: (&'a OwnedFd, &'a OwnedFd),
    /// Pictures with faces.
    pub inputs: &'a [Input],
    /// How faces are found for what is not a detector itself.
    pub detect: &'a Detect,
}

/// Several finished pictures on one sheet.
#[derive(Debug, Clone, Copy)]
pub struct SheetJob<'a> {
    pub job: JobId,
    pub inputs: &'a [Input],
    pub columns: u8,
    /// Width and height of a cell in pixels.
    pub cell: (u16, u16),
    pub output: &'a Output,
    pub write: wire::Output,
    pub mark: &'a Mark,
    pub wall: Wall,
}

/// Signs a finished file in the root program, where the key is.
pub trait Seal: std::fmt::Debug + Send {
    /// The file as it is to appear.
    ///
    /// # Errors
    /// When it can't be signed; then it does not appear.
    fn seal(&self, file: &[u8], format: wire::Format, report: &PictureReport) -> Result<Vec<u8>>;

    /// Writes a clip (MP4) as it is to appear, and says how many bytes it has.
    ///
    /// # Errors
    /// As `seal`.
    fn seal_clip(&self, clip: File, sealed: File, report: &ClipReport) -> Result<u64>;
}

/// What is about to appear.
#[derive(Debug)]
pub enum Ended<'a> {
    /// A picture that was processed.
    Picture { mark: &'a Mark, report: &'a PictureReport, written: &'a Written },
    /// A picture with boxes drawn, its faces as they were.
    Drawn { mark: &'a Mark, report: &'a PictureReport, written: &'a Written },
    /// A clip; its SHA-256 in hex, where it does not go through a pipe.
    Clip { mark: &'a Mark, report: &'a ClipReport, bytes: u64, digest: Option<&'a str> },
    /// Several pictures on one sheet.
    Sheet { mark: &'a Mark, written: &'a Written },
}

/// Is told of each output before it appears.
pub trait Witness: std::fmt::Debug + Send + Sync {
    /// Keeps what a job did.
    ///
    /// # Errors
    /// When that can't be kept; then the output does not appear.
    fn ends(&self, job: JobId, ended: &Ended<'_>) -> Result<()>;

    /// Keeps from which frame of a running clip on a source's changed consent holds.
    ///
    /// # Errors
    /// When that can't be kept; then the clip ends.
    fn consent_holds(&self, identity: &IdentityId, job: JobId, frame: u64) -> Result<()>;
}

/// What became of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    pub report: PictureReport,
    /// `None` when nothing was to be written.
    pub written: Option<Written>,
    /// 2 when the first worker died of it.
    pub attempts: u32,
}

/// The answer is of another kind than the request.
pub(super) const OTHER: Error = Error::Protocol { what: "an answer of another kind" };

impl Supervisor {
    /// Tells the witness, when there is one.
    pub(super) fn tell(&self, job: JobId, ended: &Ended<'_>) -> Result<()> {
        self.witness.as_ref().map_or(Ok(()), |witness| witness.ends(job, ended))
    }

    /// Processes one picture; the output is there, whole and marked, or untouched.
    ///
    /// # Errors
    /// Of the files, of the worker, `Failed` as the worker says, `Quarantined`, `Cancelled`.
    pub fn process(&mut self, job: &ProcessJob<'_>) -> Result<Finished> {
        self.process_sealed(job, None)
    }

    /// As `process`, and what the worker wrote is sealed before it appears.
    ///
    /// # Errors
    /// As `process`, and of the seal.
    pub fn process_sealed(
        &mut self,
        job: &ProcessJob<'_>,
        seal: Option<&dyn Seal>,
    ) -> Result<Finished> {
        let needs = needs::of_recipe(job.recipe);
        let make = |stop: &AtomicBool| {
            let pending = job.output.begin()?;
            let mut fds = vec![job.input.open(stop)?, duplicate(&pending)?];
            if let Some(overlay) = job.overlay {
                fds.push(overlay.open(stop)?);
            }
            let request = Request::Process(Box::new(Process {
                job: job.job,
                recipe: job.recipe.clone(),
                output: job.write,
                wall: job.wall,
                overlay: job.overlay.is_some(),
            }));
            Ok(Sent { request, fds, keep: pending })
        };
        match self.run(job.job, &needs, make)? {
            (Event::Done { report, written, .. }, pending, attempts) => {
                let mark = &job.recipe.mark;
                let ended = Ended::Picture { mark, report: &report, written: &written };
                self.tell(job.job, &ended)?;
                match seal {
                    Some(seal) => {
                        let file = pending.into_bytes(written.bytes)?;
                        let sealed = seal.seal(&file, written.format, &report)?;
                        job.output.begin()?.commit_bytes(&sealed)?;
                    }
                    None => pending.commit(written.bytes)?,
                }
                Ok(Finished { report, written: Some(written), attempts })
            }
            _ => Err(OTHER),
        }
    }

    /// Finds faces, and draws them when asked to.
    ///
    /// # Errors
    /// As `process`.
    pub fn detect(&mut self, job: &DetectJob<'_>) -> Result<Finished> {
        let needs = needs::of_detect(job.detect);
        let make = |stop: &AtomicBool| {
            let mut fds = vec![job.input.open(stop)?];
            let pending = job.draw.map(|(output, ..)| output.begin()).transpose()?;
            if let Some(pending) = &pending {
                fds.push(duplicate(pending)?);
            }
            let request = Request::Detect {
                job: job.job,
                detect: job.detect.clone(),
                draw: job.draw.map(|(_, write, mark)| (write, mark.clone())),
                wall: job.wall,
            };
            Ok(Sent { request, fds, keep: pending })
        };
        match self.run(job.job, &needs, make)? {
            (Event::Detected { report, written, .. }, pending, attempts) => {
                match (pending, written) {
                    (Some(pending), Some(written)) => {
                        if let Some((.., mark)) = job.draw {
                            let ended = Ended::Drawn { mark, report: &report, written: &written };
                            self.tell(job.job, &ended)?;
                        }
                        pending.commit(written.bytes)?;
                    }
                    (None, None) => {}
                    _ => return Err(OTHER),
                }
                Ok(Finished { report, written, attempts })
            }
            _ => Err(OTHER),
        }
    }

    /// Reads the marks of a picture.
    ///
    /// # Errors
    /// As `process`.
    pub fn verify(&mut self, job: JobId, input: &Input) -> Result<Marks> {
        let make = |stop: &AtomicBool| {
            Ok(Sent { request: Request::Verify { job }, fds: vec![input.open(stop)?], keep: () })
        };
        match self.run(job, &[], make)? {
            (Event::Verified { marks, .. }, ..) => Ok(marks),
            _ => Err(OTHER),
        }
    }

    /// Takes a source's face from a picture: its record and its portrait as PNG.
    ///
    /// # Errors
    /// As `process`.
    pub fn enrol(&mut self, job: &EnrolJob<'_>) -> Result<(SourceRecord, Vec<u8>)> {
        let needs = needs::of_enrol(job.detect);
        let make = |stop: &AtomicBool| {
            let pending = Pending::in_memory("the portrait")?;
            let fds = vec![job.input.open(stop)?, duplicate(&pending)?];
            let request = Request::Enrol {
                job: job.job,
                identity: job.identity.clone(),
                detect: job.detect.clone(),
                wall: job.wall,
            };
            Ok(Sent { request, fds, keep: pending })
        };
        match self.run(job.job, &needs, make)? {
            (Event::Enrolled { record, written, .. }, pending, _) => {
                Ok((*record, pending.into_bytes(written.bytes)?))
            }
            _ => Err(OTHER),
        }
    }

    /// Embeds faces with the independent judge, one embedding a face; of a clip, those of one frame.
    ///
    /// # Errors
    /// As `process`; `TooLarge` as `Failed` beyond `limits::JUDGED` faces.
    pub fn judge(
        &mut self,
        job: JobId,
        input: &Input,
        (frame, faces): (u64, &[Landmarks]),
    ) -> Result<Vec<Vec<f32>>> {
        let mut all = Vec::with_capacity(faces.len());
        for part in faces.chunks(limits::JUDGED) {
            let make = |stop: &AtomicBool| {
                let request = Request::Judge { job, frame, faces: part.to_vec() };
                Ok(Sent { request, fds: vec![input.open(stop)?], keep: () })
            };
            match self.run(job, &[Need::Role(Role::Judge)], make)? {
                (Event::Judged { embeddings, .. }, ..) if embeddings.len() == part.len() => {
                    all.extend(embeddings);
                }
                _ => return Err(OTHER),
            }
        }
        Ok(all)
    }

    /// How far a model is from the reference of its role, on some pictures. `models` are both, as
    /// sealed memory, the reference first.
    ///
    /// # Errors
    /// As `process`; `Failed` when one of them can't be loaded, or no face is to be seen.
    pub fn measure(&mut self, job: &MeasureJob<'_>) -> Result<Distance> {
        let role = job.reference.role;
        let needs = match role {
            Role::Detector => Vec::new(),
            _ => vec![Need::Model(job.detect.model.clone())],
        };
        let clone = |fd: &OwnedFd| {
            let copied = rustix::io::fcntl_dupfd_cloexec(fd, 0);
            copied.map_err(|source| Error::Memory { what: "a model", source })
        };
        let make = |stop: &AtomicBool| {
            let mut fds = vec![clone(job.models.0)?, clone(job.models.1)?];
            for input in job.inputs {
                fds.push(input.open(stop)?);
            }
            let request = Request::Measure {
                job: job.job,
                reference: Box::new(job.reference.clone()),
                candidate: Box::new(job.candidate.clone()),
                detect: job.detect.clone(),
            };
            Ok(Sent { request, fds, keep: () })
        };
        match self.run(job.job, &needs, make)? {
            (Event::Measured { distance, .. }, ..) => Ok(distance),
            _ => Err(OTHER),
        }
    }

    /// What a model's file holds, and the file with what is safe to fold folded (`None` when
    /// nothing was).
    ///
    /// # Errors
    /// As `process`; `Failed` when it is no model.
    pub fn inspect(
        &mut self,
        job: JobId,
        manifest: &Manifest,
        model: &Input,
    ) -> Result<(Survey, Option<Vec<u8>>)> {
        let make = |stop: &AtomicBool| {
            let pending = Pending::in_memory("the model")?;
            let fds = vec![model.open(stop)?, duplicate(&pending)?];
            let request = Request::Inspect { job, manifest: Box::new(manifest.clone()) };
            Ok(Sent { request, fds, keep: pending })
        };
        match self.run(job, &[], make)? {
            (Event::Inspected { survey, bytes: 0, .. }, ..) => Ok((*survey, None)),
            (Event::Inspected { survey, bytes, .. }, pending, _) => {
                Ok((*survey, Some(pending.into_bytes(bytes)?)))
            }
            _ => Err(OTHER),
        }
    }

    /// Lays finished pictures side by side. The sheet shows what its inputs show.
    ///
    /// # Errors
    /// As `process`.
    pub fn sheet(&mut self, job: &SheetJob<'_>) -> Result<Written> {
        let make = |stop: &AtomicBool| {
            let pending = job.output.begin()?;
            let mut fds =
                job.inputs.iter().map(|i| i.open(stop)).collect::<Result<Vec<OwnedFd>>>()?;
            fds.push(duplicate(&pending)?);
            let request = Request::Sheet {
                job: job.job,
                columns: job.columns,
                cell: job.cell,
                output: job.write,
                mark: job.mark.clone(),
                wall: job.wall,
            };
            Ok(Sent { request, fds, keep: pending })
        };
        match self.run(job.job, &[], make)? {
            (Event::Sheeted { written, .. }, pending, _) => {
                self.tell(job.job, &Ended::Sheet { mark: job.mark, written: &written })?;
                pending.commit(written.bytes)?;
                Ok(written)
            }
            _ => Err(OTHER),
        }
    }

    /// Makes a clip of raw frames of two portraits and a clip of a third face.
    ///
    /// # Errors
    /// As `process`.
    pub fn made(
        &mut self,
        job: JobId,
        parts: &[Input; 3],
        output: &Output,
        (frames, mark): (u16, &Mark),
    ) -> Result<()> {
        let make = |stop: &AtomicBool| {
            let pending = output.begin()?;
            let mut fds = parts.iter().map(|i| i.open(stop)).collect::<Result<Vec<OwnedFd>>>()?;
            fds.push(duplicate(&pending)?);
            let request = Request::Made { job, frames, mark: mark.clone() };
            Ok(Sent { request, fds, keep: pending })
        };
        match self.run(job, &[], make)? {
            (Event::Made { written, .. }, pending, _) => pending.commit(written.bytes),
            _ => Err(OTHER),
        }
    }
}

fn duplicate(pending: &Pending) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(pending, 3)
        .map_err(|source| Error::Memory { what: "an output", source })
}
