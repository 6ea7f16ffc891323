//! Erasing for good, and the proof: the bytes of the files are looked through.
//!
//! ```text
//!   rows deleted (pages wiped: secure_delete), `erasure` row   one transaction
//!   log written back and cut to nothing                        wal_checkpoint(TRUNCATE)
//!   `erasure` row deleted                                      killed before: the next open goes on
//!   database and log read from end to end: nothing of it       the proof
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mien_base::id::IdentityId;
use rusqlite::Connection;

use super::Store;
use super::record::run;
use super::writer::When;
use crate::errors::{Error, Result, file, sql};

/// Bytes of one needle, and how far apart they are cut from what is looked for: at least one lies
/// whole inside each page that holds a part of it.
const NEEDLE: usize = 24;
const APART: usize = 512;
/// Longest wait for other processes' readers, in steps.
const WAITS: u32 = 200;
const WAIT: Duration = Duration::from_millis(50);

/// Shows that nothing of a source is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// Pieces that were looked for.
    pub needles: usize,
    /// Bytes of the database's files that were looked through.
    pub bytes: u64,
}

/// Pieces of what was erased, by their first eight bytes.
#[derive(Debug, Default)]
pub(super) struct Needles {
    by_head: BTreeMap<[u8; 8], Vec<[u8; NEEDLE]>>,
    count: usize,
}

impl Needles {
    /// Pieces of these bytes, all along them.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Some(piece) = bytes.get(at..).and_then(|rest| rest.first_chunk::<NEEDLE>()) {
            self.piece(piece);
            at += APART;
        }
        self.add_tail(bytes);
    }

    /// The last piece of these bytes.
    pub(super) fn add_tail(&mut self, bytes: &[u8]) {
        if let Some(piece) = bytes.last_chunk::<NEEDLE>() {
            self.piece(piece);
        }
    }

    fn piece(&mut self, piece: &[u8; NEEDLE]) {
        // Runs of one byte and headers of files are everybody's.
        let mut seen = [false; 256];
        piece.iter().for_each(|byte| seen[usize::from(*byte)] = true);
        if seen.iter().filter(|seen| **seen).count() < NEEDLE / 2 || piece.starts_with(b"\x89PNG") {
            return;
        }
        let Some(head) = piece.first_chunk::<8>() else { return };
        let pieces = self.by_head.entry(*head).or_default();
        if !pieces.contains(piece) {
            pieces.push(*piece);
            self.count += 1;
        }
    }

    /// How often one of the pieces stands in the bytes.
    fn found_in(&self, bytes: &[u8]) -> usize {
        let mut first = [false; 1 << 16];
        for head in self.by_head.keys() {
            first[usize::from(u16::from_le_bytes([head[0], head[1]]))] = true;
        }
        let mut found = 0;
        for window in bytes.windows(NEEDLE) {
            if !first[usize::from(u16::from_le_bytes([window[0], window[1]]))] {
                continue;
            }
            let head = window.first_chunk::<8>();
            let pieces = head.and_then(|head| self.by_head.get(head));
            found += usize::from(pieces.is_some_and(|p| p.iter().any(|piece| window == piece)));
        }
        found
    }
}

/// Looks through a file piece by piece; how often something was found, and the file's length.
fn look_through(path: &Path, needles: &Needles) -> Result<(usize, u64)> {
    let mut opened = match File::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((0, 0)),
        Err(error) => return Err(file("open", path)(error)),
    };
    let mut bytes = vec![0; 1 << 20];
    let (mut kept, mut found, mut total) = (0, 0, 0);
    loop {
        let part = bytes.get_mut(kept..).unwrap_or_default();
        let read = opened.read(part).map_err(file("read", path))?;
        if read == 0 {
            return Ok((found, total));
        }
        let held = kept + read;
        total += read as u64;
        found += needles.found_in(bytes.get(..held).unwrap_or_default());
        // The end may be the beginning of a piece.
        kept = held.min(NEEDLE - 1);
        bytes.copy_within(held - kept..held, 0);
    }
}

impl Store {
    /// Brings every page of forgotten sources out of the log; nothing to do when there are none.
    ///
    /// # Errors
    /// `StoreBusy` when another process reads all the while; `Store`.
    pub(super) fn finish_erasures(&self) -> Result<()> {
        let waiting: u64 = self
            .reader()
            .query_row("SELECT count(*) FROM erasure", [], |row| row.get(0))
            .map_err(sql("be read"))?;
        if waiting == 0 {
            return Ok(());
        }
        self.cut_log()?;
        let work = |conn: &Connection| run(conn, "DELETE FROM erasure", []).map(drop);
        self.writer.write(When::Now, work).wait()?;
        // That transaction stands in the log, and holds the names alone.
        self.cut_log()
    }

    /// Writes the log back and cuts it to nothing. Not in the writer's transaction: a connection of
    /// its own does it.
    fn cut_log(&self) -> Result<()> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let conn = super::connect(&self.path, flags, self.patience)?;
        for _ in 0..WAITS {
            let busy: i64 = conn
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
                .map_err(sql("cut its log"))?;
            if busy == 0 {
                return Ok(());
            }
            std::thread::sleep(WAIT);
        }
        Err(Error::StoreBusy)
    }

    /// Looks for what was erased in everything that the database keeps on disk. When pieces are
    /// left in pages that were rearranged, the file is written anew once.
    ///
    /// # Errors
    /// `NotErased`; `File`, `Store`.
    pub(super) fn prove(&self, id: &IdentityId, needles: &Needles) -> Result<Erased> {
        let (found, bytes) = self.remains(needles)?;
        if found == 0 {
            return Ok(Erased { needles: needles.count, bytes });
        }
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let conn = super::connect(&self.path, flags, self.patience)?;
        conn.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON; VACUUM;")
            .map_err(sql("be written anew"))?;
        drop(conn);
        self.cut_log()?;
        let (found, bytes) = self.remains(needles)?;
        if found > 0 {
            return Err(Error::NotErased { id: id.clone(), found, path: self.path.clone() });
        }
        Ok(Erased { needles: needles.count, bytes })
    }

    fn remains(&self, needles: &Needles) -> Result<(usize, u64)> {
        let (mut found, mut bytes) = (0, 0);
        for ending in ["", "-wal", "-journal"] {
            let mut path = self.path.clone().into_os_string();
            path.push(ending);
            let (here, length) = look_through(&PathBuf::from(path), needles)?;
            (found, bytes) = (found + here, bytes + length);
        }
        Ok((found, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{Scratch, noise};

    #[test]
    fn a_piece_is_found_wherever_it_stands_and_what_is_everybodys_is_not_looked_for() {
        let scratch = Scratch::new();
        let secret = noise(7, 2000);
        let mut needles = Needles::default();
        needles.add(&secret);
        needles.add(&[0; 5000]);
        assert_eq!(needles.count, 5);
        let path = scratch.0.join("f");
        for at in [0, 1, (1 << 20) - 10, (1 << 20) + 3, 3_000_000] {
            let mut bytes = noise(8, at + 3000);
            bytes[at..at + 24].copy_from_slice(&secret[512..536]);
            std::fs::write(&path, &bytes).unwrap();
            let length = bytes.len() as u64;
            assert_eq!(look_through(&path, &needles).unwrap(), (1, length), "{at}");
        }
        std::fs::write(&path, noise(9, 100_000)).unwrap();
        assert_eq!(look_through(&path, &needles).unwrap().0, 0);
        assert_eq!(look_through(&scratch.0.join("none"), &needles).unwrap(), (0, 0));
    }
}
