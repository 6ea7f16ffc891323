//! Models in sealed memory: filled once, checked on the way, changed by nobody afterwards.
//!
//! The memory is no file: it has no name, it is gone with its last descriptor, and core dumps
//! leave it out. While it is filled it is locked against swapping where the kernel permits.

#![allow(unsafe_code)] // One map of memory that nobody else has.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use memmap2::{Advice, MmapMut, MmapOptions};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::digest::Hasher;
use crate::errors::{Error, Result};
use crate::files;

const SEAL_TRIES: u32 = 50;
const SEAL_PAUSE: Duration = Duration::from_millis(20);

/// Copies a regular file of exactly `bytes` bytes with digest `sha256` into a memfd that nobody can
/// write, grow or shrink any more.
pub(crate) fn sealed_copy(path: &Path, bytes: u64, sha256: &str) -> Result<OwnedFd> {
    let file = files::open_regular(path)?;
    let size = file.metadata().map_err(files::io("read", path))?.len();
    if size != bytes {
        return Err(Error::Size { path: path.to_owned(), expected: bytes, found: size });
    }
    let memory = |source| Error::Memory { source };
    let mut copy = create().map_err(memory)?;
    copy.set_len(bytes).map_err(memory)?;

    // One byte more than promised, so that a file that grew meanwhile is noticed.
    let mut input = file.take(bytes.saturating_add(1));
    let mut hasher = Hasher::default();
    let mut chunk = vec![0; 1 << 17];
    let mut total = 0;
    loop {
        let n = input.read(&mut chunk).map_err(files::io("read", path))?;
        let Some(part) = chunk.get(..n).filter(|part| !part.is_empty()) else { break };
        hasher.update(part);
        copy.write_all(part).map_err(memory)?;
        total += n as u64;
    }
    if total != bytes {
        return Err(Error::Size { path: path.to_owned(), expected: bytes, found: total });
    }
    let found = hasher.hex();
    if found != sha256 {
        let expected = sha256.to_owned();
        return Err(Error::Digest { path: path.to_owned(), expected, found });
    }
    seal(&copy).map_err(|errno| memory(errno.into()))?;
    copy.rewind().map_err(memory)?;
    Ok(copy.into())
}

/// Memory that is being filled in place.
#[derive(Debug)]
pub(crate) struct Filling {
    file: File,
    map: MmapMut,
    locked: bool,
}

impl Filling {
    /// Zeros, `room` bytes of them; not none.
    pub(crate) fn new(room: u64) -> Result<Self> {
        let memory = |source| Error::Memory { source };
        let file = create().map_err(memory)?;
        file.set_len(room).map_err(memory)?;
        let length =
            usize::try_from(room).map_err(|_| memory(io::ErrorKind::OutOfMemory.into()))?;
        // SAFETY: the file is ours alone: it has no name and its one descriptor is not given away
        // before `seal` has unmapped it; its length does not change while it is mapped.
        let map = unsafe { MmapOptions::new().len(length).map_mut(&file) };
        let map = map.map_err(memory)?;
        let _ = map.advise(Advice::DontDump);
        let locked = map.lock().is_ok();
        Ok(Self { file, map, locked })
    }

    /// True when the kernel keeps it out of swap.
    pub(crate) const fn locked(&self) -> bool {
        self.locked
    }

    /// All of it.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// Keeps the first `bytes` and lets nobody write, grow or shrink them any more.
    pub(crate) fn seal(self, bytes: u64) -> Result<OwnedFd> {
        let Self { file, map, .. } = self;
        drop(map);
        file.set_len(bytes).map_err(|source| Error::Memory { source })?;
        seal(&file).map_err(|errno| Error::Memory { source: errno.into() })?;
        Ok(file.into())
    }
}

/// Leaves this process out of core dumps, whole: keys and models pass through it. True when both
/// of the kernel's ways hold.
pub fn never_dump() -> bool {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let limited = setrlimit(Resource::Core, none).is_ok();
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok();
    limited && hidden
}

/// True when the kernel would keep a model of this size out of swap while it is opened.
#[must_use]
pub fn can_lock(bytes: u64) -> bool {
    Filling::new(bytes.max(1)).is_ok_and(|memory| memory.locked())
}

/// Seals memory against writing, growing and shrinking. While the kernel moves or reclaims one of
/// its pages it answers EBUSY: that passes.
///
/// # Errors
/// Of `F_ADD_SEALS`; EBUSY when it lasts longer than a second.
pub fn seal(memory: &impl AsFd) -> std::result::Result<(), Errno> {
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    for _ in 0..SEAL_TRIES {
        match fcntl_add_seals(memory, seals) {
            Err(Errno::BUSY) => std::thread::sleep(SEAL_PAUSE),
            other => return other,
        }
    }
    Err(Errno::BUSY)
}

/// A sealable memfd; not executable where the kernel knows how (6.3).
fn create() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = memfd_create("mien-model", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create("mien-model", flags))?;
    Ok(made.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest;
    use crate::files::tests::Scratch;

    #[test]
    fn the_copy_is_whole_and_nobody_can_change_it() {
        let scratch = Scratch::new();
        let path = scratch.0.join("m");
        let bytes: Vec<u8> = (0..3_000_001_u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let fd = sealed_copy(&path, bytes.len() as u64, &digest::of(&bytes)).unwrap();
        let mut copy = File::from(fd);
        let mut back = Vec::new();
        copy.read_to_end(&mut back).unwrap();
        assert!(back == bytes);
        copy.rewind().unwrap();
        assert!(copy.write_all(b"x").is_err());
        assert!(copy.set_len(1).is_err());
    }

    #[test]
    fn what_was_filled_in_place_is_cut_and_sealed() {
        let mut memory = Filling::new(100).unwrap();
        memory.room()[..5].copy_from_slice(b"model");
        let mut file = File::from(memory.seal(5).unwrap());
        let mut back = Vec::new();
        file.read_to_end(&mut back).unwrap();
        assert_eq!(back, b"model");
        assert!(file.write_all(b"x").is_err());
        assert!(file.set_len(9).is_err());
    }

    #[test]
    fn one_changed_bit_or_byte_is_refused() {
        let scratch = Scratch::new();
        let path = scratch.0.join("m");
        std::fs::write(&path, b"abd").unwrap();
        let refused = sealed_copy(&path, 3, &digest::of(b"abc")).unwrap_err();
        assert!(matches!(refused, Error::Digest { .. }), "{refused}");
        let refused = sealed_copy(&path, 2, &digest::of(b"ab")).unwrap_err();
        assert!(matches!(refused, Error::Size { found: 3, .. }), "{refused}");
    }
}
