//! AVX2 with FMA: one register.

use std::arch::x86_64::*;

use super::depthwise::{self, Line};
use super::tile::{self, Filter, Walk};
use super::vector::Vector;

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256);

/// Each method is one intrinsic; all need AVX2 and FMA.
macro_rules! one {
    ($call:expr) => {
        // SAFETY: the caller promises AVX2, FMA and, for addresses, as many floats as are touched.
        unsafe { $call }
    };
}

impl Vector for Avx2 {
    const FAST: bool = true;

    #[inline]
    unsafe fn rows<const LANES: usize, const STEP: usize>(
        filter: &Filter,
        walk: &Walk,
        x: *const f32,
        y: *mut f32,
        residual: *const f32,
        size: (usize, usize),
    ) {
        #[target_feature(enable = "avx2,fma")]
        #[inline(never)]
        unsafe fn compiled<const LANES: usize, const STEP: usize>(
            filter: &Filter,
            walk: &Walk,
            x: *const f32,
            y: *mut f32,
            residual: *const f32,
            size: (usize, usize),
        ) {
            // SAFETY: the caller keeps the promises of `tile::rows`.
            unsafe { tile::rows::<Avx2, LANES, STEP>(filter, walk, x, y, residual, size) }
        }
        // SAFETY: the level says that AVX2 and FMA are there; the rest is the caller's promise.
        unsafe { compiled::<LANES, STEP>(filter, walk, x, y, residual, size) }
    }
    #[inline]
    unsafe fn depthwise<const K: usize, const S: usize>(line: &Line<'_>) {
        #[target_feature(enable = "avx2,fma")]
        #[inline(never)]
        unsafe fn compiled<const K: usize, const S: usize>(line: &Line<'_>) {
            // SAFETY: the caller keeps the promises of `depthwise::row_of`.
            unsafe { depthwise::row_of::<Avx2, K, S>(line) }
        }
        // SAFETY: as above.
        unsafe { compiled::<K, S>(line) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Self(one!(_mm256_loadu_ps(from)))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        one!(_mm256_storeu_ps(to, self.0));
    }
    #[inline(always)]
    unsafe fn repeat(at: *const f32) -> Self {
        Self(one!(_mm256_set1_ps(*at)))
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self(one!(_mm256_set1_ps(value)))
    }
    #[inline(always)]
    unsafe fn fma(self, by: Self, to: Self) -> Self {
        Self(one!(_mm256_fmadd_ps(self.0, by.0, to.0)))
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(one!(_mm256_add_ps(self.0, other.0)))
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(one!(_mm256_mul_ps(self.0, other.0)))
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        Self(one!(_mm256_max_ps(self.0, other.0)))
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        Self(one!(_mm256_min_ps(self.0, other.0)))
    }
}
