//! JPEG in by zune-jpeg on a rebuilt file, out by jpeg-encoder.

use jpeg_encoder::{ColorType, ImageBuffer, JpegColorType, SamplingFactor};
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
use crate::errors::{Error, Result};
use crate::view::{Rgb, View};

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
    encoder.set_sampling_factor(if quality >= 90 {
        SamplingFactor::R_4_4_4
    } else {
        SamplingFactor::R_4_2_0
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
    let side = |v: u32| u16::try_from(v).expect("within limits");
    let (width, height) = (side(size.width), side(size.height));
    match rgb.contiguous() {
        Some(data) if !grey && alpha.is_none() => {
            encoder.encode(data, width, height, ColorType::Rgb).map_err(failed)?;
        }
        _ => encoder.encode_image(Rows { rgb, alpha, grey }).map_err(failed)?,
    }
    Ok(out)
}

/// Rows that are grey, have a stride or an alpha channel, without a copy of the picture.
struct Rows<'a> {
    rgb: View<'a, 3>,
    alpha: Option<View<'a, 1>>,
    grey: bool,
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
        let row = self.rgb.row(u32::from(y)).as_chunks::<3>().0;
        let mut push = |[r, g, b]: [u8; 3]| {
            if self.grey {
                buffers[0].push(r);
            } else {
                let (luma, blue, red) = jpeg_encoder::rgb_to_ycbcr(r, g, b);
                buffers[0].push(luma);
                buffers[1].push(blue);
                buffers[2].push(red);
            }
        };
        match &self.alpha {
            None => row.iter().for_each(|&pixel| push(pixel)),
            Some(alpha) => {
                for (&pixel, &a) in row.iter().zip(alpha.row(u32::from(y))) {
                    push(pixel.map(|v| on_white(v, a)));
                }
            }
        }
    }
}

fn on_white(value: u8, alpha: u8) -> u8 {
    let (value, alpha) = (u32::from(value), u32::from(alpha));
    ((value * alpha + 255 * (255 - alpha) + 127) / 255) as u8
}
