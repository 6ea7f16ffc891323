//! Blurs, the distance to a mask's outline, and sharpness.

use crate::geometry::Size;
use crate::resize;
use crate::simd::{self, Level, float::LANES};
use crate::view::{Image, View};

/// From this deviation on the picture is made smaller first.
const PYRAMID_SIGMA: f32 = 6.0;
/// Largest radius of a box.
pub const BOX_RADIUS: u32 = 1400;

/// Gaussian blur of deviation `sigma` in pixels; nothing below 0.05 or when it is not a number.
/// Edges mirror. From 6 on it works on a smaller copy: within 3 levels of the exact blur.
pub fn gaussian<const C: usize>(image: &mut Image<C>, sigma: f32) {
    let size = image.size();
    if size.pixels() == 0 || sigma.is_nan() || sigma < 0.05 {
        return;
    }
    if sigma < PYRAMID_SIGMA {
        return convolve(image, &kernel(sigma));
    }
    let longest = size.width.max(size.height) as f32;
    let factor = (sigma / 3.0).floor().min(longest);
    let less = |side: u32| (side as f32 / factor).round().max(1.0) as u32;
    let mut small = Image::filled(Size::new(less(size.width), less(size.height)), [0; C]);
    resize::resize(image.view(), &mut small.view_mut());
    // The average of `factor` pixels and the way back add a quarter of its square.
    let rest = ((sigma / factor).powi(2) - 0.25).sqrt().min(PYRAMID_SIGMA * 4.0);
    convolve(&mut small, &kernel(rest));
    resize::resize(small.view(), &mut image.view_mut());
}

/// Weights 0..=radius of one side; together with the mirrored side they sum to 1.
fn kernel(sigma: f32) -> Vec<f32> {
    let radius = (sigma * 3.5).ceil().max(1.0) as usize;
    let weight = |i: usize| (-0.5 * (i as f64 / f64::from(sigma)).powi(2)).exp();
    let sum: f64 = weight(0) + 2.0 * (1..=radius).map(weight).sum::<f64>();
    (0..=radius).map(|i| (weight(i) / sum) as f32).collect()
}

/// Across each row, then down each column, in place; only as many rows as the kernel is high
/// are kept besides.
fn convolve<const C: usize>(image: &mut Image<C>, kernel: &[f32]) {
    let (level, size, radius) = (Level::current(), image.size(), kernel.len() - 1);
    let (row, height) = (size.width as usize * C, size.height as usize);
    let wide = row.next_multiple_of(LANES);
    let mut padded = vec![0.0_f32; wide + 2 * radius * C];
    let mut sums = vec![0.0_f32; wide];
    let kept = (2 * radius + 1).min(height);
    let mut ring = vec![0.0_f32; wide * kept];
    let mut rows = vec![0; 2 * radius + 1];
    let mut blurred = 0;
    for y in 0..height {
        while blurred < (y + radius + 1).min(height) {
            pad::<C>(&image.bytes_all()[blurred * row..][..row], radius, &mut padded);
            let out = &mut ring[blurred % kept * wide..][..wide];
            simd::float::blur_line(level, &padded, radius * C, C, kernel, out);
            blurred += 1;
        }
        for (t, at) in rows.iter_mut().enumerate() {
            *at = mirror(y as isize + t as isize - radius as isize, height) % kept * wide;
        }
        simd::float::blur_down(level, &ring, &rows, kernel, &mut sums);
        simd::float::to_bytes(level, &sums, &mut image.bytes_all_mut()[y * row..][..row]);
    }
}

/// The pixel of 0..length that stands for `at`: edges mirror between pixels.
fn mirror(at: isize, length: usize) -> usize {
    let length = length as isize;
    let at = at.rem_euclid(2 * length);
    at.min(2 * length - 1 - at) as usize
}

/// A row with `radius` mirrored pixels on both sides.
fn pad<const C: usize>(row: &[u8], radius: usize, out: &mut [f32]) {
    let width = row.len() / C;
    let mut put = |to: usize, from: usize| {
        for c in 0..C {
            out[to * C + c] = f32::from(row[from * C + c]);
        }
    };
    for i in 0..radius {
        put(i, mirror(i as isize - radius as isize, width));
        put(radius + width + i, mirror((width + i) as isize, width));
    }
    let middle = &mut out[radius * C..radius * C + row.len()];
    middle.iter_mut().zip(row).for_each(|(o, v)| *o = f32::from(*v));
}

