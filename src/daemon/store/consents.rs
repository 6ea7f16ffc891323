//! Consent: what was agreed to and what took it back, each in an envelope that a trusted key signed.

use std::fmt;

use mien_base::clock::Wall;
use mien_base::consent::{ConsentRecord, Scope};
use mien_base::id::IdentityId;
use mien_base::limits;
use mien_vault::sign::{Envelope, KeyId, KeyPair};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::keys::Keys;
use super::record::run;
use super::writer::When;
use super::{Store, record};
use crate::audit::{Entry, Kind};
use crate::errors::{Error, Result, sql};

const RECORD_TYPE: &str = "application/vnd.mien.consent.v1+json";
const REVOCATION_TYPE: &str = "application/vnd.mien.consent-revocation.v1+json";

/// Name of a consent record: `c-` and the first 16 hex digits of the SHA-256 of what it says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConsentId(String);

impl fmt::Display for ConsentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ConsentId {
    /// As it was given on a command line; what it names is looked up.
    #[must_use]
    pub fn named(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// A consent record as it is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    id: ConsentId,
    identity: IdentityId,
    subject: String,
    purpose: String,
    scope: Vec<Scope>,
    granted: Wall,
    expires: Wall,
    evidence: Option<String>,
    operator: String,
}

impl Signed {
    fn of(record: &ConsentRecord) -> Self {
        let mut signed = Self {
            id: ConsentId(String::new()),
            identity: record.identity.clone(),
            subject: record.subject.clone(),
            purpose: record.purpose.clone(),
            scope: record.scope.clone(),
            granted: record.granted,
            expires: record.expires,
            evidence: record.evidence.clone(),
            operator: record.operator.clone(),
        };
        signed.id = signed.expected_id();
        signed
    }

    fn expected_id(&self) -> ConsentId {
        let nameless = Self { id: ConsentId(String::new()), ..self.clone() };
        let digest = mien_vault::digest::of(&payload(&nameless));
        ConsentId(format!("c-{}", digest.get(..16).unwrap_or_default()))
    }

    fn record(self, revoked: Option<Wall>) -> ConsentRecord {
        let Self {
            identity, subject, purpose, scope, granted, expires, evidence, operator, ..
        } = self;
        ConsentRecord {
            identity,
            subject,
            purpose,
            scope,
            granted,
            expires,
            revoked,
            evidence,
            operator,
        }
    }
}

/// What takes a record back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Revocation {
    id: ConsentId,
    identity: IdentityId,
    at: Wall,
    operator: String,
}

/// A consent record of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredConsent {
    pub id: ConsentId,
    pub identity: IdentityId,
    /// Signed by this key, and what it says; or why it counts for nothing.
    pub record: std::result::Result<(KeyId, ConsentRecord), String>,
}

fn payload(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("plain data with text keys")
}

fn sign(kind: &str, document: &impl Serialize, key: &KeyPair) -> String {
    let mut envelope = Envelope::new(kind, payload(document));
    envelope.sign(key);
    String::from_utf8(envelope.to_json()).expect("JSON is text")
}

/// The document of an envelope of this type that a trusted key signed.
fn opened<T: for<'de> Deserialize<'de>>(
    kind: &str,
    text: &str,
    (keys, now): (&dyn Keys, Wall),
) -> std::result::Result<(KeyId, T), String> {
    let envelope = Envelope::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    if envelope.payload_type() != kind {
        return Err("its envelope holds something else".to_owned());
    }
    let key = keys.consent_signer(&envelope, now);
    let key = key.ok_or("no trusted key of role consent signed it")?;
    let document = serde_json::from_slice(envelope.payload());
    document.map(|document| (key, document)).map_err(|_| "what it says can't be read".to_owned())
}

/// A record signed by a key, as `Store::grant_signed` takes it on any machine that trusts the key.
#[must_use]
pub fn sign_consent(record: &ConsentRecord, key: &KeyPair) -> String {
    sign(RECORD_TYPE, &Signed::of(record), key)
}

/// Keeps a record of an enrolled source, signed by this machine's operator, and the row about it.
pub(super) fn grant(
    conn: &Connection,
    keys: &dyn Keys,
    record: &ConsentRecord,
    now: Wall,
) -> Result<ConsentId> {
    let (envelope, key) = (sign_consent(record, keys.consent()), keys.consent().id());
    keep(conn, keys, (Signed::of(record).id, record), (&envelope, key), now)
}

