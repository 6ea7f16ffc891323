//! PNG in and out by the png crate; chunks that are not pixels are read and bounded here.

use png::{BitDepth, ColorType, Transformations};

use mien_base::limits;

use crate::codec::bounds::Bounds;
use crate::codec::exif;
use crate::codec::meta::{self, Metadata};
use crate::codec::orient::{Orientation, Stored};
use crate::errors::{Error, Result};
use crate::geometry::Size;
use crate::view::{Grey, Rgb, View};

const PNG: &str = "PNG";
const XMP_KEYWORD: &str = "XML:com.adobe.xmp";
const AIGC_KEYWORD: &str = "AIGC";

fn bad(detail: &str) -> Error {
    Error::Malformed { format: PNG, detail: detail.to_owned() }
}

const fn early(what: &'static str) -> Error {
    Error::Truncated { format: PNG, what }
}

/// Chunks of a file as slices; ends after the first that is cut off.
struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
}

struct Chunk<'a> {
    name: [u8; 4],
    /// `None` when the file ends inside it.
    body: Option<&'a [u8]>,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        let head = self.bytes.get(self.at..self.at.checked_add(8)?)?;
        let (length, name) = head.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let name = name.try_into().ok()?;
        let start = self.at + 8;
        // Four bytes of CRC follow, which the decoder checks.
        let end = start.checked_add(length)?;
        let body = match self.bytes.get(start..end.checked_add(4)?) {
            Some(whole) => whole.get(..length),
            None => None,
        };
        self.at = if body.is_some() { end + 4 } else { self.bytes.len() };
        Some(Chunk { name, body })
    }
}

fn chunks(bytes: &[u8]) -> Chunks<'_> {
    Chunks { bytes, at: 8 }
}

/// Size from the header, which must stand first.
fn header(bytes: &[u8], bounds: &Bounds) -> Result<Size> {
    let first = chunks(bytes).next().ok_or(early("its header is missing"))?;
    if first.name != *b"IHDR" {
        return Err(bad("its header does not stand first"));
    }
    let body = first.body.ok_or(early("its header is cut off"))?;
    let side = |at: usize| {
        let raw = body.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(raw))
    };
    let (Some(width), Some(height), 13) = (side(0), side(4), body.len()) else {
        return Err(bad("its header has a wrong length"));
    };
    let size = Size::new(width, height);
    bounds.check(PNG, size)?;
    Ok(size)
}

/// Everything that is not pixels, and whether the file is whole and one picture.
fn walk(bytes: &[u8]) -> Result<(Metadata, Orientation)> {
    let mut meta = Metadata::default();
    let mut orientation = Orientation::default();
    for chunk in chunks(bytes) {
        let body = chunk.body.ok_or(early("a chunk is cut off"))?;
        match &chunk.name {
            b"IEND" => return Ok((meta, orientation)),
            b"acTL" if body.get(..4) != Some(&[0, 0, 0, 1]) => {
                return Err(Error::Foreign {
                    what: "Animated PNG",
                    advice: "take a still first, as with `ffmpeg -i IN -frames:v 1 OUT.png`",
                });
            }
            b"eXIf" => orientation = exif::read(body).orientation,
            _ => note(&mut meta, &chunk.name, body),
        }
    }
    Err(early("its end chunk is missing"))
}

fn note(meta: &mut Metadata, name: &[u8; 4], body: &[u8]) {
    match name {
        b"iCCP" if meta.icc.is_none() => meta.icc = profile(body),
        b"tEXt" | b"zTXt" | b"iTXt" => {
            let Some((keyword, rest)) = split_zero(body) else { return };
            if keyword == XMP_KEYWORD.as_bytes() && meta.xmp.is_none() {
                let text = text(name, rest, limits::XMP_READ);
                meta.xmp = text.as_deref().and_then(meta::xmp_text);
            } else if keyword == AIGC_KEYWORD.as_bytes() && meta.aigc.is_none() {
                let text = text(name, rest, limits::AIGC);
                meta.aigc = text.as_deref().and_then(meta::aigc_text);
            }
        }
        _ => {}
    }
}

fn split_zero(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&b| b == 0)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// The text of a tEXt, zTXt or iTXt chunk after its keyword; unpacked text is bounded.
fn text(name: &[u8; 4], rest: &[u8], most: usize) -> Option<Vec<u8>> {
    match name {
        b"tEXt" => Some(rest.to_vec()),
        b"zTXt" => inflate(rest.strip_prefix(&[0])?, most),
        _ => {
            let (flags, rest) = rest.split_at_checked(2)?;
            let (_, rest) = split_zero(rest)?;
            let (_, rest) = split_zero(rest)?;
            match flags {
                [0, _] => Some(rest.to_vec()),
                [1, 0] => inflate(rest, most),
                _ => None,
            }
        }
    }
    .filter(|text| text.len() <= most)
}

