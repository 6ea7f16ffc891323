//! RGB bytes to floats and back, and to luma.

use super::Level;

/// Scales sixteen pixels at a time into three planes; `mean` and `scale` in the order of the
/// planes, the first of which is blue when `bgr`. Returns how many pixels are done.
#[cfg(target_arch = "x86_64")]
pub(crate) fn to_planes(
    level: Level,
    row: &[u8],
    factors: (&[f32; 3], &[f32; 3]),
    bgr: bool,
    planes: [&mut [f32]; 3],
) -> usize {
    if !level.avx2() {
        return 0;
    }
    // SAFETY: needs AVX2; the level says so only where it was detected.
    unsafe { avx2::to_planes(row, factors, bgr, planes) }
}

/// Scales a row into interleaved values. Returns how many pixels are done.
#[cfg(target_arch = "x86_64")]
pub(crate) fn to_pixels(
    level: Level,
    row: &[u8],
    factors: (&[f32; 3], &[f32; 3]),
    bgr: bool,
    out: &mut [f32],
) -> usize {
    if !level.avx2() {
        return 0;
    }
    // SAFETY: needs AVX2; the level says so only where it was detected.
    unsafe { avx2::to_pixels(row, factors, bgr, out) }
}

/// v * scale + offset of three planes to a row. Returns how many pixels are done.
#[cfg(target_arch = "x86_64")]
pub(crate) fn from_planes(
    level: Level,
    planes: [&[f32]; 3],
    factors: (&[f32; 3], &[f32; 3]),
    bgr: bool,
    row: &mut [u8],
) -> usize {
    if !level.avx2() {
        return 0;
    }
    // SAFETY: needs AVX2; the level says so only where it was detected.
    unsafe { avx2::from_planes(planes, factors, bgr, row) }
}

/// (weights · rgb + 2^14) / 2^15 + black. Returns how many pixels are done.
#[cfg(target_arch = "x86_64")]
pub(crate) fn luma(
    level: Level,
    row: &[u8],
    weights: &[i16; 3],
    black: u8,
    out: &mut [u8],
) -> usize {
    if !level.avx2() {
        return 0;
    }
    // SAFETY: needs AVX2; the level says so only where it was detected.
    unsafe { avx2::luma(row, weights, black, out) }
}

#[cfg(not(target_arch = "x86_64"))]
mod baseline {
    use super::Level;

    type Factors<'a> = (&'a [f32; 3], &'a [f32; 3]);

    pub(crate) fn to_planes(
        _: Level,
        _: &[u8],
        _: Factors<'_>,
        _: bool,
        _: [&mut [f32]; 3],
    ) -> usize {
        0
    }

    pub(crate) fn to_pixels(_: Level, _: &[u8], _: Factors<'_>, _: bool, _: &mut [f32]) -> usize {
        0
    }

    pub(crate) fn from_planes(
        _: Level,
        _: [&[f32]; 3],
        _: Factors<'_>,
        _: bool,
        _: &mut [u8],
    ) -> usize {
        0
    }

    pub(crate) fn luma(_: Level, _: &[u8], _: &[i16; 3], _: u8, _: &mut [u8]) -> usize {
        0
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use baseline::{from_planes, luma, to_pixels, to_planes};

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use crate::simd::load::{
        index, join3, load8f, load16, rounded, split3, store4f, store8f, store16,
    };

    #[target_feature(enable = "avx2")]
    pub(super) fn to_planes(
        row: &[u8],
        (mean, scale): (&[f32; 3], &[f32; 3]),
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
        (mean, scale): (&[f32; 3], &[f32; 3]),
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
        (scale, offset): (&[f32; 3], &[f32; 3]),
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
            store16(out, x, crate::simd::load::bytes_of(level));
        }
        pixels
    }
}
