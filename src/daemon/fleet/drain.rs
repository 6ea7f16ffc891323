//! The outbox on its way: news before the backlog, each topic in its order, never too much at once.
//!
//! ```text
//!   now ──────────────▶┐                     (status, sync, answers: not kept)
//!   news ──── 3 of 4 ──┼─▶ in flight (≤ 32) ─▶ acknowledged ─▶ out of the database
//!   backlog ── 1 of 4 ─┘
//!   held ── when the backlog is through      (news of a topic that the backlog speaks of)
//! ```

use std::collections::{BTreeMap, VecDeque};

use super::Shared;
use crate::mqtt::packet::{Message, Properties};
use crate::mqtt::{Client, Gone, Greeting};
use crate::store::{Gap, Waiting};

/// Messages that are read from the database at once.
const READ: usize = 16;
/// Bytes that may wait in the socket before more are put there.
const BYTES: usize = 256 << 10;

/// What a message in flight stands for.
enum Flight {
    /// A row of the outbox.
    Row(i64),
    /// Gaps, which are told when it is acknowledged.
    Sync(Vec<Gap>),
    Other,
}

/// What is on its way over one connection.
pub(super) struct Drain {
    most: usize,
    largest: usize,
    flight: BTreeMap<u16, Flight>,
    now: VecDeque<(Message, Flight)>,
    news: VecDeque<Waiting>,
    backlog: VecDeque<Waiting>,
    held: VecDeque<Waiting>,
    /// Where the backlog ends and news begin.
    mark: i64,
    read_news: i64,
    read_backlog: i64,
    turn: u8,
    /// Rows that the broker has and the database still holds.
    done: Vec<i64>,
    /// Rows that can't be sent over this connection.
    stuck: u64,
}

impl Drain {
    pub(super) fn new(shared: &Shared, greeting: &Greeting) -> Result<Self, Gone> {
        let mark = shared.jobs.store().outbox_end()?;
        let granted = usize::from(greeting.properties.receive_maximum.unwrap_or(u16::MAX));
        let largest = greeting.properties.maximum_packet.map_or(usize::MAX, |most| most as usize);
        Ok(Self {
            most: shared.settings.inflight.min(granted).max(1),
            largest,
            flight: BTreeMap::new(),
            now: VecDeque::new(),
            news: VecDeque::new(),
            backlog: VecDeque::new(),
            held: VecDeque::new(),
            mark,
            read_news: mark,
            read_backlog: 0,
            turn: 0,
            done: Vec::new(),
            stuck: 0,
        })
    }

    /// Puts a message first in line, which is not kept.
    pub(super) fn now(&mut self, message: Message) {
        self.now.push_back((message, Flight::Other));
    }

    /// Puts the message first in line that tells of gaps.
    pub(super) fn sync(&mut self, message: Message, gaps: Vec<Gap>) {
        self.now.push_back((message, Flight::Sync(gaps)));
    }

    /// Nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.flight.is_empty() && self.now.is_empty()
    }

    /// Sends as much as may be on its way.
    pub(super) fn fill(&mut self, shared: &Shared, client: &mut Client) -> Result<(), Gone> {
        self.forget(shared);
        let passing = std::mem::take(
            &mut *shared.passing.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        for message in passing {
            client.publish(message)?;
        }
        while self.flight.len() < self.most && client.waiting() < BYTES {
            let Some((message, flight)) = self.next(shared)? else { break };
            if message.payload.len() + message.topic.len() + 512 > self.largest {
                // The broker would end the connection for it.
                self.stuck += 1;
                continue;
            }
            if let Some(id) = client.publish(message)? {
                self.flight.insert(id, flight);
            }
        }
        Ok(())
    }

    fn next(&mut self, shared: &Shared) -> Result<Option<(Message, Flight)>, Gone> {
        if let Some(first) = self.now.pop_front() {
            return Ok(Some(first));
        }
        let store = shared.jobs.store();
        if self.news.is_empty() {
            let news = store.outbox(self.read_news, i64::MAX, self.mark, READ)?;
            self.read_news = news.last().map_or(self.read_news, |last| last.n);
            let speaks = |held: &VecDeque<Waiting>, row: &Waiting| {
                held.iter().any(|other| other.topic == row.topic)
            };
            for row in news {
                if row.held || speaks(&self.held, &row) {
                    self.held.push_back(row);
                } else {
                    self.news.push_back(row);
                }
            }
        }
        if self.backlog.is_empty() && self.read_backlog < self.mark {
            let rows = store.outbox(self.read_backlog, self.mark, 0, READ)?;
            self.read_backlog = rows.last().map_or(self.mark, |last| last.n);
            self.backlog.extend(rows);
        }
        let through = self.backlog.is_empty() && self.read_backlog >= self.mark;
        self.turn = (self.turn + 1) % 4;
        let row = if self.turn == 0 {
            self.backlog.pop_front().or_else(|| self.news.pop_front())
        } else {
            self.news.pop_front().or_else(|| self.backlog.pop_front())
        };
        let row = row.or_else(|| if through { self.held.pop_front() } else { None });
        Ok(row.map(|row| {
            let n = row.n;
            (message(row), Flight::Row(n))
        }))
    }

    /// The broker took a message, or refused it.
    pub(super) fn taken(&mut self, shared: &Shared, id: u16, code: u8) {
        let flight = self.flight.remove(&id);
        if code >= 0x80 {
            // What it may not take now stays in the outbox for the next connect.
            self.stuck += 1;
            return;
        }
        match flight {
            Some(Flight::Row(n)) => self.done.push(n),
            Some(Flight::Sync(gaps)) if !gaps.is_empty() => {
                drop(shared.jobs.store().gaps_told(gaps));
            }
            _ => {}
        }
        if self.done.len() >= READ {
            self.forget(shared);
        }
    }

    /// Takes out of the database what the broker has.
    fn forget(&mut self, shared: &Shared) {
        if !self.done.is_empty() {
            drop(shared.jobs.store().outbox_sent(std::mem::take(&mut self.done)));
        }
    }
}

fn message(row: Waiting) -> Message {
    let is_state = row.topic.ends_with("/state");
    Message {
        topic: row.topic,
        retain: row.retain,
        qos1: true,
        properties: Properties {
            message_expiry: row.life_s,
            content_type: (!row.payload.is_empty()).then(|| "application/json".to_owned()),
            payload_is_text: !row.payload.is_empty(),
            user: if is_state {
                vec![("schema".to_owned(), crate::contract::STATE.to_owned())]
            } else {
                Vec::new()
            },
            ..Properties::default()
        },
        payload: row.payload,
        ..Message::default()
    }
}
