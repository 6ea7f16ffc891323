//! The one thread that writes: gathers what may wait into one transaction, answers after it holds.
//!
//! ```text
//!   write(now)  ─┐
//!   write(soon) ─┼─▶ queue (256; full: the maker waits) ─▶ group: ≤ 64, ≤ 250 ms, or a `now`
//!   write(soon) ─┘                                          │
//!                     BEGIN IMMEDIATE · each in a savepoint · COMMIT (fsync) ─▶ answers
//! ```

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::limits;
use rusqlite::{Connection, TransactionBehavior};

use crate::errors::{Error, Result, sql};

/// Longest time that a row which may wait does wait.
const GATHER: Duration = Duration::from_millis(250);

/// When something must be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// With the next group.
    Soon,
    /// At once, and everything before it.
    Now,
}

/// Why a transaction does not hold, for each of those who wait for it.
#[derive(Debug, Clone)]
enum Failed {
    Busy,
    Other(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error {
            Error::StoreBusy => Self::Busy,
            Error::Store { what, source } => Self::Other(format!("can't {what}: {source}")),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Busy => Self::StoreBusy,
            Failed::Other(detail) => Self::StoreCommit { detail },
        }
    }
}

/// Gives the answer, once it is known whether the transaction holds.
type Answer = Box<dyn FnOnce(Option<Failed>) + Send>;
/// Does its part of a transaction, `None` when there is none: whether that part stands, and how to
/// answer.
type Work = Box<dyn FnOnce(Option<&Connection>) -> (bool, Answer) + Send>;

struct Order {
    when: When,
    work: Work,
}

/// What was asked for and is not yet answered.
#[derive(Debug)]
pub struct Ticket<T>(Receiver<Result<T>>);

impl<T> Ticket<T> {
    /// Waits until it is on disk.
    ///
    /// # Errors
    /// Of the work itself; `Store…` when the transaction does not hold.
    pub fn wait(self) -> Result<T> {
        self.0.recv().unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> Error {
    Error::StoreCommit { detail: "its writer has ended".to_owned() }
}

/// The thread and the way to it.
pub(super) struct Writer {
    queue: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// `StoreThread`.
    pub(super) fn start(conn: Connection, clock: Arc<dyn Clock>) -> Result<Self> {
        let (queue, orders) = mpsc::sync_channel(limits::STORE_QUEUE);
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || run(conn, &orders, clock.as_ref()))
            .map_err(|source| Error::StoreThread { source })?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Puts work in line; waits while the line is full.
    pub(super) fn write<T: Send + 'static>(
        &self,
        when: When,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Ticket<T> {
        let (answer, ticket) = mpsc::sync_channel(1);
        let work: Work = Box::new(move |conn| {
            let done = conn.map(work);
            let stands = matches!(done, Some(Ok(_)));
            let reply: Answer = Box::new(move |failed: Option<Failed>| {
                let done = match (done, failed) {
                    (Some(Err(error)), _) => Err(error),
                    (_, Some(failed)) => Err(failed.into()),
                    (Some(done), None) => done,
                    (None, None) => Err(gone()),
                };
                // Who no longer waits does not want to know.
                let _ = answer.send(done);
            });
            (stands, reply)
        });
        if let Some(queue) = &self.queue {
            // When the thread is gone, the ticket says so.
            let _ = queue.send(Order { when, work });
        }
        Ticket(ticket)
    }

    /// Writes what waits, and ends the thread.
    pub(super) fn stop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(mut conn: Connection, orders: &Receiver<Order>, clock: &dyn Clock) {
    while let Ok(first) = orders.recv() {
        let group = gather(first, orders, clock);
        for (answer, failed) in commit(&mut conn, group) {
            answer(failed);
        }
    }
}

/// The orders of one transaction: until one is urgent, there are enough, or the first has waited.
fn gather(first: Order, orders: &Receiver<Order>, clock: &dyn Clock) -> Vec<Order> {
    let start = clock.mono();
    let mut group = vec![first];
    while group.len() < limits::STORE_GROUP && group.iter().all(|o| o.when == When::Soon) {
        let left = GATHER.saturating_sub(clock.mono().since(start));
        match orders.recv_timeout(left) {
            Ok(order) => group.push(order),
            Err(_) => break,
        }
    }
    // What is there already costs no further sync.
    while group.len() < limits::STORE_GROUP {
        let Ok(order) = orders.try_recv() else { break };
        group.push(order);
    }
    group
}

/// Does the work of a group in one transaction.
fn commit(conn: &mut Connection, group: Vec<Order>) -> Vec<(Answer, Option<Failed>)> {
    let mut answers: Vec<Answer> = Vec::with_capacity(group.len());
    let mut group = group.into_iter();
    let failed = transact(conn, &mut group, &mut answers).err().map(Failed::from);
    // Work that was not begun is answered all the same.
    answers.extend(group.map(|order| (order.work)(None).1));
    answers.into_iter().map(|answer| (answer, failed.clone())).collect()
}

fn transact(
    conn: &mut Connection,
    group: &mut impl Iterator<Item = Order>,
    answers: &mut Vec<Answer>,
) -> Result<()> {
    let tx =
        conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql("begin"))?;
    for order in group {
        tx.execute_batch("SAVEPOINT work").map_err(sql("begin"))?;
        let (stands, answer) = (order.work)(Some(&tx));
        answers.push(answer);
        let end = if stands { "RELEASE work" } else { "ROLLBACK TO work; RELEASE work" };
        tx.execute_batch(end).map_err(sql("go on"))?;
    }
    tx.commit().map_err(sql("commit"))
}
