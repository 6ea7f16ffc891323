//! Why a job was refused or ended: the contract's codes, and which of them another try can cure.

use mien_base::error::ErrorKind;
use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($name:ident $retry:literal,)*) => {
        /// A reason code of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Reason { $($name,)* }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its word in messages and in the database.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// True when another try of the same job may do better.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $(Self::$name => $retry,)* }
            }
        }
    };
}

reasons! {
    InvalidTopic false,
    InvalidJson false,
    InvalidRequest false,
    TooLarge false,
    UnsupportedSchema false,
    UnsupportedKind false,
    Unauthorized false,
    SignatureInvalid false,
    Replayed false,
    Retained false,
    QuotaExceeded true,
    QueueFull true,
    VersionMismatch false,
    InvalidStateTransition false,
    TerminalStateReached false,
    UnknownJob false,
    Expired false,
    TimedOut true,
    Stalled true,
    Superseded false,
    Fenced false,
    Cancelled false,
    ConsentMissing false,
    ConsentExpired false,
    ConsentRevoked false,
    SourceUnknown false,
    NsfwBlocked false,
    ModelSignatureInvalid false,
    ModelDecryptFailed false,
    ModelIncompatible false,
    EngineFingerprint false,
    EngineBuildFailed true,
    CanaryFailed false,
    NoCamera true,
    CameraLost true,
    InputUnreadable false,
    OutputUnwritable true,
    InsufficientMemory true,
    ThermalLimited true,
    DiskFull true,
    Interrupted true,
    Unavailable false,
    Internal true,
}

impl Reason {
    /// The code of a word.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }

    /// What an error inside the device is to the fleet.
    #[must_use]
    pub const fn of_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Usage => Self::InvalidRequest,
            ErrorKind::Io => Self::OutputUnwritable,
            ErrorKind::BadInput | ErrorKind::NotMarked => Self::InputUnreadable,
            ErrorKind::TooLarge => Self::TooLarge,
            ErrorKind::Model => Self::ModelIncompatible,
            ErrorKind::NoConsent => Self::ConsentMissing,
            ErrorKind::ContentRefused => Self::NsfwBlocked,
            ErrorKind::Late => Self::Stalled,
            ErrorKind::Worker => Self::Interrupted,
            ErrorKind::Cancelled => Self::Cancelled,
            // A job that killed its worker twice is not tried again: nor is what we don't know.
            _ => Self::Unavailable,
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A refusal: its code, where in the document when that can be said, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub reason: Reason,
    /// JSON pointer into the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// One line for people.
    pub detail: String,
}

impl Refusal {
    /// A refusal of the whole document.
    #[must_use]
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, at: None, detail: detail.into() }
    }

    /// A refusal of one value of the document.
    #[must_use]
    pub fn at(reason: Reason, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { reason, at: Some(pointer.into()), detail: detail.into() }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.at {
            Some(at) => write!(f, "{} at {at}: {}", self.reason, self.detail),
            None => write!(f, "{}: {}", self.reason, self.detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_word() {
        for reason in Reason::ALL {
            assert_eq!(Reason::of(reason.name()), Some(*reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
        assert_eq!(Reason::of("Nothing"), None);
    }
}
