//! YUV to RGB, sixteen pixels at a time.

/// Luma in 1/2^14 above `black`, chroma in 1/2^13.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decode {
    pub(crate) black: i16,
    pub(crate) luma: i16,
    pub(crate) red_v: i16,
    pub(crate) green_u: i16,
    pub(crate) green_v: i16,
    pub(crate) blue_u: i16,
}

/// One row of a picture.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Row<'a> {
    /// Luma; U and V side by side.
    Nv12(&'a [u8], &'a [u8]),
    /// Luma, U, V.
    I420(&'a [u8], &'a [u8], &'a [u8]),
    /// Y0 U Y1 V.
    Yuyv(&'a [u8]),
}

first_pixels! {
    /// Decodes a row.
    pub(crate) fn decode(row: Row<'_>, decode: &Decode, out: &mut [u8])
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Decode, Row};
    use crate::simd::lanes::{bytes_of, index, join3, load8, load16};

    const EVEN: [u8; 16] = [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14];
    const ODD: [u8; 16] = [1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15];
    /// Of eight pixels as Y0 U Y1 V.
    const PAIR_Y: [u8; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 255, 255, 255, 255, 255, 255, 255, 255];
    const PAIR_U: [u8; 16] = [1, 1, 5, 5, 9, 9, 13, 13, 255, 255, 255, 255, 255, 255, 255, 255];
    const PAIR_V: [u8; 16] = [3, 3, 7, 7, 11, 11, 15, 15, 255, 255, 255, 255, 255, 255, 255, 255];

    #[target_feature(enable = "avx2")]
    pub(super) fn decode(row: Row<'_>, decode: &Decode, out: &mut [u8]) -> usize {
        let pixels = out.len() / 48 * 16;
        let factors = Factors::new(decode);
        match row {
            Row::Nv12(luma, chroma) => {
                for x in (0..pixels).step_by(16) {
                    let uv = load16(chroma, x);
                    let u = _mm_shuffle_epi8(uv, index(&EVEN));
                    let v = _mm_shuffle_epi8(uv, index(&ODD));
                    join3(out, 3 * x, factors.rgb(load16(luma, x), u, v));
                }
            }
            Row::I420(luma, u, v) => {
                for x in (0..pixels).step_by(16) {
                    let (u, v) = (load8(u, x / 2), load8(v, x / 2));
                    let (u, v) = (_mm_unpacklo_epi8(u, u), _mm_unpacklo_epi8(v, v));
                    join3(out, 3 * x, factors.rgb(load16(luma, x), u, v));
                }
            }
            Row::Yuyv(pairs) => {
                for x in (0..pixels).step_by(16) {
                    let (a, b) = (load16(pairs, 2 * x), load16(pairs, 2 * x + 16));
                    let both = |order: &[u8; 16]| {
                        let order = index(order);
                        _mm_unpacklo_epi64(_mm_shuffle_epi8(a, order), _mm_shuffle_epi8(b, order))
                    };
                    let rgb = factors.rgb(both(&PAIR_Y), both(&PAIR_U), both(&PAIR_V));
                    join3(out, 3 * x, rgb);
                }
            }
        }
        pixels
    }

    struct Factors {
        black: __m256i,
        luma: __m256i,
        red_v: __m256i,
        green_u: __m256i,
        green_v: __m256i,
        blue_u: __m256i,
    }

    impl Factors {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn new(d: &Decode) -> Self {
            Self {
                black: _mm256_set1_epi16(d.black),
                luma: _mm256_set1_epi16(d.luma),
                red_v: _mm256_set1_epi16(d.red_v),
                green_u: _mm256_set1_epi16(d.green_u),
                green_v: _mm256_set1_epi16(d.green_v),
                blue_u: _mm256_set1_epi16(d.blue_u),
            }
        }

        /// Sums beyond 16 bits stay beyond 255 when they are cut to 16.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn rgb(&self, y: __m128i, u: __m128i, v: __m128i) -> [__m128i; 3] {
            let y = _mm256_sub_epi16(_mm256_cvtepu8_epi16(y), self.black);
            let y = _mm256_mulhrs_epi16(_mm256_slli_epi16::<7>(y), self.luma);
            let y = _mm256_add_epi16(y, _mm256_set1_epi16(32));
            let signed = |c: __m128i| {
                let c = _mm256_sub_epi16(_mm256_cvtepu8_epi16(c), _mm256_set1_epi16(128));
                _mm256_slli_epi16::<8>(c)
            };
            let (u, v) = (signed(u), signed(v));
            let red = _mm256_adds_epi16(y, _mm256_mulhrs_epi16(v, self.red_v));
            let green = _mm256_subs_epi16(y, _mm256_mulhrs_epi16(u, self.green_u));
            let green = _mm256_subs_epi16(green, _mm256_mulhrs_epi16(v, self.green_v));
            let blue = _mm256_adds_epi16(y, _mm256_mulhrs_epi16(u, self.blue_u));
            [red, green, blue].map(|c| bytes_of(_mm256_srai_epi16::<6>(c)))
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use super::{Decode, Row};
    use crate::simd::lanes::{load8, load16, load16x2, load32x4, store48};

    #[target_feature(enable = "neon")]
    pub(super) fn decode(row: Row<'_>, decode: &Decode, out: &mut [u8]) -> usize {
        let pixels = out.len() / 48 * 16;
        for x in (0..pixels).step_by(16) {
            // Luma of even and odd pixels where they come apart, and chroma of pairs.
            let (y, u, v) = match row {
                Row::Nv12(luma, chroma) => {
                    let [u, v] = load16x2(chroma, x);
                    (load16(luma, x), u, v)
                }
                Row::I420(luma, u, v) => (load16(luma, x), load8(u, x / 2), load8(v, x / 2)),
                Row::Yuyv(pairs) => {
                    let [even, u, odd, v] = load32x4(pairs, 2 * x);
                    (vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd)), u, v)
                }
            };
            let low = rgb(decode, vget_low_u8(y), vzip1_u8(u, u), vzip1_u8(v, v));
            let high = rgb(decode, vget_high_u8(y), vzip2_u8(u, u), vzip2_u8(v, v));
            let both = |c: usize| vcombine_u8(low[c], high[c]);
            store48(out, 3 * x, [both(0), both(1), both(2)]);
        }
        pixels
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn wide(v: uint8x8_t) -> int16x8_t {
        vreinterpretq_s16_u16(vmovl_u8(v))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn rgb(d: &Decode, y: uint8x8_t, u: uint8x8_t, v: uint8x8_t) -> [uint8x8_t; 3] {
        let y = vshlq_n_s16::<7>(vsubq_s16(wide(y), vdupq_n_s16(d.black)));
        let y = vaddq_s16(vqrdmulhq_n_s16(y, d.luma), vdupq_n_s16(32));
        let signed = |c: uint8x8_t| vshlq_n_s16::<8>(vsubq_s16(wide(c), vdupq_n_s16(128)));
        let (u, v) = (signed(u), signed(v));
        let red = vqaddq_s16(y, vqrdmulhq_n_s16(v, d.red_v));
        let green = vqsubq_s16(y, vqrdmulhq_n_s16(u, d.green_u));
        let green = vqsubq_s16(green, vqrdmulhq_n_s16(v, d.green_v));
        let blue = vqaddq_s16(y, vqrdmulhq_n_s16(u, d.blue_u));
        let level = |c: int16x8_t| vqmovun_s16(vshrq_n_s16::<6>(c));
        [level(red), level(green), level(blue)]
    }
}
