//! Installed models: found by id or role, opened as sealed memory, digest checked on the way.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use mien_base::id::ModelId;
use mien_base::limits;
use mien_base::model::{Manifest, Role};

use crate::catalog;
use crate::digest;
use crate::errors::{Error, Result};
use crate::files;
use crate::home::Home;
use crate::memfd;

/// Where the supervisor gets a worker's models from.
pub trait ModelSource {
    /// The model with this id, installed or not.
    ///
    /// # Errors
    /// `ModelUnknown`; `Manifest` or `Io` when the user's own manifest can't be read.
    fn by_id(&self, id: &ModelId) -> Result<Manifest>;

    /// The preferred installed model of a role, `None` when none is installed.
    ///
    /// # Errors
    /// `Manifest` or `Io` when one of the user's own manifests can't be read.
    fn by_role(&self, role: Role) -> Result<Option<Manifest>>;

    /// The model's bytes in sealed memory, size and digest checked while they were copied.
    ///
    /// # Errors
    /// `ModelMissing`, `Size`, `Digest`, `TooLarge`, `Io`, `Memory`.
    fn open(&self, manifest: &Manifest) -> Result<OwnedFd>;
}

/// A model that is known, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub manifest: Manifest,
    /// Brought by the user, not of the catalogue.
    pub own: bool,
    pub path: PathBuf,
    /// A file of the right size stands at `path`; its digest is checked when it is opened.
    pub installed: bool,
}

/// The models of the catalogue and the user's own: `NAME.toml` (a manifest) beside `NAME.onnx`.
#[derive(Debug, Clone)]
pub struct ModelStore {
    catalogue: PathBuf,
    own: PathBuf,
}

impl ModelStore {
    /// The models of a home.
    #[must_use]
    pub fn new(home: &Home) -> Self {
        Self { catalogue: home.models(), own: home.own_models() }
    }

    /// Every known model: the catalogue in its order, then the user's own by name.
    ///
    /// # Errors
    /// `Manifest` or `Io` when one of the user's own manifests can't be read.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let known = catalog::models().iter().map(|model| self.listed(model.manifest(), false));
        let own = self.own_manifests()?;
        Ok(known.chain(own.into_iter().map(|manifest| self.listed(manifest, true))).collect())
    }

    /// Reads a model's file once and compares its digest.
    ///
    /// # Errors
    /// `ModelMissing`, `Size`, `Digest`, `Io`.
    pub fn check(&self, manifest: &Manifest) -> Result<()> {
        let path = self.installed_path(manifest)?;
        let file = files::open_regular(&path)?;
        let (found, size) =
            digest::of_reader(file, manifest.bytes).map_err(files::io("read", &path))?;
        if size != manifest.bytes {
            return Err(Error::Size { path, expected: manifest.bytes, found: size });
        }
        if found != manifest.sha256 {
            return Err(Error::Digest { path, expected: manifest.sha256.clone(), found });
        }
        Ok(())
    }

    /// Where a model's file stands when it is installed.
    #[must_use]
    pub fn path(&self, id: &ModelId) -> PathBuf {
        let folder = if catalog::model(id).is_some() { &self.catalogue } else { &self.own };
        folder.join(format!("{id}.onnx"))
    }

    fn listed(&self, manifest: Manifest, own: bool) -> Listed {
        let path = self.path(&manifest.id);
        let installed =
            fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() == manifest.bytes);
        Listed { manifest, own, path, installed }
    }

    fn installed_path(&self, manifest: &Manifest) -> Result<PathBuf> {
        let path = self.path(&manifest.id);
        if manifest.bytes > limits::MODEL_FILE {
            return Err(Error::TooLarge { path, max: limits::MODEL_FILE });
        }
        match fs::metadata(&path) {
            Ok(_) => Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::ModelMissing { id: manifest.id.clone() })
            }
            Err(error) => Err(files::io("read", &path)(error)),
        }
    }

    fn own_manifests(&self) -> Result<Vec<Manifest>> {
        let entries = match fs::read_dir(&self.own) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(files::io("list", &self.own)(error)),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(files::io("list", &self.own))?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| read_manifest(path)).collect()
    }
}

impl ModelSource for ModelStore {
    fn by_id(&self, id: &ModelId) -> Result<Manifest> {
        if let Some(model) = catalog::model(id) {
            return Ok(model.manifest());
        }
        let path = self.own.join(format!("{id}.toml"));
        if !path.exists() {
            return Err(Error::ModelUnknown { id: id.clone() });
        }
        read_manifest(&path)
    }

