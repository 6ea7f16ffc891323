//! What a stored source is, where sources are kept, and the folders that held them before.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use mien_base::consent::{ConsentRecord, SourceRecord};
use mien_base::id::IdentityId;
use mien_base::limits;
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
    /// The records that hold together, whether they hold now or not.
    pub consents: Vec<ConsentRecord>,
}

/// Where sources are kept.
pub trait SourceStore {
    /// What can go wrong there.
    type Error: From<Error>;
    /// What shows that a source was erased.
    type Erased;

    /// Stores a new source, with its consent record when there is one, in one step.
    ///
    /// # Errors
    /// `SourceExists`; `SourceBad` when the record can't be; those of the store.
    fn put(
        &self,
        record: &SourceRecord,
        portrait: &[u8],
        consent: Option<&ConsentRecord>,
    ) -> std::result::Result<(), Self::Error>;

    /// A source with its portrait and consent records.
    ///
    /// # Errors
    /// `SourceUnknown`, `SourceBad`; those of the store.
    fn get(&self, id: &IdentityId) -> std::result::Result<StoredSource, Self::Error>;

    /// Who is enrolled, by name.
    ///
    /// # Errors
    /// Those of the store.
    fn list(&self) -> std::result::Result<Vec<IdentityId>, Self::Error>;

    /// Erases a source: portrait, embedding, keys and consent records.
    ///
    /// # Errors
    /// `SourceUnknown`; those of the store.
    fn forget(&self, id: &IdentityId) -> std::result::Result<Self::Erased, Self::Error>;
}

/// What must hold of a source that is stored.
///
/// # Errors
/// `SourceBad` with the fault.
pub fn check_source(
    record: &SourceRecord,
    portrait: &[u8],
    consents: &[ConsentRecord],
) -> Result<()> {
    check(record, portrait, consents)
        .map_err(|why| Error::SourceBad { id: record.identity.clone(), why })
}

/// Sources as files, as versions before the database kept them: `identities/NAME/{source.json,
/// portrait.png, consent.json}`. They are only taken over, and then erased.
///
/// `erase` overwrites what it unlinks. Flash and copy-on-write file systems may keep the old
/// blocks all the same.
#[derive(Debug)]
pub struct OldStore {
    root: PathBuf,
    _lock: files::Lock,
}

impl OldStore {
    /// The old sources of a home, held against other processes; `None` when there are none.
    ///
    /// # Errors
    /// `Io`.
    pub fn find(home: &Home) -> Result<Option<Self>> {
        let root = home.identities();
        if !root.is_dir() {
            return Ok(None);
        }
        let lock = files::Lock::wait(&root.join(".lock"))?;
        let store = Self { root, _lock: lock };
        // What a killed `put` or `erase` left.
        for name in store.names()?.iter().filter(|n| n.starts_with('.') && *n != ".lock") {
            shred(&store.root.join(name))?;
        }
        Ok(Some(store))
    }

    /// Who stands there, by name.
    ///
    /// # Errors
    /// `Io`.
    pub fn list(&self) -> Result<Vec<IdentityId>> {
        let names = self.names()?;
        let ids = names.iter().filter_map(|name| name.parse().ok());
        Ok(ids.filter(|id: &IdentityId| self.root.join(id.as_str()).is_dir()).collect())
    }

    /// A source as it stands there.
    ///
    /// # Errors
    /// `SourceDamaged`, `TooLarge`, `Io`.
    pub fn get(&self, id: &IdentityId) -> Result<StoredSource> {
        let folder = self.root.join(id.as_str());
        let path = folder.join("source.json");
        let record: SourceRecord = read_json(&path)?;
        let portrait = files::read_bounded(&folder.join("portrait.png"), PORTRAIT)?;
        let written = folder.join("consent.json");
        let consents: Vec<ConsentRecord> =
            if written.exists() { vec![read_json(&written)?] } else { Vec::new() };
        let damaged = |why| Error::SourceDamaged { path: path.clone(), why };
        if record.identity != *id {
            return Err(damaged(format!("it is bound to `{}`", record.identity)));
        }
        check(&record, &portrait, &consents).map_err(damaged)?;
        Ok(StoredSource { record, portrait, consents })
    }

