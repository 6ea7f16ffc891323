//! RGB bytes to floats and back, and to luma.

/// What is subtracted or multiplied first, and what second; in the order of the values.
pub(crate) type Factors<'a> = (&'a [f32; 3], &'a [f32; 3]);

first_pixels! {
    /// (x - mean) * scale of a row into three planes, the first of which is blue when `bgr`.
    pub(crate) fn to_planes(row: &[u8], factors: Factors<'_>, bgr: bool, planes: [&mut [f32]; 3])
}

first_pixels! {
    /// (x - mean) * scale of a row into interleaved values.
    pub(crate) fn to_pixels(row: &[u8], factors: Factors<'_>, bgr: bool, out: &mut [f32])
}

first_pixels! {
    /// v * scale + offset of three planes into a row.
    pub(crate) fn from_planes(planes: [&[f32]; 3], factors: Factors<'_>, bgr: bool, row: &mut [u8])
}

first_pixels! {
    /// (weights · rgb + 2^14) / 2^15 + black of a row.
    pub(crate) fn luma(row: &[u8], weights: &[i16; 3], black: u8, out: &mut [u8])
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::Factors;
    use crate::simd::lanes::{
        index, join3, load8f, load16, rounded, split3, store4f, store8f, store16,
    };

    #[target_feature(enable = "avx2")]
    pub(super) fn to_planes(
        row: &[u8],
        (mean, scale): Factors<'_>,
        bgr: bool,
        planes: [&mut [f32]; 3],
    ) -> usize {
        let pixels = row.len() / 48 * 16;
        let [first, second, third] = planes;
        for x in (0..pixels).step_by(16) {
            let mut v = split3(row, 3 * x);
            if bgr {
                v.swap(0, 2);
            }
            for (c, plane) in [&mut *first, &mut *second, &mut *third].into_iter().enumerate() {
                let (mean, scale) = (_mm256_set1_ps(mean[c]), _mm256_set1_ps(scale[c]));
                let high = _mm_unpackhi_epi64(v[c], v[c]);
                store8f(plane, x, factor(v[c], mean, scale));
                store8f(plane, x + 8, factor(high, mean, scale));
            }
        }
        pixels
    }

    /// (x - mean) * scale of the low eight bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn factor(bytes: __m128i, mean: __m256, scale: __m256) -> __m256 {
        let v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        _mm256_mul_ps(_mm256_sub_ps(v, mean), scale)
    }

    /// Four pixels in the order of the values, then what does not matter.
    const RGB: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255, 255, 255, 255];
    const BGR: [u8; 16] = [2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9, 255, 255, 255, 255];

    #[target_feature(enable = "avx2")]
    pub(super) fn to_pixels(
        row: &[u8],
        (mean, scale): Factors<'_>,
        bgr: bool,
        out: &mut [f32],
    ) -> usize {
        let cycle = |v: &[f32; 3]| {
            let low = _mm256_setr_ps(v[0], v[1], v[2], v[0], v[1], v[2], v[0], v[1]);
            let high = _mm256_setr_ps(v[2], v[0], v[1], v[2], 0.0, 0.0, 0.0, 0.0);
            (low, high)
        };
        let ((mean, mean_high), (scale, scale_high)) = (cycle(mean), cycle(scale));
        let order = index(if bgr { &BGR } else { &RGB });
        let mut x = 0;
        while 3 * x + 16 <= row.len() {
            let v = _mm_shuffle_epi8(load16(row, 3 * x), order);
            let high = factor(_mm_unpackhi_epi64(v, v), mean_high, scale_high);
            store8f(out, 3 * x, factor(v, mean, scale));
            store4f(out, 3 * x + 8, _mm256_castps256_ps128(high));
            x += 4;
        }
        x
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn from_planes(
        planes: [&[f32]; 3],
        (scale, offset): Factors<'_>,
        bgr: bool,
        row: &mut [u8],
    ) -> usize {
        let pixels = row.len() / 48 * 16;
        for x in (0..pixels).step_by(16) {
            let channel = |c: usize| {
                let (scale, offset) = (_mm256_set1_ps(scale[c]), _mm256_set1_ps(offset[c]));
                let level =
                    |at: usize| _mm256_add_ps(_mm256_mul_ps(load8f(planes[c], at), scale), offset);
                rounded(level(x), level(x + 8))
            };
            let mut v = [channel(0), channel(1), channel(2)];
            if bgr {
                v.swap(0, 2);
            }
            join3(row, 3 * x, v);
        }
        pixels
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn luma(row: &[u8], weights: &[i16; 3], black: u8, out: &mut [u8]) -> usize {
        let pixels = row.len() / 48 * 16;
        let pair = |low: i16, high: i16| {
            _mm256_set1_epi32(i32::from(low as u16) | (i32::from(high) << 16))
        };
        let (red_green, blue_half) = (pair(weights[0], weights[1]), pair(weights[2], 1 << 14));
        let (one, black) = (_mm256_set1_epi16(1), _mm256_set1_epi16(i16::from(black)));
        for x in (0..pixels).step_by(16) {
            let [r, g, b] = split3(row, 3 * x).map(|v| _mm256_cvtepu8_epi16(v));
            let sum = |rg: __m256i, b1: __m256i| {
                let sum = _mm256_add_epi32(
                    _mm256_madd_epi16(rg, red_green),
                    _mm256_madd_epi16(b1, blue_half),
                );
                _mm256_srai_epi32::<15>(sum)
            };
            let low = sum(_mm256_unpacklo_epi16(r, g), _mm256_unpacklo_epi16(b, one));
            let high = sum(_mm256_unpackhi_epi16(r, g), _mm256_unpackhi_epi16(b, one));
            let level = _mm256_add_epi16(_mm256_packs_epi32(low, high), black);
            store16(out, x, crate::simd::lanes::bytes_of(level));
        }
        pixels
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use super::Factors;
    use crate::simd::lanes::{load4f, load48, rounded, store4f, store12f, store16, store48};

    /// Sixteen bytes as four times four floats.
    #[inline]
    #[target_feature(enable = "neon")]
    fn floats(v: uint8x16_t) -> [float32x4_t; 4] {
        let (low, high) = (vmovl_u8(vget_low_u8(v)), vmovl_high_u8(v));
        [
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))),
            vcvtq_f32_u32(vmovl_high_u16(low)),
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
            vcvtq_f32_u32(vmovl_high_u16(high)),
        ]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn factor(v: float32x4_t, mean: f32, scale: f32) -> float32x4_t {
        vmulq_n_f32(vsubq_f32(v, vdupq_n_f32(mean)), scale)
    }

    #[target_feature(enable = "neon")]
    pub(super) fn to_planes(
        row: &[u8],
        (mean, scale): Factors<'_>,
        bgr: bool,
        planes: [&mut [f32]; 3],
    ) -> usize {
        let pixels = row.len() / 48 * 16;
        for x in (0..pixels).step_by(16) {
            let mut v = load48(row, 3 * x);
            if bgr {
                v.swap(0, 2);
            }
            for c in 0..3 {
                for (i, f) in floats(v[c]).into_iter().enumerate() {
                    store4f(planes[c], x + 4 * i, factor(f, mean[c], scale[c]));
                }
            }
        }
        pixels
    }

    #[target_feature(enable = "neon")]
    pub(super) fn to_pixels(
        row: &[u8],
        (mean, scale): Factors<'_>,
        bgr: bool,
        out: &mut [f32],
    ) -> usize {
        let pixels = row.len() / 48 * 16;
        for x in (0..pixels).step_by(16) {
            let mut v = load48(row, 3 * x);
            if bgr {
                v.swap(0, 2);
            }
            let [first, second, third] = v.map(|c| floats(c));
            for i in 0..4 {
                let part = |c: usize, v: float32x4_t| factor(v, mean[c], scale[c]);
                let three = [part(0, first[i]), part(1, second[i]), part(2, third[i])];
                store12f(out, 3 * x + 12 * i, three);
            }
        }
        pixels
    }

    #[target_feature(enable = "neon")]
    pub(super) fn from_planes(
        planes: [&[f32]; 3],
        (scale, offset): Factors<'_>,
        bgr: bool,
        row: &mut [u8],
    ) -> usize {
        let pixels = row.len() / 48 * 16;
        for x in (0..pixels).step_by(16) {
            let channel = |c: usize| {
                let level = |at: usize| {
                    let v = vmulq_n_f32(load4f(planes[c], at), scale[c]);
                    vaddq_f32(v, vdupq_n_f32(offset[c]))
                };
                rounded([level(x), level(x + 4), level(x + 8), level(x + 12)])
            };
            let mut v = [channel(0), channel(1), channel(2)];
            if bgr {
                v.swap(0, 2);
            }
            store48(row, 3 * x, v);
        }
        pixels
    }

    #[target_feature(enable = "neon")]
    pub(super) fn luma(row: &[u8], weights: &[i16; 3], black: u8, out: &mut [u8]) -> usize {
        let pixels = row.len() / 48 * 16;
        for x in (0..pixels).step_by(16) {
            let v = load48(row, 3 * x);
            let eight = |v: [uint8x8_t; 3]| {
                let v = v.map(|c| vreinterpretq_s16_u16(vmovl_u8(c)));
                let low = vmull_n_s16(vget_low_s16(v[0]), weights[0]);
                let low = vmlal_n_s16(low, vget_low_s16(v[1]), weights[1]);
                let low = vmlal_n_s16(low, vget_low_s16(v[2]), weights[2]);
                let high = vmull_high_n_s16(v[0], weights[0]);
                let high = vmlal_high_n_s16(high, v[1], weights[1]);
                let high = vmlal_high_n_s16(high, v[2], weights[2]);
                let level = vcombine_s16(vrshrn_n_s32::<15>(low), vrshrn_n_s32::<15>(high));
                vqmovun_s16(vaddq_s16(level, vdupq_n_s16(i16::from(black))))
            };
            let (low, high) = (v.map(|c| vget_low_u8(c)), v.map(|c| vget_high_u8(c)));
            store16(out, x, vcombine_u8(eight(low), eight(high)));
        }
        pixels
    }
}
