//! Enrolled sources and their consent records, one folder each: whole or absent at any instant.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use mien_base::clock::Wall;
use mien_base::consent::{ConsentRecord, SourceRecord};
use mien_base::id::IdentityId;
use mien_base::limits;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors::{Error, Result};
use crate::files;
use crate::home::Home;

/// Largest portrait that is stored, in bytes.
const PORTRAIT: u64 = 16 << 20;
/// Most mesh points of a source.
const MESH: usize = 1024;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A source as it was enrolled.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSource {
    pub record: SourceRecord,
    /// PNG file.
    pub portrait: Vec<u8>,
    pub consent: Option<ConsentRecord>,
}

/// Where sources are kept.
pub trait SourceStore {
    /// Stores a new source, with its consent record when there is one, in one step.
    ///
    /// # Errors
    /// `SourceExists`; `SourceBad` when the record can't be; `TooLarge`, `Io`.
    fn put(
        &self,
        record: &SourceRecord,
        portrait: &[u8],
        consent: Option<&ConsentRecord>,
    ) -> Result<()>;

    /// A source with its portrait and consent record.
    ///
    /// # Errors
    /// `SourceUnknown`, `SourceDamaged`, `TooLarge`, `Io`.
    fn get(&self, id: &IdentityId) -> Result<StoredSource>;

    /// Who is enrolled, by name.
    ///
    /// # Errors
    /// `Io`.
    fn list(&self) -> Result<Vec<IdentityId>>;

    /// Removes a source, its portrait, embedding and consent record.
    ///
    /// # Errors
    /// `SourceUnknown`, `Io`.
    fn forget(&self, id: &IdentityId) -> Result<()>;

    /// Stores or replaces the consent record of an enrolled source.
    ///
    /// # Errors
    /// `SourceUnknown`, `Io`.
    fn put_consent(&self, record: &ConsentRecord) -> Result<()>;

    /// The consent record of a source, when it has one.
    ///
    /// # Errors
    /// `SourceUnknown`, `SourceDamaged`, `Io`.
    fn consent(&self, id: &IdentityId) -> Result<Option<ConsentRecord>>;

    /// Takes consent back from `at` on; an earlier revocation stands.
    ///
    /// # Errors
    /// `SourceUnknown`, `ConsentMissing`, `SourceDamaged`, `Io`.
    fn revoke(&self, id: &IdentityId, at: Wall) -> Result<ConsentRecord>;
}

/// Sources as files: `identities/NAME/{source.json, portrait.png, consent.json}`.
///
/// `forget` overwrites what it unlinks. Flash and copy-on-write file systems may keep the old
/// blocks all the same: what must be gone for good needs an encrypted disk.
#[derive(Debug, Clone)]
pub struct FileStore {
    root: PathBuf,
}

impl FileStore {
    /// The sources of a home; makes the folder and finishes what a killed `put` or `forget` left.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(home: &Home) -> Result<Self> {
        home.create()?;
        let store = Self { root: home.identities() };
        files::private_dir(&store.root)?;
        let _lock = store.lock()?;
        for name in store.names()?.iter().filter(|n| n.starts_with('.') && *n != ".lock") {
            shred(&store.root.join(name))?;
        }
        Ok(store)
    }

    fn lock(&self) -> Result<files::Lock> {
        files::Lock::wait(&self.root.join(".lock"))
    }

    fn folder(&self, id: &IdentityId) -> PathBuf {
        self.root.join(id.as_str())
    }

    fn enrolled(&self, id: &IdentityId) -> Result<PathBuf> {
        let folder = self.folder(id);
        if !folder.is_dir() {
            return Err(Error::SourceUnknown { id: id.clone() });
        }
        Ok(folder)
    }

    fn names(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.root).map_err(files::io("list", &self.root))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(files::io("list", &self.root))?;
            names.extend(entry.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }
}

