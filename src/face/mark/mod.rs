//! What says that a picture was altered: the label, the invisible mark, the metadata.
//!
//! `apply` is the last stage and the only maker of `Marked`; a sink takes nothing else.
//!
//! ```compile_fail,E0451
//! use mien_face::mark::Marked;
//! use mien_engine::cpu::{Cpu, Picture};
//! fn forge(picture: Picture, marked: Marked<Cpu>) -> Marked<Cpu> {
//!     Marked { picture, ..marked }
//! }
//! ```
//! ```compile_fail,E0277
//! fn forge(picture: mien_engine::cpu::Picture) -> mien_face::mark::Marked<mien_engine::cpu::Cpu> {
//!     picture.into()
//! }
//! ```

pub mod invisible;
pub mod visible;
pub mod metadata;
pub mod clip;
pub mod verify;

use mien_base::clock::{Clock, Wall};
use mien_base::recipe::Mark;
use mien_base::report::MarkReport;
use mien_engine::backend::Backend;
use mien_pixels::codec::Metadata;
use mien_pixels::stdm;

pub use invisible::{Altered, Payload};
pub use verify::{ClipCheck, verify};

use crate::{Error, Result};
use visible::Label;

/// A picture that carries its marks, and what must be written beside its pixels.
pub struct Marked<B: Backend> {
    picture: B::Picture,
    facts: Facts,
    metadata: Metadata,
    report: MarkReport,
}

impl<B: Backend> std::fmt::Debug for Marked<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Marked").field("report", &self.report).finish_non_exhaustive()
    }
}

/// What the metadata are made of.
#[derive(Debug, Clone)]
struct Facts {
    payload: Payload,
    producer: String,
    made: Wall,
}

impl Facts {
    fn metadata(&self, before: Option<&str>) -> Metadata {
        let aigc = metadata::record(self.payload, &self.producer, before);
        let xmp = metadata::xmp(self.payload.altered, aigc.as_deref(), self.made);
        Metadata { xmp, aigc, ..Metadata::default() }
    }
}

impl<B: Backend> Marked<B> {
    /// What was marked.
    #[must_use]
    pub const fn picture(&self) -> &B::Picture {
        &self.picture
    }

    /// What must be written beside the pixels.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Which marks there are, and why one is not.
    #[must_use]
    pub const fn report(&self) -> &MarkReport {
        &self.report
    }

    /// Keeps what the input carried and may travel on: its colour profile, and its `AIGC` record,
    /// in which we become the propagator.
    #[must_use]
    pub fn carrying(mut self, input: &Metadata) -> Self {
        self.metadata = self.facts.metadata(input.aigc.as_deref());
        self.metadata.icc.clone_from(&input.icc);
        self
    }

    /// The parts, for the sink.
    #[must_use]
    pub fn into_parts(self) -> (B::Picture, Metadata, MarkReport) {
        (self.picture, self.metadata, self.report)
    }
}

/// Marks a finished picture: the label, then the invisible mark, which is read back. A picture too
/// small for one of them leaves with the others, and the report says why.
///
/// # Errors
/// `Engine` when the backend fails; `Mark` when a picture that has room for marks would leave with
/// none in its pixels.
pub fn apply<B: Backend>(
    backend: &B,
    mut picture: B::Picture,
    altered: Altered,
    mark: &Mark,
    clock: &dyn Clock,
) -> Result<Marked<B>> {
    let failed = || Error::engine("mark");
    let size = backend.size(&picture);
    let payload = Payload { altered, device: mark.device, counter: mark.counter };
    let mut reasons = Vec::new();

    let label = Label::new(size, altered, mark.label_height, mark.corner);
    let visible = label.is_some();
    if let Some(Label { plate, roi, .. }) = label {
        let layer = backend.adopt(plate.layer).map_err(failed())?;
        let alpha = backend.adopt_alpha(plate.alpha).map_err(failed())?;
        backend.paste(&mut picture, &layer, roi, &alpha).map_err(failed())?;
    } else if altered == Altered::Nothing {
        reasons.push("no label: nothing was altered".to_owned());
    } else {
        reasons.push(format!("no label: {}x{} has no room for it", size.width, size.height));
    }

    let psnr = backend.mark_add(&mut picture, payload.bits()).map_err(failed())?;
    let found = backend.mark_read(&picture).map_err(failed())?;
    let invisible = found == Some(payload.bits());
    if !invisible {
        let (w, h) = (size.width, size.height);
        reasons.push(if stdm::fits(size) {
            format!("no invisible mark: it could not be read back from {w}x{h}")
        } else {
            format!("no invisible mark: {w}x{h} is under {} pixels", stdm::LEAST)
        });
        if !visible && stdm::fits(size) {
            return Err(Error::Mark { detail: reasons.join("; ") });
        }
    }

    let facts = Facts { payload, producer: mark.producer.clone(), made: clock.wall() };
    let metadata = facts.metadata(None);
    let report = MarkReport {
        visible,
        invisible,
        metadata: metadata.xmp.is_some(),
        payload: payload.hex(),
        psnr: if psnr.is_finite() { psnr } else { 0.0 },
        reasons,
    };
    Ok(Marked { picture, facts, metadata, report })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
