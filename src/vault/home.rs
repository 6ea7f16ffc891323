//! Where models, pictures and identities live: `MIEN_HOME`, else the XDG folders.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::errors::{Error, Result};
use crate::files;

/// Two folders: one that can be fetched again, and one that can't.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    cache: PathBuf,
    data: PathBuf,
}

impl Home {
    /// Everything under one folder.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { cache: path.to_owned(), data: path.to_owned() }
    }

    /// From the environment: `MIEN_HOME`, else `XDG_CACHE_HOME/mien` and `XDG_DATA_HOME/mien`, else
    /// `~/.cache/mien` and `~/.local/share/mien`.
    ///
    /// # Errors
    /// `NoHome` when none of these is an absolute path.
    pub fn from_env() -> Result<Self> {
        Self::from_vars(|name| std::env::var_os(name))
    }

    fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        if let Some(home) = var("MIEN_HOME").filter(|v| !v.is_empty()) {
            let home = std::path::absolute(home).map_err(|_| Error::NoHome)?;
            return Ok(Self::at(&home));
        }
        // The XDG specification: a relative path is to be ignored.
        let absolute = |name| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = |name, below: &str| {
            let base = absolute(name).or_else(|| absolute("HOME").map(|home| home.join(below)));
            base.map(|base| base.join("mien")).ok_or(Error::NoHome)
        };
        Ok(Self {
            cache: folder("XDG_CACHE_HOME", ".cache")?,
            data: folder("XDG_DATA_HOME", ".local/share")?,
        })
    }

    /// Models of the catalogue.
    #[must_use]
    pub fn models(&self) -> PathBuf {
        self.cache.join("models")
    }

    /// The user's own models, each with its manifest. The same folder under `MIEN_HOME`.
    #[must_use]
    pub fn own_models(&self) -> PathBuf {
        self.data.join("models")
    }

    /// Fetched pictures.
    #[must_use]
    pub fn pictures(&self) -> PathBuf {
        self.cache.join("pictures")
    }

    /// What can't be fetched again: the database, the sealed segments of its record, keys.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Enrolled sources as versions before the database kept them.
    #[must_use]
    pub fn identities(&self) -> PathBuf {
        self.data.join("identities")
    }

    /// Keys of this machine, and whom it trusts.
    #[must_use]
    pub fn keys(&self) -> PathBuf {
        self.data.join("keys")
    }

    /// Installed model packages.
    #[must_use]
    pub fn packages(&self) -> PathBuf {
        self.data.join("packages")
    }

    /// Pictures with faces by which models are measured before they serve.
    #[must_use]
    pub fn frames(&self) -> PathBuf {
        self.data.join("frames")
    }

    /// What the machine's owner decided about models.
    #[must_use]
    pub fn settings(&self) -> PathBuf {
        self.data.join("vault.toml")
    }

    /// Packages on their way to becoming models and pictures.
    pub(crate) fn fetching(&self) -> PathBuf {
        self.cache.join("fetching")
    }

    /// Makes both folders, for their owner only.
    ///
    /// # Errors
    /// `Io` when one can't be made.
    pub fn create(&self) -> Result<()> {
        files::private_dir(&self.cache)?;
        files::private_dir(&self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(vars: &[(&str, &str)]) -> Result<Home> {
        Home::from_vars(|name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn mien_home_wins_and_holds_everything() {
        let home = home(&[("MIEN_HOME", "/m"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]).unwrap();
        assert_eq!(home, Home::at(Path::new("/m")));
        assert_eq!(home.identities(), Path::new("/m/identities"));
    }

    #[test]
    fn xdg_splits_what_can_be_fetched_again_from_what_cannot() {
        let home = home(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]).unwrap();
        assert_eq!(home.models(), Path::new("/h/.cache/mien/models"));
        assert_eq!(home.identities(), Path::new("/h/.local/share/mien/identities"));
    }

    #[test]
    fn without_any_home_the_error_says_what_to_set() {
        let error = home(&[("MIEN_HOME", "")]).unwrap_err();
        assert!(error.to_string().contains("MIEN_HOME"), "{error}");
    }
}
