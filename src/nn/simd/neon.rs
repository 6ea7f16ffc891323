//! NEON: two registers of four.

use std::arch::aarch64::*;

use super::depthwise::{self, Line};
use super::tile::{self, Filter, Walk};
use super::vector::Vector;

#[derive(Clone, Copy)]
pub(crate) struct Neon(float32x4_t, float32x4_t);

/// Intrinsics of NEON, which every 64-bit ARM processor has.
macro_rules! neon {
    ($call:expr) => {
        // SAFETY: NEON is there; the caller has as many floats as are touched.
        unsafe { $call }
    };
}

impl Vector for Neon {
    const FAST: bool = true;

    #[inline(never)]
    unsafe fn rows<const LANES: usize, const STEP: usize>(
        filter: &Filter,
        walk: &Walk,
        x: *const f32,
        y: *mut f32,
        residual: *const f32,
        size: (usize, usize),
    ) {
        // SAFETY: NEON is always there; the rest is the caller's promise.
        unsafe { tile::rows::<Neon, LANES, STEP>(filter, walk, x, y, residual, size) }
    }
    #[inline(never)]
    unsafe fn depthwise<const K: usize, const S: usize>(line: &Line<'_>) {
        // SAFETY: as above.
        unsafe { depthwise::row_of::<Neon, K, S>(line) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        neon!(Self(vld1q_f32(from), vld1q_f32(from.add(4))))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        neon!(vst1q_f32(to, self.0));
        neon!(vst1q_f32(to.add(4), self.1));
    }
    #[inline(always)]
    unsafe fn repeat(at: *const f32) -> Self {
        let one = neon!(vld1q_dup_f32(at));
        Self(one, one)
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        let one = neon!(vdupq_n_f32(value));
        Self(one, one)
    }
    #[inline(always)]
    unsafe fn fma(self, by: Self, to: Self) -> Self {
        neon!(Self(vfmaq_f32(to.0, self.0, by.0), vfmaq_f32(to.1, self.1, by.1)))
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        neon!(Self(vaddq_f32(self.0, other.0), vaddq_f32(self.1, other.1)))
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        neon!(Self(vmulq_f32(self.0, other.0), vmulq_f32(self.1, other.1)))
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        neon!(Self(vmaxq_f32(self.0, other.0), vmaxq_f32(self.1, other.1)))
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        neon!(Self(vminq_f32(self.0, other.0), vminq_f32(self.1, other.1)))
    }
}
