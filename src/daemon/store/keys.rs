//! The keys that the store works with: of the device, of the operator, and of those who are trusted.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use mien_base::clock::Wall;
use mien_vault::Home;
use mien_vault::keyslot::{self, DeviceKey, Keeper};
use mien_vault::random::Random;
use mien_vault::sign::{Envelope, KeyId, KeyPair, PublicKey};
use mien_vault::text;
use mien_vault::trust::{KeyRole, TrustStore, TrustedKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::private;
use crate::errors::{Error, Result, file};

/// Public keys whose heads this machine's record may carry, one a line, the oldest first.
const HEADS: &str = "audit.pub";
/// Seed of the key that signs what is entered on this machine.
const OPERATOR: &str = "consent.seed";

/// Who signs, who is trusted, and what wraps the sources' keys.
pub trait Keys: std::fmt::Debug + Send + Sync {
    /// Signs heads and exports of the record.
    fn audit(&self) -> &KeyPair;

    /// True for a key whose heads count: this one, and those before it.
    fn trusts_head(&self, key: &PublicKey) -> bool;

    /// Signs what is entered on this machine: records of consent and what takes them back.
    fn consent(&self) -> &KeyPair;

    /// The key of role consent that signed the envelope and is trusted now, if one did.
    fn consent_signer(&self, envelope: &Envelope, now: Wall) -> Option<KeyId>;

    /// Wraps the sources' keys.
    fn wrapping(&self) -> &[u8; 32];
}

/// The keys of a home: heads are signed and sources wrapped by what the device's key gives; consent
/// that is entered here is signed by a local key of the operator, which is made on first use and
/// trusted until it is revoked.
#[derive(Debug)]
pub struct HomeKeys {
    audit: KeyPair,
    heads: Vec<PublicKey>,
    consent: KeyPair,
    trust: TrustStore,
    wrapping: Wrapping,
    made: Option<KeyId>,
    keeper: Keeper,
}

pub(super) struct Wrapping(Zeroizing<[u8; 32]>);

impl Wrapping {
    pub(super) fn key(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Wrapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wrapping")
    }
}

/// What the device's key gives for the sources.
pub(super) fn wrapping(device: &DeviceKey) -> Wrapping {
    let mut hasher = Sha256::new();
    hasher.update(b"mien key of the sources, version 1\0");
    hasher.update(*device.signer().seed());
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(&hasher.finalize());
    Wrapping(key)
}

impl HomeKeys {
    /// The keys of a home; those that are not there are made.
    ///
    /// # Errors
    /// `File`; `Vault` when there is no randomness or a file holds no key.
    pub fn open(home: &Home, random: &mut dyn Random, now: Wall) -> Result<Self> {
        let folder = home.keys();
        private(&folder)?;
        let device = keyslot::of_machine(home, random)?;
        let audit = device.signer();
        let heads = heads(&folder, audit.public())?;
        let (seed, new) = seed(&folder.join(OPERATOR), random)?;
        let consent = KeyPair::from_seed(&seed);
        let mut trust = TrustStore::open(home)?;
        if trust.key(consent.id()).is_none() {
            trust.add(TrustedKey {
                public: consent.public(),
                name: "operator of this machine".to_owned(),
                roles: [KeyRole::Consent].into(),
                added: now,
                expires: None,
                revoked: None,
            })?;
        }
        let made = new.then(|| consent.id());
        let (wrapping, keeper) = (wrapping(&device), device.keeper());
        Ok(Self { audit, heads, consent, trust, wrapping, made, keeper })
    }

    /// The operator's key, when it was made just now.
    #[must_use]
    pub fn made(&self) -> Option<KeyId> {
        self.made
    }

    /// What keeps the device's key.
    #[must_use]
    pub fn keeper(&self) -> Keeper {
        self.keeper
    }
}

impl Keys for HomeKeys {
    fn audit(&self) -> &KeyPair {
        &self.audit
    }

    fn trusts_head(&self, key: &PublicKey) -> bool {
        self.heads.contains(key)
    }

    fn consent(&self) -> &KeyPair {
        &self.consent
    }

    fn consent_signer(&self, envelope: &Envelope, now: Wall) -> Option<KeyId> {
        self.trust.verify(envelope, KeyRole::Consent, now).ok()?.first().copied()
    }

    fn wrapping(&self) -> &[u8; 32] {
        self.wrapping.key()
    }
}

/// The keys of heads so far; the present one is added when it is new.
fn heads(folder: &Path, present: PublicKey) -> Result<Vec<PublicKey>> {
    let path = folder.join(HEADS);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(file("read", &path)(error)),
    };
    let mut heads = text
        .lines()
        .map(str::parse)
        .collect::<std::result::Result<Vec<PublicKey>, _>>()
        .map_err(Error::Vault)?;
    if !heads.contains(&present) {
        // Appended in one write: two processes at once add the same line twice, which is no harm.
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let mut out = options.open(&path).map_err(file("create", &path))?;
        out.write_all(format!("{present}\n").as_bytes())
            .and_then(|()| out.sync_all())
            .map_err(file("write", &path))?;
        sync(&path)?;
        heads.push(present);
    }
    Ok(heads)
}

