//! Walks the segments of a JPEG file and rebuilds a clean one for the decoder.
//!
//! The decoder never sees what the file says beside its pixels (EXIF, profiles, comments, a second
//! picture behind the first), nor a size, a scan count or a table count beyond the bounds. A file
//! without its end marker is refused here, before a pixel is decoded.

use mien_base::limits;

use crate::codec::bounds::Bounds;
use crate::errors::{Error, Result};
use crate::geometry::Size;

pub(crate) const JPEG: &str = "JPEG";

/// How the components of a file are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Grey,
    YCbCr,
    Rgb,
    /// As Adobe writes it: inverted.
    AdobeCmyk,
    Cmyk,
    Ycck,
}

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

#[derive(Debug, Clone, Copy)]
struct Component {
    id: u8,
    across: u8,
    down: u8,
    table: u8,
}

#[derive(Debug)]
struct Frame {
    size: Size,
    progressive: bool,
    components: Vec<Component>,
    colour: Colour,
}

fn bad(detail: &str) -> Error {
    Error::Malformed { format: JPEG, detail: detail.to_owned() }
}

const fn early(what: &'static str) -> Error {
    Error::Truncated { format: JPEG, what }
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
    let mut clean = vec![0xff, 0xd8];
    let mut scans = 0;
    let mut tables = 0;
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
            0xc0..=0xc2 => {
                if frame.is_some() {
                    return Err(bad("it has two frames"));
                }
                let found = read_frame(marker, body, &notes, bounds)?;
                write_frame(&mut clean, marker, &found);
                frame = Some(found);
            }
            0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => return Err(unread(marker)),
            0xcc => return Err(unread(0xc9)),
            0xc4 | 0xdb => {
                tables += body.len() + 4;
                if tables > limits::JPEG_TABLES {
                    return Err(bad("it has too many tables"));
                }
                write_segment(&mut clean, marker, body);
            }
            0xdd => write_segment(&mut clean, marker, body),
            0xda => {
                let frame = frame.as_ref().ok_or_else(|| bad("a scan stands before its frame"))?;
                scans += 1;
                bound_scans(scans, frame)?;
                write_segment(&mut clean, marker, &renamed_scan(body, frame)?);
                if clean.capacity() - clean.len() < bytes.len() - cursor.at {
                    clean.reserve_exact(bytes.len() - cursor.at + 64);
                }
                clean.extend_from_slice(cursor.scan()?);
            }
            // DNL repeats what the frame says.
            0xdc => {}
            0xe0..=0xef | 0xfe => notes.take(marker, body),
            _ => return Err(bad("it has a marker that no JPEG file has")),
        }
    }
    let frame = frame.ok_or_else(|| bad("it has no frame"))?;
    if scans == 0 {
        return Err(early("it has no pixels"));
    }
    clean.extend_from_slice(&[0xff, 0xd9]);
    Ok(Walked { size: frame.size, colour: frame.colour, notes, clean })
}

fn unread(marker: u8) -> Error {
    let what = match marker {
        0xc3 | 0xc7 | 0xcb | 0xcf => "Lossless JPEG",
        0xc5 | 0xc6 | 0xcd | 0xce => "Hierarchical JPEG",
        _ => "JPEG with arithmetic coding",
    };
    Error::Foreign { what, advice: "convert it first, as with `magick IN OUT.png`" }
}

fn bound_scans(scans: u32, frame: &Frame) -> Result<()> {
    if scans > limits::JPEG_SCANS {
        return Err(Error::TooLarge {
            what: "Number of scans of this JPEG file",
            value: u64::from(scans),
            limit: u64::from(limits::JPEG_SCANS),
        });
    }
    let work = u64::from(scans) * frame.size.pixels();
    if work > limits::JPEG_WORK {
        return Err(Error::TooLarge {
            what: "Number of scans times pixels of this JPEG file",
            value: work,
            limit: limits::JPEG_WORK,
        });
    }
    Ok(())
}

