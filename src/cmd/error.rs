//! The error of the root program: every crate's error with its kind, and what only the shell knows.

use std::io;
use std::path::PathBuf;

use mien_base::error::ErrorKind;
use mien_base::report::Failure;

/// What ends a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// An option or a file of options that can't be.
    #[error("{0}")]
    Usage(String),
    /// A file of the user's.
    #[error("{what} `{}`", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error("Standard output can't be written")]
    Output { source: io::Error },
    #[error("Signals can't be caught")]
    Signal { source: io::Error },
    #[error("No randomness for a job id; give one with --job")]
    Random { source: io::Error },
    #[error(transparent)]
    Vault(#[from] mien_vault::Error),
    #[error(transparent)]
    Daemon(#[from] mien_daemon::Error),
    /// A swap without a record that holds.
    #[error("{0}")]
    NoConsent(String),
    /// A picture whose marks are not whole.
    #[error("{0}")]
    NotMarked(String),
    /// One picture failed, as reported.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// Some of several inputs failed; each was reported.
    #[error("{failed} of {all} inputs failed; the first: {}", first.message)]
    Some { failed: usize, all: usize, first: Failure },
    /// A measure is worse than the stored run.
    #[error("{0}")]
    Slower(String),
    /// Part of the check failed.
    #[error("{0}")]
    Check(String),
    /// Ctrl-C.
    #[error("Stopped; nothing half-written is left")]
    Cancelled,
    /// A clip that can be gone on with.
    #[error(
        "{why}; what is done is kept in `{}`: the same command goes on from there, \
         and without that folder it begins anew",
        folder.display()
    )]
    Interrupted { why: String, kind: ErrorKind, folder: PathBuf },
}

impl Error {
    /// `map_err` for the source of job ids.
    pub(crate) fn random(source: io::Error) -> Self {
        Self::Random { source }
    }

    /// The kind, decided once.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Usage(_) => ErrorKind::Usage,
            Self::File { .. } | Self::Output { .. } => ErrorKind::Io,
            Self::Signal { .. } | Self::Random { .. } => ErrorKind::Internal,
            Self::Vault(error) => error.kind(),
            Self::Daemon(error) => error.kind(),
            Self::NoConsent(_) => ErrorKind::NoConsent,
            Self::NotMarked(_) => ErrorKind::NotMarked,
            Self::Failed(failure) => failure.kind,
            Self::Some { first, .. } => first.kind,
            Self::Slower(_) | Self::Check(_) => ErrorKind::Internal,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Interrupted { kind, .. } => *kind,
        }
    }

    /// The message and what caused it, on one line.
    pub(crate) fn chain(&self) -> String {
        mien_base::error::chain(self)
    }
}

/// Result of a command.
pub(crate) type Result<T> = std::result::Result<T, Error>;
