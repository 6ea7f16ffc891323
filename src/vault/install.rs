//! Installed packages: taken in, put into use, rolled back, removed. Killed at any instant, the
//! old model serves and the next try goes on.
//!
//! ```text
//! package ─▶ incoming/HASH.part (grows, resumed) ─▶ checked whole ─▶ audited ─▶ ID/VERSION.mienpkg
//!                                                       ─▶ slots.json names it: it serves
//! ```

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use mien_base::clock::Clock;
use mien_base::id::ModelId;
use serde_json::json;

use crate::accept;
use crate::audit::{AuditSink, Deed};
use crate::errors::{Error, Result};
use crate::files;
use crate::home::Home;
use crate::keyslot::{self, DeviceKey};
use crate::manifest::{Bounds, Manifest, Version};
use crate::package::{self, Package, Rules, Unverified, Verified};
use crate::random::{Random, SystemRandom};
use crate::refusal::Reason;
use crate::settings::Settings;
use crate::slots::Slots;
use crate::trust::{KeyRole, TrustStore, TrustedKey};

mod part;
mod rewrap;

/// Ending of a package's file name.
pub const ENDING: &str = "mienpkg";
/// What stays free on the disk whatever is installed, in bytes.
const RESERVE: u64 = 64 << 20;

/// The installed packages of a home.
#[derive(Clone)]
pub struct Packages {
    home: Home,
    clock: Arc<dyn Clock>,
    device: Arc<OnceLock<DeviceKey>>,
}

impl std::fmt::Debug for Packages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packages").field("home", &self.home).finish_non_exhaustive()
    }
}

/// A version that is installed.
#[derive(Debug)]
pub struct Installed {
    pub manifest: Manifest,
    pub path: PathBuf,
    /// It is the one that serves.
    pub active: bool,
    /// It is the one that `rollback` goes back to.
    pub previous: bool,
}

impl Packages {
    /// The packages of a home. Makes nothing yet.
    #[must_use]
    pub fn new(home: &Home, clock: Arc<dyn Clock>) -> Self {
        Self { home: home.clone(), clock, device: Arc::default() }
    }

    /// This machine's key; a machine without one gets a key file.
    ///
    /// # Errors
    /// Of `keyslot::of_machine`.
    pub fn device(&self) -> Result<&DeviceKey> {
        if self.device.get().is_none() {
            let key = keyslot::of_machine(&self.home, &mut SystemRandom)?;
            let _ = self.device.set(key);
        }
        Ok(self.device.get().expect("set just now, or by another thread"))
    }

    fn slots_path(&self) -> PathBuf {
        self.home.packages().join("slots.json")
    }

