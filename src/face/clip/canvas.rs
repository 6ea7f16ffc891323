//! The picture in which parts of frames are worked on, as large as a frame and used for all.

use mien_engine::backend::Backend;
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::i420::I420;
use mien_pixels::view::Rgb;

use crate::{Error, Result};

/// What lies outside the parts that were laid out is left from frames before: nothing reads it.
pub(super) struct Canvas<B: Backend> {
    size: Size,
    picture: Option<B::Picture>,
}

impl<B: Backend> Canvas<B> {
    pub(super) const fn new(size: Size) -> Self {
        Self { size, picture: None }
    }

    /// Lays parts of a frame out and lends them as a picture of the whole frame.
    pub(super) fn lay(
        &mut self,
        backend: &B,
        image: &I420,
        parts: impl Iterator<Item = Roi>,
    ) -> Result<B::Picture> {
        let mut rgb = match self.picture.take() {
            Some(picture) => backend.release(picture).map_err(Error::engine("frame"))?,
            None => Rgb::filled(self.size, [0; 3]),
        };
        if rgb.size() != self.size {
            rgb.reset(self.size);
        }
        for part in parts {
            image.view().to_rgb(part, &mut rgb.view_mut());
        }
        backend.adopt(rgb).map_err(Error::engine("frame"))
    }

    /// Takes the picture back.
    pub(super) fn put(&mut self, picture: B::Picture) {
        self.picture = Some(picture);
    }

    /// Takes the picture back and writes what changed in some regions into the frame.
    pub(super) fn write(
        &mut self,
        backend: &B,
        picture: B::Picture,
        image: &mut I420,
        regions: &[Roi],
    ) -> Result<()> {
        let rgb = backend.release(picture).map_err(Error::engine("frame"))?;
        if rgb.size() != self.size {
            return Err(Error::Clip { detail: "a picture changed its size".to_owned() });
        }
        for region in regions {
            image.write_back(rgb.view(), *region);
        }
        self.picture = Some(backend.adopt(rgb).map_err(Error::engine("frame"))?);
        Ok(())
    }
}
