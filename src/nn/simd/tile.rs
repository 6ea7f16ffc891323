//! The tile: a few pixels by a few blocks of output channels, summed in registers.

#![allow(clippy::needless_range_loop)] // The indices count registers.

use super::Lane;
use super::vector::Vector;

/// What is done to a sum before it is stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Act {
    #[default]
    None,
    /// Negative values are multiplied by a slope per channel: ReLU, LeakyReLU, PReLU.
    Slope(Vec<Lane>),
    Clip(f32, f32),
    /// x * clip(x / 6 + 1 / 2, 0, 1).
    HardSwish,
}

/// Packed weights: for each group of output blocks (see `groups`) and each input value in the
/// order it is walked, one lane per block of the group.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Filter {
    pub(crate) weights: Vec<Lane>,
    /// One lane per output block.
    pub(crate) bias: Vec<Lane>,
    /// Output channels.
    pub(crate) outputs: usize,
    pub(crate) act: Act,
    /// A residual is added after the activation instead of before.
    pub(crate) after: bool,
}

/// How a kernel walks through input and output. All distances in floats.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Walk {
    /// Blocks of input channels; `plane` apart; the last holds `last` of them.
    pub(crate) blocks: usize,
    pub(crate) last: usize,
    /// Input channels of each other block.
    pub(crate) lanes: usize,
    pub(crate) plane: usize,
    pub(crate) kernel: (usize, usize),
    pub(crate) tap_row: usize,
    pub(crate) tap_column: usize,
    /// Steps of the input from one output row or pixel to the next.
    pub(crate) row: usize,
    pub(crate) pixel: usize,
    pub(crate) out_row: usize,
    pub(crate) out_pixel: usize,
    pub(crate) out_plane: usize,
    /// Blocks of the residual, which is laid out as the output; those beyond are zero.
    pub(crate) residual_blocks: usize,
}

/// Output blocks in groups that are computed together: by twos, and by three where one is left.
pub(crate) fn groups(blocks: usize) -> impl Iterator<Item = (usize, usize)> {
    let whole = if blocks % 2 == 1 && blocks > 1 { blocks - 3 } else { blocks / 2 * 2 };
    let twos = (0..whole).step_by(2).map(|at| (at, 2));
    twos.chain((whole < blocks).then_some((whole, blocks - whole)))
}

/// Computes `rows` rows of `count` pixels of every output block. `LANES`: `walk.lanes` where it is
/// known, else 0.
/// `STEP`: `walk.pixel` where it is known, else 0.
///
/// # Safety
/// The level of `V`; `x`, `y` and `residual` (or null) reach as far as the walk goes; the filter
/// has the groups' weights. `residual` may be `y`.
#[inline(always)]
pub(crate) unsafe fn rows<V: Vector, const LANES: usize, const STEP: usize>(
    filter: &Filter,
    walk: &Walk,
    x: *const f32,
    y: *mut f32,
    residual: *const f32,
    (rows, count): (usize, usize),
) {
    let values = ((walk.blocks - 1) * walk.lanes + walk.last) * walk.kernel.0 * walk.kernel.1;
    for (first, size) in groups(filter.bias.len()) {
        let group = Group {
            weights: filter.weights[first * values..].as_ptr().cast(),
            bias: filter.bias[first..].as_ptr().cast(),
            slopes: match &filter.act {
                Act::Slope(slopes) => slopes[first..].as_ptr().cast(),
                _ => std::ptr::null(),
            },
            act: &filter.act,
            after: filter.after,
            residual: if residual.is_null() {
                0
            } else {
                walk.residual_blocks.saturating_sub(first).min(size)
            },
        };
        for row in 0..rows {
            // SAFETY: inside what the walk covers, as the caller promises.
            unsafe {
                let to = row * walk.out_row + first * walk.out_plane;
                let (x, y) = (x.add(row * walk.row), y.add(to));
                let residual = if residual.is_null() { residual } else { residual.add(to) };
                match size {
                    1 => line::<V, LANES, STEP, 1, 8>(&group, walk, x, y, residual, count),
                    2 => line::<V, LANES, STEP, 2, 6>(&group, walk, x, y, residual, count),
                    _ => line::<V, LANES, STEP, 3, 3>(&group, walk, x, y, residual, count),
                }
            }
        }
    }
}

