//! The error of the root program: every crate's error with its kind, and what only the shell knows.

use std::path::PathBuf;

use mien_base::error::ErrorKind;

/// What ends a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// An option or a file of options that can't be.
    #[error("{0}")]
    Usage(String),
    /// A file of the user's.
    #[error("{what} `{}`", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    /// Standard output or error is gone.
    #[error("Standard output can't be written")]
    Output(#[source] std::io::Error),
    #[error(transparent)]
    Vault(#[from] mien_vault::Error),
    #[error(transparent)]
    Daemon(#[from] mien_daemon::Error),
    /// A picture whose marks are not whole.
    #[error("{0}")]
    NotMarked(String),
    /// Some of several inputs failed; each was reported.
    #[error("{failed} of {all} pictures failed; the first: {first}")]
    Some { failed: usize, all: usize, first: String, kind: ErrorKind },
    /// A measure is worse than the stored run.
    #[error("{0}")]
    Slower(String),
    /// Part of the check failed.
    #[error("{0}")]
    Check(String),
    /// Ctrl-C.
    #[error("Stopped; nothing half-written is left")]
    Cancelled,
}

impl Error {
    /// The kind, decided once.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Usage(_) => ErrorKind::Usage,
            Self::File { .. } | Self::Output(_) => ErrorKind::Io,
            Self::Vault(error) => error.kind(),
            Self::Daemon(error) => error.kind(),
            Self::NotMarked(_) => ErrorKind::NotMarked,
            Self::Some { kind, .. } => *kind,
            Self::Slower(_) | Self::Check(_) => ErrorKind::Internal,
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }
}

/// Result of a command.
pub(crate) type Result<T> = std::result::Result<T, Error>;
