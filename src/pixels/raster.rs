//! Draws shapes of a mask. Each call meets what is there already: alpha only ever falls.

use crate::geometry::{Affine2, Point, Roi};
use crate::simd::{self, Level, mask};
use crate::view::{Grey, ViewMut};

/// Most corners of a polygon that is drawn.
const CORNERS: usize = 4096;
/// Pixels of a row that are worked on at once.
const STRIP: usize = 256;

/// Per-pixel minimum of two masks of one size.
///
/// # Panics
/// When the sizes differ.
pub fn meet(alpha: &mut Grey, other: &Grey) {
    assert_eq!(alpha.size(), other.size());
    for (a, b) in alpha.bytes_all_mut().iter_mut().zip(other.bytes_all()) {
        *a = (*a).min(*b);
    }
}

/// Per-pixel maximum of two masks of one size.
///
/// # Panics
/// When the sizes differ.
pub fn join(alpha: &mut Grey, other: &Grey) {
    assert_eq!(alpha.size(), other.size());
    for (a, b) in alpha.bytes_all_mut().iter_mut().zip(other.bytes_all()) {
        *a = (*a).max(*b);
    }
}

/// 255 minus each value.
pub fn invert(alpha: &mut Grey) {
    alpha.bytes_all_mut().iter_mut().for_each(|a| *a = 255 - *a);
}

/// Least value 0..=1 within `reach` pixels of a point, across and down; 1 where nothing is.
#[must_use]
pub fn least(alpha: &Grey, at: Point, reach: u32) -> f32 {
    let size = alpha.size();
    let range = |v: f32, max: u32| {
        let v = v.clamp(0.0, max as f32) as u32;
        v.saturating_sub(reach)..(v + reach + 1).min(max)
    };
    let rows = range(at.y, size.height);
    let columns = range(at.x, size.width);
    let row = |y| alpha.view().row(y)[columns.start as usize..columns.end as usize].iter().min();
    f32::from(rows.filter_map(row).min().copied().unwrap_or(255)) / 255.0
}

/// 0 at 0, 1 at 1, flat at both.
#[must_use]
pub fn smooth(t: f32) -> f32 {
    mask::smooth(t)
}

/// Meets a mask of the size of `roi` with one that is given as 0..=1 for each pixel of the picture.
fn each(alpha: &mut ViewMut<'_, 1>, roi: Roi, value: impl Fn(f32, f32) -> f32) {
    for y in 0..alpha.size().height {
        let line = (roi.y + y) as f32;
        for (x, a) in alpha.row_mut(y).iter_mut().enumerate() {
            if *a > 0 {
                let v = value((roi.x as usize + x) as f32, line);
                // What is not a number is outside.
                *a = (*a).min((v * 255.0 + 0.5).clamp(0.0, 255.0) as u8);
            }
        }
    }
}

/// The same with levels that are made strip by strip, from a column and a line of the picture on.
fn strips(roi: Roi, alpha: &mut Grey, make: impl Fn(Level, u32, f32, &mut [f32])) {
    let level = Level::current();
    let (mut values, mut bytes) = ([0.0; STRIP], [0; STRIP]);
    for y in 0..alpha.size().height {
        let mut view = alpha.view_mut();
        let strips = view.row_mut(y).chunks_mut(STRIP);
        for (first, strip) in (roi.x..).step_by(STRIP).zip(strips) {
            let (values, bytes) = (&mut values[..strip.len()], &mut bytes[..strip.len()]);
            make(level, first, (roi.y + y) as f32, values);
            // What is not a number is outside.
            simd::float::to_bytes(level, values, bytes);
            strip.iter_mut().zip(bytes).for_each(|(a, v)| *a = (*a).min(*v));
        }
    }
}

