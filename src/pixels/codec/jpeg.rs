//! JPEG in by zune-jpeg on a rebuilt file, out by jpeg-encoder.

use std::borrow::Cow;

use jpeg_encoder::{ImageBuffer, JpegColorType, SamplingFactor};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use crate::codec::bounds::Bounds;
use crate::codec::exif;
use crate::codec::frame::{Colour, JPEG};
use crate::codec::meta::{self, Metadata};
use crate::codec::orient::Stored;
use crate::codec::segments::{self, Notes};
use crate::convert::{self, Matrix};
use crate::errors::{Error, Result};
use crate::geometry::Size;
use crate::view::{Rgb, View, ViewMut};

/// Decodes a whole file into pixels as they are stored.
pub(crate) fn decode(bytes: &[u8], bounds: &Bounds) -> Result<Stored> {
    let walked = segments::walk(bytes, bounds)?;
    let size = walked.size;
    let out = match walked.colour {
        Colour::AdobeCmyk | Colour::Cmyk => ColorSpace::CMYK,
        _ => ColorSpace::RGB,
    };
    let options = DecoderOptions::new_fast()
        .set_strict_mode(true)
        .set_max_width(bounds.side as usize)
        .set_max_height(bounds.side as usize)
        .jpeg_set_max_scans(mien_base::limits::JPEG_SCANS as usize)
        .jpeg_set_out_colorspace(out);
    let damaged = |e: zune_jpeg::errors::DecodeErrors| Error::Malformed {
        format: JPEG,
        detail: format!("{e:?}"),
    };
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&walked.clean), options);
    decoder.decode_headers().map_err(damaged)?;
    let channels = out.num_components();
    let length = usize::try_from(size.pixels()).expect("bounded by limits") * channels;
    if decoder.output_buffer_size() != Some(length) || decoder.output_colorspace() != Some(out) {
        return Err(Error::Malformed {
            format: JPEG,
            detail: "its colours are unknown".to_owned(),
        });
    }
    let mut pixels = vec![0; length];
    decoder.decode_into(&mut pixels).map_err(damaged)?;
    match walked.colour {
        Colour::AdobeCmyk => cmyk_to_rgb(&mut pixels, 0),
        Colour::Cmyk => cmyk_to_rgb(&mut pixels, 255),
        _ => {}
    }
    let exif = exif::read(walked.notes.exif.unwrap_or_default());
    Ok(Stored {
        rgb: Rgb::from_vec(size, pixels).expect("as long as its size says"),
        alpha: None,
        orientation: exif.orientation,
        meta: Metadata {
            xmp: None,
            aigc: exif.comment.and_then(meta::aigc_text),
            icc: walked.notes.icc().filter(|icc| meta::icc_space(icc).is_some()),
        },
    })
}

/// Four channels to three in the same buffer. Ink is `flip` minus the sample's complement: 0 for
/// Adobe's inverted samples, 255 for plain ones.
fn cmyk_to_rgb(pixels: &mut Vec<u8>, flip: u8) {
    let count = pixels.len() / 4;
    for i in 0..count {
        let [c, m, y, k] = [0, 1, 2, 3].map(|j| u32::from(pixels[i * 4 + j] ^ flip));
        for (j, light) in [c, m, y].into_iter().enumerate() {
            let product = light * k;
            pixels[i * 3 + j] = ((product + 127) / 255) as u8;
        }
    }
    pixels.truncate(count * 3);
}

/// Reads the metadata without the pixels.
pub(crate) fn read_metadata(bytes: &[u8]) -> Metadata {
    let notes: Notes<'_> = segments::notes(bytes);
    Metadata {
        xmp: notes.xmp.and_then(meta::xmp_text),
        aigc: notes.exif.and_then(|block| exif::read(block).comment).and_then(meta::aigc_text),
        icc: notes.icc(),
    }
}

/// From this quality on, colours keep their full resolution.
const FINE: u8 = 95;

