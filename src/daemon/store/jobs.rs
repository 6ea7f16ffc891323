//! Jobs: moved by legal steps only, each in one transaction with its row in the record and its message.

use mien_base::clock::Wall;
use mien_base::id::JobId;
use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, params};
use serde_json::{Map, Value, json};

use super::record::run;
use super::writer::{Ticket, When};
use super::{Store, outbox, record};
use crate::audit::{Entry, Kind as AuditKind};
use crate::contract::{Class, Document, JobState, Progress, Reason, STATE, State};
use crate::errors::{Error, Result, sql};

/// Who brought a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The fleet, for this device or a group of it.
    Fleet,
    /// The fleet, for one member of a pool.
    Pool,
    /// A user of this machine.
    Local,
}

impl Origin {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Pool => "pool",
            Self::Local => "local",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Fleet, Self::Pool, Self::Local].into_iter().find(|origin| origin.word() == word)
    }
}

/// What was asked of a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Cancel,
    Pause,
}

impl Asked {
    const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
        }
    }
}

/// A job as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    /// Under which id the worker and the record know it.
    pub execution: JobId,
    pub issuer: String,
    pub origin: Origin,
    /// Where its state is told; empty when nobody is.
    pub topic: String,
    pub document: Document,
    pub state: State,
    pub version: u64,
    pub attempt: u32,
    pub crashes: u32,
    pub priority: u8,
    pub progress: Option<Progress>,
    pub reason: Option<Reason>,
    pub pointer: Option<String>,
    pub detail: Option<String>,
    pub result: Option<Value>,
    pub asked: Option<Asked>,
    pub boot: String,
    /// In ms since 1970.
    pub received: u64,
    pub not_before: u64,
    pub updated: u64,
    /// Counts jobs as they came.
    pub arrival: u64,
}

impl JobRow {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.document.id
    }

    /// What is told about it.
    #[must_use]
    pub fn told(&self) -> JobState {
        JobState {
            schema: STATE.to_owned(),
            id: self.document.id.clone(),
            kind: self.document.kind,
            state: self.state,
            version: self.version,
            at: self.updated,
            attempt: self.attempt,
            boot_id: self.boot.clone(),
            progress: self.progress.clone().filter(|_| !self.state.is_end()),
            reason: self.reason,
            retryable: self.reason.map(Reason::retryable),
            pointer: self.pointer.clone(),
            detail: self.detail.clone(),
            result: self.result.clone(),
            fence: self.document.fence,
        }
    }
}

/// A move of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub id: String,
    pub to: State,
    pub reason: Option<Reason>,
    pub detail: Option<String>,
    pub result: Option<Value>,
    /// Not to begin before this, in ms since 1970.
    pub not_before: Option<u64>,
    /// In which boot.
    pub boot: String,
    /// The daemon died while it ran.
    pub crashed: bool,
    /// Only when the job has this version.
    pub expect_version: Option<u64>,
}

impl Step {
    /// A move without more to say.
    #[must_use]
    pub fn to(id: &str, to: State, boot: &str) -> Self {
        Self {
            id: id.to_owned(),
            to,
            reason: None,
            detail: None,
            result: None,
            not_before: None,
            boot: boot.to_owned(),
            crashed: false,
            expect_version: None,
        }
    }

    /// For this reason.
    #[must_use]
    pub fn because(mut self, reason: Reason, detail: impl Into<String>) -> Self {
        self.reason = Some(reason);
        self.detail = Some(detail.into());
        self
    }
}

/// What became of a move.
#[derive(Debug, Clone, PartialEq)]
pub enum Moved {
    Done(JobRow),
    /// The job may not become that; it stands as it stood.
    Illegal(JobRow),
    /// It has another version than was expected.
    Stale(JobRow),
    Unknown,
}

/// In ms since 1970.
pub(super) const fn ms(now: Wall) -> u64 {
    now.0.saturating_mul(1000)
}

const COLUMNS: &str = "execution, issuer, origin, topic, document, state, version, attempt, crashes, \
     priority, step, permille, reason, pointer, detail, result, asked, boot, received, not_before, \
     updated, arrival";