/// Filled polygon (even-odd) in picture coordinates: 0 on the outline, 1 at `feather` pixels
/// inside it, smooth between. Nothing is inside when a corner is not finite.
pub fn polygon(points: &[Point], feather: f32, roi: Roi, alpha: &mut Grey) {
    let bad = |p: &Point| p.x.abs() > 1e6 || p.y.abs() > 1e6 || p.x.is_nan() || p.y.is_nan();
    if points.len() < 3 || points.len() > CORNERS || points.iter().any(bad) {
        alpha.bytes_all_mut().fill(0);
        return;
    }
    let size = alpha.size();
    let (w, h) = (size.width as usize, size.height as usize);
    let reach = feather.clamp(1.0, (w + h) as f32);
    let near = |at: usize| {
        let (a, b) = (points[at], points[(at + 1) % points.len()]);
        let move_ = |p: Point| (p.x - roi.x as f32, p.y - roi.y as f32);
        (move_(a), move_(b))
    };
    // Squared distance to the outline, where it is within reach.
    let mut distance = vec![reach * reach; w * h];
    for i in 0..points.len() {
        let (a, b) = near(i);
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let inverse = 1.0 / (dx * dx + dy * dy).max(1e-12);
        let cut = |v: f32, max: usize| v.clamp(0.0, max as f32) as usize;
        let rows = cut((a.1.min(b.1) - reach).floor(), h)..cut((a.1.max(b.1) + reach).ceil(), h);
        let cols = cut((a.0.min(b.0) - reach).floor(), w)..cut((a.0.max(b.0) + reach).ceil(), w);
        for y in rows {
            let py = y as f32 - a.1;
            for (x, d) in cols.clone().zip(&mut distance[y * w + cols.start..y * w + cols.end]) {
                let px = x as f32 - a.0;
                let t = ((px * dx + py * dy) * inverse).clamp(0.0, 1.0);
                let (ex, ey) = (px - t * dx, py - t * dy);
                *d = d.min(ex * ex + ey * ey);
            }
        }
    }
    let mut crossings = Vec::new();
    for y in 0..h {
        let line = y as f32;
        crossings.clear();
        for i in 0..points.len() {
            let (a, b) = near(i);
            if (a.1 <= line) != (b.1 <= line) {
                crossings.push(a.0 + (line - a.1) / (b.1 - a.1) * (b.0 - a.0));
            }
        }
        crossings.sort_by(f32::total_cmp);
        let row = &mut alpha.bytes_all_mut()[y * w..(y + 1) * w];
        let mut next = 0;
        for (x, (a, d)) in row.iter_mut().zip(&distance[y * w..(y + 1) * w]).enumerate() {
            while next < crossings.len() && crossings[next] <= x as f32 {
                next += 1;
            }
            let inside = next % 2 == 1;
            let value = if inside { (smooth(d.sqrt() / reach) * 255.0 + 0.5) as u8 } else { 0 };
            *a = (*a).min(value);
        }
    }
}

/// Ellipse that `to_picture` makes of the unit circle: 0 on the outline, 1 at about `feather`
/// pixels inside it. Nothing is inside when the map is singular or not finite.
pub fn ellipse(to_picture: &Affine2, feather: f32, roi: Roi, alpha: &mut Grey) {
    let Some(back) = to_picture.inverse() else {
        alpha.bytes_all_mut().fill(0);
        return;
    };
    let oval = mask::Oval {
        across: [back.a as f32, back.b as f32, back.c as f32],
        down: [back.d as f32, back.e as f32, back.f as f32],
        feather: feather.max(1.0),
    };
    strips(roi, alpha, |level, first, y, values| mask::oval(level, oval, first, y, values));
}

