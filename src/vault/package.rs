//! A model package: one file, signed, sealed, readable by the devices that it was made for.
//!
//! ```text
//! header    32 bytes   magic 8 · version 2 · zero 2 · chunk 4 · model bytes 8 · nonce prefix 7 · zero 1
//! envelope  4 + n      DSSE over the manifest
//! wraps     2 + 96 k   the content key, once for each device; outside the signature, so that a
//!                      device can be added without the signing key
//! payload              chunks of 1 MiB and a tag each, bound to header and manifest
//! ```
//! Numbers are big-endian. Checked in this order, each before the next is looked at:
//!
//! ```text
//! read    bounds: sizes, forms, the file's length      Package<Unverified>
//! verify  signature and revocation, manifest, rollback Package<Verified>
//! open    device, then each chunk before it is used    sealed memory
//! ```

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use mien_base::clock::Wall;
use mien_base::limits;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::digest::{self, Hasher};
use crate::errors::{Error, Result};
use crate::keyslot::{DeviceKey, DevicePublic};
use crate::manifest::{Manifest, PAYLOAD_TYPE, Version};
use crate::memfd::Filling;
use crate::random::Random;
use crate::refusal::Reason;
use crate::seal::{self, CHUNK, ContentKey, PREFIX, Stream, TAG, WRAP, Wrap};
use crate::sign::{Envelope, KeyId, KeyPair};
use crate::trust::{KeyRole, TrustStore};

const MAGIC: &[u8; 8] = b"MIENPKG\n";
const FORMAT: u16 = 1;
const HEADER: usize = 32;

/// The first bytes of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    bytes: u64,
    prefix: [u8; PREFIX],
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT.to_be_bytes());
        bytes[12..16].copy_from_slice(&(CHUNK as u32).to_be_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[24..24 + PREFIX].copy_from_slice(&self.prefix);
        bytes
    }

    fn parse(bytes: &[u8; HEADER]) -> std::result::Result<Self, (Reason, String)> {
        if bytes[..8] != *MAGIC {
            return Err((Reason::NotAPackage, "it does not begin as one".to_owned()));
        }
        let format = u16::from_be_bytes([bytes[8], bytes[9]]);
        if format != FORMAT {
            let why = format!("it has format {format}, this program reads format {FORMAT}");
            return Err((Reason::FormatUnknown, why));
        }
        let length: [u8; 8] = bytes[16..24].try_into().expect("eight of thirty-two bytes");
        let length = u64::from_be_bytes(length);
        if length > limits::MODEL_FILE {
            let why = format!("it claims {length} bytes, at most {} can be", limits::MODEL_FILE);
            return Err((Reason::TooLarge, why));
        }
        let mut prefix = [0; PREFIX];
        prefix.copy_from_slice(&bytes[24..24 + PREFIX]);
        let header = Self { bytes: length, prefix };
        if length == 0 || header.to_bytes() != *bytes {
            return Err((Reason::HeaderMalformed, "its header can't be".to_owned()));
        }
        Ok(header)
    }
}

/// Nothing is known but that its sizes and forms can be.
#[derive(Debug)]
pub struct Unverified(());

/// Signed by who may, of a manifest that this program serves, not rolled back.
#[derive(Debug)]
pub struct Verified {
    manifest: Manifest,
    keys: Vec<KeyId>,
}

/// A package, and how far it was checked.
#[derive(Debug)]
pub struct Package<S> {
    file: File,
    name: String,
    header: Header,
    envelope: Envelope,
    wraps: Vec<Wrap>,
    /// Where the payload begins.
    payload: u64,
    state: S,
}

/// What the checks of a package need to know.
#[derive(Debug)]
pub struct Rules<'a> {
    pub trust: &'a TrustStore,
    pub program: Version,
    pub now: Wall,
}

fn io(name: &str) -> impl Fn(std::io::Error) -> Error + Copy {
    move |source| Error::Io { action: "read", path: name.into(), source }
}

/// Reads parts in order and knows where it stands; nothing larger than its bound is allocated.
struct Parts<'a> {
    file: &'a File,
    name: &'a str,
    at: u64,
    length: u64,
}

impl Parts<'_> {
    fn take(&mut self, bytes: &mut [u8]) -> Result<()> {
        let end = self.at + bytes.len() as u64;
        if end > self.length {
            return Err(Error::refused(self.name, Reason::Truncated, "it ends too early"));
        }
        self.file.read_exact_at(bytes, self.at).map_err(io(self.name))?;
        self.at = end;
        Ok(())
    }
}

