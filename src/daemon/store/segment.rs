//! Rows out of the database: exported with a signature, or sealed, after which the table begins anew.
//!
//! ```text
//!   rows 1..n ──▶ audit/0000000001.jsonl + .sig (written, synced, read back and checked)
//!        │
//!        └── one transaction: segment row (n, hash n, statement) · table dropped and made anew ·
//!            row n+1 "export", whose prev is hash n
//! ```
//! A kill before the transaction leaves a file that the next seal replaces; after it, all is done.
//! Sealed files are never removed here: history.rs throws old ones away when it is told to.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use mien_base::clock::Wall;
use rusqlite::{Connection, params};
use serde_json::json;

use super::record::{self, COLUMNS, Stored, read};
use super::writer::When;
use super::{Store, private};
use crate::audit::{Entry, Export, Fault, Kind, Statement, Writer, verify_file};
use crate::errors::{Error, Result, file, sql};

/// Rows that are read at once.
const STEP: u32 = 20_000;

/// A segment that was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub first: u64,
    pub last: u64,
    /// Time of the last row.
    pub until: Wall,
    /// The signed statement, as JSON.
    pub statement: String,
}

/// What sealing made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub file: PathBuf,
    pub statement: Statement,
}

impl Store {
    /// Writes the rows of the database, those between two times when given, to `path`, and the
    /// signature beside it. A range is what stands between its first and its last matching row.
    /// `None` when no row matches.
    ///
    /// # Errors
    /// `AuditBroken` when what stands there does not hold; `File`, `Store`.
    pub fn export(
        &self,
        path: &Path,
        from: Option<Wall>,
        until: Option<Wall>,
    ) -> Result<Option<Export>> {
        let range = {
            let conn = self.reader();
            between(&conn, from, until)?
        };
        let Some((first, last)) = range else { return Ok(None) };
        let export = self.write_out(path, first, last)?;
        let body = json!({
            "first": first,
            "last": last,
            "file": export.statement.file.to_string(),
        });
        self.append(Entry::new(Kind::Export, self.clock.wall(), body))?;
        Ok(Some(export))
    }

    fn write_out(&self, path: &Path, first: u64, last: u64) -> Result<Export> {
        let part = beside(path, ".part");
        let out = create(&part)?;
        let mut writer = Writer::new(BufWriter::new(out));
        let mut seen = first - 1;
        while seen < last {
            let conn = self.reader();
            let before = seen;
            step(&conn, &part, &mut writer, &mut seen, last)?;
            if seen == before {
                let first = Fault::Missing { from: seen + 1, to: last };
                return Err(Error::AuditBroken { first, faults: 1 });
            }
        }
        let (out, export) =
            writer.finish(self.clock.wall(), self.keys.audit()).map_err(file("write", &part))?;
        let out = out.into_inner().map_err(|e| file("write", &part)(e.into_error()))?;
        out.sync_all().map_err(file("write", &part))?;
        let export = export.ok_or(Error::AuditBroken {
            first: Fault::Missing { from: first, to: last },
            faults: 1,
        })?;
        // The signature first: lines without one would look like an export that lost it.
        let signature = beside(path, ".sig");
        let signature_part = beside(path, ".sig.part");
        let mut out = create(&signature_part)?;
        out.write_all(export.envelope.as_bytes())
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.sync_all())
            .map_err(file("write", &signature_part))?;
        rename(&signature_part, &signature)?;
        rename(&part, path)?;
        Ok(export)
    }

    /// Seals the rows of the database into a file and begins the table anew. `None` when there are
    /// no rows.
    ///
    /// # Errors
    /// As `export`; `StoreCommit` when rows came in all the while.
    pub fn seal(&self) -> Result<Option<Sealed>> {
        let folder = self.segments();
        private(&folder)?;
        let range = {
            let conn = self.reader();
            between(&conn, None, None)?
        };
        let Some((first, last)) = range else { return Ok(None) };
        let path = folder.join(format!("{first:012}.jsonl"));
        let export = self.write_out(&path, first, last)?;
        let opened = File::open(&path).map_err(file("open", &path))?;
        let key = self.keys.audit().public();
        let again = verify_file(BufReader::new(opened), &export.envelope, Some(&key))
            .map_err(file("read", &path))?;
        if let Some(first) = again.faults.first() {
            return Err(Error::AuditBroken { first: first.clone(), faults: again.faults.len() });
        }
        let (keys, now) = (self.keys.clone(), self.clock.wall());
        let statement = export.statement.clone();
        let work = move |conn: &Connection| {
            record::sign_head(conn, keys.audit(), now)?;
            begin_anew(conn, &export)?;
            let body = json!({
                "sealed": true,
                "first": export.statement.first,
                "last": export.statement.last,
                "file": export.statement.file.to_string(),
            });
            record::append(conn, keys.audit(), Entry::new(Kind::Export, now, body)).map(drop)
        };
        self.write(When::Now, work).wait()?;
        Ok(Some(Sealed { file: path, statement }))
    }

    /// Segments that were sealed, oldest first.
    ///
    /// # Errors
    /// `Store`.
    pub fn sealed(&self) -> Result<Vec<Segment>> {
        let conn = self.reader();
        let mut statement = conn
            .prepare("SELECT first, last, until, statement FROM audit_segment ORDER BY last")
            .map_err(sql("be read"))?;
        let rows = statement
            .query_map([], |row| {
                let until = Wall(row.get(2)?);
                Ok(Segment { first: row.get(0)?, last: row.get(1)?, until, statement: row.get(3)? })
            })
            .map_err(sql("be read"))?;
        rows.map(|row| row.map_err(sql("be read"))).collect()
    }

    /// The file of a segment.
    #[must_use]
    pub fn segment_file(&self, segment: &Segment) -> PathBuf {
        self.segments().join(format!("{:012}.jsonl", segment.first))
    }

    fn segments(&self) -> PathBuf {
        self.path.with_file_name("audit")
    }
}

