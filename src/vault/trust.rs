//! Whom to trust, for what, until when: the keys that packages, consent and commands are signed by.
//!
//! ```text
//! added ──▶ holds ──▶ expired        A revoked key never holds again, for nothing it ever signed:
//!             └─────▶ revoked        when a signature was made can't be proven.
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use mien_base::clock::Wall;
use mien_base::limits;
use serde::{Deserialize, Serialize};

use crate::errors::{Error, Result};
use crate::files;
use crate::home::Home;
use crate::refusal::Reason;
use crate::sign::{Envelope, KeyId, PublicKey};

/// What a key may sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyRole {
    /// Commands to a device.
    Operate,
    /// Model packages.
    Models,
    /// Consent records.
    Consent,
    /// Firmware.
    Update,
}

impl KeyRole {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Operate, Self::Models, Self::Consent, Self::Update];

    /// Its name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operate => "operate",
            Self::Models => "models",
            Self::Consent => "consent",
            Self::Update => "update",
        }
    }
}

/// A key that is or was trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedKey {
    pub public: PublicKey,
    /// Whose it is, for people.
    pub name: String,
    pub roles: BTreeSet<KeyRole>,
    pub added: Wall,
    /// The first second in which it no longer holds.
    #[serde(default)]
    pub expires: Option<Wall>,
    #[serde(default)]
    pub revoked: Option<Wall>,
}

impl TrustedKey {
    /// Why it does not hold for a role now; `None` when it does.
    #[must_use]
    pub fn fault(&self, role: KeyRole, now: Wall) -> Option<Reason> {
        if self.revoked.is_some() {
            Some(Reason::KeyRevoked)
        } else if self.expires.is_some_and(|at| at <= now) {
            Some(Reason::KeyExpired)
        } else if !self.roles.contains(&role) {
            Some(Reason::KeyRole)
        } else {
            None
        }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    keys: Vec<TrustedKey>,
    /// How many keys must have signed; one where nothing is said.
    #[serde(default)]
    threshold: BTreeMap<KeyRole, u8>,
}

/// The trusted keys of a home.
#[derive(Debug, Clone, Default)]
pub struct TrustStore {
    path: Option<PathBuf>,
    stored: Stored,
}

impl TrustStore {
    /// Trusts nobody, and is kept nowhere.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// The trust store of a home; trusts nobody before the first key is added.
    ///
    /// # Errors
    /// `Exposed` when others could have changed it; `Io`, `TooLarge`, `Damaged`.
    pub fn open(home: &Home) -> Result<Self> {
        let path = home.keys().join("trust.json");
        let stored = if path.exists() {
            let bytes = files::read_own(&path, limits::TEXT_FILE, files::Own::Written)?;
            let damaged = |why: String| Error::Damaged { path: path.clone(), why };
            let stored: Stored =
                serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
            if stored.keys.len() > limits::TRUSTED_KEYS {
                return Err(damaged(format!("more than {} keys", limits::TRUSTED_KEYS)));
            }
            stored
        } else {
            Stored::default()
        };
        Ok(Self { path: Some(path), stored })
    }

    /// Every key, trusted or no longer.
    #[must_use]
    pub fn keys(&self) -> &[TrustedKey] {
        &self.stored.keys
    }

    /// The key with this id.
    #[must_use]
    pub fn key(&self, id: KeyId) -> Option<&TrustedKey> {
        self.stored.keys.iter().find(|key| key.public.id() == id)
    }

    /// How many keys must have signed for a role.
    #[must_use]
    pub fn threshold(&self, role: KeyRole) -> u8 {
        self.stored.threshold.get(&role).copied().unwrap_or(1).max(1)
    }

