//! Whose signature counts for a document.

use mien_base::clock::Wall;
use mien_vault::Home;
use mien_vault::refusal::Reason as VaultReason;
use mien_vault::sign::Envelope;
use mien_vault::trust::{KeyRole, TrustStore};

use crate::contract::{Reason, Refusal};

/// Knows the keys that are trusted now.
pub trait Trust: std::fmt::Debug + Send + Sync {
    /// Name of the key by whose signature a document holds for a role.
    ///
    /// # Errors
    /// `SignatureInvalid`, or `Unauthorized` for a key that may not sign this.
    fn signer(&self, envelope: &Envelope, role: KeyRole, now: Wall) -> Result<String, Refusal>;
}

/// The trust store of a home, read anew each time: a key that is revoked now counts no more.
#[derive(Debug)]
pub struct HomeTrust(pub Home);

impl Trust for HomeTrust {
    fn signer(&self, envelope: &Envelope, role: KeyRole, now: Wall) -> Result<String, Refusal> {
        let internal = |error: mien_vault::Error| Refusal::new(Reason::Internal, error.to_string());
        let trust = TrustStore::open(&self.0).map_err(internal)?;
        let keys = trust.verify(envelope, role, now).map_err(|error| {
            let reason = match error.reason() {
                Some(VaultReason::KeyRole | VaultReason::KeyRevoked | VaultReason::KeyExpired) => {
                    Reason::Unauthorized
                }
                _ => Reason::SignatureInvalid,
            };
            Refusal::new(reason, error.to_string())
        })?;
        let first = keys.first().ok_or_else(|| {
            Refusal::new(Reason::SignatureInvalid, "nobody who is trusted signed it")
        })?;
        Ok(first.to_string())
    }
}