struct Group<'a> {
    weights: *const f32,
    bias: *const f32,
    slopes: *const f32,
    act: &'a Act,
    after: bool,
    /// How many of the group's blocks have a residual.
    residual: usize,
}

/// One row of pixels for `M` output blocks, `N` pixels at a time.
#[inline(always)]
unsafe fn line<V: Vector, const LANES: usize, const STEP: usize, const M: usize, const N: usize>(
    group: &Group<'_>,
    walk: &Walk,
    x: *const f32,
    y: *mut f32,
    residual: *const f32,
    count: usize,
) {
    let mut at = 0;
    macro_rules! step {
        ($n:expr) => {{
            // SAFETY: pixels `at..at + n` are below `count`; the rest as the caller promises.
            unsafe {
                let to = at * walk.out_pixel;
                let residual = if residual.is_null() { residual } else { residual.add(to) };
                let x = x.add(at * walk.pixel);
                tile::<V, LANES, STEP, M, { $n }>(group, walk, x, y.add(to), residual);
            }
            at += $n;
        }};
    }
    while at < count {
        let left = count - at;
        // What is left is halved rather than cut to a narrow end: narrow tiles wait for sums.
        let next = if left <= N {
            left
        } else if left < 2 * N {
            left.div_ceil(2)
        } else {
            N
        };
        match next {
            n if V::FAST && n == N => step!(N),
            7 if V::FAST && N > 7 => step!(7),
            6 if V::FAST && N > 6 => step!(6),
            5 if V::FAST && N > 5 => step!(5),
            4 if V::FAST && N > 4 => step!(4),
            3 if V::FAST && N > 3 => step!(3),
            2 if V::FAST => step!(2),
            _ => step!(1),
        }
    }
}

#[inline(always)]
unsafe fn tile<V: Vector, const LANES: usize, const STEP: usize, const M: usize, const N: usize>(
    group: &Group<'_>,
    walk: &Walk,
    x: *const f32,
    y: *mut f32,
    residual: *const f32,
) {
    // SAFETY: the walk stays inside its buffers, as the caller promises.
    unsafe {
        let mut sums = [[V::splat(0.0); N]; M];
        for m in 0..M {
            let bias = V::load(group.bias.add(m * 8));
            sums[m] = [bias; N];
        }
        let whole = if walk.last == LANES { walk.blocks } else { walk.blocks - 1 };
        let (mut weights, mut plane) = (group.weights, x);
        if LANES > 0 {
            for _ in 0..whole {
                (sums, weights) = block::<V, STEP, M, N>(sums, walk, weights, plane, LANES);
                plane = plane.add(walk.plane);
            }
        } else {
            for _ in 0..whole {
                (sums, weights) = block::<V, STEP, M, N>(sums, walk, weights, plane, walk.lanes);
                plane = plane.add(walk.plane);
            }
        }
        if whole < walk.blocks {
            (sums, _) = block::<V, STEP, M, N>(sums, walk, weights, plane, walk.last);
        }
        // One by one: an index that is not known at compile time would keep the sums in memory.
        finish(sums[0], group, walk, 0, y, residual);
        if M > 1 {
            finish(sums[1 % M], group, walk, 1, y, residual);
        }
        if M > 2 {
            finish(sums[2 % M], group, walk, 2, y, residual);
        }
    }
}

