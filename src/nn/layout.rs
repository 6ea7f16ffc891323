//! Moves between blocks of eight channels and plain row-major order.

use crate::simd::Lane;

/// `[n, c, pixels]` in plain order to blocks; unused lanes are zero.
pub(crate) fn block(from: &[f32], to: &mut [Lane], (n, c): (usize, usize), pixels: usize) {
    let blocks = c.div_ceil(8);
    for image in 0..n {
        let from = &from[image * c * pixels..][..c * pixels];
        let to = &mut to[image * blocks * pixels..][..blocks * pixels];
        for (b, block) in to.chunks_exact_mut(pixels.max(1)).enumerate() {
            let known = (c - b * 8).min(8);
            if known < 8 {
                block.fill(Lane::ZERO);
            }
            for lane in 0..known {
                let plane = &from[(b * 8 + lane) * pixels..][..pixels];
                for (to, &value) in block.iter_mut().zip(plane) {
                    to.0[lane] = value;
                }
            }
        }
    }
}

/// Blocks to plain `[n, c, pixels]`.
pub(crate) fn plain(from: &[Lane], to: &mut [f32], (n, c): (usize, usize), pixels: usize) {
    let blocks = c.div_ceil(8);
    for image in 0..n {
        let from = &from[image * blocks * pixels..][..blocks * pixels];
        let to = &mut to[image * c * pixels..][..c * pixels];
        for (channel, plane) in to.chunks_exact_mut(pixels.max(1)).enumerate() {
            let block = &from[channel / 8 * pixels..][..pixels];
            for (to, lanes) in plane.iter_mut().zip(block) {
                *to = lanes.0[channel % 8];
            }
        }
    }
}

/// Distance between neighbours on each axis of a row-major tensor.
fn strides<const N: usize>(shape: &[usize; N]) -> [usize; N] {
    let mut strides = [1; N];
    for axis in (0..N - 1).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1];
    }
    strides
}

/// Reorders axes: axis `i` of the result is axis `perm[i]` of the source.
pub(crate) fn transpose(from: &[f32], to: &mut [f32], shape: &[usize], perm: &[usize]) {
    // Leading axes of one make every rank four.
    let lead = 4 - shape.len();
    let mut wide = [1; 4];
    wide[lead..].copy_from_slice(shape);
    let mut order = [0, 1, 2, 3];
    perm.iter().enumerate().for_each(|(i, p)| order[lead + i] = lead + p);
    let steps = strides(&wide);
    let size = order.map(|axis| wide[axis]);
    let step = order.map(|axis| steps[axis]);
    let mut out = to.iter_mut();
    for a in 0..size[0] {
        for b in 0..size[1] {
            for c in 0..size[2] {
                let base = a * step[0] + b * step[1] + c * step[2];
                for (d, out) in out.by_ref().take(size[3]).enumerate() {
                    *out = from[base + d * step[3]];
                }
            }
        }
    }
}

/// Copies `from` to its place in a longer tensor: `outer` parts of `length` values, each `whole`
/// apart in the result.
pub(crate) fn place(from: &[f32], to: &mut [f32], outer: usize, length: usize, whole: usize) {
    for part in 0..outer {
        to[part * whole..][..length].copy_from_slice(&from[part * length..][..length]);
    }
}

/// Copies channels between blocks: `count` of them from channel `first` to channel `at`.
pub(crate) fn channels(
    from: &[Lane],
    to: &mut [Lane],
    (first, at, count): (usize, usize, usize),
    pixels: usize,
) {
    let mut i = 0;
    while i < count {
        let (source, target) = (first + i, at + i);
        let source_block = &from[source / 8 * pixels..][..pixels];
        let target_block = &mut to[target / 8 * pixels..][..pixels];
        if source % 8 == 0 && target % 8 == 0 && count - i >= 8 {
            target_block.copy_from_slice(source_block);
            i += 8;
        } else {
            for (to, from) in target_block.iter_mut().zip(source_block) {
                to.0[target % 8] = from.0[source % 8];
            }
            i += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::floats;

    #[test]
    fn blocks_and_back_is_the_same() {
        for (n, c, pixels) in [(1_usize, 1_usize, 1), (2, 8, 5), (3, 13, 4), (1, 24, 7)] {
            let values: Vec<f32> = (0..n * c * pixels).map(|v| v as f32).collect();
            let mut blocked = vec![Lane([9.0; 8]); n * c.div_ceil(8) * pixels];
            block(&values, &mut blocked, (n, c), pixels);
            let sum: f32 = floats(&blocked).iter().sum();
            assert!((sum - values.iter().sum::<f32>()).abs() < 0.5, "unused lanes are zero");
            let mut back = vec![0.0; values.len()];
            plain(&blocked, &mut back, (n, c), pixels);
            assert_eq!(back, values);
        }
    }

    #[test]
    fn axes_are_reordered() {
        let values: Vec<f32> = (0..24).map(|v| v as f32).collect();
        let mut out = vec![0.0; 24];
        transpose(&values, &mut out, &[1, 2, 3, 4], &[0, 2, 3, 1]);
        for (h, w, c) in
            (0..3).flat_map(|h| (0..4).flat_map(move |w| (0..2).map(move |c| (h, w, c))))
        {
            assert_eq!(out[(h * 4 + w) * 2 + c], values[(c * 3 + h) * 4 + w]);
        }
        transpose(&values, &mut out, &[4, 6], &[1, 0]);
        assert_eq!((out[1], out[4]), (6.0, 1.0));
    }

    #[test]
    fn any_run_of_channels_is_copied_to_any_place() {
        let from: Vec<Lane> = (0..4 * 3)
            .map(|i| Lane(std::array::from_fn(|l| (i / 3 * 8 + l) as f32 + (i % 3) as f32 / 4.0)))
            .collect();
        for (first, at, count) in
            [(0, 0, 32), (0, 8, 24), (3, 5, 17), (8, 4, 12), (5, 5, 20), (1, 1, 7)]
        {
            let mut to = vec![Lane([-1.0; 8]); 4 * 3];
            channels(&from, &mut to, (first, at, count), 3);
            for channel in 0..32 {
                for pixel in 0..3 {
                    let inside = (at..at + count).contains(&channel);
                    let want = (channel + first).wrapping_sub(at) as f32 + pixel as f32 / 4.0;
                    let got = to[channel / 8 * 3 + pixel].0[channel % 8];
                    assert_eq!(
                        got,
                        if inside { want } else { -1.0 },
                        "{first} {at} {count} {channel}"
                    );
                }
            }
        }
    }
}
