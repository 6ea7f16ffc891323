//! Asks the record: by time, camera, place, person, kind and job; newest first.

use std::collections::BTreeSet;

use mien_base::clock::Wall;
use mien_base::id::{IdentityId, JobId};
use mien_base::limits;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::Store;
use super::record::{COLUMNS, FACES, Stored, find_camera, read, tick};
use crate::audit::{Fault, Kind, Link, Place};
use crate::errors::{Error, Result, sql};

/// What is asked for; what is left out is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// From this second on.
    pub from: Option<Wall>,
    /// Before this second.
    pub until: Option<Wall>,
    pub camera: Option<String>,
    /// Rows with a face that touches this place.
    pub place: Option<Place>,
    /// Rows about this person, or naming them.
    pub who: Option<IdentityId>,
    pub kind: Option<Kind>,
    pub job: Option<JobId>,
    /// Rows before this number: the next page of an answer.
    pub before: Option<u64>,
    /// Most rows of the answer, at most `limits::AUDIT_ANSWER`.
    pub most: usize,
}

/// Width of the first window of time when places are looked for, in seconds.
const WINDOW: u64 = 600;
/// How much wider each further one is.
const WIDER: u64 = 4;

impl Store {
    /// Rows that match, newest first.
    ///
    /// # Errors
    /// `Store`; `AuditBroken` when a row that matches can't be read.
    pub fn query(&self, query: &Query) -> Result<Vec<Link>> {
        let conn = self.reader();
        let most = query.most.min(limits::AUDIT_ANSWER);
        match query.place {
            Some(place) => by_place(&conn, query, place, most),
            None => by_columns(&conn, query, most),
        }
    }
}

/// A condition with its values.
#[derive(Debug, Default)]
struct Where {
    words: Vec<&'static str>,
    values: Vec<Value>,
}

impl Where {
    fn and(&mut self, word: &'static str, value: impl Into<Value>) {
        self.words.push(word);
        self.values.push(value.into());
    }

    fn sql(&self) -> String {
        if self.words.is_empty() { "1".to_owned() } else { self.words.join(" AND ") }
    }
}

fn number(value: u64) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// The columns that a query narrows, place and time of `audit_who` apart.
fn narrowed(query: &Query) -> Where {
    let mut all = Where::default();
    if let Some(from) = query.from {
        all.and("audit.at >= ?", number(from.0));
    }
    if let Some(until) = query.until {
        all.and("audit.at < ?", number(until.0));
    }
    if let Some(camera) = &query.camera {
        all.and("audit.camera = ?", camera.clone());
    }
    if let Some(kind) = query.kind {
        all.and("audit.kind = ?", kind.word().to_owned());
    }
    if let Some(job) = query.job {
        all.and("audit.job = ?", job.0.to_vec());
    }
    if let Some(before) = query.before {
        all.and("audit.seq < ?", number(before));
    }
    all
}

/// Which index leads: the one that leaves the least to be looked at.
fn source(query: &Query) -> &'static str {
    let rare = query.kind.is_some_and(|kind| kind != Kind::Job);
    if query.job.is_some() {
        "audit INDEXED BY audit_by_job"
    } else if query.who.is_some() {
        // Written as a cross join: the person's rows are walked, and each is looked up.
        "audit_who CROSS JOIN audit ON audit.seq = audit_who.seq"
    } else if query.camera.is_some() && !rare {
        "audit INDEXED BY audit_by_camera"
    } else if query.kind.is_some() {
        "audit INDEXED BY audit_by_kind"
    } else {
        "audit INDEXED BY audit_by_time"
    }
}

/// The statement and its values.
fn statement(query: &Query, most: usize) -> (String, Vec<Value>) {
    let mut all = narrowed(query);
    let mut order = "audit.at";
    if let Some(who) = &query.who {
        all.and("audit_who.who = ?", who.as_str().to_owned());
        if let Some(from) = query.from {
            all.and("audit_who.at >= ?", number(from.0));
        }
        if let Some(until) = query.until {
            all.and("audit_who.at < ?", number(until.0));
        }
        if query.job.is_none() {
            order = "audit_who.at";
        }
    }
    let seq = if order == "audit_who.at" { "audit_who.seq" } else { "audit.seq" };
    let mut from = source(query).to_owned();
    if query.job.is_some() && query.who.is_some() {
        from.push_str(" JOIN audit_who ON audit_who.seq = audit.seq");
    }
    let columns = columns();
    let text = format!(
        "SELECT {columns} FROM {from} WHERE {} ORDER BY {order} DESC, {seq} DESC LIMIT {most}",
        all.sql()
    );
    (text, all.values)
}

