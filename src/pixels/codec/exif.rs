//! A small EXIF reader (orientation and user comment only) and writer (user comment only).
//!
//! The block is a TIFF file: a header, a directory, and a second directory that it points to.
//! Only these two are visited, each offset is checked, so hostile loops and lengths cost nothing.

use crate::codec::orient::Orientation;

/// What is read of an EXIF block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exif<'a> {
    pub(crate) orientation: Orientation,
    /// Bytes of the user comment after its character code, when that code is ASCII or unset.
    pub(crate) comment: Option<&'a [u8]>,
}

const ORIENTATION: u16 = 0x0112;
const EXIF_DIRECTORY: u16 = 0x8769;
const EXIF_VERSION: u16 = 0x9000;
const USER_COMMENT: u16 = 0x9286;

const BYTE: u16 = 1;
const ASCII: u16 = 2;
const SHORT: u16 = 3;
const LONG: u16 = 4;
const UNDEFINED: u16 = 7;

struct Tiff<'a> {
    bytes: &'a [u8],
    little: bool,
}

struct Entry<'a> {
    tag: u16,
    kind: u16,
    count: u32,
    /// Four bytes: the value when it fits, else its offset.
    value: &'a [u8],
}

impl<'a> Tiff<'a> {
    fn u16_at(&self, at: usize) -> Option<u16> {
        let raw = self.bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if self.little { u16::from_le_bytes(raw) } else { u16::from_be_bytes(raw) })
    }

    fn u32_of(&self, raw: &[u8]) -> Option<u32> {
        let raw = raw.get(..4)?.try_into().ok()?;
        Some(if self.little { u32::from_le_bytes(raw) } else { u32::from_be_bytes(raw) })
    }

    fn entries(&self, at: usize) -> impl Iterator<Item = Entry<'a>> {
        let count = self.u16_at(at).unwrap_or(0);
        (0..usize::from(count)).map_while(move |i| {
            let start = at.checked_add(2 + i * 12)?;
            let raw = self.bytes.get(start..start.checked_add(12)?)?;
            let short = |b: &[u8]| {
                let b = b.try_into().ok()?;
                Some(if self.little { u16::from_le_bytes(b) } else { u16::from_be_bytes(b) })
            };
            Some(Entry {
                tag: short(raw.get(..2)?)?,
                kind: short(raw.get(2..4)?)?,
                count: self.u32_of(raw.get(4..8)?)?,
                value: raw.get(8..)?,
            })
        })
    }

    /// The value of an entry as a number that fits its four bytes.
    fn number(&self, entry: &Entry<'_>) -> Option<u32> {
        match entry.kind {
            _ if entry.count != 1 => None,
            BYTE => entry.value.first().map(|&b| u32::from(b)),
            SHORT => {
                let raw = entry.value.get(..2)?.try_into().ok()?;
                let value =
                    if self.little { u16::from_le_bytes(raw) } else { u16::from_be_bytes(raw) };
                Some(u32::from(value))
            }
            LONG => self.u32_of(entry.value),
            _ => None,
        }
    }
}

/// Reads a TIFF block (after `Exif\0\0` where a format has that). What is damaged reads as absent:
/// a picture is not refused for its EXIF.
pub(crate) fn read(block: &[u8]) -> Exif<'_> {
    let mut exif = Exif { orientation: Orientation::default(), comment: None };
    let block = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
    let little = match block.get(..4) {
        Some(b"II*\0") => true,
        Some(b"MM\0*") => false,
        _ => return exif,
    };
    let tiff = Tiff { bytes: block, little };
    let place = |raw: Option<&[u8]>| {
        raw.and_then(|raw| tiff.u32_of(raw)).and_then(|at| usize::try_from(at).ok())
    };
    let Some(first) = place(block.get(4..8)) else { return exif };
    let mut second = None;
    for entry in tiff.entries(first) {
        match entry.tag {
            ORIENTATION => {
                let number = tiff.number(&entry).and_then(|n| u8::try_from(n).ok());
                exif.orientation = number.and_then(Orientation::from_exif).unwrap_or_default();
            }
            EXIF_DIRECTORY => second = tiff.number(&entry).and_then(|n| usize::try_from(n).ok()),
            _ => {}
        }
    }
    let Some(second) = second else { return exif };
    for entry in tiff.entries(second) {
        if entry.tag == USER_COMMENT && matches!(entry.kind, UNDEFINED | ASCII | BYTE) {
            exif.comment = comment(&tiff, &entry, place(Some(entry.value)));
        }
    }
    exif
}

