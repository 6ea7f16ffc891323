//! Streams and bytes as sealed memory: what comes through a pipe can then be read from any offset.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use mien_base::limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::{Error, Result};

/// Reads what a pipe has; `None` when `stop` is set before there is anything.
pub(crate) fn read_pipe(
    from: &OwnedFd,
    into: &mut [u8],
    stop: &AtomicBool,
) -> std::result::Result<Option<usize>, Errno> {
    let look = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !stop.load(Ordering::Relaxed) {
        match poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&look)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(errno),
        }
        match rustix::io::read(from, &mut *into) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            other => return other.map(Some),
        }
    }
    Ok(None)
}

/// Copies a stream into sealed memory, after what was read from it already.
pub(crate) fn copy(
    from: &OwnedFd,
    head: &[u8],
    name: String,
    stop: &AtomicBool,
) -> Result<OwnedFd> {
    let held = |source| Error::Memory { what: "a stream", source };
    let memory = memfd().map_err(held)?;
    write_at(&memory, head, 0).map_err(held)?;
    let (mut buffer, mut at) = (vec![0; 256 << 10], head.len() as u64);
    loop {
        let read = read_pipe(from, &mut buffer, stop);
        match read.map_err(|source| Error::Read { name: name.clone(), source })? {
            None => return Err(Error::Cancelled),
            Some(0) => break,
            Some(n) => {
                let part = buffer.get(..n).unwrap_or_default();
                if at + n as u64 > limits::PICTURE_FILE {
                    return Err(Error::TooLarge { name, most: limits::PICTURE_FILE });
                }
                write_at(&memory, part, at).map_err(held)?;
                at += n as u64;
            }
        }
    }
    mien_vault::memfd::seal(&memory).map_err(held)?;
    Ok(memory)
}

/// Bytes as a sealed descriptor.
///
/// # Errors
/// `Memory`.
pub fn memory(what: &'static str, bytes: &[u8]) -> Result<OwnedFd> {
    let held = |source| Error::Memory { what, source };
    let fd = memfd().map_err(held)?;
    write_at(&fd, bytes, 0).map_err(held)?;
    mien_vault::memfd::seal(&fd).map_err(held)?;
    Ok(fd)
}

pub(crate) fn memfd() -> std::result::Result<OwnedFd, Errno> {
    rustix::fs::memfd_create("mien", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
}

pub(crate) fn write_at(
    fd: &OwnedFd,
    mut bytes: &[u8],
    mut at: u64,
) -> std::result::Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                bytes = bytes.get(n..).unwrap_or_default();
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
