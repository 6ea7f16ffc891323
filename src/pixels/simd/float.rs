//! Weighted sums of rows and columns in floats: what resizing and blurring are made of.

use super::Level;

/// Values that are summed side by side.
const BLOCK: usize = 32;

/// One source row's part of a column sum.
#[inline(always)]
fn add_row<const N: usize>(sums: &mut [f32; N], row: &[u8], weight: f32) {
    let row: &[u8; N] = row.first_chunk().expect("N bytes");
    for (s, v) in sums.iter_mut().zip(row) {
        *s += f32::from(*v) * weight;
    }
}

each_level! {
    /// out[i] = sum of rows[j][i] * weights[j]; row j begins at byte j * stride.
    pub(crate) fn columns(data: &[u8], stride: usize, weights: &[f32], out: &mut [f32]) {
        let whole = out.len() / BLOCK * BLOCK;
        for at in (0..whole).step_by(BLOCK) {
            let mut sums = [0.0; BLOCK];
            for (j, w) in weights.iter().enumerate() {
                add_row(&mut sums, &data[j * stride + at..][..BLOCK], *w);
            }
            out[at..at + BLOCK].copy_from_slice(&sums);
        }
        for at in whole..out.len() {
            let mut sums = [0.0; 1];
            for (j, w) in weights.iter().enumerate() {
                add_row(&mut sums, &data[j * stride + at..][..1], *w);
            }
            out[at] = sums[0];
        }
    }
}

/// First value, first weight, number of weights.
pub(crate) type Taps = (u32, u32, u32);

each_level! {
    /// Each pixel of `out` is the sum of the pixels that its taps name in `line`. Both have room
    /// for four values after their last pixel.
    pub(crate) fn across<const C: usize>(line: &[f32], taps: &[Taps], weights: &[f32], out: &mut [f32]) {
        for (x, (first, start, count)) in taps.iter().enumerate() {
            let (first, start, count) = (*first as usize, *start as usize, *count as usize);
            let line = &line[first * C..(first + count - 1) * C + 4];
            let mut sum = [0.0_f32; 4];
            for (i, w) in weights[start..start + count].iter().enumerate() {
                let pixel: &[f32; 4] = line[i * C..i * C + 4].first_chunk().expect("4 values");
                for c in 0..4 {
                    sum[c] += pixel[c] * w;
                }
            }
            out[x * C..x * C + 4].copy_from_slice(&sum);
        }
    }
}

/// v + 0.5 of each value, cut to 0..=255; 0 when it is not a number.
pub(crate) fn to_bytes(level: Level, values: &[f32], out: &mut [u8]) {
    let values = &values[..out.len()];
    let done = sixteens(level, values, out);
    for (o, v) in out[done..].iter_mut().zip(&values[done..]) {
        *o = (v + 0.5) as u8;
    }
}

first_pixels! {
    /// The whole sixteens of it.
    fn sixteens(values: &[f32], out: &mut [u8])
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use crate::simd::lanes::{load8f, rounded, store16};

    #[target_feature(enable = "avx2")]
    pub(super) fn sixteens(values: &[f32], out: &mut [u8]) -> usize {
        let whole = out.len() / 16 * 16;
        for at in (0..whole).step_by(16) {
            store16(out, at, rounded(load8f(values, at), load8f(values, at + 8)));
        }
        whole
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use crate::simd::lanes::{load4f, rounded, store16};

    #[target_feature(enable = "neon")]
    pub(super) fn sixteens(values: &[f32], out: &mut [u8]) -> usize {
        let whole = out.len() / 16 * 16;
        for at in (0..whole).step_by(16) {
            let four = |i: usize| load4f(values, at + 4 * i);
            store16(out, at, rounded([four(0), four(1), four(2), four(3)]));
        }
        whole
    }
}

/// Values that a blur sums side by side; its rows are padded to a multiple of it.
pub(crate) const LANES: usize = 16;

#[inline(always)]
fn lanes(from: &[f32], at: usize) -> &[f32; LANES] {
    from[at..at + LANES].first_chunk().expect("as many values")
}

#[inline(always)]
fn add_pair(sums: &mut [f32; LANES], a: &[f32; LANES], b: &[f32; LANES], weight: f32) {
    for i in 0..LANES {
        sums[i] += (a[i] + b[i]) * weight;
    }
}

#[inline(always)]
fn times(a: &[f32; LANES], weight: f32) -> [f32; LANES] {
    a.map(|v| v * weight)
}

each_level! {
    /// A symmetric kernel along a line: `middle` is where the first pixel stands in `padded`, and
    /// `step` the distance between neighbours. `out` is a multiple of [`LANES`] long.
    pub(crate) fn blur_line(padded: &[f32], middle: usize, step: usize, kernel: &[f32], out: &mut [f32]) {
        for at in (0..out.len()).step_by(LANES) {
            let mut sums = times(lanes(padded, at + middle), kernel[0]);
            for (t, w) in kernel.iter().enumerate().skip(1) {
                let (before, after) = (at + middle - t * step, at + middle + t * step);
                add_pair(&mut sums, lanes(padded, before), lanes(padded, after), *w);
            }
            out[at..at + LANES].copy_from_slice(&sums);
        }
    }
}

each_level! {
    /// A symmetric kernel down the rows of `ring`: `at[radius + t]` is where the row `t` below the
    /// middle one begins.
    pub(crate) fn blur_down(ring: &[f32], rows: &[usize], kernel: &[f32], out: &mut [f32]) {
        let radius = kernel.len() - 1;
        for at in (0..out.len()).step_by(LANES) {
            let mut sums = times(lanes(ring, rows[radius] + at), kernel[0]);
            for (t, w) in kernel.iter().enumerate().skip(1) {
                let (above, below) = (rows[radius - t] + at, rows[radius + t] + at);
                add_pair(&mut sums, lanes(ring, above), lanes(ring, below), *w);
            }
            out[at..at + LANES].copy_from_slice(&sums);
        }
    }
}
