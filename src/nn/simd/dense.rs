//! Convolutions over all input channels: rows of output from padded rows of input.

use super::Lane;
use super::bands::{Residual, Rows, Target, With, deal};
use super::tile::{Filter, Walk};
use super::vector::Vector;

/// Window, steps and padding of an operator that slides over rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) kernel: (usize, usize),
    pub(crate) stride: (usize, usize),
    pub(crate) dilation: (usize, usize),
    /// Top, left, bottom, right.
    pub(crate) pads: [usize; 4],
}

impl Window {
    /// One pixel to one pixel.
    pub(crate) const POINT: Self =
        Self { kernel: (1, 1), stride: (1, 1), dilation: (1, 1), pads: [0; 4] };

    /// Rows and columns of the output; `None` where the window does not fit.
    pub(crate) fn output(&self, (h, w): (usize, usize)) -> Option<(usize, usize)> {
        let side = |size: usize,
                    [before, after]: [usize; 2],
                    kernel: usize,
                    dilation: usize,
                    stride: usize| {
            let reach = (kernel - 1) * dilation + 1;
            Some((size + before + after).checked_sub(reach)? / stride + 1)
        };
        let [top, left, bottom, right] = self.pads;
        Some((
            side(h, [top, bottom], self.kernel.0, self.dilation.0, self.stride.0)?,
            side(w, [left, right], self.kernel.1, self.dilation.1, self.stride.1)?,
        ))
    }

    /// The input rows that output rows `from..to` look at, before clipping.
    fn reach(&self, rows: usize) -> usize {
        (rows - 1) * self.stride.0 + (self.kernel.0 - 1) * self.dilation.0 + 1
    }
}

/// What stands outside the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Border {
    Zero,
    Reflect,
    Edge,
}

impl Border {
    /// Where a place outside `0..size` is read; `None` for zero.
    pub(crate) fn place(self, at: isize, size: usize) -> Option<usize> {
        let last = size as isize - 1;
        if (0..=last).contains(&at) {
            return Some(at as usize);
        }
        match self {
            Self::Zero => None,
            Self::Edge => Some(at.clamp(0, last) as usize),
            Self::Reflect => {
                let at = if at < 0 { -at } else { 2 * last - at };
                Some(at.clamp(0, last) as usize)
            }
        }
    }
}

/// A convolution over all input channels, packed.
#[derive(Debug, Clone)]
pub(crate) struct Dense {
    pub(crate) window: Window,
    pub(crate) border: Border,
    pub(crate) filter: Filter,
}

/// One image of an input: where its channels, rows and columns are. Distances in floats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image<'a> {
    pub(crate) data: &'a [f32],
    /// Blocks of channels, how many channels the last has, and how many each other has.
    pub(crate) blocks: usize,
    pub(crate) last: usize,
    pub(crate) lanes: usize,
    pub(crate) plane: usize,
    pub(crate) row: usize,
    pub(crate) pixel: usize,
    pub(crate) size: (usize, usize),
}

impl<'a> Image<'a> {
    /// `channels` in blocks of eight.
    pub(crate) fn blocked(data: &'a [f32], channels: usize, (h, w): (usize, usize)) -> Self {
        let blocks = channels.div_ceil(8);
        let last = channels - (blocks - 1) * 8;
        let size = (h, w);
        Self { data, blocks, last, lanes: 8, plane: h * w * 8, row: w * 8, pixel: 8, size }
    }

    /// One plane a channel.
    pub(crate) fn planar(data: &'a [f32], channels: usize, (h, w): (usize, usize)) -> Self {
        let size = (h, w);
        Self { data, blocks: channels, last: 1, lanes: 1, plane: h * w, row: w, pixel: 1, size }
    }

    /// All channels of a pixel together.
    pub(crate) fn interleaved(data: &'a [f32], channels: usize, (h, w): (usize, usize)) -> Self {
        let (row, size) = (w * channels, (h, w));
        Self { data, blocks: 1, last: channels, lanes: 0, plane: 0, row, pixel: channels, size }
    }

    pub(crate) fn channels(&self) -> usize {
        (self.blocks - 1) * self.lanes + self.last
    }

    /// # Panics
    /// When the data is shorter than the picture.
    pub(crate) fn check(&self) {
        let (h, w) = self.size;
        let need = (self.blocks - 1) * self.plane + (h - 1) * self.row + w * self.pixel;
        assert!(self.data.len() >= need, "an image is shorter than its shape");
    }
}

