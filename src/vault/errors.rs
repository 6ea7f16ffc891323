//! What can go wrong with goods: files, models, sources, consent records, registries.

use std::io;
use std::path::PathBuf;

use mien_base::error::ErrorKind;
use mien_base::id::{IdentityId, ModelId};
use mien_base::model::Role;

use crate::refusal::Reason;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. Its message never holds the source's: the chain is printed once.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Can't {action} `{}`", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` is larger than {max} bytes", path.display())]
    TooLarge { path: PathBuf, max: u64 },
    #[error("No home for models and identities: set MIEN_HOME or HOME to an absolute path")]
    NoHome,

    #[error(
        "The model `{id}` is neither in the catalogue nor among your own models; `mien model list` shows what is known"
    )]
    ModelUnknown { id: ModelId },
    #[error("The model `{id}` is not installed; get it with `mien model fetch`")]
    ModelMissing { id: ModelId },
    #[error("No {role:?} model is installed; get one with `mien model fetch`")]
    RoleMissing { role: Role },
    #[error("`{}` has SHA-256 {found}, but {expected} is expected; remove it and get it again", path.display())]
    Digest { path: PathBuf, expected: String, found: String },
    #[error("`{}` has {found} bytes, but {expected} are expected; remove it and get it again", path.display())]
    Size { path: PathBuf, expected: u64, found: u64 },
    #[error("The manifest `{}` can't be: {why}", path.display())]
    Manifest { path: PathBuf, why: String },
    #[error("Can't hold a model in sealed memory")]
    Memory { source: io::Error },

    #[error("{what} is refused ({reason}): {why}")]
    Refused { what: String, reason: Reason, why: String },
    #[error(
        "Installing needs {needed} bytes, {free} are free on `{}`; remove something or make room", path.display()
    )]
    DiskFull { path: PathBuf, needed: u64, free: u64 },
    #[error("The model `{id}` {why}")]
    Slot { id: ModelId, why: String },
    #[error("The audit log does not take it, so it is not done")]
    Audit { source: io::Error },
    #[error("{what} must be {must}")]
    BadKey { what: &'static str, must: &'static str },
    #[error("`{}` can't be trusted: {why}", path.display())]
    Exposed { path: PathBuf, why: String },
    #[error("`{}` is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("The kernel gives no randomness")]
    Random { source: io::Error },
    #[error("The key `{key}` {why}")]
    Key { key: String, why: String },
    #[error("The sources can't be wrapped for the new key, so the old one stays; try again")]
    Sources { source: io::Error },

    #[error("Can't run `{tool}`: {hint}")]
    Tool { tool: &'static str, hint: &'static str },
    #[error(
        "Can't get the package `{package}` by {tool}: {why}; check the network, and the proxy or mirror that {tool} is set to"
    )]
    Registry { package: String, tool: &'static str, why: String },
    #[error(
        "{what} has SHA-256 {found}, but {expected} is pinned; it was changed at its source or on its way, and nothing of it was used"
    )]
    Pinned { what: String, expected: String, found: String },
    #[error("Can't make `{item}` from its package: {why}")]
    Convert { item: String, why: String },
    #[error("Stopped; what is whole stays, and the next try goes on from there")]
    Cancelled,

    #[error("The source `{id}` is not enrolled; `mien source list` shows who is")]
    SourceUnknown { id: IdentityId },
    #[error("The source `{id}` is enrolled already; `mien source forget {id}` removes it")]
    SourceExists { id: IdentityId },
    #[error("The stored source `{}` is damaged: {why}; forget it and enrol it again", path.display())]
    SourceDamaged { path: PathBuf, why: String },
    #[error("The source `{id}` can't be stored: {why}")]
    SourceBad { id: IdentityId, why: String },
    #[error("The source `{id}` has no consent record to revoke")]
    ConsentMissing { id: IdentityId },
    #[error("The consent record can't be used: {}", faults.join("; "))]
    ConsentBad { faults: Vec<String> },
}

impl Error {
    /// A refusal of `what`.
    pub(crate) fn refused(what: &str, reason: Reason, why: &str) -> Self {
        Self::Refused { what: what.to_owned(), reason, why: why.to_owned() }
    }

    /// The code of a refusal, `None` for other errors.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// The kind that decides exit code and reason.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Memory { .. } | Self::DiskFull { .. } | Self::Audit { .. } => {
                ErrorKind::Io
            }
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Tool { .. } => ErrorKind::Usage,
            Self::Registry { .. } => ErrorKind::Unreachable,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Random { .. } | Self::Sources { .. } => ErrorKind::Internal,
            Self::BadKey { .. } | Self::Key { .. } | Self::Slot { .. } => ErrorKind::Usage,
            Self::Refused { .. } => ErrorKind::Model,
            Self::ModelMissing { .. }
            | Self::RoleMissing { .. }
            | Self::Digest { .. }
            | Self::Size { .. }
            | Self::Pinned { .. }
            | Self::Convert { .. } => ErrorKind::Model,
            Self::NoHome
            | Self::ModelUnknown { .. }
            | Self::Manifest { .. }
            | Self::SourceUnknown { .. }
            | Self::SourceExists { .. }
            | Self::SourceBad { .. } => ErrorKind::Usage,
            Self::Damaged { .. } | Self::Exposed { .. } | Self::SourceDamaged { .. } => {
                ErrorKind::BadInput
            }
            Self::ConsentMissing { .. } | Self::ConsentBad { .. } => ErrorKind::NoConsent,
        }
    }
}
