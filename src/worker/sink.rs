//! Pictures to descriptors. What goes out is `Marked`; a portrait goes back to the vault.

use std::os::fd::OwnedFd;

use mien_base::wire::{Format, Output, Written};
use mien_engine::backend::Backend;
use mien_face::mark::Marked;
use mien_pixels::codec::{self, FileFormat, Metadata};
use mien_pixels::view::Rgb;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// Encodes a marked picture.
///
/// # Errors
/// `Face` when the backend can't give it up, `Pixels` when the format can't carry it.
pub fn encode<B: Backend>(
    backend: &B,
    marked: Marked<B>,
    input: FileFormat,
    output: Output,
) -> Result<Encoded> {
    let (picture, metadata, _) = marked.into_parts();
    let rgb = backend.release(picture).map_err(Error::Engine)?;
    // WebP is read, not written: PNG keeps every pixel.
    let as_input = if input == FileFormat::WebP { FileFormat::Png } else { input };
    let format = output.format.map_or(as_input, file_format);
    let bytes = codec::encode(rgb.view(), None, format, output.quality, &metadata)
        .map_err(Error::Pixels)?;
    Ok(Encoded { bytes, format })
}

/// Encodes a portrait as PNG: it goes to the vault, which keeps what it needs to swap.
///
/// # Errors
/// `Pixels`.
pub fn portrait(rgb: &Rgb) -> Result<Encoded> {
    let bytes = codec::encode(rgb.view(), None, FileFormat::Png, 100, &Metadata::default());
    Ok(Encoded { bytes: bytes.map_err(Error::Pixels)?, format: FileFormat::Png })
}

/// A file that is not written yet.
#[derive(Debug)]
pub struct Encoded {
    bytes: Vec<u8>,
    format: FileFormat,
}

impl Encoded {
    /// Writes from the beginning of the descriptor.
    ///
    /// # Errors
    /// `File`.
    pub fn write(&self, fd: &OwnedFd) -> Result<Written> {
        let failed = |source| Error::File { what: "output", verb: "written", source };
        let (mut rest, mut at) = (self.bytes.as_slice(), 0u64);
        while !rest.is_empty() {
            match rustix::io::pwrite(fd, rest, at) {
                Ok(0) => return Err(failed(Errno::NOSPC)),
                Ok(n) => {
                    rest = rest.get(n..).unwrap_or_default();
                    at += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(Written {
            bytes: at,
            digest: Sha256::digest(&self.bytes).into(),
            format: wire_format(self.format),
        })
    }
}

const fn file_format(format: Format) -> FileFormat {
    match format {
        Format::Jpeg => FileFormat::Jpeg,
        Format::Png => FileFormat::Png,
        Format::WebP => FileFormat::WebP,
    }
}

const fn wire_format(format: FileFormat) -> Format {
    match format {
        FileFormat::Jpeg => Format::Jpeg,
        FileFormat::Png => Format::Png,
        FileFormat::WebP => Format::WebP,
    }
}