/// Scratch that rows are copied to, in lanes: near this, or one output row's worth.
const STRIP: usize = 4096;
/// Input values of a pointwise convolution that are gone through for all groups before the next.
const CACHED: usize = 48 << 10;

impl Dense {
    fn is_padded(&self) -> bool {
        self.window.pads != [0; 4]
    }

    /// Output rows that are made from one copy of their input rows.
    fn strip(&self, image: &Image<'_>, rows: usize) -> usize {
        let width = (image.size.1 + self.window.pads[1] + self.window.pads[3]) * image.pixel;
        let most = STRIP * 8 / (width * image.blocks).max(1);
        let first = self.window.reach(1);
        (most.saturating_sub(first) / self.window.stride.0 + 1).clamp(1, rows.max(1))
    }

    /// Lanes of scratch that `run` needs for rows of such an image.
    pub(crate) fn scratch(&self, image: &Image<'_>, rows: usize) -> usize {
        if !self.is_padded() {
            return 0;
        }
        let width = (image.size.1 + self.window.pads[1] + self.window.pads[3]) * image.pixel;
        (self.window.reach(self.strip(image, rows)) * width * image.blocks).div_ceil(8)
    }

    /// Computes output rows `from..to`; `out` points at row `from`.
    ///
    /// # Safety
    /// The level of `V`. `image` was checked and has the channels that the filter was packed for;
    /// `out` has room for these rows; `scratch` has the lanes that `scratch()` asks for.
    pub(crate) unsafe fn run<V: Vector>(
        &self,
        image: &Image<'_>,
        (from, to): (usize, usize),
        out: &Rows,
        scratch: *mut f32,
    ) {
        // SAFETY: passed on.
        unsafe {
            match (image.lanes, image.pixel * self.window.stride.1) {
                (8, 8) => self.walk::<V, 8, 8>(image, (from, to), out, scratch),
                (8, 16) => self.walk::<V, 8, 16>(image, (from, to), out, scratch),
                (1, 2) => self.walk::<V, 1, 2>(image, (from, to), out, scratch),
                _ => self.walk::<V, 0, 0>(image, (from, to), out, scratch),
            }
        }
    }

    unsafe fn walk<V: Vector, const LANES: usize, const STEP: usize>(
        &self,
        image: &Image<'_>,
        (from, to): (usize, usize),
        out: &Rows,
        scratch: *mut f32,
    ) {
        let window = &self.window;
        let width = image.size.1;
        let columns = {
            let reach = (window.kernel.1 - 1) * window.dilation.1 + 1;
            (width + window.pads[1] + window.pads[3] - reach) / window.stride.1 + 1
        };
        let mut walk = Walk {
            blocks: image.blocks,
            last: image.last,
            lanes: image.lanes,
            plane: image.plane,
            kernel: window.kernel,
            tap_row: image.row * window.dilation.0,
            tap_column: image.pixel * window.dilation.1,
            row: image.row * window.stride.0,
            pixel: image.pixel * window.stride.1,
            out_row: out.row,
            out_pixel: out.pixel,
            out_plane: out.plane,
            residual_blocks: out.residual_blocks,
        };
        let filter = &self.filter;
        let residual = |offset: usize| {
            if out.residual.is_null() { out.residual } else { out.residual.wrapping_add(offset) }
        };
        let x = image.data.as_ptr();
        if *window == Window::POINT
            && image.row == width * image.pixel
            && out.row == width * out.pixel
        {
            // Rows follow each other on both sides: one long row, in parts that stay in the cache.
            let pixels = (to - from) * width;
            let part = (CACHED / (walk.blocks * image.pixel)).max(24) / 12 * 12;
            let mut at = 0;
            while at < pixels {
                let count = part.min(pixels - at);
                let offset = at * out.pixel;
                // SAFETY: these pixels are inside image and output.
                unsafe {
                    let x = x.add(from * image.row + at * image.pixel);
                    let y = out.to.add(offset);
                    V::rows::<LANES, STEP>(filter, &walk, x, y, residual(offset), (1, count));
                }
                at += count;
            }
            return;
        }
        if !self.is_padded() {
            // SAFETY: without padding every tap is inside the image.
            unsafe {
                let x = x.add(from * walk.row);
                V::rows::<LANES, STEP>(filter, &walk, x, out.to, residual(0), (to - from, columns));
            }
            return;
        }
        let strip = self.strip(image, to - from);
        let held = window.reach(strip);
        let padded = width + window.pads[1] + window.pads[3];
        walk.plane = held * padded * image.pixel;
        walk.tap_row = padded * image.pixel * window.dilation.0;
        walk.row = padded * image.pixel * window.stride.0;
        let mut row = from;
        while row < to {
            let count = strip.min(to - row);
            let offset = (row - from) * out.row;
            // SAFETY: the scratch holds `held` padded rows of each block.
            unsafe {
                let first = (row * window.stride.0) as isize - window.pads[0] as isize;
                self.copy(image, first, window.reach(count), held, scratch);
                let y = out.to.add(offset);
                V::rows::<LANES, STEP>(
                    filter,
                    &walk,
                    scratch,
                    y,
                    residual(offset),
                    (count, columns),
                );
            }
            row += count;
        }
    }