impl Package<Unverified> {
    /// Reads everything but the payload, and holds its sizes against the file's.
    ///
    /// # Errors
    /// `Refused`: `NotAPackage`, `FormatUnknown`, `HeaderMalformed`, `TooLarge`, `Truncated`,
    /// `TrailingBytes`, `EnvelopeMalformed`, `WrapsMalformed`; `Io`.
    pub fn read(file: File, name: &str) -> Result<Self> {
        let refuse = |reason, why: &str| Error::refused(name, reason, why);
        let length = file.metadata().map_err(io(name))?.len();
        let mut parts = Parts { file: &file, name, at: 0, length };
        let mut header = [0; HEADER];
        let known = usize::try_from(length).unwrap_or(HEADER).min(8);
        let mut magic = [0; 8];
        parts.file.read_exact_at(&mut magic[..known], 0).map_err(io(name))?;
        if magic[..known] != MAGIC[..known] || known == 0 {
            return Err(refuse(Reason::NotAPackage, "it does not begin as one"));
        }
        parts.take(&mut header)?;
        let header = Header::parse(&header).map_err(|(reason, why)| refuse(reason, &why))?;

        let mut size = [0; 4];
        parts.take(&mut size)?;
        let size = u32::from_be_bytes(size) as usize;
        if size > limits::ENVELOPE {
            let why = format!("its envelope claims {size} bytes, at most {}", limits::ENVELOPE);
            return Err(refuse(Reason::TooLarge, &why));
        }
        let mut envelope = vec![0; size];
        parts.take(&mut envelope)?;
        let envelope = Envelope::parse(&envelope).map_err(|error| named(error, name))?;

        let mut count = [0; 2];
        parts.take(&mut count)?;
        let count = usize::from(u16::from_be_bytes(count));
        if count > limits::WRAPS {
            let why = format!("it claims {count} devices, at most {}", limits::WRAPS);
            return Err(refuse(Reason::TooLarge, &why));
        }
        let mut table = vec![0; count * WRAP];
        parts.take(&mut table)?;
        let wraps: Vec<Wrap> = table.as_chunks().0.iter().map(Wrap::from_bytes).collect();
        let mut devices: Vec<KeyId> = wraps.iter().map(|wrap| wrap.device).collect();
        devices.sort_unstable();
        if devices.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(refuse(Reason::WrapsMalformed, "a device stands in it twice"));
        }

        let payload = parts.at;
        let whole = payload + seal::sealed_bytes(header.bytes);
        if length < whole {
            let why = format!("it has {length} bytes of {whole}");
            return Err(refuse(Reason::Truncated, &why));
        }
        if length > whole {
            let why = format!("{} bytes follow its end", length - whole);
            return Err(refuse(Reason::TrailingBytes, &why));
        }
        let name = name.to_owned();
        Ok(Self { file, name, header, envelope, wraps, payload, state: Unverified(()) })
    }

    /// Verifies it: signatures and revocation, then the manifest, then the rollback floor.
    /// `floor` gives the least `security_version` for a manifest.
    ///
    /// # Errors
    /// `Refused`: `PayloadType`, `SignatureMissing`, `SignatureInvalid`, `KeyUnknown`,
    /// `KeyRevoked`, `KeyExpired`, `KeyRole`, `ManifestMalformed`, `SizeMismatch`,
    /// `ManifestExpired`, `ApiVersion`, `ProgramTooOld`, `RolledBack`.
    pub fn verify(
        self,
        rules: &Rules<'_>,
        floor: impl FnOnce(&Manifest) -> u64,
    ) -> Result<Package<Verified>> {
        let name = self.name.clone();
        let refuse = |reason, why: &str| Error::refused(&name, reason, why);
        if self.envelope.payload_type() != PAYLOAD_TYPE {
            return Err(refuse(Reason::PayloadType, "what is signed is no model's manifest"));
        }
        let keys = rules.trust.verify(&self.envelope, KeyRole::Models, rules.now);
        let keys = keys.map_err(|error| named(error, &name))?;
        let manifest = Manifest::parse(self.envelope.payload()).map_err(|e| named(e, &name))?;
        if manifest.bytes != self.header.bytes {
            let why = format!("{} bytes are signed, {} sealed", manifest.bytes, self.header.bytes);
            return Err(refuse(Reason::SizeMismatch, &why));
        }
        manifest.fits(rules.program, rules.now).map_err(|error| named(error, &name))?;
        let floor = floor(&manifest);
        if manifest.security_version < floor {
            let why = format!(
                "its security version is {}, of `{}` {floor} was installed once",
                manifest.security_version, manifest.id
            );
            return Err(refuse(Reason::RolledBack, &why));
        }
        let Self { file, name, header, envelope, wraps, payload, .. } = self;
        let state = Verified { manifest, keys };
        Ok(Package { file, name, header, envelope, wraps, payload, state })
    }
}

impl<S> Package<S> {
    /// For which devices it is sealed.
    pub fn devices(&self) -> impl Iterator<Item = KeyId> {
        self.wraps.iter().map(|wrap| wrap.device)
    }