/// Residual, activation and store of one output block.
#[inline(always)]
unsafe fn finish<V: Vector, const N: usize>(
    mut sums: [V; N],
    group: &Group<'_>,
    walk: &Walk,
    m: usize,
    y: *mut f32,
    residual: *const f32,
) {
    // SAFETY: as in `tile`.
    unsafe {
        let to = y.add(m * walk.out_plane);
        let has = m < group.residual;
        let from = if has { residual.add(m * walk.out_plane) } else { residual };
        if has && !group.after {
            for n in 0..N {
                sums[n] = sums[n].add(V::load(from.add(n * walk.out_pixel)));
            }
        }
        sums = activate(sums, group.act, group.slopes.wrapping_add(m * 8));
        if has && group.after {
            for n in 0..N {
                sums[n] = sums[n].add(V::load(from.add(n * walk.out_pixel)));
            }
        }
        for n in 0..N {
            sums[n].store(to.add(n * walk.out_pixel));
        }
    }
}

/// One block of input channels: every tap of the window. Sums come and go by value, or they would
/// be kept in memory.
#[inline(always)]
unsafe fn block<V: Vector, const STEP: usize, const M: usize, const N: usize>(
    mut sums: [[V; N]; M],
    walk: &Walk,
    mut weights: *const f32,
    plane: *const f32,
    lanes: usize,
) -> ([[V; N]; M], *const f32) {
    // SAFETY: as in `tile`.
    unsafe {
        let pixel = if STEP > 0 { STEP } else { walk.pixel };
        let mut row = plane;
        for _ in 0..walk.kernel.0 {
            let mut tap = row;
            for _ in 0..walk.kernel.1 {
                for lane in 0..lanes {
                    sums = multiply(sums, weights.add(lane * M * 8), tap.add(lane), pixel);
                }
                weights = weights.add(lanes * M * 8);
                tap = tap.add(walk.tap_column);
            }
            row = row.add(walk.tap_row);
        }
        (sums, weights)
    }
}

/// One input channel: `M` vectors of weights by `N` values.
#[inline(always)]
unsafe fn multiply<V: Vector, const M: usize, const N: usize>(
    mut sums: [[V; N]; M],
    weights: *const f32,
    x: *const f32,
    pixel: usize,
) -> [[V; N]; M] {
    // SAFETY: M lanes of weights and N values, as the caller promises.
    unsafe {
        let mut w = [V::splat(0.0); M];
        for m in 0..M {
            w[m] = V::load(weights.add(m * 8));
        }
        for n in 0..N {
            let value = V::repeat(x.add(n * pixel));
            for m in 0..M {
                sums[m][n] = value.fma(w[m], sums[m][n]);
            }
        }
        sums
    }
}

/// # Safety
/// The level of `V`; `slopes` holds eight floats where the activation has slopes.
#[inline(always)]
pub(crate) unsafe fn activate<V: Vector, const N: usize>(
    mut sums: [V; N],
    act: &Act,
    slopes: *const f32,
) -> [V; N] {
    // SAFETY: arithmetic of the level; the slopes are there.
    unsafe {
        match *act {
            Act::None => {}
            Act::Slope(_) => {
                let (slope, zero) = (V::load(slopes), V::splat(0.0));
                for n in 0..N {
                    sums[n] = zero.min(sums[n]).fma(slope, zero.max(sums[n]));
                }
            }
            Act::Clip(low, high) => {
                let (low, high) = (V::splat(low), V::splat(high));
                for n in 0..N {
                    sums[n] = high.min(low.max(sums[n]));
                }
            }
            Act::HardSwish => {
                let (sixth, half) = (V::splat(1.0 / 6.0), V::splat(0.5));
                let (zero, one) = (V::splat(0.0), V::splat(1.0));
                for n in 0..N {
                    let gate = sums[n].fma(sixth, half);
                    sums[n] = sums[n].mul(one.min(zero.max(gate)));
                }
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    #[test]
    fn groups_cover_every_block_once() {
        for blocks in 1..40 {
            let mut next = 0;
            for (first, size) in super::groups(blocks) {
                assert!(first == next && (1..=3).contains(&size));
                assert!(size != 1 || blocks == 1);
                next += size;
            }
            assert_eq!(next, blocks);
        }
    }
}
