//! The keys that the store works with, and their local form: files that are made on first use.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use mien_vault::random::Random;
use mien_vault::sign::{Envelope, KeyId, KeyPair, PublicKey};
use mien_vault::text;
use zeroize::Zeroizing;

use super::private;
use crate::errors::{Error, Result, file};

/// Who signs, who is trusted, and what wraps the sources' keys.
pub trait Keys: std::fmt::Debug + Send + Sync {
    /// Signs heads and exports of the record.
    fn audit(&self) -> &KeyPair;

    /// True for a key whose heads count: this one, and those before it.
    fn trusts_head(&self, key: &PublicKey) -> bool;

    /// Signs what is entered on this machine: records of consent and what takes them back.
    fn consent(&self) -> &KeyPair;

    /// The key of role consent that signed the envelope and is trusted, if one did.
    fn consent_signer(&self, envelope: &Envelope) -> Option<KeyId>;

    /// Wraps the sources' keys.
    fn wrapping(&self) -> &[u8; 32];
}

/// Keys in files of this machine, for a laptop: whoever reads the folder has them.
#[derive(Debug)]
pub struct LocalKeys {
    audit: KeyPair,
    consent: KeyPair,
    wrapping: Wrapping,
    made: Vec<(&'static str, KeyId)>,
}

struct Wrapping(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for Wrapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wrapping")
    }
}

impl LocalKeys {
    /// The keys of a folder; those that are not there are made.
    ///
    /// # Errors
    /// `File`; `Vault` when there is no randomness or a file holds no key.
    pub fn open(folder: &Path, random: &mut dyn Random) -> Result<Self> {
        private(folder)?;
        let mut made = Vec::new();
        let mut pair = |name: &'static str, random: &mut dyn Random| -> Result<KeyPair> {
            let (seed, new) = seed(&folder.join(format!("{name}.seed")), random)?;
            let pair = KeyPair::from_seed(&seed);
            if new {
                made.push((name, pair.id()));
            }
            Ok(pair)
        };
        let (audit, consent) = (pair("audit", random)?, pair("consent", random)?);
        let (wrapping, _) = seed(&folder.join("sources.seed"), random)?;
        Ok(Self { audit, consent, wrapping: Wrapping(wrapping), made })
    }

    /// Signing keys that were made just now: what for, and their name.
    #[must_use]
    pub fn made(&self) -> &[(&'static str, KeyId)] {
        &self.made
    }
}

impl Keys for LocalKeys {
    fn audit(&self) -> &KeyPair {
        &self.audit
    }

    fn trusts_head(&self, key: &PublicKey) -> bool {
        *key == self.audit.public()
    }

    fn consent(&self) -> &KeyPair {
        &self.consent
    }

    fn consent_signer(&self, envelope: &Envelope) -> Option<KeyId> {
        let key = self.consent.public();
        (envelope.signed_by(&key) == Some(true)).then(|| key.id())
    }

    fn wrapping(&self) -> &[u8; 32] {
        &self.wrapping.0
    }
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

    #[test]
    fn keys_are_made_once_and_only_their_owner_reads_them() {
        let scratch = Scratch::new();
        let folder = scratch.0.join("keys");
        let first = LocalKeys::open(&folder, &mut SystemRandom).unwrap();
        assert_eq!(first.made().len(), 2);
        let second = LocalKeys::open(&folder, &mut SystemRandom).unwrap();
        assert!(second.made().is_empty());
        assert_eq!(first.audit().id(), second.audit().id());
        assert_eq!(first.wrapping(), second.wrapping());
        assert_ne!(first.audit().id(), first.consent().id());
        let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap()).collect();
        assert_eq!(names.len(), 3);
        let mode = |entry: std::fs::DirEntry| entry.metadata().unwrap().permissions().mode();
        assert!(names.drain(..).all(|entry| mode(entry) & 0o777 == 0o600));
        assert!(!format!("{first:?}").contains(&text::hex(first.wrapping())));
    }

    #[test]
    fn a_damaged_key_is_an_error_and_not_a_new_key() {
        let scratch = Scratch::new();
        LocalKeys::open(&scratch.0, &mut SystemRandom).unwrap();
        std::fs::write(scratch.0.join("consent.seed"), "12\n").unwrap();
        let error = LocalKeys::open(&scratch.0, &mut SystemRandom).unwrap_err();
        assert!(error.to_string().contains("64 hex digits"), "{error}");
    }
}