    /// Who claims to have signed it.
    pub fn signers(&self) -> impl Iterator<Item = KeyId> {
        self.envelope.signers()
    }

    /// The manifest as it stands there. For looking at only: before [`verify`](Package::verify)
    /// anybody may have written it.
    ///
    /// # Errors
    /// `Refused` with `ManifestMalformed`.
    pub fn claims(&self) -> Result<Manifest> {
        Manifest::parse(self.envelope.payload()).map_err(|error| named(error, &self.name))
    }

    /// A name for these exact bytes of header and manifest, 64 hex digits.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        digest::of(&[&self.header.to_bytes()[..], &self.manifest_hash()].concat())
    }

    /// True when both have the same header and manifest, and so the same payload.
    #[must_use]
    pub fn same_model<T>(&self, other: &Package<T>) -> bool {
        self.fingerprint() == other.fingerprint()
    }

    fn manifest_hash(&self) -> [u8; 32] {
        Sha256::digest(self.envelope.payload()).into()
    }

    /// The content key, for a device that the package was made for.
    fn content_key(&self, device: &DeviceKey) -> Result<ContentKey> {
        let id = device.public().id();
        let wrap = self.wraps.iter().find(|wrap| wrap.device == id).ok_or_else(|| {
            let why = format!("it was not made for this device ({id})");
            Error::refused(&self.name, Reason::WrongDevice, &why)
        })?;
        wrap.open(device, &self.manifest_hash()).map_err(|error| named(error, &self.name))
    }

    /// The payload's cipher, for a device that the package was made for.
    fn stream(&self, device: &DeviceKey) -> Result<(Stream, Vec<u8>)> {
        let key = self.content_key(device)?;
        let bound_to = [&self.header.to_bytes()[..], &self.manifest_hash()].concat();
        Ok((key.stream(&self.header.prefix), bound_to))
    }

    /// Opens chunk `index` inside `room`; how many bytes of it are plaintext.
    fn chunk(&self, stream: &Stream, bound: &[u8], index: u64, room: &mut [u8]) -> Result<usize> {
        let last = index + 1 == seal::chunks(self.header.bytes);
        let plain = (self.header.bytes - index * CHUNK as u64).min(CHUNK as u64) as usize;
        let sealed = room.get_mut(..plain + TAG).expect("there is room for a chunk and its tag");
        let at = self.payload + index * (CHUNK + TAG) as u64;
        self.file.read_exact_at(sealed, at).map_err(io(&self.name))?;
        let position = u32::try_from(index).expect("a model has fewer chunks");
        stream.open(position, last, bound, sealed).map_err(|_| {
            let why = format!("chunk {index} was changed, or stands in the wrong place");
            Error::refused(&self.name, Reason::ChunkInvalid, &why)
        })?;
        Ok(plain)
    }

    /// Writes the package again with another list of devices, for which one of `device` opens it.
    /// Header, signature and payload stay as they are, to the byte.
    ///
    /// # Errors
    /// `Refused`: `WrongDevice`, `WrapInvalid`; `Random`, `Io`.
    pub fn rewrap(
        &self,
        device: &DeviceKey,
        for_devices: &[DevicePublic],
        random: &mut dyn Random,
        out: &mut impl Write,
    ) -> Result<()> {
        let key = self.content_key(device)?;
        let failed = |source| Error::Io { action: "write", path: self.name.clone().into(), source };
        write_head(out, self.header, &self.envelope, &key, for_devices, random)?;
        let mut chunk = vec![0; CHUNK];
        let end = self.payload + seal::sealed_bytes(self.header.bytes);
        let mut at = self.payload;
        while at < end {
            let take = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let part = chunk.get_mut(..take).expect("no more than the buffer holds");
            self.file.read_exact_at(part, at).map_err(io(&self.name))?;
            out.write_all(part).map_err(failed)?;
            at += take as u64;
        }
        Ok(())
    }
}

