//! Loads and stores with checked bounds, and the three channels of sixteen pixels, for NEON.

use std::arch::aarch64::*;

#[inline(always)]
fn part<T, const N: usize>(from: &[T], at: usize) -> &[T; N] {
    from[at..at + N].first_chunk().expect("N values")
}

#[inline(always)]
fn part_mut<T, const N: usize>(to: &mut [T], at: usize) -> &mut [T; N] {
    to[at..at + N].first_chunk_mut().expect("N values")
}

#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load8(from: &[u8], at: usize) -> uint8x8_t {
    // SAFETY: reads 8 bytes, unaligned; the array has them.
    unsafe { vld1_u8(part::<u8, 8>(from, at).as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load16(from: &[u8], at: usize) -> uint8x16_t {
    // SAFETY: reads 16 bytes, unaligned; the array has them.
    unsafe { vld1q_u8(part::<u8, 16>(from, at).as_ptr()) }
}

/// 16 bytes as two interleaved channels.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load16x2(from: &[u8], at: usize) -> [uint8x8_t; 2] {
    // SAFETY: reads 16 bytes, unaligned; the array has them.
    let v = unsafe { vld2_u8(part::<u8, 16>(from, at).as_ptr()) };
    [v.0, v.1]
}

/// 32 bytes as four interleaved channels.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load32x4(from: &[u8], at: usize) -> [uint8x8_t; 4] {
    // SAFETY: reads 32 bytes, unaligned; the array has them.
    let v = unsafe { vld4_u8(part::<u8, 32>(from, at).as_ptr()) };
    [v.0, v.1, v.2, v.3]
}

/// 16 pixels as three channels.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load48(from: &[u8], at: usize) -> [uint8x16_t; 3] {
    // SAFETY: reads 48 bytes, unaligned; the array has them.
    let v = unsafe { vld3q_u8(part::<u8, 48>(from, at).as_ptr()) };
    [v.0, v.1, v.2]
}

#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load4f(from: &[f32], at: usize) -> float32x4_t {
    // SAFETY: reads 4 values, unaligned; the array has them.
    unsafe { vld1q_f32(part::<f32, 4>(from, at).as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store16(to: &mut [u8], at: usize, v: uint8x16_t) {
    // SAFETY: writes 16 bytes, unaligned; the array has them.
    unsafe { vst1q_u8(part_mut::<u8, 16>(to, at).as_mut_ptr(), v) }
}

/// Three channels to 16 pixels.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store48(to: &mut [u8], at: usize, v: [uint8x16_t; 3]) {
    let v = uint8x16x3_t(v[0], v[1], v[2]);
    // SAFETY: writes 48 bytes, unaligned; the array has them.
    unsafe { vst3q_u8(part_mut::<u8, 48>(to, at).as_mut_ptr(), v) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store4f(to: &mut [f32], at: usize, v: float32x4_t) {
    // SAFETY: writes 4 values, unaligned; the array has them.
    unsafe { vst1q_f32(part_mut::<f32, 4>(to, at).as_mut_ptr(), v) }
}

/// Three channels to 4 pixels.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store12f(to: &mut [f32], at: usize, v: [float32x4_t; 3]) {
    let v = float32x4x3_t(v[0], v[1], v[2]);
    // SAFETY: writes 12 values, unaligned; the array has them.
    unsafe { vst3q_f32(part_mut::<f32, 12>(to, at).as_mut_ptr(), v) }
}

/// v + 0.5 of 16 floats as bytes, as a cast does it: cut to 0..=255, not a number is 0.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn rounded(v: [float32x4_t; 4]) -> uint8x16_t {
    let half = vdupq_n_f32(0.5);
    let words = |v: float32x4_t| vqmovn_s32(vcvtq_s32_f32(vaddq_f32(v, half)));
    let low = vcombine_s16(words(v[0]), words(v[1]));
    let high = vcombine_s16(words(v[2]), words(v[3]));
    vcombine_u8(vqmovun_s16(low), vqmovun_s16(high))
}
