//! One daemon a home: a lock that goes away with the process that holds it.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::errors::file;
use crate::{Error, Result};

/// Held as long as it lives.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not read")] OwnedFd);

impl Lock {
    /// Takes the lock of a home.
    ///
    /// # Errors
    /// `Runs` when another process holds it, `File`.
    pub fn take(home: &Path) -> Result<Self> {
        let path = home.join("run.lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| file("open", &path)(errno.into()))?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(fd)),
            Err(Errno::WOULDBLOCK) => Err(Error::Runs { home: home.to_owned() }),
            Err(errno) => Err(file("lock", &path)(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_until_the_first_has_gone() {
        let home = std::env::temp_dir().join(format!("mien-lock-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let first = Lock::take(&home).unwrap();
        assert!(matches!(Lock::take(&home), Err(Error::Runs { .. })));
        drop(first);
        Lock::take(&home).unwrap();
        std::fs::remove_dir_all(&home).unwrap();
    }
}
