//! Bilinear samples of RGB pixels that lie inside the picture.

/// Where a row of samples lies: x = a·i + x0, y = d·i + y0 for sample i.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) a: f64,
    pub(crate) x0: f64,
    pub(crate) d: f64,
    pub(crate) y0: f64,
}

/// RGB rows to sample from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) stride: usize,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

first_pixels! {
    /// Samples from pixel `start` of `out` on, for as long as all four neighbours and one more
    /// lie inside; says how many are done from there.
    pub(crate) fn run(src: Source<'_>, line: &Line, start: usize, out: &mut [u8])
}

impl Source<'_> {
    /// Large enough that any sample can lie inside.
    fn has_inside(&self) -> bool {
        self.width >= 3 && self.height >= 2
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Line, Source};
    use crate::simd::lanes::{index, load8};

    /// Left and right of each channel as pairs of 16 bits, for two pixels.
    const PAIRS: [u8; 16] = [0, 255, 3, 255, 1, 255, 4, 255, 2, 255, 5, 255, 255, 255, 255, 255];
    /// Drops the fourth channel.
    const THREE: [u8; 16] = [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 255, 255, 255, 255];

    #[target_feature(enable = "avx2")]
    pub(super) fn run(src: Source<'_>, line: &Line, start: usize, out: &mut [u8]) -> usize {
        let (a, x0) = (_mm256_set1_pd(line.a), _mm256_set1_pd(line.x0));
        let (d, y0) = (_mm256_set1_pd(line.d), _mm256_set1_pd(line.y0));
        // Eight bytes are read for two pixels, so one more must stand to the right.
        let right = _mm256_set1_pd(f64::from(src.width) - 2.0);
        let bottom = _mm256_set1_pd(f64::from(src.height) - 1.0);
        let zero = _mm256_setzero_pd();
        let mut x = start;
        while src.has_inside() && 3 * x + 16 <= out.len() {
            let i = _mm256_add_pd(_mm256_set1_pd(x as f64), _mm256_setr_pd(0.0, 1.0, 2.0, 3.0));
            let sx = _mm256_add_pd(_mm256_mul_pd(a, i), x0);
            let sy = _mm256_add_pd(_mm256_mul_pd(d, i), y0);
            let low = _mm256_and_pd(
                _mm256_cmp_pd::<_CMP_GE_OQ>(sx, zero),
                _mm256_cmp_pd::<_CMP_GE_OQ>(sy, zero),
            );
            let high = _mm256_and_pd(
                _mm256_cmp_pd::<_CMP_LT_OQ>(sx, right),
                _mm256_cmp_pd::<_CMP_LT_OQ>(sy, bottom),
            );
            if _mm256_movemask_pd(_mm256_and_pd(low, high)) != 15 {
                break;
            }
            let (px, wx) = split(sx);
            let (py, wy) = split(sy);
            let at: [usize; 4] =
                std::array::from_fn(|k| py[k] as usize * src.stride + px[k] as usize * 3);
            let first = pair(src, at[0], at[1], each::<0>(wx), each::<0>(wy));
            let second = pair(src, at[2], at[3], each::<2>(wx), each::<2>(wy));
            let words = _mm256_packus_epi32(first, second);
            let bytes = _mm256_packus_epi16(words, words);
            let (even, odd) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
            let four = _mm_shuffle_epi8(_mm_unpacklo_epi32(even, odd), index(&THREE));
            // Four bytes too many: the next pixels, or the caller, write over them.
            crate::simd::lanes::store16(out, 3 * x, four);
            x += 4;
        }
        x - start
    }

    /// Whole parts, and the weights of both neighbours in 1/2^14 as pairs of 16 bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn split(v: __m256d) -> ([i32; 4], __m128i) {
        let whole = _mm256_floor_pd(v);
        let share = _mm256_mul_pd(_mm256_sub_pd(v, whole), _mm256_set1_pd(16384.0));
        let next = _mm256_cvttpd_epi32(_mm256_add_pd(share, _mm256_set1_pd(0.5)));
        let this = _mm_sub_epi32(_mm_set1_epi32(16384), next);
        let whole = _mm256_cvttpd_epi32(whole);
        let whole = [
            _mm_extract_epi32::<0>(whole),
            _mm_extract_epi32::<1>(whole),
            _mm_extract_epi32::<2>(whole),
            _mm_extract_epi32::<3>(whole),
        ];
        (whole, _mm_or_si128(this, _mm_slli_epi32::<16>(next)))
    }

    /// Weight pairs K and K + 1, each four times.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn each<const K: i32>(pairs: __m128i) -> __m256i {
        let (k, l) = (K, K + 1);
        let order = _mm256_setr_epi32(k, k, k, k, l, l, l, l);
        _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(pairs), order)
    }

    /// Two samples of three levels in 32 bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pair(src: Source<'_>, p: usize, q: usize, wx: __m256i, wy: __m256i) -> __m256i {
        let order = _mm256_broadcastsi128_si256(index(&PAIRS));
        let across = |p: usize, q: usize| {
            let both = _mm256_set_m128i(load8(src.data, q), load8(src.data, p));
            let sums = _mm256_madd_epi16(_mm256_shuffle_epi8(both, order), wx);
            _mm256_srli_epi32::<7>(_mm256_add_epi32(sums, _mm256_set1_epi32(64)))
        };
        let (top, bottom) = (across(p, q), across(p + src.stride, q + src.stride));
        let sums = _mm256_madd_epi16(_mm256_or_si256(top, _mm256_slli_epi32::<16>(bottom)), wy);
        _mm256_srli_epi32::<21>(_mm256_add_epi32(sums, _mm256_set1_epi32(1 << 20)))
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use super::{Line, Source};
    use crate::simd::lanes::load8;

    #[target_feature(enable = "neon")]
    pub(super) fn run(src: Source<'_>, line: &Line, start: usize, out: &mut [u8]) -> usize {
        let (right, bottom) = (f64::from(src.width) - 2.0, f64::from(src.height) - 1.0);
        let mut x = start;
        // A fourth byte is written: the next pixel, or the caller, writes over it.
        while src.has_inside() && 3 * x + 4 <= out.len() {
            let (sx, sy) = (line.a * x as f64 + line.x0, line.d * x as f64 + line.y0);
            if !(sx >= 0.0 && sy >= 0.0 && sx < right && sy < bottom) {
                break;
            }
            let (px, py) = (sx.floor(), sy.floor());
            let weight = |share: f64| (share * 16384.0 + 0.5) as u32;
            let at = py as usize * src.stride + px as usize * 3;
            let level = sample(src, at, weight(sx - px), weight(sy - py));
            out[3 * x..3 * x + 4].copy_from_slice(&level.to_le_bytes());
            x += 1;
        }
        x - start
    }

    /// Three levels and a byte that does not matter.
    #[inline]
    #[target_feature(enable = "neon")]
    fn sample(src: Source<'_>, at: usize, wx: u32, wy: u32) -> u32 {
        let across = |at: usize| {
            let both = vmovl_u8(load8(src.data, at));
            let (left, right) = (vget_low_u16(both), vget_low_u16(vextq_u16::<3>(both, both)));
            let sums = vmull_n_u16(left, 16384 - wx as u16);
            vshrq_n_u32::<7>(vaddq_u32(vmlal_n_u16(sums, right, wx as u16), vdupq_n_u32(64)))
        };
        let sums = vmulq_n_u32(across(at), 16384 - wy);
        let sums = vmlaq_n_u32(sums, across(at + src.stride), wy);
        let level = vmovn_u32(vshrq_n_u32::<21>(vaddq_u32(sums, vdupq_n_u32(1 << 20))));
        let level = vmovn_u16(vcombine_u16(level, level));
        vget_lane_u32::<0>(vreinterpret_u32_u8(level))
    }
}
