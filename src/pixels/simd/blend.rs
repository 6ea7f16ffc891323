//! Blending of bytes by alpha.

first_pixels! {
    /// Blends a row by alpha.
    pub(crate) fn paste(dst: &mut [u8], layer: &[u8], alpha: &[u8])
}

each_level! {
    /// Blends a row of one channel by alpha: / 255 is exact for all sums that there are.
    pub(crate) fn plane(dst: &mut [u8], layer: &[u8], alpha: &[u8]) {
        for ((d, s), a) in dst.iter_mut().zip(layer).zip(alpha) {
            let (a, s) = (u16::from(*a), u16::from(*s));
            let sum = u16::from(*d) * (255 - a) + s * a + 127;
            *d = ((sum + 1 + (sum >> 8)) >> 8) as u8;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use crate::simd::lanes::{bytes_of, load16, store16, thrice};

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

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use crate::simd::lanes::{load16, load48, store48};

    #[target_feature(enable = "neon")]
    pub(super) fn paste(dst: &mut [u8], layer: &[u8], alpha: &[u8]) -> usize {
        let whole = alpha.len() / 16 * 16;
        for x in (0..whole).step_by(16) {
            let a = load16(alpha, x);
            if vmaxvq_u8(a) == 0 {
                continue;
            }
            let (d, s) = (load48(dst, 3 * x), load48(layer, 3 * x));
            store48(dst, 3 * x, [blend(d[0], s[0], a), blend(d[1], s[1], a), blend(d[2], s[2], a)]);
        }
        whole
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn blend(d: uint8x16_t, s: uint8x16_t, a: uint8x16_t) -> uint8x16_t {
        let rest = vmvnq_u8(a);
        let low = vmull_u8(vget_low_u8(d), vget_low_u8(rest));
        let low = vmlal_u8(low, vget_low_u8(s), vget_low_u8(a));
        let high = vmlal_high_u8(vmull_high_u8(d, rest), s, a);
        vcombine_u8(div255(low), div255(high))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn div255(v: uint16x8_t) -> uint8x8_t {
        let v = vaddq_u16(v, vdupq_n_u16(127));
        let over = vaddq_u16(vshrq_n_u16::<8>(v), vdupq_n_u16(1));
        vshrn_n_u16::<8>(vaddq_u16(v, over))
    }
}
