//! Enrolled sources: put, read, listed, and erased with proof.

use mien_base::consent::{ConsentRecord, SourceRecord};
use mien_base::id::IdentityId;
use mien_vault::store::check_source;
use mien_vault::{SourceStore, StoredSource};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::json;
use zeroize::Zeroizing;

use super::erase::{Erased, Needles};
use super::record::run;
use super::sealed::{self, SourceKey};
use super::writer::When;
use super::{Store, consents, record};
use crate::audit::{Entry, Kind};
use crate::errors::{Error, Result, sql};

/// A source that is about to be stored.
pub(super) struct New {
    pub(super) identity: IdentityId,
    pub(super) sealed: Vec<u8>,
    pub(super) wrapped: Vec<u8>,
    pub(super) entry: Entry,
    pub(super) enrolled: u64,
    pub(super) consents: Vec<ConsentRecord>,
}

/// An error when nobody of this name is enrolled.
pub(super) fn enrolled(conn: &Connection, identity: &IdentityId) -> Result<()> {
    let found = conn
        .query_row("SELECT 1 FROM source WHERE identity = ?1", [identity.as_str()], |_| Ok(()))
        .optional()
        .map_err(sql("be read"))?;
    found.ok_or_else(|| mien_vault::Error::SourceUnknown { id: identity.clone() }.into())
}

