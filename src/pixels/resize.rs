//! Resizes by area where an axis shrinks and bilinearly where it grows.

use crate::geometry::Size;
use crate::simd::{self, Level, float::Taps};
use crate::view::{View, ViewMut};

/// Which source pixels make each destination pixel of one axis.
#[derive(Debug)]
pub(crate) struct Axis {
    taps: Vec<Taps>,
    weights: Vec<f32>,
}

impl Axis {
    /// `from` and `to` are not 0.
    pub(crate) fn new(from: u32, to: u32) -> Self {
        let mut axis = Self {
            taps: Vec::with_capacity(to as usize),
            weights: Vec::with_capacity(from as usize + 2 * to as usize),
        };
        for i in 0..to {
            if to <= from { axis.area(i, from, to) } else { axis.linear(i, from, to) }
        }
        axis
    }

    /// Overlaps in units of 1/`to` source pixel, so that they are exact.
    fn area(&mut self, i: u32, from: u32, to: u32) {
        let (span, unit) = (u64::from(from), u64::from(to));
        let (low, high) = (u64::from(i) * span, (u64::from(i) + 1) * span);
        let (first, last) = (low / unit, (high - 1) / unit);
        self.taps.push((first as u32, self.weights.len() as u32, (last - first + 1) as u32));
        for k in first..=last {
            let overlap = high.min((k + 1) * unit) - low.max(k * unit);
            self.weights.push((overlap as f64 / span as f64) as f32);
        }
    }

    /// Half-pixel centres; the first and the last pixel go on beyond the edge.
    fn linear(&mut self, i: u32, from: u32, to: u32) {
        let at = (f64::from(i) + 0.5) * f64::from(from) / f64::from(to) - 0.5;
        let at = at.clamp(0.0, f64::from(from - 1));
        let (first, share) = (at.floor() as u32, at.fract() as f32);
        let count = if share > 0.0 { 2 } else { 1 };
        self.taps.push((first, self.weights.len() as u32, count));
        self.weights.push(1.0 - share);
        if share > 0.0 {
            self.weights.push(share);
        }
    }

    /// First source pixel of destination pixel `i`, and the weights from there on.
    #[inline(always)]
    pub(crate) fn at(&self, i: usize) -> (usize, &[f32]) {
        let (first, start, count) = self.taps[i];
        (first as usize, &self.weights[start as usize..(start + count) as usize])
    }
}

/// Scales all of `src` into all of `dst`: the area average on an axis that shrinks, bilinear with
/// half-pixel centres on one that grows. An empty source gives black.
pub fn resize<const C: usize>(src: View<'_, C>, dst: &mut ViewMut<'_, C>) {
    let (from, to) = (src.size(), dst.size());
    if to.pixels() == 0 {
        return;
    }
    if from.pixels() == 0 {
        (0..to.height).for_each(|y| dst.row_mut(y).fill(0));
    } else if from == to {
        (0..to.height).for_each(|y| dst.row_mut(y).copy_from_slice(src.row(y)));
    } else {
        let axes = (Axis::new(from.width, to.width), Axis::new(from.height, to.height));
        let level = Level::current();
        if level == Level::SCALAR {
            scalar(src, &axes, dst);
        } else {
            by_rows(level, src, &axes, dst);
        }
    }
}

/// The definition: down each column first, then across.
fn scalar<const C: usize>(
    src: View<'_, C>,
    (across, down): &(Axis, Axis),
    dst: &mut ViewMut<'_, C>,
) {
    let Size { width, height } = dst.size();
    for y in 0..height {
        let (top, rows) = down.at(y as usize);
        let out = dst.row_mut(y);
        for x in 0..width as usize {
            let (left, columns) = across.at(x);
            for c in 0..C {
                let mut sum = 0.0;
                for (i, wx) in columns.iter().enumerate() {
                    let mut column = 0.0;
                    for (j, wy) in rows.iter().enumerate() {
                        column += f32::from(src.row((top + j) as u32)[(left + i) * C + c]) * wy;
                    }
                    sum += column * wx;
                }
                out[x * C + c] = (sum + 0.5) as u8;
            }
        }
    }
}

