//! YUV to RGB and back: NV12, I420 and YUYV, BT.601 and BT.709, limited and full range; luma.
//!
//! Chroma is repeated on the way in and averaged on the way out. Chroma planes are as large as
//! the picture halved and rounded up. Within 1 level of the exact formula.

use crate::simd::yuv::{Decode, Row};
use crate::simd::{self, Level};
use crate::view::{View, ViewMut};

/// Luma weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matrix {
    Bt601,
    Bt709,
}

impl Matrix {
    const fn weights(self) -> (f64, f64) {
        match self {
            Self::Bt601 => (0.299, 0.114),
            Self::Bt709 => (0.2126, 0.0722),
        }
    }
}

/// Which codes are black and white.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Luma 16..=235, chroma 16..=240.
    Limited,
    /// 0..=255.
    Full,
}

/// What YUV values mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    pub matrix: Matrix,
    pub range: Range,
}

/// RGB to YUV in 1/2^15, rows for Y, U, V.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encode {
    pub(crate) black: i32,
    pub(crate) y: [i16; 3],
    pub(crate) u: [i16; 3],
    pub(crate) v: [i16; 3],
}

impl Colour {
    /// What cameras and videos have.
    pub const BT601_LIMITED: Self = Self { matrix: Matrix::Bt601, range: Range::Limited };
    /// High definition.
    pub const BT709_LIMITED: Self = Self { matrix: Matrix::Bt709, range: Range::Limited };
    /// JPEG.
    pub const BT601_FULL: Self = Self { matrix: Matrix::Bt601, range: Range::Full };

    const fn spans(self) -> (f64, f64, i16) {
        match self.range {
            Range::Limited => (219.0 / 255.0, 224.0 / 255.0, 16),
            Range::Full => (1.0, 1.0, 0),
        }
    }

    /// Luma of black.
    #[must_use]
    pub const fn black(self) -> u8 {
        self.spans().2 as u8
    }

    pub(crate) fn decode(self) -> Decode {
        let ((kr, kb), (luma, chroma, black)) = (self.matrix.weights(), self.spans());
        let kg = 1.0 - kr - kb;
        let fixed = |v: f64| (v / chroma * 8192.0).round() as i16;
        Decode {
            black,
            luma: (16384.0 / luma).round() as i16,
            red_v: fixed(2.0 * (1.0 - kr)),
            green_u: fixed(2.0 * (1.0 - kb) * kb / kg),
            green_v: fixed(2.0 * (1.0 - kr) * kr / kg),
            blue_u: fixed(2.0 * (1.0 - kb)),
        }
    }

    pub(crate) fn encode(self) -> Encode {
        let ((kr, kb), (luma, chroma, black)) = (self.matrix.weights(), self.spans());
        let fixed = |v: f64| (v * 32768.0).round() as i32;
        // The green weight takes the rounding, so that grey stays grey.
        let row = |sum: i32, r: i32, b: i32| [r as i16, (sum - r - b) as i16, b as i16];
        Encode {
            black: i32::from(black),
            y: row(fixed(luma), fixed(kr * luma), fixed(kb * luma)),
            u: row(0, fixed(-kr / (1.0 - kb) / 2.0 * chroma), fixed(chroma / 2.0)),
            v: row(0, fixed(chroma / 2.0), fixed(-kb / (1.0 - kr) / 2.0 * chroma)),
        }
    }
}

impl Decode {
    /// (a * b) / 2^15, rounded: what `pmulhrsw` does.
    #[inline(always)]
    fn times(a: i32, b: i16) -> i32 {
        (a * i32::from(b) + (1 << 14)) >> 15
    }

    /// What chroma adds to red, green and blue, in 1/2^6.
    #[inline(always)]
    fn chroma(&self, u: u8, v: u8) -> [i32; 3] {
        let (u, v) = ((i32::from(u) - 128) << 8, (i32::from(v) - 128) << 8);
        [
            Self::times(v, self.red_v),
            -Self::times(u, self.green_u) - Self::times(v, self.green_v),
            Self::times(u, self.blue_u),
        ]
    }

    #[inline(always)]
    fn rgb(&self, y: u8, chroma: [i32; 3]) -> [u8; 3] {
        let y = Self::times((i32::from(y) - i32::from(self.black)) << 7, self.luma) + 32;
        chroma.map(|c| ((y + c) >> 6).clamp(0, 255) as u8)
    }