/// The mean of the square of 2 `radius` + 1 pixels, in place; edges repeat. Radii above [`BOX_RADIUS`] are that.
pub fn box_blur<const C: usize>(image: &mut Image<C>, radius: u32) {
    let size = image.size();
    if size.pixels() == 0 || radius == 0 {
        return;
    }
    let (level, radius) = (Level::current(), radius.min(BOX_RADIUS) as usize);
    let (row, height) = (size.width as usize * C, size.height as usize);
    let scale = 1.0 / ((2 * radius + 1) as f32).powi(2);
    let mut columns = vec![0_u32; row];
    for y in -(radius as isize)..=radius as isize {
        let y = y.clamp(0, height as isize - 1) as usize;
        let row = &image.bytes_all()[y * row..][..row];
        columns.iter_mut().zip(row).for_each(|(c, v)| *c += u32::from(*v));
    }
    let mut scratch = Scratch::new::<C>(size.width as usize, radius);
    // Rows as they were, from the topmost that is still to be taken away.
    let kept = (radius + 1).min(height);
    let mut ring = vec![0_u8; row * kept];
    for y in 0..height {
        let line = &mut image.bytes_all_mut()[y * row..][..row];
        ring[y % kept * row..][..row].copy_from_slice(line);
        if level == Level::SCALAR {
            box_row::<C>(&columns, radius, scale, line);
        } else {
            scratch.row::<C>(level, &columns, radius, scale, line);
        }
        let old = &ring[y.saturating_sub(radius) % kept * row..][..row];
        let below = (y + radius + 1).min(height - 1);
        let new = match below > y {
            true => &image.bytes_all()[below * row..][..row],
            false => &ring[below % kept * row..][..row],
        };
        simd::sum::slide(level, &mut columns, new, old);
    }
}

/// The definition across a row.
fn box_row<const C: usize>(columns: &[u32], radius: usize, scale: f32, out: &mut [u8]) {
    let (reach, last) = (radius as isize, (columns.len() / C) as isize - 1);
    for c in 0..C {
        let at = |x: isize| columns[x.clamp(0, last) as usize * C + c];
        let mut sum: u32 = (-reach..=reach).map(at).sum();
        for x in 0..=last {
            out[x as usize * C + c] = (sum as f32 * scale + 0.5) as u8;
            sum = sum.wrapping_add(at(x + reach + 1)).wrapping_sub(at(x - reach));
        }
    }
}

/// What the fast way across a row needs.
struct Scratch {
    before: Vec<u32>,
    means: Vec<f32>,
}

impl Scratch {
    fn new<const C: usize>(width: usize, radius: usize) -> Self {
        let before = vec![0; (width + 2 * radius + 1) * C + 4];
        Self { before, means: vec![0.0; width * C] }
    }

    fn row<const C: usize>(
        &mut self,
        level: Level,
        columns: &[u32],
        radius: usize,
        scale: f32,
        out: &mut [u8],
    ) {
        simd::sum::prefix::<C>(level, columns, radius, &mut self.before);
        let after = &self.before[(2 * radius + 1) * C..];
        simd::sum::scaled(level, &self.before, after, scale, &mut self.means);
        simd::float::to_bytes(level, &self.means, out);
    }
}

/// For every pixel of the mask that is 128 or more: how far the nearest one below lies, in
/// pixels (Euclidean, exact); 0 for those below. What lies beyond the edge does not count; where
/// no pixel is below 128, the distance is width + height.
pub fn distance_inside(mask: View<'_, 1>, out: &mut Vec<f32>) {
    let Size { width, height } = mask.size();
    let (width, height) = (width as usize, height as usize);
    out.clear();
    out.resize(width * height, 0.0);
    if out.is_empty() {
        return;
    }
    let far = (width + height) as f32;
    // Down and up each column: distance within the column.
    for y in 0..height {
        let (done, rest) = out.split_at_mut(y * width);
        let above = if y > 0 { &done[(y - 1) * width..] } else { &[][..] };
        for (x, &m) in mask.row(y as u32).iter().enumerate() {
            let one_more = above.get(x).map_or(far, |a| a + 1.0);
            rest[x] = if m < 128 { 0.0 } else { one_more.min(far) };
        }
    }
    for y in (0..height.saturating_sub(1)).rev() {
        let (upper, lower) = out.split_at_mut((y + 1) * width);
        for (u, l) in upper[y * width..].iter_mut().zip(&lower[..width]) {
            *u = u.min(l + 1.0);
        }
    }
    // Across each row: the lower envelope of parabolas.
    let mut envelope = Envelope::new(width);
    for row in out.chunks_exact_mut(width) {
        // A pixel at 0 hides what lies beyond it: each stretch between two of them stands alone.
        let mut at = 0;
        while let Some(i) = row[at..].iter().position(|v| *v > 0.0) {
            let first = (at + i).saturating_sub(1);
            let end = row[at + i..].iter().position(|v| *v == 0.0);
            let end = end.map_or(width, |n| at + i + n + 1);
            envelope.run(&mut row[first..end], far);
            at = end;
        }
    }
}

