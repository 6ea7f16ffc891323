//! Takes a document in: known, replayed, too many, or a new job, in one transaction.

use mien_base::id::JobId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::Store;
use super::jobs::{self, JobRow, Moved, Origin, Step, Tellers, find, ms, tell};
use super::record::run;
use super::writer::When;
use crate::contract::{Document, Reason, Refusal, State};
use crate::errors::{Result, sql};

/// How long an id is remembered at least, in ms.
const REMEMBERED: u64 = 30 * 86_400_000;
/// How long an id is remembered after its document expired, in ms.
const AFTER: u64 = 86_400_000;
/// How far a document may be overtaken by later ones of its signer.
const WINDOW: u64 = 1024;

/// A document that was read and whose signature holds.
#[derive(Debug, Clone)]
pub struct Order {
    pub document: Document,
    /// The exact bytes that were signed, as text.
    pub text: String,
    /// SHA-256 of them.
    pub digest: [u8; 32],
    pub execution: JobId,
    /// Name of the key, or of the user of this machine.
    pub issuer: String,
    pub origin: Origin,
    pub topic: String,
    pub boot: String,
    /// Why it is no job, when that is known already.
    pub refusal: Option<Refusal>,
}

/// How many jobs may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub open: usize,
    pub of_one_issuer: usize,
}

/// What became of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// A new job; those that it took the place of, which may still run.
    New(Box<JobRow>, Vec<JobRow>),
    /// The same document came before.
    Known(Box<JobRow>),
    /// It is no job here, and nothing of it was kept but the row in the record.
    Refused(Refusal),
}

/// The numbers of a signer that were seen.
struct Seen {
    top: u64,
    bits: [u8; (WINDOW / 8) as usize],
}

impl Seen {
    /// Takes a number in; false when it was there before, or is older than can be told.
    fn take(&mut self, seq: u64) -> bool {
        if seq > self.top {
            let by = seq - self.top;
            if by >= WINDOW {
                self.bits = [0; (WINDOW / 8) as usize];
            } else {
                self.shift(by as usize);
            }
            self.top = seq;
        }
        let back = self.top - seq;
        if back >= WINDOW {
            return false;
        }
        let (byte, bit) = ((back / 8) as usize, 1 << (back % 8));
        let Some(byte) = self.bits.get_mut(byte) else { return false };
        let new = *byte & bit == 0;
        *byte |= bit;
        new
    }

    /// Makes every number that was seen older.
    fn shift(&mut self, by: usize) {
        let old = self.bits;
        let was = |at: usize| old.get(at / 8).is_some_and(|byte| byte & (1 << (at % 8)) != 0);
        for (n, byte) in self.bits.iter_mut().enumerate() {
            *byte = (0..8)
                .filter(|bit| (n * 8 + bit).checked_sub(by).is_some_and(was))
                .fold(0, |byte, bit| byte | 1 << bit);
        }
    }
}

/// Takes a signer's number in; false for a replay.
pub(super) fn sequence(conn: &Connection, key: &str, seq: u64) -> Result<bool> {
    let stored = conn
        .query_row("SELECT top, seen FROM signer WHERE key = ?1", [key], |row| {
            Ok(Seen { top: row.get(0)?, bits: row.get(1)? })
        })
        .optional()
        .map_err(sql("be read"))?;
    let mut seen = stored.unwrap_or(Seen { top: 0, bits: [0; (WINDOW / 8) as usize] });
    if !seen.take(seq) {
        return Ok(false);
    }
    let statement = "INSERT OR REPLACE INTO signer (key, top, seen) VALUES (?1, ?2, ?3)";
    run(conn, statement, params![key, seen.top, seen.bits])?;
    Ok(true)
}

fn count(conn: &Connection, issuer: Option<&str>) -> Result<usize> {
    conn.prepare_cached("SELECT count(*) FROM job WHERE ended = 0 AND (?1 IS NULL OR issuer = ?1)")
        .and_then(|mut statement| statement.query_row([issuer], |row| row.get(0)))
        .map_err(sql("be read"))
}

