//! Takes each destination pixel from where an affine map says in the source.

use crate::geometry::{Affine2, Point, Rect, Roi, Size};
use crate::resize;
use crate::simd::warp::{Line, Source};
use crate::simd::{self, Level};
use crate::view::{Image, View, ViewMut};

/// What lies beyond the source's edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border<const C: usize> {
    /// The nearest pixel.
    Replicate,
    /// One colour.
    Constant([u8; C]),
}

/// Weights of the two neighbours on one axis, in 1/2^14.
const ONE: i32 = 1 << 14;

/// Bilinear, rounded to nearest. `map` takes destination pixels to source pixels. Coordinates
/// that are not finite read as 0 or as far outside; an empty source gives the border's colour, or black.
pub fn affine<const C: usize>(
    src: View<'_, C>,
    map: &Affine2,
    dst: &mut ViewMut<'_, C>,
    border: Border<C>,
) {
    let Size { width, height } = dst.size();
    if src.size().pixels() == 0 {
        let colour = match border {
            Border::Replicate => [0; C],
            Border::Constant(colour) => colour,
        };
        for y in 0..height {
            dst.row_mut(y).chunks_exact_mut(C).for_each(|p| p.copy_from_slice(&colour));
        }
        return;
    }
    let (level, size) = (Level::current(), src.size());
    let source =
        Source { data: src.data(), stride: src.stride(), width: size.width, height: size.height };
    for y in 0..height {
        let (x0, y0) = (map.b * f64::from(y) + map.c, map.e * f64::from(y) + map.f);
        let line = Line { a: map.a, x0, d: map.d, y0 };
        let row = dst.row_mut(y);
        let mut x = 0;
        while x < width as usize {
            if C == 3 {
                x += simd::warp::run(level, source, &line, x, row);
            }
            // What stopped it is near the edge: a few pixels, then it may go on.
            let end = (x + 4).min(width as usize);
            for x in x..end {
                let at = (line.a * x as f64 + line.x0, line.d * x as f64 + line.y0);
                row[x * C..x * C + C].copy_from_slice(&sample(src, at, border));
            }
            x = end;
        }
    }
}

/// Whole pixel and share of the next one on an axis. Not a number is 0.
fn split(v: f64, low: f64, high: f64) -> (i32, i32) {
    let v = v.max(low).min(high);
    // Its floor: both bounds are small.
    let cut = f64::from(v as i32);
    let whole = if cut > v { cut - 1.0 } else { cut };
    (whole as i32, ((v - whole) * f64::from(ONE) + 0.5) as i32)
}

fn sample<const C: usize>(src: View<'_, C>, (x, y): (f64, f64), border: Border<C>) -> [u8; C] {
    let Size { width, height } = src.size();
    let (right, bottom) = (f64::from(width) - 1.0, f64::from(height) - 1.0);
    let beyond = if border == Border::Replicate { 0.0 } else { 1.0 };
    let (x0, wx) = split(x, -beyond, right + beyond);
    let (y0, wy) = split(y, -beyond, bottom + beyond);
    let tap = |x: i32, y: i32| match border {
        Border::Constant(colour) if x < 0 || y < 0 || x >= width as i32 || y >= height as i32 => {
            colour
        }
        _ => src.pixel((x as u32).min(width - 1), (y as u32).min(height - 1)),
    };
    let (p00, p10) = (tap(x0, y0), tap(x0 + 1, y0));
    let (p01, p11) = (tap(x0, y0 + 1), tap(x0 + 1, y0 + 1));
    std::array::from_fn(|c| blend4([p00[c], p10[c], p01[c], p11[c]], wx, wy))
}

/// Top left, top right, bottom left, bottom right.
#[inline(always)]
fn blend4(p: [u8; 4], wx: i32, wy: i32) -> u8 {
    let across = |l: u8, r: u8| (i32::from(l) * (ONE - wx) + i32::from(r) * wx + 64) >> 7;
    ((across(p[0], p[1]) * (ONE - wy) + across(p[2], p[3]) * wy + (1 << 20)) >> 21) as u8
}

/// As [`affine`], but where the map shrinks by more than two, what falls under a destination
/// pixel is averaged first.
pub fn affine_area<const C: usize>(
    src: View<'_, C>,
    map: &Affine2,
    dst: &mut ViewMut<'_, C>,
    border: Border<C>,
) {
    let shrink = least_stretch(map);
    let footprint = footprint(map, dst.size()).and_then(|r| r.pixels(src.size()));
    let (true, Some(roi)) = (shrink > 2.0, footprint) else {
        return affine(src, map, dst, border);
    };
    let less = |side: u32| (f64::from(side) / shrink.floor()).round().max(1.0) as u32;
    let small_size = Size::new(less(roi.width), less(roi.height));
    let mut small = Image::filled(small_size, [0; C]);
    resize::resize(src.crop(roi), &mut small.view_mut());
    affine(small.view(), &onto(map, roi, small_size), dst, border);
}

