//! Files to pixels and back: JPEG, PNG, WebP.
//!
//! Input is hostile: sizes are checked from the header before anything is allocated, a file that
//! is cut off is refused rather than half shown, and a decoder that panics is an error. What leaves
//! is pixels, an ICC profile and the marks: EXIF (place, time, serial numbers, a thumbnail of the
//! face that was covered), comments and foreign XMP are not carried on.
//!
//! Read downwards: each module uses only those above it.

pub mod sniff;
pub mod bounds;
pub mod meta;
mod orient;
mod exif;
mod entropy;
mod frame;
mod scan;
mod segments;
mod jpeg;
mod png;
mod webp;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use bounds::Bounds;
pub use meta::Metadata;
pub use sniff::{FileFormat, sniff};

use crate::errors::{Error, Result};
use crate::view::{Grey, Rgb, View};
use meta::IccSpace;

/// Quality of a JPEG file when nobody says otherwise; from 95 on the colours keep full resolution.
pub const QUALITY: u8 = 92;

/// A decoded picture.
#[derive(Debug)]
pub struct Decoded {
    /// Upright: the EXIF orientation has been applied.
    pub rgb: Rgb,
    /// Of the same size; `None` when every pixel is opaque.
    pub alpha: Option<Grey>,
    pub format: FileFormat,
    /// What may travel on with the pixels: the ICC profile where it is one for RGB or grey, and an
    /// `AIGC` record, which nobody may remove. Never XMP (it repeats the EXIF): `read_metadata`.
    pub meta: Metadata,
}

/// Decodes one picture.
///
/// # Errors
/// `BadInput` for what is not read, damaged, or cut off; `TooLarge` beyond the bounds.
pub fn decode(bytes: &[u8], bounds: &Bounds) -> Result<Decoded> {
    bounds.check_file(bytes)?;
    let format = sniff(bytes).ok_or_else(|| sniff::refusal(bytes))?;
    let stored = guarded(format, || match format {
        FileFormat::Jpeg => jpeg::decode(bytes, bounds),
        FileFormat::Png => png::decode(bytes, bounds),
        FileFormat::WebP => webp::decode(bytes, bounds),
    })?;
    Ok(Decoded {
        rgb: orient::upright(stored.rgb, stored.orientation),
        alpha: stored.alpha.map(|alpha| orient::upright(alpha, stored.orientation)),
        format,
        meta: stored.meta,
    })
}

/// Reads XMP, `AIGC` and ICC of a file without decoding its pixels. What is damaged or beyond its
/// bound reads as absent.
///
/// # Errors
/// `BadInput` when the file is not one that is read, `TooLarge` when it is too long.
pub fn read_metadata(bytes: &[u8]) -> Result<Metadata> {
    Bounds::default().check_file(bytes)?;
    let format = sniff(bytes).ok_or_else(|| sniff::refusal(bytes))?;
    Ok(match format {
        FileFormat::Jpeg => jpeg::read_metadata(bytes),
        FileFormat::Png => png::read_metadata(bytes),
        FileFormat::WebP => webp::read_metadata(bytes),
    })
}

/// Encodes one picture: the same pixels and metadata give the same bytes.
///
/// Grey pictures are written with one channel. JPEG has no transparency: there the picture is laid
/// on white, so what was hidden stays hidden. A profile that does not fit the pixels is left out.
/// `quality` is 1 to 100 and means nothing for PNG.
///
/// # Errors
/// `Usage` for a format that is not written, `TooLarge` beyond the product's bounds, `Internal`
/// for metadata that no format can carry.
pub fn encode(
    rgb: View<'_, 3>,
    alpha: Option<View<'_, 1>>,
    format: FileFormat,
    quality: u8,
    meta: &Metadata,
) -> Result<Vec<u8>> {
    Bounds::default().check(format.name(), rgb.size())?;
    if alpha.is_some_and(|alpha| alpha.size() != rgb.size()) {
        return Err(Error::Encode {
            format: format.name(),
            detail: "the alpha channel has another size".to_owned(),
        });
    }
    meta.check()?;
    let icc = meta.icc.as_deref().and_then(|icc| Some((icc, meta::icc_space(icc)?)));
    let grey = icc.is_none_or(|(_, space)| space == IccSpace::Grey) && is_grey(rgb);
    let icc = icc.filter(|&(_, space)| (space == IccSpace::Grey) == grey);
    match format {
        FileFormat::Jpeg => {
            jpeg::encode(rgb, alpha, grey, quality.clamp(1, 100), meta, icc.map(|(icc, _)| icc))
        }
        FileFormat::Png => png::encode(rgb, alpha, grey, meta, icc.map(|(icc, _)| icc)),
        FileFormat::WebP => Err(Error::NotWritten { what: "WebP" }),
    }
}

/// True when no pixel has a colour; stops at the first row that has.
fn is_grey(rgb: View<'_, 3>) -> bool {
    rgb.rows().all(|row| row.as_chunks::<3>().0.iter().all(|&[r, g, b]| r == g && g == b))
}

/// A panic of a decoder becomes an error: no file may end the worker.
fn guarded<T>(format: FileFormat, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Error::Malformed { format: format.name(), detail: "the decoder gave up".to_owned() })
    })
}

#[cfg(test)]
mod tests;