fn take(conn: &Connection, tellers: &Tellers, order: &Order, bounds: Bounds) -> Result<Taken> {
    let document = &order.document;
    let digest: Option<[u8; 32]> = conn
        .query_row("SELECT digest FROM inbox WHERE id = ?1", [&document.id], |row| row.get(0))
        .optional()
        .map_err(sql("be read"))?;
    if let Some(digest) = digest {
        if order.origin == Origin::Pool
            && digest != order.digest
            && let Some(known) = find(conn, &document.id)?
            && let Some(taken) = offered_again(conn, tellers, order, known)?
        {
            return Ok(taken);
        }
        let known = find(conn, &document.id)?.filter(|_| digest == order.digest);
        return Ok(known.map_or_else(
            || {
                let detail = "a job of this id was there before, and said something else";
                Taken::Refused(Refusal::at(Reason::Replayed, "/id", detail))
            },
            |job| Taken::Known(Box::new(job)),
        ));
    }
    let mut state = State::Queued;
    if order.refusal.is_some() {
        state = State::Rejected;
    } else if count(conn, None)? >= bounds.open {
        let detail = format!("{} jobs wait already; send it again later", bounds.open);
        return Ok(Taken::Refused(Refusal::new(Reason::QueueFull, detail)));
    } else if count(conn, Some(&order.issuer))? >= bounds.of_one_issuer {
        let most = bounds.of_one_issuer;
        let detail = format!("{most} jobs of this issuer wait already; send it again later");
        return Ok(Taken::Refused(Refusal::new(Reason::QuotaExceeded, detail)));
    }
    // Not before: who is told to send it again later does so with the same number.
    if order.origin != Origin::Local && !sequence(conn, &order.issuer, document.seq)? {
        let detail = "its signer used this number before, or much later ones since";
        return Ok(Taken::Refused(Refusal::at(Reason::Replayed, "/seq", detail)));
    }
    let now = ms(tellers.now);
    insert(conn, order, state, now)?;
    let until = (now + REMEMBERED).max(document.expires_at.saturating_add(AFTER));
    let statement = "INSERT INTO inbox (id, digest, until) VALUES (?1, ?2, ?3)";
    run(conn, statement, params![document.id, order.digest, until])?;
    let Some(job) = find(conn, &document.id)? else {
        return Ok(Taken::Refused(Refusal::new(Reason::Internal, "it could not be read back")));
    };
    tell(conn, tellers, &job)?;
    let mut replaced = Vec::new();
    if let Some(old) = document.supersedes.as_ref().filter(|_| state == State::Queued) {
        let of_same = find(conn, old)?.is_some_and(|old| old.issuer == order.issuer);
        let by = Step::to(old, State::Superseded, &order.boot)
            .because(Reason::Superseded, format!("by {}", document.id));
        if of_same && let Moved::Done(old) = jobs::step(conn, tellers, &by)? {
            replaced.push(old);
        }
    }
    Ok(Taken::New(Box::new(job), replaced))
}

/// A job of a pool that comes once more: the same but for its fence. A newer fence is taken on, an
/// older one is of a controller that has been overtaken.
fn offered_again(
    conn: &Connection,
    tellers: &Tellers,
    order: &Order,
    mut known: JobRow,
) -> Result<Option<Taken>> {
    let (old, new) = (&known.document, &order.document);
    if known.origin != Origin::Pool || (old.kind, &old.params) != (new.kind, &new.params) {
        return Ok(None);
    }
    if new.fence <= old.fence {
        let detail = "a newer offer of this job came before";
        return Ok(Some(Taken::Refused(Refusal::at(Reason::Fenced, "/fence", detail))));
    }
    run(
        conn,
        "UPDATE job SET document = ?2, fence = ?3, version = version + 1, updated = ?4
         WHERE id = ?1",
        params![new.id, order.text, new.fence, ms(tellers.now)],
    )?;
    let statement = "UPDATE inbox SET digest = ?2 WHERE id = ?1";
    run(conn, statement, params![new.id, order.digest])?;
    known = find(conn, &new.id)?.unwrap_or(known);
    tell(conn, tellers, &known)?;
    Ok(Some(Taken::Known(Box::new(known))))
}

fn insert(conn: &Connection, order: &Order, state: State, now: u64) -> Result<()> {
    let document = &order.document;
    let refusal = order.refusal.as_ref();
    run(
        conn,
        "INSERT INTO job (id, execution, kind, issuer, origin, topic, document, state, ended,
             version, attempt, crashes, priority, reason, pointer, detail, boot, fence, received,
             not_before, updated, arrival)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, 0, 0, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
             ?17, ?16, 1 + coalesce((SELECT max(arrival) FROM job), 0))",
        params![
            document.id,
            order.execution.0,
            document.kind.word(),
            order.issuer,
            order.origin.word(),
            order.topic,
            order.text,
            state.name(),
            state.is_end(),
            document.priority,
            refusal.map(|refusal| refusal.reason.name()),
            refusal.and_then(|refusal| refusal.at.as_deref()),
            refusal.map(|refusal| refusal.detail.as_str()),
            order.boot,
            document.fence,
            now,
            document.not_before.unwrap_or(0),
        ],
    )
    .map(drop)
}

impl Store {
    /// Takes a document in; what is answered is on disk.
    ///
    /// # Errors
    /// `Store…`.
    pub fn take_job(&self, order: Order, bounds: Bounds) -> Result<Taken> {
        let tellers = self.tellers();
        self.write(When::Now, move |conn| take(conn, &tellers, &order, bounds)).wait()
    }

    /// The highest number that was taken in under this key; 0 when none was.
    ///
    /// # Errors
    /// `Store`.
    pub fn last_sequence(&self, key: &str) -> Result<u64> {
        let last = "SELECT coalesce(max(top), 0) FROM signer WHERE key = ?1";
        self.reader().query_row(last, [key], |row| row.get(0)).map_err(sql("be read"))
    }

    /// Takes the number of a signed document in that is no job; false for a replay.
    ///
    /// # Errors
    /// `Store…`.
    pub fn take_sequence(&self, key: &str, seq: u64) -> Result<bool> {
        let key = key.to_owned();
        self.writer.write(When::Now, move |conn| sequence(conn, &key, seq)).wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    proptest::proptest! {
        #[test]
        fn a_number_is_taken_once_however_they_overtake(numbers in proptest::collection::vec(1..3000_u64, 1..200)) {
            let mut seen = Seen { top: 0, bits: [0; 128] };
            let (mut model, mut top) = (BTreeSet::new(), 0);
            for n in numbers {
                top = top.max(n);
                let wanted = n + WINDOW > top && model.insert(n);
                proptest::prop_assert_eq!(seen.take(n), wanted, "{} of {}", n, top);
            }
        }
    }
}
