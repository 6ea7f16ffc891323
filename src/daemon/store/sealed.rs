//! A source's face under its own key, and that key under the machine's: AES-256-GCM both times.
//!
//! A source's key seals one content, once: its nonce is zero. Who forgets the key has forgotten
//! the face.

use aes_gcm::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm::{Aes256Gcm, Key, Nonce};
use mien_base::consent::SourceRecord;
use mien_base::id::IdentityId;
use mien_base::limits;
use zeroize::Zeroizing;

/// A key that is wiped when dropped.
pub(super) type SourceKey = Zeroizing<[u8; 32]>;

const NONCE: usize = 12;
/// A key as it is wrapped once, in bytes: nonce, key, tag.
const WRAPPED: usize = NONCE + 32 + 16;
/// Largest portrait that is stored, in bytes; vault/store.rs refuses larger ones.
const MOST: usize = 32 << 20;

fn cipher(key: &[u8; 32]) -> Aes256Gcm {
    Aes256Gcm::new(&Key::<Aes256Gcm>::from(*key))
}

/// What a content is bound to: it opens for no other source.
fn bound(what: &str, identity: &IdentityId) -> Vec<u8> {
    format!("mien {what} v1 {identity}").into_bytes()
}

/// A source's key as it is stored: nonce, then sealed bytes.
pub(super) fn wrap(
    key: &SourceKey,
    identity: &IdentityId,
    wrapping: &[u8; 32],
    nonce: [u8; NONCE],
) -> Vec<u8> {
    let aad = bound("source key", identity);
    let payload = Payload { msg: &key[..], aad: &aad };
    let sealed = cipher(wrapping).encrypt(&Nonce::from(nonce), payload);
    [&nonce[..], &sealed.expect("32 bytes are within the cipher's bound")].concat()
}

/// The key of a stored source; `None` when it was made for another source or machine. While the
/// machine's key is being replaced it stands there twice, wrapped by the old and by the new one.
pub(super) fn unwrap(
    wrapped: &[u8],
    identity: &IdentityId,
    wrapping: &[u8; 32],
) -> Option<SourceKey> {
    wrapped.chunks(WRAPPED).find_map(|one| unwrap_one(one, identity, wrapping))
}

fn unwrap_one(wrapped: &[u8], identity: &IdentityId, wrapping: &[u8; 32]) -> Option<SourceKey> {
    let (nonce, sealed) = wrapped.split_first_chunk::<NONCE>()?;
    let aad = bound("source key", identity);
    let payload = Payload { msg: sealed, aad: &aad };
    let key = Zeroizing::new(cipher(wrapping).decrypt(&Nonce::from(*nonce), payload).ok()?);
    Some(Zeroizing::new(key.as_slice().try_into().ok()?))
}

/// Record and portrait of a source, sealed.
pub(super) fn seal(record: &SourceRecord, portrait: &[u8], key: &SourceKey) -> Vec<u8> {
    let text = Zeroizing::new(serde_json::to_vec(record).expect("plain data with text keys"));
    let length = u32::try_from(text.len()).expect("a record has at most some thousand numbers");
    let mut plain = Zeroizing::new(Vec::with_capacity(4 + text.len() + portrait.len()));
    plain.extend_from_slice(&length.to_le_bytes());
    plain.extend_from_slice(&text);
    plain.extend_from_slice(portrait);
    let aad = bound("source", &record.identity);
    let payload = Payload { msg: &plain, aad: &aad };
    let sealed = cipher(key).encrypt(&Nonce::from([0; NONCE]), payload);
    sealed.expect("a portrait is within the cipher's bound")
}

/// Record and portrait again.
///
/// # Errors
/// What is wrong with them.
pub(super) fn open(
    sealed: &[u8],
    identity: &IdentityId,
    key: &SourceKey,
) -> Result<(SourceRecord, Vec<u8>), &'static str> {
    if sealed.len() > MOST {
        return Err("it is too large");
    }
    let aad = bound("source", identity);
    let payload = Payload { msg: sealed, aad: &aad };
    let plain = cipher(key).decrypt(&Nonce::from([0; NONCE]), payload);
    let plain = Zeroizing::new(plain.map_err(|_| "it was changed")?);
    let (length, rest) = plain.split_first_chunk::<4>().ok_or("it is cut off")?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let (text, portrait) = rest.split_at_checked(length).ok_or("it is cut off")?;
    if text.len() as u64 > limits::TEXT_FILE {
        return Err("its record is too long");
    }
    let record = serde_json::from_slice(text).map_err(|_| "its record can't be read")?;
    Ok((record, portrait.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::record;

    #[test]
    fn what_was_sealed_opens_for_its_source_and_key_alone() {
        let (record, key) = (record("ada", 1), Zeroizing::new([3; 32]));
        let sealed = seal(&record, b"portrait", &key);
        let (ada, bob): (IdentityId, IdentityId) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        assert_eq!(open(&sealed, &ada, &key).unwrap(), (record, b"portrait".to_vec()));
        assert!(open(&sealed, &bob, &key).is_err());
        assert!(open(&sealed, &ada, &Zeroizing::new([4; 32])).is_err());
        for at in [0, sealed.len() / 2, sealed.len() - 1] {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(open(&bad, &ada, &key).is_err());
            assert!(open(&sealed[..at], &ada, &key).is_err());
        }
    }

    #[test]
    fn a_wrapped_key_opens_on_its_machine_for_its_source_alone() {
        let (key, machine) = (Zeroizing::new([3; 32]), [7; 32]);
        let (ada, bob): (IdentityId, IdentityId) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        let wrapped = wrap(&key, &ada, &machine, [9; 12]);
        assert_eq!(unwrap(&wrapped, &ada, &machine), Some(key));
        assert_eq!(unwrap(&wrapped, &bob, &machine), None);
        assert_eq!(unwrap(&wrapped, &ada, &[8; 32]), None);
        assert_eq!(unwrap(&wrapped[..11], &ada, &machine), None);
        assert!(!wrapped.windows(4).any(|part| part == [3; 4]));
        // Wrapped twice, either machine opens it, and no third one.
        let twice =
            [&wrapped[..], &wrap(&Zeroizing::new([3; 32]), &ada, &[8; 32], [1; 12])].concat();
        for (machine, opens) in [([7; 32], true), ([8; 32], true), ([9; 32], false)] {
            assert_eq!(unwrap(&twice, &ada, &machine).is_some(), opens);
        }
    }
}
