//! The models that serve: sealed packages first, else plain files whose digest is pinned.
//!
//! Plain files are what a home of an earlier version holds, and what tests and authoring tools
//! read; `plain = false` in vault.toml refuses them.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mien_base::clock::Clock;
use mien_base::id::ModelId;
use mien_base::limits;
use mien_base::model::{Manifest, Role};

use crate::catalog;
use crate::digest;
use crate::errors::{Error, Result};
use crate::files;
use crate::home::Home;
use crate::install::Packages;
use crate::memfd;
use crate::settings::Settings;

/// Where the supervisor gets a worker's models from.
pub trait ModelSource: Send {
    /// The model with this id, installed or not.
    ///
    /// # Errors
    /// `ModelUnknown`; `Refused` for a package that does not hold, or a licence that forbids;
    /// `Manifest` or `Io` when the user's own manifest can't be read.
    fn by_id(&self, id: &ModelId) -> Result<Manifest>;

    /// The preferred installed model of a role, `None` when none is installed.
    ///
    /// # Errors
    /// `Refused` when the only ones are forbidden by their licence, or the preferred one's package
    /// does not hold; `Manifest` or `Io` when one of the user's own manifests can't be read.
    fn by_role(&self, role: Role) -> Result<Option<Manifest>>;

    /// The model's bytes in sealed memory, checked on their way into it.
    ///
    /// # Errors
    /// `ModelMissing`, `Refused`, `Size`, `Digest`, `TooLarge`, `Io`, `Memory`.
    fn open(&self, manifest: &Manifest) -> Result<OwnedFd>;
}

/// A model that is known, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub manifest: Manifest,
    /// Brought by the user, not of the catalogue.
    pub own: bool,
    pub state: State,
}

/// How a model is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Missing,
    /// A plain file of the right size; its digest is checked when it is opened.
    Plain(PathBuf),
    /// The active package.
    Sealed(crate::manifest::Version),
    /// A package is active, and it does not hold; why.
    Refused(String),
}

impl State {
    /// True when it can be asked for.
    #[must_use]
    pub const fn installed(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Sealed(_))
    }
}

/// Packages, the plain models of the catalogue, and the user's own: `NAME.toml` (a manifest)
/// beside `NAME.onnx`.
#[derive(Debug, Clone)]
pub struct ModelStore {
    home: Home,
    packages: Packages,
}

impl ModelStore {
    /// The models of a home.
    #[must_use]
    pub fn new(home: &Home, clock: Arc<dyn Clock>) -> Self {
        Self { home: home.clone(), packages: Packages::new(home, clock) }
    }

    /// The installed packages.
    #[must_use]
    pub const fn packages(&self) -> &Packages {
        &self.packages
    }

