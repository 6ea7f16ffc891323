//! Signed heads: a key says that the record held this row at this time.

use mien_base::clock::Wall;
use mien_vault::sign::{Envelope, KeyPair, PublicKey};
use serde::{Deserialize, Serialize};

use super::line::Hash;

/// Payload type of a signed head.
const HEAD_TYPE: &str = "application/vnd.mien.audit-head.v1+json";

/// What is signed: the last row and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    pub at: Wall,
    pub hash: Hash,
    pub seq: u64,
}

impl Head {
    /// The head in its envelope, as JSON.
    #[must_use]
    pub fn sign(&self, key: &KeyPair) -> String {
        signed(HEAD_TYPE, self, key)
    }

    /// The head of an envelope when `key` signed it.
    #[must_use]
    pub fn open(envelope: &str, key: &PublicKey) -> Option<Self> {
        opened(HEAD_TYPE, envelope, key)
    }
}

/// A document in an envelope with one signature.
pub(super) fn signed(kind: &str, document: &impl Serialize, key: &KeyPair) -> String {
    let payload = serde_json::to_vec(document).expect("plain data with text keys");
    let mut envelope = Envelope::new(kind, payload);
    envelope.sign(key);
    String::from_utf8(envelope.to_json()).expect("JSON is text")
}

/// The document of an envelope of this type that `key` signed.
pub(super) fn opened<T: serde::de::DeserializeOwned>(
    kind: &str,
    envelope: &str,
    key: &PublicKey,
) -> Option<T> {
    let envelope = Envelope::parse(envelope.as_bytes()).ok()?;
    let holds = envelope.payload_type() == kind && envelope.signed_by(key) == Some(true);
    if holds { serde_json::from_slice(envelope.payload()).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_holds_for_its_key_and_its_words_alone() {
        let (ours, other) = (KeyPair::from_seed(&[1; 32]), KeyPair::from_seed(&[2; 32]));
        let head = Head { at: Wall(5), hash: Hash([7; 32]), seq: 9 };
        let envelope = head.sign(&ours);
        assert_eq!(Head::open(&envelope, &ours.public()), Some(head));
        assert_eq!(Head::open(&envelope, &other.public()), None);
        let later = Head { seq: 10, ..head }.sign(&other);
        assert_eq!(Head::open(&later, &ours.public()), None);
        // Another kind of document that the same key signed is no head.
        let other_kind = signed("application/json", &head, &ours);
        assert_eq!(Head::open(&other_kind, &ours.public()), None);
    }
}
