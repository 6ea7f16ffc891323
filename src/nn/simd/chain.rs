//! Widen, filter each channel, narrow: three convolutions by strips of rows, so that what is wide
//! exists only as a few rows in the cache.

use super::Lane;
use super::bands::{Residual, Rows, Target, With, deal};
use super::dense::{Dense, Image};
use super::depthwise::{Depthwise, Source};
use super::vector::Vector;

/// The widening convolution may be absent.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) widen: Option<Dense>,
    pub(crate) depthwise: Depthwise,
    pub(crate) narrow: Dense,
    /// Channels of what is wide.
    pub(crate) channels: usize,
}

/// How a chain goes through one image.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Rows and columns: of the input, of what is wide, of the output.
    from: (usize, usize),
    wide: (usize, usize),
    to: (usize, usize),
    blocks: usize,
    /// Output rows of a strip, and rows of what is wide that are kept.
    strip: usize,
    ring: usize,
    /// Lanes of scratch: for widening, for what is wide, for the filtered strip.
    lanes: [usize; 3],
}

/// Lanes of one strip to aim at: the cache of one core, less what the weights take.
const STRIP: usize = 8192;

impl Chain {
    fn sizes(&self, image: &Image<'_>) -> Sizes {
        let window = &self.depthwise.window;
        let from = image.size;
        let wide = self.widen.as_ref().map_or(Some(from), |w| w.window.output(from));
        let wide = wide.expect("a window that fits");
        let to = window.output(wide).expect("a window that fits");
        let blocks = self.depthwise.filter.bias.len();
        let widening = self.widen.is_some();
        let held = |strip: usize| {
            let reach =
                (strip - 1) * window.stride.0 + (window.kernel.0 - 1) * window.dilation.0 + 1;
            if widening { reach.min(wide.0) } else { 0 }
        };
        let lanes = |strip: usize| (held(strip) * wide.1 + strip * to.1) * blocks;
        let weights = self.narrow.filter.weights.len()
            + self.widen.as_ref().map_or(0, |w| w.filter.weights.len());
        let most = STRIP.max(weights);
        let mut strip = 1;
        while strip < to.0 && lanes(strip + 1) <= most {
            strip += 1;
        }
        let ring = held(strip);
        let first = self.widen.as_ref().map_or(0, |w| w.scratch(image, ring));
        let lanes = [first, ring * wide.1 * blocks, strip * to.1 * blocks];
        Sizes { from, wide, to, blocks, strip, ring, lanes }
    }

    /// Lanes of scratch that `convolve` needs.
    pub(crate) fn scratch(&self, image: &Image<'_>, threads: usize) -> usize {
        self.sizes(image).lanes.iter().sum::<usize>() * threads
    }
}