impl SourceStore for FileStore {
    fn put(
        &self,
        record: &SourceRecord,
        portrait: &[u8],
        consent: Option<&ConsentRecord>,
    ) -> Result<()> {
        let id = &record.identity;
        check(record, portrait, consent).map_err(|why| Error::SourceBad { id: id.clone(), why })?;
        let _lock = self.lock()?;
        let folder = self.folder(id);
        if folder.exists() {
            return Err(Error::SourceExists { id: id.clone() });
        }
        let new = self.root.join(format!(".new-{id}"));
        shred(&new)?;
        DirBuilder::new().mode(0o700).create(&new).map_err(files::io("create", &new))?;
        files::write_synced(&new.join("source.json"), &json(record))?;
        files::write_synced(&new.join("portrait.png"), portrait)?;
        if let Some(consent) = consent {
            files::write_synced(&new.join("consent.json"), &json(consent))?;
        }
        files::sync_dir(&new)?;
        files::rename(&new, &folder)
    }

    fn get(&self, id: &IdentityId) -> Result<StoredSource> {
        let folder = self.enrolled(id)?;
        let path = folder.join("source.json");
        let record: SourceRecord = read_json(&path)?;
        let portrait = files::read_bounded(&folder.join("portrait.png"), PORTRAIT)?;
        let consent = self.consent(id)?;
        let damaged = |why| Error::SourceDamaged { path: path.clone(), why };
        if record.identity != *id {
            return Err(damaged(format!("it is bound to `{}`", record.identity)));
        }
        check(&record, &portrait, consent.as_ref()).map_err(damaged)?;
        Ok(StoredSource { record, portrait, consent })
    }

    fn list(&self) -> Result<Vec<IdentityId>> {
        let names = self.names()?;
        let ids = names.iter().filter_map(|name| name.parse().ok());
        Ok(ids.filter(|id| self.folder(id).is_dir()).collect())
    }

    fn forget(&self, id: &IdentityId) -> Result<()> {
        let _lock = self.lock()?;
        let folder = self.enrolled(id)?;
        // Gone under its name first: a kill from here on leaves work for the next `open`.
        let doomed = self.root.join(format!(".forget-{id}"));
        shred(&doomed)?;
        files::rename(&folder, &doomed)?;
        shred(&doomed)
    }

    fn put_consent(&self, record: &ConsentRecord) -> Result<()> {
        let _lock = self.lock()?;
        let folder = self.enrolled(&record.identity)?;
        files::replace(&folder.join("consent.json"), &json(record))
    }

    fn consent(&self, id: &IdentityId) -> Result<Option<ConsentRecord>> {
        let path = self.enrolled(id)?.join("consent.json");
        if !path.exists() {
            return Ok(None);
        }
        let record: ConsentRecord = read_json(&path)?;
        if record.identity != *id {
            let why = format!("it is bound to `{}`", record.identity);
            return Err(Error::SourceDamaged { path, why });
        }
        Ok(Some(record))
    }

    fn revoke(&self, id: &IdentityId, at: Wall) -> Result<ConsentRecord> {
        let _lock = self.lock()?;
        let folder = self.enrolled(id)?;
        let mut record =
            self.consent(id)?.ok_or_else(|| Error::ConsentMissing { id: id.clone() })?;
        record.revoked = Some(record.revoked.map_or(at, |earlier| earlier.min(at)));
        files::replace(&folder.join("consent.json"), &json(&record))?;
        Ok(record)
    }
}

/// What must hold of a stored source; the fault otherwise.
fn check(
    record: &SourceRecord,
    portrait: &[u8],
    consent: Option<&ConsentRecord>,
) -> std::result::Result<(), String> {
    if record.embedding.len() > limits::EMBEDDING {
        return Err(format!("its embedding has more than {} values", limits::EMBEDDING));
    }
    if record.embedder.is_some() == record.embedding.is_empty() {
        return Err("an embedding and its embedder go together".to_owned());
    }
    if record.mesh.len() > MESH {
        return Err(format!("its mesh has more than {MESH} points"));
    }
    let quality = &record.quality;
    let measured = [quality.face_px, quality.sharpness, quality.yaw, quality.pitch, quality.score];
    let points = record.mesh.as_flattened().iter().chain(record.landmarks.as_flattened());
    let mut numbers = record.embedding.iter().chain(points).chain(&measured);
    if !numbers.all(|number| number.is_finite()) {
        return Err("one of its numbers is not finite".to_owned());
    }
    if !portrait.starts_with(PNG) || portrait.len() as u64 > PORTRAIT {
        return Err(format!("its portrait must be a PNG of at most {PORTRAIT} bytes"));
    }
    if consent.is_some_and(|consent| consent.identity != record.identity) {
        return Err("its consent record is bound to another source".to_owned());
    }
    Ok(())
}