    /// Trusts a key; one that is known gets the new name, roles and expiry.
    ///
    /// # Errors
    /// `Key` for one that was revoked or too many; `Io`.
    pub fn add(&mut self, key: TrustedKey) -> Result<()> {
        let id = key.public.id();
        let full = self.stored.keys.len() >= limits::TRUSTED_KEYS;
        match self.stored.keys.iter_mut().find(|known| known.public == key.public) {
            Some(known) if known.revoked.is_some() => {
                let why = "was revoked; a revoked key is never trusted again".to_owned();
                return Err(Error::Key { key: id.to_string(), why });
            }
            Some(known) => *known = key,
            None if full => {
                let why = format!("is one too many: at most {}", limits::TRUSTED_KEYS);
                return Err(Error::Key { key: id.to_string(), why });
            }
            None => self.stored.keys.push(key),
        }
        self.save()
    }

    /// Takes trust back from a key; an earlier revocation stands.
    ///
    /// # Errors
    /// `Key` when it is not known; `Io`.
    pub fn revoke(&mut self, id: KeyId, at: Wall) -> Result<()> {
        let unknown = || Error::Key { key: id.to_string(), why: "is not known here".to_owned() };
        let known = self.stored.keys.iter_mut().find(|key| key.public.id() == id);
        known.ok_or_else(unknown)?.revoked.get_or_insert(at);
        self.save()
    }

    /// Lets a key end at a time, when it would not end earlier.
    ///
    /// # Errors
    /// `Key` when it is not known; `Io`.
    pub fn expire(&mut self, id: KeyId, at: Wall) -> Result<()> {
        let unknown = || Error::Key { key: id.to_string(), why: "is not known here".to_owned() };
        let known = self.stored.keys.iter_mut().find(|key| key.public.id() == id);
        let known = known.ok_or_else(unknown)?;
        known.expires = Some(known.expires.map_or(at, |old| old.min(at)));
        self.save()
    }

    /// Asks for this many signatures for a role.
    ///
    /// # Errors
    /// `Key` for none, or more than an envelope holds; `Io`.
    pub fn set_threshold(&mut self, role: KeyRole, count: u8) -> Result<()> {
        if count == 0 || usize::from(count) > limits::SIGNATURES {
            let why = format!("needs 1 to {} signatures", limits::SIGNATURES);
            return Err(Error::Key { key: role.name().to_owned(), why });
        }
        self.stored.threshold.insert(role, count);
        self.save()
    }

    /// The keys whose right signatures make an envelope hold for a role now.
    ///
    /// # Errors
    /// `Refused`: `SignatureMissing`, `SignatureInvalid`, `KeyUnknown`, `KeyRevoked`,
    /// `KeyExpired`, `KeyRole`.
    pub fn verify(&self, envelope: &Envelope, role: KeyRole, now: Wall) -> Result<Vec<KeyId>> {
        let mut holds = Vec::new();
        let mut fault = None;
        for id in envelope.signers() {
            let why = match self.key(id) {
                None => Reason::KeyUnknown,
                // One wrong signature of a known key means that the document was changed.
                Some(key) if envelope.signed_by(&key.public) != Some(true) => {
                    let why = format!("the signature of `{}` ({id}) is wrong", key.name);
                    return Err(Error::refused("The document", Reason::SignatureInvalid, &why));
                }
                Some(key) => match key.fault(role, now) {
                    None => {
                        holds.push(id);
                        continue;
                    }
                    Some(reason) => reason,
                },
            };
            // Of several faults the one that says most: revoked before expired before unknown.
            let weight = |reason| match reason {
                Reason::KeyRevoked => 3,
                Reason::KeyExpired => 2,
                Reason::KeyRole => 1,
                _ => 0,
            };
            if fault.is_none_or(|(known, _)| weight(why) > weight(known)) {
                fault = Some((why, id));
            }
        }
        let needed = self.threshold(role);
        if holds.len() >= usize::from(needed) {
            return Ok(holds);
        }
        let count = holds.len();
        let (reason, why) = match fault {
            None => (Reason::SignatureMissing, format!("{count} of {needed} signatures are there")),
            Some((reason, id)) => {
                let told = match reason {
                    Reason::KeyRevoked => "was revoked",
                    Reason::KeyExpired => "has expired",
                    Reason::KeyRole => "may not sign this kind of document",
                    _ => "is not trusted here; `mien key trust` takes a key in",
                };
                (reason, format!("the key {id} {told} ({count} of {needed} signatures hold)"))
            }
        };
        Err(Error::refused("The document", reason, &why))
    }

