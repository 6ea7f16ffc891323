//! SHA-256 as 64 lowercase hex digits, of bytes or of what passes by.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// A digest that grows as bytes pass by.
#[derive(Debug, Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes more bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything taken in.
    #[must_use]
    pub fn hex(self) -> String {
        use std::fmt::Write as _;
        self.0.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// Digest of bytes in memory.
#[must_use]
pub fn of(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.hex()
}

/// Digest and length of what a reader gives, reading at most `max` bytes and one more.
///
/// # Errors
/// The reader's own.
pub fn of_reader(reader: impl Read, max: u64) -> io::Result<(String, u64)> {
    let mut reader = reader.take(max.saturating_add(1));
    let mut hasher = Hasher::default();
    let mut chunk = vec![0; 1 << 18];
    let mut total = 0;
    loop {
        let n = reader.read(&mut chunk)?;
        let Some(bytes) = chunk.get(..n).filter(|b| !b.is_empty()) else { break };
        hasher.update(bytes);
        total += n as u64;
    }
    Ok((hasher.hex(), total))
}

/// True for 64 lowercase hex digits.
#[must_use]
pub fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_digest_is_the_known_one() {
        assert_eq!(of(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert!(is_hex(&of(b"abc")));
        assert!(!is_hex(&of(b"abc").to_uppercase()));
    }

    #[test]
    fn a_reader_is_read_one_byte_past_the_bound_and_no_further() {
        let (_, n) = of_reader(&[7_u8; 100][..], 10).unwrap();
        assert_eq!(n, 11);
        assert_eq!(of_reader(&b"abc"[..], 10).unwrap(), (of(b"abc"), 3));
    }
}
