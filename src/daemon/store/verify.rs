//! Follows the record in the database from its first row to its end, and holds it against the heads.

use std::collections::BTreeMap;

use mien_vault::sign::PublicKey;
use rusqlite::Connection;

use super::keys::Keys;
use super::record::{COLUMNS, Stored, hashed, named, read};
use super::{Store, migrate};
use crate::audit::{Chain, Fault, Hash, Head};
use crate::errors::{Result, sql};

/// Rows that are read in one transaction: the log can be written back in between.
const STEP: u32 = 20_000;

/// What a check of the record found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Rows that were followed, in the database.
    pub rows: u64,
    /// Number and hash of the last row.
    pub end: (u64, Hash),
    /// Rows up to which a signed head speaks.
    pub signed: u64,
    /// Heads whose signature was checked.
    pub heads: u64,
    /// What does not hold; empty when the record is as it was written.
    pub faults: Vec<Fault>,
}

impl Store {
    /// Follows every row: hashes, links, signed heads, the rules that keep rows, and what queries
    /// look into.
    ///
    /// # Errors
    /// `Store` when it can't be read at all.
    pub fn verify(&self) -> Result<Checked> {
        let conn = self.reader();
        let mut heads = heads(&conn)?;
        let (start, mut chain) = beginning(&conn)?;
        for item in migrate::differences(&conn)? {
            let what = format!("the rules of the database were changed: {item}");
            chain.fault(Fault::Broken { what });
        }
        let mut check = Check { keys: &*self.keys, signed: 0, held: 0, named: 0, faces: 0 };
        let mut seen = start;
        loop {
            let mut statement = conn
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM audit WHERE seq > ?1 ORDER BY seq LIMIT {STEP}"
                ))
                .map_err(sql("be checked"))?;
            let mut rows = statement.query([seen]).map_err(sql("be checked"))?;
            let before = seen;
            while let Some(row) = rows.next().map_err(sql("be checked"))? {
                if let Some(row) = hashed(row) {
                    seen = row.seq;
                    chain.follow_hashed(row.seq, row.prev, row.hash);
                    (check.named, check.faces) = (check.named + row.named, check.faces + row.faces);
                    check.head(seen, row.hash, heads.remove(&seen), &mut chain);
                    continue;
                }
                // What is wrong with it takes a closer look.
                match read(row).map_err(sql("be checked"))? {
                    Stored::Link(link) => {
                        seen = link.row.seq;
                        chain.follow(&link);
                        check.named += named(&link.row.entry).len() as u64;
                        check.faces += link.row.entry.faces.len() as u64;
                        check.head(seen, link.hash, heads.remove(&seen), &mut chain);
                    }
                    Stored::Bad(seq, hash, why) => {
                        seen = seq;
                        chain.unreadable(seq, hash, why);
                    }
                }
            }
            if seen == before {
                break;
            }
        }
        // Heads of rows beyond the end: the end is missing. Those before it are of sealed segments.
        let (last, _) = chain.end();
        if let Some((&signed, _)) = heads.last_key_value()
            && signed > last
        {
            chain.fault(Fault::CutOff { last, signed });
        }
        check.looked_into(&conn, &mut chain)?;
        Ok(Checked {
            rows: chain.rows(),
            end: chain.end(),
            signed: check.signed,
            heads: check.held,
            faults: chain.into_faults(),
        })
    }
}

/// Heads by row: the key and the envelope of each.
fn heads(conn: &Connection) -> Result<BTreeMap<u64, (String, String)>> {
    let mut statement =
        conn.prepare("SELECT seq, key, envelope FROM audit_head").map_err(sql("be checked"))?;
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))
        .map_err(sql("be checked"))?;
    rows.map(|row| row.map_err(sql("be checked"))).collect()
}

/// Where the rows of the database begin: after the last sealed segment.
fn beginning(conn: &Connection) -> Result<(u64, Chain)> {
    let mut statement = conn
        .prepare("SELECT last, head FROM audit_segment ORDER BY last DESC LIMIT 1")
        .map_err(sql("be checked"))?;
    let mut rows = statement.query([]).map_err(sql("be checked"))?;
    let Some(row) = rows.next().map_err(sql("be checked"))? else {
        return Ok((0, Chain::start()));
    };
    let last: u64 = row.get(0).map_err(sql("be checked"))?;
    let head = Hash(row.get(1).map_err(sql("be checked"))?);
    Ok((last, Chain::from(last + 1, head)))
}

/// What is counted while the chain is followed.
struct Check<'a> {
    keys: &'a dyn Keys,
    signed: u64,
    held: u64,
    named: u64,
    faces: u64,
}

impl Check<'_> {
    fn head(&mut self, seq: u64, hash: Hash, head: Option<(String, String)>, chain: &mut Chain) {
        let Some((key, envelope)) = head else { return };
        let trusted = key.parse::<PublicKey>().ok().filter(|key| self.keys.trusts_head(key));
        match trusted.and_then(|key| Head::open(&envelope, &key)) {
            None => chain.fault(Fault::Signature { seq, key }),
            Some(head) if head.seq != seq || head.hash != hash => {
                chain.fault(Fault::Head { seq });
            }
            Some(_) => (self.signed, self.held) = (seq, self.held + 1),
        }
    }

    /// A row that queries can't find is as good as hidden.
    fn looked_into(&self, conn: &Connection, chain: &mut Chain) -> Result<()> {
        for (table, expected) in [("audit_who", self.named), ("audit_where", self.faces)] {
            let text = format!("SELECT count(*) FROM {table}");
            let found: u64 =
                conn.query_row(&text, [], |row| row.get(0)).map_err(sql("be checked"))?;
            // While it was counted, more may have been written.
            if found < expected {
                let missing = expected - found;
                let what =
                    format!("queries would not find all: {table} lacks {missing} of its rows");
                chain.fault(Fault::Broken { what });
            }
        }
        Ok(())
    }
}
