//! The watermark's loops over pixels, compiled twice: for any machine, and for AVX2 chosen
//! at run time. Both do the same operations in the same order, so both give the same bytes.

/// Scale of the rows that `spread` makes: one level is 4096.
pub(crate) const ROW_ONE: f32 = 4096.0;
/// Scale of a row's weight in `add`: one is 32,768.
pub(crate) const WEIGHT_ONE: f32 = 32_768.0;
/// Fractional bits in `add`: (row * weight) >> 16 leaves eleven.
pub(crate) const LEVEL_BITS: u32 = 11;

#[cfg(target_arch = "x86_64")]
const LANES: usize = 16;

macro_rules! twice {
    ($(#[$doc:meta])* $name:ident, $plain:ident, $avx2:ident,
     ($($arg:ident: $type:ty),*) $(-> $out:ty)?, $body:block) => {
        #[inline(always)]
        fn $plain($($arg: $type),*) $(-> $out)? $body

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn $avx2($($arg: $type),*) $(-> $out)? {
            $plain($($arg),*)
        }

        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: AVX2, all that the callee asks for, was found on this processor.
                return unsafe { $avx2($($arg),*) };
            }
            $plain($($arg),*)
        }
    };
}

/// Weighs rows of bytes into three rows of sums: `out[v][x]` is the sum of `weights[y][v]` times
/// `row(y)[x]`. Rows that are shorter than `out` count as ending in zeros.
pub(crate) fn fold_rows<'a>(
    row: impl Fn(usize) -> &'a [u8],
    weights: &[[f32; 3]],
    out: &mut [Vec<f32>; 3],
) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2, all that the callee asks for, was found on this processor.
        return unsafe { fold_rows_avx2(row, weights, out) };
    }
    fold_rows_plain(row, weights, 0, out);
}

/// From column `from` on.
fn fold_rows_plain<'a>(
    row: impl Fn(usize) -> &'a [u8],
    weights: &[[f32; 3]],
    from: usize,
    out: &mut [Vec<f32>; 3],
) {
    for (v, out) in out.iter_mut().enumerate() {
        let out = out.get_mut(from..).unwrap_or_default();
        out.fill(0.0);
        for (y, weight) in weights.iter().enumerate() {
            let weight = weight[v];
            for (sum, byte) in out.iter_mut().zip(row(y).get(from..).unwrap_or_default()) {
                *sum += f32::from(*byte) * weight;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fold_rows_avx2<'a>(
    row: impl Fn(usize) -> &'a [u8],
    weights: &[[f32; 3]],
    out: &mut [Vec<f32>; 3],
) {
    use std::arch::x86_64::{
        __m256, _mm_set_epi64x, _mm256_add_ps, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32,
        _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };
    let widest = (0..weights.len()).map(|y| row(y).len()).min().unwrap_or(0);
    let whole = out.iter().map(Vec::len).min().unwrap_or(0).min(widest) / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        let mut sums: [[__m256; 2]; 3] = [[_mm256_setzero_ps(); 2]; 3];
        for (y, weight) in weights.iter().enumerate() {
            let words = row(y)[at..at + LANES].as_chunks::<8>().0;
            let values = [words[0], words[1]].map(|word| {
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_set_epi64x(
                    0,
                    i64::from_le_bytes(word),
                )))
            });
            for v in 0..3 {
                let weight = _mm256_set1_ps(weight[v]);
                for half in 0..2 {
                    let product = _mm256_mul_ps(values[half], weight);
                    sums[v][half] = _mm256_add_ps(sums[v][half], product);
                }
            }
        }
        for v in 0..3 {
            for half in 0..2 {
                let to = &mut out[v][at + half * 8..at + half * 8 + 8];
                // SAFETY: `to` holds eight values, 32 bytes, and the store needs no alignment.
                unsafe { _mm256_storeu_ps(to.as_mut_ptr(), sums[v][half]) };
            }
        }
    }
    fold_rows_plain(row, weights, whole, out);
}

