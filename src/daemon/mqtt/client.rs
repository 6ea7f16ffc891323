//! One connection to a broker: greets, sends, receives, keeps it alive, notices when it is dead.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock, Mono};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ClientConfig;

use super::packet::{Bad, Connect, Filter, Message, Packet, Properties, Version, decode};
use super::stream::{Broker, Stream};

/// Why a connection is no more.
#[derive(Debug, thiserror::Error)]
pub enum Gone {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("The broker sent nonsense: {0}")]
    Bad(#[from] Bad),
    #[error("The broker refused the connection (code {code:#04x}{})", words(reason.as_deref()))]
    Refused { code: u8, reason: Option<String> },
    #[error("The broker ended the connection (code {code:#04x}{})", words(reason.as_deref()))]
    Ended { code: u8, reason: Option<String> },
    #[error("The broker gave no sign of life for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("The broker broke the protocol: {0}")]
    Protocol(&'static str),
    /// What it brought could not be kept.
    #[error("{0}")]
    Own(Box<crate::Error>),
}

impl From<crate::Error> for Gone {
    fn from(error: crate::Error) -> Self {
        Self::Own(Box::new(error))
    }
}

fn words(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// What a broker greets with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// It remembers the session.
    pub session: bool,
    pub properties: Properties,
}

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Message(Box<Message>),
    /// A message of ours was taken, or refused (0x80 and above).
    Taken {
        id: u16,
        code: u8,
    },
    /// A subscription was answered, a code for each filter.
    Subscribed {
        id: u16,
        codes: Vec<u8>,
    },
}

/// A connection that was greeted.
pub struct Client {
    stream: Stream,
    clock: Arc<dyn Clock>,
    version: Version,
    input: Vec<u8>,
    output: Vec<u8>,
    next: u16,
    /// Ids in use.
    open: BTreeMap<u16, ()>,
    keep_alive: Duration,
    heard: Mono,
    spoke: Mono,
    /// A ping was sent and not answered.
    asked: Option<Mono>,
    sent: u64,
    received: u64,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, and waits at most `patience` for the greeting.
    ///
    /// # Errors
    /// `Gone`.
    pub fn connect(
        broker: &Broker,
        config: Option<&Arc<ClientConfig>>,
        connect: &Connect,
        clock: Arc<dyn Clock>,
        patience: Duration,
    ) -> Result<(Self, Greeting), Gone> {
        let stream = Stream::connect(broker, config, patience)?;
        let now = clock.mono();
        let mut client = Self {
            stream,
            clock,
            version: connect.version,
            input: Vec::new(),
            output: Vec::new(),
            next: 1,
            open: BTreeMap::new(),
            keep_alive: Duration::from_secs(u64::from(connect.keep_alive)),
            heard: now,
            spoke: now,
            asked: None,
            sent: 0,
            received: 0,
        };
        client.put(&Packet::Connect(Box::new(connect.clone())))?;
        loop {
            let left = patience.saturating_sub(client.clock.mono().since(now));
            if left.is_zero() {
                return Err(Gone::Silent(patience));
            }
            client.poll(None, left)?;
            match client.take()? {
                None => {}
                Some(Packet::Connack { session, code: 0, properties }) => {
                    if let Some(seconds) = properties.keep_alive {
                        client.keep_alive = Duration::from_secs(u64::from(seconds));
                    }
                    return Ok((client, Greeting { session, properties }));
                }
                Some(Packet::Connack { code, properties, .. }) => {
                    return Err(Gone::Refused { code, reason: properties.reason });
                }
                Some(_) => return Err(Gone::Protocol("it spoke before it greeted")),
            }
        }
    }

    /// Sends a message; its id when it will be acknowledged.
    ///
    /// # Errors
    /// `Gone`.
    pub fn publish(&mut self, mut message: Message) -> Result<Option<u16>, Gone> {
        let id = if message.qos1 { Some(self.id()?) } else { None };
        message.id = id.unwrap_or(0);
        if self.version == Version::V4 {
            message.properties = Properties::default();
        }
        self.put(&Packet::Publish(message))?;
        Ok(id)
    }

    /// Subscribes; the id by which it is answered.
    ///
    /// # Errors
    /// `Gone`.
    pub fn subscribe(&mut self, filters: Vec<Filter>) -> Result<u16, Gone> {
        let id = self.id()?;
        self.put(&Packet::Subscribe { id, filters })?;
        Ok(id)
    }

    /// Says that a message was taken over.
    ///
    /// # Errors
    /// `Gone`.
    pub fn acknowledge(&mut self, id: u16) -> Result<(), Gone> {
        if id == 0 {
            return Ok(());
        }
        self.put(&Packet::Puback { id, code: 0 })
    }

