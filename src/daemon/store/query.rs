//! Asks the record: by time, camera, place, person, kind and job; newest first.

use std::collections::BinaryHeap;

use mien_base::clock::Wall;
use mien_base::id::{IdentityId, JobId};
use mien_base::limits;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::Store;
use super::cells::touching;
use super::record::{COLUMNS, Stored, named, read};
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

impl Query {
    /// True for a row that is asked for; the database answers the same by its indexes.
    #[must_use]
    pub fn admits(&self, link: &Link) -> bool {
        let entry = &link.row.entry;
        self.from.is_none_or(|from| entry.at >= from)
            && self.until.is_none_or(|until| entry.at < until)
            && self.camera.as_ref().is_none_or(|camera| entry.camera.as_ref() == Some(camera))
            && self.kind.is_none_or(|kind| entry.kind == kind)
            && self.job.is_none_or(|job| entry.job == Some(job))
            && self.before.is_none_or(|before| link.row.seq < before)
            && self.who.as_ref().is_none_or(|who| named(entry).contains(who.as_str()))
            && self.place.is_none_or(|place| touches(link, place))
    }
}

impl Store {
    /// Rows that match, newest first.
    ///
    /// # Errors
    /// `Store`; `AuditBroken` when a row that matches can't be read.
    pub fn query(&self, query: &Query) -> Result<Vec<Link>> {
        let conn = self.reader();
        let most = query.most.min(limits::AUDIT_ANSWER);
        match query.place {
            // A person's rows, or a job's, are few: each is looked at.
            Some(place) if query.who.is_none() && query.job.is_none() => {
                by_place(&conn, query, place, most)
            }
            _ => by_columns(&conn, query, most),
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
    let mut text = format!(
        "SELECT {columns} FROM {from} WHERE {} ORDER BY {order} DESC, {seq} DESC",
        all.sql()
    );
    if query.place.is_none() {
        text.push_str(&format!(" LIMIT {most}"));
    }
    (text, all.values)
}

fn columns() -> String {
    let columns: Vec<String> = COLUMNS.split(", ").map(|c| format!("audit.{c}")).collect();
    columns.join(", ")
}

fn by_columns(conn: &Connection, query: &Query, most: usize) -> Result<Vec<Link>> {
    let (text, values) = statement(query, most);
    let mut statement = conn.prepare_cached(&text).map_err(sql("be asked"))?;
    let mut rows = statement.query(params_from_iter(values)).map_err(sql("be asked"))?;
    let mut links = Vec::new();
    while links.len() < most
        && let Some(row) = rows.next().map_err(sql("be asked"))?
    {
        let link = link(row)?;
        if query.place.is_none_or(|place| touches(&link, place)) {
            links.push(link);
        }
    }
    Ok(links)
}

/// A row of an answer.
fn link(row: &rusqlite::Row<'_>) -> Result<Link> {
    match read(row).map_err(sql("be asked"))? {
        Stored::Link(link) => Ok(link),
        Stored::Bad(seq, _, why) => {
            Err(Error::AuditBroken { first: Fault::Unreadable { seq, why }, faults: 1 })
        }
    }
}

/// A face of the row lies in the place or across its edge.
fn touches(link: &Link, [x0, y0, x1, y1]: Place) -> bool {
    let touches = |[a0, b0, a1, b1]: Place| a0 <= x1 && a1 >= x0 && b0 <= y1 && b1 >= y0;
    link.row.entry.faces.iter().any(|face| touches(face.place))
}

/// Faces by place: each cell that can hold some is walked from its newest, all at once, and no
/// further than the answer needs.
fn by_place(conn: &Connection, query: &Query, place: Place, most: usize) -> Result<Vec<Link>> {
    let (text, values) = in_cell(query, place);
    let cells = touching(place);
    conn.set_prepared_statement_cache_capacity(2 * cells.len().max(32));
    let mut statements = cells
        .iter()
        .map(|_| conn.prepare_cached(&text))
        .collect::<rusqlite::Result<Vec<_>>>()
        .map_err(sql("be asked"))?;
    let mut walks = Vec::with_capacity(cells.len());
    for (statement, cell) in statements.iter_mut().zip(cells) {
        let values = std::iter::once(Value::Integer(cell.into())).chain(values.iter().cloned());
        walks.push(statement.query(params_from_iter(values)).map_err(sql("be asked"))?);
    }
    // The newest of each walk; the newest of all comes out first.
    let mut newest = BinaryHeap::new();
    for (at, walk) in walks.iter_mut().enumerate() {
        newest.extend(advance(walk)?.map(|place| (place, at)));
    }
    let mut found: Vec<u64> = Vec::new();
    while found.len() < most
        && let Some(((_, seq), at)) = newest.pop()
    {
        // Several faces of one row come out one after the other.
        if found.last() != Some(&seq) {
            found.push(seq);
        }
        if let Some(walk) = walks.get_mut(at) {
            newest.extend(advance(walk)?.map(|place| (place, at)));
        }
    }
    let text = format!("SELECT {} FROM audit WHERE audit.seq = ?1", columns());
    let mut statement = conn.prepare_cached(&text).map_err(sql("be asked"))?;
    let mut links = Vec::with_capacity(found.len());
    for seq in found {
        let mut rows = statement.query([seq]).map_err(sql("be asked"))?;
        if let Some(row) = rows.next().map_err(sql("be asked"))? {
            links.push(link(row)?);
        }
    }
    Ok(links)
}

/// Time and number of the next row of a walk.
fn advance(walk: &mut rusqlite::Rows<'_>) -> Result<Option<(u64, u64)>> {
    let row = walk.next().map_err(sql("be asked"))?;
    row.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose().map_err(sql("be asked"))
}

/// What is asked of one cell, whose number is the first value.
fn in_cell(query: &Query, [x0, y0, x1, y1]: Place) -> (String, Vec<Value>) {
    let mut all = Where::default();
    for (word, value) in [("x1 >= ?", x0), ("x0 <= ?", x1), ("y1 >= ?", y0), ("y0 <= ?", y1)] {
        all.and(word, i64::from(value));
    }
    if let Some(from) = query.from {
        all.and("at >= ?", number(from.0));
    }
    if let Some(until) = query.until {
        all.and("at < ?", number(until.0));
    }
    if let Some(camera) = &query.camera {
        all.and("camera = ?", camera.clone());
    }
    if let Some(kind) = query.kind {
        all.and("kind = ?", kind.word().to_owned());
    }
    if let Some(before) = query.before {
        all.and("seq < ?", number(before));
    }
    let text = format!(
        "SELECT at, seq FROM audit_where WHERE cell = ? AND {} ORDER BY at DESC, seq DESC",
        all.sql()
    );
    (text, all.values)
}
