//! Boxes as they are read: those at the top of a file one after another, those inside from memory.

use std::io::{Read, Seek, SeekFrom};

use mien_base::limits;

use crate::errors::{Error, REMUX, Result, bounded};

/// Four letters that say what a box is.
pub(crate) type Kind = [u8; 4];

/// Letters as text, for messages.
pub(crate) fn name(kind: Kind) -> String {
    kind.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '?' }).collect()
}

/// Fields of one box, in order; every read past its end is an error that names it.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    kind: Kind,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(kind: Kind, body: &'a [u8]) -> Self {
        Self { kind, rest: body }
    }

    pub(crate) fn bad(&self, what: &str) -> Error {
        Error::mp4(format!("box {} {what}", name(self.kind)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk().ok_or_else(|| self.bad("is cut"))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// 64 bits where the box's version is not 0, else 32.
    pub(crate) fn wide(&mut self, version: u8) -> Result<u64> {
        if version == 0 { self.u32().map(u64::from) } else { self.u64() }
    }

    /// Version and flags.
    pub(crate) fn full(&mut self) -> Result<(u8, u32)> {
        let word = self.u32()?;
        Ok(((word >> 24) as u8, word & 0xff_ffff))
    }

    pub(crate) fn skip(&mut self, bytes: usize) -> Result<()> {
        self.take(bytes).map(drop)
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(bytes).ok_or_else(|| self.bad("is cut"))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// A count of entries of `bytes` each that are all there: safe to allocate for.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count.checked_mul(bytes).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(self.bad(&format!("states {count} entries and holds fewer")));
        }
        let most = limits::CLIP_SAMPLES as u64;
        bounded("Number of entries of one table of the clip", count as u64, most, SPLIT)?;
        Ok(count)
    }
}

/// What is said of a file with too many tracks.
pub(crate) const REMUX_INDEX: &str =
    "keep those that matter: ffmpeg -i IN -map 0:v:0 -map 0:a? -c copy OUT.mp4";
/// What makes a long clip short.
pub(crate) const SPLIT: &str =
    "cut it into parts first: ffmpeg -i IN -c copy -f segment -segment_time 3600 OUT%02d.mp4";

/// Boxes inside a box. What is left after the last whole one, if too short for a box, is skipped:
/// QuickTime ends lists with four zero bytes.
#[derive(Debug, Clone)]
pub(crate) struct Boxes<'a> {
    parent: Kind,
    rest: &'a [u8],
}

impl<'a> Boxes<'a> {
    pub(crate) const fn new(parent: Kind, body: &'a [u8]) -> Self {
        Self { parent, rest: body }
    }

    /// The first of a kind.
    pub(crate) fn find(self, kind: Kind) -> Result<Option<&'a [u8]>> {
        for inner in self {
            let (found, body) = inner?;
            if found == kind {
                return Ok(Some(body));
            }
        }
        Ok(None)
    }

    /// The first of a kind that must be there.
    pub(crate) fn need(self, kind: Kind) -> Result<&'a [u8]> {
        let parent = self.parent;
        self.find(kind)?
            .ok_or_else(|| Error::mp4(format!("box {} has no {}", name(parent), name(kind))))
    }
}

impl<'a> Iterator for Boxes<'a> {
    type Item = Result<(Kind, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < 8 {
            return None;
        }
        let mut fields = Fields::new(self.parent, self.rest);
        let mut read = || {
            let size = u64::from(fields.u32()?);
            let kind = fields.u32()?.to_be_bytes();
            let (size, head) = match size {
                0 => (self.rest.len() as u64, 8),
                1 => (fields.u64()?, 16),
                size => (size, 8),
            };
            let whole = usize::try_from(size).ok().filter(|size| *size >= head);
            let parts = whole.and_then(|size| self.rest.split_at_checked(size));
            let Some((whole, rest)) = parts else {
                let (inner, outer) = (name(kind), name(self.parent));
                return Err(Error::mp4(format!("box {inner} reaches beyond {outer}")));
            };
            Ok((kind, &whole[head..], rest))
        };
        match read() {
            Ok((kind, body, rest)) => {
                self.rest = rest;
                Some(Ok((kind, body)))
            }
            Err(e) => {
                self.rest = &[];
                Some(Err(e))
            }
        }
    }
}

/// A box at the top of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Top {
    pub(crate) kind: Kind,
    /// Of its first byte.
    pub(crate) start: u64,
    /// Of what it holds.
    pub(crate) body: u64,
    pub(crate) end: u64,
}

/// Walks the boxes at the top of a part of a file.
#[derive(Debug)]
pub(crate) struct Walk {
    at: u64,
    end: u64,
    left: u64,
}

impl Walk {
    pub(crate) const fn new(start: u64, end: u64) -> Self {
        Self { at: start, end, left: limits::CLIP_BOXES }
    }

    /// The next box. One that reaches beyond the end is an error, but for `mdat`: what its frames
    /// lack is found when they are checked.
    pub(crate) fn next<R: Read + Seek + ?Sized>(&mut self, file: &mut R) -> Result<Option<Top>> {
        let left = self.end.saturating_sub(self.at);
        if left < 8 {
            return Ok(None);
        }
        self.left = self.left.checked_sub(1).ok_or(Error::TooLarge {
            what: "Number of boxes of the file",
            value: limits::CLIP_BOXES + 1,
            limit: limits::CLIP_BOXES,
            advice: REMUX,
        })?;
        file.seek(SeekFrom::Start(self.at)).map_err(Error::read)?;
        let mut head = [0; 16];
        let there = left.min(16) as usize;
        file.read_exact(&mut head[..there]).map_err(Error::read)?;
        let [a, b, c, d, e, f, g, h, large @ ..] = head;
        let kind = [e, f, g, h];
        let (size, body) = match u32::from_be_bytes([a, b, c, d]) {
            0 => (left, 8),
            1 if there == 16 => (u64::from_be_bytes(large), 16),
            1 => return Err(cut(kind)),
            size => (u64::from(size), 8),
        };
        if size < body {
            return Err(Error::mp4(format!("box {} is smaller than a box can be", name(kind))));
        }
        let start = self.at;
        let end = match start.checked_add(size) {
            Some(end) if end <= self.end => end,
            _ if kind == *b"mdat" => self.end,
            _ => return Err(cut(kind)),
        };
        self.at = end;
        Ok(Some(Top { kind, start, body: start + body, end }))
    }
}

fn cut(kind: Kind) -> Error {
    Error::Truncated { format: "MP4", what: format!("box {} is not whole", name(kind)) }
}

/// Reads what a box holds.
pub(crate) fn load<R: Read + Seek + ?Sized>(file: &mut R, top: Top) -> Result<Vec<u8>> {
    let size = top.end - top.body;
    bounded("Size of the clip's index", size, limits::CLIP_INDEX, SPLIT)?;
    file.seek(SeekFrom::Start(top.body)).map_err(Error::read)?;
    let mut body = Vec::new();
    file.take(size).read_to_end(&mut body).map_err(Error::read)?;
    if body.len() as u64 == size { Ok(body) } else { Err(cut(top.kind)) }
}
