//! Keys made, rotated and revoked on this machine: signing keys by name, and the device's own.
//!
//! A rotation of the device's key is safe to kill at any step:
//!
//! ```text
//! new secret beside the old ─▶ every package and source wrapped for both ─▶ new replaces old
//!     ─▶ for new alone
//! ```

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mien_base::clock::Wall;
use mien_base::id::ModelId;
use serde_json::json;
use zeroize::Zeroizing;

use crate::audit::{AuditSink, Deed};
use crate::errors::{Error, Result};
use crate::files;
use crate::home::Home;
use crate::install::Packages;
use crate::keyslot::{self, DeviceKey, Keeper, KeyFile, SealedFile};
use crate::random::Random;
use crate::sign::{KeyId, KeyPair};
use crate::text;
use crate::trust::{KeyRole, TrustStore, TrustedKey};

/// How long a rotated signing key still holds, for what is on its way.
pub const GRACE: Duration = Duration::from_secs(30 * 86_400);

/// What else stands under this machine's key, besides packages: the enrolled sources.
pub trait Held {
    /// Wraps all of it that `own` opens anew, for these keys alone. How many there are.
    ///
    /// # Errors
    /// When it can't; then nothing of it has changed.
    fn rewrap(&mut self, own: &DeviceKey, devices: &[&DeviceKey]) -> io::Result<usize>;
}

/// How many were wrapped anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrapped {
    pub packages: usize,
    pub sources: usize,
}

/// Where a signing key lies. Names are plain, as those of models.
fn path(home: &Home, name: &str) -> Result<PathBuf> {
    let bad = |_| Error::Key { key: name.to_owned(), why: "is no name: a-z, 0-9, `-`".to_owned() };
    let id: ModelId = name.parse().map_err(bad)?;
    if ["device", "trust"].contains(&name) {
        let why = "is taken: it names the device's own key".to_owned();
        return Err(Error::Key { key: name.to_owned(), why });
    }
    Ok(home.keys().join(format!("{id}.signing")))
}

fn note(audit: &mut dyn AuditSink, did: &str, key: &str, name: &str) -> Result<()> {
    let body = json!({ "did": did, "key": key, "name": name });
    audit.append(Deed::Key, body).map_err(|source| Error::Audit { source })
}

/// Makes a signing key that this machine keeps and trusts for some roles.
///
/// # Errors
/// `Key` when the name is taken; `Random`, `Audit`, `Io`.
pub fn new_signing(
    home: &Home,
    name: &str,
    roles: &BTreeSet<KeyRole>,
    now: Wall,
    random: &mut dyn Random,
    audit: &mut dyn AuditSink,
) -> Result<KeyPair> {
    let path = path(home, name)?;
    if path.exists() {
        let why = "exists already; `mien key rotate` replaces it".to_owned();
        return Err(Error::Key { key: name.to_owned(), why });
    }
    let key = KeyPair::generate(random)?;
    note(audit, "new", &key.id().to_string(), name)?;
    store(home, &path, &key)?;
    trust(home, &key, name, roles.clone(), now)?;
    Ok(key)
}

fn store(home: &Home, path: &std::path::Path, key: &KeyPair) -> Result<()> {
    files::private_dir(&home.keys())?;
    let text = Zeroizing::new(format!("{}\n", text::hex(&*key.seed())));
    files::replace(path, text.as_bytes())
}

fn trust(
    home: &Home,
    key: &KeyPair,
    name: &str,
    roles: BTreeSet<KeyRole>,
    now: Wall,
) -> Result<()> {
    TrustStore::open(home)?.add(TrustedKey {
        public: key.public(),
        name: name.to_owned(),
        roles,
        added: now,
        expires: None,
        revoked: None,
    })
}

/// A signing key of this machine.
///
/// # Errors
/// `Key` when there is none of that name; `Damaged`, `Io`.
pub fn signing(home: &Home, name: &str) -> Result<KeyPair> {
    let path = path(home, name)?;
    if !path.exists() {
        let why = format!("is not here; `mien key new {name} --role models` makes it");
        return Err(Error::Key { key: name.to_owned(), why });
    }
    let bytes = Zeroizing::new(files::read_own(&path, 4096, files::Own::Read)?);
    let digits = std::str::from_utf8(&bytes).ok().and_then(|t| text::unhex(t.trim_ascii_end()));
    let damaged = || {
        let why = "a signing key has 64 digits of 0-9, a-f".to_owned();
        Error::Damaged { path, why }
    };
    let seed = Zeroizing::new(digits.ok_or_else(damaged)?);
    Ok(KeyPair::from_seed(&seed))
}

