//! Where randomness enters: from the kernel, or from a test that must repeat.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// A source of bytes that nobody can foretell.
pub trait Random {
    /// Fills all of `bytes`.
    ///
    /// # Errors
    /// When the source has none; then nothing may be used of `bytes`.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()>;
}

/// The kernel's generator; it waits until that one is seeded.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match getrandom(&mut *rest, GetRandomFlags::empty()) {
                Ok(n) => rest = rest.get_mut(n..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::digest;

    /// Bytes that follow from a number: the same run twice gives the same packages.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Counted(pub(crate) u64);

    impl Random for Counted {
        fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
            for chunk in bytes.chunks_mut(64) {
                let block = digest::of(&self.0.to_le_bytes());
                chunk.copy_from_slice(&block.as_bytes()[..chunk.len()]);
                self.0 += 1;
            }
            Ok(())
        }
    }

    #[test]
    fn two_draws_differ_and_fill_every_byte() {
        let (mut a, mut b) = ([0; 1000], [0; 1000]);
        SystemRandom.fill(&mut a).unwrap();
        SystemRandom.fill(&mut b).unwrap();
        assert_ne!(a, b);
        assert!(a.chunks(64).all(|part| part.iter().any(|byte| *byte != 0)));
    }
}
