//! Eight floats at once: the operations that every kernel is written in, and their plain form.

use super::depthwise::{self, Line};
use super::tile::{self, Filter, Walk};

/// Eight floats. Where a level has no such register, two or eight of its own.
///
/// # Safety
/// Every method needs the instructions of its level; `load` and `store` need eight floats there,
/// `repeat` one.
pub(crate) trait Vector: Copy {
    /// Worth a function of its own for each size of tile.
    const FAST: bool;

    /// `tile::rows`, compiled once a level with its instructions.
    unsafe fn rows<const LANES: usize, const STEP: usize>(
        filter: &Filter,
        walk: &Walk,
        x: *const f32,
        y: *mut f32,
        residual: *const f32,
        size: (usize, usize),
    );
    /// `depthwise::row_of`, compiled once a level with its instructions.
    unsafe fn depthwise<const K: usize, const S: usize>(line: &Line<'_>);

    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// The value at an address, eight times.
    unsafe fn repeat(at: *const f32) -> Self;
    unsafe fn splat(value: f32) -> Self;
    /// `self * by + to`.
    unsafe fn fma(self, by: Self, to: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// The larger; `other` where that is a NaN, so that a NaN is not lost.
    unsafe fn max(self, other: Self) -> Self;
    /// The smaller; `other` where that is a NaN.
    unsafe fn min(self, other: Self) -> Self;
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; 8]);

impl Plain {
    #[inline(always)]
    fn with(self, other: Self, what: impl Fn(f32, f32) -> f32) -> Self {
        let mut out = self;
        for (a, b) in out.0.iter_mut().zip(other.0) {
            *a = what(*a, b);
        }
        out
    }
}

impl Vector for Plain {
    const FAST: bool = false;

    #[inline(never)]
    unsafe fn rows<const LANES: usize, const STEP: usize>(
        filter: &Filter,
        walk: &Walk,
        x: *const f32,
        y: *mut f32,
        residual: *const f32,
        size: (usize, usize),
    ) {
        // SAFETY: plain code needs no instructions; the rest is the caller's promise.
        unsafe { tile::rows::<Plain, LANES, STEP>(filter, walk, x, y, residual, size) }
    }
    #[inline(never)]
    unsafe fn depthwise<const K: usize, const S: usize>(line: &Line<'_>) {
        // SAFETY: as above.
        unsafe { depthwise::row_of::<Plain, K, S>(line) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has eight floats there; [f32; 8] needs no more alignment than f32.
        Self(unsafe { from.cast::<[f32; 8]>().read() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as in `load`, for writing.
        unsafe { to.cast::<[f32; 8]>().write(self.0) }
    }
    #[inline(always)]
    unsafe fn repeat(at: *const f32) -> Self {
        // SAFETY: the caller has a float there.
        Self([unsafe { *at }; 8])
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 8])
    }
    #[inline(always)]
    unsafe fn fma(self, by: Self, to: Self) -> Self {
        self.with(by, |a, b| a * b).with(to, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.with(other, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.with(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.with(other, |a, b| if a < b { a } else { b })
    }
}
