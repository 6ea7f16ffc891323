//! Models in sealed memory: filled once, checked on the way, changed by nobody afterwards.
//!
//! The memory is no file: it has no name, it is gone with its last descriptor, and no core dump of
//! this process is made. Whether the kernel may swap it is told by [`swap`].

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use memmap2::{Advice, MmapMut};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use zeroize::Zeroize as _;

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

/// Memory that is being filled, chunk by chunk, out of one warm chunk that is kept out of swap where
/// the kernel permits. Writing is cheaper than mapping all of it: no page is cleared or faulted in
/// before it is filled.
#[derive(Debug)]
pub(crate) struct Filling {
    file: File,
    chunk: MmapMut,
    filled: u64,
}

impl Filling {
    /// Nothing yet; chunks of at most `chunk` bytes will come.
    pub(crate) fn new(chunk: usize) -> Result<Self> {
        let memory = |source| Error::Memory { source };
        let file = create().map_err(memory)?;
        let mut chunk = MmapMut::map_anon(chunk).map_err(memory)?;
        let _ = chunk.advise(Advice::DontDump);
        let _ = chunk.lock();
        chunk.fill(0);
        Ok(Self { file, chunk, filled: 0 })
    }

    /// Where the next chunk is made.
    pub(crate) fn chunk(&mut self) -> &mut [u8] {
        &mut self.chunk
    }

    /// Adds the first `bytes` of the chunk.
    pub(crate) fn push(&mut self, bytes: usize) -> Result<()> {
        let memory = |source| Error::Memory { source };
        let part = self.chunk.get(..bytes);
        let part = part.ok_or_else(|| memory(io::ErrorKind::InvalidInput.into()))?;
        self.file.write_all_at(part, self.filled).map_err(memory)?;
        self.filled += bytes as u64;
        Ok(())
    }

    /// Lets nobody write, grow or shrink what is there any more.
    pub(crate) fn seal(self) -> Result<OwnedFd> {
        let Self { file, .. } = &self;
        seal(file).map_err(|errno| Error::Memory { source: errno.into() })?;
        file.try_clone().map(OwnedFd::from).map_err(|source| Error::Memory { source })
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.chunk.zeroize();
    }
}

/// Where memory of this process may be swapped to: on a disk, unless the service's group forbids it
/// (`MemorySwapMax=0`). What is kept compressed in memory is none.
#[must_use]
pub fn swap() -> Option<String> {
    let forbidden = || {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let at = Path::new("/sys/fs/cgroup").join(group).join("memory.swap.max");
        Some(std::fs::read_to_string(at).ok()?.trim() == "0")
    };
    let swaps = std::fs::read_to_string("/proc/swaps").ok()?;
    let disk = on_disk(&swaps)?;
    if forbidden() == Some(true) { None } else { Some(disk) }
}

/// The first of `/proc/swaps` that is no memory.
fn on_disk(swaps: &str) -> Option<String> {
    let names = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).find(|name| !name.starts_with("/dev/zram"))
}

/// Leaves this process out of core dumps, whole: keys and models pass through it. True when both
/// of the kernel's ways hold.
pub fn never_dump() -> bool {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let limited = setrlimit(Resource::Core, none).is_ok();
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok();
    limited && hidden
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
    fn what_was_pushed_is_there_in_order_and_sealed() {
        let mut memory = Filling::new(8).unwrap();
        for part in [&b"a model"[..], b" of", b" parts"] {
            memory.chunk()[..part.len()].copy_from_slice(part);
            memory.push(part.len()).unwrap();
        }
        assert!(memory.push(9).is_err());
        let mut file = File::from(memory.seal().unwrap());
        let mut back = Vec::new();
        file.read_to_end(&mut back).unwrap();
        assert_eq!(back, b"a model of parts");
        assert!(file.write_all(b"x").is_err());
        assert!(file.set_len(99).is_err());
    }

    #[test]
    fn swap_on_a_disk_is_told_and_compressed_memory_is_none() {
        let head = "Filename\t\t\t\tType\t\tSize\n";
        let zram = "/dev/zram0                              partition\t4\n";
        assert_eq!(on_disk(head), None);
        assert_eq!(on_disk(&format!("{head}{zram}")), None);
        let both = format!("{head}{zram}/swapfile                               file\t9\n");
        assert_eq!(on_disk(&both).as_deref(), Some("/swapfile"));
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