    /// Copies `count` rows from row `first` on into scratch, with what stands around them.
    unsafe fn copy(
        &self,
        image: &Image<'_>,
        first: isize,
        count: usize,
        held: usize,
        scratch: *mut f32,
    ) {
        let ((height, width), pixel) = (image.size, image.pixel);
        let [_, left, _, right] = self.window.pads;
        let padded = (left + width + right) * pixel;
        for block in 0..image.blocks {
            for r in 0..count {
                // SAFETY: row `r` of `held` rows of this block.
                let to = unsafe { scratch.add((block * held + r) * padded) };
                let Some(row) = self.border.place(first + r as isize, height) else {
                    // SAFETY: one padded row.
                    unsafe { to.write_bytes(0, padded) };
                    continue;
                };
                let from = &image.data[block * image.plane + row * image.row..][..width * pixel];
                // SAFETY: the middle of one padded row; scratch and image never overlap.
                unsafe {
                    to.add(left * pixel).copy_from_nonoverlapping(from.as_ptr(), width * pixel);
                }
                let outside = (0..left).map(|i| (i, i as isize - left as isize));
                let beyond = (0..right).map(|i| (left + width + i, (width + i) as isize));
                for (at, place) in outside.chain(beyond) {
                    // SAFETY: one pixel of the padded row.
                    let to = unsafe { to.add(at * pixel) };
                    match self.border.place(place, width) {
                        // SAFETY: as above; the source is a whole pixel of the image.
                        Some(column) => unsafe {
                            let pixel_at = from[column * pixel..][..pixel].as_ptr();
                            to.copy_from_nonoverlapping(pixel_at, pixel);
                        },
                        // SAFETY: as above.
                        None => unsafe { to.write_bytes(0, pixel) },
                    }
                }
            }
        }
    }
}

unsafe fn body<V: Vector>(
    dense: &Dense,
    image: &Image<'_>,
    band: (usize, usize),
    out: &Rows,
    scratch: *mut f32,
) {
    // SAFETY: passed on.
    unsafe { dense.run::<V>(image, band, out, scratch) }
}

per_level! {
    /// # Safety
    /// As `Dense::run`.
    pub(crate) unsafe fn run_rows(
        dense: &Dense,
        image: &Image<'_>,
        band: (usize, usize),
        out: &Rows,
        scratch: *mut f32,
    ) => body
}

/// Runs a convolution for one image of a batch.
///
/// # Panics
/// When a slice is shorter than its shape says.
pub(crate) fn convolve(
    with: &mut With<'_>,
    dense: &Dense,
    image: &Image<'_>,
    number: usize,
    y: &mut [Lane],
    residual: Residual<'_>,
) {
    image.check();
    let (h, w) = dense.window.output(image.size).expect("a window that fits");
    let blocks = dense.filter.bias.len();
    let values = image.channels() * dense.window.kernel.0 * dense.window.kernel.1;
    assert_eq!(dense.filter.weights.len(), blocks * values, "weights of another shape");
    let target = Target::new(y, number, blocks, (h, w), residual);
    let level = with.level;
    let scratch = |rows| dense.scratch(image, rows);
    deal(with, h, values * blocks * h * w, scratch, &|band, scratch| {
        // SAFETY: the image was checked, the output holds `h` rows and each band writes its own,
        // and the scratch is as large as was asked for.
        unsafe { run_rows(level, dense, image, band, &target.rows(band.0), scratch) }
    });
}

/// Lanes of scratch that `convolve` needs.
pub(crate) fn convolve_scratch(dense: &Dense, image: &Image<'_>, threads: usize) -> usize {
    let Some((h, _)) = dense.window.output(image.size) else { return 0 };
    dense.scratch(image, h) * threads
}
