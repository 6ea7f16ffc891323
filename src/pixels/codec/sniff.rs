//! What a file is, by its first bytes, and the name of what is not read.

use crate::errors::Error;

/// Formats that are read; JPEG and PNG are also written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileFormat {
    Jpeg,
    Png,
    WebP,
}

impl FileFormat {
    /// Name in reports: `jpeg`, `png` or `webp`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::WebP => "webp",
        }
    }

    /// Usual file extension, without the dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::WebP => "webp",
        }
    }

    /// The format that a file extension (without the dot, in any case) stands for.
    #[must_use]
    pub fn from_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "jpg" | "jpeg" | "jpe" | "jfif" => Some(Self::Jpeg),
            "png" => Some(Self::Png),
            "webp" => Some(Self::WebP),
            _ => None,
        }
    }
}

const PNG_SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// The format of a file by its first bytes; `None` when it is not one that is read.
#[must_use]
pub fn sniff(bytes: &[u8]) -> Option<FileFormat> {
    if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
        Some(FileFormat::Jpeg)
    } else if bytes.starts_with(PNG_SIGNATURE) {
        Some(FileFormat::Png)
    } else if riff(bytes) == Some(b"WEBP") {
        Some(FileFormat::WebP)
    } else {
        None
    }
}

fn riff(bytes: &[u8]) -> Option<&[u8]> {
    if bytes.starts_with(b"RIFF") { bytes.get(8..12) } else { None }
}

const PICTURE: &str = "convert it to .png or .jpg first, as with `magick IN OUT.png`";
const PHOTO: &str = "convert it to .jpg first, as with `heif-convert IN OUT.jpg`";
const MOVING: &str = "take a still first, as with `ffmpeg -i IN -frames:v 1 OUT.png`";
const PAGE: &str = "draw it as a picture first, as with `pdftoppm -png IN OUT`";
const DRAWING: &str = "draw it as a picture first, as with `rsvg-convert IN -o OUT.png`";
const UNPACK: &str = "unpack it first";

/// First bytes, what the file is called, what to do.
const FOREIGN: &[(&[u8], &str, &str)] = &[
    (b"GIF87a", "GIF", MOVING),
    (b"GIF89a", "GIF", MOVING),
    (b"II*\0", "TIFF (or a camera's raw file)", PICTURE),
    (b"MM\0*", "TIFF (or a camera's raw file)", PICTURE),
    (b"II+\0", "BigTIFF", PICTURE),
    (b"MM\0+", "BigTIFF", PICTURE),
    (b"BM", "BMP", PICTURE),
    (b"%PDF-", "PDF", PAGE),
    (b"%!PS", "PostScript", PAGE),
    (b"8BPS", "Photoshop document", PICTURE),
    (b"gimp xcf", "GIMP document", PICTURE),
    (b"qoif", "QOI", PICTURE),
    (b"farbfeld", "Farbfeld", PICTURE),
    (b"\0\0\x01\0", "Icon", PICTURE),
    (b"\x76\x2f\x31\x01", "OpenEXR", PICTURE),
    (b"#?RADIANCE", "Radiance HDR", PICTURE),
    (b"\xff\x0a", "JPEG XL", PICTURE),
    (b"\0\0\0\x0cJXL ", "JPEG XL", PICTURE),
    (b"\0\0\0\x0cjP  ", "JPEG 2000", PICTURE),
    (b"\xff\x4f\xff\x51", "JPEG 2000", PICTURE),
    (b"\x8aMNG", "MNG", MOVING),
    (b"\x8bJNG", "JNG", PICTURE),
    (b"\x1a\x45\xdf\xa3", "Matroska or WebM clip", MOVING),
    (b"FLV\x01", "Flash clip", MOVING),
    (b"\0\0\x01\xba", "MPEG clip", MOVING),
    (b"\0\0\x01\xb3", "MPEG clip", MOVING),
    (b"OggS", "Ogg file", MOVING),
    (b"PK\x03\x04", "ZIP archive or office document", UNPACK),
    (b"\x1f\x8b", "Gzip archive", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "7z archive", UNPACK),
    (b"\xfd7zXZ\0", "Xz archive", UNPACK),
    (b"\x28\xb5\x2f\xfd", "Zstandard archive", UNPACK),
    (b"\x7fELF", "Program", "give a picture"),
    (b"MZ", "Program", "give a picture"),
];