fn bad(at: usize) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(at, "job".to_owned(), rusqlite::types::Type::Text)
}

fn read(row: &SqlRow<'_>) -> rusqlite::Result<JobRow> {
    let text = |at: usize| row.get::<_, Option<String>>(at);
    let document: String = row.get(4)?;
    let document = Document::parse(document.as_bytes()).map_err(|_| bad(4))?;
    let state = State::of(&row.get::<_, String>(5)?).ok_or_else(|| bad(5))?;
    let step = text(10)?;
    let permille = row.get(11)?;
    let result = text(15)?.map(|result| serde_json::from_str(&result)).transpose();
    Ok(JobRow {
        execution: JobId(row.get(0)?),
        issuer: row.get(1)?,
        origin: Origin::of(&row.get::<_, String>(2)?).ok_or_else(|| bad(2))?,
        topic: row.get(3)?,
        document,
        state,
        version: row.get(6)?,
        attempt: row.get(7)?,
        crashes: row.get(8)?,
        priority: row.get(9)?,
        progress: step.map(|step| Progress { step, permille, eta_s: None }),
        reason: text(12)?.and_then(|word| Reason::of(&word)),
        pointer: text(13)?,
        detail: text(14)?,
        result: result.map_err(|_| bad(15))?,
        asked: match text(16)?.as_deref() {
            Some("cancel") => Some(Asked::Cancel),
            Some("pause") => Some(Asked::Pause),
            _ => None,
        },
        boot: row.get(17)?,
        received: row.get(18)?,
        not_before: row.get(19)?,
        updated: row.get(20)?,
        arrival: row.get(21)?,
    })
}

/// The job of this id.
pub(super) fn find(conn: &Connection, id: &str) -> Result<Option<JobRow>> {
    conn.prepare_cached(&format!("SELECT {COLUMNS} FROM job WHERE id = ?1"))
        .and_then(|mut statement| statement.query_row([id], read).optional())
        .map_err(sql("be read"))
}

fn list(conn: &Connection, condition: &str, most: usize) -> Result<Vec<JobRow>> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut statement = conn
        .prepare_cached(&format!("SELECT {COLUMNS} FROM job WHERE {condition} LIMIT ?1"))
        .map_err(sql("be read"))?;
    let rows = statement.query_map([most], read).map_err(sql("be read"))?;
    rows.collect::<rusqlite::Result<_>>().map_err(sql("be read"))
}

/// Puts the row of the record and the message that belong to a job's new state.
pub(super) fn tell(conn: &Connection, store: &Tellers, job: &JobRow) -> Result<()> {
    let mut body = Map::new();
    body.insert("id".to_owned(), json!(job.document.id));
    body.insert("kind".to_owned(), json!(job.document.kind.word()));
    body.insert("state".to_owned(), json!(job.state.name()));
    body.insert("version".to_owned(), json!(job.version));
    body.insert("issuer".to_owned(), json!(job.issuer));
    if let Some(reason) = job.reason {
        body.insert("reason".to_owned(), json!(reason.name()));
    }
    let kind = if job.state == State::Rejected { AuditKind::Refused } else { AuditKind::Job };
    let entry = Entry::new(kind, store.now, Value::Object(body)).of_job(job.execution);
    record::append(conn, store.keys.audit(), entry)?;
    if job.topic.is_empty() {
        return Ok(());
    }
    // What was told of its progress is older than this.
    let latest = Class::Latest.number();
    run(conn, "DELETE FROM outbox WHERE topic = ?1 AND class = ?2", params![job.topic, latest])?;
    outbox::put(conn, &job.told().draft(job.topic.clone(), Class::Must), None, store.now)
}

/// Who signs what is recorded, and when.
pub(super) struct Tellers {
    pub(super) keys: std::sync::Arc<dyn super::Keys>,
    pub(super) now: Wall,
}

