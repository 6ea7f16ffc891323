//! What can go wrong between a model's bytes and its outputs.

use mien_base::error::ErrorKind;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The runtime refuses the model.
    #[error("Model `{model}` can't be loaded: {detail}")]
    Load { model: String, detail: String },
    /// The model is not what its family says.
    #[error("Model `{model}` breaks its contract: {detail}")]
    Contract { model: String, detail: String },
    /// The model ran and failed.
    #[error("Model `{model}` failed to run: {detail}")]
    Run { model: String, detail: String },
    /// An output holds a NaN or an infinity.
    #[error("Model `{model}` gave a value that is not finite in `{output}`")]
    NotFinite { model: String, output: String },
    /// A picture operation was asked for something impossible.
    #[error("Picture operation {what}")]
    Picture { what: String },
}

impl Error {
    /// The kind, decided once.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Load { .. }
            | Self::Contract { .. }
            | Self::Run { .. }
            | Self::NotFinite { .. } => ErrorKind::Model,
            Self::Picture { .. } => ErrorKind::Internal,
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