/// Keeps a signed record, and the row about it.
fn keep(
    conn: &Connection,
    keys: &dyn Keys,
    (id, record): (ConsentId, &ConsentRecord),
    (envelope, key): (&str, KeyId),
    now: Wall,
) -> Result<ConsentId> {
    let identity = &record.identity;
    let held: usize = conn
        .query_row("SELECT count(*) FROM consent WHERE identity = ?1", [identity.as_str()], |r| {
            r.get(0)
        })
        .map_err(sql("be read"))?;
    if held >= limits::CONSENTS {
        let why = format!("it has {held} consent records, the most that are kept");
        return Err(mien_vault::Error::SourceBad { id: identity.clone(), why }.into());
    }
    let kept = run(
        conn,
        "INSERT INTO consent (id, identity, envelope) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        params![id.0, identity.as_str(), envelope],
    )?;
    if kept == 0 {
        // The same words again: there already, and perhaps taken back since.
        return Ok(id);
    }
    let body = json!({
        "id": id.0,
        "scope": record.scope,
        "granted": record.granted.to_string(),
        "expires": record.expires.to_string(),
        "evidence": record.evidence,
        "operator": record.operator,
        "key": key.to_string(),
        "envelope": mien_vault::digest::of(envelope.as_bytes()),
    });
    let entry = Entry::new(Kind::Grant, now, body).about(identity);
    record::append(conn, keys.audit(), entry)?;
    if let Some(at) = record.revoked {
        revoke_one(conn, keys, (&id, identity), at, &record.operator, now)?;
    }
    Ok(id)
}

fn revoke_one(
    conn: &Connection,
    keys: &dyn Keys,
    (id, identity): (&ConsentId, &IdentityId),
    at: Wall,
    operator: &str,
    now: Wall,
) -> Result<()> {
    let words = Revocation {
        id: id.clone(),
        identity: identity.clone(),
        at,
        operator: operator.to_owned(),
    };
    let envelope = sign(REVOCATION_TYPE, &words, keys.consent());
    run(conn, "UPDATE consent SET revocation = ?2 WHERE id = ?1", params![id.0, envelope])?;
    let body = json!({
        "id": id.0,
        "from": at.to_string(),
        "operator": operator,
        "key": keys.consent().id().to_string(),
    });
    let entry = Entry::new(Kind::Revoke, now, body).about(identity);
    record::append(conn, keys.audit(), entry)?;
    Ok(())
}

/// The records of a source, or of all, by name.
pub(super) fn of(
    conn: &Connection,
    trust: (&dyn Keys, Wall),
    identity: Option<&IdentityId>,
) -> Result<Vec<StoredConsent>> {
    let mut statement = conn
        .prepare_cached(
            "SELECT id, identity, envelope, revocation FROM consent
             WHERE ?1 IS NULL OR identity = ?1 ORDER BY identity, id",
        )
        .map_err(sql("be read"))?;
    let rows = statement
        .query_map([identity.map(|id| id.as_str())], |row| {
            let id = ConsentId(row.get(0)?);
            let identity: String = row.get(1)?;
            let envelope: String = row.get(2)?;
            let revocation: Option<String> = row.get(3)?;
            Ok((id, identity, envelope, revocation))
        })
        .map_err(sql("be read"))?;
    let mut all = Vec::new();
    for row in rows {
        let (id, identity, envelope, revocation) = row.map_err(sql("be read"))?;
        // A name that is none belongs to nobody.
        let Ok(identity) = identity.parse::<IdentityId>() else { continue };
        let record = check(trust, &id, &identity, &envelope, revocation.as_deref());
        all.push(StoredConsent { id, identity, record });
    }
    Ok(all)
}

/// What a stored record says, if all of it holds together.
fn check(
    trust: (&dyn Keys, Wall),
    id: &ConsentId,
    identity: &IdentityId,
    envelope: &str,
    revocation: Option<&str>,
) -> std::result::Result<(KeyId, ConsentRecord), String> {
    let (key, signed) = opened::<Signed>(RECORD_TYPE, envelope, trust)?;
    if signed.identity != *identity {
        return Err(format!("it is bound to `{}`", signed.identity));
    }
    if signed.id != *id || signed.id != signed.expected_id() {
        return Err("its name is not its own".to_owned());
    }
    let Some(revocation) = revocation else { return Ok((key, signed.record(None))) };
    // Whatever stands there, somebody took it back: in doubt it does not hold.
    let (_, words) = opened::<Revocation>(REVOCATION_TYPE, revocation, trust)
        .map_err(|why| format!("it was taken back, but {why}"))?;
    if words.id != *id || words.identity != *identity {
        return Err("it was taken back by words about another record".to_owned());
    }
    Ok((key, signed.record(Some(words.at))))
}