/// Lower envelope of the parabolas (x - i)^2 + column(i)^2.
struct Envelope {
    squares: Vec<f64>,
    apex: Vec<usize>,
    start: Vec<f64>,
}

impl Envelope {
    fn new(width: usize) -> Self {
        Self { squares: vec![0.0; width], apex: vec![0; width], start: vec![0.0; width] }
    }

    fn run(&mut self, row: &mut [f32], far: f32) {
        for (s, v) in self.squares.iter_mut().zip(row.iter()) {
            *s = f64::from(*v).powi(2);
        }
        let mut top = 0;
        (self.apex[0], self.start[0]) = (0, f64::NEG_INFINITY);
        for i in 1..row.len() {
            let height = self.squares[i] + (i * i) as f64;
            loop {
                let j = self.apex[top];
                let meet = (height - self.squares[j] - (j * j) as f64) / (2 * (i - j)) as f64;
                if meet > self.start[top] {
                    top += 1;
                    (self.apex[top], self.start[top]) = (i, meet);
                    break;
                }
                top -= 1;
            }
        }
        let mut k = 0;
        for (x, v) in row.iter_mut().enumerate() {
            while k < top && self.start[k + 1] < x as f64 {
                k += 1;
            }
            let apex = self.apex[k];
            let along = x as f64 - apex as f64;
            *v = ((along * along + self.squares[apex]).sqrt() as f32).min(far);
        }
    }
}

