//! Texts and profiles that travel with the pixels, and what of them may leave.

use mien_base::limits;

use crate::errors::{Error, Result};

/// What a file carries beside its pixels.
///
/// EXIF (place, time, camera serial number, thumbnail of the face that was covered) has no field
/// here on purpose: only the orientation is read from it, and nothing of it is written again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// XMP packet.
    pub xmp: Option<String>,
    /// `AIGC` record (GB 45438), a JSON object.
    pub aigc: Option<String>,
    /// ICC profile of the pixels.
    pub icc: Option<Vec<u8>>,
}

impl Metadata {
    /// Refuses texts that one of the formats can't carry unchanged, before anything is encoded.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(xmp) = &self.xmp {
            if xmp.len() > limits::XMP_WRITTEN {
                return Err(Error::Metadata {
                    what: format!(
                        "XMP packet has {} bytes, more than {}",
                        xmp.len(),
                        limits::XMP_WRITTEN
                    ),
                });
            }
            if xmp.contains('\0') {
                return Err(Error::Metadata { what: "XMP packet holds a NUL".to_owned() });
            }
        }
        if let Some(aigc) = &self.aigc {
            if aigc.len() > limits::AIGC {
                return Err(Error::Metadata {
                    what: format!(
                        "AIGC record has {} bytes, more than {}",
                        aigc.len(),
                        limits::AIGC
                    ),
                });
            }
            if !aigc.bytes().all(|b| (0x20..0x7f).contains(&b)) {
                return Err(Error::Metadata {
                    what: "AIGC record is not printable ASCII".to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// What the pixels of a profile are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IccSpace {
    Rgb,
    Grey,
}

/// Colour space of a profile that may travel on; `None` drops it: damaged, too large, or for
/// pixels that are no more (CMYK is turned to RGB).
pub(crate) fn icc_space(icc: &[u8]) -> Option<IccSpace> {
    let size = u32::from_be_bytes(icc.get(..4)?.try_into().ok()?);
    if icc.len() < 132
        || icc.len() > limits::ICC_PROFILE
        || usize::try_from(size).ok()? != icc.len()
        || icc.get(36..40)? != b"acsp"
    {
        return None;
    }
    match icc.get(16..20)? {
        b"RGB " => Some(IccSpace::Rgb),
        b"GRAY" => Some(IccSpace::Grey),
        _ => None,
    }
}

/// The text as XMP when it is plausible: bounded UTF-8 that holds a packet.
pub(crate) fn xmp_text(bytes: &[u8]) -> Option<String> {
    if bytes.len() > limits::XMP_READ {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    text.contains("xmpmeta")
        .then(|| text.to_owned())
        .or_else(|| text.contains("rdf:RDF").then(|| text.to_owned()))
}

/// The text as `AIGC` record when it is one: a bounded ASCII object with the field that every
/// record has. A user's own comment in the same place is not reported.
pub(crate) fn aigc_text(bytes: &[u8]) -> Option<String> {
    if bytes.len() > limits::AIGC || !bytes.iter().all(u8::is_ascii) {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?.trim_matches(['\0', ' ', '\n', '\r', '\t']);
    (text.starts_with('{') && text.ends_with('}') && text.contains("\"Label\""))
        .then(|| text.to_owned())
}
