//! Functions of one or two values at a time.

use crate::ops::{LooseAct, Map, Pair};
use crate::simd::Lane;

/// e^x to a few units in the last place, without a branch, so that loops over it vectorise.
#[inline]
pub(crate) fn exp(x: f32) -> f32 {
    const LOG2E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts: the product of the first with a small whole number is exact.
    const HIGH: f32 = 0.693_359_4;
    const LOW: f32 = -2.121_944_4e-4;
    // Adding and taking away rounds to a whole number.
    const ROUND: f32 = 12_582_912.0;
    let clipped = x.clamp(-87.0, 88.0);
    let shifted = clipped * LOG2E + ROUND;
    let whole = shifted - ROUND;
    let r = clipped - whole * HIGH - whole * LOW;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * (r * r) + r + 1.0;
    let power = (shifted.to_bits() as i32).wrapping_shl(23).wrapping_add(127 << 23);
    let value = p * f32::from_bits(power.cast_unsigned());
    if x > 88.0 { f32::INFINITY } else { value }
}

fn each(from: &mut [f32], what: impl Fn(f32) -> f32) {
    from.iter_mut().for_each(|v| *v = what(*v));
}

/// Functions that need no channel, in place.
pub(crate) fn map(map: &Map, values: &mut [f32]) {
    match map {
        Map::Sigmoid => each(values, |v| 1.0 / (1.0 + exp(-v))),
        Map::Tanh => each(values, |v| 1.0 - 2.0 / (1.0 + exp(2.0 * v))),
        Map::Exp => each(values, exp),
        Map::Abs => each(values, f32::abs),
        Map::Sqrt => each(values, f32::sqrt),
        Map::Negate => each(values, |v| -v),
        Map::Act(LooseAct::None) => {}
        Map::Act(LooseAct::Slope(slopes)) => {
            let slope = slopes.first().copied().unwrap_or_default();
            each(values, |v| if v < 0.0 { v * slope } else { v });
        }
        Map::Act(LooseAct::Clip(low, high)) => {
            each(values, |v| {
                if v < *low {
                    *low
                } else if v > *high {
                    *high
                } else {
                    v
                }
            });
        }
        Map::Act(LooseAct::HardSwish) => {
            each(values, |v| v * (v / 6.0 + 0.5).clamp(0.0, 1.0));
        }
    }
}

/// The slopes of a function that has one a channel.
pub(crate) fn slopes(map: &Map) -> Option<&[f32]> {
    match map {
        Map::Act(LooseAct::Slope(slopes)) if slopes.len() > 1 => Some(slopes),
        _ => None,
    }
}

/// Eight values of `by[at % by.len()]`, zero beyond its end in the last block.
fn lane(by: &[f32], block: usize) -> [f32; 8] {
    std::array::from_fn(|i| match by {
        [one] => *one,
        _ => by.get(block * 8 + i).copied().unwrap_or_default(),
    })
}

/// Negative values times a slope per channel, in place.
pub(crate) fn slope(lanes: &mut [Lane], slopes: &[f32], blocks: usize, pixels: usize) {
    for (i, plane) in lanes.chunks_exact_mut(pixels).enumerate() {
        let slope = lane(slopes, i % blocks);
        for lanes in plane {
            for (v, s) in lanes.0.iter_mut().zip(slope) {
                *v = if *v < 0.0 { *v * s } else { *v };
            }
        }
    }
}

/// x * scale + shift per channel, in place.
pub(crate) fn scale(
    lanes: &mut [Lane],
    (by, plus): (&[f32], &[f32]),
    blocks: usize,
    pixels: usize,
) {
    for (i, plane) in lanes.chunks_exact_mut(pixels).enumerate() {
        let (by, plus) = (lane(by, i % blocks), lane(plus, i % blocks));
        for lanes in plane {
            for (i, v) in lanes.0.iter_mut().enumerate() {
                *v = *v * by[i] + plus[i];
            }
        }
    }
}

/// What stands on the right of an operator: as many values as on the left, or one a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Right<'a> {
    Each(&'a [Lane]),
    Channel(&'a [Lane], usize),
}

/// left = left op right, or right op left where `swapped`.
pub(crate) fn pair(pair: Pair, swapped: bool, left: &mut [Lane], right: Right<'_>) {
    match (pair, swapped) {
        (Pair::Add, _) => zip(left, right, |a, b| a + b),
        (Pair::Multiply, _) => zip(left, right, |a, b| a * b),
        (Pair::Subtract, false) => zip(left, right, |a, b| a - b),
        (Pair::Subtract, true) => zip(left, right, |a, b| b - a),
        (Pair::Divide, false) => zip(left, right, |a, b| a / b),
        (Pair::Divide, true) => zip(left, right, |a, b| b / a),
    }
}

fn zip(left: &mut [Lane], right: Right<'_>, what: impl Fn(f32, f32) -> f32) {
    match right {
        Right::Each(right) => {
            for (a, b) in left.iter_mut().zip(right) {
                a.0.iter_mut().zip(b.0).for_each(|(a, b)| *a = what(*a, b));
            }
        }
        Right::Channel(right, pixels) => {
            for (plane, by) in left.chunks_exact_mut(pixels).zip(right) {
                for a in plane {
                    a.0.iter_mut().zip(by.0).for_each(|(a, b)| *a = what(*a, b));
                }
            }
        }
    }
}

/// Softmax of rows of `length` values, in place.
pub(crate) fn softmax(values: &mut [f32], length: usize) {
    for row in values.chunks_exact_mut(length.max(1)) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        each(row, |v| exp(v - most));
        let sum: f32 = row.iter().sum();
        each(row, |v| v / sum);
    }
}

/// Sets the lanes beyond the last channel to zero, so that nothing odd stands there.
pub(crate) fn clear_unused(lanes: &mut [Lane], channels: usize, pixels: usize) {
    let (blocks, used) = (channels.div_ceil(8), channels % 8);
    if used == 0 {
        return;
    }
    for image in lanes.chunks_exact_mut(blocks * pixels) {
        for lanes in &mut image[(blocks - 1) * pixels..] {
            lanes.0[used..].fill(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_everywhere() {
        for i in -870_000..880_000 {
            let x = i as f32 / 10_000.0;
            let right = f64::from(x).exp();
            let off = (f64::from(exp(x)) - right).abs() / right;
            assert!(off < 3e-7, "e^{x} is off by {off}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(1000.0), f32::INFINITY);
        assert!(exp(-1000.0) < 1e-37 && exp(-1000.0) >= 0.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn a_nan_stays_one() {
        for what in [
            Map::Sigmoid,
            Map::Tanh,
            Map::Act(LooseAct::Slope(vec![0.0])),
            Map::Act(LooseAct::Clip(0.0, 6.0)),
            Map::Act(LooseAct::HardSwish),
        ] {
            let mut values = [1.0, f32::NAN];
            map(&what, &mut values);
            assert!(values[0].is_finite() && values[1].is_nan(), "{what:?}");
        }
    }
}