/// The crop of `side` pixels that `to_picture` takes to the picture, softened: 1 inside, exactly 0
/// at the centres of its outermost pixels and beyond.
///
/// `padding` is cut off at the top, right, bottom and left in percent of the side; `blur` 0..=1
/// is the softness as a share of half the side. The inner slope is that of a box blurred by a
/// Gaussian of side * blur / 8, which is the field's box mask, led to 0 at the edge.
pub fn crop_box(
    to_picture: &Affine2,
    side: f32,
    padding: [f32; 4],
    blur: f32,
    roi: Roi,
    alpha: &mut Grey,
) {
    let back = to_picture.inverse().filter(|_| side.is_finite() && side >= 1.0);
    let Some(back) = back else {
        alpha.bytes_all_mut().fill(0);
        return;
    };
    let blur = if blur.is_finite() { blur.clamp(0.0, 1.0) } else { 1.0 };
    let amount = (side * 0.5 * blur).floor();
    let edge = (amount / 2.0).floor().max(1.0);
    let wide = (amount / 4.0).max(0.25) * std::f32::consts::SQRT_2;
    let cut = padding.map(|p| {
        let pad = if p.is_finite() { p.clamp(0.0, 50.0) / 100.0 * side } else { side };
        (pad - edge).max(0.0)
    });
    let framed = mask::Framed {
        across: [back.a as f32, back.b as f32, back.c as f32],
        down: [back.d as f32, back.e as f32, back.f as f32],
        side,
        cut,
        slope: mask::Slope::new(edge, wide),
    };
    strips(roi, alpha, |level, first, y, values| mask::framed(level, framed, first, y, values));
}

