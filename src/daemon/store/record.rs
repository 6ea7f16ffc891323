//! The rows of the record: added inside a transaction, read back as links of the chain.

use std::collections::BTreeSet;

use mien_base::clock::Wall;
use mien_base::id::{IdentityId, JobId};
use mien_vault::sign::KeyPair;
use rusqlite::{Connection, OptionalExtension as _, Params, Row as SqlRow, params};

use super::cells::cell;
use crate::audit::{
    Columns, Entry, Face, Hash, Head, Kind, Link, Row, body_text, faces_text, hash_of,
};
use crate::errors::{Result, sql};

/// Rows after which a head is signed without being asked for.
const SIGNED_EVERY: u64 = 1024;
/// What a row is read from, in this order.
pub(super) const COLUMNS: &str = "seq, at, kind, camera, job, who, faces, body, prev, hash";

/// Runs a statement that is kept for the next time.
pub(super) fn run(conn: &Connection, statement: &str, values: impl Params) -> Result<usize> {
    conn.prepare_cached(statement)
        .and_then(|mut statement| statement.execute(values))
        .map_err(sql("keep what was written"))
}

/// Number and hash of the last row; where a sealed segment ended when the table is empty.
pub(super) fn end(conn: &Connection) -> Result<(u64, Hash)> {
    let last = |statement: &str| {
        conn.prepare_cached(statement)
            .and_then(|mut statement| {
                statement.query_row([], |row| Ok((row.get(0)?, Hash(row.get(1)?)))).optional()
            })
            .map_err(sql("be read"))
    };
    let found = match last("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1")? {
        Some(found) => Some(found),
        None => last("SELECT last, head FROM audit_segment ORDER BY last DESC LIMIT 1")?,
    };
    Ok(found.unwrap_or((0, Hash::NONE)))
}

/// Adds an entry at the end, and to what queries look into.
pub(super) fn append(conn: &Connection, key: &KeyPair, entry: Entry) -> Result<Link> {
    let (last, prev) = end(conn)?;
    let link = Link::of(Row { seq: last + 1, prev, entry })?;
    insert(conn, &link)?;
    if link.row.seq.is_multiple_of(SIGNED_EVERY) {
        sign_head(conn, key, link.row.entry.at)?;
    }
    Ok(link)
}

fn insert(conn: &Connection, link: &Link) -> Result<()> {
    let Entry { kind, at, camera, job, who, faces, body } = &link.row.entry;
    let (seq, job) = (link.row.seq, job.map(|job| job.0));
    let about = who.as_ref().map(|who| who.as_str());
    let (listed, body) = (faces_text(faces), body_text(body));
    run(
        conn,
        "INSERT INTO audit (seq, at, kind, camera, job, who, faces, body, prev, hash)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            seq,
            at.0,
            kind.word(),
            camera,
            job,
            about,
            listed,
            body,
            link.row.prev.0,
            link.hash.0
        ],
    )?;
    for who in named(&link.row.entry) {
        let statement = "INSERT INTO audit_who (who, at, seq) VALUES (?1, ?2, ?3)";
        run(conn, statement, params![who, at.0, seq])?;
    }
    for (n, face) in (0..).zip(faces) {
        let [x0, y0, x1, y1] = face.place;
        run(
            conn,
            "INSERT INTO audit_where (cell, at, seq, n, x0, y0, x1, y1, kind, camera)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![cell(face.place), at.0, seq, n, x0, y0, x1, y1, kind.word(), camera],
        )?;
    }
    Ok(())
}

/// Everybody whom an entry is about or names, each once.
pub(super) fn named(entry: &Entry) -> BTreeSet<&str> {
    let faces = entry.faces.iter().filter_map(|face| face.who.as_ref());
    entry.who.iter().chain(faces).map(|who| who.as_str()).collect()
}

