//! What the independent judge makes of faces, in a picture or in one frame of a clip.

use mien_base::clock::Wall;
use mien_base::id::JobId;
use mien_base::limits;
use mien_base::model::Role;
use mien_base::wire::{Event, Landmarks};
use mien_engine::backend::Backend;
use mien_face::meter::Meter;
use mien_face::subject::Landmarks5;
use mien_pixels::geometry::Point;

use crate::clip::{Stages, is_clip};
use crate::meter::JobClock;
use crate::still::{Desk, Files};
use crate::{Error, Result};

impl<B: Backend> Desk<'_, B> {
    /// Embeds faces; of a clip, those of frame `frame`.
    ///
    /// # Errors
    /// Of the input, of the judge; `Protocol` for too many faces or landmarks that are none.
    pub fn judge(
        &mut self,
        job: JobId,
        (frame, faces): (u64, &[Landmarks]),
        mut files: Files,
        stages: &Stages,
    ) -> Result<Event> {
        if faces.len() > limits::JUDGED {
            return Err(Error::Protocol { what: "too many faces to judge" });
        }
        let input = files.take()?;
        let picture = if is_clip(&input)? {
            self.shown(input, stages, frame)?.0
        } else {
            self.open(&input)?.rgb
        };
        let clock = JobClock::new(self.pulse, self.machine, Wall(0));
        let mut meter = Meter::new(&clock);
        let backend = self.models.backend().clone();
        let picture = backend.adopt(picture).map_err(Error::Engine)?;
        let no_judge = mien_face::Error::NoModel { role: Role::Judge };
        let judge = self.models.judge().ok_or(Error::Face(no_judge))?;
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