/// Moves a job, in the writer's transaction.
pub(super) fn step(conn: &Connection, tellers: &Tellers, step: &Step) -> Result<Moved> {
    let Some(mut job) = find(conn, &step.id)? else { return Ok(Moved::Unknown) };
    if step.expect_version.is_some_and(|version| version != job.version) {
        return Ok(Moved::Stale(job));
    }
    if !job.state.may_become(step.to) {
        return Ok(Moved::Illegal(job));
    }
    let now = ms(tellers.now);
    if job.state == State::Running {
        run(
            conn,
            "UPDATE attempt SET ended = ?3, outcome = ?4 WHERE job = ?1 AND n = ?2",
            params![step.id, job.attempt, now, step.to.name()],
        )?;
    }
    job.attempt += u32::from(step.to == State::Running);
    if step.to == State::Running {
        run(
            conn,
            "INSERT INTO attempt (job, n, boot, began) VALUES (?1, ?2, ?3, ?4)",
            params![step.id, job.attempt, step.boot, now],
        )?;
    }
    job.crashes += u32::from(step.crashed);
    (job.state, job.version, job.updated) = (step.to, job.version + 1, now);
    (job.reason, job.detail) = (step.reason, step.detail.clone());
    (job.pointer, job.result, job.boot) = (None, step.result.clone(), step.boot.clone());
    job.not_before = step.not_before.unwrap_or(job.not_before);
    job.asked = None;
    let result = job.result.as_ref().map(Value::to_string);
    run(
        conn,
        "UPDATE job SET state = ?2, ended = ?3, version = ?4, attempt = ?5, crashes = ?6,
             reason = ?7, pointer = NULL, detail = ?8, result = ?9, asked = NULL, boot = ?10,
             not_before = ?11, updated = ?12 WHERE id = ?1",
        params![
            step.id,
            job.state.name(),
            job.state.is_end(),
            job.version,
            job.attempt,
            job.crashes,
            job.reason.map(Reason::name),
            job.detail,
            result,
            job.boot,
            job.not_before,
            now
        ],
    )?;
    tell(conn, tellers, &job)?;
    Ok(Moved::Done(job))
}

impl Store {
    pub(super) fn tellers(&self) -> Tellers {
        Tellers { keys: self.keys.clone(), now: self.clock.wall() }
    }

    /// Moves a job, with its row in the record and its message, and waits until that is on disk.
    ///
    /// # Errors
    /// `Store…`.
    pub fn move_job(&self, to: Step) -> Result<Moved> {
        let tellers = self.tellers();
        self.write(When::Now, move |conn| step(conn, &tellers, &to)).wait()
    }

    /// Tells a job's state once more: as a sign of life, or to who asks, who is not kept waiting.
    pub fn tell_again(&self, id: &str) -> Ticket<()> {
        let (id, now) = (id.to_owned(), self.clock.wall());
        self.writer.write(When::Now, move |conn| {
            match find(conn, &id)?.filter(|job| !job.topic.is_empty()) {
                Some(job) => {
                    let draft = job.told().draft(job.topic.clone(), Class::Latest);
                    outbox::put(conn, &draft, None, now)
                }
                None => Ok(()),
            }
        })
    }

    /// Notes how far a running job is, and tells it when there is a way.
    pub fn note_progress(&self, id: &str, progress: Progress) -> Ticket<()> {
        let (id, now) = (id.to_owned(), self.clock.wall());
        self.writer.write(When::Soon, move |conn| {
            let noted = run(
                conn,
                "UPDATE job SET step = ?2, permille = ?3 WHERE id = ?1 AND state = 'running'",
                params![id, progress.step, progress.permille],
            )?;
            let told = find(conn, &id)?.filter(|job| noted > 0 && !job.topic.is_empty());
            let Some(mut job) = told else { return Ok(()) };
            job.progress = Some(progress);
            job.updated = ms(now);
            outbox::put(conn, &job.told().draft(job.topic.clone(), Class::Latest), None, now)
        })
    }

