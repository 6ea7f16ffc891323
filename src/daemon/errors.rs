//! What can go wrong around jobs, files and the worker.

use std::path::{Path, PathBuf};

use mien_base::error::ErrorKind;
use mien_base::id::{IdentityId, JobId};
use mien_base::report::Failure;
use mien_base::wire::Stage;
use mien_base::wire::fds::WireError;
use mien_vault::refusal::Reason;
use rustix::io::Errno;

use crate::audit::{BadEntry, Fault};

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("The worker `{}` can't be started", program.display())]
    Spawn { program: PathBuf, source: std::io::Error },
    #[error(
        "The worker `{}` was started {tries} times and never became ready; the last time: {last}",
        program.display()
    )]
    NeverReady { program: PathBuf, tries: u32, last: String },
    #[error(
        "The worker speaks protocol {theirs}, this program {ours}; install both from one build"
    )]
    Version { theirs: u16, ours: u16 },
    #[error(
        "The kernel can't hold the worker ({missing}), so no input is read; \
         `--allow-unsandboxed` takes the risk"
    )]
    Unheld { missing: String },
    #[error("The control socket to the worker failed")]
    Wire(#[source] WireError),
    #[error("The worker broke the protocol: {what}")]
    Protocol { what: &'static str },
    #[error("The worker died{}: {how}", stage_words(*stage))]
    Crashed { stage: Option<Stage>, how: String },
    #[error("The worker gave no sign of life for {seconds:.1} s{}", stage_words(*stage))]
    Hung { stage: Option<Stage>, seconds: f32 },
    /// The job killed the worker twice.
    #[error("Job {job} killed the worker twice and is not tried again; the last time: {last}")]
    Quarantined { job: JobId, last: String },
    #[error("Stopped before it was done; nothing was written")]
    Cancelled,
    /// What the worker says.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// A model or a source.
    #[error("{}", .0)]
    Vault(#[from] mien_vault::Error),

    #[error("`{name}` can't be read")]
    Read { name: String, source: Errno },
    #[error("`{name}` is {what}; give a picture or a clip, or `-` for standard input")]
    NoPicture { name: String, what: &'static str },
    #[error("`{name}` has more than {} MiB", most >> 20)]
    TooLarge { name: String, most: u64 },
    #[error("`{name}` can't be written")]
    Write { name: String, source: Errno },
    #[error("The worker says it wrote {said} bytes to `{name}`, but {found} are there")]
    Short { name: String, said: u64, found: u64 },
    #[error(
        "The disk of `{name}` has {free} MiB free and {wanted} MiB are needed; \
         make room and run the same command again"
    )]
    Full { name: String, free: u64, wanted: u64 },
    #[error("Another mien writes `{name}` now; wait for it, or name another output")]
    Busy { name: String },
    #[error("Can't hold {what} in memory")]
    Memory { what: &'static str, source: Errno },
    #[error("The database can't {what}")]
    Store { what: &'static str, source: rusqlite::Error },
    /// A transaction that several waited for.
    #[error("The database could not keep what was written: {detail}")]
    StoreCommit { detail: String },
    #[error("Another mien process holds the database; let that one end, then try again")]
    StoreBusy,
    #[error("`{}` can't be used: {why}", path.display())]
    StoreForeign { path: PathBuf, why: String },
    #[error("Can't {action} `{}`", path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("The thread that writes the database can't run")]
    StoreThread { source: std::io::Error },
    /// A broker whose address or keys can't be used.
    #[error("The broker `{url}` can't be used: it {why}")]
    Broker { url: String, why: String },
    #[error("The connection to `{url}` is gone: {why}")]
    BrokerGone { url: String, why: String },
    #[error("The thread `{name}` can't run")]
    Thread { name: &'static str, source: std::io::Error },
    #[error("{0}")]
    Entry(#[from] BadEntry),
    #[error("The record does not hold: {}{}", first, more_words(*faults))]
    AuditBroken { first: Fault, faults: usize },
    #[error(
        "`{id}` is gone from the database, but {found} pieces of it still stand in the file \
         `{}`; let other mien processes end and run `mien check`",
        path.display()
    )]
    NotErased { id: IdentityId, found: usize, path: PathBuf },

    /// A configuration file that can't be used.
    #[error("{0}")]
    Config(crate::config::Faults),
    #[error("Another `mien run` holds the home `{}`; end that one first", home.display())]
    Runs { home: PathBuf },
    #[error("Can't listen on `{place}`")]
    Listen { place: String, source: std::io::Error },
    #[error(
        "No daemon answers at `{}`; start `mien run --config FILE`, or name its socket with --socket",
        socket.display()
    )]
    NotRunning { socket: PathBuf },
    #[error("The daemon at `{}` can't be asked", socket.display())]
    Asked { socket: PathBuf, source: std::io::Error },

    /// Nothing is known by that name just now.
    #[error("No device is there as `{device}`; `mien camera list` shows what there is")]
    CameraAway { device: String },
    #[error("The device `{device}` can't be opened")]
    CameraShut { device: String, source: Errno },

    /// A key or certificate that can't sign.
    #[error("The signing key can't be used: {detail}")]
    SigningKey { detail: String },
    /// A file whose content credentials can't be written or read.
    #[error("The content credentials can't be handled: {detail}")]
    Credentials { detail: String },
}

fn more_words(faults: usize) -> String {
    if faults > 1 { format!(", and {} more", faults - 1) } else { String::new() }
}

/// Names what was tried, for `map_err`.
pub(crate) fn sql(what: &'static str) -> impl Fn(rusqlite::Error) -> Error {
    move |source| match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            Error::StoreBusy
        }
        _ => Error::Store { what, source },
    }
}