/// Major brands of ISO base media files.
const BRANDS: &[(&[u8; 4], &str, &str)] = &[
    (b"avif", "AVIF", PICTURE),
    (b"avis", "AVIF sequence", MOVING),
    (b"heic", "HEIC", PHOTO),
    (b"heix", "HEIC", PHOTO),
    (b"heim", "HEIC", PHOTO),
    (b"heis", "HEIC", PHOTO),
    (b"hevc", "HEIC sequence", MOVING),
    (b"hevx", "HEIC sequence", MOVING),
    (b"mif1", "HEIF", PHOTO),
    (b"msf1", "HEIF sequence", MOVING),
    (b"crx ", "Canon raw file", PICTURE),
    (b"qt  ", "QuickTime clip", MOVING),
];

/// Why a file that `sniff` does not know is refused: by its name where there is one.
#[must_use]
pub fn refusal(bytes: &[u8]) -> Error {
    if bytes.is_empty() {
        return Error::Empty;
    }
    if let Some((_, what, advice)) = FOREIGN.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
        return Error::Foreign { what, advice };
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        let brand = bytes.get(8..12).unwrap_or_default();
        return BRANDS
            .iter()
            .find(|(name, ..)| brand == *name)
            .map_or(Error::Foreign { what: "MP4 clip", advice: MOVING }, |(_, what, advice)| {
                Error::Foreign { what, advice }
            });
    }
    match riff(bytes) {
        Some(b"AVI ") => return Error::Foreign { what: "AVI clip", advice: MOVING },
        Some(b"WAVE") => return Error::Foreign { what: "Sound", advice: "give a picture" },
        _ => {}
    }
    if let [b'P', b'1'..=b'7', white, ..] = bytes
        && white.is_ascii_whitespace()
    {
        return Error::Foreign { what: "Netpbm picture", advice: PICTURE };
    }
    text(bytes)
}

/// Markup begins with white space, a byte order mark or comments of any length.
fn text(bytes: &[u8]) -> Error {
    let head = bytes.get(..bytes.len().min(1024)).unwrap_or_default();
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let has = |word: &[u8]| head.windows(word.len()).any(|w| w.eq_ignore_ascii_case(word));
    if head.starts_with(b"<") && has(b"<svg") {
        return Error::Foreign { what: "SVG", advice: DRAWING };
    }
    if has(b"<!doctype html") || has(b"<html") {
        return Error::Foreign {
            what: "Web page",
            advice: "download the picture itself, not the page around it",
        };
    }
    Error::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::error::ErrorKind;

    #[test]
    fn each_read_format_is_known_by_its_first_bytes() {
        assert_eq!(sniff(b"\xff\xd8\xff\xe0\0\x10JFIF"), Some(FileFormat::Jpeg));
        assert_eq!(sniff(b"\x89PNG\r\n\x1a\n\0\0\0\x0d"), Some(FileFormat::Png));
        assert_eq!(sniff(b"RIFF\x10\0\0\0WEBPVP8 "), Some(FileFormat::WebP));
        for half in [&b""[..], b"\xff\xd8", b"\x89PNG\n", b"RIFF\x10\0\0\0WE", b"RIFF"] {
            assert_eq!(sniff(half), None);
        }
    }

    #[test]
    fn a_foreign_file_is_refused_by_its_name() {
        let cases: &[(&[u8], &str)] = &[
            (b"GIF89a\x01\0", "GIF"),
            (b"\0\0\0\x18ftypheic\0\0", "HEIC"),
            (b"\0\0\0\x18ftypavif\0\0", "AVIF"),
            (b"\0\0\0\x18ftypisom\0\0", "MP4"),
            (b"II*\0\x08", "TIFF"),
            (b"BM\x36\0", "BMP"),
            (b"%PDF-1.7", "PDF"),
            (b"<?xml version='1.0'?>\n<!-- x -->\n<svg xmlns=''>", "SVG"),
            (b"\xef\xbb\xbf  <SVG>", "SVG"),
            (b"<!DOCTYPE html><html><svg>", "SVG"),
            (b"<!DOCTYPE html><html>", "Web page"),
            (b"RIFF\0\0\0\0AVI LIST", "AVI"),
            (b"P6\n3 2\n255\n", "Netpbm"),
            (b"\x1a\x45\xdf\xa3", "Matroska"),
        ];
        for (bytes, name) in cases {
            let error = refusal(bytes);
            assert!(error.to_string().starts_with(name), "{error} for {name}");
            assert!(error.to_string().contains("is not read; "), "{error}");
            assert_eq!(error.kind(), ErrorKind::BadInput);
        }
        assert_eq!(refusal(b""), Error::Empty);
        assert_eq!(refusal(b"hello"), Error::Unknown);
    }

    #[test]
    fn extensions_name_formats_in_any_case() {
        assert_eq!(FileFormat::from_extension("JPEG"), Some(FileFormat::Jpeg));
        assert_eq!(FileFormat::from_extension("png"), Some(FileFormat::Png));
        assert_eq!(FileFormat::from_extension("gif"), None);
    }
}