/// Names of the signing keys that this machine keeps.
///
/// # Errors
/// `Io`.
pub fn names(home: &Home) -> Result<Vec<String>> {
    let paths = files::entries(&home.keys())?;
    let signing = paths.iter().filter(|path| path.extension().is_some_and(|e| e == "signing"));
    Ok(signing.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect())
}

/// Replaces a signing key by a new one of the same name and roles; the old one holds for
/// [`GRACE`] longer.
///
/// # Errors
/// `Key`, `Random`, `Audit`, `Io`.
pub fn rotate_signing(
    home: &Home,
    name: &str,
    now: Wall,
    random: &mut dyn Random,
    audit: &mut dyn AuditSink,
) -> Result<KeyPair> {
    let old = signing(home, name)?.id();
    let mut store_of_trust = TrustStore::open(home)?;
    let roles = store_of_trust.key(old).map(|key| key.roles.clone());
    let key = KeyPair::generate(random)?;
    note(audit, "rotate", &key.id().to_string(), name)?;
    let none = || Error::Key { key: name.to_owned(), why: "is not trusted any more".to_owned() };
    trust(home, &key, name, roles.ok_or_else(none)?, now)?;
    store(home, &path(home, name)?, &key)?;
    store_of_trust = TrustStore::open(home)?;
    store_of_trust.expire(old, Wall(now.0.saturating_add(GRACE.as_secs())))?;
    Ok(key)
}

/// Takes trust back from a key, by its id.
///
/// # Errors
/// `Key` when it is not known; `Audit`, `Io`.
pub fn revoke(home: &Home, id: KeyId, now: Wall, audit: &mut dyn AuditSink) -> Result<TrustedKey> {
    let mut trust = TrustStore::open(home)?;
    let unknown = || {
        let why = "is not known here; `mien key list` shows which are".to_owned();
        Error::Key { key: id.to_string(), why }
    };
    let name = trust.key(id).ok_or_else(unknown)?.name.clone();
    note(audit, "revoke", &id.to_string(), &name)?;
    trust.revoke(id, now)?;
    Ok(trust.key(id).ok_or_else(unknown)?.clone())
}

/// Trusts somebody's key.
///
/// # Errors
/// `Key` for a revoked one; `Audit`, `Io`.
pub fn take_in(home: &Home, key: TrustedKey, audit: &mut dyn AuditSink) -> Result<()> {
    note(audit, "trust", &key.public.id().to_string(), &key.name)?;
    TrustStore::open(home)?.add(key)
}

/// Makes this machine's own key, where it has none.
///
/// # Errors
/// `Key` when it has one; `Tool` without systemd-creds; `Random`, `Audit`, `Io`.
pub fn new_device(
    home: &Home,
    keeper: Keeper,
    random: &mut dyn Random,
    audit: &mut dyn AuditSink,
) -> Result<DeviceKey> {
    if keyslot::load(&keyslot::sources(home, keyslot::credentials().as_deref()))?.is_some() {
        let why = "exists already; `mien key rotate` replaces it".to_owned();
        return Err(Error::Key { key: "device".to_owned(), why });
    }
    let secret = keyslot::new_secret(random)?;
    let key = DeviceKey::from_secret(&secret, keeper)?;
    note(audit, "new", &key.public().id().to_string(), "device")?;
    match keeper {
        Keeper::File => KeyFile::of(home).store(&secret)?,
        Keeper::Credential | Keeper::Hardware => SealedFile::of(home).store(&secret)?,
    }
    Ok(key)
}

