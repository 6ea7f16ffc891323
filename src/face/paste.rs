//! Lays an altered crop back over its picture, on its own region only.

use mien_engine::backend::{Backend, Shape};
use mien_pixels::geometry::{Affine2, Point, Rect, Roi, Size};

use crate::mask::{Place, Region};
use crate::{Error, Result};

/// Pixels of the picture that a crop of `side` covers; `None` when none does.
#[must_use]
pub fn footprint(to_picture: &Affine2, side: u32, picture: Size) -> Option<Roi> {
    let last = side as f32 - 1.0;
    let corners = [(0.0, 0.0), (last, 0.0), (last, last), (0.0, last)]
        .map(|(x, y)| to_picture.apply(Point::new(x, y)));
    Rect::around(&corners)?.pixels(picture)
}

/// Lays `crop` (square, `side` pixels, `to_picture` takes its pixels to the picture's) over the
/// picture under the box mask, narrowed by the recipe's kinds. Alpha is exactly 0 at the crop's
/// edge, and nothing outside it is touched.
///
/// # Errors
/// `Face` when the map is singular, or a mask needs what is not there; `Engine`.
pub fn back<B: Backend>(
    backend: &B,
    picture: &mut B::Picture,
    crop: &B::Picture,
    side: u32,
    to_picture: &Affine2,
    place: &Place,
    region: &Region<'_, B>,
) -> Result<()> {
    let Some(roi) = footprint(to_picture, side, backend.size(picture)) else { return Ok(()) };
    let to_crop = to_picture
        .inverse()
        .ok_or_else(|| Error::Face { detail: "its crop is flat".to_owned() })?;
    let shape = Shape::CropBox {
        to_picture: *to_picture,
        side: side as f32,
        padding: region.mask.padding,
        blur: region.mask.blur,
    };
    let mut alpha = backend.mask(&[shape], roi).map_err(Error::engine("paste"))?;
    region.narrow(backend, place, roi, &mut alpha)?;
    let layer = backend.warp_back(crop, &to_crop, roi).map_err(Error::engine("paste"))?;
    backend.paste(picture, &layer, roi, &alpha).map_err(Error::engine("paste"))
}