    /// Waits at most `most` for something to come, or for `wake` to be readable.
    ///
    /// # Errors
    /// `Gone`.
    pub fn wait(&mut self, wake: BorrowedFd<'_>, most: Duration) -> Result<Vec<Event>, Gone> {
        let due = self.keep_alive_due();
        self.poll(Some(wake), most.min(due))?;
        self.keep_alive()?;
        let mut events = Vec::new();
        loop {
            while let Some(packet) = self.take()? {
                match packet {
                    Packet::Publish(message) => events.push(Event::Message(Box::new(message))),
                    Packet::Puback { id, code } => {
                        self.open.remove(&id);
                        events.push(Event::Taken { id, code });
                    }
                    Packet::Suback { id, codes } => {
                        self.open.remove(&id);
                        events.push(Event::Subscribed { id, codes });
                    }
                    Packet::Pong => {}
                    Packet::Disconnect { code, properties } => {
                        return Err(Gone::Ended { code, reason: properties.reason });
                    }
                    _ => return Err(Gone::Protocol("a packet that only clients send")),
                }
            }
            if !self.stream.receive(&mut self.input)? {
                break;
            }
        }
        Ok(events)
    }

    /// Ends the connection as it should be: the broker sends no will.
    pub fn disconnect(mut self) {
        let end = Packet::Disconnect { code: 0, properties: Properties::default() };
        let _ = self.put(&end);
        let start = self.clock.mono();
        while self.stream.wants_write() && self.clock.mono().since(start) < Duration::from_secs(2) {
            if self.poll(None, Duration::from_millis(100)).is_err() {
                break;
            }
        }
    }

    /// Bytes sent and received, without those of TLS and below.
    #[must_use]
    pub const fn traffic(&self) -> (u64, u64) {
        (self.sent, self.received)
    }

    /// Bytes that the broker has not taken yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.stream.waiting()
    }

    fn id(&mut self) -> Result<u16, Gone> {
        for _ in 0..=u16::MAX {
            let id = self.next;
            self.next = self.next.checked_add(1).unwrap_or(1);
            if self.open.insert(id, ()).is_none() {
                return Ok(id);
            }
        }
        Err(Gone::Protocol("every packet id waits for an answer"))
    }

    fn put(&mut self, packet: &Packet) -> Result<(), Gone> {
        self.output.clear();
        packet.encode(&mut self.output, self.version);
        self.sent += self.output.len() as u64;
        self.spoke = self.clock.mono();
        self.stream.send(&self.output)?;
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Packet>, Gone> {
        let Some((packet, length)) = decode(&self.input, self.version)? else { return Ok(None) };
        self.input.drain(..length);
        if self.input.is_empty() && self.input.capacity() > 16 << 10 {
            self.input = Vec::new();
        }
        self.received += length as u64;
        self.heard = self.clock.mono();
        self.asked = None;
        Ok(Some(packet))
    }

    fn keep_alive_due(&self) -> Duration {
        if self.keep_alive.is_zero() {
            return Duration::from_secs(3600);
        }
        let now = self.clock.mono();
        match self.asked {
            Some(asked) => (self.keep_alive / 2).saturating_sub(now.since(asked)),
            None => (self.keep_alive * 3 / 4).saturating_sub(now.since(self.spoke.min(self.heard))),
        }
    }

    fn keep_alive(&mut self) -> Result<(), Gone> {
        if self.keep_alive.is_zero() || !self.keep_alive_due().is_zero() {
            return Ok(());
        }
        if self.asked.is_some() {
            return Err(Gone::Silent(self.clock.mono().since(self.heard)));
        }
        self.put(&Packet::Ping)?;
        // Its answer makes both new.
        self.asked = Some(self.clock.mono());
        Ok(())
    }

    /// Waits for the socket or the wake-up, sends and reads what can be.
    fn poll(&mut self, wake: Option<BorrowedFd<'_>>, most: Duration) -> Result<(), Gone> {
        let mut flags = PollFlags::IN;
        if self.stream.wants_write() {
            flags |= PollFlags::OUT;
        }
        let mut fds = vec![PollFd::from_borrowed_fd(self.stream.fd(), flags)];
        fds.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
        let most = Timespec::try_from(most).map_err(|_| Gone::Protocol("a wait without end"))?;
        match poll(&mut fds, Some(&most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        let ready = fds.first().map_or(PollFlags::empty(), PollFd::revents);
        drop(fds);
        if ready.contains(PollFlags::OUT) {
            self.stream.flush()?;
        }
        if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.stream.receive(&mut self.input)?;
        }
        Ok(())
    }
}