impl Package<Verified> {
    /// What was signed.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.state.manifest
    }

    /// The trusted keys by which it holds.
    #[must_use]
    pub fn keys(&self) -> &[KeyId] {
        &self.state.keys
    }

    /// The model in sealed memory: beside it there is one chunk of it at a time.
    ///
    /// # Errors
    /// `Refused`: `WrongDevice`, `WrapInvalid`, `ChunkInvalid`; `Io`, `Memory`.
    pub fn open(&self, device: &DeviceKey) -> Result<OwnedFd> {
        let (stream, bound) = self.stream(device)?;
        let mut memory = Filling::new(CHUNK + TAG)?;
        for index in 0..seal::chunks(self.header.bytes) {
            let plain = self.chunk(&stream, &bound, index, memory.chunk())?;
            memory.push(plain)?;
        }
        memory.seal()
    }

    /// Opens every chunk, keeps none, and compares the digest of all with the signed one.
    ///
    /// # Errors
    /// As [`open`](Self::open), and `DigestMismatch`.
    pub fn check(&self, device: &DeviceKey) -> Result<()> {
        let (stream, bound) = self.stream(device)?;
        let mut room = Zeroizing::new(vec![0; CHUNK + TAG]);
        let mut hasher = Hasher::default();
        for index in 0..seal::chunks(self.header.bytes) {
            let plain = self.chunk(&stream, &bound, index, &mut room)?;
            hasher.update(room.get(..plain).unwrap_or_default());
        }
        if hasher.hex() == self.state.manifest.sha256 {
            return Ok(());
        }
        let why = "its chunks are whole, but they are not the model that was signed";
        Err(Error::refused(&self.name, Reason::DigestMismatch, why))
    }
}

/// Says of an error what it is about.
fn named(error: Error, name: &str) -> Error {
    match error {
        Error::Refused { reason, why, .. } => Error::refused(name, reason, &why),
        other => other,
    }
}

fn write_head(
    out: &mut impl Write,
    header: Header,
    envelope: &Envelope,
    key: &ContentKey,
    devices: &[DevicePublic],
    random: &mut dyn Random,
) -> Result<()> {
    let failed = |source| Error::Io { action: "write", path: "the package".into(), source };
    if devices.len() > limits::WRAPS {
        let why = format!("{} devices, at most {} can be", devices.len(), limits::WRAPS);
        return Err(Error::refused("The package", Reason::TooLarge, &why));
    }
    let hash: [u8; 32] = Sha256::digest(envelope.payload()).into();
    let json = envelope.to_json();
    let size = u32::try_from(json.len()).expect("a manifest is short");
    let count = u16::try_from(devices.len()).expect("bounded before");
    let mut head = header.to_bytes().to_vec();
    head.extend(size.to_be_bytes());
    head.extend(json);
    head.extend(count.to_be_bytes());
    for device in devices {
        head.extend(key.wrap(device, &hash, random)?.to_bytes());
    }
    out.write_all(&head).map_err(failed)
}

/// Writes a package of the model that `input` gives: as many bytes, and of the digest, as
/// `manifest` says.
///
/// # Errors
/// `Refused`: `ManifestMalformed`, `SizeMismatch`, `DigestMismatch` (then `out` is of no use);
/// `BadKey`, `Random`, `Io`.
pub fn pack(
    manifest: &Manifest,
    signers: &[&KeyPair],
    devices: &[DevicePublic],
    input: &mut impl Read,
    out: &mut impl Write,
    random: &mut dyn Random,
) -> Result<()> {
    let refuse = |reason, why: &str| Error::refused("The package", reason, why);
    manifest.check().map_err(|why| refuse(Reason::ManifestMalformed, &why))?;
    let mut envelope = Envelope::new(PAYLOAD_TYPE, manifest.to_json());
    signers.iter().for_each(|key| envelope.sign(key));
    let key = ContentKey::generate(random)?;
    let mut prefix = [0; PREFIX];
    random.fill(&mut prefix).map_err(|source| Error::Random { source })?;
    let header = Header { bytes: manifest.bytes, prefix };
    write_head(out, header, &envelope, &key, devices, random)?;

    let hash: [u8; 32] = Sha256::digest(envelope.payload()).into();
    let bound = [&header.to_bytes()[..], &hash].concat();
    let stream = key.stream(&prefix);
    let failed = |action| move |source| Error::Io { action, path: "the model".into(), source };
    let mut room = Zeroizing::new(vec![0; CHUNK + TAG]);
    let mut hasher = Hasher::default();
    let count = seal::chunks(manifest.bytes);
    for index in 0..count {
        let plain = (manifest.bytes - index * CHUNK as u64).min(CHUNK as u64) as usize;
        let sealed = room.get_mut(..plain + TAG).expect("there is room for a chunk and its tag");
        input.read_exact(&mut sealed[..plain]).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                refuse(Reason::SizeMismatch, "the model is shorter than its manifest says")
            }
            _ => failed("read")(source),
        })?;
        hasher.update(&sealed[..plain]);
        let position = u32::try_from(index).expect("a model has fewer chunks");
        stream
            .seal(position, index + 1 == count, &bound, sealed)
            .map_err(|_| refuse(Reason::TooLarge, "the cipher takes no more"))?;
        out.write_all(sealed).map_err(failed("write"))?;
    }
    if input.read(&mut [0]).map_err(failed("read"))? != 0 {
        return Err(refuse(Reason::SizeMismatch, "the model is longer than its manifest says"));
    }
    if hasher.hex() != manifest.sha256 {
        return Err(refuse(Reason::DigestMismatch, "the model is not that of its manifest"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