/// Signs the end of the record, unless a head stands there.
pub(super) fn sign_head(conn: &Connection, key: &KeyPair, at: Wall) -> Result<()> {
    let (seq, hash) = end(conn)?;
    let signed: Option<u64> = conn
        .query_row("SELECT max(seq) FROM audit_head", [], |row| row.get(0))
        .map_err(sql("be read"))?;
    if seq == 0 || signed.is_some_and(|signed| signed >= seq) {
        return Ok(());
    }
    let envelope = Head { at, hash, seq }.sign(key);
    let statement = "INSERT INTO audit_head (seq, at, key, envelope) VALUES (?1, ?2, ?3, ?4)";
    run(conn, statement, params![seq, at.0, key.public().to_string(), envelope])?;
    Ok(())
}

/// A stored row whose line has the hash that was recorded with it, without more of it being read.
pub(super) struct Hashed {
    pub(super) seq: u64,
    pub(super) prev: Hash,
    pub(super) hash: Hash,
    pub(super) faces: u64,
    pub(super) named: u64,
}

/// Hashes a row of `COLUMNS` as it stands; `None` when that is not its hash, or it is no row.
pub(super) fn hashed(row: &SqlRow<'_>) -> Option<Hashed> {
    let text = |at: usize| row.get_ref(at).ok()?.as_str_or_null().ok();
    let job: Option<[u8; 16]> = row.get(4).ok()?;
    let (seq, prev, hash) = (row.get(0).ok()?, Hash(row.get(8).ok()?), Hash(row.get(9).ok()?));
    let columns = Columns {
        at: Wall(row.get(1).ok()?),
        kind: text(2)??,
        camera: text(3)?,
        job: job.map(JobId),
        who: text(5)?,
        faces: text(6)?,
        body: text(7)??,
        prev,
        seq,
    };
    if hash_of(columns.line().as_bytes()) != hash {
        return None;
    }
    // Each part must be one: else what one column holds could stand in another, and in one line.
    Kind::of_word(columns.kind)?;
    columns.who.map(str::parse::<IdentityId>).transpose().ok()?;
    if !columns.body.starts_with('{') {
        return None;
    }
    serde_json::from_str::<serde::de::IgnoredAny>(columns.body).ok()?;
    let faces: Vec<Face> = columns.faces.map_or(Ok(Vec::new()), serde_json::from_str).ok()?;
    let mut named: Vec<&str> =
        faces.iter().filter_map(|f| Some(f.who.as_ref()?.as_str())).collect();
    named.extend(columns.who);
    named.sort_unstable();
    named.dedup();
    Some(Hashed { seq, prev, hash, faces: faces.len() as u64, named: named.len() as u64 })
}

/// A stored row as it was read.
pub(super) enum Stored {
    Link(Link),
    /// What stands there is no row: its number, its hash when there is one, and why.
    Bad(u64, Option<Hash>, &'static str),
}

/// Reads a row of `COLUMNS`. What can't be one is told apart from what can't be read.
pub(super) fn read(row: &SqlRow<'_>) -> rusqlite::Result<Stored> {
    let seq: u64 = row.get(0)?;
    let hash = row.get(9).ok().map(Hash);
    Ok(match parts(row) {
        Some((entry, prev)) => match hash {
            Some(hash) => Stored::Link(Link { row: Row { seq, prev, entry }, hash }),
            None => Stored::Bad(seq, None, "its hash is none"),
        },
        None => Stored::Bad(seq, hash, "one of its columns can't be"),
    })
}

fn parts(row: &SqlRow<'_>) -> Option<(Entry, Hash)> {
    let who: Option<String> = row.get(5).ok()?;
    let faces: Option<String> = row.get(6).ok()?;
    let body: String = row.get(7).ok()?;
    let job: Option<[u8; 16]> = row.get(4).ok()?;
    let entry = Entry {
        at: Wall(row.get(1).ok()?),
        kind: Kind::of_word(row.get_ref(2).ok()?.as_str().ok()?)?,
        camera: row.get(3).ok()?,
        job: job.map(JobId),
        who: who.map(|who| who.parse()).transpose().ok()?,
        faces: faces.map_or(Ok(Vec::new()), |faces| serde_json::from_str(&faces)).ok()?,
        body: serde_json::from_str(&body).ok()?,
    };
    // An empty list is stored as none: a list that is there and empty was put there by hand.
    Some((entry, Hash(row.get(8).ok()?)))
}