twice!(
    /// Products of three rows with three tables, all of one length: `[row][table]`, without the
    /// two that are lower than (0, 2) and (1, 1).
    products, products_plain, products_avx2,
    (rows: [&[f32]; 3], tables: [&[f32]; 3]) -> [[f32; 3]; 3], {
        const N: usize = 8;
        const PAIRS: [(usize, usize); 6] = [(0, 2), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
        let n = rows.iter().chain(&tables).map(|r| r.len()).min().unwrap_or(0);
        let whole = n / N * N;
        let mut sums = [[0.0_f32; N]; 6];
        for at in (0..whole).step_by(N) {
            let load = |from: &[f32]| <[f32; N]>::try_from(&from[at..at + N]).unwrap_or([0.0; N]);
            let (r, t) = (rows.map(load), tables.map(load));
            for (sum, (row, table)) in sums.iter_mut().zip(PAIRS) {
                for i in 0..N {
                    sum[i] += r[row][i] * t[table][i];
                }
            }
        }
        let mut out = [[0.0; 3]; 3];
        for (sum, (row, table)) in sums.iter().zip(PAIRS) {
            let rest: f32 =
                rows[row][whole..n].iter().zip(&tables[table][whole..n]).map(|(a, b)| a * b).sum();
            out[row][table] = sum.iter().sum::<f32>() + rest;
        }
        out
    }
);

twice!(
    /// Adds three weighed tables to a row.
    spread, spread_plain, spread_avx2,
    (tables: [&[f32]; 3], weights: [f32; 3], row: &mut [f32]), {
        let [a, b, c] = tables;
        for (((r, a), b), c) in row.iter_mut().zip(a).zip(b).zip(c) {
            *r += a * weights[0] + b * weights[1] + c * weights[2];
        }
    }
);

twice!(
    /// Rows of levels, under 8 either way, to rows of `ROW_ONE`, rounded to nearest.
    fix, fix_plain, fix_avx2,
    (from: &[f32], to: &mut [i16]), {
        for (to, from) in to.iter_mut().zip(from) {
            // 1.5 * 2^23: the sum's lowest bits are the rounded number.
            *to = (from * ROW_ONE + 12_582_912.0).to_bits() as i16;
        }
    }
);

#[inline(always)]
fn weighed(row: i16, weight: i16) -> i16 {
    (i32::from(row).wrapping_mul(i32::from(weight)) >> 16) as i16
}

#[inline(always)]
fn moved(byte: &mut u8, residual: i16) -> i32 {
    let before = i16::from(*byte);
    let after = before.wrapping_add(residual >> LEVEL_BITS).clamp(0, 255);
    *byte = after as u8;
    let d = i32::from(after.wrapping_sub(before));
    d.wrapping_mul(d)
}

twice!(
    /// Adds three weighed rows to a dither.
    lay, lay_plain, lay_avx2,
    (rows: [&[i16]; 3], weights: [i16; 3], dither: &[i16], out: &mut [i16]), {
        let [a, b, c] = rows;
        for ((((o, d), a), b), c) in out.iter_mut().zip(dither).zip(a).zip(b).zip(c) {
            let residual = weighed(*a, weights[0])
                .wrapping_add(weighed(*b, weights[1]))
                .wrapping_add(weighed(*c, weights[2]));
            *o = residual.wrapping_add(*d);
        }
    }
);

twice!(
    /// Adds three weighed rows and a dither to a row of bytes, rounding down; gives the sum of the
    /// squares of what changed.
    add, add_plain, add_avx2,
    (bytes: &mut [u8], rows: [&[i16]; 3], weights: [i16; 3], dither: &[i16]) -> u64, {
        let n = bytes.len();
        let (Some(a), Some(b), Some(c), Some(dither)) =
            (rows[0].get(..n), rows[1].get(..n), rows[2].get(..n), dither.get(..n))
        else {
            return 0;
        };
        let mut squares = 0_u64;
        for from in (0..n).step_by(4096) {
            let to = n.min(from + 4096);
            let (p, a, b, c, d) =
                (&mut bytes[from..to], &a[from..to], &b[from..to], &c[from..to], &dither[from..to]);
            let mut sum = 0_i32;
            for ((((p, a), b), c), d) in p.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                let residual = weighed(*a, weights[0])
                    .wrapping_add(weighed(*b, weights[1]))
                    .wrapping_add(weighed(*c, weights[2]));
                sum = sum.wrapping_add(moved(p, residual.wrapping_add(*d)));
            }
            squares += sum as u64;
        }
        squares
    }
);

