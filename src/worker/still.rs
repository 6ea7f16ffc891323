//! One picture: read, decode, let the stages work, encode, write.

use std::os::fd::OwnedFd;

use mien_base::clock::{SystemClock, Wall};
use mien_base::id::{IdentityId, JobId};
use mien_base::limits;
use mien_base::recipe::Detect;
use mien_base::wire::{Event, Landmarks, Stage};
use mien_engine::backend::Backend;
use mien_face::enrol::enrol;
use mien_face::mark;
use mien_face::meter::Meter;
use mien_face::models::Models;
use mien_face::subject::Landmarks5;
use mien_pixels::codec::{self, Bounds, Decoded};
use mien_pixels::geometry::Point;

use crate::meter::{JobClock, Pulse};
use crate::{Error, Result, load, sink};

/// What a job is carried out with.
#[derive(Debug)]
pub struct Desk<'a, B: Backend> {
    pub models: &'a mut Models<B>,
    pub pulse: &'a Pulse,
    pub machine: SystemClock,
}

/// The descriptors of a request, taken in order.
#[derive(Debug)]
pub struct Files(std::vec::IntoIter<OwnedFd>);

impl Files {
    /// All that came.
    #[must_use]
    pub fn new(fds: Vec<OwnedFd>) -> Self {
        Self(fds.into_iter())
    }

    /// The next.
    ///
    /// # Errors
    /// `Protocol` when there is none.
    pub fn next(&mut self) -> Result<OwnedFd> {
        self.0.next().ok_or(Error::Protocol { what: "a descriptor is missing" })
    }
}

impl<B: Backend> Desk<'_, B> {
    /// Reads and decodes a picture.
    fn open(&self, fd: &OwnedFd) -> Result<Decoded> {
        self.pulse.enter(Stage::Read)?;
        let bytes = load::read(fd, "picture", limits::PICTURE_FILE)?;
        self.pulse.enter(Stage::Decode)?;
        let decoded = codec::decode(&bytes, &Bounds::default()).map_err(Error::Pixels)?;
        self.pulse.pixels(decoded.rgb.size().pixels());
        self.pulse.enter(Stage::Face)?;
        Ok(decoded)
    }

    /// Reads the marks of a picture.
    ///
    /// # Errors
    /// Of the input; `Cancelled`.
    pub fn verify(&self, job: JobId, mut files: Files) -> Result<Event> {
        self.pulse.enter(Stage::Read)?;
        let bytes = load::read(&files.next()?, "picture", limits::PICTURE_FILE)?;
        self.pulse.enter(Stage::Decode)?;
        let metadata = codec::read_metadata(&bytes).map_err(Error::Pixels)?;
        let decoded = codec::decode(&bytes, &Bounds::default()).map_err(Error::Pixels)?;
        self.pulse.pixels(decoded.rgb.size().pixels());
        self.pulse.enter(Stage::Face)?;
        let marks = mark::verify(decoded.rgb.view(), &metadata);
        Ok(Event::Verified { job, marks })
    }

    /// Takes a source's face from a picture; the portrait is written as PNG.
    ///
    /// # Errors
    /// Of the input, of enrolment; `Cancelled`.
    pub fn enrol(
        &mut self,
        job: JobId,
        identity: IdentityId,
        detect: &Detect,
        wall: Wall,
        mut files: Files,
    ) -> Result<Event> {
        let picture = self.open(&files.next()?)?.rgb;
        let clock = JobClock::new(self.pulse, self.machine, wall);
        let mut meter = Meter::new(&clock);
        let (record, portrait) =
            enrol(self.models, identity, detect, picture, wall, &mut meter).map_err(Error::Face)?;
        self.pulse.enter(Stage::Encode)?;
        let encoded = sink::portrait(&portrait)?;
        self.pulse.enter(Stage::Write)?;
        let written = encoded.write(&files.next()?)?;
        Ok(Event::Enrolled { job, record: Box::new(record), written })
    }

    /// Embeds faces with the independent judge.
    ///
    /// # Errors
    /// Of the input, of the judge; `Protocol` for too many faces or landmarks that are none.
    pub fn judge(&mut self, job: JobId, faces: &[Landmarks], mut files: Files) -> Result<Event> {
        if faces.len() > limits::JUDGED {
            return Err(Error::Protocol { what: "too many faces to judge" });
        }
        let picture = self.open(&files.next()?)?.rgb;
        let clock = JobClock::new(self.pulse, self.machine, Wall(0));
        let mut meter = Meter::new(&clock);
        let backend = self.models.backend().clone();
        let picture = backend.adopt(picture).map_err(Error::Engine)?;
        let role = mien_base::model::Role::Judge;
        let judge = self.models.judge().ok_or(Error::Face(mien_face::Error::NoModel { role }))?;
        let mut embeddings = Vec::with_capacity(faces.len());
        for face in faces {
            let five = Landmarks5::new(face.map(|[x, y]| Point::new(x, y)))
                .ok_or(Error::Protocol { what: "landmarks that are none" })?;
            let found =
                judge.describe(&backend, &picture, &five, &mut meter).map_err(Error::Face)?;
            embeddings.push(found.values().to_vec());
        }
        Ok(Event::Judged { job, embeddings })
    }
}