/// A map of values 0..=1, `width` by `height`, that `to_picture` lays over the picture; bilinear,
/// the border repeated. Nothing is inside when the sizes do not fit or the map is singular.
pub fn map(
    values: &[f32],
    width: usize,
    height: usize,
    to_picture: &Affine2,
    roi: Roi,
    alpha: &mut Grey,
) {
    let back = to_picture
        .inverse()
        .filter(|_| width > 0 && height > 0 && width.checked_mul(height) == Some(values.len()));
    let Some(back) = back else {
        alpha.bytes_all_mut().fill(0);
        return;
    };
    each(&mut alpha.view_mut(), roi, |x, y| {
        let p = back.apply(Point::new(x, y));
        let (u, v) = (p.x.clamp(0.0, (width - 1) as f32), p.y.clamp(0.0, (height - 1) as f32));
        let (x0, y0) = (u as usize, v as usize);
        let (x1, y1) = ((x0 + 1).min(width - 1), (y0 + 1).min(height - 1));
        let (fx, fy) = (u - x0 as f32, v - y0 as f32);
        let at = |x: usize, y: usize| values[y * width + x];
        let top = at(x0, y0) * (1.0 - fx) + at(x1, y0) * fx;
        let bottom = at(x0, y1) * (1.0 - fx) + at(x1, y1) * fx;
        top * (1.0 - fy) + bottom * fy
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Size;
    use crate::simd::tests::{noise, same_at_every_level};
    use proptest::prelude::*;

    fn full(roi: Roi) -> Grey {
        Grey::filled(roi.size(), [255])
    }

    fn rect(x0: f32, y0: f32, x1: f32, y1: f32) -> Vec<Point> {
        let p = Point::new;
        vec![p(x0, y0), p(x1, y0), p(x1, y1), p(x0, y1)]
    }

    #[test]
    fn a_polygon_rises_from_zero_on_its_outline() {
        let roi = Roi { x: 10, y: 20, width: 60, height: 60 };
        let mut alpha = full(roi);
        polygon(&rect(20.0, 30.0, 60.0, 70.0), 8.0, roi, &mut alpha);
        let at = |x: u32, y: u32| alpha.view().pixel(x - roi.x, y - roi.y)[0];
        assert_eq!(at(15, 50), 0);
        assert_eq!(at(20, 50), 0);
        assert_eq!(at(24, 50), 128);
        assert_eq!(at(28, 50), 255);
        assert_eq!(at(40, 50), 255);
        assert_eq!(at(60, 50), 0);
        assert_eq!(at(65, 50), 0);
        assert_eq!(at(40, 71), 0);
    }

    #[test]
    fn a_shape_only_ever_takes_away() {
        let roi = Roi { x: 0, y: 0, width: 40, height: 40 };
        let mut alpha = full(roi);
        polygon(&rect(0.0, 0.0, 20.0, 39.0), 1.0, roi, &mut alpha);
        polygon(&rect(10.0, 0.0, 39.0, 39.0), 1.0, roi, &mut alpha);
        for x in 0..40 {
            let expected = if (11..20).contains(&x) { 255 } else { 0 };
            assert_eq!(alpha.view().pixel(x, 20)[0], expected, "{x}");
        }
    }

    #[test]
    fn an_ellipse_ends_where_its_axes_end() {
        let roi = Roi { x: 0, y: 0, width: 100, height: 100 };
        let to = Affine2::scale(30.0, 40.0).then(&Affine2::translate(50.0, 50.0));
        let mut alpha = full(roi);
        ellipse(&to, 10.0, roi, &mut alpha);
        let at = |x, y| alpha.view().pixel(x, y)[0];
        assert_eq!((at(20, 50), at(80, 50), at(50, 10), at(50, 90)), (0, 0, 0, 0));
        assert!((at(25, 50) as i32 - 128).abs() < 8 && (at(50, 15) as i32 - 128).abs() < 8);
        assert_eq!((at(31, 50), at(50, 21), at(50, 50)), (255, 255, 255));
    }

    #[test]
    fn an_ellipse_turns_with_its_map() {
        let roi = Roi { x: 0, y: 0, width: 100, height: 100 };
        let to = Affine2::scale(40.0, 10.0)
            .then(&Affine2::rotate(std::f64::consts::FRAC_PI_2))
            .then(&Affine2::translate(50.0, 50.0));
        let mut alpha = full(roi);
        ellipse(&to, 1.0, roi, &mut alpha);
        assert_eq!(alpha.view().pixel(50, 15), [255]);
        assert_eq!(alpha.view().pixel(15, 50), [0]);
    }

    /// Row 64 of the field's box mask, 128 pixels, blur 0.3 (golden.json), pixels 6 to 27.
    const GOLDEN: [f32; 22] = [
        0.300_081_3,
        0.376_373_95,
        0.458_235_5,
        0.542_087_7,
        0.624_174_1,
        0.701_012_3,
        0.769_816_46,
        0.828_734_3,
        0.876_998_54,
        0.914_822,
        0.943_178_06,
        0.963_514_7,
        0.977_467_66,
        0.986_625_97,
        0.992_376_15,
        0.995_830_3,
        0.997_815_3,
        0.998_906_3,
        0.999_480_2,
        0.999_768_9,
        0.999_907_85,
        0.999_971_75,
    ];

    #[test]
    fn a_crop_box_has_the_golden_slope_inside_and_zero_at_its_edge() {
        let roi = Roi { x: 0, y: 0, width: 128, height: 128 };
        let mut alpha = full(roi);
        crop_box(&Affine2::IDENTITY, 128.0, [0.0; 4], 0.3, roi, &mut alpha);
        let row = alpha.view().row(64).to_vec();
        for (i, golden) in GOLDEN.iter().enumerate() {
            let got = f32::from(row[i + 6]) / 255.0;
            assert!((got - golden).abs() < 0.04, "pixel {}: {got} against {golden}", i + 6);
            assert_eq!(row[i + 6], row[127 - i - 6]);
        }
        assert_eq!((row[0], row[127]), (0, 0));
        assert_eq!(row[64], 255);
        // One pixel outside, as the paste sees it.
        let wide = Roi { x: 0, y: 0, width: 140, height: 140 };
        let mut alpha = full(wide);
        crop_box(&Affine2::translate(6.5, 6.5), 128.0, [0.0; 4], 0.3, wide, &mut alpha);
        assert!((0..140).all(|x| alpha.view().pixel(x, 6) == [0]));
        assert!((0..140).all(|y| alpha.view().pixel(6, y) == [0]));
        assert!((0..140).all(|y| alpha.view().pixel(134, y) == [0]));
    }

    #[test]
    fn the_least_value_is_found_within_reach_only() {
        let mut alpha = Grey::filled(Size::new(20, 10), [200]);
        alpha.view_mut().row_mut(4)[7] = 51;
        assert_eq!(least(&alpha, Point::new(9.0, 5.0), 2), 0.2);
        assert_eq!(least(&alpha, Point::new(9.0, 5.0), 1), 200.0 / 255.0);
        assert_eq!(least(&alpha, Point::new(19.0, 9.0), 3), 200.0 / 255.0);
        assert_eq!(least(&Grey::filled(Size::new(0, 0), [0]), Point::new(1.0, 1.0), 3), 1.0);
    }

    #[test]
    fn padding_moves_one_side_only() {
        let roi = Roi { x: 0, y: 0, width: 100, height: 100 };
        let mut alpha = full(roi);
        crop_box(&Affine2::IDENTITY, 100.0, [25.0, 0.0, 0.0, 0.0], 0.1, roi, &mut alpha);
        assert_eq!(alpha.view().pixel(50, 20), [0]);
        assert_eq!(alpha.view().pixel(50, 35), [255]);
        assert_eq!(alpha.view().pixel(50, 90), [255]);
    }

    #[test]
    fn a_map_is_laid_over_the_picture() {
        let roi = Roi { x: 50, y: 0, width: 50, height: 50 };
        let to = Affine2::scale(50.0, 50.0).then(&Affine2::translate(0.0, 0.0));
        let mut alpha = full(roi);
        map(&[0.0, 0.0, 1.0, 0.0, 0.0, 1.0], 3, 2, &to, roi, &mut alpha);
        assert_eq!(alpha.view().pixel(0, 10), [0]);
        assert_eq!(alpha.view().pixel(25, 10), [128]);
        let mut alpha = full(roi);
        map(&[0.5; 5], 3, 2, &to, roi, &mut alpha);
        assert!(alpha.bytes_all().iter().all(|a| *a == 0));
    }

    #[test]
    fn what_is_no_number_is_outside() {
        let roi = Roi { x: 0, y: 0, width: 20, height: 20 };
        let nan = Affine2 { a: f64::NAN, ..Affine2::IDENTITY };
        for draw in 0..5 {
            let mut alpha = full(roi);
            match draw {
                0 => polygon(&rect(0.0, f32::NAN, 20.0, 20.0), 1.0, roi, &mut alpha),
                1 => ellipse(&nan, 1.0, roi, &mut alpha),
                2 => crop_box(&nan, 10.0, [0.0; 4], 0.3, roi, &mut alpha),
                3 => map(&[f32::NAN; 4], 2, 2, &Affine2::IDENTITY, roi, &mut alpha),
                _ => crop_box(&Affine2::IDENTITY, f32::NAN, [0.0; 4], 0.3, roi, &mut alpha),
            }
            assert!(alpha.bytes_all().iter().all(|a| *a == 0), "{draw}");
        }
    }

    #[test]
    fn a_box_without_blur_is_whole_but_for_its_edge() {
        let roi = Roi { x: 0, y: 0, width: 40, height: 40 };
        let mut alpha = full(roi);
        crop_box(&Affine2::translate(10.0, 10.0), 20.0, [0.0; 4], 0.0, roi, &mut alpha);
        for (x, level) in [(9, 0), (10, 0), (13, 255), (26, 255), (29, 0), (30, 0)] {
            assert_eq!(alpha.view().pixel(x, 20), [level], "{x}");
        }
    }

    proptest! {
        #[test]
        fn every_level_draws_the_same_oval(
            (w, h) in (1u32..600, 1u32..9),
            m in prop::array::uniform6(-300f64..300.0),
            feather in 0f32..50.0,
            seed in any::<u32>(),
        ) {
            let [a, b, c, d, e, f] = m;
            let roi = Roi { x: 7, y: 3, width: w, height: h };
            same_at_every_level::<1>(roi.size(), |dst| {
                let mut alpha = noise::<1>(roi.size(), seed);
                ellipse(&Affine2 { a, b, c, d, e, f }, feather, roi, &mut alpha);
                (0..h).for_each(|y| dst.row_mut(y).copy_from_slice(alpha.view().row(y)));
            });
        }

        #[test]
        fn no_polygon_panics(
            points in proptest::collection::vec((-2e6f32..2e6, -2e6f32..2e6), 0..9),
            feather in -1f32..1e9,
        ) {
            let roi = Roi { x: 2, y: 3, width: 17, height: 9 };
            let mut alpha = full(roi);
            let points: Vec<_> = points.iter().map(|p| Point::new(p.0, p.1)).collect();
            polygon(&points, feather, roi, &mut alpha);
            prop_assert_eq!(alpha.size(), Size::new(17, 9));
        }
    }
}
