//! Output rows dealt out to the team: each band has rows and scratch of its own.

use super::team::Team;
use super::{Lane, Level};

/// Where rows of output go. Distances in floats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) to: *mut f32,
    /// Laid out as the output; null without one; may be `to`.
    pub(crate) residual: *const f32,
    pub(crate) residual_blocks: usize,
    pub(crate) row: usize,
    pub(crate) pixel: usize,
    pub(crate) plane: usize,
}

/// Where a residual comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Residual<'a> {
    None,
    /// The output holds it already.
    InPlace(usize),
    /// Another tensor, with so many blocks of channels (fewer than the output: the rest is zero).
    Other(&'a [Lane], usize),
}

impl Residual<'_> {
    /// Pointer and blocks for one image of the output at `y`.
    ///
    /// # Panics
    /// When it is shorter than the image.
    fn of(&self, image: usize, y: *mut f32, pixels: usize) -> (*const f32, usize) {
        match *self {
            Self::None => (std::ptr::null(), 0),
            Self::InPlace(blocks) => (y, blocks),
            Self::Other(lanes, blocks) => {
                let of = &lanes[image * blocks * pixels..][..blocks * pixels];
                (of.as_ptr().cast(), blocks)
            }
        }
    }
}

/// What a run needs besides its operands.
#[derive(Debug)]
pub(crate) struct With<'a> {
    pub(crate) level: Level,
    pub(crate) team: &'a Team,
    pub(crate) scratch: &'a mut [Lane],
}

/// A pointer that threads share; they write to disjoint places.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

// SAFETY: only an address; each use says why its places are its own.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn at(self, offset: usize) -> *mut f32 {
        self.0.wrapping_add(offset)
    }
}

/// One image of an output, and what is added to it.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    base: Shared,
    residual: Shared,
    residual_blocks: usize,
    size: (usize, usize),
}

impl Target {
    /// Image `number` of `y`, which has so many blocks of `size` = (rows, columns).
    ///
    /// # Panics
    /// When `y` or the residual is shorter than that.
    pub(crate) fn new(
        y: &mut [Lane],
        number: usize,
        blocks: usize,
        size: (usize, usize),
        residual: Residual<'_>,
    ) -> Self {
        let pixels = size.0 * size.1;
        let y = &mut y[number * blocks * pixels..][..blocks * pixels];
        let base = Shared(y.as_mut_ptr().cast());
        let (residual, residual_blocks) = residual.of(number, base.0, pixels);
        Self { base, residual: Shared(residual.cast_mut()), residual_blocks, size }
    }

    /// The rows from `first` on.
    pub(crate) fn rows(&self, first: usize) -> Rows {
        self.every((first, 0), (1, 1))
    }

    /// Every `step.0`th row and `step.1`th column from `first` = (row, column) on.
    pub(crate) fn every(&self, first: (usize, usize), step: (usize, usize)) -> Rows {
        let (h, w) = self.size;
        let offset = (first.0 * w + first.1) * 8;
        let residual = self.residual.0;
        Rows {
            to: self.base.at(offset),
            residual: if residual.is_null() { residual } else { self.residual.at(offset) },
            residual_blocks: self.residual_blocks,
            row: step.0 * w * 8,
            pixel: step.1 * 8,
            plane: h * w * 8,
        }
    }
}

/// Bands of rows, one a thread: none below a thread's worth of work.
fn bands(threads: usize, rows: usize, work: usize) -> usize {
    const LEAST: usize = 200_000;
    threads.min(rows).min(work / LEAST).max(1)
}

/// Calls `run` for each band of `rows`, on the team, with its rows `(first, end)` and its scratch:
/// so many lanes as `scratch` says for a band of that many rows.
///
/// # Panics
/// When there is too little scratch.
pub(crate) fn deal(
    with: &mut With<'_>,
    rows: usize,
    work: usize,
    scratch: impl Fn(usize) -> usize,
    run: &(dyn Fn((usize, usize), *mut f32) + Sync),
) {
    let bands = bands(with.team.threads(), rows, work);
    let each = rows.div_ceil(bands);
    let lanes = scratch(each);
    assert!(with.scratch.len() >= lanes * bands, "scratch is too short");
    let scratch = Shared(with.scratch.as_mut_ptr().cast());
    with.team.run(bands, &|band| {
        let (first, end) = (band * each, ((band + 1) * each).min(rows));
        if first < end {
            run((first, end), scratch.at(band * lanes * 8));
        }
    });
}
