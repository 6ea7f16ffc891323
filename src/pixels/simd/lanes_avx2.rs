//! Loads and stores with checked bounds, and the three channels of sixteen pixels, for AVX2.

use std::arch::x86_64::*;

#[inline(always)]
fn part<T, const N: usize>(from: &[T], at: usize) -> &[T; N] {
    from[at..at + N].first_chunk().expect("N values")
}

#[inline(always)]
fn part_mut<T, const N: usize>(to: &mut [T], at: usize) -> &mut [T; N] {
    to[at..at + N].first_chunk_mut().expect("N values")
}

/// 16 bytes from `at`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load16(from: &[u8], at: usize) -> __m128i {
    // SAFETY: reads 16 bytes, unaligned; the array has them.
    unsafe { _mm_loadu_si128(part::<u8, 16>(from, at).as_ptr().cast()) }
}

/// 8 bytes from `at`, then zeros.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load8(from: &[u8], at: usize) -> __m128i {
    // SAFETY: reads 8 bytes, unaligned; the array has them.
    unsafe { _mm_loadl_epi64(part::<u8, 8>(from, at).as_ptr().cast()) }
}

/// 8 values from `at`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load8f(from: &[f32], at: usize) -> __m256 {
    // SAFETY: reads 8 values, unaligned; the array has them.
    unsafe { _mm256_loadu_ps(part::<f32, 8>(from, at).as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store16(to: &mut [u8], at: usize, v: __m128i) {
    // SAFETY: writes 16 bytes, unaligned; the array has them.
    unsafe { _mm_storeu_si128(part_mut::<u8, 16>(to, at).as_mut_ptr().cast(), v) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store8f(to: &mut [f32], at: usize, v: __m256) {
    // SAFETY: writes 8 values, unaligned; the array has them.
    unsafe { _mm256_storeu_ps(part_mut::<f32, 8>(to, at).as_mut_ptr(), v) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store4f(to: &mut [f32], at: usize, v: __m128) {
    // SAFETY: writes 4 values, unaligned; the array has them.
    unsafe { _mm_storeu_ps(part_mut::<f32, 4>(to, at).as_mut_ptr(), v) }
}

/// Bytes as an index vector; 255 gives zero in a shuffle.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn index(bytes: &[u8; 16]) -> __m128i {
    load16(bytes, 0)
}

const fn split_table(channel: u8, third: u8) -> [u8; 16] {
    let mut table = [255; 16];
    let mut i = 0;
    while i < 16 {
        let at = 3 * i as u8 + channel;
        if at / 16 == third {
            table[i] = at % 16;
        }
        i += 1;
    }
    table
}

const fn join_table(channel: u8, third: u8) -> [u8; 16] {
    let mut table = [255; 16];
    let mut i = 0;
    while i < 16 {
        let at = 16 * third + i as u8;
        if at % 3 == channel {
            table[i] = at / 3;
        }
        i += 1;
    }
    table
}

const fn tables(split: bool) -> [[[u8; 16]; 3]; 3] {
    let mut all = [[[0; 16]; 3]; 3];
    let mut c = 0;
    while c < 3 {
        let mut t = 0;
        while t < 3 {
            let (channel, third) = (c as u8, t as u8);
            all[c][t] =
                if split { split_table(channel, third) } else { join_table(channel, third) };
            t += 1;
        }
        c += 1;
    }
    all
}

/// [channel][third of the 48 bytes]
static SPLIT: [[[u8; 16]; 3]; 3] = tables(true);
static JOIN: [[[u8; 16]; 3]; 3] = tables(false);

/// 16 pixels from byte `at` as three channels.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn split3(from: &[u8], at: usize) -> [__m128i; 3] {
    let from = &from[at..at + 48];
    let (a, b, c) = (load16(from, 0), load16(from, 16), load16(from, 32));
    let channel = |t: &[[u8; 16]; 3]| {
        let ab = _mm_or_si128(_mm_shuffle_epi8(a, index(&t[0])), _mm_shuffle_epi8(b, index(&t[1])));
        _mm_or_si128(ab, _mm_shuffle_epi8(c, index(&t[2])))
    };
    [channel(&SPLIT[0]), channel(&SPLIT[1]), channel(&SPLIT[2])]
}

/// Three channels to 16 pixels at byte `at`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn join3(to: &mut [u8], at: usize, v: [__m128i; 3]) {
    let to = &mut to[at..at + 48];
    let third = |t: usize| {
        let of = |c: usize| _mm_shuffle_epi8(v[c], index(&JOIN[c][t]));
        _mm_or_si128(_mm_or_si128(of(0), of(1)), of(2))
    };
    store16(to, 0, third(0));
    store16(to, 16, third(1));
    store16(to, 32, third(2));
}

/// Each of 16 values three times: 48 bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn thrice(v: __m128i) -> [__m128i; 3] {
    let of = |third: usize| {
        let t = [0, 1, 2].map(|c| _mm_shuffle_epi8(v, index(&JOIN[c][third])));
        _mm_or_si128(_mm_or_si128(t[0], t[1]), t[2])
    };
    [of(0), of(1), of(2)]
}

/// 16 lanes of 16 bits, cut to 0..=255.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn bytes_of(v: __m256i) -> __m128i {
    let both = _mm256_packus_epi16(v, v);
    _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b00_00_10_00>(both))
}

/// v + 0.5 of 16 floats as bytes, as a cast does it: cut to 0..=255, not a number is 0.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn rounded(low: __m256, high: __m256) -> __m128i {
    let whole = |v: __m256| {
        let v = _mm256_add_ps(v, _mm256_set1_ps(0.5));
        // The second operand is taken where one is not a number.
        _mm256_cvttps_epi32(_mm256_min_ps(_mm256_set1_ps(255.0), v))
    };
    let words = _mm256_packs_epi32(whole(low), whole(high));
    bytes_of(_mm256_permute4x64_epi64::<0b11_01_10_00>(words))
}
