//! Blending of bytes by alpha.

use super::Level;

/// Blends the first pixels of a row; returns how many.
#[cfg(target_arch = "x86_64")]
pub(crate) fn paste(level: Level, dst: &mut [u8], layer: &[u8], alpha: &[u8]) -> usize {
    if !level.avx2() {
        return 0;
    }
    // SAFETY: needs AVX2; the level says so only where it was detected.
    unsafe { avx2::paste(dst, layer, alpha) }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn paste(_: Level, _: &mut [u8], _: &[u8], _: &[u8]) -> usize {
    0
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use crate::simd::load::{bytes_of, load16, store16, thrice};

    #[target_feature(enable = "avx2")]
    pub(super) fn paste(dst: &mut [u8], layer: &[u8], alpha: &[u8]) -> usize {
        let whole = alpha.len() / 16 * 16;
        for x in (0..whole).step_by(16) {
            let a = load16(alpha, x);
            if _mm_testz_si128(a, a) == 1 {
                continue;
            }
            let (dst, layer) = (&mut dst[3 * x..3 * x + 48], &layer[3 * x..3 * x + 48]);
            if _mm_testc_si128(a, _mm_set1_epi8(-1)) == 1 {
                dst.copy_from_slice(layer);
                continue;
            }
            for (third, a) in thrice(a).into_iter().enumerate() {
                let at = 16 * third;
                store16(dst, at, blend(load16(dst, at), load16(layer, at), a));
            }
        }
        whole
    }

    /// d * 255 + (s - d) * a + 127 fits 16 bits although its parts wrap; then / 255.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn blend(d: __m128i, s: __m128i, a: __m128i) -> __m128i {
        let (d, s, a) = (_mm256_cvtepu8_epi16(d), _mm256_cvtepu8_epi16(s), _mm256_cvtepu8_epi16(a));
        let d255 = _mm256_sub_epi16(_mm256_slli_epi16::<8>(d), d);
        let part = _mm256_mullo_epi16(_mm256_sub_epi16(s, d), a);
        let sum = _mm256_add_epi16(_mm256_add_epi16(d255, part), _mm256_set1_epi16(127));
        let over = _mm256_add_epi16(_mm256_srli_epi16::<8>(sum), _mm256_set1_epi16(1));
        bytes_of(_mm256_srli_epi16::<8>(_mm256_add_epi16(sum, over)))
    }
}
