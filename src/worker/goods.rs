//! Models that are looked at, or compared, before they serve.

use mien_base::id::JobId;
use mien_base::limits;
use mien_base::model::Manifest;
use mien_base::recipe::Detect;
use mien_base::wire::{Event, Stage};
use mien_engine::backend::Backend;
use mien_engine::contract::Contract;
use mien_engine::{fold, onnx};
use mien_face::measure;
use mien_face::meter::Meter;
use rustix::io::Errno;

use crate::meter::JobClock;
use crate::still::{Desk, Files};
use crate::{Error, Result, sealed};

impl<B: Backend> Desk<'_, B> {
    /// How far a model is from the reference of its role, on the pictures that follow.
    ///
    /// # Errors
    /// Of the pictures, of the models; `Cancelled`.
    pub fn measure(
        &mut self,
        job: JobId,
        reference: Manifest,
        candidate: Manifest,
        detect: &Detect,
        mut files: Files,
    ) -> Result<Event> {
        let read = |files: &mut Files| sealed::bytes(&files.take()?, "model", limits::MODEL_FILE);
        let (first, second) = (read(&mut files)?, read(&mut files)?);
        let mut pictures = Vec::new();
        while files.left() > 0 {
            pictures.push(self.open(&files.take()?)?.rgb);
        }
        let clock = JobClock::new(self.pulse, self.machine, mien_base::clock::Wall(0));
        let mut meter = Meter::new(&clock);
        let pair = ((reference, &*first), (candidate, &*second));
        let distance = measure::distance(self.models, pair, detect, pictures, &mut meter);
        Ok(Event::Measured { job, distance: distance.map_err(Error::Face)? })
    }

    /// Looks into a model's file: its ports and operators, whether the backend runs it; writes it
    /// again when something of it can be folded.
    ///
    /// # Errors
    /// `Engine` when it is no model; of the descriptors.
    pub fn inspect(&mut self, job: JobId, manifest: &Manifest, mut files: Files) -> Result<Event> {
        self.pulse.enter(Stage::Load)?;
        let bytes = sealed::bytes(&files.take()?, "model", limits::MODEL_FILE)?;
        let name = manifest.id.as_str();
        let mut survey = onnx::survey(name, &bytes).map_err(Error::Engine)?;
        let (folded, done) = fold::fold(name, &bytes).map_err(Error::Engine)?;
        survey.folded = done;
        let run = self.models.backend().load(manifest, &Contract::default(), &folded);
        survey.refused = run.err().map(|error| error.to_string());
        let mut written = 0;
        let out = files.take()?;
        if done.count() > 0 {
            let failed = |source| Error::File { what: "output", verb: "written", source };
            while let Some(rest) = folded.get(written..).filter(|rest| !rest.is_empty()) {
                match rustix::io::pwrite(&out, rest, written as u64) {
                    Ok(0) => return Err(failed(Errno::NOSPC)),
                    Ok(n) => written += n,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
        }
        Ok(Event::Inspected { job, survey: Box::new(survey), bytes: written as u64 })
    }
}