/// The seed of a file, or a new one; two processes that make it at once end with the same.
fn seed(path: &Path, random: &mut dyn Random) -> Result<(Zeroizing<[u8; 32]>, bool)> {
    if let Some(seed) = read(path)? {
        return Ok((seed, false));
    }
    let mut seed = Zeroizing::new([0; 32]);
    let mut tag = [0; 8];
    for part in [&mut seed[..], &mut tag[..]] {
        let failed = |source| Error::Vault(mien_vault::Error::Random { source });
        random.fill(part).map_err(failed)?;
    }
    let text = Zeroizing::new(text::hex(&*seed) + "\n");
    let part = path.with_extension(format!("part-{}", text::hex(&tag)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut out = options.open(&part).map_err(file("create", &part))?;
    out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).map_err(file("write", &part))?;
    // A link does not replace: whoever is first wins.
    let linked = std::fs::hard_link(&part, path);
    std::fs::remove_file(&part).map_err(file("remove", &part))?;
    match linked {
        Ok(()) => sync(path)?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(file("create", path)(error)),
    }
    let unreadable = || damaged(path);
    let stands = read(path)?.ok_or_else(unreadable)?;
    let new = *stands == *seed;
    Ok((stands, new))
}

fn sync(path: &Path) -> Result<()> {
    let folder: PathBuf = path.parent().unwrap_or_else(|| Path::new("/")).to_owned();
    let opened = std::fs::File::open(&folder).and_then(|dir| dir.sync_all());
    opened.map_err(file("sync", &folder))
}

fn damaged(path: &Path) -> Error {
    let why = "it must hold 64 hex digits; without it what it protects is lost".to_owned();
    Error::Vault(mien_vault::Error::Damaged { path: path.to_owned(), why })
}

fn read(path: &Path) -> Result<Option<Zeroizing<[u8; 32]>>> {
    let opened = match std::fs::File::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file("open", path)(error)),
    };
    let mut digits = Zeroizing::new(String::new());
    opened.take(80).read_to_string(&mut digits).map_err(file("read", path))?;
    match text::unhex(digits.trim_end()) {
        Some(seed) => Ok(Some(Zeroizing::new(seed))),
        None => Err(damaged(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::Scratch;
    use mien_vault::random::SystemRandom;
    use std::os::unix::fs::PermissionsExt as _;

    fn open(scratch: &Scratch) -> Result<HomeKeys> {
        HomeKeys::open(&Home::at(&scratch.0), &mut SystemRandom, Wall(1_800_000_000))
    }

    #[test]
    fn keys_are_made_once_and_only_their_owner_reads_them() {
        let scratch = Scratch::new();
        let first = open(&scratch).unwrap();
        assert_eq!(first.made(), Some(first.consent().id()));
        let second = open(&scratch).unwrap();
        assert_eq!(second.made(), None);
        assert_eq!(first.audit().id(), second.audit().id());
        assert_eq!(first.wrapping(), second.wrapping());
        assert_ne!(first.audit().id(), first.consent().id());
        assert_ne!(first.wrapping(), &*first.audit().seed());
        for entry in std::fs::read_dir(scratch.0.join("keys")).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?}", entry.file_name());
        }
        assert!(!format!("{first:?}").contains(&text::hex(first.wrapping())));
    }

    #[test]
    fn a_damaged_key_is_an_error_and_not_a_new_key() {
        let scratch = Scratch::new();
        open(&scratch).unwrap();
        std::fs::write(scratch.0.join("keys").join(OPERATOR), "12\n").unwrap();
        let error = open(&scratch).unwrap_err();
        assert!(error.to_string().contains("64 hex digits"), "{error}");
    }

    #[test]
    fn heads_of_the_key_before_count_and_those_of_a_stranger_do_not() {
        let scratch = Scratch::new();
        let before = open(&scratch).unwrap();
        // The device gets another key.
        std::fs::remove_file(scratch.0.join("keys/device.key")).unwrap();
        let after = open(&scratch).unwrap();
        assert_ne!(before.audit().id(), after.audit().id());
        assert!(after.trusts_head(&before.audit().public()));
        assert!(after.trusts_head(&after.audit().public()));
        assert!(!after.trusts_head(&KeyPair::from_seed(&[7; 32]).public()));
    }

    #[test]
    fn consent_is_signed_by_whom_the_home_trusts_for_it_and_no_longer_once_revoked() {
        let scratch = Scratch::new();
        let keys = open(&scratch).unwrap();
        let mut envelope = Envelope::new("t", b"d".to_vec());
        envelope.sign(keys.consent());
        let now = Wall(1_800_000_000);
        assert_eq!(keys.consent_signer(&envelope, now), Some(keys.consent().id()));
        let mut by_device = Envelope::new("t", b"d".to_vec());
        by_device.sign(keys.audit());
        assert_eq!(keys.consent_signer(&by_device, now), None);
        let mut trust = TrustStore::open(&Home::at(&scratch.0)).unwrap();
        trust.revoke(keys.consent().id(), now).unwrap();
        assert_eq!(open(&scratch).unwrap().consent_signer(&envelope, now), None);
    }
}