    /// The pixels of a row from `start`, an even one, on; `at` gives luma, U and V of a pair.
    #[inline(always)]
    fn row(&self, start: usize, out: &mut [u8], at: impl Fn(usize) -> (u8, u8, u8, u8)) {
        let mut pairs = out[3 * start..].chunks_exact_mut(6);
        let mut i = start / 2;
        for pair in &mut pairs {
            let (left, right, u, v) = at(i);
            let chroma = self.chroma(u, v);
            pair[..3].copy_from_slice(&self.rgb(left, chroma));
            pair[3..].copy_from_slice(&self.rgb(right, chroma));
            i += 1;
        }
        if let [red, green, blue] = pairs.into_remainder() {
            let (left, _, u, v) = at(i);
            [*red, *green, *blue] = self.rgb(left, self.chroma(u, v));
        }
    }
}

impl Encode {
    #[inline(always)]
    fn dot(weights: &[i16; 3], rgb: [i32; 3]) -> i32 {
        (0..3).map(|c| i32::from(weights[c]) * rgb[c]).sum()
    }

    #[inline(always)]
    pub(crate) fn luma(&self, rgb: &[u8]) -> u8 {
        let rgb = [i32::from(rgb[0]), i32::from(rgb[1]), i32::from(rgb[2])];
        ((Self::dot(&self.y, rgb) + (self.black << 15) + (1 << 14)) >> 15) as u8
    }

    pub(crate) fn luma_row(&self, rgb: &[u8], out: &mut [u8]) {
        let done = simd::rgb::luma(Level::current(), rgb, &self.y, self.black as u8, out);
        for (out, rgb) in out.iter_mut().zip(rgb.chunks_exact(3)).skip(done) {
            *out = self.luma(rgb);
        }
    }

    /// U and V of a sum of 2^shift pixels.
    #[inline(always)]
    pub(crate) fn chroma(&self, sum: [i32; 3], shift: u32) -> [u8; 2] {
        let shift = 15 + shift;
        let round = (128 << shift) + (1 << (shift - 1));
        [&self.u, &self.v].map(|w| ((Self::dot(w, sum) + round) >> shift).clamp(0, 255) as u8)
    }
}

fn half(v: u32) -> u32 {
    v.div_ceil(2)
}

/// U and V of a colour.
pub(crate) fn chroma(colour: Colour, rgb: [u8; 3]) -> [u8; 2] {
    colour.encode().chroma(rgb.map(i32::from), 0)
}

/// NV12 to RGB.
///
/// # Panics
/// When the planes do not fit the picture.
pub fn nv12_to_rgb(y: View<'_, 1>, uv: View<'_, 2>, colour: Colour, dst: &mut ViewMut<'_, 3>) {
    let size = dst.size();
    assert!(y.size() == size, "the luma plane is as large as the picture");
    assert!(uv.size().width == half(size.width) && uv.size().height == half(size.height));
    let (decode, level) = (colour.decode(), Level::current());
    for row in 0..size.height {
        let (luma, chroma, out) = (y.row(row), uv.row(row / 2), dst.row_mut(row));
        let done = simd::yuv::decode(level, Row::Nv12(luma, chroma), &decode, out);
        let last = luma.len().saturating_sub(1);
        decode.row(done, out, |i| {
            (luma[2 * i], luma[(2 * i + 1).min(last)], chroma[2 * i], chroma[2 * i + 1])
        });
    }
}

/// I420 to RGB.
///
/// # Panics
/// When the planes do not fit the picture.
pub fn i420_to_rgb(
    y: View<'_, 1>,
    u: View<'_, 1>,
    v: View<'_, 1>,
    colour: Colour,
    dst: &mut ViewMut<'_, 3>,
) {
    let size = dst.size();
    assert!(y.size() == size, "the luma plane is as large as the picture");
    assert!(u.size() == v.size());
    assert!(u.size().width == half(size.width) && u.size().height == half(size.height));
    let (decode, level) = (colour.decode(), Level::current());
    for row in 0..size.height {
        let planes = [y.row(row), u.row(row / 2), v.row(row / 2)];
        i420_row(level, &decode, planes, dst.row_mut(row));
    }
}

/// One row of Y, U and V to RGB.
pub(crate) fn i420_row(level: Level, decode: &Decode, [luma, u, v]: [&[u8]; 3], out: &mut [u8]) {
    let done = simd::yuv::decode(level, Row::I420(luma, u, v), decode, out);
    let last = luma.len().saturating_sub(1);
    decode.row(done, out, |i| (luma[2 * i], luma[(2 * i + 1).min(last)], u[i], v[i]));
}