/// Encodes; transparent pixels are laid on white. Grey stays one channel.
pub(crate) fn encode(
    rgb: View<'_, 3>,
    alpha: Option<View<'_, 1>>,
    grey: bool,
    quality: u8,
    meta: &Metadata,
    icc: Option<&[u8]>,
) -> Result<Vec<u8>> {
    let failed =
        |e: jpeg_encoder::EncodingError| Error::Encode { format: JPEG, detail: e.to_string() };
    let size = rgb.size();
    let mut out = Vec::with_capacity(usize::try_from(size.pixels() / 4).unwrap_or(0) + 4096);
    let mut encoder = jpeg_encoder::Encoder::new(&mut out, quality);
    let halved = quality < FINE;
    // `Rows` averages the colours itself, so the encoder takes every second sample.
    encoder.set_sampling_factor(if halved {
        SamplingFactor::R_4_2_0
    } else {
        SamplingFactor::R_4_4_4
    });
    if let Some(aigc) = &meta.aigc {
        encoder.add_exif_metadata(&exif::with_comment(aigc)).map_err(failed)?;
    }
    if let Some(xmp) = &meta.xmp {
        let packet = [b"http://ns.adobe.com/xap/1.0/\0", xmp.as_bytes()].concat();
        encoder.add_app_segment(1, packet).map_err(failed)?;
    }
    if let Some(icc) = icc {
        encoder.add_icc_profile(icc).map_err(failed)?;
    }
    encoder.encode_image(Rows { rgb, alpha, grey, halved }).map_err(failed)?;
    Ok(out)
}

/// Turns rows to luma and chroma as the encoder asks for them, without a copy of the picture.
struct Rows<'a> {
    rgb: View<'a, 3>,
    alpha: Option<View<'a, 1>>,
    grey: bool,
    /// Chroma is wanted at every second pixel of every second row only.
    halved: bool,
}

impl ImageBuffer for Rows<'_> {
    fn get_jpeg_color_type(&self) -> JpegColorType {
        if self.grey { JpegColorType::Luma } else { JpegColorType::Ycbcr }
    }

    fn width(&self) -> u16 {
        u16::try_from(self.rgb.size().width).expect("within limits")
    }

    fn height(&self) -> u16 {
        u16::try_from(self.rgb.size().height).expect("within limits")
    }

    fn fill_buffers(&self, y: u16, buffers: &mut [Vec<u8>; 4]) {
        let y = u32::from(y);
        let last = self.rgb.size().height - 1;
        let row = self.row(y);
        let [luma, blue, red, _] = buffers;
        if self.grey {
            luma.extend(row.as_chunks::<3>().0.iter().map(|p| p[0]));
            return;
        }
        let (start, width) = (luma.len(), row.len() / 3);
        for channel in [&mut *luma, blue, red] {
            channel.resize(start + width, 128);
        }
        let one = Size::new(self.rgb.size().width, 1);
        let from = View::new(&row, one, row.len()).expect("one row");
        let mut to = ViewMut::new(&mut luma[start..], one, width).expect("one row");
        convert::luma(from, Matrix::Bt601, &mut to);
        let (blue, red) = (&mut blue[start..], &mut red[start..]);
        if !self.halved {
            chroma(&row, blue, red);
        } else if y % 2 == 0 {
            halved_chroma(&row, &self.row((y + 1).min(last)), blue, red);
        } else if y == last {
            // Repeated below the picture, where odd rows count too.
            halved_chroma(&self.row(y - 1), &row, blue, red);
        }
    }
}

impl Rows<'_> {
    fn row(&self, y: u32) -> Cow<'_, [u8]> {
        let row = self.rgb.row(y);
        let Some(alpha) = &self.alpha else { return Cow::Borrowed(row) };
        let pixels = row.as_chunks::<3>().0.iter().zip(alpha.row(y));
        Cow::Owned(pixels.flat_map(|(p, &a)| p.map(|v| on_white(v, a))).collect())
    }
}

/// Cb and Cr of a sum of 2^shift pixels.
fn blue_red([r, g, b]: [i32; 3], shift: u32) -> (u8, u8) {
    let bias = (128 << (16 + shift)) + (1 << (15 + shift)) - 1;
    let cb = (-11_059 * r - 21_709 * g + 32_768 * b + bias) >> (16 + shift);
    let cr = (32_768 * r - 27_439 * g - 5_329 * b + bias) >> (16 + shift);
    (cb as u8, cr as u8)
}

/// Cb and Cr of each pixel.
fn chroma(row: &[u8], blue: &mut [u8], red: &mut [u8]) {
    let pixels = row.as_chunks::<3>().0;
    for ((p, cb), cr) in pixels.iter().zip(blue).zip(red) {
        (*cb, *cr) = blue_red(p.map(i32::from), 0);
    }
}

