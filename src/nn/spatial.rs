//! What looks at rows and columns without weights: pools, means, resizing, padding.

use crate::ops::{Pooling, Sampling};
use crate::simd::Lane;
use crate::simd::dense::{Border, Window};

type Size = (usize, usize);

/// The taps of a window along one axis: from, to, inside the input.
fn taps(at: usize, stride: usize, pad: usize, kernel: usize, size: usize) -> (usize, usize) {
    let begin = at * stride;
    (begin.saturating_sub(pad).min(size), (begin + kernel).saturating_sub(pad).min(size))
}

/// Pools every block.
pub(crate) fn pool(
    pooling: Pooling,
    window: &Window,
    from: &[Lane],
    to: &mut [Lane],
    (h, w): Size,
    (oh, ow): Size,
) {
    let [top, left, ..] = window.pads;
    let whole = (window.kernel.0 * window.kernel.1) as f32;
    for (from, to) in from.chunks_exact(h * w).zip(to.chunks_exact_mut(oh * ow)) {
        for (row, line) in to.chunks_exact_mut(ow).enumerate() {
            let (y0, y1) = taps(row, window.stride.0, top, window.kernel.0, h);
            for (column, out) in line.iter_mut().enumerate() {
                let (x0, x1) = taps(column, window.stride.1, left, window.kernel.1, w);
                let first = match pooling {
                    Pooling::Max => f32::NEG_INFINITY,
                    Pooling::Mean { .. } => 0.0,
                };
                let mut sum = [first; 8];
                for y in y0..y1 {
                    for lanes in &from[y * w + x0..y * w + x1] {
                        match pooling {
                            Pooling::Max => {
                                for (s, v) in sum.iter_mut().zip(lanes.0) {
                                    // A NaN stays: no comparison with it holds.
                                    *s = if *s > v { *s } else { v };
                                }
                            }
                            Pooling::Mean { .. } => {
                                sum.iter_mut().zip(lanes.0).for_each(|(s, v)| *s += v);
                            }
                        }
                    }
                }
                if let Pooling::Mean { padding } = pooling {
                    let count = if padding { whole } else { ((y1 - y0) * (x1 - x0)) as f32 };
                    sum.iter_mut().for_each(|s| *s /= count);
                }
                *out = Lane(sum);
            }
        }
    }
}

/// The mean of each channel of each block over `pixels`.
pub(crate) fn mean(from: &[Lane], to: &mut [Lane], pixels: usize) {
    for (plane, out) in from.chunks_exact(pixels).zip(to) {
        *out = Lane(sums(plane, |v, _| v, &[0.0; 8]).map(|s| s / pixels as f32));
    }
}

/// Sums of a function of each channel. Rows of partial sums keep the error small.
fn sums(plane: &[Lane], what: impl Fn(f32, f32) -> f32, mean: &[f32; 8]) -> [f32; 8] {
    let mut all = [0.0; 8];
    for part in plane.chunks(64) {
        let mut sum = [0.0; 8];
        for lanes in part {
            for i in 0..8 {
                sum[i] += what(lanes.0[i], mean[i]);
            }
        }
        all.iter_mut().zip(sum).for_each(|(a, s)| *a += s);
    }
    all
}

/// (x - mean) / sqrt(variance + epsilon) for each channel, in place.
pub(crate) fn normalise(values: &mut [Lane], pixels: usize, epsilon: f32) {
    for plane in values.chunks_exact_mut(pixels) {
        let mean = sums(plane, |v, _| v, &[0.0; 8]).map(|s| s / pixels as f32);
        let square = sums(plane, |v, m| (v - m) * (v - m), &mean);
        let by = square.map(|s| 1.0 / (s / pixels as f32 + epsilon).sqrt());
        for lanes in plane {
            for i in 0..8 {
                lanes.0[i] = (lanes.0[i] - mean[i]) * by[i];
            }
        }
    }
}

/// Where a place of the output is read: the first neighbour and the weight of the second.
fn source(at: usize, from: usize, to: usize, scale: f32, sampling: Sampling) -> (usize, f32) {
    let place = match sampling {
        Sampling::Linear if to > 1 => (at as f32 + 0.5) / scale - 0.5,
        Sampling::Linear => 0.0,
        Sampling::LinearCorners if to > 1 => at as f32 * ((from - 1) as f32 / (to - 1) as f32),
        Sampling::LinearCorners => 0.0,
        Sampling::Nearest => (at as f32 / scale).floor(),
    };
    let place = place.clamp(0.0, (from - 1) as f32);
    let first = (place as usize).min(from - 1);
    (first, place - first as f32)
}

/// Resizes every block. `scales` are output over input, as the model says.
pub(crate) fn resize(
    sampling: Sampling,
    (sy, sx): (f32, f32),
    from: &[Lane],
    to: &mut [Lane],
    (h, w): Size,
    (oh, ow): Size,
) {
    for (from, to) in from.chunks_exact(h * w).zip(to.chunks_exact_mut(oh * ow)) {
        for (row, line) in to.chunks_exact_mut(ow).enumerate() {
            let (y, dy) = source(row, h, oh, sy, sampling);
            let (above, below) = (&from[y * w..][..w], &from[(y + 1).min(h - 1) * w..][..w]);
            for (column, out) in line.iter_mut().enumerate() {
                let (x, dx) = source(column, w, ow, sx, sampling);
                let next = (x + 1).min(w - 1);
                for i in 0..8 {
                    let (a, b) = (above[x].0[i], above[next].0[i]);
                    let (c, d) = (below[x].0[i], below[next].0[i]);
                    let (top, bottom) = (a + (b - a) * dx, c + (d - c) * dx);
                    out.0[i] = top + (bottom - top) * dy;
                }
            }
        }
    }
}

/// Pads one image of `blocks` with `more` blocks of zeros and a border around each.
pub(crate) fn pad(
    [top, left, ..]: [usize; 4],
    border: Border,
    from: &[Lane],
    to: &mut [Lane],
    (h, w): Size,
    (oh, ow): Size,
) {
    for (block, to) in to.chunks_exact_mut(oh * ow).enumerate() {
        let Some(from) = from.chunks_exact(h * w).nth(block) else {
            to.fill(Lane::ZERO);
            continue;
        };
        for (row, line) in to.chunks_exact_mut(ow).enumerate() {
            let y = border.place(row as isize - top as isize, h);
            for (column, out) in line.iter_mut().enumerate() {
                let x = border.place(column as isize - left as isize, w);
                *out = match (y, x) {
                    (Some(y), Some(x)) => from[y * w + x],
                    _ => Lane::ZERO,
                };
            }
        }
    }
}
