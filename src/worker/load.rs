//! Descriptors to bytes, models and sources: bounded before anything is allocated.

use std::os::fd::OwnedFd;

use mien_base::consent::{ConsentRecord, SourceRecord};
use mien_base::limits;
use mien_engine::backend::Backend;
use mien_face::policy::{Policy, Source};
use mien_pixels::codec::{self, Bounds};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::{Error, Result};

/// How long a regular file is.
///
/// # Errors
/// `NoFile` for what is no regular file, `TooLarge`, `File`.
pub fn size(fd: &OwnedFd, what: &'static str, most: u64) -> Result<u64> {
    let failed = |source| Error::File { what, verb: "read", source };
    let stat = rustix::fs::fstat(fd).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::NoFile { what });
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size > most {
        return Err(Error::TooLarge { what, found: size, most });
    }
    Ok(size)
}

/// Reads a whole file from its beginning.
///
/// # Errors
/// Of [`size`], `Size` when it changes meanwhile.
pub fn read(fd: &OwnedFd, what: &'static str, most: u64) -> Result<Vec<u8>> {
    let failed = |source| Error::File { what, verb: "read", source };
    let size = size(fd, what, most)?;
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(usize::MAX));
    while (bytes.len() as u64) < size {
        let at = bytes.len() as u64;
        match rustix::io::pread(fd, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(Error::Size { what, found: at, expected: size }),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(bytes)
}

/// A policy of which sources are still to come. The one before holds until all are there.
#[derive(Debug)]
pub struct Coming<B: Backend> {
    policy: Policy<B>,
    missing: u16,
}

impl<B: Backend> Coming<B> {
    /// A policy begins.
    ///
    /// # Errors
    /// `Protocol` when it has more sources than there may be.
    pub fn begin(revision: u64, sources: u16) -> Result<Self> {
        if usize::from(sources) > limits::IDENTITIES {
            return Err(Error::Protocol { what: "a policy of too many sources" });
        }
        Ok(Self { policy: Policy::new(revision), missing: sources })
    }

    /// A source comes.
    ///
    /// # Errors
    /// `Protocol` when it belongs to another policy; of `read`, `Pixels`, `Face`.
    pub fn add(
        &mut self,
        backend: &B,
        revision: u64,
        record: SourceRecord,
        consents: Vec<ConsentRecord>,
        portrait: &OwnedFd,
    ) -> Result<()> {
        if revision != self.policy.revision() || self.missing == 0 {
            return Err(Error::Protocol { what: "a source of another policy" });
        }
        let bytes = read(portrait, "portrait", limits::PICTURE_FILE)?;
        let portrait = codec::decode(&bytes, &Bounds::default()).map_err(Error::Pixels)?.rgb;
        let source = Source::new(backend, record, portrait).map_err(Error::Face)?;
        self.policy.add(source, consents).map_err(Error::Face)?;
        self.missing -= 1;
        Ok(())
    }

    /// The policy, once all its sources are there.
    ///
    /// # Errors
    /// Itself, when sources are missing.
    pub fn complete(self) -> std::result::Result<Policy<B>, Self> {
        if self.missing == 0 { Ok(self.policy) } else { Err(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    fn file(bytes: &[u8]) -> OwnedFd {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, bytes).unwrap();
        fd
    }

    #[test]
    fn a_file_is_read_whole_wherever_its_offset_stands() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(read(&file(&bytes), "t", 256).unwrap(), bytes);
        assert!(read(&file(&[]), "t", 256).unwrap().is_empty());
    }

    #[test]
    fn a_file_beyond_its_bound_and_a_pipe_are_refused() {
        assert!(matches!(read(&file(&[0; 257]), "t", 256), Err(Error::TooLarge { .. })));
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(matches!(read(&pipe, "t", 256), Err(Error::NoFile { .. })));
    }
}
