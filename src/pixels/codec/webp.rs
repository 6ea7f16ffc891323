//! WebP in by image-webp; the container is walked and bounded here. WebP is not written.

use image_webp::WebPDecoder;

use crate::codec::bounds::Bounds;
use crate::codec::exif;
use crate::codec::meta::{self, Metadata};
use crate::codec::orient::Stored;
use crate::errors::{Error, Result};
use crate::geometry::Size;
use crate::view::{Grey, Rgb};

const WEBP: &str = "WebP";

fn bad(detail: &str) -> Error {
    Error::Malformed { format: WEBP, detail: detail.to_owned() }
}

const fn early(what: &'static str) -> Error {
    Error::Truncated { format: WEBP, what }
}

/// Chunks of the container as slices; `None` for one that is cut off, which is the last.
struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let head = self.bytes.get(self.at..)?;
        let (name, head) = head.split_at_checked(4)?;
        let length = usize::try_from(u32::from_le_bytes(head.get(..4)?.try_into().ok()?)).ok()?;
        let start = self.at + 8;
        let body = self.bytes.get(start..start.checked_add(length)?);
        self.at = if body.is_some() { start + length + length % 2 } else { self.bytes.len() };
        Some((name, body))
    }
}

/// The container's bytes as its own header bounds them.
fn container(bytes: &[u8]) -> Option<&[u8]> {
    let size = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    bytes.get(..usize::try_from(size).ok()?.checked_add(8)?)
}

fn chunks(bytes: &[u8]) -> Chunks<'_> {
    Chunks { bytes, at: 12 }
}

#[derive(Default)]
struct Notes<'a> {
    exif: Option<&'a [u8]>,
    xmp: Option<&'a [u8]>,
    icc: Option<&'a [u8]>,
}

impl<'a> Notes<'a> {
    fn take(&mut self, name: &[u8], body: &'a [u8]) {
        let slot = match name {
            b"EXIF" => &mut self.exif,
            b"XMP " => &mut self.xmp,
            b"ICCP" => &mut self.icc,
            _ => return,
        };
        slot.get_or_insert(body);
    }

    fn metadata(&self) -> Metadata {
        Metadata {
            xmp: self.xmp.and_then(meta::xmp_text),
            aigc: self.exif.and_then(|b| exif::read(b).comment).and_then(meta::aigc_text),
            icc: self.icc.filter(|b| b.len() <= mien_base::limits::ICC_PROFILE).map(<[u8]>::to_vec),
        }
    }
}

/// Reads the metadata without the pixels; damaged chunks read as absent.
pub(crate) fn read_metadata(bytes: &[u8]) -> Metadata {
    let mut notes = Notes::default();
    for (name, body) in chunks(bytes) {
        let Some(body) = body else { break };
        notes.take(name, body);
    }
    notes.metadata()
}

fn u24(bytes: &[u8]) -> Option<u32> {
    let raw: [u8; 3] = bytes.get(..3)?.try_into().ok()?;
    Some(u32::from_le_bytes([raw[0], raw[1], raw[2], 0]))
}

/// Sizes that a chunk states, if it is one that states them.
fn stated(name: &[u8], body: &[u8]) -> Option<Size> {
    match name {
        b"VP8X" => Some(Size::new(u24(body.get(4..)?)? + 1, u24(body.get(7..)?)? + 1)),
        b"VP8 " => {
            let side = |at: usize| {
                let raw = body.get(at..at + 2)?.try_into().ok()?;
                Some(u32::from(u16::from_le_bytes(raw) & 0x3fff))
            };
            Some(Size::new(side(6)?, side(8)?))
        }
        b"VP8L" => {
            let raw = u32::from_le_bytes(body.get(1..5)?.try_into().ok()?);
            Some(Size::new((raw & 0x3fff) + 1, (raw >> 14 & 0x3fff) + 1))
        }
        _ => None,
    }
}

/// Checks the container: whole, one still picture, one size, within bounds.
fn walk<'a>(bytes: &'a [u8], bounds: &Bounds) -> Result<(Size, Notes<'a>, &'a [u8])> {
    let whole = container(bytes).ok_or(early("it is shorter than it says"))?;
    let mut notes = Notes::default();
    let mut size = None;
    let mut pixels = false;
    for (name, body) in chunks(whole) {
        let body = body.ok_or(early("a chunk is cut off"))?;
        if matches!(name, b"ANIM" | b"ANMF")
            || (name == b"VP8X" && body.first().is_some_and(|f| f & 2 != 0))
        {
            return Err(Error::Foreign {
                what: "Animated WebP",
                advice: "take a still first, as with `magick 'IN[0]' OUT.png`",
            });
        }
        if matches!(name, b"VP8X" | b"VP8 " | b"VP8L") {
            let here = stated(name, body).ok_or_else(|| bad("a header is too short"))?;
            bounds.check(WEBP, here)?;
            if *size.get_or_insert(here) != here {
                return Err(bad("its headers state different sizes"));
            }
            pixels |= name != b"VP8X";
        }
        notes.take(name, body);
    }
    match size {
        Some(size) if pixels => Ok((size, notes, whole)),
        _ => Err(early("it has no pixels")),
    }
}

/// Decodes a whole file into pixels as they are stored.
pub(crate) fn decode(bytes: &[u8], bounds: &Bounds) -> Result<Stored> {
    let (size, notes, whole) = walk(bytes, bounds)?;
    let damaged = |e: image_webp::DecodingError| bad(&e.to_string());
    let mut decoder = WebPDecoder::new(std::io::Cursor::new(whole)).map_err(damaged)?;
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let length = usize::try_from(size.pixels()).expect("bounded by limits");
    if decoder.dimensions() != (size.width, size.height)
        || decoder.output_buffer_size() != Some(length * channels)
        || decoder.is_animated()
    {
        return Err(bad("its header is not clear"));
    }
    let mut pixels = vec![0; length * channels];
    decoder.read_image(&mut pixels).map_err(damaged)?;
    let alpha = if channels == 4 { split_alpha(&mut pixels) } else { Vec::new() };
    let opaque = alpha.iter().all(|&a| a == 255);
    let exif = exif::read(notes.exif.unwrap_or_default());
    let meta = notes.metadata();
    Ok(Stored {
        rgb: Rgb::from_vec(size, pixels).expect("as long as its size says"),
        alpha: if opaque { None } else { Grey::from_vec(size, alpha) },
        orientation: exif.orientation,
        meta: Metadata {
            xmp: None,
            aigc: meta.aigc,
            icc: meta.icc.filter(|icc| meta::icc_space(icc).is_some()),
        },
    })
}

/// Takes the fourth channel out; the other three close up in the same buffer.
fn split_alpha(pixels: &mut Vec<u8>) -> Vec<u8> {
    let count = pixels.len() / 4;
    let alpha = pixels.as_chunks::<4>().0.iter().map(|p| p[3]).collect();
    for i in 1..count {
        pixels.copy_within(i * 4..i * 4 + 3, i * 3);
    }
    pixels.truncate(count * 3);
    alpha
}