/// Key and content of a source as they are stored.
fn stored(conn: &Connection, identity: &IdentityId) -> Result<(Vec<u8>, Vec<u8>)> {
    let found = conn
        .query_row(
            "SELECT source_key.wrapped, source.sealed FROM source
             JOIN source_key USING (identity) WHERE identity = ?1",
            [identity.as_str()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()
        .map_err(sql("be read"))?;
    found.ok_or_else(|| mien_vault::Error::SourceUnknown { id: identity.clone() }.into())
}

impl Store {
    /// Seals a source under a new key.
    pub(super) fn seal_source(
        &self,
        kind: Kind,
        record: &SourceRecord,
        portrait: &[u8],
        consents: &[ConsentRecord],
    ) -> Result<New> {
        check_source(record, portrait, consents)?;
        let mut key: SourceKey = Zeroizing::new([0; 32]);
        let mut nonce = [0; 12];
        self.fill(&mut *key)?;
        self.fill(&mut nonce)?;
        let identity = record.identity.clone();
        let quality = &record.quality;
        let whole = |value: f32| i64::from(value.round() as i32);
        let body = json!({
            "embedder": record.embedder.as_ref().map(|(id, _)| id),
            "face_px": whole(quality.face_px),
            "sharpness": whole(quality.sharpness),
            "yaw": whole(quality.yaw),
            "pitch": whole(quality.pitch),
        });
        Ok(New {
            sealed: sealed::seal(record, portrait, &key),
            wrapped: sealed::wrap(&key, &identity, &self.wrapping(), nonce),
            entry: Entry::new(kind, self.clock.wall(), body).about(&identity),
            enrolled: record.enrolled.0,
            consents: consents.to_vec(),
            identity,
        })
    }

    /// Stores what was sealed, in the writer's transaction.
    pub(super) fn insert(&self, new: New) -> Result<()> {
        let (keys, now) = (self.keys.clone(), self.clock.wall());
        let work = move |conn: &Connection| {
            let New { identity, sealed, wrapped, entry, enrolled, consents } = new;
            let kept = run(
                conn,
                "INSERT INTO source (identity, enrolled, sealed) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO NOTHING",
                params![identity.as_str(), enrolled, sealed],
            )?;
            if kept == 0 {
                return Err(mien_vault::Error::SourceExists { id: identity }.into());
            }
            let statement = "INSERT OR REPLACE INTO source_key (identity, wrapped) VALUES (?1, ?2)";
            run(conn, statement, params![identity.as_str(), wrapped])?;
            record::append(conn, keys.audit(), entry)?;
            for consent in &consents {
                consents::grant(conn, &*keys, consent, now)?;
            }
            Ok(())
        };
        self.write(When::Now, work).wait()
    }

    /// Record and portrait of a source.
    fn face(&self, conn: &Connection, id: &IdentityId) -> Result<(SourceRecord, Vec<u8>)> {
        let (wrapped, content) = stored(conn, id)?;
        let damaged = |why: &str| {
            let (path, why) = (self.path.clone(), format!("source `{id}`: {why}"));
            Error::Vault(mien_vault::Error::SourceDamaged { path, why })
        };
        let key = sealed::unwrap(&wrapped, id, &self.wrapping())
            .ok_or_else(|| damaged("its key is of another machine, or was changed"))?;
        let (record, portrait) = sealed::open(&content, id, &key).map_err(damaged)?;
        if record.identity != *id {
            return Err(damaged("it is bound to another name"));
        }
        Ok((record, portrait))
    }
}

impl SourceStore for Store {
    type Error = Error;
    type Erased = Erased;

    fn put(
        &self,
        record: &SourceRecord,
        portrait: &[u8],
        consent: Option<&ConsentRecord>,
    ) -> Result<()> {
        let new = self.seal_source(
            Kind::Enrol,
            record,
            portrait,
            consent.map_or(&[], std::slice::from_ref),
        )?;
        self.insert(new)
    }

    fn get(&self, id: &IdentityId) -> Result<StoredSource> {
        let conn = self.reader();
        let (record, portrait) = self.face(&conn, id)?;
        let found = consents::of(&conn, (&*self.keys, self.clock.wall()), Some(id))?;
        let consents: Vec<ConsentRecord> =
            found.into_iter().filter_map(|c| c.record.ok()).map(|(_, record)| record).collect();
        check_source(&record, &portrait, &consents)?;
        Ok(StoredSource { record, portrait, consents })
    }

    fn list(&self) -> Result<Vec<IdentityId>> {
        let conn = self.reader();
        let mut statement = conn
            .prepare_cached("SELECT identity FROM source ORDER BY identity")
            .map_err(sql("be read"))?;
        let rows =
            statement.query_map([], |row| row.get::<_, String>(0)).map_err(sql("be read"))?;
        let mut ids = Vec::new();
        for row in rows {
            // A name that is none was not put there by us.
            ids.extend(row.map_err(sql("be read"))?.parse());
        }
        Ok(ids)
    }

    fn forget(&self, id: &IdentityId) -> Result<Erased> {
        let needles = self.needles(id)?;
        self.erase_rows(id)?;
        self.finish_erasures()?;
        self.prove(id, &needles)
    }
}

impl Store {
    /// What must stand nowhere any more once a source is forgotten: parts of its sealed content, of
    /// its key as it is stored, of its consent records, and of the face itself in plain.
    fn needles(&self, id: &IdentityId) -> Result<Needles> {
        let conn = self.reader();
        let (wrapped, content) = stored(&conn, id)?;
        let mut needles = Needles::default();
        needles.add(&wrapped);
        needles.add(&content);
        let mut statement = conn
            .prepare_cached("SELECT envelope, revocation FROM consent WHERE identity = ?1")
            .map_err(sql("be read"))?;
        let rows = statement
            .query_map([id.as_str()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
            })
            .map_err(sql("be read"))?;
        for row in rows {
            let (envelope, revocation) = row.map_err(sql("be read"))?;
            // The signature alone is of this record and no other.
            needles.add_tail(envelope.as_bytes());
            needles.add_tail(revocation.unwrap_or_default().as_bytes());
        }
        // What can't be opened was never in plain either.
        if let Ok((record, portrait)) = self.face(&conn, id) {
            let numbers = record.embedding.iter().flat_map(|value| value.to_le_bytes());
            needles.add(&numbers.collect::<Vec<u8>>());
            needles.add(&portrait);
        }
        Ok(needles)
    }

    /// Takes a source out of every table. The small ones are written anew without it: SQLite wipes
    /// whole pages that it frees, and may leave copies in pages that it only rearranges.
    fn erase_rows(&self, id: &IdentityId) -> Result<()> {
        let (keys, now, id) = (self.keys.clone(), self.clock.wall(), id.clone());
        let work = move |conn: &Connection| {
            enrolled(conn, &id)?;
            let consents = run(conn, "DELETE FROM consent WHERE identity = ?1", [id.as_str()])?;
            run(conn, "DELETE FROM source_key WHERE identity = ?1", [id.as_str()])?;
            run(conn, "DELETE FROM source WHERE identity = ?1", [id.as_str()])?;
            conn.execute_batch(
                "CREATE TEMP TABLE kept_key AS SELECT * FROM source_key;
                 CREATE TEMP TABLE kept_consent AS SELECT * FROM consent;
                 DELETE FROM source_key;
                 DELETE FROM consent;
                 INSERT INTO source_key SELECT * FROM kept_key;
                 INSERT INTO consent SELECT * FROM kept_consent;
                 DROP TABLE kept_key;
                 DROP TABLE kept_consent;",
            )
            .map_err(sql("write its tables anew"))?;
            let statement = "INSERT OR REPLACE INTO erasure (identity, since) VALUES (?1, ?2)";
            run(conn, statement, params![id.as_str(), now.0])?;
            let body = json!({ "consents": consents });
            let entry = Entry::new(Kind::Forget, now, body).about(&id);
            record::append(conn, keys.audit(), entry).map(drop)
        };
        self.write(When::Now, work).wait()
    }
}
