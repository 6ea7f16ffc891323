//! Turns stored pixels upright: all eight EXIF orientations, each in one pass.

use crate::codec::meta::Metadata;
use crate::geometry::Size;
use crate::view::{Grey, Image, Rgb};

/// What must be done to stored pixels so that they stand upright. Named by that, not by the camera.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Orientation {
    #[default]
    Upright,
    MirrorAcross,
    HalfTurn,
    MirrorDown,
    Transpose,
    /// A quarter turn clockwise.
    QuarterRight,
    Transverse,
    /// A quarter turn anticlockwise.
    QuarterLeft,
}

impl Orientation {
    /// EXIF values 1 to 8.
    pub(crate) fn from_exif(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Upright,
            2 => Self::MirrorAcross,
            3 => Self::HalfTurn,
            4 => Self::MirrorDown,
            5 => Self::Transpose,
            6 => Self::QuarterRight,
            7 => Self::Transverse,
            8 => Self::QuarterLeft,
            _ => return None,
        })
    }
}

/// Pixels as a file stores them.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) rgb: Rgb,
    /// `None` when every pixel is opaque.
    pub(crate) alpha: Option<Grey>,
    pub(crate) orientation: Orientation,
    pub(crate) meta: Metadata,
}

/// The picture upright. Upright ones pass unchanged; mirrors and the half turn work in place.
pub(crate) fn upright<const C: usize>(image: Image<C>, orientation: Orientation) -> Image<C> {
    let size = image.size();
    let row = size.width as usize * C;
    let mut image = image;
    match orientation {
        Orientation::Upright => image,
        Orientation::MirrorAcross => {
            image.bytes_all_mut().chunks_exact_mut(row).for_each(reverse::<C>);
            image
        }
        Orientation::HalfTurn => {
            reverse::<C>(image.bytes_all_mut());
            image
        }
        Orientation::MirrorDown => {
            let bytes = image.bytes_all_mut();
            let (top, bottom) = bytes.split_at_mut(size.height as usize / 2 * row);
            for (a, b) in top.chunks_exact_mut(row).zip(bottom.rchunks_exact_mut(row)) {
                a.swap_with_slice(b);
            }
            image
        }
        Orientation::Transpose => turned(&image, false, false),
        Orientation::QuarterRight => turned(&image, false, true),
        Orientation::Transverse => turned(&image, true, true),
        Orientation::QuarterLeft => turned(&image, true, false),
    }
}

/// Pixels in reverse order.
fn reverse<const C: usize>(bytes: &mut [u8]) {
    let (pixels, _) = bytes.as_chunks_mut::<C>();
    pixels.reverse();
}

/// Rows become columns: pixel (x, y) of the result is pixel (y or from the right, x or from the
/// bottom) of the source. Works in tiles so that both sides stay in the cache.
fn turned<const C: usize>(image: &Image<C>, from_right: bool, from_bottom: bool) -> Image<C> {
    const TILE: usize = 32;
    let (width, height) = (image.size().width as usize, image.size().height as usize);
    let mut out = Image::filled(Size::new(image.size().height, image.size().width), [0; C]);
    let (source, _) = image.bytes_all().as_chunks::<C>();
    let (target, _) = out.bytes_all_mut().as_chunks_mut::<C>();
    for top in (0..width).step_by(TILE) {
        for left in (0..height).step_by(TILE) {
            for y in top..(top + TILE).min(width) {
                let column = if from_right { width - 1 - y } else { y };
                let row = &mut target[y * height..(y + 1) * height];
                for (x, pixel) in row.iter_mut().enumerate().skip(left).take(TILE) {
                    let line = if from_bottom { height - 1 - x } else { x };
                    *pixel = source[line * width + column];
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters of a 3x2 picture, row by row.
    fn turn(letters: &str, value: u8) -> (String, Size) {
        let image = Image::<1>::from_vec(Size::new(3, 2), letters.bytes().collect()).unwrap();
        let out = upright(image, Orientation::from_exif(value).unwrap());
        let size = out.size();
        (String::from_utf8(out.into_vec()).unwrap(), size)
    }

    #[test]
    fn each_orientation_is_undone_as_exif_says() {
        // Stored:  a b c      EXIF names where the stored first row and column stand.
        //          d e f
        let wide = Size::new(3, 2);
        let tall = Size::new(2, 3);
        for (value, want, size) in [
            (1, "abcdef", wide),
            (2, "cbafed", wide),
            (3, "fedcba", wide),
            (4, "defabc", wide),
            (5, "adbecf", tall),
            (6, "daebfc", tall),
            (7, "fcebda", tall),
            (8, "cfbead", tall),
        ] {
            assert_eq!(turn("abcdef", value), (want.to_owned(), size), "orientation {value}");
        }
    }

    #[test]
    fn large_and_odd_pictures_turn_as_small_ones() {
        let size = Size::new(67, 45);
        let data = (0..size.pixels()).flat_map(|i| [(i % 251) as u8, (i / 251) as u8, 7]).collect();
        let image = Image::<3>::from_vec(size, data).unwrap();
        let right = upright(image.clone(), Orientation::QuarterRight);
        assert_eq!(right.view().pixel(44 - 10, 20), image.view().pixel(20, 10));
        let back = upright(right, Orientation::QuarterLeft);
        assert_eq!(back, image);
        let mirrored = upright(image.clone(), Orientation::MirrorDown);
        assert_eq!(mirrored.view().row(44), image.view().row(0));
        assert_eq!(mirrored.view().row(22), image.view().row(22));
    }
}
