//! The kind of an error, decided once: exit code, wire reason, and whether trying again can help.

use serde::{Deserialize, Serialize};

/// What went wrong, as a caller sees it. Each crate's `Error` maps to one of these by `kind()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument, a recipe or a configuration that can't be.
    Usage,
    /// A file that can't be read, written, found or replaced.
    Io,
    /// Input that is malformed, truncated, or of an unsupported format.
    BadInput,
    /// Input beyond a bound of `limits`.
    TooLarge,
    /// A model that is missing, corrupt, or breaks its contract.
    Model,
    /// No consent record for a swap, or one that is expired, revoked or out of scope.
    NoConsent,
    /// The content gate refused the picture.
    ContentRefused,
    /// A mark that is missing or damaged.
    NotMarked,
    /// A registry or peer that can't be reached.
    Unreachable,
    /// The deadline passed.
    Late,
    /// The worker died or broke the protocol.
    Worker,
    /// The job killed the worker twice and is not tried again.
    Quarantined,
    /// The user or the operator stopped it.
    Cancelled,
    /// An invariant of ours did not hold.
    Internal,
}

impl ErrorKind {
    /// Exit code of the program. 0 is success, 2 is what clap uses for usage.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Usage => 2,
            Self::Io => 3,
            Self::BadInput => 4,
            Self::TooLarge => 5,
            Self::Model => 6,
            Self::NoConsent => 7,
            Self::ContentRefused => 8,
            Self::NotMarked => 9,
            Self::Unreachable => 10,
            Self::Late => 11,
            Self::Worker => 12,
            Self::Quarantined => 13,
            Self::Cancelled => 130,
        }
    }

    /// Stable name on the wire, in reports and in JSON output.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Internal => "Internal",
            Self::Usage => "Usage",
            Self::Io => "Io",
            Self::BadInput => "BadInput",
            Self::TooLarge => "TooLarge",
            Self::Model => "Model",
            Self::NoConsent => "NoConsent",
            Self::ContentRefused => "NsfwBlocked",
            Self::NotMarked => "NotMarked",
            Self::Unreachable => "Unreachable",
            Self::Late => "Late",
            Self::Worker => "WorkerCrashed",
            Self::Quarantined => "Quarantined",
            Self::Cancelled => "Cancelled",
        }
    }

    /// True when the same request may succeed on a second try.
    #[must_use]
    pub const fn retryable(self) -> bool {
        matches!(self, Self::Late | Self::Worker | Self::Unreachable)
    }
}

/// An error and what caused it, on one line. What repeats its source's words says them once.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = error.source();
    }
    text
}
