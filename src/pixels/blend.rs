//! Lays one picture over another, weighed by alpha.

use crate::simd::{self, Level};
use crate::view::{View, ViewMut};

/// v / 255 for v <= 65 534.
#[inline(always)]
fn div255(v: u32) -> u32 {
    (v + 1 + (v >> 8)) >> 8
}

/// dst = (dst * (255 - alpha) + layer * alpha) / 255, rounded to nearest; untouched where alpha
/// is 0, and the layer itself where it is 255.
///
/// # Panics
/// When the sizes differ.
pub fn paste(dst: &mut ViewMut<'_, 3>, layer: View<'_, 3>, alpha: View<'_, 1>) {
    let size = dst.size();
    assert!(layer.size() == size && alpha.size() == size, "all three have one size");
    let level = Level::current();
    for y in 0..size.height {
        paste_row(level, dst.row_mut(y), layer.row(y), alpha.row(y));
    }
}

/// One row of it.
pub(crate) fn paste_row(level: Level, dst: &mut [u8], layer: &[u8], alpha: &[u8]) {
    let done = simd::blend::paste(level, dst, layer, alpha);
    let pixels = dst.chunks_exact_mut(3).zip(layer.chunks_exact(3));
    for ((out, over), &a) in pixels.zip(alpha).skip(done) {
        let a = u32::from(a);
        for (d, &s) in out.iter_mut().zip(over) {
            *d = div255(u32::from(*d) * (255 - a) + u32::from(s) * a + 127) as u8;
        }
    }
}

/// The same in one plane.
///
/// # Panics
/// When the sizes differ.
pub fn paste_plane(dst: &mut ViewMut<'_, 1>, layer: View<'_, 1>, alpha: View<'_, 1>) {
    let size = dst.size();
    assert!(layer.size() == size && alpha.size() == size, "all three have one size");
    let level = Level::current();
    for y in 0..size.height {
        simd::blend::plane(level, dst.row_mut(y), layer.row(y), alpha.row(y));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::geometry::{Roi, Size};
    use crate::simd::tests::{noise, same_at_every_level};
    use crate::view::{Grey, Rgb};

    #[test]
    fn every_blend_is_rounded_exactly() {
        // All alphas against all layers for some destinations.
        let size = Size::new(256, 256);
        let alpha = (0..256 * 256).map(|i| (i % 256) as u8).collect();
        let alpha = Grey::from_vec(size, alpha).unwrap();
        let layer = (0..256 * 256).flat_map(|i| [(i / 256) as u8; 3]).collect();
        let layer = Rgb::from_vec(size, layer).unwrap();
        for d in [0_u8, 1, 77, 128, 254, 255] {
            let mut dst = Rgb::filled(size, [d; 3]);
            paste(&mut dst.view_mut(), layer.view(), alpha.view());
            for (i, got) in dst.bytes_all().chunks_exact(3).enumerate() {
                let (s, a) = ((i / 256) as u32, (i % 256) as u32);
                let want = (u32::from(d) * (255 - a) + s * a + 127) / 255;
                assert_eq!(got, [want as u8; 3], "{d} {s} {a}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_level_gives_the_same_bytes(
            (w, h) in (1_u32..90, 1_u32..4),
            seed in any::<u32>(),
            flat in prop::option::of(any::<u8>()),
        ) {
            let (framed, roi) = (Size::new(w + 3, h + 2), Roi { x: 2, y: 1, width: w, height: h });
            let layer = noise::<3>(framed, seed);
            let alpha = flat.map_or(noise::<1>(framed, seed), |a| Grey::filled(framed, [a]));
            same_at_every_level::<3>(roi.size(), |dst| {
                paste(dst, layer.view().crop(roi), alpha.view().crop(roi));
            });
        }
    }

    #[test]
    fn a_plane_blends_as_a_channel_does() {
        let size = Size::new(61, 3);
        let (layer, alpha) = (noise::<1>(size, 1), noise::<1>(size, 2));
        let thrice = |g: &Grey| {
            Rgb::from_vec(size, g.bytes_all().iter().flat_map(|v| [*v; 3]).collect()).unwrap()
        };
        let mut plane = noise::<1>(size, 3);
        let mut rgb = thrice(&plane);
        paste_plane(&mut plane.view_mut(), layer.view(), alpha.view());
        paste(&mut rgb.view_mut(), thrice(&layer).view(), alpha.view());
        assert_eq!(rgb, thrice(&plane));
        same_at_every_level::<1>(size, |dst| paste_plane(dst, layer.view(), alpha.view()));
    }

    #[test]
    fn only_the_region_changes() {
        let mut dst = Rgb::filled(Size::new(5, 4), [10, 20, 30]);
        let roi = Roi { x: 1, y: 1, width: 3, height: 2 };
        let layer = Rgb::filled(roi.size(), [200; 3]);
        let alpha = Grey::from_vec(roi.size(), vec![0, 255, 0, 0, 0, 255]).unwrap();
        paste(&mut dst.view_mut().crop(roi), layer.view(), alpha.view());
        for y in 0..4 {
            for x in 0..5 {
                let hit = (x, y) == (2, 1) || (x, y) == (3, 2);
                let want = if hit { [200; 3] } else { [10, 20, 30] };
                assert_eq!(dst.view().pixel(x, y), want, "{x} {y}");
            }
        }
    }
}