    fn save(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if let Some(folder) = path.parent() {
            files::private_dir(folder)?;
        }
        let mut text = serde_json::to_vec_pretty(&self.stored).expect("keys and names are JSON");
        text.push(b'\n');
        files::replace(path, &text)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::files::tests::Scratch;
    use crate::sign::KeyPair;
    use crate::sign::tests::key;

    pub(crate) const NOW: Wall = Wall(1_800_000_000);

    pub(crate) fn trusted(key: &KeyPair, roles: &[KeyRole]) -> TrustedKey {
        TrustedKey {
            public: key.public(),
            name: "someone".to_owned(),
            roles: roles.iter().copied().collect(),
            added: Wall(0),
            expires: None,
            revoked: None,
        }
    }

    fn signed(keys: &[&KeyPair]) -> Envelope {
        let mut envelope = Envelope::new("t", b"d".to_vec());
        keys.iter().for_each(|key| envelope.sign(key));
        envelope
    }

    #[test]
    fn each_way_in_which_a_key_does_not_hold_has_its_code() {
        let (a, b) = (key(1), key(2));
        let mut store = TrustStore::empty();
        store.add(trusted(&a, &[KeyRole::Models])).unwrap();
        let refused = |store: &TrustStore, keys: &[&KeyPair], role| {
            store.verify(&signed(keys), role, NOW).unwrap_err().reason().unwrap()
        };
        assert_eq!(store.verify(&signed(&[&a]), KeyRole::Models, NOW).unwrap(), [a.id()]);
        assert_eq!(refused(&store, &[], KeyRole::Models), Reason::SignatureMissing);
        assert_eq!(refused(&store, &[&b], KeyRole::Models), Reason::KeyUnknown);
        assert_eq!(refused(&store, &[&a], KeyRole::Consent), Reason::KeyRole);
        store.expire(a.id(), NOW).unwrap();
        assert_eq!(refused(&store, &[&a, &b], KeyRole::Models), Reason::KeyExpired);
        store.revoke(a.id(), Wall(5)).unwrap();
        assert_eq!(refused(&store, &[&b, &a], KeyRole::Models), Reason::KeyRevoked);
        assert!(store.add(trusted(&a, &[KeyRole::Models])).is_err());
    }

    #[test]
    fn a_threshold_counts_distinct_keys_that_hold() {
        let (a, b) = (key(1), key(2));
        let mut store = TrustStore::empty();
        store.add(trusted(&a, &[KeyRole::Models])).unwrap();
        store.add(trusted(&b, &[KeyRole::Models])).unwrap();
        store.set_threshold(KeyRole::Models, 2).unwrap();
        assert!(store.verify(&signed(&[&a, &b]), KeyRole::Models, NOW).is_ok());
        let short = store.verify(&signed(&[&a]), KeyRole::Models, NOW).unwrap_err();
        assert_eq!(short.reason(), Some(Reason::SignatureMissing));
        assert!(store.set_threshold(KeyRole::Models, 0).is_err());
    }

    #[test]
    fn what_was_stored_is_there_again_and_a_damaged_file_is_named() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        let a = key(1);
        let mut store = TrustStore::open(&home).unwrap();
        store.add(trusted(&a, &[KeyRole::Models, KeyRole::Consent])).unwrap();
        store.revoke(a.id(), Wall(7)).unwrap();
        let again = TrustStore::open(&home).unwrap();
        assert_eq!(again.keys(), store.keys());
        std::fs::write(home.keys().join("trust.json"), b"{").unwrap();
        assert!(TrustStore::open(&home).unwrap_err().to_string().contains("trust.json"));
    }
}
