//! AES-256-GCM in chunks (STREAM-BE32), and the content key wrapped for each device (HPKE).
//!
//! Chunk `i` has the nonce `prefix || i || last`, so that no chunk can be swapped, repeated,
//! dropped or cut off; all of them are bound to the header and the manifest. A content key serves
//! one package only.

use aead_stream::aead::{Buffer, Error as AeadError};
use aead_stream::{NewStream as _, StreamBE32, StreamPrimitive as _};
use aes_gcm::Aes256Gcm;
use hpke::aead::AesGcm256;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{Deserializable as _, Kem, OpModeR, OpModeS, Serializable as _};
use zeroize::Zeroizing;

use crate::errors::{Error, Result};
use crate::keyslot::{DeviceKey, DevicePublic};
use crate::random::Random;
use crate::refusal::Reason;
use crate::sign::KeyId;

/// Plaintext of one chunk, in bytes.
pub const CHUNK: usize = 1 << 20;
/// What authentication adds to a chunk, in bytes.
pub const TAG: usize = 16;
/// The part of the nonce that a package chooses, in bytes.
pub const PREFIX: usize = 7;
/// One entry of the wrap table, in bytes: device, encapsulated key, sealed content key.
pub const WRAP: usize = 16 + 32 + 32 + TAG;

const INFO: &[u8] = b"mien model package, content key, version 1";

type Encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey;

/// How many chunks hold this many bytes; the last one may be short, none is empty but of nothing.
#[must_use]
pub const fn chunks(bytes: u64) -> u64 {
    let whole = bytes.div_ceil(CHUNK as u64);
    if whole == 0 { 1 } else { whole }
}

/// Bytes of the sealed payload.
#[must_use]
pub const fn sealed_bytes(bytes: u64) -> u64 {
    bytes + chunks(bytes) * TAG as u64
}

/// The key of one package's payload; wiped when dropped.
pub(crate) struct ContentKey(Zeroizing<[u8; 32]>);

impl ContentKey {
    pub(crate) fn generate(random: &mut dyn Random) -> Result<Self> {
        let mut key = Zeroizing::new([0; 32]);
        random.fill(&mut *key).map_err(|source| Error::Random { source })?;
        Ok(Self(key))
    }

    /// The payload's cipher.
    pub(crate) fn stream(&self, prefix: &[u8; PREFIX]) -> Stream {
        Stream(StreamBE32::new(&(*self.0).into(), &(*prefix).into()))
    }

    /// Wraps the key for a device; only that device's own key opens it, and only beside the
    /// manifest of this hash.
    pub(crate) fn wrap(
        &self,
        device: &DevicePublic,
        manifest: &[u8; 32],
        random: &mut dyn Random,
    ) -> Result<Wrap> {
        let mut drawn = Drawn { bytes: Zeroizing::new([0; 64]), used: 0 };
        random.fill(&mut *drawn.bytes).map_err(|source| Error::Random { source })?;
        let sealed = hpke::single_shot_seal_with_rng::<AesGcm256, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            &device.key()?,
            INFO,
            &*self.0,
            manifest,
            &mut drawn,
        );
        let unfit = || Error::BadKey { what: "A device's public key", must: "fit for X25519" };
        let (key, sealed) = sealed.map_err(|_| unfit())?;
        let sealed = sealed.try_into().map_err(|_| unfit())?;
        Ok(Wrap { device: device.id(), key: key.to_bytes().into(), sealed })
    }
}

/// A content key for one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrap {
    pub device: KeyId,
    key: [u8; 32],
    sealed: [u8; 32 + TAG],
}

impl Wrap {
    /// Its bytes in a package.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; WRAP] {
        let mut bytes = [0; WRAP];
        let (device, rest) = bytes.split_at_mut(16);
        let (key, sealed) = rest.split_at_mut(32);
        device.copy_from_slice(self.device.bytes());
        key.copy_from_slice(&self.key);
        sealed.copy_from_slice(&self.sealed);
        bytes
    }

    /// Reads its bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; WRAP]) -> Self {
        let (device, rest) = bytes.split_first_chunk().expect("longer than its first part");
        let (key, rest) = rest.split_first_chunk().expect("longer than its first parts");
        let sealed = rest.first_chunk().expect("what is left is the last part");
        Self { device: KeyId::from_bytes(*device), key: *key, sealed: *sealed }
    }

    /// The content key, when this is the device's own wrap and nothing of it was changed.
    pub(crate) fn open(&self, device: &DeviceKey, manifest: &[u8; 32]) -> Result<ContentKey> {
        let refused = || {
            let why = "this device's entry was changed, or belongs to another package";
            Error::refused("The package", Reason::WrapInvalid, why)
        };
        let key = Encapsulated::from_bytes(&self.key).map_err(|_| refused())?;
        let opened = hpke::single_shot_open::<AesGcm256, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            &device.private(),
            &key,
            INFO,
            &self.sealed,
            manifest,
        );
        let opened = Zeroizing::new(opened.map_err(|_| refused())?);
        let whole: &[u8; 32] = opened.as_slice().try_into().map_err(|_| refused())?;
        Ok(ContentKey(Zeroizing::new(*whole)))
    }
}

