//! Messages that the broker has not acknowledged: put with what they tell of, taken out when it has.

use mien_base::clock::Wall;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::Store;
use super::jobs::ms;
use super::record::run;
use super::writer::{Ticket, When};
use crate::contract::{Class, Draft};
use crate::errors::{Result, sql};

/// Most messages of class `Keep`.
const KEPT: u64 = 10_000;
/// How long a message of class `Keep` waits at most, in ms.
const KEPT_FOR: u64 = 7 * 86_400_000;

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub n: i64,
    pub topic: String,
    pub retain: bool,
    /// Seconds for which it is still of use.
    pub life_s: Option<u32>,
    pub payload: Vec<u8>,
    /// An older message of its topic has to go first.
    pub held: bool,
}

/// Numbers of a stream that were dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub stream: String,
    pub from: u64,
    pub to: u64,
}

/// Puts a message, in the writer's transaction; one of a stream gets its next number.
pub(super) fn put(
    conn: &Connection,
    draft: &Draft,
    numbered: Option<(&str, u64)>,
    now: Wall,
) -> Result<()> {
    let now = ms(now);
    if draft.class == Class::Latest {
        let statement = "DELETE FROM outbox WHERE topic = ?1 AND class = ?2";
        run(conn, statement, params![draft.topic, Class::Latest.number()])?;
    }
    let until = draft.life_s.map(|life| now + u64::from(life) * 1000);
    run(
        conn,
        "INSERT INTO outbox (topic, class, retain, made, until, stream, seq, payload)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            draft.topic,
            draft.class.number(),
            draft.retain,
            now,
            until,
            numbered.map(|(stream, _)| stream),
            numbered.map(|(_, seq)| seq),
            draft.payload,
        ],
    )
    .map(drop)
}

/// The next number of a stream.
fn number(conn: &Connection, stream: &str) -> Result<u64> {
    run(
        conn,
        "INSERT INTO stream (name, seq) VALUES (?1, 1) ON CONFLICT DO UPDATE SET seq = seq + 1",
        [stream],
    )?;
    conn.query_row("SELECT seq FROM stream WHERE name = ?1", [stream], |row| row.get(0))
        .map_err(sql("be read"))
}

/// Drops what is too old or too much of class `Keep`, and notes which numbers are gone.
fn trim(conn: &Connection, now: u64) -> Result<()> {
    let keep = Class::Keep.number();
    let old = now.saturating_sub(KEPT_FOR);
    let newest: Option<i64> = conn
        .prepare_cached("SELECT n FROM outbox WHERE class = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2")
        .and_then(|mut statement| {
            statement.query_row(params![keep, KEPT], |row| row.get(0)).optional()
        })
        .map_err(sql("be read"))?;
    let (before, gone) = (newest.unwrap_or(0), "class = ?1 AND (n <= ?2 OR made < ?3)");
    run(
        conn,
        &format!(
            "UPDATE stream SET
                 lost_from = coalesce(lost_from, lost.first), lost_to = lost.last
             FROM (SELECT stream, min(seq) AS first, max(seq) AS last FROM outbox
                   WHERE {gone} AND stream IS NOT NULL GROUP BY stream) AS lost
             WHERE stream.name = lost.stream"
        ),
        params![keep, before, old],
    )?;
    run(conn, &format!("DELETE FROM outbox WHERE {gone}"), params![keep, before, old]).map(drop)
}

impl Store {
    /// Puts a message into the outbox.
    pub fn put_message(&self, when: When, draft: Draft) -> Ticket<()> {
        let now = self.clock.wall();
        self.writer.write(when, move |conn| put(conn, &draft, None, now))
    }

    /// Puts an event of a stream: its next number stands in it as `seq`.
    pub fn put_event(
        &self,
        stream: &str,
        topic: String,
        mut body: serde_json::Map<String, serde_json::Value>,
    ) -> Ticket<u64> {
        let (stream, now) = (stream.to_owned(), self.clock.wall());
        self.writer.write(When::Soon, move |conn| {
            let seq = number(conn, &stream)?;
            body.insert("seq".to_owned(), seq.into());
            body.insert("at".to_owned(), ms(now).into());
            let payload = serde_json::to_vec(&body).expect("plain data with text keys");
            let life_s = Some((KEPT_FOR / 1000) as u32);
            let draft = Draft { topic, class: Class::Keep, retain: false, life_s, payload };
            put(conn, &draft, Some((&stream, seq)), now)?;
            if seq.is_multiple_of(64) {
                trim(conn, ms(now))?;
            }
            Ok(seq)
        })
    }