/// The same sums, a row at a time.
fn by_rows<const C: usize>(
    level: Level,
    src: View<'_, C>,
    (across, down): &(Axis, Axis),
    dst: &mut ViewMut<'_, C>,
) {
    let (from, to) = (src.size(), dst.size());
    let width = from.width as usize * C;
    // Pixels are read and written in fours.
    let mut columns = vec![0.0; width + 4];
    let mut pixels = vec![0.0; to.width as usize * C + 4];
    for y in 0..to.height {
        let (top, weights) = down.at(y as usize);
        let rows = &src.data()[top * src.stride()..];
        simd::float::columns(level, rows, src.stride(), weights, &mut columns[..width]);
        let out = dst.row_mut(y);
        if from.width == to.width {
            simd::float::to_bytes(level, &columns, out);
        } else {
            simd::float::across::<C>(level, &columns, &across.taps, &across.weights, &mut pixels);
            simd::float::to_bytes(level, &pixels, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simd::tests::{noise, same_at_every_level};
    use crate::view::{Grey, Image, Rgb};

    fn resized(width: u32, height: u32, data: &[u8], to: Size) -> Vec<u8> {
        let src = Grey::from_vec(Size::new(width, height), data.to_vec()).unwrap();
        let mut out = Grey::filled(to, [99]);
        resize(src.view(), &mut out.view_mut());
        out.into_vec()
    }

    #[test]
    fn shrinking_averages_by_area() {
        let halved = resized(4, 2, &[0, 10, 20, 30, 40, 50, 60, 70], Size::new(2, 1));
        assert_eq!(halved, [25, 45]);
        // 3 to 2: the middle pixel is shared.
        assert_eq!(resized(3, 1, &[0, 90, 240], Size::new(2, 1)), [30, 190]);
    }

    #[test]
    fn growing_is_bilinear_with_half_pixel_centres() {
        assert_eq!(resized(2, 1, &[0, 100], Size::new(4, 1)), [0, 25, 75, 100]);
        assert_eq!(resized(1, 2, &[0, 100], Size::new(1, 3)), [0, 50, 100]);
    }

    #[test]
    fn axes_may_go_different_ways() {
        assert_eq!(resized(2, 2, &[0, 100, 20, 120], Size::new(4, 1)), [10, 35, 85, 110]);
    }

    #[test]
    fn empty_sides_end() {
        assert!(resized(2, 1, &[1, 2], Size::new(0, 5)).is_empty());
        assert_eq!(resized(0, 3, &[], Size::new(2, 1)), [0, 0]);
    }

    proptest! {
        #[test]
        fn every_level_gives_the_same_bytes(
            (w, h) in (1_u32..70, 1_u32..9),
            (tw, th) in (1_u32..70, 1_u32..9),
            seed in any::<u32>(),
        ) {
            let (framed, to) = (Size::new(w + 3, h + 2), Size::new(tw, th));
            let roi = crate::geometry::Roi { x: 2, y: 1, width: w, height: h };
            let (rgb, grey, two) = (noise::<3>(framed, seed), noise::<1>(framed, seed), noise::<2>(framed, seed));
            same_at_every_level::<3>(to, |dst| resize(rgb.view().crop(roi), dst));
            same_at_every_level::<1>(to, |dst| resize(grey.view().crop(roi), dst));
            same_at_every_level::<2>(to, |dst| resize(two.view().crop(roi), dst));
        }

        #[test]
        fn one_colour_stays(
            (w, h) in (1_u32..40, 1_u32..40),
            (tw, th) in (1_u32..40, 1_u32..40),
            colour in any::<[u8; 3]>(),
        ) {
            let src = Rgb::filled(Size::new(w, h), colour);
            let mut out = Rgb::filled(Size::new(tw, th), [0; 3]);
            resize(src.view(), &mut out.view_mut());
            prop_assert_eq!(&out, &Rgb::filled(out.size(), colour));
        }

        #[test]
        fn weights_of_an_axis_sum_to_one(from in 1_u32..3000, to in 1_u32..300) {
            let axis = Axis::new(from, to);
            for i in 0..to as usize {
                let (first, weights) = axis.at(i);
                prop_assert!(first + weights.len() <= from as usize);
                prop_assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-4);
            }
        }

        #[test]
        fn shrinking_keeps_the_mean(data in prop::collection::vec(any::<u8>(), 36 * 24)) {
            let mean = |v: &[u8]| v.iter().map(|p| f64::from(*p)).sum::<f64>() / v.len() as f64;
            let small = resized(36, 24, &data, Size::new(5, 7));
            prop_assert!((mean(&small) - mean(&data)).abs() < 0.5);
        }
    }

    #[test]
    fn strides_are_respected() {
        let data: Vec<u8> = (0..60).collect();
        let wide = Grey::from_vec(Size::new(10, 6), data).unwrap();
        let part = wide.view().crop(crate::geometry::Roi { x: 3, y: 1, width: 4, height: 4 });
        let mut out: Image<1> = Grey::filled(Size::new(2, 2), [0]);
        resize(part, &mut out.view_mut());
        assert_eq!(out.bytes_all(), [19, 21, 39, 41]);
    }
}