fn json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("plain data with text keys");
    bytes.push(b'\n');
    bytes
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = files::read_bounded(path, limits::TEXT_FILE)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::SourceDamaged { path: path.to_owned(), why: error.to_string() })
}

/// Overwrites and removes the files of a folder, then the folder; nothing to do when absent.
fn shred(folder: &Path) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(files::io("list", folder)(error)),
    };
    for entry in entries {
        let path = entry.map_err(files::io("list", folder))?.path();
        let meta = fs::symlink_metadata(&path).map_err(files::io("read", &path))?;
        if meta.is_file() {
            overwrite(&path, meta.len())?;
        }
        fs::remove_file(&path).map_err(files::io("remove", &path))?;
    }
    fs::remove_dir(folder).map_err(files::io("remove", folder))?;
    files::sync_parent(folder)
}

fn overwrite(path: &Path, mut left: u64) -> Result<()> {
    let mut file = OpenOptions::new().write(true).open(path).map_err(files::io("open", path))?;
    let zeros = [0; 1 << 16];
    while left > 0 {
        let n = left.min(zeros.len() as u64);
        let part = zeros.get(..usize::try_from(n).unwrap_or(zeros.len())).unwrap_or(&zeros);
        file.write_all(part).map_err(files::io("overwrite", path))?;
        left -= n;
    }
    file.sync_all().map_err(files::io("overwrite", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consent;
    use crate::files::tests::Scratch;
    use mien_base::consent::Quality;
    use std::os::unix::fs::PermissionsExt as _;

    fn id() -> IdentityId {
        "astronaut".parse().unwrap()
    }

    fn record() -> SourceRecord {
        SourceRecord {
            identity: id(),
            embedder: Some(("mobilefacenet192".parse().unwrap(), "0".repeat(64))),
            embedding: (0..192_u16).map(|i| f32::from(i) / 7.0).collect(),
            mesh: vec![[0.1, 1.0e-7, 191.3]; 468],
            landmarks: [[1.5, 2.25]; 5],
            quality: Quality { face_px: 90.0, sharpness: 5.0, yaw: 1.0, pitch: -2.0, score: 0.9 },
            enrolled: Wall(1_796_063_974),
        }
    }

    fn portrait() -> Vec<u8> {
        [PNG, &[7; 5000]].concat()
    }

    fn consent() -> ConsentRecord {
        consent::parse(consent::TEMPLATE, &id()).unwrap()
    }

    #[test]
    fn a_source_comes_back_as_it_was_put_and_only_once() {
        let scratch = Scratch::new();
        let store = FileStore::open(&Home::at(&scratch.0)).unwrap();
        store.put(&record(), &portrait(), Some(&consent())).unwrap();
        let got = store.get(&id()).unwrap();
        assert_eq!(got.record, record());
        assert_eq!(got.portrait, portrait());
        assert_eq!(got.consent, Some(consent()));
        assert_eq!(store.list().unwrap(), [id()]);
        let again = store.put(&record(), &portrait(), None).unwrap_err();
        assert!(matches!(again, Error::SourceExists { .. }));
    }

    #[test]
    fn only_the_owner_can_read_a_source() {
        let scratch = Scratch::new();
        let store = FileStore::open(&Home::at(&scratch.0)).unwrap();
        store.put(&record(), &portrait(), None).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&store.root), 0o700);
        assert_eq!(mode(&store.folder(&id())), 0o700);
        assert_eq!(mode(&store.folder(&id()).join("portrait.png")), 0o600);
    }

    #[test]
    fn forgetting_overwrites_before_it_unlinks() {
        let scratch = Scratch::new();
        let store = FileStore::open(&Home::at(&scratch.0)).unwrap();
        store.put(&record(), &portrait(), Some(&consent())).unwrap();
        // A second name for the same blocks shows what became of them.
        let witness = scratch.0.join("witness");
        fs::hard_link(store.folder(&id()).join("portrait.png"), &witness).unwrap();
        store.forget(&id()).unwrap();
        assert_eq!(fs::read(&witness).unwrap(), vec![0; portrait().len()]);
        assert!(matches!(store.get(&id()), Err(Error::SourceUnknown { .. })));
        assert_eq!(store.names().unwrap(), [".lock"]);
        assert!(matches!(store.forget(&id()), Err(Error::SourceUnknown { .. })));
    }

    #[test]
    fn what_a_killed_put_or_forget_left_is_cleared_and_never_listed() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        let store = FileStore::open(&home).unwrap();
        for left in [".new-astronaut", ".forget-hopper"] {
            fs::create_dir(store.root.join(left)).unwrap();
            fs::write(store.root.join(left).join("portrait.png"), b"half").unwrap();
        }
        assert_eq!(store.list().unwrap(), []);
        store.put(&record(), &portrait(), None).unwrap();
        let store = FileStore::open(&home).unwrap();
        assert_eq!(store.names().unwrap(), [".lock", "astronaut"]);
    }

    #[test]
    fn revoking_keeps_the_earliest_time() {
        let scratch = Scratch::new();
        let store = FileStore::open(&Home::at(&scratch.0)).unwrap();
        store.put(&record(), &portrait(), None).unwrap();
        let missing = store.revoke(&id(), Wall(5)).unwrap_err();
        assert!(matches!(missing, Error::ConsentMissing { .. }));
        store.put_consent(&consent()).unwrap();
        assert_eq!(store.revoke(&id(), Wall(50)).unwrap().revoked, Some(Wall(50)));
        assert_eq!(store.revoke(&id(), Wall(90)).unwrap().revoked, Some(Wall(50)));
        assert_eq!(store.consent(&id()).unwrap().unwrap().revoked, Some(Wall(50)));
    }

    #[test]
    fn a_source_that_can_not_be_is_not_stored() {
        let scratch = Scratch::new();
        let store = FileStore::open(&Home::at(&scratch.0)).unwrap();
        let mut nan = record();
        nan.mesh[3][1] = f32::NAN;
        let mut wide = record();
        wide.embedding = vec![0.0; limits::EMBEDDING + 1];
        let mut other = consent();
        other.identity = "hopper".parse().unwrap();
        for refused in [
            store.put(&nan, &portrait(), None),
            store.put(&wide, &portrait(), None),
            store.put(&record(), b"GIF89a", None),
            store.put(&record(), &portrait(), Some(&other)),
        ] {
            assert!(matches!(refused, Err(Error::SourceBad { .. })), "{refused:?}");
        }
        assert_eq!(store.list().unwrap(), []);
    }

    #[test]
    fn a_record_copied_to_another_name_or_with_unknown_keys_is_damaged() {
        let scratch = Scratch::new();
        let store = FileStore::open(&Home::at(&scratch.0)).unwrap();
        store.put(&record(), &portrait(), Some(&consent())).unwrap();
        let hopper: IdentityId = "hopper".parse().unwrap();
        fs::create_dir(store.folder(&hopper)).unwrap();
        for name in ["source.json", "portrait.png", "consent.json"] {
            fs::copy(store.folder(&id()).join(name), store.folder(&hopper).join(name)).unwrap();
        }
        assert!(matches!(store.consent(&hopper), Err(Error::SourceDamaged { .. })));
        assert!(matches!(store.get(&hopper), Err(Error::SourceDamaged { .. })));
        let path = store.folder(&id()).join("consent.json");
        let text = fs::read_to_string(&path).unwrap().replacen('{', "{\"x\": 1,", 1);
        fs::write(&path, text).unwrap();
        assert!(matches!(store.get(&id()), Err(Error::SourceDamaged { .. })));
    }
}