/// YUYV (Y0 U Y1 V for two pixels) to RGB. An odd picture has half a pair more in each row.
///
/// # Panics
/// When the pairs do not fit the picture.
pub fn yuyv_to_rgb(pairs: View<'_, 4>, colour: Colour, dst: &mut ViewMut<'_, 3>) {
    let size = dst.size();
    assert!(pairs.size().width == half(size.width) && pairs.size().height == size.height);
    let (decode, level) = (colour.decode(), Level::current());
    for row in 0..size.height {
        let (src, out) = (pairs.row(row), dst.row_mut(row));
        let done = simd::yuv::decode(level, Row::Yuyv(src), &decode, out);
        decode.row(done, out, |i| {
            let pair: &[u8; 4] = src[4 * i..].first_chunk().expect("a pair is four bytes");
            (pair[0], pair[2], pair[1], pair[3])
        });
    }
}

/// The sum of the two by two pixels whose first is (2 cx, 2 cy); the last row and column repeat.
pub(crate) fn block_sum(top: &[u8], bottom: &[u8], cx: usize) -> [i32; 3] {
    let left = cx * 6;
    let right = if left + 6 <= top.len() { left + 3 } else { left };
    let at = |row: &[u8], i: usize| i32::from(row[i]);
    [0, 1, 2].map(|c| {
        at(top, left + c) + at(top, right + c) + at(bottom, left + c) + at(bottom, right + c)
    })
}

fn rgb_to_420(
    src: View<'_, 3>,
    colour: Colour,
    y: &mut ViewMut<'_, 1>,
    mut chroma: impl FnMut(u32, usize, [u8; 2]),
) {
    let size = src.size();
    assert!(y.size() == size, "the luma plane is as large as the picture");
    let encode = colour.encode();
    (0..size.height).for_each(|row| encode.luma_row(src.row(row), y.row_mut(row)));
    for row in 0..half(size.height) {
        let (top, bottom) = (src.row(2 * row), src.row((2 * row + 1).min(size.height - 1)));
        for cx in 0..half(size.width) as usize {
            chroma(row, cx, encode.chroma(block_sum(top, bottom, cx), 2));
        }
    }
}

/// RGB to NV12.
///
/// # Panics
/// When the planes do not fit the picture.
pub fn rgb_to_nv12(
    src: View<'_, 3>,
    colour: Colour,
    y: &mut ViewMut<'_, 1>,
    uv: &mut ViewMut<'_, 2>,
) {
    let size = src.size();
    assert!(uv.size().width == half(size.width) && uv.size().height == half(size.height));
    rgb_to_420(src, colour, y, |row, x, both| {
        uv.row_mut(row)[2 * x..2 * x + 2].copy_from_slice(&both);
    });
}

/// RGB to I420.
///
/// # Panics
/// When the planes do not fit the picture.
pub fn rgb_to_i420(
    src: View<'_, 3>,
    colour: Colour,
    y: &mut ViewMut<'_, 1>,
    u: &mut ViewMut<'_, 1>,
    v: &mut ViewMut<'_, 1>,
) {
    let size = src.size();
    assert!(u.size() == v.size());
    assert!(u.size().width == half(size.width) && u.size().height == half(size.height));
    rgb_to_420(src, colour, y, |row, x, both| {
        u.row_mut(row)[x] = both[0];
        v.row_mut(row)[x] = both[1];
    });
}

/// RGB to YUYV. The last pair of an odd row repeats its luma.
///
/// # Panics
/// When the pairs do not fit the picture.
pub fn rgb_to_yuyv(src: View<'_, 3>, colour: Colour, pairs: &mut ViewMut<'_, 4>) {
    let size = src.size();
    assert!(pairs.size().width == half(size.width) && pairs.size().height == size.height);
    let encode = colour.encode();
    for row in 0..size.height {
        let rgb = src.row(row);
        for (x, out) in pairs.row_mut(row).chunks_exact_mut(4).enumerate() {
            let left = &rgb[6 * x..];
            let right = if left.len() >= 6 { &left[3..] } else { left };
            let sum = [0, 1, 2].map(|c| i32::from(left[c]) + i32::from(right[c]));
            let [u, v] = encode.chroma(sum, 1);
            out.copy_from_slice(&[encode.luma(left), u, encode.luma(right), v]);
        }
    }
}