    /// Erases a source that was taken over.
    ///
    /// # Errors
    /// `Io`.
    pub fn erase(&self, id: &IdentityId) -> Result<()> {
        // Gone under its name first: a kill from here on leaves work for the next `find`.
        let doomed = self.root.join(format!(".forget-{id}"));
        shred(&doomed)?;
        files::rename(&self.root.join(id.as_str()), &doomed)?;
        shred(&doomed)
    }

    /// Removes the folder when nothing is left in it.
    pub fn close(self) {
        if self.names().is_ok_and(|names| names.iter().all(|name| name == ".lock")) {
            // Whoever waits for the lock finds that there is nothing.
            let _ = fs::remove_file(self.root.join(".lock"));
            let _ = fs::remove_dir(&self.root);
        }
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

/// What must hold of a stored source; the fault otherwise.
fn check(
    record: &SourceRecord,
    portrait: &[u8],
    consents: &[ConsentRecord],
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
    if consents.iter().any(|consent| consent.identity != record.identity) {
        return Err("a consent record of it is bound to another source".to_owned());
    }
    Ok(())
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
    use mien_base::clock::Wall;
    use mien_base::consent::Quality;

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

    /// As the versions before wrote it.
    fn written(home: &Home, name: &str) -> PathBuf {
        let folder = home.identities().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("source.json"), serde_json::to_vec(&record()).unwrap()).unwrap();
        fs::write(folder.join("portrait.png"), portrait()).unwrap();
        fs::write(folder.join("consent.json"), serde_json::to_vec(&consent()).unwrap()).unwrap();
        folder
    }

    #[test]
    fn an_old_source_is_read_as_it_was_written() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        assert!(OldStore::find(&home).unwrap().is_none());
        written(&home, "astronaut");
        let store = OldStore::find(&home).unwrap().unwrap();
        assert_eq!(store.list().unwrap(), [id()]);
        let got = store.get(&id()).unwrap();
        assert_eq!((got.record, got.portrait), (record(), portrait()));
        assert_eq!(got.consents, [consent()]);
    }

    #[test]
    fn erasing_overwrites_before_it_unlinks_and_leaves_no_folder() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        let folder = written(&home, "astronaut");
        // A second name for the same blocks shows what became of them.
        let witness = scratch.0.join("witness");
        fs::hard_link(folder.join("portrait.png"), &witness).unwrap();
        let store = OldStore::find(&home).unwrap().unwrap();
        store.erase(&id()).unwrap();
        store.close();
        assert_eq!(fs::read(&witness).unwrap(), vec![0; portrait().len()]);
        assert!(!home.identities().exists());
    }

    #[test]
    fn what_a_killed_put_or_erase_left_is_cleared_and_never_listed() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        for left in [".new-astronaut", ".forget-hopper"] {
            fs::create_dir_all(home.identities().join(left)).unwrap();
            fs::write(home.identities().join(left).join("portrait.png"), b"half").unwrap();
        }
        let store = OldStore::find(&home).unwrap().unwrap();
        assert_eq!(store.list().unwrap(), []);
        assert_eq!(store.names().unwrap(), [".lock"]);
    }

    #[test]
    fn a_source_that_can_not_be_is_refused() {
        let mut nan = record();
        nan.mesh[3][1] = f32::NAN;
        let mut wide = record();
        wide.embedding = vec![0.0; limits::EMBEDDING + 1];
        let mut other = consent();
        other.identity = "hopper".parse().unwrap();
        assert!(check_source(&record(), &portrait(), &[consent()]).is_ok());
        for refused in [
            check_source(&nan, &portrait(), &[]),
            check_source(&wide, &portrait(), &[]),
            check_source(&record(), b"GIF89a", &[]),
            check_source(&record(), &portrait(), &[other]),
        ] {
            assert!(matches!(refused, Err(Error::SourceBad { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_record_copied_to_another_name_or_with_unknown_keys_is_damaged() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        let folder = written(&home, "astronaut");
        written(&home, "hopper");
        let store = OldStore::find(&home).unwrap().unwrap();
        let hopper: IdentityId = "hopper".parse().unwrap();
        assert!(matches!(store.get(&hopper), Err(Error::SourceDamaged { .. })));
        let path = folder.join("consent.json");
        let text = fs::read_to_string(&path).unwrap().replacen('{', "{\"x\": 1,", 1);
        fs::write(&path, text).unwrap();
        assert!(matches!(store.get(&id()), Err(Error::SourceDamaged { .. })));
    }
}
