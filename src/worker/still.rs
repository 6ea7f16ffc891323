//! One picture: read, decode, let the stages work, encode, write.

use std::os::fd::OwnedFd;

use mien_base::clock::{Clock, Mono, SystemClock, Wall};
use mien_base::id::{IdentityId, JobId};
use mien_base::limits;
use mien_base::recipe::{Detect, Mark};
use mien_base::report::StageTime;
use mien_base::wire::{Event, Output, Process, Stage};
use mien_engine::backend::Backend;
use mien_face::anonymise::Overlay;
use mien_face::enrol::enrol;
use mien_face::mark;
use mien_face::meter::Meter;
use mien_face::models::Models;
use mien_face::pipeline;
use mien_face::policy::Policy;
use mien_face::recipe;
use mien_pixels::blend;
use mien_pixels::codec::{self, Bounds, Decoded};
use mien_pixels::view::Rgb;

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

    /// How many are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// The next.
    ///
    /// # Errors
    /// `Protocol` when there is none.
    pub fn take(&mut self) -> Result<OwnedFd> {
        self.0.next().ok_or(Error::Protocol { what: "a descriptor is missing" })
    }
}

impl<B: Backend> Desk<'_, B> {
    /// Reads and decodes a picture as it is looked at: what is transparent lies on white. A face
    /// may stand in the alpha alone, and a mark on what nobody sees is none.
    pub(crate) fn open(&self, fd: &OwnedFd) -> Result<Decoded> {
        let mut decoded = self.open_with_alpha(fd)?;
        if let Some(alpha) = decoded.alpha.take() {
            let mut seen = Rgb::filled(decoded.rgb.size(), [255; 3]);
            blend::paste(&mut seen.view_mut(), decoded.rgb.view(), alpha.view());
            decoded.rgb = seen;
        }
        Ok(decoded)
    }

    fn open_with_alpha(&self, fd: &OwnedFd) -> Result<Decoded> {
        self.pulse.enter(Stage::Read)?;
        let bytes = load::read(fd, "picture", limits::PICTURE_FILE)?;
        self.pulse.enter(Stage::Decode)?;
        let decoded = codec::decode(&bytes, &Bounds::default()).map_err(Error::Pixels)?;
        self.pulse.pixels(decoded.rgb.size().pixels());
        self.pulse.enter(Stage::Face)?;
        Ok(decoded)
    }

    /// Alters one picture as asked and as the policy permits, and marks it.
    ///
    /// # Errors
    /// Of the input, the recipe, the stages, the output; `Cancelled`.
    pub fn process(
        &mut self,
        policy: &Policy<B>,
        request: Process,
        mut files: Files,
    ) -> Result<Event> {
        let Process { job, recipe, output, wall, overlay } = request;
        let recipe = recipe::check(&recipe).map_err(Error::Face)?;
        let clock = JobClock::new(self.pulse, self.machine, wall);
        let (input, out) = (files.take()?, files.take()?);
        let overlay = if overlay { Some(self.overlay(&files.take()?)?) } else { None };

        let start = clock.mono();
        let Decoded { rgb, format, meta, .. } = self.open(&input)?;
        drop(input);
        let decode = stage("decode", &clock, start);
        let overlay = overlay.as_ref();
        let (marked, mut report) =
            pipeline::process(self.models, policy, &recipe, rgb, overlay, &clock)
                .map_err(Error::Face)?;
        let marked = marked.carrying(&meta);
        report.marks = Some(marked.report().clone());
        report.format = format.name().to_owned();

        let start = clock.mono();
        self.pulse.enter(Stage::Encode)?;
        let encoded = sink::encode(&**self.models.backend(), marked, format, output)?;
        self.pulse.enter(Stage::Write)?;
        let written = encoded.write(&out)?;
        report.stages.insert(0, decode);
        report.stages.push(stage("encode", &clock, start));
        Ok(Event::Done { job, report, written })
    }

    pub(crate) fn overlay(&self, fd: &OwnedFd) -> Result<Overlay<B>> {
        let Decoded { rgb, alpha, .. } = self.open_with_alpha(fd)?;
        Overlay::new(&**self.models.backend(), rgb, alpha).map_err(Error::Face)
    }

    /// Finds faces; with `draw` a marked picture with their boxes is written.
    ///
    /// # Errors
    /// Of the input, the stages, the output; `Cancelled`.
    pub fn detect(
        &mut self,
        job: JobId,
        detect: &Detect,
        draw: Option<(Output, Mark)>,
        wall: Wall,
        mut files: Files,
    ) -> Result<Event> {
        let clock = JobClock::new(self.pulse, self.machine, wall);
        let start = clock.mono();
        let Decoded { rgb, format, meta, .. } = self.open(&files.take()?)?;
        let decode = stage("decode", &clock, start);
        let mark = draw.as_ref().map(|(_, mark)| mark);
        let (marked, mut report) =
            pipeline::detect(self.models, detect, rgb, mark, &clock).map_err(Error::Face)?;
        report.stages.insert(0, decode);
        report.format = format.name().to_owned();
        let written = match (marked, draw) {
            (Some(marked), Some((output, _))) => {
                self.pulse.enter(Stage::Encode)?;
                let marked = marked.carrying(&meta);
                let backend = self.models.backend();
                let encoded = sink::encode(&**backend, marked, format, output)?;
                self.pulse.enter(Stage::Write)?;
                Some(encoded.write(&files.take()?)?)
            }
            _ => None,
        };
        Ok(Event::Detected { job, report, written })
    }

    /// Reads the marks of a picture.
    ///
    /// # Errors
    /// Of the input; `Cancelled`.
    pub fn verify(&self, job: JobId, input: &OwnedFd) -> Result<Event> {
        self.pulse.enter(Stage::Read)?;
        let bytes = load::read(input, "picture", limits::PICTURE_FILE)?;
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
        let picture = self.open(&files.take()?)?.rgb;
        let clock = JobClock::new(self.pulse, self.machine, wall);
        let mut meter = Meter::new(&clock);
        let (record, portrait) =
            enrol(self.models, identity, detect, picture, wall, &mut meter).map_err(Error::Face)?;
        self.pulse.enter(Stage::Encode)?;
        let encoded = sink::portrait(&portrait)?;
        self.pulse.enter(Stage::Write)?;
        let written = encoded.write(&files.take()?)?;
        Ok(Event::Enrolled { job, record: Box::new(record), written })
    }
}

/// A stage of ours as it stands in the report.
fn stage(name: &str, clock: &dyn Clock, since: Mono) -> StageTime {
    let ms = clock.mono().since(since).as_secs_f32() * 1e3;
    StageTime { stage: name.to_owned(), ms, inference_ms: 0.0, inference_cpu_ms: 0.0 }
}