    fn by_role(&self, role: Role) -> Result<Option<Manifest>> {
        let listed = self.list()?.into_iter();
        Ok(listed.filter(|l| l.installed && l.manifest.role == role).map(|l| l.manifest).next())
    }

    fn open(&self, manifest: &Manifest) -> Result<OwnedFd> {
        let path = self.installed_path(manifest)?;
        memfd::sealed_copy(&path, manifest.bytes, &manifest.sha256)
    }
}

/// A manifest of the user's: named as its file, not as a model of the catalogue.
fn read_manifest(path: &Path) -> Result<Manifest> {
    let refuse = |why: String| Error::Manifest { path: path.to_owned(), why };
    let bytes = files::read_bounded(path, limits::TEXT_FILE)?;
    let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8".to_owned()))?;
    let manifest: Manifest =
        toml::from_str(&text).map_err(|error| refuse(error.message().to_owned()))?;
    if path.file_stem().is_none_or(|stem| stem != manifest.id.as_str()) {
        return Err(refuse(format!("`id` is `{}`, it must be the file's name", manifest.id)));
    }
    if catalog::model(&manifest.id).is_some() {
        return Err(refuse(format!("`{}` is a model of the catalogue; rename yours", manifest.id)));
    }
    if !digest::is_hex(&manifest.sha256) {
        return Err(refuse("`sha256` must be 64 digits of 0-9, a-f".to_owned()));
    }
    if manifest.bytes == 0 || manifest.bytes > limits::MODEL_FILE {
        return Err(refuse(format!("`bytes` must be 1 to {}", limits::MODEL_FILE)));
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::Scratch;

    fn own(scratch: &Scratch, name: &str, text: &str, bytes: &[u8]) -> ModelStore {
        let home = Home::at(&scratch.0);
        files::private_dir(&home.own_models()).unwrap();
        fs::write(home.own_models().join(format!("{name}.toml")), text).unwrap();
        fs::write(home.own_models().join(format!("{name}.onnx")), bytes).unwrap();
        ModelStore::new(&home)
    }

    fn manifest(id: &str, bytes: &[u8]) -> String {
        format!(
            "id = \"{id}\"\nrole = \"swapper\"\nfamily = \"inswapper\"\nsha256 = \"{}\"\n\
             bytes = {}\nlicence = \"mine\"\ncommercial = false\n",
            digest::of(bytes),
            bytes.len()
        )
    }

    #[test]
    fn an_own_model_is_found_by_role_and_opened_when_its_digest_holds() {
        let scratch = Scratch::new();
        let store = own(&scratch, "mine", &manifest("mine", b"weights"), b"weights");
        let found = store.by_role(Role::Swapper).unwrap().unwrap();
        assert_eq!(found, store.by_id(&"mine".parse().unwrap()).unwrap());
        store.open(&found).unwrap();
        store.check(&found).unwrap();
        fs::write(store.path(&found.id), b"weightz").unwrap();
        assert!(matches!(store.open(&found), Err(Error::Digest { .. })));
        assert!(matches!(store.check(&found), Err(Error::Digest { .. })));
    }

    #[test]
    fn a_model_that_is_known_but_absent_says_how_to_get_it() {
        let scratch = Scratch::new();
        let store = ModelStore::new(&Home::at(&scratch.0));
        let manifest = store.by_id(&"centerface".parse().unwrap()).unwrap();
        let error = store.open(&manifest).unwrap_err();
        assert!(error.to_string().contains("mien model fetch"), "{error}");
        assert!(store.by_role(Role::Detector).unwrap().is_none());
        let unknown = store.by_id(&"nothing".parse().unwrap()).unwrap_err();
        assert!(matches!(unknown, Error::ModelUnknown { .. }));
    }

    #[test]
    fn an_own_manifest_that_lies_is_refused() {
        let good = manifest("mine", b"w");
        for (text, word) in [
            (good.replace("\"mine\"\nrole", "\"other\"\nrole"), "file's name"),
            (good.replace("bytes = 1", "bytes = 0"), "`bytes`"),
            (good.replace("sha256 = \"", "sha256 = \"X"), "`sha256`"),
            (format!("{good}colour = 1\n"), "colour"),
            (good.replace("swapper\"", "juggler\""), "juggler"),
        ] {
            let scratch = Scratch::new();
            let store = own(&scratch, "mine", &text, b"w");
            let error = store.list().unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        let scratch = Scratch::new();
        let store = own(&scratch, "centerface", &manifest("centerface", b"w"), b"w");
        assert!(store.list().unwrap_err().to_string().contains("catalogue"));
    }
}