/// Variance of the Laplacian (0 1 0, 1 -4 1, 0 1 0): low in blurred pictures.
#[must_use]
pub fn laplacian_variance(grey: View<'_, 1>) -> f64 {
    let Size { width, height } = grey.size();
    if grey.size().pixels() == 0 {
        return 0.0;
    }
    let last = width as usize - 1;
    let (mut sum, mut squares) = (0_i64, 0_i64);
    for y in 0..height {
        let (above, below) = (grey.row(y.saturating_sub(1)), grey.row((y + 1).min(height - 1)));
        let row = grey.row(y);
        for x in 0..=last {
            let around = [row[x.saturating_sub(1)], row[(x + 1).min(last)], above[x], below[x]];
            let value = around.iter().map(|v| i64::from(*v)).sum::<i64>() - 4 * i64::from(row[x]);
            sum += value;
            squares += value * value;
        }
    }
    let n = grey.size().pixels() as f64;
    let mean = sum as f64 / n;
    squares as f64 / n - mean * mean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simd::tests::{noise, same_at_every_level};
    use crate::view::{Grey, Rgb, ViewMut};

    /// Straight from the formula, in f64, at one pixel.
    fn gaussian_at(image: &Grey, sigma: f64, x: i32, y: i32) -> f64 {
        let Size { width, height } = image.size();
        let reach = (sigma * 5.0).ceil() as i32;
        let weight = |d: i32| (-0.5 * (f64::from(d) / sigma).powi(2)).exp();
        let (mut sum, mut total) = (0.0, 0.0);
        for dy in -reach..=reach {
            for dx in -reach..=reach {
                let w = weight(dx) * weight(dy);
                let px = mirror((x + dx) as isize, width as usize) as u32;
                let py = mirror((y + dy) as isize, height as usize) as u32;
                sum += w * f64::from(image.view().pixel(px, py)[0]);
                total += w;
            }
        }
        sum / total
    }

    fn largest_error(size: Size, sigma: f32) -> f64 {
        // Blocks, not noise: noise has nothing left to compare after a wide blur.
        let data = (0..size.height).flat_map(|y| {
            (0..size.width).map(move |x| if (x / 13 + y / 17) % 2 == 0 { 250 } else { 5 })
        });
        let source = Grey::from_vec(size, data.collect()).unwrap();
        let mut blurred = source.clone();
        gaussian(&mut blurred, sigma);
        let mut worst = 0.0_f64;
        for y in (0..size.height).step_by(7) {
            for x in (0..size.width).step_by(5) {
                let want = gaussian_at(&source, f64::from(sigma), x as i32, y as i32);
                worst = worst.max((want - f64::from(blurred.view().pixel(x, y)[0])).abs());
            }
        }
        worst
    }

    #[test]
    fn small_gaussian_is_exact() {
        for sigma in [0.3, 1.0, 2.7, 5.9] {
            let worst = largest_error(Size::new(61, 47), sigma);
            assert!(worst < 0.75, "{sigma}: {worst}");
        }
    }

    #[test]
    fn large_gaussian_is_within_three_levels() {
        for sigma in [6.0, 9.0, 14.5] {
            let worst = largest_error(Size::new(150, 131), sigma);
            assert!(worst < 3.0, "{sigma}: {worst}");
        }
    }

    #[test]
    fn senseless_deviations_end() {
        let source = noise::<1>(Size::new(9, 5), 3);
        for sigma in [f32::NAN, -1.0, 0.0] {
            let mut image = source.clone();
            gaussian(&mut image, sigma);
            assert_eq!(image, source);
        }
        for sigma in [1e9, f32::INFINITY] {
            let mut image = source.clone();
            gaussian(&mut image, sigma);
            let first = image.bytes_all()[0];
            assert!(image.bytes_all().iter().all(|v| v.abs_diff(first) <= 1));
        }
    }

    #[test]
    fn box_is_the_mean_of_its_square() {
        let source = noise::<1>(Size::new(11, 8), 5);
        let mut image = source.clone();
        box_blur(&mut image, 2);
        for (x, y) in [(0, 0), (5, 4), (10, 7), (1, 6)] {
            let mut sum = 0;
            for dy in -2..=2 {
                for dx in -2..=2 {
                    let px = (x + dx).clamp(0, 10) as u32;
                    sum += u32::from(source.view().pixel(px, (y + dy).clamp(0, 7) as u32)[0]);
                }
            }
            let got = image.view().pixel(x as u32, y as u32)[0];
            assert_eq!(u32::from(got), (sum * 2 + 25) / 50, "{x} {y}");
        }
    }

    #[test]
    fn distance_is_euclidean() {
        let size = Size::new(23, 17);
        let mut mask = noise::<1>(size, 77);
        for (i, v) in mask.bytes_all_mut().iter_mut().enumerate() {
            *v = if i % 37 == 5 { 127 } else { 128 };
        }
        let mut out = vec![5.0];
        distance_inside(mask.view(), &mut out);
        let zeros: Vec<(i32, i32)> = (0..size.height as i32)
            .flat_map(|y| (0..size.width as i32).map(move |x| (x, y)))
            .filter(|&(x, y)| mask.view().pixel(x as u32, y as u32)[0] < 128)
            .collect();
        for y in 0..17 {
            for x in 0..23 {
                let squares = zeros.iter().map(|(zx, zy)| (zx - x).pow(2) + (zy - y).pow(2));
                let want = (squares.min().unwrap() as f32).sqrt();
                assert!((out[(y * 23 + x) as usize] - want).abs() < 1e-4, "{x} {y}");
            }
        }
    }

    #[test]
    fn distance_without_an_outline_is_far() {
        let mut out = Vec::new();
        distance_inside(Grey::filled(Size::new(4, 3), [255]).view(), &mut out);
        assert_eq!(out, vec![7.0; 12]);
        distance_inside(Grey::filled(Size::new(0, 3), [255]).view(), &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn blur_lowers_the_laplacian() {
        let mut grey = noise::<1>(Size::new(40, 40), 9);
        let sharp = laplacian_variance(grey.view());
        gaussian(&mut grey, 1.5);
        assert!(laplacian_variance(grey.view()) < sharp / 20.0);
        assert_eq!(laplacian_variance(Grey::filled(Size::new(5, 1), [9]).view()), 0.0);
    }

    fn put<const C: usize>(image: &Image<C>, dst: &mut ViewMut<'_, C>) {
        (0..image.size().height).for_each(|y| dst.row_mut(y).copy_from_slice(image.view().row(y)));
    }

    proptest! {
        #[test]
        fn every_level_gives_the_same_bytes(
            (w, h) in (1_u32..40, 1_u32..24),
            (sigma, radius) in (0.1_f32..15.0, 0_u32..50),
            seed in any::<u32>(),
        ) {
            let size = Size::new(w, h);
            let (rgb, grey) = (noise::<3>(size, seed), noise::<1>(size, seed));
            same_at_every_level::<3>(size, |dst| {
                let mut image = rgb.clone();
                box_blur(&mut image, radius);
                gaussian(&mut image, sigma);
                put(&image, dst);
            });
            same_at_every_level::<1>(size, |dst| {
                let mut image = grey.clone();
                gaussian(&mut image, sigma);
                box_blur(&mut image, radius);
                put(&image, dst);
            });
        }

        #[test]
        fn one_colour_stays(
            (w, h) in (1_u32..14, 1_u32..14),
            colour in any::<[u8; 3]>(),
            (sigma, radius) in (0.0_f32..40.0, 0_u32..30),
        ) {
            let source = Rgb::filled(Size::new(w, h), colour);
            let mut image = source.clone();
            gaussian(&mut image, sigma);
            prop_assert_eq!(&image, &source);
            box_blur(&mut image, radius);
            prop_assert_eq!(&image, &source);
        }
    }
}
