//! Convolutions of each channel by itself.

use super::Lane;
use super::bands::{Residual, Rows, Target, With, deal};
use super::dense::{Image, Window};
use super::tile::{Filter, activate};
use super::vector::Vector;

/// Largest kernel side.
pub(crate) const KERNEL: usize = 15;

/// A depthwise convolution with zeros around. Weights: for each block its taps.
#[derive(Debug, Clone)]
pub(crate) struct Depthwise {
    pub(crate) window: Window,
    pub(crate) filter: Filter,
}

/// Where the input rows of a block are: all of them, or the newest in a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) from: *const f32,
    pub(crate) plane: usize,
    pub(crate) row: usize,
    /// Row `r` stands at `r % ring`.
    pub(crate) ring: usize,
    pub(crate) size: (usize, usize),
}

/// What one output row of one block needs.
pub(crate) struct Line<'a> {
    /// Input row and weights of each kernel row that is inside.
    taps: &'a [(*const f32, *const f32)],
    window: &'a Window,
    width: usize,
    bias: *const f32,
    slopes: *const f32,
    filter: &'a Filter,
    residual: *const f32,
    y: *mut f32,
}

impl Depthwise {
    /// Computes output rows `from..to`; `out` points at row `from`.
    ///
    /// # Safety
    /// The level of `V`; the source holds the rows that these look at, of as many blocks as the
    /// filter; `out` has room.
    pub(crate) unsafe fn run<V: Vector>(
        &self,
        source: &Source,
        (from, to): (usize, usize),
        out: &Rows,
    ) {
        let window = &self.window;
        let taps_each = window.kernel.0 * window.kernel.1;
        let mut taps = [(std::ptr::null(), std::ptr::null()); KERNEL];
        for (block, bias) in self.filter.bias.iter().enumerate() {
            let weights = &self.filter.weights[block * taps_each..][..taps_each];
            for row in from..to {
                let mut count = 0;
                for k in 0..window.kernel.0 {
                    let at = row * window.stride.0 + k * window.dilation.0;
                    let Some(at) = at.checked_sub(window.pads[0]).filter(|r| *r < source.size.0)
                    else {
                        continue;
                    };
                    let offset = block * source.plane + (at % source.ring) * source.row;
                    let weights = weights[k * window.kernel.1..].as_ptr().cast();
                    taps[count] = (source.from.wrapping_add(offset), weights);
                    count += 1;
                }
                let offset = block * out.plane + (row - from) * out.row;
                let residual = if block < out.residual_blocks {
                    out.residual.wrapping_add(offset)
                } else {
                    std::ptr::null()
                };
                let line = Line {
                    taps: &taps[..count],
                    window,
                    width: source.size.1,
                    bias: std::ptr::from_ref(bias).cast(),
                    slopes: match &self.filter.act {
                        super::tile::Act::Slope(slopes) => slopes[block..].as_ptr().cast(),
                        _ => std::ptr::null(),
                    },
                    filter: &self.filter,
                    residual,
                    y: out.to.wrapping_add(offset),
                };
                // SAFETY: the rows are there, as the caller promises.
                unsafe {
                    match (window.kernel.1, window.stride.1, window.dilation.1) {
                        (3, 1, 1) => V::depthwise::<3, 1>(&line),
                        (3, 2, 1) => V::depthwise::<3, 2>(&line),
                        (5, 1, 1) => V::depthwise::<5, 1>(&line),
                        (5, 2, 1) => V::depthwise::<5, 2>(&line),
                        _ => V::depthwise::<0, 0>(&line),
                    }
                }
            }
        }
    }
}

/// One row. `K`, `S`: kernel width and stride where known, with a dilation of one; else 0.
///
/// # Safety
/// The level of `V`; the taps' rows have `width` pixels; the output row is there.
#[inline(always)]
pub(crate) unsafe fn row_of<V: Vector, const K: usize, const S: usize>(line: &Line<'_>) {
    let window = line.window;
    let (stride, dilation) = if S > 0 { (S, 1) } else { (window.stride.1, window.dilation.1) };
    let kernel = if K > 0 { K } else { window.kernel.1 };
    let (left, right) = (window.pads[1], window.pads[3]);
    let reach = (kernel - 1) * dilation + 1;
    let columns = (line.width + left + right - reach) / stride + 1;
    let first = left.div_ceil(stride).min(columns);
    let inner = match (line.width + left).checked_sub(reach) {
        Some(room) => (room / stride + 1).clamp(first, columns),
        None => first,
    };
    let mut column = 0;
    while column < first {
        // SAFETY: the column is there.
        unsafe { edge::<V>(line, column, (kernel, stride, dilation)) };
        column += 1;
    }
    // SAFETY: every tap of these columns is inside the row.
    unsafe {
        while column + 6 <= inner {
            inside::<V, K, S, 6>(line, column, (kernel, stride, dilation));
            column += 6;
        }
        while column + 2 <= inner {
            inside::<V, K, S, 2>(line, column, (kernel, stride, dilation));
            column += 2;
        }
        if column < inner {
            inside::<V, K, S, 1>(line, column, (kernel, stride, dilation));
            column += 1;
        }
    }
    while column < columns {
        // SAFETY: the column is there.
        unsafe { edge::<V>(line, column, (kernel, stride, dilation)) };
        column += 1;
    }
}