fn profile(body: &[u8]) -> Option<Vec<u8>> {
    let (_, rest) = split_zero(body)?;
    inflate(rest.strip_prefix(&[0])?, limits::ICC_PROFILE)
}

fn inflate(bytes: &[u8], most: usize) -> Option<Vec<u8>> {
    fdeflate::decompress_to_vec_bounded(bytes, most).ok()
}

/// Reads the metadata without the pixels; damaged chunks read as absent.
pub(crate) fn read_metadata(bytes: &[u8]) -> Metadata {
    let mut meta = Metadata::default();
    for chunk in chunks(bytes) {
        match (&chunk.name, chunk.body) {
            (b"IEND", _) | (_, None) => break,
            (name, Some(body)) => note(&mut meta, name, body),
        }
    }
    meta
}

/// Decodes a whole file into pixels as they are stored.
pub(crate) fn decode(bytes: &[u8], bounds: &Bounds) -> Result<Stored> {
    let size = header(bytes, bounds)?;
    let (meta, orientation) = walk(bytes)?;
    let damaged = |e: png::DecodingError| bad(&e.to_string());
    let mut options = png::DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    options.set_skip_ancillary_crc_failures(false);
    let mut decoder = png::Decoder::new_with_options(std::io::Cursor::new(bytes), options);
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(damaged)?;
    if reader.info().size() != (size.width, size.height) {
        return Err(bad("its header is not clear"));
    }
    let (colour, depth) = reader.output_color_type();
    let length = usize::try_from(size.pixels()).expect("bounded by limits");
    let mut rgb = vec![0; length * 3];
    let mut alpha = Vec::new();
    let layout = Layout { colour, wide: depth == BitDepth::Sixteen };
    if layout.colour.samples().is_multiple_of(2) {
        alpha = vec![255; length];
    }
    if colour == ColorType::Rgb && depth == BitDepth::Eight {
        reader.next_frame(&mut rgb).map_err(damaged)?;
    } else if reader.info().interlaced {
        let whole = reader.output_buffer_size().ok_or_else(|| bad("its rows are too long"))?;
        let mut frame = vec![0; whole];
        reader.next_frame(&mut frame).map_err(damaged)?;
        layout.spread(&frame, &mut rgb, &mut alpha);
    } else {
        let width = size.width as usize;
        for y in 0..size.height as usize {
            let row = reader.next_row().map_err(damaged)?.ok_or(early("rows are missing"))?;
            let (from, to) = (y * width, (y + 1) * width);
            let alpha = alpha.get_mut(from..to).unwrap_or_default();
            layout.spread(row.data(), &mut rgb[from * 3..to * 3], alpha);
        }
    }
    reader.finish().map_err(damaged)?;
    let opaque = alpha.iter().all(|&a| a == 255);
    Ok(Stored {
        rgb: Rgb::from_vec(size, rgb).expect("as long as its size says"),
        alpha: if opaque { None } else { Grey::from_vec(size, alpha) },
        orientation,
        meta: Metadata {
            xmp: None,
            aigc: meta.aigc,
            icc: meta.icc.filter(|icc| meta::icc_space(icc).is_some()),
        },
    })
}

/// How the decoder's samples lie.
#[derive(Clone, Copy)]
struct Layout {
    colour: ColorType,
    /// 16 bits a sample, high byte first.
    wide: bool,
}

impl Layout {
    /// Splits samples into RGB and alpha of 8 bits. `alpha` is empty when there is none.
    fn spread(self, from: &[u8], rgb: &mut [u8], alpha: &mut [u8]) {
        let rgb = rgb.as_chunks_mut::<3>().0;
        match (self.colour, self.wide) {
            (ColorType::Grayscale, false) => each::<1>(from, rgb, |&[v]| [v; 3]),
            (ColorType::Grayscale, true) => each::<2>(from, rgb, |p| [narrow(p, 0); 3]),
            (ColorType::Rgb | ColorType::Indexed, false) => each::<3>(from, rgb, |&p| p),
            (ColorType::Rgb | ColorType::Indexed, true) => {
                each::<6>(from, rgb, |p| [narrow(p, 0), narrow(p, 1), narrow(p, 2)]);
            }
            (ColorType::GrayscaleAlpha, false) => {
                both::<2>(from, rgb, alpha, |&[v, a]| ([v; 3], a));
            }
            (ColorType::GrayscaleAlpha, true) => {
                both::<4>(from, rgb, alpha, |p| ([narrow(p, 0); 3], narrow(p, 1)));
            }
            (ColorType::Rgba, false) => both::<4>(from, rgb, alpha, |&[r, g, b, a]| ([r, g, b], a)),
            (ColorType::Rgba, true) => both::<8>(from, rgb, alpha, |p| {
                ([narrow(p, 0), narrow(p, 1), narrow(p, 2)], narrow(p, 3))
            }),
        }
    }
}