fn comment<'a>(tiff: &Tiff<'a>, entry: &Entry<'a>, at: Option<usize>) -> Option<&'a [u8]> {
    let count = usize::try_from(entry.count).ok()?;
    let at = at?;
    let raw = if count <= 4 {
        entry.value.get(..count)?
    } else {
        tiff.bytes.get(at..at.checked_add(count)?)?
    };
    let (code, text) = raw.split_at_checked(8)?;
    matches!(code, b"ASCII\0\0\0" | [0, 0, 0, 0, 0, 0, 0, 0]).then_some(text)
}

/// A TIFF block that holds nothing but a user comment in ASCII.
pub(crate) fn with_comment(text: &str) -> Vec<u8> {
    // Header 8, first directory 2 + 12 + 4 = 18 bytes at 8, second 2 + 24 + 4 = 30 bytes at 26.
    let length = u32::try_from(text.len() + 8).expect("bounded by limits");
    let mut out = Vec::with_capacity(56 + 8 + text.len());
    out.extend_from_slice(b"MM\0*\0\0\0\x08");
    let entry = |out: &mut Vec<u8>, tag: u16, kind: u16, count: u32, value: [u8; 4]| {
        out.extend_from_slice(&tag.to_be_bytes());
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&count.to_be_bytes());
        out.extend_from_slice(&value);
    };
    out.extend_from_slice(&1u16.to_be_bytes());
    entry(&mut out, EXIF_DIRECTORY, LONG, 1, 26u32.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&2u16.to_be_bytes());
    entry(&mut out, EXIF_VERSION, UNDEFINED, 4, *b"0232");
    entry(&mut out, USER_COMMENT, UNDEFINED, length, 56u32.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(b"ASCII\0\0\0");
    out.extend_from_slice(text.as_bytes());
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block as a camera writes it: orientation among other tags.
    pub(crate) fn block_with_orientation(value: u16, little: bool) -> Vec<u8> {
        let s = |v: u16| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let l = |v: u32| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let mut out = if little { b"II*\0".to_vec() } else { b"MM\0*".to_vec() };
        out.extend(l(8));
        out.extend(s(3));
        for (tag, kind, count, raw) in [
            (0x010f, 2, 4, *b"cam\0"),
            (0x0112, 3, 1, [s(value)[0], s(value)[1], 0, 0]),
            (0x8825, 4, 1, l(50)),
        ] {
            out.extend(s(tag));
            out.extend(s(kind));
            out.extend(l(count));
            out.extend(raw);
        }
        out.extend(l(0));
        out
    }

    #[test]
    fn orientation_is_read_in_both_byte_orders() {
        for value in 1..=8 {
            for little in [true, false] {
                let block = block_with_orientation(value, little);
                let want = Orientation::from_exif(u8::try_from(value).unwrap()).unwrap();
                assert_eq!(read(&block).orientation, want);
                assert_eq!(read(&[b"Exif\0\0", &block[..]].concat()).orientation, want);
            }
        }
        for value in [0, 9, 255, 256, 65535] {
            let block = block_with_orientation(value, true);
            assert_eq!(read(&block).orientation, Orientation::default());
        }
    }

    #[test]
    fn a_written_comment_is_read_back() {
        let block = with_comment("{\"Label\":\"1\"}");
        assert_eq!(read(&block).comment, Some(&b"{\"Label\":\"1\"}"[..]));
        assert_eq!(read(&block).orientation, Orientation::default());
    }

    proptest! {
        #[test]
        fn any_bytes_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&[b"II*\0", &bytes[..]].concat());
            let _ = read(&[b"MM\0*\0\0\0\x08", &bytes[..]].concat());
        }

        #[test]
        fn a_damaged_block_reads_without_panic(at in 0usize..80, to: u8, cut in 0usize..90) {
            let mut block = with_comment("{\"Label\":\"1\",\"x\":\"0123456789\"}");
            let at = at % block.len();
            block[at] = to;
            block.truncate(cut);
            let _ = read(&block);
        }
    }
}