/// The cipher of one payload.
pub(crate) struct Stream(StreamBE32<Aes256Gcm>);

impl Stream {
    /// Seals `plain` bytes of `room` in place; `room` is longer by the tag.
    pub(crate) fn seal(
        &self,
        index: u32,
        last: bool,
        bound_to: &[u8],
        room: &mut [u8],
    ) -> std::result::Result<(), AeadError> {
        let length = room.len().checked_sub(TAG).ok_or(AeadError)?;
        let mut buffer = InPlace { room, length };
        self.0.encrypt_in_place(index, last, bound_to, &mut buffer)
    }

    /// Opens `sealed` in place: its plaintext stands before the tag.
    pub(crate) fn open(
        &self,
        index: u32,
        last: bool,
        bound_to: &[u8],
        sealed: &mut [u8],
    ) -> std::result::Result<(), AeadError> {
        let length = sealed.len();
        let mut buffer = InPlace { room: sealed, length };
        self.0.decrypt_in_place(index, last, bound_to, &mut buffer)
    }
}

/// A buffer that grows by a tag into room that is there already.
struct InPlace<'a> {
    room: &'a mut [u8],
    length: usize,
}

impl AsRef<[u8]> for InPlace<'_> {
    fn as_ref(&self) -> &[u8] {
        self.room.get(..self.length).unwrap_or_default()
    }
}

impl AsMut<[u8]> for InPlace<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.room.get_mut(..self.length).unwrap_or_default()
    }
}

impl Buffer for InPlace<'_> {
    fn extend_from_slice(&mut self, other: &[u8]) -> std::result::Result<(), AeadError> {
        let end = self.length + other.len();
        self.room.get_mut(self.length..end).ok_or(AeadError)?.copy_from_slice(other);
        self.length = end;
        Ok(())
    }

    fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

/// Randomness that was drawn before, for a library that can't hear of an error.
struct Drawn {
    bytes: Zeroizing<[u8; 64]>,
    used: usize,
}

impl TryRng for Drawn {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> std::result::Result<u32, Self::Error> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> std::result::Result<u64, Self::Error> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, into: &mut [u8]) -> std::result::Result<(), Self::Error> {
        let end = self.used + into.len();
        let drawn = self.bytes.get(self.used..end).expect("one key pair takes 32 of these bytes");
        into.copy_from_slice(drawn);
        self.used = end;
        Ok(())
    }
}

impl TryCryptoRng for Drawn {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyslot::tests::device;
    use crate::random::tests::Counted;

    #[test]
    fn a_wrap_opens_for_its_device_beside_its_manifest_only() {
        let key = ContentKey::generate(&mut Counted(1)).unwrap();
        let (ours, theirs) = (device(1), device(2));
        let wrap = key.wrap(&ours.public(), &[3; 32], &mut Counted(2)).unwrap();
        assert_eq!(*wrap.open(&ours, &[3; 32]).unwrap().0, *key.0);
        assert_eq!(Wrap::from_bytes(&wrap.to_bytes()), wrap);
        let reason = |got: Result<ContentKey>| got.err().and_then(|error| error.reason());
        assert_eq!(reason(wrap.open(&theirs, &[3; 32])), Some(Reason::WrapInvalid));
        assert_eq!(reason(wrap.open(&ours, &[4; 32])), Some(Reason::WrapInvalid));
        for at in 16..WRAP {
            let mut bytes = wrap.to_bytes();
            bytes[at] ^= 1;
            let opened = Wrap::from_bytes(&bytes).open(&ours, &[3; 32]);
            assert!(opened.is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_chunk_opens_in_its_own_place_only() {
        let key = ContentKey::generate(&mut Counted(1)).unwrap();
        let stream = key.stream(&[9; PREFIX]);
        let mut sealed = [[7; 100], [0; 100]].concat()[..100 + TAG].to_vec();
        stream.seal(4, false, b"bound", &mut sealed).unwrap();
        assert!(!sealed.windows(8).any(|part| part == [7; 8]));
        let opens = |index, last, bound: &[u8], prefix| {
            let mut copy = sealed.clone();
            let stream = key.stream(prefix);
            stream.open(index, last, bound, &mut copy).is_ok() && copy[..100] == [7; 100]
        };
        assert!(opens(4, false, b"bound", &[9; PREFIX]));
        assert!(!opens(5, false, b"bound", &[9; PREFIX]));
        assert!(!opens(4, true, b"bound", &[9; PREFIX]));
        assert!(!opens(4, false, b"other", &[9; PREFIX]));
        assert!(!opens(4, false, b"bound", &[8; PREFIX]));
    }

    #[test]
    fn sizes_count_a_tag_a_chunk() {
        let chunk = CHUNK as u64;
        for (bytes, count) in [(1, 1), (chunk, 1), (chunk + 1, 2), (3 * chunk, 3)] {
            assert_eq!(chunks(bytes), count);
            assert_eq!(sealed_bytes(bytes), bytes + 16 * count);
        }
    }
}
