//! Ed25519 keys and DSSE envelopes: what is signed are exact bytes, nothing is made canonical.
//!
//! An envelope binds its payload type: `DSSEv1 LEN(type) type LEN(payload) payload` is what a key
//! signs, so a signature over one kind of document never holds for another. Whom to trust is the
//! trust store's matter; here a signature is only right or wrong.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use mien_base::limits;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::errors::{Error, Result};
use crate::random::Random;
use crate::refusal::Reason;
use crate::text;

/// Name of a key: the first half of the SHA-256 of its public bytes, 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId([u8; 16]);

impl KeyId {
    /// The name of public bytes.
    #[must_use]
    pub fn of(public: &[u8; 32]) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&Sha256::digest(public)[..16]);
        Self(id)
    }

    /// From its bytes in a container.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes in a container.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::hex(&self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

impl FromStr for KeyId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::BadKey { what: "A key id", must: "32 digits of 0-9, a-f" };
        text::unhex(text).map(Self).ok_or_else(bad)
    }
}

impl TryFrom<String> for KeyId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> Self {
        id.to_string()
    }
}

/// The public half of a signing key; never a weak one.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// From its 32 bytes.
    ///
    /// # Errors
    /// `BadKey` for what is no point of the curve, or one of small order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self> {
        let bad = || Error::BadKey { what: "A public key", must: "a strong Ed25519 key" };
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| bad())?;
        if key.is_weak() { Err(bad()) } else { Ok(Self(key)) }
    }

    /// Its 32 bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId::of(self.0.as_bytes())
    }

    /// True when the signature is this key's over these bytes (strict: one valid form only).
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::hex(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::BadKey { what: "A public key", must: "64 digits of 0-9, a-f" };
        Self::from_bytes(&text::unhex(text).ok_or_else(bad)?)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

/// A signing key; its secret half is wiped when dropped and never printed.
pub struct KeyPair(SigningKey);

impl KeyPair {
    /// A new key.
    ///
    /// # Errors
    /// `Random`.
    pub fn generate(random: &mut dyn Random) -> Result<Self> {
        let mut seed = Zeroizing::new([0; 32]);
        random.fill(&mut *seed).map_err(|source| Error::Random { source })?;
        Ok(Self::from_seed(&seed))
    }

    /// The key of a seed.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// What [`from_seed`](Self::from_seed) makes it of again.
    #[must_use]
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// The public half's name.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.public().id()
    }

    /// Signs exact bytes.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", self.id())
    }
}

/// What a key of an envelope signs.
#[must_use]
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// A document with the signatures over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    payload_type: String,
    payload: Vec<u8>,
    signatures: Vec<(KeyId, [u8; 64])>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "payloadType")]
    payload_type: String,
    payload: String,
    signatures: Vec<WrittenSignature>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSignature {
    keyid: KeyId,
    sig: String,
}

impl Envelope {
    /// A document that nobody signed yet.
    #[must_use]
    pub fn new(payload_type: &str, payload: Vec<u8>) -> Self {
        Self { payload_type: payload_type.to_owned(), payload, signatures: Vec::new() }
    }

    /// Adds a key's signature; a second one of the same key takes the first one's place.
    pub fn sign(&mut self, key: &KeyPair) {
        let (id, signature) = (key.id(), key.sign(&pae(&self.payload_type, &self.payload)));
        self.signatures.retain(|(known, _)| *known != id);
        self.signatures.push((id, signature));
    }

    /// What kind of document it is.
    #[must_use]
    pub fn payload_type(&self) -> &str {
        &self.payload_type
    }

    /// The document. Not to be used before a trust store has verified the envelope.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Who claims to have signed it.
    pub fn signers(&self) -> impl Iterator<Item = KeyId> {
        self.signatures.iter().map(|(id, _)| *id)
    }

    /// `None` when the key did not sign; else whether its signature is right.
    #[must_use]
    pub fn signed_by(&self, key: &PublicKey) -> Option<bool> {
        let id = key.id();
        let (_, signature) = self.signatures.iter().find(|(known, _)| *known == id)?;
        Some(key.verify(&pae(&self.payload_type, &self.payload), signature))
    }

