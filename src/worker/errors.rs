//! What can go wrong in the worker.

use std::error::Error as _;

use mien_base::error::ErrorKind;
use mien_base::report::Failure;
use mien_base::wire::fds::WireError;
use rustix::io::Errno;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument of `mien worker`, which only the root program gives.
    #[error("`mien worker` does not know the argument `{argument}`; it is started by mien itself")]
    Argument { argument: String },
    /// A layer of the sandbox that always can be had failed.
    #[error("The sandbox can't be built: {what}")]
    Sandbox { what: &'static str, source: Errno },
    /// A list of system calls does not read.
    #[error("The list of system calls `{list}` is broken: {detail}")]
    Rules { list: &'static str, detail: String },
    /// No input is read without a sandbox.
    #[error(
        "The kernel can't hold the worker (no seccomp), so it reads no input; \
         under emulation, `--allow-unsandboxed` takes the risk"
    )]
    Unheld,
    /// The control socket failed.
    #[error("The control socket failed")]
    Wire(#[source] WireError),
    /// A thread can't be started.
    #[error("The {name} thread can't be started")]
    Thread { name: &'static str, source: std::io::Error },
    /// The root program breaks the protocol.
    #[error("A request breaks the protocol: {what}")]
    Protocol { what: &'static str },
    /// A descriptor that can't be read or written.
    #[error("The {what} can't be {verb}")]
    File { what: &'static str, verb: &'static str, source: Errno },
    /// A file beyond its bound.
    #[error("The {what} has {found} bytes, more than {most}")]
    TooLarge { what: &'static str, found: u64, most: u64 },
    /// A file that ends before the size that was promised.
    #[error("The {what} has {found} bytes where {expected} were promised")]
    Size { what: &'static str, found: u64, expected: u64 },
    /// A descriptor of another kind.
    #[error("The {what} is no regular file")]
    NoFile { what: &'static str },
    /// A file can't be decoded or encoded.
    #[error("{0}")]
    Pixels(#[source] mien_pixels::errors::Error),
    /// A clip can't be read or written.
    #[error("{0}")]
    Media(#[source] mien_media::errors::Error),
    /// What an interrupted run left is not what a worker wrote.
    #[error("The segments of an interrupted run can't be used: {detail}")]
    Segments { detail: &'static str },
    /// A clip, or a range of it, without a frame.
    #[error("The clip has no frame{}", if *range { " in the given range" } else { "" })]
    NoFrame { range: bool },
    /// A stage failed or refuses.
    #[error("{0}")]
    Face(#[source] mien_face::Error),
    /// The backend failed outside a stage.
    #[error("{0}")]
    Engine(#[source] mien_engine::Error),
    /// A camera that can't be used, or is no longer there.
    #[error("The camera can't be used: {detail}")]
    Camera { detail: String, gone: bool },
    /// Nobody looked at a live pipeline's frames for too long.
    #[error("Nobody has looked at frames for {seconds} s; nothing leaves")]
    Blind { seconds: u64 },
    /// The root program took the job back.
    #[error("The job was cancelled")]
    Cancelled,
    /// A job panicked.
    #[error("The job met a fault of ours: {message}")]
    Panic { message: String },
}

impl Error {
    /// The kind, decided once.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Argument { .. } => ErrorKind::Usage,
            Self::Sandbox { .. } | Self::Unheld | Self::Wire(_) | Self::Protocol { .. } => {
                ErrorKind::Worker
            }
            Self::Rules { .. } | Self::Thread { .. } | Self::Panic { .. } => ErrorKind::Internal,
            Self::Camera { gone: true, .. } => ErrorKind::Unreachable,
            Self::Camera { .. } => ErrorKind::BadInput,
            Self::Blind { .. } => ErrorKind::Late,
            Self::File { .. } | Self::Size { .. } | Self::NoFile { .. } => ErrorKind::Io,
            Self::Segments { .. } | Self::NoFrame { .. } => ErrorKind::BadInput,
            Self::Pixels(error) => error.kind(),
            Self::Media(error) => error.kind(),
            Self::Face(error) => error.kind(),
            Self::Engine(error) => error.kind(),
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }

    /// As it goes over the wire: the whole chain in one line.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let mut message = self.to_string();
        let mut next = match self {
            // These say what their source says.
            Self::Pixels(error) => error.source(),
            Self::Media(error) => error.source(),
            Self::Face(error) => error.source(),
            Self::Engine(error) => error.source(),
            other => other.source(),
        };
        while let Some(source) = next {
            message.push_str(": ");
            message.push_str(&source.to_string());
            next = source.source();
        }
        Failure { kind: self.kind(), message }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