    /// The last number that was given to a message: what comes later is news.
    ///
    /// # Errors
    /// `Store`.
    pub fn outbox_end(&self) -> Result<i64> {
        let last = "SELECT coalesce(max(n), 0) FROM outbox";
        self.reader().query_row(last, [], |row| row.get(0)).map_err(sql("be read"))
    }

    /// How many messages wait.
    ///
    /// # Errors
    /// `Store`.
    pub fn outbox_len(&self) -> Result<u64> {
        let count = "SELECT count(*) FROM outbox";
        self.reader().query_row(count, [], |row| row.get(0)).map_err(sql("be read"))
    }

    /// Messages with a number above `after` and up to `until`, oldest first. One whose topic has a
    /// message up to `mark` is held, unless it is of a stream, whose numbers give the order.
    ///
    /// # Errors
    /// `Store`.
    pub fn outbox(&self, after: i64, until: i64, mark: i64, most: usize) -> Result<Vec<Waiting>> {
        let now = ms(self.clock.wall());
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let conn = self.reader();
        let mut statement = conn
            .prepare_cached(
                "SELECT n, topic, retain, until, payload, stream IS NULL AND EXISTS
                     (SELECT 1 FROM outbox AS old WHERE old.topic = new.topic AND old.n <= ?3)
                 FROM outbox AS new WHERE n > ?1 AND n <= ?2 ORDER BY n LIMIT ?4",
            )
            .map_err(sql("be read"))?;
        let rows = statement
            .query_map(params![after, until, mark, most], |row| {
                let until: Option<u64> = row.get(3)?;
                let left = |until: u64| until.saturating_sub(now).div_ceil(1000);
                Ok(Waiting {
                    n: row.get(0)?,
                    topic: row.get(1)?,
                    retain: row.get(2)?,
                    life_s: until.map(|until| u32::try_from(left(until)).unwrap_or(u32::MAX)),
                    payload: row.get(4)?,
                    held: row.get(5)?,
                })
            })
            .map_err(sql("be read"))?;
        rows.collect::<rusqlite::Result<_>>().map_err(sql("be read"))
    }

    /// Takes messages out that the broker has.
    pub fn outbox_sent(&self, numbers: Vec<i64>) -> Ticket<()> {
        self.writer.write(When::Soon, move |conn| {
            numbers
                .iter()
                .try_for_each(|n| run(conn, "DELETE FROM outbox WHERE n = ?1", [n]).map(drop))
        })
    }

    /// Which numbers of which streams were dropped and not yet told.
    ///
    /// # Errors
    /// `Store`.
    pub fn gaps(&self) -> Result<Vec<Gap>> {
        let conn = self.reader();
        let mut statement = conn
            .prepare_cached(
                "SELECT name, lost_from, lost_to FROM stream WHERE lost_from IS NOT NULL
                 ORDER BY name",
            )
            .map_err(sql("be read"))?;
        let rows = statement
            .query_map([], |row| {
                Ok(Gap { stream: row.get(0)?, from: row.get(1)?, to: row.get(2)? })
            })
            .map_err(sql("be read"))?;
        rows.collect::<rusqlite::Result<_>>().map_err(sql("be read"))
    }

    /// Forgets gaps that were told.
    pub fn gaps_told(&self, told: Vec<Gap>) -> Ticket<()> {
        self.writer.write(When::Soon, move |conn| {
            for Gap { stream, to, .. } in &told {
                run(
                    conn,
                    "UPDATE stream SET lost_from = CASE WHEN lost_to > ?2 THEN ?2 + 1 END,
                         lost_to = CASE WHEN lost_to > ?2 THEN lost_to END WHERE name = ?1",
                    params![stream, to],
                )?;
            }
            Ok(())
        })
    }

    /// Drops what is too old or too much of what may be dropped.
    ///
    /// # Errors
    /// `Store…`.
    pub fn trim_outbox(&self) -> Result<()> {
        let now = ms(self.clock.wall());
        self.writer.write(When::Soon, move |conn| trim(conn, now)).wait()
    }
}