impl Store {
    /// Records that a person agreed, for an enrolled source.
    ///
    /// # Errors
    /// `Vault(SourceUnknown)`; `Vault(SourceBad)` beyond `limits::CONSENTS`; `Store…`.
    pub fn grant(&self, record: &ConsentRecord) -> Result<ConsentId> {
        let (keys, now, record) = (self.keys.clone(), self.clock.wall(), record.clone());
        let work = move |conn: &Connection| {
            super::sources::enrolled(conn, &record.identity)?;
            grant(conn, &*keys, &record, now)
        };
        self.write(When::Now, work).wait()
    }

    /// Records that a person agreed, by a record that another desk signed, for an enrolled source.
    ///
    /// # Errors
    /// `Vault(ConsentBad)` when no key of role consent that is trusted here signed it, when it is of
    /// another source, or says what can't be; of [`grant`](Self::grant).
    pub fn grant_signed(&self, identity: &IdentityId, envelope: &str) -> Result<ConsentId> {
        let (keys, now) = (self.keys.clone(), self.clock.wall());
        let bad = |why: String| mien_vault::Error::ConsentBad { faults: vec![why] };
        let (key, signed) = opened::<Signed>(RECORD_TYPE, envelope, (&*keys, now)).map_err(bad)?;
        if signed.id != signed.expected_id() {
            return Err(bad("its name is not its own".to_owned()).into());
        }
        // What a signer may say is what a user may write.
        let mut said = serde_json::to_value(&signed).expect("plain data with text keys");
        said.as_object_mut().map(|said| said.remove("id"));
        let record = mien_vault::consent::parse(&said.to_string(), identity)?;
        let (id, envelope) = (signed.id, envelope.to_owned());
        let work = move |conn: &Connection| {
            super::sources::enrolled(conn, &record.identity)?;
            keep(conn, &*keys, (id, &record), (&envelope, key), now)
        };
        self.write(When::Now, work).wait()
    }

    /// Takes consent back from `at` on: one record, or all of a source. An earlier revocation
    /// stands. Gives the records that were taken back.
    ///
    /// # Errors
    /// `Vault(SourceUnknown)`, `Vault(ConsentMissing)` when there is no such record; `Store…`.
    pub fn revoke(
        &self,
        identity: &IdentityId,
        only: Option<&ConsentId>,
        at: Wall,
        operator: &str,
    ) -> Result<Vec<ConsentId>> {
        let (keys, now, operator) = (self.keys.clone(), self.clock.wall(), operator.to_owned());
        let (identity, only) = (identity.clone(), only.cloned());
        let work = move |conn: &Connection| {
            super::sources::enrolled(conn, &identity)?;
            let mut taken = Vec::new();
            let mut found = false;
            for stored in of(conn, (&*keys, now), Some(&identity))? {
                if only.as_ref().is_some_and(|only| *only != stored.id) {
                    continue;
                }
                found = true;
                let earlier = match &stored.record {
                    Ok((_, record)) => record.revoked.is_some_and(|before| before <= at),
                    // It counts for nothing, and words that don't hold are replaced by ones that do.
                    Err(_) => false,
                };
                if !earlier {
                    revoke_one(conn, &*keys, (&stored.id, &identity), at, &operator, now)?;
                    taken.push(stored.id);
                }
            }
            if found {
                Ok(taken)
            } else {
                Err(mien_vault::Error::ConsentMissing { id: identity.clone() }.into())
            }
        };
        self.write(When::Now, work).wait()
    }

    /// Records of a source, or of all; those that count for nothing with the reason.
    ///
    /// # Errors
    /// `Vault(SourceUnknown)`, `Store`.
    pub fn consents(&self, identity: Option<&IdentityId>) -> Result<Vec<StoredConsent>> {
        let conn = self.reader();
        if let Some(identity) = identity {
            super::sources::enrolled(&conn, identity)?;
        }
        of(&conn, (&*self.keys, self.clock.wall()), identity)
    }

    /// The signed record and what took it back, as they stand in the database.
    ///
    /// # Errors
    /// `Vault(ConsentMissing)`, `Store`.
    pub fn envelopes(
        &self,
        identity: &IdentityId,
        id: &ConsentId,
    ) -> Result<(String, Option<String>)> {
        let conn = self.reader();
        let statement = "SELECT envelope, revocation FROM consent WHERE identity = ?1 AND id = ?2";
        let found = conn
            .query_row(statement, params![identity.as_str(), id.0], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
            .map_err(sql("be read"))?;
        found
            .ok_or_else(|| Error::Vault(mien_vault::Error::ConsentMissing { id: identity.clone() }))
    }
}
