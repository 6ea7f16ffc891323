//! Private folders, bounded reads, and writes that are whole or absent after a power cut.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::errors::{Error, Result};

/// Names what was tried, for `map_err`.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
}

/// Makes a folder and its parents, open to their owner only (a parent that exists stays as it is).
pub(crate) fn private_dir(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io("create", path))?;
    let meta = fs::metadata(path).map_err(io("read", path))?;
    if meta.permissions().mode() & 0o077 != 0 {
        let own = fs::Permissions::from_mode(0o700);
        fs::set_permissions(path, own).map_err(io("restrict", path))?;
    }
    Ok(())
}

/// What nobody but the owner may do with a file that this program believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    /// Write it: it says whom to trust.
    Written,
    /// Read or write it: it is a secret.
    Read,
}

/// Reads a file of this program's own, of at most `max` bytes, that nobody else can have changed:
/// it and its folder can be written by their owner alone, and it is this user's, root's, or of the
/// folder's owner.
///
/// # Errors
/// `Exposed` with what is to be done, `TooLarge`, `Io`.
pub(crate) fn read_own(path: &Path, max: u64, own: Own) -> Result<Vec<u8>> {
    let file = open_regular(path)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    let meta = file.metadata().map_err(io("read", path))?;
    let above = fs::metadata(folder).map_err(io("read", folder))?;
    let exposed = |path: &Path, why: String| Err(Error::Exposed { path: path.to_owned(), why });
    if above.mode() & 0o022 != 0 {
        let why =
            format!("others may write into it (mode {:03o}); chmod 700", above.mode() & 0o777);
        return exposed(folder, why);
    }
    let (closed, may, mode) = match own {
        Own::Written => (0o022, "write", "go-w"),
        Own::Read => (0o077, "read or write", "600"),
    };
    if meta.mode() & closed != 0 {
        let why = format!("others may {may} it (mode {:03o}); chmod {mode}", meta.mode() & 0o777);
        return exposed(path, why);
    }
    let user = rustix::process::geteuid().as_raw();
    if ![user, 0, above.uid()].contains(&meta.uid()) {
        let why = format!("it belongs to user {}, who is neither you nor root", meta.uid());
        return exposed(path, why);
    }
    bounded(file, path, max)
}

/// Reads a regular file of at most `max` bytes.
pub(crate) fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>> {
    bounded(open_regular(path)?, path, max)
}

fn bounded(file: File, path: &Path, max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(io("read", path))?;
    if bytes.len() as u64 > max {
        return Err(Error::TooLarge { path: path.to_owned(), max });
    }
    Ok(bytes)
}

/// Opens a file for reading and refuses what is not a regular file, without waiting on a pipe.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblock)
        .open(path)
        .map_err(io("open", path))?;
    if !file.metadata().map_err(io("read", path))?.is_file() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        return Err(Error::Io { action: "read", path: path.to_owned(), source });
    }
    Ok(file)
}

/// Creates a file for its owner only, replacing what was there, and makes its bytes durable.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io("write", path))
}

/// Replaces a file as a whole: beside it, synced, renamed over it, folder synced.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = with_suffix(path, ".part");
    write_synced(&beside, bytes)?;
    rename(&beside, path)
}

/// Renames and makes the new name durable.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(io("rename to", to))?;
    sync_parent(to)
}

/// Makes names in the folder of `path` durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or_else(|| Path::new("/"));
    sync_dir(parent)
}

/// Makes names in a folder durable.
pub(crate) fn sync_dir(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(io("sync", path))
}

/// Appends to a file's name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What a folder holds, but hidden files, sorted; nothing when it is not there.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = match fs::read_dir(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io("list", folder)(error)),
    };
    let mut paths = Vec::new();
    for entry in found {
        paths.push(entry.map_err(io("list", folder))?.path());
    }
    paths.retain(|path| path.file_name().is_some_and(|n| !n.as_encoded_bytes().starts_with(b".")));
    paths.sort();
    Ok(paths)
}

/// Creates a file for its owner only, replacing what was there.
pub(crate) fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).map_err(io("create", path))
}

/// Holds a lock file until dropped; the kernel lets go of it when the process dies.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held open for its lock")] File);

impl Lock {
    /// Waits for the lock.
    pub(crate) fn wait(path: &Path) -> Result<Self> {
        loop {
            if let Some(lock) = Self::take(path, FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock, or `None` when another holds it.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Self>> {
        Self::take(path, FlockOperation::NonBlockingLockExclusive)
    }

    fn take(path: &Path, operation: FlockOperation) -> Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(io("create", path))?;
        match flock(&file, operation) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(errno) => Err(io("lock", path)(errno.into())),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder that is removed when dropped.
    #[derive(Debug)]
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("mien-vault-{}-{n}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn folders_are_private_even_when_they_were_not() {
        let scratch = Scratch::new();
        let dir = scratch.0.join("a/b");
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        private_dir(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_read_is_bounded_and_takes_only_regular_files() {
        let scratch = Scratch::new();
        let path = scratch.0.join("f");
        replace(&path, &[1; 10]).unwrap();
        assert_eq!(read_bounded(&path, 10).unwrap(), [1; 10]);
        assert!(matches!(read_bounded(&path, 9), Err(Error::TooLarge { max: 9, .. })));
        assert!(read_bounded(&scratch.0, 9).is_err());
        assert!(read_bounded(Path::new("/dev/zero"), 9).is_err());
    }

    #[test]
    fn what_others_could_have_changed_is_not_believed() {
        let scratch = Scratch::new();
        let path = scratch.0.join("f");
        replace(&path, b"own").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (file, folder, written, read) in [
            (0o600, 0o700, true, true),
            (0o644, 0o755, true, false),
            (0o664, 0o700, false, false),
            (0o602, 0o700, false, false),
            (0o600, 0o770, false, false),
            (0o600, 0o702, false, false),
        ] {
            set(&path, file);
            set(&scratch.0, folder);
            let found = [Own::Written, Own::Read].map(|own| read_own(&path, 9, own).is_ok());
            assert_eq!(found, [written, read], "{file:o} {folder:o}");
        }
        set(&scratch.0, 0o700);
        set(&path, 0o666);
        let error = read_own(&path, 9, Own::Written).unwrap_err().to_string();
        assert!(error.contains("mode 666") && error.contains("chmod go-w"), "{error}");
        // Only root can give a file away.
        if rustix::process::geteuid().is_root() {
            set(&path, 0o600);
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            let error = read_own(&path, 9, Own::Written).unwrap_err().to_string();
            assert!(error.contains("user 12345"), "{error}");
        }
    }

    #[test]
    fn a_held_lock_is_not_given_twice() {
        let scratch = Scratch::new();
        let path = scratch.0.join("lock");
        let held = Lock::try_take(&path).unwrap();
        assert!(held.is_some());
        assert!(Lock::try_take(&path).unwrap().is_none());
        drop(held);
        assert!(Lock::try_take(&path).unwrap().is_some());
    }
}
