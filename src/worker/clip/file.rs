//! Descriptors as files and pipes: read and written at offsets of their own, never held up unseen.
//!
//! A descriptor's own offset is shared with the root program and between threads, so nothing here
//! uses it. Who waits for a pipe shows that it lives, and ends when the job is called off.

use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::meter::Pulse;

/// How long a pipe is waited for before somebody hears of it.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// What a pipe that says it is ready takes without holding us (PIPE_BUF).
const PIPE: usize = 4096;

/// A file that is read, as long as it was at first.
#[derive(Debug)]
pub struct FileIn {
    fd: Arc<OwnedFd>,
    len: u64,
    at: u64,
}

impl FileIn {
    /// From its beginning.
    ///
    /// # Errors
    /// When it has no size, or is no regular file.
    pub fn new(fd: Arc<OwnedFd>) -> Result<Self> {
        let stat = rustix::fs::fstat(&fd)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(Error::new(ErrorKind::NotSeekable, "it is no regular file"));
        }
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Self { fd, len, at: 0 })
    }
}

impl Read for FileIn {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let left = self.len.saturating_sub(self.at);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let Some(into) = into.get_mut(..most).filter(|into| !into.is_empty()) else { return Ok(0) };
        loop {
            match rustix::io::pread(&*self.fd, &mut *into, self.at) {
                Ok(n) => {
                    self.at += n as u64;
                    return Ok(n);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Where a seek leads; `None` before the beginning.
fn target(from: SeekFrom, at: u64, len: impl FnOnce() -> Result<u64>) -> Result<u64> {
    let to = match from {
        SeekFrom::Start(to) => Some(to),
        SeekFrom::Current(by) => at.checked_add_signed(by),
        SeekFrom::End(by) => len()?.checked_add_signed(by),
    };
    to.ok_or_else(|| Error::from(ErrorKind::InvalidInput))
}

impl Seek for FileIn {
    fn seek(&mut self, from: SeekFrom) -> Result<u64> {
        self.at = target(from, self.at, || Ok(self.len))?;
        Ok(self.at)
    }
}

/// A file that is written.
#[derive(Debug)]
pub struct FileOut {
    fd: Arc<OwnedFd>,
    at: u64,
}

impl FileOut {
    /// What stands after `at` will be written over.
    #[must_use]
    pub fn new(fd: Arc<OwnedFd>, at: u64) -> Self {
        Self { fd, at }
    }
}

impl Write for FileOut {
    fn write(&mut self, from: &[u8]) -> Result<usize> {
        loop {
            match rustix::io::pwrite(&*self.fd, from, self.at) {
                Ok(n) => {
                    self.at += n as u64;
                    return Ok(n);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Seek for FileOut {
    fn seek(&mut self, from: SeekFrom) -> Result<u64> {
        let len =
            || Ok::<_, Error>(u64::try_from(rustix::fs::fstat(&*self.fd)?.st_size).unwrap_or(0));
        self.at = target(from, self.at, len)?;
        Ok(self.at)
    }
}

/// Somebody who shows with each call that he lives, and ends when the job is called off.
#[derive(Debug)]
pub(super) struct Live<T> {
    pub(super) inner: T,
    pub(super) pulse: Arc<Pulse>,
}

impl<T: Read> Read for Live<T> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        self.pulse.wait().map_err(|_| gone())?;
        self.inner.read(into)
    }
}

impl<T: Write> Write for Live<T> {
    fn write(&mut self, from: &[u8]) -> Result<usize> {
        self.pulse.wait().map_err(|_| gone())?;
        self.inner.write(from)
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
}

impl<T: Seek> Seek for Live<T> {
    fn seek(&mut self, from: SeekFrom) -> Result<u64> {
        self.inner.seek(from)
    }
}

/// A pipe that frames come through.
#[derive(Debug)]
pub(super) struct PipeIn {
    fd: Arc<OwnedFd>,
    pulse: Arc<Pulse>,
}

/// A pipe that frames go into.
#[derive(Debug)]
pub(super) struct PipeOut {
    fd: Arc<OwnedFd>,
    pulse: Arc<Pulse>,
}

impl PipeIn {
    /// The pipe, and who is to know that it is waited for.
    #[must_use]
    pub(super) fn new(fd: Arc<OwnedFd>, pulse: Arc<Pulse>) -> Self {
        Self { fd, pulse }
    }
}

impl PipeOut {
    /// As `PipeIn::new`.
    #[must_use]
    pub(super) fn new(fd: Arc<OwnedFd>, pulse: Arc<Pulse>) -> Self {
        Self { fd, pulse }
    }
}

/// Waits until a pipe is ready, or broken.
fn wait(fd: &OwnedFd, for_what: PollFlags, pulse: &Pulse) -> Result<()> {
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), for_what)], Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => pulse.wait().map_err(|_| gone())?,
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn gone() -> Error {
    Error::other("the job was cancelled")
}

impl Read for PipeIn {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        loop {
            wait(&self.fd, PollFlags::IN, &self.pulse)?;
            match rustix::io::read(&*self.fd, &mut *into) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
    }
}

impl Write for PipeOut {
    fn write(&mut self, from: &[u8]) -> Result<usize> {
        let from = from.get(..PIPE).unwrap_or(from);
        loop {
            wait(&self.fd, PollFlags::OUT, &self.pulse)?;
            match rustix::io::write(&*self.fd, from) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    fn file(bytes: &[u8]) -> Arc<OwnedFd> {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, bytes).unwrap();
        Arc::new(fd)
    }

    #[test]
    fn a_file_is_read_and_written_at_an_offset_of_ones_own() {
        let fd = file(b"keep|torn segment");
        let mut out = FileOut::new(fd.clone(), 5);
        out.write_all(b"whole").unwrap();
        out.seek(SeekFrom::Start(5)).unwrap();
        out.write_all(b"W").unwrap();
        assert_eq!(out.seek(SeekFrom::End(0)).unwrap(), 17);
        let mut from = FileIn::new(fd).unwrap();
        assert_eq!(from.seek(SeekFrom::End(-12)).unwrap(), 5);
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        assert_eq!(text, "Wholesegment");
        assert!(from.seek(SeekFrom::Current(-100)).is_err());
        from.seek(SeekFrom::Start(1000)).unwrap();
        assert_eq!(from.read(&mut [0; 4]).unwrap(), 0);
    }

    #[test]
    fn a_pipe_that_nobody_fills_is_waited_for_until_the_job_is_called_off() {
        let (from, _to) = rustix::pipe::pipe().unwrap();
        let pulse = Arc::new(Pulse::default());
        let before = pulse.read().1;
        let watch = Arc::clone(&pulse);
        let reader = std::thread::Builder::new().spawn(move || {
            let mut pipe = PipeIn::new(Arc::new(from), watch);
            pipe.read(&mut [0; 4]).map_err(|e| e.to_string())
        });
        while pulse.read().1 < before + 2 {
            std::thread::yield_now();
        }
        pulse.cancel();
        assert!(reader.unwrap().join().unwrap().unwrap_err().contains("cancelled"));
    }

    #[test]
    fn a_full_pipe_takes_all_once_it_is_read() {
        let (from, to) = rustix::pipe::pipe().unwrap();
        let writer = std::thread::Builder::new().spawn(move || {
            let mut pipe = PipeOut::new(Arc::new(to), Arc::new(Pulse::default()));
            pipe.write_all(&vec![7; 300_000])
        });
        let mut got = Vec::new();
        PipeIn::new(Arc::new(from), Arc::new(Pulse::default())).read_to_end(&mut got).unwrap();
        writer.unwrap().join().unwrap().unwrap();
        assert_eq!(got, vec![7; 300_000]);
    }
}