/// Cb and Cr of the mean of two by two pixels, each value twice.
fn halved_chroma(top: &[u8], bottom: &[u8], blue: &mut [u8], red: &mut [u8]) {
    let (tops, top_last) = top.as_chunks::<6>();
    let (bottoms, bottom_last) = bottom.as_chunks::<6>();
    let (blues, blue_last) = blue.as_chunks_mut::<2>();
    let (reds, red_last) = red.as_chunks_mut::<2>();
    for (((a, b), cb), cr) in tops.iter().zip(bottoms).zip(blues).zip(reds) {
        let of = |c: usize| [a[c], a[c + 3], b[c], b[c + 3]].map(i32::from).iter().sum();
        let (u, v) = blue_red([of(0), of(1), of(2)], 2);
        (*cb, *cr) = ([u; 2], [v; 2]);
    }
    if let (Some(cb), Some(cr)) = (blue_last.first_mut(), red_last.first_mut()) {
        let of = |c: usize| i32::from(top_last[c]) + i32::from(bottom_last[c]);
        (*cb, *cr) = blue_red([of(0), of(1), of(2)], 1);
    }
}

fn on_white(value: u8, alpha: u8) -> u8 {
    let (value, alpha) = (u32::from(value), u32::from(alpha));
    ((value * alpha + 255 * (255 - alpha) + 127) / 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the encoder gets of a picture of these rows.
    fn filled(rows: &[&[[u8; 3]]], halved: bool) -> [Vec<u8>; 4] {
        let size = Size::new(rows[0].len() as u32, rows.len() as u32);
        let data = rows.iter().flat_map(|r| r.as_flattened().to_vec()).collect();
        let image = Rgb::from_vec(size, data).unwrap();
        let source = Rows { rgb: image.view(), alpha: None, grey: false, halved };
        let mut buffers = [const { Vec::new() }; 4];
        (0..rows.len()).for_each(|y| source.fill_buffers(y as u16, &mut buffers));
        buffers
    }

    #[test]
    fn full_resolution_is_what_the_encoder_itself_computes() {
        let row: Vec<[u8; 3]> = (0..=255u8).map(|i| [i, i.wrapping_mul(7), 255 - i]).collect();
        let [luma, blue, red, _] = filled(&[&row], false);
        for (i, &[r, g, b]) in row.iter().enumerate() {
            let (y, cb, cr) = jpeg_encoder::rgb_to_ycbcr(r, g, b);
            assert!(luma[i].abs_diff(y) <= 1);
            assert_eq!((blue[i], red[i]), (cb, cr));
        }
    }

    #[test]
    fn halved_colours_are_means_and_reach_the_edges() {
        let (a, b) = ([255, 0, 0], [0, 0, 255]);
        // A checkerboard has one mean everywhere, whatever the last row and column are.
        for (width, height) in [(4, 4), (5, 4), (4, 5), (2, 2)] {
            let one: Vec<[u8; 3]> = [a, b].into_iter().cycle().take(width).collect();
            let other: Vec<[u8; 3]> = [b, a].into_iter().cycle().take(width).collect();
            let rows: Vec<&[[u8; 3]]> =
                [&one[..], &other[..]].into_iter().cycle().take(height).collect();
            let [luma, blue, red, _] = filled(&rows, true);
            assert_eq!(luma.len(), width * height);
            let (_, cb, cr) = jpeg_encoder::rgb_to_ycbcr(128, 0, 127);
            for y in (0..height).filter(|y| y % 2 == 0 && y + 1 < height) {
                for x in 0..width / 2 * 2 {
                    let at = y * width + x;
                    assert!(blue[at].abs_diff(cb) <= 1 && red[at].abs_diff(cr) <= 1, "{x} {y}");
                }
            }
            // The last row is what stands below the picture.
            let at = (height - 1) * width;
            if height % 2 == 0 {
                assert_eq!(blue[at], blue[at - width]);
            }
        }
    }

    #[test]
    fn flat_colours_survive_halving_at_odd_sizes() {
        for (width, height) in [(1, 1), (3, 1), (1, 3), (17, 9), (16, 16), (15, 33)] {
            let image = Rgb::filled(Size::new(width, height), [30, 160, 90]);
            let none = Metadata::default();
            let file = encode(image.view(), None, false, 92, &none, None).unwrap();
            let back = decode(&file, &Bounds::default()).unwrap().rgb;
            let near = |p: &[u8; 3]| p.iter().zip([30u8, 160, 90]).all(|(a, b)| a.abs_diff(b) <= 3);
            assert!(back.bytes_all().as_chunks::<3>().0.iter().all(near), "{width}x{height}");
        }
    }
}