/// One pixel of which some taps may be outside.
#[inline(always)]
unsafe fn edge<V: Vector>(
    line: &Line<'_>,
    column: usize,
    (kernel, stride, dilation): (usize, usize, usize),
) {
    // SAFETY: only taps inside the row are touched; the output column is there.
    unsafe {
        let mut sum = V::load(line.bias);
        for &(x, weights) in line.taps {
            for k in 0..kernel {
                let at = (column * stride + k * dilation).wrapping_sub(line.window.pads[1]);
                if at < line.width {
                    let value = V::load(x.add(at * 8));
                    sum = value.fma(V::load(weights.add(k * 8)), sum);
                }
            }
        }
        finish::<V, 1>(line, [sum], column);
    }
}

#[inline(always)]
unsafe fn inside<V: Vector, const K: usize, const S: usize, const N: usize>(
    line: &Line<'_>,
    column: usize,
    (kernel, stride, dilation): (usize, usize, usize),
) {
    // SAFETY: as in `row_of`.
    unsafe {
        let mut sums = [V::load(line.bias); N];
        let start = (column * stride - line.window.pads[1]) * 8;
        for &(x, weights) in line.taps {
            let x = x.add(start);
            for k in 0..if K > 0 { K } else { kernel } {
                let weight = V::load(weights.add(k * 8));
                for (n, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(x.add((n * stride + k * dilation) * 8)).fma(weight, *sum);
                }
            }
        }
        finish(line, sums, column);
    }
}

#[inline(always)]
unsafe fn finish<V: Vector, const N: usize>(line: &Line<'_>, mut sums: [V; N], column: usize) {
    // SAFETY: the output and, where there is one, the residual have these columns.
    unsafe {
        let has = !line.residual.is_null();
        let residual = line.residual.wrapping_add(column * 8);
        if has && !line.filter.after {
            for (n, sum) in sums.iter_mut().enumerate() {
                *sum = sum.add(V::load(residual.add(n * 8)));
            }
        }
        sums = activate(sums, &line.filter.act, line.slopes);
        if has && line.filter.after {
            for (n, sum) in sums.iter_mut().enumerate() {
                *sum = sum.add(V::load(residual.add(n * 8)));
            }
        }
        let y = line.y.add(column * 8);
        for (n, sum) in sums.iter().enumerate() {
            sum.store(y.add(n * 8));
        }
    }
}

unsafe fn body<V: Vector>(
    depthwise: &Depthwise,
    source: &Source,
    band: (usize, usize),
    out: &Rows,
) {
    // SAFETY: passed on.
    unsafe { depthwise.run::<V>(source, band, out) }
}

per_level! {
    /// # Safety
    /// As `Depthwise::run`.
    unsafe fn run_rows(
        depthwise: &Depthwise,
        source: &Source,
        band: (usize, usize),
        out: &Rows,
    ) => body
}

impl Depthwise {
    /// # Panics
    /// When the weights are not of this shape, or the image is not in blocks.
    pub(crate) fn check(&self, image: &Image<'_>) {
        image.check();
        let taps = self.window.kernel.0 * self.window.kernel.1;
        assert!(self.window.kernel.0 <= KERNEL && image.lanes == 8);
        assert_eq!(self.filter.bias.len(), image.blocks, "weights of another shape");
        assert_eq!(self.filter.weights.len(), image.blocks * taps, "weights of another shape");
    }
}

/// Runs a depthwise convolution for one image of a batch.
///
/// # Panics
/// When a slice is shorter than its shape says.
pub(crate) fn convolve(
    with: &mut With<'_>,
    depthwise: &Depthwise,
    image: &Image<'_>,
    number: usize,
    y: &mut [Lane],
    residual: Residual<'_>,
) {
    depthwise.check(image);
    let (h, w) = depthwise.window.output(image.size).expect("a window that fits");
    let target = Target::new(y, number, image.blocks, (h, w), residual);
    let taps = depthwise.window.kernel.0 * depthwise.window.kernel.1;
    let level = with.level;
    deal(with, h, taps * image.blocks * 8 * h * w, |_| 0, &|band, _| {
        let source = Source {
            from: image.data.as_ptr(),
            plane: image.plane,
            row: image.row,
            ring: image.size.0,
            size: image.size,
        };
        // SAFETY: the image was checked; each band writes rows of its own.
        unsafe { run_rows(level, depthwise, &source, band, &target.rows(band.0)) }
    });
}