/// # Safety
/// The level of `V`; the image was checked; `scratch` has the lanes of `sizes`; `out` points at
/// the first row of the band and has room.
unsafe fn body<V: Vector>(
    chain: &Chain,
    sizes: &Sizes,
    image: &Image<'_>,
    band: (usize, usize),
    out: &Rows,
    scratch: *mut f32,
) {
    let (widening, wide, narrow) = (
        scratch,
        scratch.wrapping_add(sizes.lanes[0] * 8),
        scratch.wrapping_add((sizes.lanes[0] + sizes.lanes[1]) * 8),
    );
    let window = &chain.depthwise.window;
    let source = match chain.widen {
        Some(_) => Source {
            from: wide,
            plane: sizes.ring * sizes.wide.1 * 8,
            row: sizes.wide.1 * 8,
            ring: sizes.ring,
            size: sizes.wide,
        },
        None => Source {
            from: image.data.as_ptr(),
            plane: image.plane,
            row: image.row,
            ring: sizes.from.0,
            size: sizes.from,
        },
    };
    let filtered = Rows {
        to: narrow,
        residual: std::ptr::null(),
        residual_blocks: 0,
        row: sizes.to.1 * 8,
        pixel: 8,
        plane: sizes.strip * sizes.to.1 * 8,
    };
    let mut made = 0;
    let mut row = band.0;
    while row < band.1 {
        let next = (row + sizes.strip).min(band.1);
        if let Some(widen) = &chain.widen {
            let low = (row * window.stride.0).saturating_sub(window.pads[0]);
            let reach = (next - 1) * window.stride.0 + (window.kernel.0 - 1) * window.dilation.0;
            let high = (reach + 1).saturating_sub(window.pads[0]).min(sizes.wide.0);
            let mut at = made.max(low);
            while at < high {
                // Up to where the ring begins anew.
                let stop = high.min((at / sizes.ring + 1) * sizes.ring);
                let rows = Rows {
                    to: wide.wrapping_add((at % sizes.ring) * source.row),
                    row: source.row,
                    plane: source.plane,
                    ..filtered
                };
                // SAFETY: the ring has room from here to `stop`, and `widening` is scratch for it.
                unsafe { widen.run::<V>(image, (at, stop), &rows, widening) };
                at = stop;
            }
            made = high.max(made);
        }
        // SAFETY: the ring holds the rows that these look at; `narrow` holds a strip.
        unsafe { chain.depthwise.run::<V>(&source, (row, next), &filtered) };
        // SAFETY: `narrow` was just filled, with the planes of a strip.
        let data = unsafe { std::slice::from_raw_parts(narrow.cast_const(), sizes.lanes[2] * 8) };
        let strip = Image {
            data,
            plane: filtered.plane,
            ..Image::blocked(data, chain.channels, (next - row, sizes.to.1))
        };
        let offset = (row - band.0) * out.row;
        let to = Rows {
            to: out.to.wrapping_add(offset),
            residual: if out.residual.is_null() {
                out.residual
            } else {
                out.residual.wrapping_add(offset)
            },
            ..*out
        };
        // SAFETY: the strip is whole; the output has these rows.
        unsafe { chain.narrow.run::<V>(&strip, (0, next - row), &to, std::ptr::null_mut()) };
        row = next;
    }
}

per_level! {
    unsafe fn run_band(
        chain: &Chain,
        sizes: &Sizes,
        image: &Image<'_>,
        band: (usize, usize),
        out: &Rows,
        scratch: *mut f32,
    ) => body
}

/// Runs a chain for one image of a batch.
///
/// # Panics
/// When a slice is shorter than its shape says.
pub(crate) fn convolve(
    with: &mut With<'_>,
    chain: &Chain,
    image: &Image<'_>,
    number: usize,
    y: &mut [Lane],
    residual: Residual<'_>,
) {
    image.check();
    let sizes = chain.sizes(image);
    let wide = sizes.blocks;
    let mut work = chain.depthwise.filter.weights.len() * 8 + chain.narrow.filter.weights.len() * 8;
    match &chain.widen {
        Some(widen) => {
            let taps = widen.window.kernel.0 * widen.window.kernel.1;
            let values = image.channels() * taps;
            assert_eq!(widen.filter.weights.len(), wide * values, "weights of another shape");
            assert_eq!(widen.filter.bias.len(), wide, "weights of another shape");
            work += widen.filter.weights.len() * 8;
        }
        None => chain.depthwise.check(image),
    }
    let taps = chain.depthwise.window.kernel.0 * chain.depthwise.window.kernel.1;
    assert_eq!(chain.depthwise.filter.weights.len(), wide * taps, "weights of another shape");
    let blocks = chain.narrow.filter.bias.len();
    let narrow = chain.narrow.filter.weights.len();
    assert_eq!(narrow, blocks * chain.channels, "weights of another shape");
    assert_eq!(chain.channels.div_ceil(8), wide, "weights of another shape");
    assert_eq!(chain.narrow.window, super::dense::Window::POINT);
    let (h, w) = sizes.to;
    let target = Target::new(y, number, blocks, (h, w), residual);
    let lanes: usize = sizes.lanes.iter().sum();
    let level = with.level;
    deal(with, h, work * h * w, |_| lanes, &|band, scratch| {
        // SAFETY: everything was checked above; each band has rows and scratch of its own.
        unsafe { run_band(level, chain, &sizes, image, band, &target.rows(band.0), scratch) }
    });
}
