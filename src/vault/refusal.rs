//! Why a package, a key or a model is refused: one stable code each.

use serde::{Deserialize, Serialize};

/// The reason of a refusal, in the order in which things are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    // Bounds.
    NotAPackage,
    FormatUnknown,
    HeaderMalformed,
    TooLarge,
    Truncated,
    TrailingBytes,
    EnvelopeMalformed,
    WrapsMalformed,
    // Signature.
    PayloadType,
    SignatureMissing,
    SignatureInvalid,
    KeyUnknown,
    KeyRevoked,
    KeyExpired,
    KeyRole,
    // Manifest.
    ManifestMalformed,
    ManifestExpired,
    ApiVersion,
    ProgramTooOld,
    SizeMismatch,
    LicenceForbids,
    // Rollback.
    RolledBack,
    // Device.
    WrongDevice,
    WrapInvalid,
    // Payload.
    ChunkInvalid,
    DigestMismatch,
    // Acceptance.
    BoundsBroken,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::NotAPackage,
        Self::FormatUnknown,
        Self::HeaderMalformed,
        Self::TooLarge,
        Self::Truncated,
        Self::TrailingBytes,
        Self::EnvelopeMalformed,
        Self::WrapsMalformed,
        Self::PayloadType,
        Self::SignatureMissing,
        Self::SignatureInvalid,
        Self::KeyUnknown,
        Self::KeyRevoked,
        Self::KeyExpired,
        Self::KeyRole,
        Self::ManifestMalformed,
        Self::ManifestExpired,
        Self::ApiVersion,
        Self::ProgramTooOld,
        Self::SizeMismatch,
        Self::LicenceForbids,
        Self::RolledBack,
        Self::WrongDevice,
        Self::WrapInvalid,
        Self::ChunkInvalid,
        Self::DigestMismatch,
        Self::BoundsBroken,
    ];

    /// The code in messages, in JSON and in the audit log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotAPackage => "NotAPackage",
            Self::FormatUnknown => "FormatUnknown",
            Self::HeaderMalformed => "HeaderMalformed",
            Self::TooLarge => "TooLarge",
            Self::Truncated => "Truncated",
            Self::TrailingBytes => "TrailingBytes",
            Self::EnvelopeMalformed => "EnvelopeMalformed",
            Self::WrapsMalformed => "WrapsMalformed",
            Self::PayloadType => "PayloadType",
            Self::SignatureMissing => "SignatureMissing",
            Self::SignatureInvalid => "SignatureInvalid",
            Self::KeyUnknown => "KeyUnknown",
            Self::KeyRevoked => "KeyRevoked",
            Self::KeyExpired => "KeyExpired",
            Self::KeyRole => "KeyRole",
            Self::ManifestMalformed => "ManifestMalformed",
            Self::ManifestExpired => "ManifestExpired",
            Self::ApiVersion => "ApiVersion",
            Self::ProgramTooOld => "ProgramTooOld",
            Self::SizeMismatch => "SizeMismatch",
            Self::LicenceForbids => "LicenceForbids",
            Self::RolledBack => "RolledBack",
            Self::WrongDevice => "WrongDevice",
            Self::WrapInvalid => "WrapInvalid",
            Self::ChunkInvalid => "ChunkInvalid",
            Self::DigestMismatch => "DigestMismatch",
            Self::BoundsBroken => "BoundsBroken",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}