    /// The envelope as JSON, in its one form.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let signature = |(keyid, sig): &(KeyId, [u8; 64])| WrittenSignature {
            keyid: *keyid,
            sig: text::base64(sig),
        };
        let written = Written {
            payload_type: self.payload_type.clone(),
            payload: text::base64(&self.payload),
            signatures: self.signatures.iter().map(signature).collect(),
        };
        serde_json::to_vec(&written).expect("strings and lists of them are JSON")
    }

    /// Reads the form that [`to_json`](Self::to_json) writes, and no other: a changed byte is
    /// noticed even where it means the same.
    ///
    /// # Errors
    /// `Refused` with `EnvelopeMalformed` or `TooLarge`.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let bad = |why: &str| Error::refused("The envelope", Reason::EnvelopeMalformed, why);
        if json.len() > limits::ENVELOPE {
            let why = format!("it has {} bytes, at most {} can be", json.len(), limits::ENVELOPE);
            return Err(Error::refused("The envelope", Reason::TooLarge, &why));
        }
        let written: Written = serde_json::from_slice(json).map_err(|e| bad(&e.to_string()))?;
        if written.signatures.len() > limits::SIGNATURES {
            return Err(bad(&format!("it has more than {} signatures", limits::SIGNATURES)));
        }
        let payload = text::unbase64(&written.payload).ok_or_else(|| bad("no base64 payload"))?;
        let mut envelope = Self::new(&written.payload_type, payload);
        for WrittenSignature { keyid, sig } in &written.signatures {
            let bytes = text::unbase64(sig).and_then(|bytes| bytes.try_into().ok());
            let signature = bytes.ok_or_else(|| bad("a signature is not 64 bytes of base64"))?;
            if envelope.signers().any(|known| known == *keyid) {
                return Err(bad("a key signed twice"));
            }
            envelope.signatures.push((*keyid, signature));
        }
        if envelope.to_json() != json {
            return Err(bad("it is not in its one form"));
        }
        Ok(envelope)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::random::tests::Counted;

    pub(crate) fn key(n: u64) -> KeyPair {
        KeyPair::generate(&mut Counted(n << 32)).unwrap()
    }

    #[test]
    fn what_is_signed_is_the_encoding_of_the_dsse_specification() {
        // Of the protocol's own example.
        assert_eq!(
            pae("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
    }

    #[test]
    fn signatures_are_those_of_rfc_8032() {
        let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let pair = KeyPair::from_seed(&text::unhex(seed).unwrap());
        assert_eq!(
            pair.public().to_string(),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
        );
        assert_eq!(
            text::hex(&pair.sign(b"")),
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        );
    }

    #[test]
    fn a_signature_holds_for_its_key_its_type_and_its_bytes_alone() {
        let (a, b) = (key(1), key(2));
        let mut envelope = Envelope::new("t", b"document".to_vec());
        envelope.sign(&a);
        assert_eq!(envelope.signed_by(&a.public()), Some(true));
        assert_eq!(envelope.signed_by(&b.public()), None);
        let mut other = Envelope::new("u", b"document".to_vec());
        other.signatures.clone_from(&envelope.signatures);
        assert_eq!(other.signed_by(&a.public()), Some(false));
    }

    #[test]
    fn every_flipped_bit_of_an_envelope_is_noticed() {
        let key = key(3);
        let mut envelope = Envelope::new("t", b"document".to_vec());
        envelope.sign(&key);
        let json = envelope.to_json();
        assert_eq!(Envelope::parse(&json).unwrap(), envelope);
        for at in 0..json.len() {
            for bit in 0..8 {
                let mut bad = json.clone();
                bad[at] ^= 1 << bit;
                let held = Envelope::parse(&bad).ok().and_then(|e| e.signed_by(&key.public()));
                assert_ne!(held, Some(true), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn weak_keys_and_wrong_texts_are_no_keys() {
        assert!(PublicKey::from_bytes(&[0; 32]).is_err());
        let mut one = [0; 32];
        one[0] = 1;
        assert!(PublicKey::from_bytes(&one).is_err());
        assert!("12".parse::<KeyId>().is_err());
        assert!("12".parse::<PublicKey>().is_err());
        let key = key(4);
        assert_eq!(key.id().to_string().parse::<KeyId>().unwrap(), key.id());
        assert!(!format!("{key:?}").contains(&text::hex(&*key.seed())));
    }
}
