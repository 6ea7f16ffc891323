//! The database: sources, consent and the audit record in one file, written by one thread.
//!
//! What `put`, `grant`, `revoke`, `forget` and `append` answer is on disk, and each change stands
//! there in one transaction with the row that records it. Several processes may work on one
//! database: they take turns to write, each waits for another only so long, and readers never
//! wait.

mod migrate;
mod writer;
mod keys;
mod cells;
mod record;
mod query;
mod verify;
mod segment;
mod history;
mod sealed;
mod erase;
mod consents;
mod sources;
mod rewrap;
mod import;
mod jobs;
mod intake;
mod outbox;

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::limits;
use mien_vault::random::Random;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::audit::{Entry, Link};
use crate::errors::{Error, Result, file, sql};

pub use consents::{ConsentId, StoredConsent, sign_consent};
pub use erase::Erased;
pub use history::Answer;
pub use import::Imported;
pub use intake::{Bounds, Order, Taken};
pub use jobs::{Asked, JobRow, Moved, Origin, Step};
pub use keys::{HomeKeys, Keys};
pub use outbox::{Gap, Waiting};
pub use query::Query;
pub use segment::{Sealed, Segment};
pub use verify::Checked;
pub use writer::{Ticket, When};

use keys::Wrapping;
use writer::Writer;

/// What a store works with.
pub struct Parts {
    pub clock: Arc<dyn Clock>,
    pub keys: Arc<dyn Keys>,
    pub random: Box<dyn Random + Send>,
    /// How long another process's transaction is waited for.
    pub patience: Duration,
}

/// What a process usually waits for another one's transaction: a long one is sealing.
pub const PATIENCE: Duration = Duration::from_secs(10);

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// An open database.
pub struct Store {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    keys: Arc<dyn Keys>,
    /// What wraps the sources since `rewrap`, instead of what the keys gave when it was opened.
    newer: Mutex<Option<Wrapping>>,
    random: Mutex<Box<dyn Random + Send>>,
    patience: Duration,
    writer: Writer,
    reader: Mutex<Connection>,
    /// Rows were added that no head of ours covers yet.
    unsigned: AtomicBool,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database of a folder, or makes one; finishes what a killed `forget` left.
    ///
    /// # Errors
    /// `File` for the folder; `StoreForeign`, `StoreBusy`, `Store`.
    pub fn open(folder: &Path, parts: Parts) -> Result<Self> {
        let Parts { clock, keys, random, patience } = parts;
        private(folder)?;
        let path = folder.join("mien.db");
        touch(&path)?;
        let mut conn = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE, patience)?;
        configure(&conn, &path)?;
        migrate::run(&mut conn, &path)?;
        let writer = Writer::start(conn, clock.clone())?;
        let reader = reader(&path, patience)?;
        let (random, reader) = (Mutex::new(random), Mutex::new(reader));
        let unsigned = AtomicBool::new(false);
        let newer = Mutex::new(None);
        let store = Self { path, clock, keys, newer, random, patience, writer, reader, unsigned };
        store.finish_erasures()?;
        Ok(store)
    }

    /// The database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a row to the record and waits until it is on disk.
    ///
    /// # Errors
    /// `Entry` for what can't be in the record; `Store…` when it can't be written.
    pub fn append(&self, entry: Entry) -> Result<Link> {
        self.append_when(When::Now, entry).wait()
    }

    /// Adds a row to the record, now or with the next group.
    pub fn append_when(&self, when: When, entry: Entry) -> Ticket<Link> {
        let keys = self.keys.clone();
        self.write(when, move |conn| record::append(conn, keys.audit(), entry))
    }

    /// Signs the end of the record when rows stand there that no head covers. What ends should call
    /// it last; dropping a store does, too.
    ///
    /// # Errors
    /// `Store…`.
    pub fn sign_head(&self) -> Result<()> {
        let (keys, now) = (self.keys.clone(), self.clock.wall());
        self.writer.write(When::Now, move |conn| record::sign_head(conn, keys.audit(), now)).wait()
    }

    /// Watches for changes of sources and consent, by this process or another.
    ///
    /// # Errors
    /// `Store`.
    pub fn watch(&self) -> Result<Watch> {
        let mut watch = Watch { conn: reader(&self.path, self.patience)?, version: 0, policy: 0 };
        watch.changed()?;
        Ok(watch)
    }

    /// Puts work in line whose rows a head is to cover at the end.
    fn write<T: Send + 'static>(
        &self,
        when: When,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Ticket<T> {
        self.unsigned.store(true, Ordering::Relaxed);
        self.writer.write(when, work)
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, bytes: &mut [u8]) -> Result<()> {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.fill(bytes).map_err(|source| Error::Vault(mien_vault::Error::Random { source }))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.unsigned.load(Ordering::Relaxed) {
            // Without it the rows stand all the same; the next one signs.
            let _ = self.sign_head();
        }
        self.writer.stop();
    }
}

/// Knows when the policy has changed, at the price of a look into shared memory.
#[derive(Debug)]
pub struct Watch {
    conn: Connection,
    /// Of the file: rises with any commit of another connection.
    version: i64,
    policy: i64,
}

impl Watch {
    /// True when sources or consent have changed since it last said so.
    ///
    /// # Errors
    /// `Store`; then nothing is known, and what depends on it has to stop.
    pub fn changed(&mut self) -> Result<bool> {
        let version = self
            .conn
            .pragma_query_value(None, "data_version", |row| row.get(0))
            .map_err(sql("be watched"))?;
        if version == self.version {
            return Ok(false);
        }
        let policy = self
            .conn
            .query_row("SELECT value FROM fact WHERE name = 'policy'", [], |row| row.get(0))
            .map_err(sql("be watched"))?;
        let changed = policy != self.policy;
        (self.version, self.policy) = (version, policy);
        Ok(changed)
    }
}

/// A folder that only its owner can look into.
fn private(folder: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder).map_err(file("create", folder))?;
    restrict(folder, 0o700)
}

/// Makes the file before SQLite does, which would let others read it; log and index of it get the
/// same mode.
fn touch(path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(file("create", path))?;
    restrict(path, 0o600)
}

fn restrict(path: &Path, mode: u32) -> Result<()> {
    let meta = fs::metadata(path).map_err(file("read", path))?;
    if meta.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(file("restrict", path))?;
    }
    Ok(())
}

fn connect(path: &Path, flags: OpenFlags, patience: Duration) -> Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sql("be opened"))?;
    conn.busy_timeout(patience).map_err(sql("be opened"))?;
    let set = |option, on| conn.set_db_config(option, on).map_err(sql("be opened"));
    set(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    set(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    Ok(conn)
}

fn reader(path: &Path, patience: Duration) -> Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, patience)
}

/// What holds for the writer's connection.
fn configure(conn: &Connection, path: &Path) -> Result<()> {
    let mode: String = conn
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(sql("keep a log"))?;
    if mode != "wal" {
        let why = format!("its file system can't hold a log (journal mode `{mode}`)");
        return Err(Error::StoreForeign { path: path.to_owned(), why });
    }
    conn.execute_batch(&format!(
        "PRAGMA synchronous = FULL;
         PRAGMA secure_delete = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA cell_size_check = ON;
         PRAGMA wal_autocheckpoint = {};
         PRAGMA journal_size_limit = {};",
        limits::STORE_LOG / 4096,
        limits::STORE_LOG
    ))
    .map_err(sql("be set up"))
}

#[cfg(test)]
mod tests;
