//! The marks of a clip: its label, laid out once, and the invisible mark, held from IDR to IDR.
//!
//! A clip declares what its recipe may do before its first frame is seen: its label and payload say
//! the same from the first frame to the last. A frame that was altered more than that raises it.
//!
//! `Clip::apply` is the only maker of `MarkedFrame`; a sink takes nothing else.
//!
//! ```compile_fail,E0451
//! use mien_face::mark::clip::MarkedFrame;
//! fn forge(image: mien_pixels::i420::I420) -> MarkedFrame {
//!     MarkedFrame { image }
//! }
//! ```
//! ```compile_fail,E0277
//! fn forge(image: mien_pixels::i420::I420) -> mien_face::mark::clip::MarkedFrame {
//!     image.into()
//! }
//! ```

use std::time::Duration;

use mien_base::limits;
use mien_base::recipe::{Action, Anonymise, Mark, Stands};
use mien_base::report::ClipMarks;
use mien_pixels::convert::Colour;
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;
use mien_pixels::stamp::{Stamp, Turn};
use mien_pixels::stdm;
use mien_pixels::stdm::clip::Residual;

use super::invisible::{Altered, Payload};
use super::metadata;
use super::visible::Label;
use crate::recipe::Checked;
use crate::{Error, Result};

/// How long the label stands at the start, at least.
const START: Duration = Duration::from_millis(2_500);

/// A frame that carries its marks.
#[derive(Debug)]
pub struct MarkedFrame {
    image: I420,
}

impl MarkedFrame {
    /// What was marked.
    #[must_use]
    pub const fn image(&self) -> &I420 {
        &self.image
    }

    /// Gives the frame back to its pool.
    #[must_use]
    pub fn into_image(self) -> I420 {
        self.image
    }
}

/// What a recipe may do to a clip: the strongest of its actions.
#[must_use]
pub fn declared(recipe: &Checked) -> Altered {
    let of = |action: &Action| match action {
        Action::Pass => Altered::Nothing,
        Action::Swap(_) | Action::Anonymise(Anonymise::Synthetic { .. }) => Altered::Generated,
        Action::Anonymise(_) => Altered::Masked,
    };
    recipe.actions().map(of).max().unwrap_or(Altered::Nothing)
}

/// Marks the frames of one clip, in order.
#[derive(Debug)]
pub struct Clip {
    size: Size,
    turn: Turn,
    colour: Colour,
    mark: Mark,
    declared: Altered,
    label: Option<Stamp>,
    residual: Residual,
    /// The payload that the residual carries.
    held: Option<u64>,
    marks: ClipMarks,
}

impl Clip {
    /// Lays out the marks for frames of one size, which must be turned to stand upright.
    #[must_use]
    pub fn new(recipe: &Checked, size: Size, turn: Turn, colour: Colour) -> Self {
        let mark = recipe.recipe().mark.clone();
        let residual = Residual::new(size, colour.range);
        let nothing = Altered::Nothing;
        let marks = ClipMarks::default();
        let mut clip = Self {
            size,
            turn,
            colour,
            mark,
            declared: nothing,
            label: None,
            residual,
            held: None,
            marks,
        };
        clip.declare(declared(recipe));
        clip
    }

    /// What the clip says was done to it. A clip that goes on in another worker begins with what
    /// the last one said.
    pub fn declare(&mut self, altered: Altered) {
        if altered < self.declared {
            return;
        }
        self.declared = altered;
        let upright = self.turn.size(self.size);
        let label = Label::new(upright, altered, self.mark.label_height, self.mark.corner);
        self.label = label.map(|label| {
            let plate = (&label.plate.layer, &label.plate.alpha);
            Stamp::new(plate, label.roi, (self.size, self.turn), self.colour)
        });
        self.marks.visible = self.label.is_some();
        self.marks.payload = self.payload().hex();
        self.marks.reasons.clear();
        let Size { width, height } = upright;
        if altered == Altered::Nothing {
            self.marks.reasons.push("no label: nothing was altered".to_owned());
        } else if self.label.is_none() {
            self.marks.reasons.push(format!("no label: {width}x{height} has no room for it"));
        }
        if !stdm::fits(self.size) {
            let least = stdm::LEAST;
            let why = format!("no invisible mark: {width}x{height} is under {least} pixels");
            self.marks.reasons.push(why);
        }
    }

    /// A segment has left: the next frame is marked as if none had been before, so that a clip
    /// which goes on in another worker gets the same bytes.
    pub fn rest(&mut self) {
        self.residual = Residual::new(self.size, self.colour.range);
        self.held = None;
    }

    /// What the clip says so far.
    #[must_use]
    pub const fn declared(&self) -> Altered {
        self.declared
    }

    const fn payload(&self) -> Payload {
        let Mark { device, counter, .. } = self.mark;
        Payload { altered: self.declared, device, counter }
    }

    /// Marks the next frame, which is shown `at` after the clip's first. Where the encoder begins
    /// an IDR, `idr`, the invisible mark is made anew for this frame and read back.
    ///
    /// # Errors
    /// `Mark` when a frame of another size comes, or one that has room for marks would leave with
    /// none of them.
    pub fn apply(
        &mut self,
        mut image: I420,
        altered: Altered,
        at: Duration,
        idr: bool,
    ) -> Result<MarkedFrame> {
        if image.size() != self.size || image.colour() != self.colour {
            let detail = "a frame came in another size or colour than the clip's".to_owned();
            return Err(Error::Mark { detail });
        }
        if altered > self.declared {
            self.declare(altered);
        }
        let stands = self.mark.stands == Stands::Always || at < START;
        let label = self.label.as_ref().filter(|_| stands);
        if let Some(label) = label {
            label.lay(&mut image);
        }
        let (labelled, bits) = (label.is_some(), self.payload().bits());
        let renew = idr || self.held != Some(bits);
        if renew {
            let psnr = self.residual.compute(image.y(), bits);
            let least = if self.marks.psnr == 0.0 { f32::INFINITY } else { self.marks.psnr };
            self.marks.psnr = if psnr.min(least).is_finite() { psnr.min(least) } else { 0.0 };
            self.held = Some(bits);
        }
        self.residual.add(&mut image.y_mut());
        if renew {
            self.read_back(&image, bits, labelled, idr)?;
        }
        Ok(MarkedFrame { image })
    }

    fn read_back(&mut self, image: &I420, bits: u64, labelled: bool, idr: bool) -> Result<()> {
        let found = self.residual.read(image.y()) == Some(bits);
        if idr {
            if !found && self.marks.unmarked.len() < limits::CLIP_LISTED {
                self.marks.unmarked.push(self.marks.gops);
            }
            self.marks.gops += 1;
            self.marks.marked += u64::from(found);
        }
        if !found && !labelled && stdm::fits(self.size) {
            let detail = "the invisible mark could not be read back from a frame".to_owned();
            return Err(Error::Mark { detail });
        }
        Ok(())
    }

    /// The `AIGC` record that the file must carry, when there is one; `before` is the input's.
    pub fn record(&mut self, before: Option<&str>) -> Option<String> {
        let record = metadata::record(self.payload(), &self.mark.producer, before);
        self.marks.metadata = record.is_some();
        record
    }

    /// What the clip carries so far.
    #[must_use]
    pub const fn marks(&self) -> &ClipMarks {
        &self.marks
    }
}

#[cfg(test)]
#[path = "clip_tests.rs"]
mod tests;