    /// What is active, preferred, and how far back one may go.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub fn slots(&self) -> Result<Slots> {
        Slots::read(&self.slots_path())
    }

    fn path(&self, id: &ModelId, version: Version) -> PathBuf {
        self.home.packages().join(id.as_str()).join(format!("{version}.{ENDING}"))
    }

    fn lock(&self) -> Result<files::Lock> {
        files::private_dir(&self.home.packages())?;
        files::Lock::wait(&self.home.packages().join(".lock"))
    }

    /// Reads a package; nothing of it is verified.
    ///
    /// # Errors
    /// Of `Package::read`; `Io` for what is no regular file.
    pub fn read(path: &Path) -> Result<Package<Unverified>> {
        Package::read(files::open_regular(path)?, &format!("`{}`", path.display()))
    }

    /// Reads a package and verifies it by the trust, floors and licences of this machine.
    ///
    /// # Errors
    /// Of `Package::read` and `verify`; `Refused` with `LicenceForbids`.
    pub fn verified(&self, path: &Path) -> Result<Package<Verified>> {
        let trust = TrustStore::open(&self.home)?;
        let slots = self.slots()?;
        let (program, now) = (Version::of_program(), self.clock.wall());
        let rules = Rules { trust: &trust, program, now };
        let package = Self::read(path)?.verify(&rules, |manifest| slots.floor(&manifest.id))?;
        Settings::of(&self.home)?.admit(&package.manifest().model())?;
        Ok(package)
    }

    /// The version of a model that serves; `None` when none does.
    ///
    /// # Errors
    /// Of [`verified`](Self::verified): what does not hold any more does not serve.
    pub fn active(&self, id: &ModelId) -> Result<Option<Package<Verified>>> {
        let Some(version) = self.slots()?.slot(id).active else { return Ok(None) };
        let package = self.verified(&self.path(id, version))?;
        Self::is(&package, id, version)?;
        Ok(Some(package))
    }

    /// An installed version.
    ///
    /// # Errors
    /// `Slot` when it is not installed; of [`verified`](Self::verified).
    pub fn version(&self, id: &ModelId, version: Version) -> Result<Package<Verified>> {
        let path = self.path(id, version);
        if !path.exists() {
            let why = format!("has no version {version} installed; `mien model list` shows which");
            return Err(Error::Slot { id: id.clone(), why });
        }
        let package = self.verified(&path)?;
        Self::is(&package, id, version)?;
        Ok(package)
    }

    /// A package under another's name is not that one.
    fn is(package: &Package<Verified>, id: &ModelId, version: Version) -> Result<()> {
        let manifest = package.manifest();
        if manifest.id == *id && manifest.version == version {
            return Ok(());
        }
        let why = format!("it is `{}` {}", manifest.id, manifest.version);
        let what = format!("The package of `{id}` {version}");
        Err(Error::refused(&what, Reason::ManifestMalformed, &why))
    }

    /// Every installed version, by model and version. One that can't be read is left out.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub fn list(&self) -> Result<Vec<Installed>> {
        let slots = self.slots()?;
        let mut found = Vec::new();
        for folder in files::entries(&self.home.packages())? {
            let Some(id) = folder.file_name().and_then(|n| n.to_str()?.parse::<ModelId>().ok())
            else {
                continue;
            };
            if id.as_str() == "incoming" || !folder.is_dir() {
                continue;
            }
            let slot = slots.slot(&id);
            for path in files::entries(&folder)? {
                let claims = Self::read(&path).and_then(|package| package.claims());
                let Some(manifest) = claims.ok().filter(|manifest| manifest.id == id) else {
                    continue;
                };
                let active = slot.active == Some(manifest.version);
                let previous = slot.previous == Some(manifest.version);
                found.push(Installed { manifest, path, active, previous });
            }
        }
        found.sort_by(|a, b| {
            let key = |i: &Installed| (i.manifest.id.clone(), i.manifest.version);
            key(a).cmp(&key(b))
        });
        Ok(found)
    }

    /// Takes a package in. It serves at once when no version of its model does.
    ///
    /// # Errors
    /// Of [`verified`](Self::verified) and `Package::check`; `DiskFull`, `Audit`, `Io`. A refusal
    /// is audited.
    pub fn install(&self, path: &Path, audit: &mut dyn AuditSink) -> Result<Manifest> {
        let installed = self.take_in(path, audit);
        told(installed, audit)
    }

    /// Checks a package as [`install`](Self::install) does, every chunk of it, and takes nothing in.
    ///
    /// # Errors
    /// Of [`verified`](Self::verified) and `Package::check`; `Audit`. A refusal is audited.
    pub fn verify(&self, path: &Path, audit: &mut dyn AuditSink) -> Result<Package<Verified>> {
        let verified = self.verified(path).and_then(|package| {
            package.check(self.device()?)?;
            Ok(package)
        });
        told(verified, audit)
    }

    fn take_in(&self, path: &Path, audit: &mut dyn AuditSink) -> Result<Manifest> {
        let package = self.verified(path)?;
        let manifest = package.manifest().clone();
        let size = fs::metadata(path).map_err(files::io("read", path))?.len();
        let _lock = self.lock()?;
        let target = self.path(&manifest.id, manifest.version);
        if target.exists() && self.verified(&target)?.same_model(&package) {
            self.settle(&manifest, audit)?;
            return Ok(manifest);
        }
        let part = self.incoming(&package, size)?;
        let whole = |again: bool| -> Result<()> {
            part::grow(path, &part, size, again)?;
            self.verified(&part)?.check(self.device()?)
        };
        // What an earlier try left may be of another file: then all of it is copied anew.
        if let Err(error) = whole(false) {
            if error.reason().is_none() {
                return Err(error);
            }
            if let Err(error) = whole(true) {
                let _ = fs::remove_file(&part);
                return Err(error);
            }
        }
        self.place(&part, &target, &manifest, audit)?;
        Ok(manifest)
    }

    /// Seals a model for this machine, signed by it, and installs it: the next patch of `manifest`'s
    /// version when that one is taken by other weights.
    ///
    /// # Errors
    /// Of `package::pack`; `DiskFull`, `Audit`, `Io`.
    pub fn adopt(
        &self,
        mut manifest: Manifest,
        input: &mut impl Read,
        random: &mut dyn Random,
        audit: &mut dyn AuditSink,
    ) -> Result<Manifest> {
        let _lock = self.lock()?;
        while self.path(&manifest.id, manifest.version).exists() {
            manifest.version.2 += 1;
        }
        manifest.created = self.clock.wall();
        manifest.security_version =
            manifest.security_version.max(self.slots()?.floor(&manifest.id));
        let (key, devices) = (self.device()?.signer(), [self.device()?.public()]);
        self.trust_itself(audit)?;
        self.guard(manifest.bytes + manifest.bytes / 1024 + (1 << 20))?;
        let folder = self.home.packages().join("incoming");
        files::private_dir(&folder)?;
        let part = folder.join(format!("{}.sealing", manifest.id));
        let mut out = files::create(&part)?;
        package::pack(&manifest, &[&key], &devices, input, &mut out, random)?;
        out.sync_all().map_err(files::io("write", &part))?;
        self.place(&part, &self.path(&manifest.id, manifest.version), &manifest, audit)?;
        let slots = self.slots()?;
        if slots.slot(&manifest.id).active != Some(manifest.version) {
            self.put_into_use(&manifest, false, audit)?;
        }
        Ok(manifest)
    }

    /// The machine's own key may sign models for it.
    ///
    /// # Errors
    /// Of [`device`](Self::device); `Audit`, `Io`.
    pub fn trust_itself(&self, audit: &mut dyn AuditSink) -> Result<()> {
        let public = self.device()?.signer().public();
        let mut trust = TrustStore::open(&self.home)?;
        if trust.key(public.id()).is_some() {
            return Ok(());
        }
        let body = json!({ "did": "trust", "key": public.id(), "name": "this machine" });
        audit.append(Deed::Key, body).map_err(|source| Error::Audit { source })?;
        trust.add(TrustedKey {
            public,
            name: "this machine".to_owned(),
            roles: [KeyRole::Models].into(),
            added: self.clock.wall(),
            expires: None,
            revoked: None,
        })
    }

    /// Where a package's bytes gather, after a look at the disk.
    fn incoming(&self, package: &Package<Verified>, size: u64) -> Result<PathBuf> {
        let folder = self.home.packages().join("incoming");
        files::private_dir(&folder)?;
        let part = folder.join(format!("{}.part", package.fingerprint()));
        let there = fs::metadata(&part).map_or(0, |meta| meta.len());
        self.guard(size.saturating_sub(there))?;
        Ok(part)
    }

    fn guard(&self, needed: u64) -> Result<()> {
        let path = self.home.packages();
        let disk = rustix::fs::statvfs(&path).map_err(|e| files::io("read", &path)(e.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let needed = needed.saturating_add(RESERVE);
        if free < needed { Err(Error::DiskFull { path, needed, free }) } else { Ok(()) }
    }

    /// A whole, checked file becomes an installed one.
    fn place(
        &self,
        part: &Path,
        target: &Path,
        manifest: &Manifest,
        audit: &mut dyn AuditSink,
    ) -> Result<()> {
        let body = json!({
            "model": manifest.id, "version": manifest.version, "sha256": manifest.sha256,
            "licence": manifest.licence, "security_version": manifest.security_version,
        });
        audit.append(Deed::ModelInstall, body).map_err(|source| Error::Audit { source })?;
        if let Some(folder) = target.parent() {
            files::private_dir(folder)?;
        }
        files::rename(part, target)?;
        self.settle(manifest, audit)
    }

    /// The first version of a model serves at once, but for one that must be measured first.
    fn settle(&self, manifest: &Manifest, audit: &mut dyn AuditSink) -> Result<()> {
        let free = self.slots()?.slot(&manifest.id).active.is_none();
        if free && !accept::needs_measuring(manifest) {
            self.put_into_use(manifest, false, audit)?;
        }
        Ok(())
    }

    fn put_into_use(
        &self,
        manifest: &Manifest,
        chosen: bool,
        audit: &mut dyn AuditSink,
    ) -> Result<()> {
        let body = json!({ "model": manifest.id, "version": manifest.version });
        audit.append(Deed::ModelActivate, body).map_err(|source| Error::Audit { source })?;
        let mut slots = self.slots()?;
        let Manifest { id, role, version, security_version, .. } = manifest;
        slots.activate(id, *version, *security_version, chosen.then_some(*role));
        slots.write(&self.slots_path())?;
        self.prune(id, &slots)
    }

    /// Versions that neither serve nor could be rolled back to, and are older than what serves. The
    /// newest that is not INT8 stays: others are measured by it.
    fn prune(&self, id: &ModelId, slots: &Slots) -> Result<()> {
        let slot = slots.slot(id);
        let full = self.list()?.into_iter().filter(|installed| {
            installed.manifest.id == *id && !accept::needs_measuring(&installed.manifest)
        });
        let full = full.map(|installed| installed.manifest.version).max();
        let kept = |version: Version| {
            Some(version) == slot.previous
                || Some(version) == full
                || slot.active.is_none_or(|active| version >= active)
        };
        for path in files::entries(&self.home.packages().join(id.as_str()))? {
            let version = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            if version.is_some_and(|version| !kept(version)) {
                fs::remove_file(&path).map_err(files::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Puts an installed version into use. An INT8 model with bounds must have been `measured`
    /// against them on this device.
    ///
    /// # Errors
    /// `Slot`; of [`verified`](Self::verified) and `Package::check`; `Refused` with
    /// `BoundsBroken`; `Audit`, `Io`. A refusal is audited.
    pub fn activate(
        &self,
        id: &ModelId,
        version: Version,
        measured: Option<&Bounds>,
        audit: &mut dyn AuditSink,
    ) -> Result<Manifest> {
        let _lock = self.lock()?;
        let done = self.version(id, version).and_then(|package| {
            package.check(self.device()?)?;
            let manifest = package.manifest();
            if accept::needs_measuring(manifest) {
                accept::hold(manifest, measured)?;
            }
            self.put_into_use(manifest, true, audit)?;
            Ok(manifest.clone())
        });
        told(done, audit)
    }

    /// Goes back to the version that served before.
    ///
    /// # Errors
    /// `Slot` when there is none; of [`version`](Self::version): below the rollback floor there
    /// is no way back. A refusal is audited.
    pub fn rollback(&self, id: &ModelId, audit: &mut dyn AuditSink) -> Result<Manifest> {
        let _lock = self.lock()?;
        let none =
            || Error::Slot { id: id.clone(), why: "has no version to go back to".to_owned() };
        let previous = self.slots()?.slot(id).previous.ok_or_else(none)?;
        let done = self.version(id, previous).and_then(|package| {
            package.check(self.device()?)?;
            self.put_into_use(package.manifest(), false, audit)?;
            Ok(package.manifest().clone())
        });
        told(done, audit)
    }

    /// Removes one version that does not serve, or all of a model.
    ///
    /// # Errors
    /// `Slot` when it is not there, or serves; `Audit`, `Io`.
    pub fn remove(
        &self,
        id: &ModelId,
        version: Option<Version>,
        audit: &mut dyn AuditSink,
    ) -> Result<()> {
        let _lock = self.lock()?;
        let folder = self.home.packages().join(id.as_str());
        let refuse = |why: &str| Err(Error::Slot { id: id.clone(), why: why.to_owned() });
        let mut slots = self.slots()?;
        if !version.map_or_else(|| folder.is_dir(), |version| self.path(id, version).exists()) {
            return refuse("is not installed as a package; `mien model list` shows what is");
        }
        if version.is_some() && slots.slot(id).active == version {
            return refuse("serves in this version; activate another one first, or remove all");
        }
        let body = json!({ "model": id, "version": version });
        audit.append(Deed::ModelRemove, body).map_err(|source| Error::Audit { source })?;
        match version {
            None => {
                slots.remove(id);
                slots.write(&self.slots_path())?;
                fs::remove_dir_all(&folder).map_err(files::io("remove", &folder))
            }
            Some(version) => {
                if let Some(slot) = slots.models.get_mut(id)
                    && slot.previous == Some(version)
                {
                    slot.previous = None;
                }
                slots.write(&self.slots_path())?;
                let path = self.path(id, version);
                fs::remove_file(&path).map_err(files::io("remove", &path))
            }
        }
    }
}

/// Puts a refusal into the record before it is told.
fn told<T>(done: Result<T>, audit: &mut dyn AuditSink) -> Result<T> {
    if let Err(Error::Refused { what, reason, why }) = &done {
        let body = json!({ "what": what, "reason": reason.code(), "why": why });
        audit.append(Deed::Refused, body).map_err(|source| Error::Audit { source })?;
    }
    done
}

#[cfg(test)]
mod tests;
