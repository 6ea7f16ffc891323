//! What can go wrong between a clip's bytes and its frames.

use mien_base::error::ErrorKind;

/// How what is not read becomes H.264 that is.
pub const CONVERT: &str =
    "convert it: ffmpeg -i IN -c:v libx264 -crf 18 -pix_fmt yuv420p -c:a copy OUT.mp4";
/// The same for fields.
pub const DEINTERLACE: &str =
    "convert it: ffmpeg -i IN -vf yadif -c:v libx264 -crf 18 -pix_fmt yuv420p -c:a copy OUT.mp4";
/// The same for frames that are too large.
pub const SHRINK: &str = "make it smaller: \
     ffmpeg -i IN -vf scale=-2:1080 -c:v libx264 -crf 18 -pix_fmt yuv420p -c:a copy OUT.mp4";
/// Rewrites the container only.
pub const REMUX: &str = "copy it again, or rewrite it: ffmpeg -i IN -c copy OUT.mp4";

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file or pipe under the clip failed.
    #[error("Clip can't be {done}")]
    Io {
        done: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// A known format, or a part of one, that is not read or written.
    #[error("{what} is not {done}; {advice}")]
    Foreign { what: String, done: &'static str, advice: &'static str },
    /// First bytes that say nothing.
    #[error("File is not a clip that is known; MP4 with H.264 and Y4M are read")]
    Unknown,
    /// The file ends before its frames do.
    #[error("{format} file ends early: {what}; {REMUX}")]
    Truncated { format: &'static str, what: String },
    /// The file breaks the rules of its format.
    #[error("{format} file is damaged: {what}; {REMUX}")]
    Malformed { format: &'static str, what: String },
    /// Beyond a bound of `limits`.
    #[error("{what} is {value}, more than {limit}; {advice}")]
    TooLarge { what: &'static str, value: u64, limit: u64, advice: &'static str },
    /// A coded frame that gives no picture.
    #[error("Frame {frame} of the clip can't be decoded: {what}; {CONVERT}")]
    Decode { frame: u64, what: String },
    /// The encoder refused a frame that is within all bounds.
    #[error("Frame can't be encoded: {what}")]
    Encode { what: String },
    /// Calls in an order that can't be, or segments that don't belong together.
    #[error("Clip can't be put together: {what}")]
    Order { what: String },
}

impl Error {
    /// The kind, decided once.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } => ErrorKind::Io,
            Self::Foreign { done: "written", .. } => ErrorKind::Usage,
            Self::Foreign { .. }
            | Self::Unknown
            | Self::Truncated { .. }
            | Self::Malformed { .. }
            | Self::Decode { .. } => ErrorKind::BadInput,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Encode { .. } | Self::Order { .. } => ErrorKind::Internal,
        }
    }

    pub(crate) const fn read(source: std::io::Error) -> Self {
        Self::Io { done: "read", source }
    }

    pub(crate) const fn written(source: std::io::Error) -> Self {
        Self::Io { done: "written", source }
    }

    pub(crate) fn foreign(what: impl Into<String>) -> Self {
        Self::Foreign { what: what.into(), done: "read", advice: CONVERT }
    }

    pub(crate) fn mp4(what: impl Into<String>) -> Self {
        Self::Malformed { format: "MP4", what: what.into() }
    }

    pub(crate) fn h264(what: impl Into<String>) -> Self {
        Self::Malformed { format: "H.264", what: what.into() }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Checks a value against a bound of `limits`.
pub(crate) const fn bounded(
    what: &'static str,
    value: u64,
    limit: u64,
    advice: &'static str,
) -> Result<()> {
    if value > limit { Err(Error::TooLarge { what, value, limit, advice }) } else { Ok(()) }
}