fn each<const N: usize>(from: &[u8], rgb: &mut [[u8; 3]], of: impl Fn(&[u8; N]) -> [u8; 3]) {
    rgb.iter_mut().zip(from.as_chunks::<N>().0).for_each(|(to, p)| *to = of(p));
}

fn both<const N: usize>(
    from: &[u8],
    rgb: &mut [[u8; 3]],
    alpha: &mut [u8],
    of: impl Fn(&[u8; N]) -> ([u8; 3], u8),
) {
    for ((to, a), p) in rgb.iter_mut().zip(alpha).zip(from.as_chunks::<N>().0) {
        (*to, *a) = of(p);
    }
}

/// Sample `index` of 16 bits to the nearest of 8 bits: v * 255 / 65535, rounded.
fn narrow(samples: &[u8], index: usize) -> u8 {
    let value = u32::from(samples[index * 2]) << 8 | u32::from(samples[index * 2 + 1]);
    ((value * 255 + 32_767) / 65_535) as u8
}

/// Encodes; grey stays one channel.
pub(crate) fn encode(
    rgb: View<'_, 3>,
    alpha: Option<View<'_, 1>>,
    grey: bool,
    meta: &Metadata,
    icc: Option<&[u8]>,
) -> Result<Vec<u8>> {
    let failed = |e: png::EncodingError| Error::Encode { format: PNG, detail: e.to_string() };
    let size = rgb.size();
    let mut out = Vec::with_capacity(usize::try_from(size.pixels()).unwrap_or(0) + 4096);
    let mut info = png::Info::with_size(size.width, size.height);
    info.bit_depth = BitDepth::Eight;
    info.color_type = match (grey, alpha.is_some()) {
        (true, false) => ColorType::Grayscale,
        (true, true) => ColorType::GrayscaleAlpha,
        (false, false) => ColorType::Rgb,
        (false, true) => ColorType::Rgba,
    };
    info.icc_profile = icc.map(Into::into);
    let mut encoder = png::Encoder::with_info(&mut out, info).map_err(failed)?;
    encoder.set_compression(png::Compression::Fast);
    if let Some(aigc) = &meta.aigc {
        encoder.add_text_chunk(AIGC_KEYWORD.to_owned(), aigc.clone()).map_err(failed)?;
    }
    if let Some(xmp) = &meta.xmp {
        encoder.add_itxt_chunk(XMP_KEYWORD.to_owned(), xmp.clone()).map_err(failed)?;
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    match rgb.contiguous() {
        Some(data) if !grey && alpha.is_none() => writer.write_image_data(data).map_err(failed)?,
        _ => writer.write_image_data(&packed(rgb, alpha, grey)).map_err(failed)?,
    }
    writer.finish().map_err(failed)?;
    Ok(out)
}

fn packed(rgb: View<'_, 3>, alpha: Option<View<'_, 1>>, grey: bool) -> Vec<u8> {
    let channels = if grey { 1 } else { 3 } + usize::from(alpha.is_some());
    let pixels = usize::try_from(rgb.size().pixels()).expect("bounded by limits");
    let mut out = Vec::with_capacity(pixels * channels);
    for (y, row) in (0..).zip(rgb.rows()) {
        let row = row.as_chunks::<3>().0;
        match (alpha.map(|alpha| alpha.row(y)), grey) {
            (None, true) => out.extend(row.iter().map(|p| p[0])),
            (None, false) => out.extend_from_slice(row.as_flattened()),
            (Some(a), true) => out.extend(row.iter().zip(a).flat_map(|(p, &a)| [p[0], a])),
            (Some(a), false) => {
                out.extend(row.iter().zip(a).flat_map(|(p, &a)| [p[0], p[1], p[2], a]));
            }
        }
    }
    out
}
