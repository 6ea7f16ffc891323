//! What can go wrong between a file's bytes and pixels.

use mien_base::error::ErrorKind;

/// Errors of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of a kind that is known but not read.
    #[error("{what} is not read; {advice}")]
    Foreign { what: &'static str, advice: &'static str },
    /// A file whose first bytes say nothing.
    #[error("File is not a picture that is known; JPEG, PNG and WebP are read")]
    Unknown,
    /// No bytes at all.
    #[error("File is empty")]
    Empty,
    /// The file ends before its picture does.
    #[error("{format} file ends early: {what}; copy or download it again")]
    Truncated { format: &'static str, what: &'static str },
    /// The file breaks the rules of its format.
    #[error("{format} file is damaged: {detail}")]
    Malformed { format: &'static str, detail: String },
    /// Beyond a bound of `limits`.
    #[error("{what} is {value}, more than {limit}; make the picture smaller first")]
    TooLarge { what: &'static str, value: u64, limit: u64 },
    /// The picture can't be written in this format.
    #[error("{what} is not written; name the output .png or .jpg")]
    NotWritten { what: &'static str },
    /// A metadata text that the formats can't carry.
    #[error("Metadata {what}")]
    Metadata { what: String },
    /// The encoder failed on a picture that is within all bounds.
    #[error("{format} encoder failed: {detail}")]
    Encode { format: &'static str, detail: String },
}

impl Error {
    /// The kind, decided once.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Foreign { .. }
            | Self::Unknown
            | Self::Empty
            | Self::Truncated { .. }
            | Self::Malformed { .. } => ErrorKind::BadInput,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::NotWritten { .. } => ErrorKind::Usage,
            Self::Metadata { .. } | Self::Encode { .. } => ErrorKind::Internal,
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