/// Full-range luma.
///
/// # Panics
/// When the sizes differ.
pub fn luma(src: View<'_, 3>, matrix: Matrix, dst: &mut ViewMut<'_, 1>) {
    assert!(src.size() == dst.size(), "luma keeps the size");
    let encode = Colour { matrix, range: Range::Full }.encode();
    (0..src.size().height).for_each(|row| encode.luma_row(src.row(row), dst.row_mut(row)));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::geometry::{Roi, Size};
    use crate::simd::tests::{noise, same_at_every_level};
    use crate::view::{Grey, Image, Rgb};

    const ALL: [Colour; 4] = [
        Colour::BT601_LIMITED,
        Colour::BT709_LIMITED,
        Colour::BT601_FULL,
        Colour { matrix: Matrix::Bt709, range: Range::Full },
    ];

    /// The formula of the recommendation, in f64.
    fn exact_rgb(colour: Colour, y: u8, u: u8, v: u8) -> [f64; 3] {
        let ((kr, kb), (luma, chroma, black)) = (colour.matrix.weights(), colour.spans());
        let kg = 1.0 - kr - kb;
        let y = (f64::from(y) - f64::from(black)) / luma;
        let (u, v) = ((f64::from(u) - 128.0) / chroma, (f64::from(v) - 128.0) / chroma);
        let (r, b) = (y + 2.0 * (1.0 - kr) * v, y + 2.0 * (1.0 - kb) * u);
        [r, (y - kr * r - kb * b) / kg, b].map(|v| v.clamp(0.0, 255.0))
    }

    #[test]
    fn decoding_is_within_a_level_of_the_formula() {
        for colour in ALL {
            let decode = colour.decode();
            for y in (0..=255).step_by(3) {
                for (u, v) in (0..=255).step_by(5).flat_map(|u| [(u, 255 - u), (u, u), (128, u)]) {
                    let want = exact_rgb(colour, y, u, v);
                    for (got, want) in decode.rgb(y, decode.chroma(u, v)).iter().zip(want) {
                        assert!((f64::from(*got) - want).abs() <= 0.55, "{colour:?} {y} {u} {v}");
                    }
                }
            }
        }
    }

    #[test]
    fn black_white_and_grey_are_where_they_belong() {
        for colour in ALL {
            let (encode, limited) = (colour.encode(), colour.range == Range::Limited);
            for v in 0..=255_u8 {
                let luma = encode.luma(&[v; 3]);
                assert_eq!(encode.chroma([i32::from(v); 3], 0), [128, 128]);
                assert!(colour.decode().rgb(luma, [0; 3]).iter().all(|g| g.abs_diff(v) <= 1));
            }
            let ends = if limited { [16, 235] } else { [0, 255] };
            assert_eq!([encode.luma(&[0; 3]), encode.luma(&[255; 3])], ends);
        }
    }

    #[test]
    fn known_colours_of_bt601() {
        let encode = Colour::BT601_LIMITED.encode();
        let yuv = |rgb: [u8; 3]| {
            let [u, v] = encode.chroma(rgb.map(i32::from), 0);
            [encode.luma(&rgb), u, v]
        };
        assert_eq!(yuv([255, 0, 0]), [81, 90, 240]);
        assert_eq!(yuv([0, 255, 0]), [145, 54, 34]);
        assert_eq!(yuv([0, 0, 255]), [41, 240, 110]);
    }

    fn half_size(size: Size) -> Size {
        Size::new(half(size.width), half(size.height))
    }

    proptest! {
        #[test]
        fn every_level_gives_the_same_bytes(
            (w, h) in (1_u32..70, 1_u32..5),
            colour in prop::sample::select(&ALL[..]),
            seed in any::<u32>(),
        ) {
            let size = Size::new(w, h);
            let whole = Size::new(w + 3, h + 3);
            let (y, u) = (noise::<1>(whole, seed), noise::<1>(whole, seed ^ 1));
            let (v, uv) = (noise::<1>(whole, seed ^ 2), noise::<2>(whole, seed ^ 3));
            let (pairs, rgb) = (noise::<4>(whole, seed ^ 4), noise::<3>(whole, seed ^ 5));
            let full = Roi { x: 2, y: 1, width: w, height: h };
            let quarter = Roi { x: 1, y: 1, width: half(w), height: half(h) };
            let y = y.view().crop(full);
            same_at_every_level::<3>(size, |dst| {
                nv12_to_rgb(y, uv.view().crop(quarter), colour, dst);
            });
            same_at_every_level::<3>(size, |dst| {
                i420_to_rgb(y, u.view().crop(quarter), v.view().crop(quarter), colour, dst);
            });
            let paired = Roi { x: 1, y: 1, width: half(w), height: h };
            same_at_every_level::<3>(size, |dst| {
                yuyv_to_rgb(pairs.view().crop(paired), colour, dst);
            });
            let rgb = rgb.view().crop(full);
            same_at_every_level::<1>(size, |dst| luma(rgb, colour.matrix, dst));
            same_at_every_level::<1>(size, |dst| {
                let mut uv = Image::<2>::filled(half_size(size), [0; 2]);
                rgb_to_nv12(rgb, colour, dst, &mut uv.view_mut());
            });
            same_at_every_level::<2>(half_size(size), |dst| {
                let mut y = Grey::filled(size, [0]);
                rgb_to_nv12(rgb, colour, &mut y.view_mut(), dst);
            });
            same_at_every_level::<4>(Size::new(half(w), h), |dst| rgb_to_yuyv(rgb, colour, dst));
        }

        #[test]
        fn smooth_colour_survives_every_format(
            (w, h) in (1_u32..9, 1_u32..9),
            rgb in any::<[u8; 3]>(),
            colour in prop::sample::select(&ALL[..]),
        ) {
            let size = Size::new(w, h);
            let src = Rgb::filled(size, rgb);
            let close = |out: &Rgb| {
                out.bytes_all().iter().zip(src.bytes_all()).all(|(a, b)| a.abs_diff(*b) <= 3)
            };
            let mut out = Rgb::filled(size, [0; 3]);
            let (mut y, mut uv) = (Grey::filled(size, [0]), Image::<2>::filled(half_size(size), [0; 2]));
            rgb_to_nv12(src.view(), colour, &mut y.view_mut(), &mut uv.view_mut());
            nv12_to_rgb(y.view(), uv.view(), colour, &mut out.view_mut());
            prop_assert!(close(&out), "{:?} {:?}", rgb, out.view().pixel(0, 0));

            let (mut u, mut v) = (Grey::filled(half_size(size), [0]), Grey::filled(half_size(size), [0]));
            rgb_to_i420(src.view(), colour, &mut y.view_mut(), &mut u.view_mut(), &mut v.view_mut());
            let mut planar = Rgb::filled(size, [0; 3]);
            i420_to_rgb(y.view(), u.view(), v.view(), colour, &mut planar.view_mut());
            prop_assert_eq!(&planar, &out);

            let mut pairs = Image::<4>::filled(Size::new(half(w), h), [0; 4]);
            rgb_to_yuyv(src.view(), colour, &mut pairs.view_mut());
            let mut packed = Rgb::filled(size, [0; 3]);
            yuyv_to_rgb(pairs.view(), colour, &mut packed.view_mut());
            prop_assert_eq!(&packed, &out);
        }
    }

    #[test]
    fn odd_edges_take_their_own_chroma() {
        let size = Size::new(3, 3);
        let y = Grey::filled(size, [128]);
        let mut uv = Image::<2>::filled(Size::new(2, 2), [128, 128]);
        uv.bytes_all_mut()[6..].copy_from_slice(&[128, 255]);
        let mut out = Rgb::filled(size, [0; 3]);
        nv12_to_rgb(y.view(), uv.view(), Colour::BT601_FULL, &mut out.view_mut());
        assert_eq!(out.view().pixel(2, 2)[0], 255);
        assert_eq!(out.view().pixel(1, 2), [128; 3]);
        assert_eq!(out.view().pixel(2, 1), [128; 3]);
    }

    #[test]
    fn luma_weighs_the_channels() {
        let src = Rgb::from_vec(Size::new(3, 1), vec![255, 0, 0, 0, 255, 0, 0, 0, 255]).unwrap();
        let mut out = Grey::filled(src.size(), [0]);
        luma(src.view(), Matrix::Bt601, &mut out.view_mut());
        assert_eq!(out.bytes_all(), [76, 150, 29]);
        luma(src.view(), Matrix::Bt709, &mut out.view_mut());
        assert_eq!(out.bytes_all(), [54, 182, 18]);
    }
}
