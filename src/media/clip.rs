//! What a clip is to the rest of the product: its shape, its frames in the order they are shown.

use std::io::{Read, Seek};

use mien_base::limits;
use mien_pixels::convert::{Colour, Matrix, Range};
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;

use crate::errors::{Result, SHRINK, bounded};

/// A file that frames are read from.
pub trait ReadSeek: Read + Seek {}
impl<T: Read + Seek + ?Sized> ReadSeek for T {}

/// Quarter turns clockwise that make a frame upright.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rotation {
    #[default]
    None,
    Right,
    Half,
    Left,
}

impl Rotation {
    /// Clockwise, in degrees.
    #[must_use]
    pub const fn degrees(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Right => 90,
            Self::Half => 180,
            Self::Left => 270,
        }
    }

    /// Size of the upright frame.
    #[must_use]
    pub const fn upright(self, size: Size) -> Size {
        match self {
            Self::None | Self::Half => size,
            Self::Right | Self::Left => Size::new(size.height, size.width),
        }
    }
}

/// Container of a clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Mp4,
    Y4m,
}

impl Format {
    /// As reports name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mp4 => "mp4",
            Self::Y4m => "y4m",
        }
    }
}

/// Colour as a file states it, in the codes of ISO/IEC 23091-2; 2 is "not stated".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColourTags {
    pub primaries: u8,
    pub transfer: u8,
    pub matrix: u8,
    /// 0..=255 instead of 16..=235.
    pub full: bool,
}

impl Default for ColourTags {
    fn default() -> Self {
        Self { primaries: 2, transfer: 2, matrix: 2, full: false }
    }
}

impl ColourTags {
    /// What the values mean. A file that does not say it is taken as players take it: BT.709
    /// from 720 lines on, BT.601 below.
    #[must_use]
    pub fn colour(self, size: Size) -> Colour {
        let matrix = match self.matrix {
            1 => Matrix::Bt709,
            4..=7 => Matrix::Bt601,
            _ if size.short_side() >= 720 => Matrix::Bt709,
            _ => Matrix::Bt601,
        };
        Colour { matrix, range: if self.full { Range::Full } else { Range::Limited } }
    }
}

/// One sound track, as it travels on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sound {
    /// Sample entry, such as `mp4a`.
    pub codec: String,
    pub timescale: u32,
    pub samples: u64,
}

/// What is known of a clip before its first frame.
#[derive(Debug, Clone, PartialEq)]
pub struct ClipInfo {
    pub format: Format,
    /// Of the frames as they come, before `rotation`.
    pub size: Size,
    pub rotation: Rotation,
    /// The display matrix as the file states it, row by row; the output keeps it.
    pub matrix: [i32; 9],
    /// Ticks a second of `Timing`.
    pub timescale: u32,
    /// Frames that are shown; `None` for a stream.
    pub frames: Option<u64>,
    /// From the first frame's begin to the last one's end, in ticks.
    pub duration: Option<u64>,
    /// Frames a second on average, or as a stream states it.
    pub rate: (u32, u32),
    pub colour: Colour,
    pub tags: ColourTags,
    /// Width to height of a sample.
    pub sample_aspect: (u32, u32),
    pub sound: Vec<Sound>,
    /// Tracks that do not travel on: other pictures, time codes, places.
    pub dropped: u32,
    /// Mean quantiser of the input's sync frames, where it could be read.
    pub quantiser: Option<u8>,
}

/// When a frame is shown, in ticks of the clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    pub pts: i64,
    /// To the next frame.
    pub duration: u32,
}

/// Frames in the order they are shown.
pub trait FrameSource: Send {
    fn info(&self) -> &ClipInfo;

    /// Decodes the next frame; `None` after the last one. The frame's own buffer may be swapped
    /// for another of the same size.
    ///
    /// # Errors
    /// When the input is damaged; no frame follows then.
    fn next(&mut self, into: &mut I420) -> Result<Option<Timing>>;

    /// Makes `next` go on with the first frame that begins at or after `pts`. A stream only goes
    /// forwards.
    ///
    /// # Errors
    /// When the input is damaged.
    fn seek(&mut self, pts: i64) -> Result<()>;
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    pub frames: u64,
    pub bytes: u64,
}

/// Takes frames in the order they are shown.
pub trait FrameSink: Send {
    /// Writes one frame. With `idr` it can be decoded without those before it.
    ///
    /// # Errors
    /// When the output can't be written or the frame has another size than the clip.
    fn push(&mut self, frame: &I420, timing: Timing, idr: bool) -> Result<()>;

    /// Writes what is left.
    ///
    /// # Errors
    /// When the output can't be written.
    fn finish(self: Box<Self>) -> Result<Summary>;
}

/// Refuses frames of no size and of one beyond `limits`.
pub(crate) fn check_size(size: Size) -> Result<()> {
    let side = u64::from(size.width.max(size.height));
    bounded("Longest side of the clip", side, u64::from(limits::CLIP_SIDE), SHRINK)?;
    bounded("Number of pixels of a frame", size.pixels(), limits::CLIP_PIXELS, SHRINK)
}
