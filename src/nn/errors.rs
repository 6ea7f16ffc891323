//! What can go wrong between a model's bytes and its outputs.

use mien_base::error::ErrorKind;

/// Errors of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is not what it claims.
    #[error("The model is damaged: {detail}")]
    Damaged { detail: String },
    /// The file may be sound, but this engine has no way to run it: another runtime may.
    #[error("The model is beyond this engine: {detail}")]
    Unsupported { detail: String },
    /// Inputs of the wrong number or shape.
    #[error("The inputs do not fit the model: {detail}")]
    Input { detail: String },
}

impl Error {
    /// The kind, decided once.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Model
    }

    pub(crate) fn damaged(detail: impl Into<String>) -> Self {
        Self::Damaged { detail: detail.into() }
    }

    pub(crate) fn unsupported(detail: impl Into<String>) -> Self {
        Self::Unsupported { detail: detail.into() }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
