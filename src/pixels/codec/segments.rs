//! Walks the segments of a JPEG file and rebuilds a clean one for the decoder.
//!
//! The decoder never sees what the file says beside its pixels (EXIF, profiles, comments, a second
//! picture behind the first), nor a size, a scan count or a table count beyond the bounds. A file
//! without its end marker is refused here, before a pixel is decoded.

use mien_base::limits;

use crate::codec::bounds::Bounds;
use crate::codec::frame::{Colour, Frame, bad, early, unread, write_segment};
use crate::codec::scan::{Scan, Tables};
use crate::errors::{Error, Result};
use crate::geometry::Size;

/// Segments that are not pixels, as slices of the file.
#[derive(Debug, Default)]
pub(crate) struct Notes<'a> {
    pub(crate) exif: Option<&'a [u8]>,
    pub(crate) xmp: Option<&'a [u8]>,
    icc: Vec<&'a [u8]>,
    jfif: bool,
    /// Adobe's colour transform.
    adobe: Option<u8>,
}

const XMP_HEADER: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const ICC_HEADER: &[u8] = b"ICC_PROFILE\0";

impl<'a> Notes<'a> {
    fn take(&mut self, marker: u8, body: &'a [u8]) {
        match marker {
            0xe0 if body.starts_with(b"JFIF\0") => self.jfif = true,
            0xe1 => {
                if let Some(exif) = body.strip_prefix(b"Exif\0\0") {
                    self.exif.get_or_insert(exif);
                } else if let Some(xmp) = body.strip_prefix(XMP_HEADER) {
                    self.xmp.get_or_insert(xmp);
                }
            }
            0xe2 => {
                if let Some(part) = body.strip_prefix(ICC_HEADER)
                    && self.icc.len() < 255
                {
                    self.icc.push(part);
                }
            }
            0xee if body.starts_with(b"Adobe") => self.adobe = body.get(11).copied(),
            _ => {}
        }
    }

    /// The profile, put together from its numbered parts; `None` when one is missing.
    pub(crate) fn icc(&self) -> Option<Vec<u8>> {
        let mut whole = Vec::new();
        for number in 1..=self.icc.len() {
            let part = self
                .icc
                .iter()
                .find(|part| part.first().map(|&n| usize::from(n)) == Some(number))?;
            if part.get(1).map(|&n| usize::from(n)) != Some(self.icc.len()) {
                return None;
            }
            whole.extend_from_slice(part.get(2..)?);
            if whole.len() > limits::ICC_PROFILE {
                return None;
            }
        }
        (!whole.is_empty()).then_some(whole)
    }
}

/// What a walk of the whole file gives.
#[derive(Debug)]
pub(crate) struct Walked<'a> {
    pub(crate) size: Size,
    pub(crate) colour: Colour,
    pub(crate) notes: Notes<'a>,
    /// A JPEG file of tables, frame and scans only.
    pub(crate) clean: Vec<u8>,
}

/// A cursor over markers.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Most bytes between two segments that belong to none.
    const STRAY: usize = 64;

    /// The next marker code; fill bytes and a few stray ones are stepped over.
    fn marker(&mut self) -> Result<u8> {
        let mut stray = 0;
        loop {
            match self.bytes.get(self.at..) {
                Some([0xff, code, ..]) if !matches!(code, 0 | 0xff) => {
                    self.at += 2;
                    return Ok(*code);
                }
                Some([0xff, ..]) => self.at += 1,
                Some([_, ..]) if stray < Self::STRAY => {
                    stray += 1;
                    self.at += 1;
                }
                Some([_, ..]) => return Err(bad("bytes between two segments")),
                _ => return Err(early("its end marker is missing")),
            }
        }
    }

    /// The body of the segment whose marker was read.
    fn body(&mut self) -> Result<&'a [u8]> {
        let short = early("a segment is cut off");
        let Some(&[high, low]) = self.bytes.get(self.at..self.at + 2) else { return Err(short) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length < 2 {
            return Err(bad("a segment has an impossible length"));
        }
        let body = self.bytes.get(self.at + 2..self.at + length).ok_or(short)?;
        self.at += length;
        Ok(body)
    }

    /// The coded data of a scan, up to the marker that ends it.
    fn scan(&mut self) -> Result<&'a [u8]> {
        let start = self.at;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let mut at = 0;
        while let Some(step) = rest.get(at..).and_then(|r| r.iter().position(|&b| b == 0xff)) {
            at += step;
            match rest.get(at + 1) {
                Some(0 | 0xd0..=0xd7) => at += 2,
                Some(0xff) => at += 1,
                Some(_) => {
                    self.at = start + at;
                    return Ok(&rest[..at]);
                }
                None => break,
            }
        }
        Err(early("the end of its pixels is missing"))
    }
}

