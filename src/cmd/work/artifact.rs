//! What jobs read and write: only below the folders that are open to them, and only what was named.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use mien_base::limits;
use mien_daemon::contract::{Reason, Refusal};
use mien_vault::digest;
use serde::Deserialize;

/// Something that a job takes in, with what it must be.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Artifact {
    uri: String,
    sha256: String,
    size: u64,
}

/// Where a job's output goes.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Target {
    pub(super) uri: String,
}

/// Most bytes of an artifact that stands in the document.
const INLINE: usize = 64 << 10;

fn refused(at: &str, reason: Reason, detail: impl Into<String>) -> Refusal {
    Refusal::at(reason, at, detail)
}

/// The path of a `file:` address.
fn path_of<'a>(uri: &'a str, at: &str) -> Result<&'a Path, Refusal> {
    let Some(rest) = uri.strip_prefix("file:") else {
        let detail = "this device takes file: and, for what is small, inline: addresses";
        return Err(refused(at, Reason::Unavailable, detail));
    };
    let path = Path::new(rest.strip_prefix("//").unwrap_or(rest));
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) {
        let detail = "must be file: and an absolute path without `..`";
        return Err(refused(at, Reason::InvalidRequest, detail));
    }
    Ok(path)
}

/// A path that really lies below one of the folders, whatever links lead there.
fn below(path: &Path, folders: &[PathBuf], at: &str, reason: Reason) -> Result<PathBuf, Refusal> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused(at, Reason::InvalidRequest, "names no file"));
    };
    let real = std::fs::canonicalize(folder)
        .map_err(|error| refused(at, reason, format!("its folder: {error}")))?;
    let inside = folders
        .iter()
        .any(|open| std::fs::canonicalize(open).is_ok_and(|open| real.starts_with(open)));
    if !inside {
        let detail = "lies outside the folders that are open to jobs";
        return Err(refused(at, Reason::Unauthorized, detail));
    }
    Ok(real.join(name))
}

impl Artifact {
    /// What can be told before the work begins.
    pub(super) fn admit(&self, at: &str) -> Result<(), Refusal> {
        let uri = format!("{at}/uri");
        if let Some(text) = self.uri.strip_prefix("inline:") {
            if text.len() > INLINE * 4 / 3 + 4 {
                return Err(refused(
                    &uri,
                    Reason::TooLarge,
                    "more than 64 KiB are no inline: ones",
                ));
            }
            return Ok(());
        }
        path_of(&self.uri, &uri).map(drop)
    }

    /// The file of a `file:` artifact, opened and checked to its last byte.
    pub(super) fn file(&self, folders: &[PathBuf], at: &str) -> Result<PathBuf, Refusal> {
        let path = path_of(&self.uri, &format!("{at}/uri"))?;
        let path = below(path, folders, at, Reason::InputUnreadable)?;
        let unreadable =
            |error: std::io::Error| refused(at, Reason::InputUnreadable, error.to_string());
        let meta = std::fs::symlink_metadata(&path).map_err(unreadable)?;
        if !meta.is_file() {
            return Err(refused(at, Reason::InputUnreadable, "is no regular file"));
        }
        if meta.len() != self.size {
            let detail = format!("has {} bytes, not {}", meta.len(), self.size);
            return Err(refused(&format!("{at}/size"), Reason::InputUnreadable, detail));
        }
        let file = File::open(&path).map_err(unreadable)?;
        let (found, _) = digest::of_reader(file, self.size).map_err(unreadable)?;
        if found != self.sha256 {
            let detail = format!("has SHA-256 {found}");
            return Err(refused(&format!("{at}/sha256"), Reason::InputUnreadable, detail));
        }
        Ok(path)
    }

    /// A small artifact as bytes, which can't change any more.
    pub(super) fn bytes(&self, folders: &[PathBuf], at: &str) -> Result<Vec<u8>, Refusal> {
        if self.size > limits::PICTURE_FILE {
            let detail = format!("at most {} MiB", limits::PICTURE_FILE >> 20);
            return Err(refused(&format!("{at}/size"), Reason::TooLarge, detail));
        }
        let bytes = match self.uri.strip_prefix("inline:") {
            Some(text) => mien_vault::text::unbase64(text)
                .ok_or_else(|| refused(at, Reason::InvalidRequest, "must be base64"))?,
            None => {
                let path = self.file(folders, at)?;
                std::fs::read(&path)
                    .map_err(|error| refused(at, Reason::InputUnreadable, error.to_string()))?
            }
        };
        if bytes.len() as u64 != self.size || digest::of(&bytes) != self.sha256 {
            let detail = "is not what its size and SHA-256 say";
            return Err(refused(at, Reason::InputUnreadable, detail));
        }
        Ok(bytes)
    }
}

impl Target {
    pub(super) fn admit(&self, at: &str) -> Result<(), Refusal> {
        path_of(&self.uri, &format!("{at}/uri")).map(drop)
    }

    /// Where it lies.
    pub(super) fn path(&self, folders: &[PathBuf], at: &str) -> Result<PathBuf, Refusal> {
        let path = path_of(&self.uri, &format!("{at}/uri"))?;
        below(path, folders, at, Reason::OutputUnwritable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_really_lies_below_an_open_folder_is_read() {
        let at = std::env::temp_dir().join(format!("mien-artifact-{}", std::process::id()));
        let (open, closed) = (at.join("open"), at.join("closed"));
        std::fs::create_dir_all(&open).unwrap();
        std::fs::create_dir_all(&closed).unwrap();
        std::fs::write(open.join("a"), b"abc").unwrap();
        std::fs::write(closed.join("b"), b"abc").unwrap();
        std::os::unix::fs::symlink(&closed, open.join("way")).unwrap();
        std::os::unix::fs::symlink(closed.join("b"), open.join("link")).unwrap();
        let read = |path: &Path, sha256: &str, size| {
            let (uri, sha256) = (format!("file:{}", path.display()), sha256.to_owned());
            let artifact = Artifact { uri, sha256, size };
            artifact.bytes(std::slice::from_ref(&open), "/input").map_err(|refusal| refusal.reason)
        };
        let right = digest::of(b"abc");
        assert_eq!(read(&open.join("a"), &right, 3), Ok(b"abc".to_vec()));
        assert_eq!(read(&open.join("a"), &right, 4), Err(Reason::InputUnreadable));
        assert_eq!(read(&open.join("a"), &digest::of(b"x"), 3), Err(Reason::InputUnreadable));
        assert_eq!(read(&closed.join("b"), &right, 3), Err(Reason::Unauthorized));
        assert_eq!(read(&open.join("way/b"), &right, 3), Err(Reason::Unauthorized));
        assert_eq!(read(&open.join("link"), &right, 3), Err(Reason::InputUnreadable));
        assert_eq!(read(&open.join("../closed/b"), &right, 3), Err(Reason::InvalidRequest));
        assert_eq!(read(&open.join("none"), &right, 3), Err(Reason::InputUnreadable));
        std::fs::remove_dir_all(&at).unwrap();
    }
}