    /// Every known model: the catalogue in its order, then the others by name.
    ///
    /// # Errors
    /// `Manifest` or `Io` when one of the user's own manifests can't be read.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let slots = self.packages.slots()?;
        let mut known: Vec<(Manifest, bool)> =
            catalog::models().iter().map(|model| (model.manifest(), false)).collect();
        let mut own: Vec<Manifest> = self.own_manifests()?;
        for installed in self.packages.list()? {
            let id = &installed.manifest.id;
            if catalog::model(id).is_none() && !own.iter().any(|m| m.id == *id) {
                own.push(installed.manifest.model());
            }
        }
        own.sort_by(|a, b| a.id.cmp(&b.id));
        known.extend(own.into_iter().map(|manifest| (manifest, true)));
        let mut listed = Vec::new();
        for (manifest, own) in known {
            let sealed = slots.slot(&manifest.id).active.is_some();
            listed.push(match sealed.then(|| self.packages.active(&manifest.id)) {
                Some(Ok(Some(package))) => {
                    let state = State::Sealed(package.manifest().version);
                    Listed { manifest: package.manifest().model(), own, state }
                }
                Some(Err(error)) => {
                    Listed { manifest, own, state: State::Refused(error.to_string()) }
                }
                _ => {
                    let state = self.plain(&manifest).map_or(State::Missing, State::Plain);
                    Listed { manifest, own, state }
                }
            });
        }
        Ok(listed)
    }

    /// Reads a model once and compares its digest; of a package every chunk is opened.
    ///
    /// # Errors
    /// `ModelMissing`, `Refused`, `Size`, `Digest`, `Io`.
    pub fn check(&self, manifest: &Manifest) -> Result<()> {
        if let Some(package) = self.packages.active(&manifest.id)? {
            return package.check(self.packages.device()?);
        }
        let path = self.plain_path(manifest)?;
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

    /// Where a model's plain file stands, when it has one.
    #[must_use]
    pub fn path(&self, id: &ModelId) -> PathBuf {
        let known = catalog::model(id).is_some();
        let folder = if known { self.home.models() } else { self.home.own_models() };
        folder.join(format!("{id}.onnx"))
    }

    /// The plain file of a model, of the right size, where plain files are served.
    fn plain(&self, manifest: &Manifest) -> Option<PathBuf> {
        let path = self.path(&manifest.id);
        let meta = fs::metadata(&path).ok()?;
        let served = Settings::of(&self.home).is_ok_and(|settings| settings.plain);
        (served && meta.is_file() && meta.len() == manifest.bytes).then_some(path)
    }

    fn plain_path(&self, manifest: &Manifest) -> Result<PathBuf> {
        let path = self.path(&manifest.id);
        if manifest.bytes > limits::MODEL_FILE {
            return Err(Error::TooLarge { path, max: limits::MODEL_FILE });
        }
        if !Settings::of(&self.home)?.plain {
            return Err(Error::ModelMissing { id: manifest.id.clone() });
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
        let paths = files::entries(&self.home.own_models())?;
        let manifests = paths.iter().filter(|path| path.extension().is_some_and(|e| e == "toml"));
        manifests.map(|path| read_manifest(path)).collect()
    }
}

impl ModelSource for ModelStore {
    fn by_id(&self, id: &ModelId) -> Result<Manifest> {
        if let Some(package) = self.packages.active(id)? {
            return Ok(package.manifest().model());
        }
        let manifest = match catalog::model(id) {
            Some(model) => model.manifest(),
            None => {
                let path = self.home.own_models().join(format!("{id}.toml"));
                if !path.exists() {
                    return Err(Error::ModelUnknown { id: id.clone() });
                }
                read_manifest(&path)?
            }
        };
        Settings::of(&self.home)?.admit(&manifest)?;
        Ok(manifest)
    }

    fn by_role(&self, role: Role) -> Result<Option<Manifest>> {
        if let Some(id) = self.packages.slots()?.preferred.get(&role) {
            // The one that was chosen, or nothing: another in its place would surprise.
            if let Some(package) = self.packages.active(id)? {
                return Ok(Some(package.manifest().model()));
            }
        }
        let settings = Settings::of(&self.home)?;
        let mut forbidden = None;
        for listed in self.list()?.into_iter().filter(|l| l.manifest.role == role) {
            if matches!(listed.state, State::Refused(_)) {
                // Gives the reason; another model in its place would surprise.
                self.packages.active(&listed.manifest.id)?;
            }
            if listed.state.installed() {
                match settings.admit(&listed.manifest) {
                    Ok(()) => return Ok(Some(listed.manifest)),
                    Err(error) => forbidden = forbidden.or(Some(error)),
                }
            }
        }
        forbidden.map_or(Ok(None), Err)
    }

    fn open(&self, manifest: &Manifest) -> Result<OwnedFd> {
        if let Some(package) = self.packages.active(&manifest.id)? {
            if package.manifest().sha256 != manifest.sha256 {
                let why = "came into use in another version meanwhile; try again".to_owned();
                return Err(Error::Slot { id: manifest.id.clone(), why });
            }
            return package.open(self.packages.device()?);
        }
        Settings::of(&self.home)?.admit(manifest)?;
        let path = self.plain_path(manifest)?;
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
    use crate::random::tests::Counted;
    use crate::refusal::Reason;
    use crate::trust::tests::NOW;
    use mien_base::clock::ManualClock;
    use std::io::Read as _;

    fn clock() -> Arc<dyn Clock> {
        Arc::new(ManualClock::at(NOW))
    }

    fn own(scratch: &Scratch, name: &str, text: &str, bytes: &[u8]) -> ModelStore {
        let home = Home::at(&scratch.0);
        files::private_dir(&home.own_models()).unwrap();
        fs::write(home.own_models().join(format!("{name}.toml")), text).unwrap();
        fs::write(home.own_models().join(format!("{name}.onnx")), bytes).unwrap();
        ModelStore::new(&home, clock())
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
        let store = ModelStore::new(&Home::at(&scratch.0), clock());
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

    fn sealed(store: &ModelStore, id: &str, weights: &[u8]) {
        let mut made = crate::manifest::tests::manifest(id, weights);
        made.role = Role::Swapper;
        store.packages().adopt(made, &mut &*weights, &mut Counted(0), &mut Vec::new()).unwrap();
    }

    fn bytes_of(store: &ModelStore, manifest: &Manifest) -> Vec<u8> {
        let mut bytes = Vec::new();
        fs::File::from(store.open(manifest).unwrap()).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_package_serves_before_a_plain_file_of_its_name() {
        let scratch = Scratch::new();
        let store = own(&scratch, "mine", &manifest("mine", b"weights"), b"weights");
        sealed(&store, "mine", b"sealed");
        let found = store.by_id(&"mine".parse().unwrap()).unwrap();
        assert_eq!(found, store.by_role(Role::Swapper).unwrap().unwrap());
        assert_eq!(bytes_of(&store, &found), b"sealed");
        let listed = store.list().unwrap().into_iter().find(|l| l.own).unwrap();
        assert_eq!(listed.state, State::Sealed("1.0.0".parse().unwrap()));
    }

    #[test]
    fn the_model_that_a_user_activates_is_its_role_s_default() {
        let scratch = Scratch::new();
        let store = ModelStore::new(&Home::at(&scratch.0), clock());
        sealed(&store, "a", b"first");
        sealed(&store, "b", b"second");
        assert_eq!(store.by_role(Role::Swapper).unwrap().unwrap().id.as_str(), "a");
        let (id, version) = ("b".parse().unwrap(), "1.0.0".parse().unwrap());
        store.packages().activate(&id, version, None, &mut Vec::new()).unwrap();
        assert_eq!(store.by_role(Role::Swapper).unwrap().unwrap().id, id);
    }

    #[test]
    fn a_package_that_does_not_hold_is_not_replaced_by_a_plain_file() {
        let scratch = Scratch::new();
        let store = own(&scratch, "mine", &manifest("mine", b"weights"), b"weights");
        sealed(&store, "mine", b"sealed");
        let path = store.packages().list().unwrap().remove(0).path;
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(store.by_id(&"mine".parse().unwrap()).unwrap_err().reason().is_some());
        assert!(store.by_role(Role::Swapper).unwrap_err().reason().is_some());
    }

    #[test]
    fn plain_files_and_forbidding_licences_are_refused_where_the_owner_says_so() {
        let scratch = Scratch::new();
        let store = own(&scratch, "mine", &manifest("mine", b"weights"), b"weights");
        let id = "mine".parse().unwrap();
        let settings = |text: &str| fs::write(scratch.0.join("vault.toml"), text).unwrap();
        settings("commercial = true");
        assert_eq!(store.by_id(&id).unwrap_err().reason(), Some(Reason::LicenceForbids));
        let refused = store.by_role(Role::Swapper).unwrap_err();
        assert_eq!(refused.reason(), Some(Reason::LicenceForbids));
        settings("plain = false");
        let known = store.by_id(&id).unwrap();
        assert!(matches!(store.open(&known), Err(Error::ModelMissing { .. })));
        assert!(store.by_role(Role::Swapper).unwrap().is_none());
    }
}