/// Names what was tried with a file, for `map_err`.
pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}

fn stage_words(stage: Option<Stage>) -> String {
    stage.map_or_else(String::new, |stage| format!(" in stage {stage:?}"))
}

impl Error {
    /// Why a package was refused, when that is what happened.
    #[must_use]
    pub const fn refusal(&self) -> Option<Reason> {
        match self {
            Self::Vault(error) => error.reason(),
            _ => None,
        }
    }

    /// The kind, decided once.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Spawn { .. }
            | Self::NeverReady { .. }
            | Self::Version { .. }
            | Self::Unheld { .. }
            | Self::Wire(_)
            | Self::Protocol { .. }
            | Self::Crashed { .. } => ErrorKind::Worker,
            Self::Hung { .. } => ErrorKind::Late,
            Self::BrokerGone { .. } => ErrorKind::Unreachable,
            Self::Quarantined { .. } => ErrorKind::Quarantined,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Failed(failure) => failure.kind,
            Self::Vault(error) => error.kind(),
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Short { .. }
            | Self::Memory { .. }
            | Self::Full { .. }
            | Self::Busy { .. } => ErrorKind::Io,
            Self::NoPicture { .. } => ErrorKind::BadInput,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Store { .. }
            | Self::StoreCommit { .. }
            | Self::StoreBusy
            | Self::StoreForeign { .. }
            | Self::File { .. } => ErrorKind::Io,
            Self::StoreThread { .. }
            | Self::Thread { .. }
            | Self::Entry(_)
            | Self::AuditBroken { .. }
            | Self::NotErased { .. } => ErrorKind::Internal,
            Self::SigningKey { .. } | Self::Broker { .. } | Self::Config(_) | Self::Runs { .. } => {
                ErrorKind::Usage
            }
            Self::Listen { .. } => ErrorKind::Io,
            Self::CameraShut { .. } => ErrorKind::Io,
            Self::NotRunning { .. } | Self::Asked { .. } | Self::CameraAway { .. } => {
                ErrorKind::Unreachable
            }
            Self::Credentials { .. } => ErrorKind::BadInput,
        }
    }

    /// True when another worker may do better.
    #[must_use]
    pub(crate) fn blames_worker(&self) -> bool {
        matches!(
            self,
            Self::Crashed { .. } | Self::Hung { .. } | Self::Wire(_) | Self::Protocol { .. }
        )
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