    /// Notes what was asked of a running job; false when it does not run.
    ///
    /// # Errors
    /// `Store…`.
    pub fn ask_of_job(&self, id: &str, asked: Asked) -> Result<bool> {
        let id = id.to_owned();
        let work = move |conn: &Connection| {
            let statement = "UPDATE job SET asked = ?2 WHERE id = ?1 AND state = 'running'";
            Ok(run(conn, statement, params![id, asked.word()])? > 0)
        };
        self.writer.write(When::Now, work).wait()
    }

    /// Gives a job another priority.
    ///
    /// # Errors
    /// `Store…`.
    pub fn prioritise_job(&self, id: &str, priority: u8) -> Result<()> {
        let id = id.to_owned();
        let work = move |conn: &Connection| {
            let statement = "UPDATE job SET priority = ?2 WHERE id = ?1 AND ended = 0";
            run(conn, statement, params![id, priority]).map(drop)
        };
        self.writer.write(When::Now, work).wait()
    }

    /// Number and hash of the last row of the record.
    ///
    /// # Errors
    /// `Store`.
    pub fn audit_end(&self) -> Result<(u64, crate::audit::Hash)> {
        record::end(&self.reader())
    }

    /// The newest signed end of the record, as its envelope.
    ///
    /// # Errors
    /// `Store`.
    pub fn last_head(&self) -> Result<Option<String>> {
        let last = "SELECT envelope FROM audit_head ORDER BY seq DESC LIMIT 1";
        self.reader().query_row(last, [], |row| row.get(0)).optional().map_err(sql("be read"))
    }

    /// A job by its id.
    ///
    /// # Errors
    /// `Store`.
    pub fn job(&self, id: &str) -> Result<Option<JobRow>> {
        find(&self.reader(), id)
    }

    /// Jobs that have not ended, as they came.
    ///
    /// # Errors
    /// `Store`.
    pub fn open_jobs(&self, most: usize) -> Result<Vec<JobRow>> {
        list(&self.reader(), "ended = 0 ORDER BY arrival", most)
    }

    /// Jobs that have ended, the last one first.
    ///
    /// # Errors
    /// `Store`.
    pub fn ended_jobs(&self, most: usize) -> Result<Vec<JobRow>> {
        list(&self.reader(), "ended = 1 ORDER BY updated DESC, arrival DESC", most)
    }

    /// Takes jobs out that ended before a time (ms since 1970), and clears what is retained of
    /// them. Their ids are remembered for longer. How many there were.
    ///
    /// # Errors
    /// `Store…`.
    pub fn purge_jobs(&self, before: u64) -> Result<usize> {
        let now = self.clock.wall();
        let work = move |conn: &Connection| {
            let condition = format!("ended = 1 AND updated < {before}");
            let old = list(conn, &condition, 256)?;
            for job in &old {
                let empty = crate::contract::Draft {
                    topic: job.topic.clone(),
                    class: Class::Latest,
                    retain: true,
                    life_s: None,
                    payload: Vec::new(),
                };
                if !empty.topic.is_empty() {
                    outbox::put(conn, &empty, None, now)?;
                }
                run(conn, "DELETE FROM attempt WHERE job = ?1", [job.id()])?;
                run(conn, "DELETE FROM job WHERE id = ?1", [job.id()])?;
            }
            run(
                conn,
                "DELETE FROM inbox WHERE until < ?1 AND id NOT IN (SELECT id FROM job)",
                [ms(now)],
            )?;
            Ok(old.len())
        };
        self.writer.write(When::Now, work).wait()
    }

    /// How each try of a job ended, in order; none where it was cut off.
    ///
    /// # Errors
    /// `Store`.
    pub fn attempts(&self, id: &str) -> Result<Vec<Option<State>>> {
        let conn = self.reader();
        let mut statement = conn
            .prepare_cached("SELECT outcome FROM attempt WHERE job = ?1 ORDER BY n")
            .map_err(sql("be read"))?;
        let rows = statement
            .query_map([id], |row| row.get::<_, Option<String>>(0))
            .map_err(sql("be read"))?;
        rows.map(|row| Ok(row.map_err(sql("be read"))?.as_deref().and_then(State::of)))
            .collect::<std::result::Result<_, Error>>()
    }
}