twice!(
    /// Adds a residual, 128 of which is nothing, to a row of bytes; what goes over an end stays there.
    shift, shift_plain, shift_avx2,
    (bytes: &mut [u8], residual: &[u8]) , {
        for (byte, by) in bytes.iter_mut().zip(residual) {
            let (signed, by) = ((*byte ^ 0x80).cast_signed(), (by ^ 0x80).cast_signed());
            *byte = signed.saturating_add(by).cast_unsigned() ^ 0x80;
        }
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize, seed: u64) -> Vec<u64> {
        let mut state = seed;
        (0..n)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                state >> 33
            })
            .collect()
    }

    #[test]
    fn both_twins_give_the_same_bits() {
        for n in [0, 1, 15, 16, 17, 97, 5760] {
            let bytes: Vec<Vec<u8>> =
                (0..5).map(|s| noise(n, s).iter().map(|v| *v as u8).collect()).collect();
            let rows: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            let weights = [[0.1, 0.2, -0.3], [0.4, -0.5, 0.6], [1.0, 2.0, 3.0], [0.0; 3], [0.7; 3]];
            let mut fast = [vec![0.0; n], vec![0.0; n], vec![0.0; n]];
            let mut plain = fast.clone();
            fold_rows(|y| rows[y], &weights, &mut fast);
            fold_rows_plain(|y| rows[y], &weights, 0, &mut plain);
            assert_eq!(fast, plain);
            for x in 0..n {
                let want: f32 = (0..5).map(|y| f32::from(bytes[y][x]) * weights[y][1]).sum();
                assert!((fast[1][x] - want).abs() < 1e-3);
            }

            let views = [&*fast[0], &*fast[1], &*fast[2]];
            let got = products(views, [views[1], views[2], views[0]]);
            assert_eq!(got, products_plain(views, [views[1], views[2], views[0]]));
            let want: f64 =
                fast[2].iter().zip(&fast[0]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((f64::from(got[2][2]) - want).abs() <= 1e-5 * want.abs() + 1.0);

            let fixed: Vec<Vec<i16>> =
                (0..3).map(|s| noise(n, 50 + s).iter().map(|v| *v as i16 / 3).collect()).collect();
            let dither: Vec<i16> = noise(n, 9).iter().map(|v| (*v % 2048) as i16).collect();
            let (mut a, mut b) = (bytes[0].clone(), bytes[0].clone());
            let rows = [&*fixed[0], &*fixed[1], &*fixed[2]];
            let levels: Vec<f32> = fixed[0].iter().map(|v| f32::from(*v) * 2e-4).collect();
            let (mut near, mut twin) = (vec![0; n], vec![1; n]);
            fix(&levels, &mut near);
            fix_plain(&levels, &mut twin);
            assert_eq!(near, twin);
            for (got, level) in near.iter().zip(&levels) {
                assert!((f32::from(*got) - level * ROW_ONE).abs() <= 0.502, "{got} {level}");
            }
            let sum = add(&mut a, rows, [9_000, -8_000, 500], &dither);
            assert_eq!(sum, add_plain(&mut b, rows, [9_000, -8_000, 500], &dither));
            assert_eq!(a, b);
            let (mut shifted, mut twin) = (bytes[0].clone(), bytes[0].clone());
            shift(&mut shifted, &bytes[1]);
            shift_plain(&mut twin, &bytes[1]);
            assert_eq!(shifted, twin);
            for ((got, byte), by) in shifted.iter().zip(&bytes[0]).zip(&bytes[1]) {
                let want = i32::from(*byte) + i32::from(*by) - 128;
                assert_eq!(i32::from(*got), want.clamp(0, 255));
            }
            for x in 0..n {
                let exact = [9_000.0, -8_000.0, 500.0]
                    .iter()
                    .zip(&fixed)
                    .map(|(w, r)| f64::from(r[x]) * w / 65_536.0)
                    .sum::<f64>();
                let want = (f64::from(bytes[0][x])
                    + ((exact + f64::from(dither[x])) / 2048.0).floor())
                .clamp(0.0, 255.0);
                assert!((f64::from(a[x]) - want).abs() <= 1.0);
            }
        }
    }
}