/// The smaller singular value: by how much the map shrinks the picture at least.
fn least_stretch(m: &Affine2) -> f64 {
    let (sum, det) = (m.a * m.a + m.b * m.b + m.d * m.d + m.e * m.e, m.a * m.e - m.b * m.d);
    let root = (sum * sum - 4.0 * det * det).max(0.0).sqrt();
    ((sum - root) / 2.0).max(0.0).sqrt()
}

/// The part of the source that the destination sees, with room for the neighbours.
fn footprint(map: &Affine2, size: Size) -> Option<Rect> {
    let (w, h) = (size.width as f32, size.height as f32);
    let corners =
        [(-1.0, -1.0), (w, -1.0), (-1.0, h), (w, h)].map(|(x, y)| map.apply(Point::new(x, y)));
    let finite = corners.iter().all(|p| p.x.is_finite() && p.y.is_finite());
    finite.then(|| Rect::around(&corners)).flatten()
}

/// The same map onto a region that was scaled to `size`.
fn onto(map: &Affine2, roi: Roi, size: Size) -> Affine2 {
    let sx = f64::from(size.width) / f64::from(roi.width);
    let sy = f64::from(size.height) / f64::from(roi.height);
    let (x, y) = (f64::from(roi.x), f64::from(roi.y));
    map.then(&Affine2::translate(0.5 - x, 0.5 - y))
        .then(&Affine2::scale(sx, sy))
        .then(&Affine2::translate(-0.5, -0.5))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simd::tests::{noise, same_at_every_level};
    use crate::view::{Grey, Rgb};

    fn ramp(width: u32, height: u32) -> Grey {
        let data = (0..height).flat_map(|y| (0..width).map(move |x| (10 * x + 40 * y) as u8));
        Grey::from_vec(Size::new(width, height), data.collect()).unwrap()
    }

    fn warped<const C: usize>(
        src: &Image<C>,
        map: &Affine2,
        to: Size,
        border: Border<C>,
    ) -> Image<C> {
        let mut out = Image::filled(to, [99; C]);
        affine(src.view(), map, &mut out.view_mut(), border);
        out
    }

    #[test]
    fn identity_copies() {
        let src = ramp(5, 4);
        let out = warped(&src, &Affine2::IDENTITY, src.size(), Border::Replicate);
        assert_eq!(out, src);
    }

    #[test]
    fn halfway_is_the_rounded_mean_of_the_neighbours() {
        let src = Grey::from_vec(Size::new(2, 2), vec![0, 11, 100, 200]).unwrap();
        let at = |x, y| {
            let map = Affine2::translate(x, y);
            warped(&src, &map, Size::new(1, 1), Border::Replicate).bytes_all()[0]
        };
        assert_eq!([at(0.5, 0.0), at(0.0, 0.5), at(0.5, 0.5), at(0.25, 0.0)], [6, 50, 78, 3]);
    }

    #[test]
    fn borders_repeat_or_take_the_colour() {
        let src = ramp(2, 1);
        let at = |x, y, border| {
            warped(&src, &Affine2::translate(x, y), Size::new(1, 1), border).bytes_all()[0]
        };
        assert_eq!(at(7.0, -3.0, Border::Replicate), 10);
        assert_eq!(at(-7.0, 9.0, Border::Replicate), 0);
        assert_eq!(at(7.0, 0.0, Border::Constant([50])), 50);
        assert_eq!(at(1.5, 0.0, Border::Constant([50])), 30);
        assert_eq!(at(0.0, -0.5, Border::Constant([50])), 25);
    }

    #[test]
    fn impossible_maps_still_end() {
        let src = ramp(4, 4);
        let zero = Affine2::scale(0.0, 0.0);
        assert_eq!(warped(&src, &zero, Size::new(3, 2), Border::Replicate).bytes_all(), [0; 6]);
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300] {
            for map in [
                Affine2 { a: bad, ..Affine2::IDENTITY },
                Affine2 { e: bad, f: bad, ..Affine2::IDENTITY },
                Affine2 { a: bad, b: bad, c: bad, d: bad, e: bad, f: bad },
            ] {
                for border in [Border::Replicate, Border::Constant([7])] {
                    warped(&src, &map, Size::new(9, 9), border);
                    let mut out = Grey::filled(Size::new(9, 9), [0]);
                    affine_area(src.view(), &map, &mut out.view_mut(), border);
                }
            }
        }
    }

    #[test]
    fn empty_source_gives_the_border() {
        let src = Rgb::filled(Size::new(0, 3), [0; 3]);
        let to = Size::new(2, 2);
        let out = warped(&src, &Affine2::IDENTITY, to, Border::Constant([1, 2, 3]));
        assert_eq!(out, Rgb::filled(to, [1, 2, 3]));
        let out = warped(&src, &Affine2::IDENTITY, to, Border::Replicate);
        assert_eq!(out, Rgb::filled(to, [0; 3]));
    }

    #[test]
    fn area_averages_what_plain_sampling_misses() {
        // One-pixel stripes: their mean is 100.
        let data = (0..64 * 64).map(|i| if i % 2 == 0 { 0 } else { 200 }).collect();
        let src = Grey::from_vec(Size::new(64, 64), data).unwrap();
        let map = Affine2::scale(8.0, 8.0);
        let mut out = Grey::filled(Size::new(8, 8), [0]);
        affine(src.view(), &map, &mut out.view_mut(), Border::Replicate);
        assert!(out.bytes_all().iter().all(|v| *v == 0), "{:?}", out.bytes_all());
        affine_area(src.view(), &map, &mut out.view_mut(), Border::Replicate);
        assert!(out.bytes_all().iter().all(|v| v.abs_diff(100) <= 1), "{:?}", out.bytes_all());
    }

    #[test]
    fn area_keeps_the_place_of_a_ramp() {
        let data = (0..200).flat_map(|y| (0..200).map(move |x| (x + y) as u8 / 2));
        let src = Grey::from_vec(Size::new(200, 200), data.collect()).unwrap();
        let map = Affine2::rotate(0.3)
            .then(&Affine2::scale(5.0, 5.0))
            .then(&Affine2::translate(60.3, 20.7));
        let mut out = Grey::filled(Size::new(20, 20), [0]);
        affine_area(src.view(), &map, &mut out.view_mut(), Border::Replicate);
        for (x, y) in [(2, 2), (10, 10), (17, 9)] {
            let at = map.apply(Point::new(x as f32, y as f32));
            let want = (at.x + at.y) / 2.0;
            let got = f32::from(out.view().pixel(x, y)[0]);
            assert!((got - want).abs() < 1.5, "{got} {want} at {at:?}");
        }
    }

    #[test]
    fn samples_are_within_half_a_level_of_exact() {
        let source = noise::<3>(Size::new(50, 40), 3);
        let map = Affine2 { a: 0.71, b: -0.33, c: 11.2, d: 0.36, e: 0.69, f: 2.9 };
        let out = warped(&source, &map, Size::new(30, 30), Border::Replicate);
        for (x, y) in (0..30).flat_map(|y| (0..30).map(move |x| (x, y))) {
            let sx = map.a * f64::from(x) + map.b * f64::from(y) + map.c;
            let sy = map.d * f64::from(x) + map.e * f64::from(y) + map.f;
            let (sx, sy) = (sx.clamp(0.0, 49.0), sy.clamp(0.0, 39.0));
            let level = |dx: u32, dy: u32, c: usize| {
                let (x, y) = ((sx as u32 + dx).min(49), (sy as u32 + dy).min(39));
                f64::from(source.view().pixel(x, y)[c])
            };
            for c in 0..3 {
                let across =
                    |dy| level(0, dy, c) * (1.0 - sx.fract()) + level(1, dy, c) * sx.fract();
                let want = across(0) * (1.0 - sy.fract()) + across(1) * sy.fract();
                let got = f64::from(out.view().pixel(x, y)[c]);
                assert!((got - want).abs() < 0.53, "{got} {want}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_level_gives_the_same_bytes(
            (w, h) in (1_u32..40, 1_u32..40),
            (tw, th) in (1_u32..50, 1_u32..9),
            (angle, scale) in (-4.0_f64..4.0, 0.1_f64..6.0),
            (dx, dy) in (-10.0_f64..30.0, -10.0_f64..30.0),
            seed in any::<u32>(),
        ) {
            let framed = Size::new(w + 3, h + 2);
            let source = noise::<3>(framed, seed);
            let part = source.view().crop(Roi { x: 2, y: 1, width: w, height: h });
            let map = Affine2::rotate(angle)
                .then(&Affine2::scale(scale, scale))
                .then(&Affine2::translate(dx, dy));
            for border in [Border::Replicate, Border::Constant([9, 99, 199])] {
                let to = Size::new(tw, th);
                same_at_every_level::<3>(to, |dst| affine(part, &map, dst, border));
                same_at_every_level::<3>(to, |dst| affine_area(part, &map, dst, border));
            }
        }

        #[test]
        fn one_colour_stays_under_every_map(
            (w, h) in (1_u32..9, 1_u32..9),
            m in prop::array::uniform6(-20.0_f64..20.0),
            colour in any::<[u8; 3]>(),
        ) {
            let [a, b, c, d, e, f] = m;
            let src = Rgb::filled(Size::new(w, h), colour);
            let map = Affine2 { a, b, c, d, e, f };
            let mut out = Rgb::filled(Size::new(7, 5), [0; 3]);
            affine(src.view(), &map, &mut out.view_mut(), Border::Replicate);
            prop_assert_eq!(&out, &Rgb::filled(out.size(), colour));
            affine_area(src.view(), &map, &mut out.view_mut(), Border::Replicate);
            prop_assert_eq!(&out, &Rgb::filled(out.size(), colour));
        }
    }
}