fn read_frame(marker: u8, body: &[u8], notes: &Notes<'_>, bounds: &Bounds) -> Result<Frame> {
    let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else {
        return Err(bad("its frame is too short"));
    };
    if precision != 8 {
        return Err(Error::Foreign {
            what: "JPEG with 12 bits a sample",
            advice: "convert it first, as with `magick IN OUT.png`",
        });
    }
    let size =
        Size::new(u32::from(u16::from_be_bytes([w1, w0])), u32::from(u16::from_be_bytes([h1, h0])));
    bounds.check(JPEG, size)?;
    if rest.len() != usize::from(count) * 3 {
        return Err(bad("its frame has a wrong length"));
    }
    let mut components: Vec<Component> = rest
        .as_chunks::<3>()
        .0
        .iter()
        .map(|&[id, sampling, table]| Component {
            id,
            across: sampling >> 4,
            down: sampling & 15,
            table,
        })
        .collect();
    let fits =
        |c: &Component| (1..=4).contains(&c.across) && (1..=4).contains(&c.down) && c.table < 4;
    if !components.iter().all(fits) {
        return Err(bad("its frame has impossible sampling factors or tables"));
    }
    if components.iter().enumerate().any(|(i, c)| components[..i].iter().any(|d| d.id == c.id)) {
        return Err(bad("two components have one name"));
    }
    let ids: Vec<u8> = components.iter().map(|c| c.id).collect();
    let colour = match (count, notes.adobe) {
        (1, _) => Colour::Grey,
        (3, _) if notes.jfif => Colour::YCbCr,
        (3, Some(0)) => Colour::Rgb,
        (3, None) if ids == *b"RGB" => Colour::Rgb,
        (3, _) => Colour::YCbCr,
        (4, Some(0)) => Colour::AdobeCmyk,
        (4, Some(_)) => Colour::Ycck,
        (4, None) => Colour::Cmyk,
        _ => return Err(bad("it has neither one, three nor four components")),
    };
    if let [only] = components.as_mut_slice() {
        // A single component is never interleaved, so its factors mean nothing.
        (only.across, only.down) = (1, 1);
    }
    Ok(Frame { size, progressive: marker == 0xc2, components, colour })
}

impl Frame {
    /// The name of a component in the clean file: what makes the decoder take the right colours.
    fn name(&self, index: usize) -> u8 {
        match self.colour {
            Colour::Rgb => b"RGB"[index],
            _ => u8::try_from(index + 1).expect("at most four components"),
        }
    }
}

fn write_segment(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    let length = u16::try_from(body.len() + 2).expect("as long as it was in the file");
    out.extend_from_slice(&[0xff, marker]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
}

fn write_frame(out: &mut Vec<u8>, marker: u8, frame: &Frame) {
    if frame.colour == Colour::Ycck {
        write_segment(out, 0xee, b"Adobe\0\x64\0\0\0\0\x02");
    }
    let side = |v: u32| u16::try_from(v).expect("read from 16 bits").to_be_bytes();
    let mut body = vec![8];
    body.extend_from_slice(&side(frame.size.height));
    body.extend_from_slice(&side(frame.size.width));
    body.push(u8::try_from(frame.components.len()).expect("at most four components"));
    for (index, c) in frame.components.iter().enumerate() {
        body.extend_from_slice(&[frame.name(index), c.across << 4 | c.down, c.table]);
    }
    write_segment(out, marker, &body);
}

/// The scan header with the names that the clean frame has.
fn renamed_scan(body: &[u8], frame: &Frame) -> Result<Vec<u8>> {
    let wrong = || bad("a scan header is wrong");
    let count = usize::from(*body.first().ok_or_else(wrong)?);
    if !(1..=frame.components.len()).contains(&count) || body.len() != 4 + 2 * count {
        return Err(wrong());
    }
    let mut out = body.to_vec();
    let mut seen = [false; 4];
    for pair in out[1..=2 * count].as_chunks_mut::<2>().0 {
        let index = frame.components.iter().position(|c| c.id == pair[0]).ok_or_else(wrong)?;
        if std::mem::replace(&mut seen[index], true) {
            return Err(wrong());
        }
        pair[0] = frame.name(index);
    }
    let _ = frame.progressive;
    Ok(out)
}
