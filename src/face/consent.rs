//! The proof that a person agreed and that the agreement holds now. Only `check` makes one.
//!
//! ```compile_fail,E0451
//! use mien_base::{clock::Wall, consent::Scope, id::IdentityId};
//! use mien_face::consent::Consent;
//! fn forge(identity: IdentityId, scope: Scope, expires: Wall) -> Consent {
//!     Consent { identity, scope, expires }
//! }
//! ```

use mien_base::clock::{Clock, Wall};
use mien_base::consent::{ConsentRecord, Scope};
use mien_base::id::IdentityId;

use crate::{Error, Result};

/// Holds for one source and one scope, at the time it was checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Consent {
    identity: IdentityId,
    scope: Scope,
    expires: Wall,
}

impl Consent {
    /// Whose face may be used.
    #[must_use]
    pub const fn identity(&self) -> &IdentityId {
        &self.identity
    }

    /// What for.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// The first second at which it no longer holds.
    #[must_use]
    pub const fn expires(&self) -> Wall {
        self.expires
    }
}

/// Checks a record against a scope and the wall clock.
///
/// # Errors
/// `NoConsent` when it is out of scope, not yet granted, expired, or taken back.
pub fn check(record: &ConsentRecord, scope: Scope, clock: &dyn Clock) -> Result<Consent> {
    let now = clock.wall();
    let detail = if !record.scope.contains(&scope) {
        "the record does not cover it".to_owned()
    } else if let Some(at) = record.revoked {
        format!("the record was taken back at {at}")
    } else if now < record.granted {
        format!("the record begins at {}", record.granted)
    } else if now >= record.expires {
        format!("the record ended at {}", record.expires)
    } else {
        let identity = record.identity.clone();
        return Ok(Consent { identity, scope, expires: record.expires });
    };
    Err(Error::NoConsent { identity: record.identity.clone(), scope, detail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::clock::ManualClock;

    fn record() -> ConsentRecord {
        ConsentRecord {
            identity: "ada".parse().unwrap(),
            subject: "p-1".to_owned(),
            purpose: "test".to_owned(),
            scope: vec![Scope::Swap],
            granted: Wall(100),
            expires: Wall(200),
            revoked: None,
            evidence: None,
            operator: "op".to_owned(),
        }
    }

    #[test]
    fn consent_holds_from_grant_to_the_second_before_expiry() {
        for (now, holds) in [(99, false), (100, true), (199, true), (200, false)] {
            let clock = ManualClock::at(Wall(now));
            assert_eq!(check(&record(), Scope::Swap, &clock).is_ok(), holds, "{now}");
        }
    }

    #[test]
    fn a_revoked_or_narrower_record_is_no_consent() {
        let clock = ManualClock::at(Wall(150));
        assert!(check(&record(), Scope::Reveal, &clock).is_err());
        // Taken back at any time, even one that lies ahead by a wrong clock.
        for at in [120, 180] {
            let taken = ConsentRecord { revoked: Some(Wall(at)), ..record() };
            assert!(check(&taken, Scope::Swap, &clock).is_err());
        }
    }
}
