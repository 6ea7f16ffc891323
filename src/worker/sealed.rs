//! Sealed memory of the root program, mapped to be read: a model without a second copy of it.

#![allow(unsafe_code)] // One map of memory that nobody can change.

use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};

use memmap2::{Mmap, MmapOptions};
use mien_base::limits;
use mien_base::model::Manifest;
use mien_engine::backend::Backend;
use mien_face::models::Models;
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;

use crate::{Error, Result, load};

/// The bytes of a file that is as the root program left it.
#[derive(Debug)]
pub enum Bytes {
    /// A memfd sealed against writing, growing and shrinking: its own pages.
    Mapped(Mmap),
    /// A file that others may still change: a copy.
    Read(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Read(bytes) => bytes,
        }
    }
}

/// A whole file: mapped where it is sealed, else read.
///
/// # Errors
/// As [`load::read`].
pub fn bytes(fd: &OwnedFd, what: &'static str, most: u64) -> Result<Bytes> {
    let size = load::size(fd, what, most)?;
    if size == 0 || !is_sealed(fd) {
        return load::read(fd, what, most).map(Bytes::Read);
    }
    let length = usize::try_from(size).map_err(|_| Error::TooLarge {
        what,
        found: size,
        most: usize::MAX as u64,
    })?;
    // SAFETY: the file is memory sealed against writing, growing and shrinking, for good: no
    // process can change a byte that is borrowed from the map, or take one of its pages away.
    let map = unsafe { MmapOptions::new().len(length).map_copy_read_only(fd) };
    let failed = |error: std::io::Error| {
        let code = error.raw_os_error();
        let source = code.map_or(Errno::IO, Errno::from_raw_os_error);
        Error::File { what, verb: "mapped", source }
    };
    map.map(Bytes::Mapped).map_err(failed)
}

/// Loads a model into its slot. The root program has checked the digest.
///
/// # Errors
/// Of [`bytes`], `Size` when it is not as long as its manifest says, `Face`.
pub fn model<B: Backend>(models: &mut Models<B>, manifest: Manifest, fd: &OwnedFd) -> Result<()> {
    let bytes = bytes(fd, "model", limits::MODEL_FILE)?;
    if bytes.len() as u64 != manifest.bytes {
        let (found, expected) = (bytes.len() as u64, manifest.bytes);
        return Err(Error::Size { what: "model", found, expected });
    }
    models.load(manifest, &bytes).map_err(Error::Face)
}

/// True for memory that can't be written, grown or shrunk. Only a memfd has seals.
fn is_sealed(fd: &impl AsFd) -> bool {
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK;
    fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

    fn memory(name: &str, bytes: &[u8], seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create(name, flags).unwrap();
        rustix::io::write(&fd, bytes).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    const ALL: SealFlags =
        SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

    /// The lines of this process's maps that name a memfd.
    fn maps(name: &str) -> Vec<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let named = format!("/memfd:{name} (deleted)");
        maps.lines().filter(|line| line.ends_with(&named)).map(str::to_owned).collect()
    }

    #[test]
    fn sealed_memory_is_mapped_read_only_and_stands_in_the_maps_by_its_name() {
        let fd = memory("mien-mapped", b"a model", ALL);
        let bytes = bytes(&fd, "model", 100).unwrap();
        assert!(matches!(bytes, Bytes::Mapped(_)));
        assert_eq!(&*bytes, b"a model");
        let lines = maps("mien-mapped");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(" r--p "), "{lines:?}");
        drop(bytes);
        assert!(maps("mien-mapped").is_empty());
    }

    #[test]
    fn what_others_could_change_is_copied_and_never_mapped() {
        for seals in [
            SealFlags::empty(),
            SealFlags::GROW | SealFlags::SHRINK,
            SealFlags::WRITE | SealFlags::GROW,
            SealFlags::WRITE | SealFlags::SHRINK,
        ] {
            let fd = memory("mien-open", b"a model", seals);
            let bytes = bytes(&fd, "model", 100).unwrap();
            assert!(matches!(bytes, Bytes::Read(_)), "{seals:?}");
            assert_eq!(&*bytes, b"a model");
        }
    }

    #[test]
    fn sealed_memory_beyond_its_bound_is_refused_before_it_is_mapped() {
        let fd = memory("mien-long", &[0; 101], ALL);
        assert!(matches!(bytes(&fd, "model", 100), Err(Error::TooLarge { found: 101, .. })));
        assert!(bytes(&memory("mien-none", b"", ALL), "model", 100).unwrap().is_empty());
    }
}
