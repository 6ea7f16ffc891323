//! What may be decoded: file size, sides and pixels, checked before anything is allocated.

use mien_base::limits;

use crate::errors::{Error, Result};
use crate::geometry::Size;

/// Bounds of one decode. The default is the product's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Longest side in pixels.
    pub side: u32,
    /// Most pixels.
    pub pixels: u64,
    /// Largest file in bytes.
    pub file: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            side: limits::PICTURE_SIDE,
            pixels: limits::PICTURE_PIXELS,
            file: limits::PICTURE_FILE,
        }
    }
}

impl Bounds {
    pub(crate) fn check_file(&self, bytes: &[u8]) -> Result<()> {
        let value = bytes.len() as u64;
        if value > self.file {
            return Err(Error::TooLarge { what: "File size in bytes", value, limit: self.file });
        }
        Ok(())
    }

    pub(crate) fn check(&self, format: &'static str, size: Size) -> Result<()> {
        if size.width == 0 || size.height == 0 {
            return Err(Error::Malformed { format, detail: "a side has no pixels".to_owned() });
        }
        let side = size.width.max(size.height);
        if side > self.side {
            return Err(Error::TooLarge {
                what: "Side of the picture in pixels",
                value: u64::from(side),
                limit: u64::from(self.side),
            });
        }
        if size.pixels() > self.pixels {
            return Err(Error::TooLarge {
                what: "Number of pixels",
                value: size.pixels(),
                limit: self.pixels,
            });
        }
        Ok(())
    }
}