fn columns() -> String {
    let columns: Vec<String> = COLUMNS.split(", ").map(|c| format!("audit.{c}")).collect();
    columns.join(", ")
}

fn by_columns(conn: &Connection, query: &Query, most: usize) -> Result<Vec<Link>> {
    let (text, values) = statement(query, most);
    fetch(conn, &text, values)
}

fn fetch(conn: &Connection, text: &str, values: Vec<Value>) -> Result<Vec<Link>> {
    let mut statement = conn.prepare_cached(text).map_err(sql("be asked"))?;
    let rows = statement.query_map(params_from_iter(values), read).map_err(sql("be asked"))?;
    let mut links = Vec::new();
    for row in rows {
        match row.map_err(sql("be asked"))? {
            Stored::Link(link) => links.push(link),
            Stored::Bad(seq, _, why) => {
                return Err(Error::AuditBroken {
                    first: Fault::Unreadable { seq, why },
                    faults: 1,
                });
            }
        }
    }
    Ok(links)
}

/// Faces by place: windows of time, from the newest back and ever wider, until there is enough.
/// What many faces match is then found in the first, and what few match in one of the last.
fn by_place(conn: &Connection, query: &Query, place: Place, most: usize) -> Result<Vec<Link>> {
    let camera = match &query.camera {
        None => None,
        Some(camera) => match find_camera(conn, camera)? {
            Some(number) => Some(number),
            None => return Ok(Vec::new()),
        },
    };
    let Some((oldest, newest)) = span(conn, query)? else { return Ok(Vec::new()) };
    let (mut until, mut width) = (newest, WINDOW);
    let mut links: Vec<Link> = Vec::new();
    while until > oldest && links.len() < most {
        let from = until.saturating_sub(width).max(oldest);
        let rows = touching(conn, place, camera, (Wall(from), Wall(until)))?;
        let mut found = Vec::new();
        for seq in rows {
            found.extend(matching(conn, query, seq)?);
        }
        // In the order of an answer: a clock that was set back makes it another one than `seq`.
        found.sort_by_key(|link| std::cmp::Reverse((link.row.entry.at, link.row.seq)));
        links.append(&mut found);
        (until, width) = (from, width.saturating_mul(WIDER));
    }
    links.truncate(most);
    Ok(links)
}

/// The seconds between which rows stand that may match.
fn span(conn: &Connection, query: &Query) -> Result<Option<(u64, u64)>> {
    let (first, last): (Option<u64>, Option<u64>) = conn
        .query_row("SELECT (SELECT min(at) FROM audit), (SELECT max(at) FROM audit)", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(sql("be asked"))?;
    let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
    let from = query.from.map_or(first, |from| from.0.max(first));
    let until = query.until.map_or(last + 1, |until| until.0.min(last + 1));
    Ok((from < until).then_some((from, until)))
}

/// Numbers of the rows with a face that touches the place between two times.
fn touching(
    conn: &Connection,
    place: Place,
    camera: Option<i64>,
    (from, until): (Wall, Wall),
) -> Result<BTreeSet<u64>> {
    let [x0, y0, x1, y1] = place;
    let mut text = "SELECT id FROM audit_where WHERE t1 >= ? AND t0 <= ?
        AND x1 >= ? AND x0 <= ? AND y1 >= ? AND y0 <= ?"
        .to_owned();
    // The ends of both are inclusive; `matching` looks at the time itself.
    let last = Wall(until.0.saturating_sub(1));
    let mut values: Vec<i64> = vec![tick(from).into(), tick(last).into()];
    values.extend([x0, x1, y0, y1].map(i64::from));
    if let Some(camera) = camera {
        text.push_str(" AND c1 >= ? AND c0 <= ?");
        values.extend([camera, camera]);
    }
    let mut statement = conn.prepare_cached(&text).map_err(sql("be asked"))?;
    let ids = statement
        .query_map(params_from_iter(values), |row| row.get::<_, u64>(0))
        .map_err(sql("be asked"))?;
    ids.map(|id| id.map(|id| id / FACES).map_err(sql("be asked"))).collect()
}

/// The row of this number when it matches everything but the place.
fn matching(conn: &Connection, query: &Query, seq: u64) -> Result<Option<Link>> {
    let mut all = narrowed(query);
    all.and("audit.seq = ?", number(seq));
    let text = format!("SELECT {} FROM audit WHERE {}", columns(), all.sql());
    let link = fetch(conn, &text, all.values)?.pop();
    Ok(link.filter(|link| {
        let named = super::record::named(&link.row.entry);
        query.who.as_ref().is_none_or(|who| named.contains(who.as_str()))
    }))
}
