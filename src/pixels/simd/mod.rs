//! Which instructions the kernels may use, decided once at run time. The only unsafe code of `pixels`.
//!
//! A kernel takes a level and does what its level can; where it returns a number, that many
//! pixels are done and the caller's plain loop, which is the definition, does the rest. Sums are
//! in the same order at every level and nothing is fused, so every level gives the same bytes.

#![allow(unsafe_code)]

use std::cell::Cell;

/// Compiles a body for the baseline and for AVX2, and calls the one that the level allows.
macro_rules! each_level {
    ($(#[$doc:meta])* $vis:vis fn $name:ident$(<const $n:ident: usize>)?($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        $vis fn $name$(<const $n: usize>)?(level: $crate::simd::Level, $($arg: $ty),*) {
            #[inline(always)]
            fn body$(<const $n: usize>)?($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2$(<const $n: usize>)?($($arg: $ty),*) {
                    body$(::<$n>)?($($arg),*);
                }
                if level.avx2() {
                    // SAFETY: needs AVX2; the level says so only where it was detected.
                    return unsafe { avx2$(::<$n>)?($($arg),*) };
                }
            }
            let _ = level;
            body$(::<$n>)?($($arg),*);
        }
    };
}

/// Does the first pixels of a row with what the level allows, and says how many; 0 where the
/// caller's plain loop is to do them all.
macro_rules! first_pixels {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        $(#[$doc])*
        $vis fn $name(level: $crate::simd::Level, $($arg: $ty),*) -> usize {
            #[cfg(target_arch = "x86_64")]
            if level.avx2() {
                // SAFETY: needs AVX2; the level says so only where it was detected.
                return unsafe { avx2::$name($($arg),*) };
            }
            #[cfg(target_arch = "aarch64")]
            if level.neon() {
                // SAFETY: needs NEON, which every 64-bit ARM processor has.
                return unsafe { neon::$name($($arg),*) };
            }
            let _ = (level, $($arg),*);
            0
        }
    };
}

pub(crate) mod blend;
pub(crate) mod cells;
pub(crate) mod float;
#[cfg_attr(target_arch = "x86_64", path = "lanes_avx2.rs")]
#[cfg_attr(target_arch = "aarch64", path = "lanes_neon.rs")]
mod lanes;
pub(crate) mod mask;
pub(crate) mod rgb;
pub(crate) mod stdm;
pub(crate) mod sum;
pub(crate) mod warp;
pub(crate) mod yuv;

/// The instructions a kernel may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(Inner);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Inner {
    Scalar,
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

thread_local! {
    static FORCED: Cell<Option<Level>> = const { Cell::new(None) };
}

impl Level {
    /// The plain definitions: what every other level is compared with.
    pub const SCALAR: Self = Self(Inner::Scalar);
    /// The fast ways through the pictures with the instructions that the target always has.
    pub const BASELINE: Self = Self(Inner::Baseline);

    /// The best that this processor has.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Self(Inner::Avx2);
        }
        Self::BASELINE
    }

    /// The level that kernels use on this thread.
    pub(crate) fn current() -> Self {
        FORCED.get().unwrap_or_else(Self::best)
    }

    /// Runs `work` at this level, for comparisons in tests and benches.
    pub fn run<R>(self, work: impl FnOnce() -> R) -> R {
        let before = FORCED.replace(Some(self));
        let result = work();
        FORCED.set(before);
        result
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) fn avx2(self) -> bool {
        self.0 == Inner::Avx2
    }

    #[cfg(target_arch = "aarch64")]
    pub(crate) fn neon(self) -> bool {
        self != Self::SCALAR
    }

    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Inner::Scalar => "scalar",
            Inner::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Inner::Avx2 => "avx2",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::geometry::{Roi, Size};
    use crate::view::{Image, ViewMut};

    /// Bytes that look random.
    pub(crate) fn noise<const C: usize>(size: Size, seed: u32) -> Image<C> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        Image::from_vec(size, (0..size.pixels() as usize * C).map(next).collect()).unwrap()
    }

    /// Claims that all levels write the same bytes into a destination with a stride, and
    /// nothing around it.
    pub(crate) fn same_at_every_level<const C: usize>(
        size: Size,
        work: impl Fn(&mut ViewMut<'_, C>),
    ) {
        let roi = Roi { x: 2, y: 1, width: size.width, height: size.height };
        let framed = Size::new(size.width + 5, size.height + 3);
        let outcome = |level: Level| {
            let mut image = noise::<C>(framed, 7);
            level.run(|| work(&mut image.view_mut().crop(roi)));
            image
        };
        let (want, around) = (outcome(Level::SCALAR), noise::<C>(framed, 7));
        for (x, y) in (0..framed.height).flat_map(|y| (0..framed.width).map(move |x| (x, y))) {
            let inside = (2..2 + size.width).contains(&x) && (1..1 + size.height).contains(&y);
            assert!(inside || want.view().pixel(x, y) == around.view().pixel(x, y));
        }
        for level in [Level::BASELINE, Level::best()] {
            let got = outcome(level);
            let at = got.bytes_all().iter().zip(want.bytes_all()).position(|(a, b)| a != b);
            assert_eq!(at, None, "{} differs from scalar at this byte of {got:?}", level.name());
        }
    }

    #[test]
    fn levels_are_put_back() {
        assert_eq!(Level::SCALAR.run(Level::current), Level::SCALAR);
        assert_eq!(Level::current(), Level::best());
    }
}
