//! The kernels, and which instructions they may use. The only unsafe code of `nn`.
//!
//! Activations are stored in blocks of eight channels, `[batch][block][row][column][8]`, so that
//! one pixel of one block is one `Lane`. Lanes beyond the last channel hold finite values that
//! nobody reads. Kernels are written once over `Vector` (eight floats) and compiled per level; the
//! functions that other modules call are safe and check that their slices are long enough.

#![allow(unsafe_code)]

/// Calls the body, generic over the vector, that a level allows.
macro_rules! per_level {
    ($(#[$doc:meta])* $vis:vis unsafe fn $name:ident($($arg:ident: $ty:ty),* $(,)?) => $body:ident) => {
        $(#[$doc])*
        $vis unsafe fn $name(level: $crate::simd::Level, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            if level.avx2() {
                // SAFETY: AVX2 and FMA were detected, or the level would not say so; the rest is
                // the caller's promise.
                return unsafe { $body::<$crate::simd::avx2::Avx2>($($arg),*) };
            }
            #[cfg(target_arch = "aarch64")]
            if level.neon() {
                // SAFETY: every 64-bit ARM processor has NEON; the rest is the caller's promise.
                return unsafe { $body::<$crate::simd::neon::Neon>($($arg),*) };
            }
            let _ = level;
            // SAFETY: plain code needs no instructions; the rest is the caller's promise.
            unsafe { $body::<$crate::simd::vector::Plain>($($arg),*) }
        }
    };
}

pub(crate) mod vector;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod team;
pub(crate) mod bands;
pub(crate) mod tile;
pub(crate) mod dense;
pub(crate) mod depthwise;
pub(crate) mod chain;
pub(crate) mod spread;

/// Eight channels of one pixel.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C, align(32))]
pub struct Lane(pub [f32; 8]);

impl Lane {
    pub const ZERO: Self = Self([0.0; 8]);
}

/// The same memory as single values.
pub(crate) fn floats(lanes: &[Lane]) -> &[f32] {
    // SAFETY: a Lane is eight floats without padding (size 32, alignment 32 >= 4).
    unsafe { std::slice::from_raw_parts(lanes.as_ptr().cast(), lanes.len() * 8) }
}

/// The same memory as single values.
pub(crate) fn floats_mut(lanes: &mut [Lane]) -> &mut [f32] {
    // SAFETY: as in `floats`; the borrow is exclusive and passed on.
    unsafe { std::slice::from_raw_parts_mut(lanes.as_mut_ptr().cast(), lanes.len() * 8) }
}

/// Floats that are lanes: what `floats` gave.
///
/// # Panics
/// When they do not begin and end with a lane.
pub(crate) fn lanes(values: &[f32]) -> &[Lane] {
    assert!(values.len().is_multiple_of(8) && values.as_ptr().cast::<Lane>().is_aligned());
    // SAFETY: the length and the alignment are right, and any eight floats are a Lane.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len() / 8) }
}

/// The instructions a kernel may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(Inner);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Level {
    /// Plain Rust: what every other level is compared with.
    pub const PLAIN: Self = Self(Inner::Plain);

    /// The best that this processor has.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let has = std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("fma");
            if has { Self(Inner::Avx2) } else { Self::PLAIN }
        }
        #[cfg(target_arch = "aarch64")]
        {
            Self(Inner::Neon)
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            Self::PLAIN
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn avx2(self) -> bool {
        self.0 == Inner::Avx2
    }

    #[cfg(target_arch = "aarch64")]
    fn neon(self) -> bool {
        self.0 == Inner::Neon
    }

    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Inner::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Inner::Avx2 => "avx2",
            #[cfg(target_arch = "aarch64")]
            Inner::Neon => "neon",
        }
    }
}