/// Rows from the first to the last one between two times.
pub(super) fn between(
    conn: &Connection,
    from: Option<Wall>,
    until: Option<Wall>,
) -> Result<Option<(u64, u64)>> {
    let from = from.map_or(0, |from| from.0);
    let until = until.map_or(i64::MAX as u64, |until| until.0);
    let range: (Option<u64>, Option<u64>) = conn
        .query_row(
            "SELECT min(seq), max(seq) FROM audit WHERE at >= ?1 AND at < ?2",
            params![from, until],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .map_err(sql("be read"))?;
    Ok(range.0.zip(range.1))
}

/// Writes the next rows.
fn step(
    conn: &Connection,
    path: &Path,
    writer: &mut Writer<BufWriter<File>>,
    seen: &mut u64,
    last: u64,
) -> Result<()> {
    let mut statement = conn
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM audit WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT {STEP}"
        ))
        .map_err(sql("be read"))?;
    let mut rows = statement.query([*seen, last]).map_err(sql("be read"))?;
    while let Some(row) = rows.next().map_err(sql("be read"))? {
        let broken = |first| Err(Error::AuditBroken { first, faults: 1 });
        match read(row).map_err(sql("be read"))? {
            Stored::Link(link) => {
                if !writer.push(&link).map_err(file("write", path))? {
                    return broken(Fault::Unlinked { seq: link.row.seq });
                }
                *seen = link.row.seq;
            }
            Stored::Bad(seq, _, why) => return broken(Fault::Unreadable { seq, why }),
        }
    }
    Ok(())
}

/// Puts the segment down and makes the table anew, by the words it was made with.
fn begin_anew(conn: &Connection, export: &Export) -> Result<()> {
    let said = &export.statement;
    let (last, head) = record::end(conn)?;
    if (last, head) != (said.last, said.head) {
        let detail = "rows were added while it was sealed; seal again".to_owned();
        return Err(Error::StoreCommit { detail });
    }
    let until: u64 = conn
        .query_row("SELECT max(at) FROM audit", [], |row| row.get(0))
        .map_err(sql("be read"))?;
    let made = schema_of(conn, "audit")?;
    record::run(
        conn,
        "INSERT INTO audit_segment (last, first, until, head, statement)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![said.last, said.first, until, said.head.0, export.envelope],
    )?;
    // Nothing of it is secret: freed pages need not be written once more.
    conn.execute_batch("PRAGMA secure_delete = OFF").map_err(sql("begin a new segment"))?;
    let dropped =
        conn.execute_batch("DROP TABLE audit; DELETE FROM audit_who; DELETE FROM audit_where;");
    conn.execute_batch("PRAGMA secure_delete = ON").map_err(sql("begin a new segment"))?;
    dropped.map_err(sql("begin a new segment"))?;
    for words in &made {
        conn.execute_batch(words).map_err(sql("begin a new segment"))?;
    }
    Ok(())
}

/// What a table, its indexes and its triggers were made with, in that order.
fn schema_of(conn: &Connection, table: &str) -> Result<Vec<String>> {
    let mut statement = conn
        .prepare(
            "SELECT sql FROM sqlite_schema WHERE tbl_name = ?1 AND sql IS NOT NULL
             ORDER BY type <> 'table', rowid",
        )
        .map_err(sql("be read"))?;
    let rows = statement.query_map([table], |row| row.get(0)).map_err(sql("be read"))?;
    rows.map(|row| row.map_err(sql("be read"))).collect()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).map_err(file("create", path))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(file("rename to", to))?;
    let folder = to.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or_else(|| Path::new("."));
    File::open(folder).and_then(|dir| dir.sync_all()).map_err(file("sync", folder))
}