/// Reads the segments before the first scan only: metadata, no pixels. Stops where the file stops.
pub(crate) fn notes(bytes: &[u8]) -> Notes<'_> {
    let mut notes = Notes::default();
    let mut cursor = Cursor { bytes, at: 2 };
    while let Ok(marker) = cursor.marker() {
        if matches!(marker, 0xd9 | 0xda) {
            break;
        }
        if alone(marker) {
            continue;
        }
        let Ok(body) = cursor.body() else { break };
        notes.take(marker, body);
    }
    notes
}

/// Markers without a body.
const fn alone(marker: u8) -> bool {
    matches!(marker, 0x01 | 0xd0..=0xd8)
}

/// Walks the whole file.
pub(crate) fn walk<'a>(bytes: &'a [u8], bounds: &Bounds) -> Result<Walked<'a>> {
    let mut cursor = Cursor { bytes, at: 2 };
    let mut notes = Notes::default();
    let mut frame: Option<Frame> = None;
    let mut colour = None;
    let mut clean = vec![0xff, 0xd8];
    let mut tables = Tables::default();
    let mut scans = 0;
    let mut begun = 0;
    loop {
        let marker = cursor.marker()?;
        if marker == 0xd9 {
            break;
        }
        if alone(marker) {
            continue;
        }
        let body = cursor.body()?;
        match marker {
            0xc0..=0xc2 if frame.is_some() => return Err(bad("it has two frames")),
            0xc0..=0xc2 => frame = Some(Frame::read(marker, body, bounds)?),
            0xc4 | 0xdb | 0xdd => {
                tables.take(marker, body)?;
                write_segment(&mut clean, marker, body);
            }
            0xc3 | 0xc5..=0xc7 | 0xc9..=0xcf => return Err(unread(marker)),
            0xda => {
                let frame = frame.as_ref().ok_or_else(|| bad("a scan stands before its frame"))?;
                // All that tells the colours stands before the first scan.
                let colour = *colour.get_or_insert_with(|| {
                    let colour = frame.colour(notes.jfif, notes.adobe);
                    frame.write(&mut clean, colour);
                    colour
                });
                bound_scans(scans + 1, frame.size)?;
                let scan = Scan::read(body, frame, colour)?;
                begin(&mut begun, scan.begins(frame), frame, scans)?;
                write_segment(&mut clean, marker, &scan.header);
                let data = cursor.scan()?;
                clean.reserve(data.len() + bytes.len() - cursor.at + 64);
                scan.copy(data, &mut clean, frame, &tables, scans == 0)?;
                scans += 1;
            }
            // DNL repeats what the frame says.
            0xdc => {}
            0xe0..=0xef | 0xfe => notes.take(marker, body),
            _ => return Err(bad("it has a marker that no JPEG file has")),
        }
    }
    match (frame, colour) {
        (Some(frame), Some(colour)) if begun == all(&frame) => {
            clean.extend_from_slice(&[0xff, 0xd9]);
            Ok(Walked { size: frame.size, colour, notes, clean })
        }
        _ => Err(early("it has not all of its pixels")),
    }
}

/// Bit per component.
fn all(frame: &Frame) -> u8 {
    (1 << frame.components.len()) - 1
}

/// Counts which components have begun; each begins once, the first scan begins some.
fn begin(begun: &mut u8, now: u8, frame: &Frame, scans: u32) -> Result<()> {
    if *begun & now != 0 || (now == 0 && (scans == 0 || !frame.progressive())) {
        return Err(bad("its scans stand in an impossible order"));
    }
    *begun |= now;
    Ok(())
}

fn bound_scans(scans: u32, size: Size) -> Result<()> {
    let work = u64::from(scans) * size.pixels();
    let (what, value, limit) = if scans > limits::JPEG_SCANS {
        ("Number of scans of this JPEG file", u64::from(scans), u64::from(limits::JPEG_SCANS))
    } else if work > limits::JPEG_WORK {
        ("Number of scans times pixels of this JPEG file", work, limits::JPEG_WORK)
    } else {
        return Ok(());
    };
    Err(Error::TooLarge { what, value, limit })
}