/// Replaces this machine's own key, and wraps every installed package and source anew.
///
/// # Errors
/// `Key` when systemd keeps the key (then systemd-creds makes the new one); of
/// `Packages::rewrap_all`; `Sources`, `Random`, `Audit`, `Io`.
pub fn rotate_device(
    packages: &Packages,
    home: &Home,
    sources: &mut dyn Held,
    random: &mut dyn Random,
    audit: &mut dyn AuditSink,
) -> Result<(DeviceKey, Rewrapped)> {
    let old = packages.device()?;
    let kept_by_systemd = keyslot::credentials().is_some_and(|folder| {
        [keyslot::HARDWARE, keyslot::CREDENTIAL].iter().any(|name| folder.join(name).exists())
    });
    if kept_by_systemd {
        let why = "is a credential of the service: rewrap the packages where they are made, then \
                   give the service a new credential";
        return Err(Error::Key { key: "device".to_owned(), why: why.to_owned() });
    }
    let secret = keyslot::new_secret(random)?;
    let new = DeviceKey::from_secret(&secret, old.keeper())?;
    note(audit, "rotate", &new.public().id().to_string(), "device")?;
    let both = [old.public(), new.public()];
    let failed = |source| Error::Sources { source };
    let packed = packages.rewrap_all(old, &both, random)?;
    let enrolled = sources.rewrap(old, &[old, &new]).map_err(failed)?;
    match old.keeper() {
        Keeper::File => KeyFile::of(home).store(&secret)?,
        Keeper::Credential | Keeper::Hardware => SealedFile::of(home).store(&secret)?,
    }
    packages.rewrap_all(&new, &both[1..], random)?;
    sources.rewrap(&new, &[&new]).map_err(failed)?;
    Ok((new, Rewrapped { packages: packed, sources: enrolled }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::Scratch;
    use crate::manifest::tests::manifest;
    use crate::random::tests::Counted;
    use crate::refusal::Reason;
    use crate::sign::Envelope;
    use crate::trust::tests::NOW;
    use mien_base::clock::ManualClock;
    use serde_json::Value;
    use std::sync::Arc;

    type Log = Vec<(Deed, Value)>;

    /// Counts for whom it was wrapped.
    impl Held for Vec<usize> {
        fn rewrap(&mut self, _: &DeviceKey, devices: &[&DeviceKey]) -> io::Result<usize> {
            self.push(devices.len());
            Ok(3)
        }
    }

    #[test]
    fn a_rotated_key_holds_for_the_grace_and_a_revoked_one_not_at_all() {
        let scratch = Scratch::new();
        let (home, mut log) = (Home::at(&scratch.0), Log::new());
        let roles = BTreeSet::from([KeyRole::Models]);
        let mut random = Counted(1);
        let old = new_signing(&home, "shop", &roles, NOW, &mut random, &mut log).unwrap();
        assert!(new_signing(&home, "shop", &roles, NOW, &mut random, &mut log).is_err());
        let new = rotate_signing(&home, "shop", NOW, &mut random, &mut log).unwrap();
        assert_eq!(signing(&home, "shop").unwrap().id(), new.id());
        assert_eq!(names(&home).unwrap(), ["shop"]);
        let reason = |key: &KeyPair, now: Wall| {
            let mut envelope = Envelope::new("t", b"d".to_vec());
            envelope.sign(key);
            let trust = TrustStore::open(&home).unwrap();
            trust.verify(&envelope, KeyRole::Models, now).err().and_then(|e| e.reason())
        };
        let late = Wall(NOW.0 + GRACE.as_secs());
        assert_eq!(reason(&old, NOW), None);
        assert_eq!(reason(&old, late), Some(Reason::KeyExpired));
        assert_eq!(reason(&new, late), None);
        revoke(&home, new.id(), NOW, &mut log).unwrap();
        assert_eq!(reason(&new, NOW), Some(Reason::KeyRevoked));
        assert!(log.iter().all(|(deed, _)| *deed == Deed::Key));
        let did: Vec<&str> = log.iter().filter_map(|(_, body)| body["did"].as_str()).collect();
        assert_eq!(did, ["new", "rotate", "revoke"]);
    }

    #[test]
    fn names_that_are_paths_or_the_device_s_own_are_refused() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        for name in ["../x", "device", "trust", ""] {
            assert!(signing(&home, name).is_err(), "{name}");
        }
    }

    #[test]
    fn after_a_rotation_of_the_device_s_key_every_package_opens_by_the_new_one_alone() {
        let scratch = Scratch::new();
        let (home, mut log) = (Home::at(&scratch.0), Log::new());
        let packages = || Packages::new(&home, Arc::new(ManualClock::at(NOW)));
        let old = new_device(&home, Keeper::File, &mut Counted(1), &mut log).unwrap();
        assert!(new_device(&home, Keeper::File, &mut Counted(2), &mut log).is_err());
        let made = manifest("m", b"weights");
        packages().adopt(made, &mut &b"weights"[..], &mut Counted(3), &mut log).unwrap();
        let mut sources = Vec::new();
        let random = &mut Counted(4);
        let (new, count) =
            rotate_device(&packages(), &home, &mut sources, random, &mut log).unwrap();
        assert_eq!((count, &sources[..]), (Rewrapped { packages: 1, sources: 3 }, &[2, 1][..]));
        let package = packages().active(&"m".parse().unwrap()).unwrap().unwrap();
        package.check(packages().device().unwrap()).unwrap();
        assert_eq!(packages().device().unwrap().public(), new.public());
        assert_eq!(package.check(&old).unwrap_err().reason(), Some(Reason::WrongDevice));
    }
}
