//! The fleet: one session with a broker in a thread of its own, and one more for the pools.
//!
//! ```text
//!   away ──▶ connect ──▶ greeted ──▶ subscribe, status, birth, sync ──▶ carry ──┐
//!     ▲  full-jitter back-off                outbox ─▶ broker, commands ─▶ jobs  │
//!     └──────────────────────── gone, silent, refused ◀──────────────────────────┘
//! ```
//! The broker is trusted with nothing: what it has not acknowledged stands in the outbox, what it
//! forgot is told again on the next connect, and what it brings is a job only when it is signed.

mod announce;
mod drain;
mod home;
mod incoming;
mod session;
pub mod operator;
pub mod pool;
pub mod probe;
pub mod rollout;
mod change;
mod station;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mien_base::clock::{Clock, Mono};
use mien_vault::random::Random;
use rustix::event::{EventfdFlags, eventfd};
use rustls::ClientConfig;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::contract::{Refusal, Topics};
use crate::errors::{Error, Result};
use crate::jobs::Jobs;
use crate::mqtt::packet::{Message, Version};
use crate::mqtt::{Broker, client_config};

pub use change::Change;
pub use incoming::TWIN_TYPE;
pub use station::{Clerk, Hires, Makes, Station};

/// Messages that are not kept which may wait; the oldest goes when one more comes.
const PASSING: usize = 64;

/// How a device reaches its fleet.
#[derive(Debug, Clone)]
pub struct Settings {
    pub broker: Broker,
    /// Files of the second connection, which the pools need where a broker names clients by their
    /// certificates.
    pub pool_tls: Option<crate::mqtt::TlsFiles>,
    pub user: Option<(String, String)>,
    pub version: Version,
    pub keep_alive: u16,
    /// For how long the broker keeps the session, in seconds.
    pub session_s: u32,
    /// How long the broker waits before it says that the device is gone, in seconds.
    pub will_delay_s: u32,
    /// Shortest and longest wait before another try.
    pub backoff: (Duration, Duration),
    /// Messages that wait for the broker's acknowledgement at most.
    pub inflight: usize,
    /// Home Assistant may send bare words.
    pub commands: bool,
    /// Home Assistant is told what there is.
    pub discovery: bool,
}

impl Settings {
    /// What usually holds.
    #[must_use]
    pub fn new(broker: Broker) -> Self {
        Self {
            broker,
            pool_tls: None,
            user: None,
            version: Version::V5,
            keep_alive: 30,
            session_s: 7 * 86_400,
            will_delay_s: 15,
            backoff: (Duration::from_secs(1), Duration::from_secs(60)),
            inflight: 32,
            commands: false,
            discovery: false,
        }
    }
}

impl From<&crate::config::Fleet> for Settings {
    fn from(config: &crate::config::Fleet) -> Self {
        let (host, port) = config.broker.clone();
        let files = |tls: &crate::config::Tls| crate::mqtt::TlsFiles {
            ca: tls.ca.clone(),
            certificate: tls.certificate.clone(),
            key: tls.key.clone(),
        };
        let mut settings = Self::new(Broker { host, port, tls: config.tls.as_ref().map(files) });
        settings.pool_tls = config.pool.as_ref().map(files);
        settings.keep_alive = u16::try_from(config.keep_alive.as_secs()).unwrap_or(u16::MAX);
        (settings.commands, settings.discovery) = (config.set, config.discovery);
        settings
    }
}

/// What the fleet asks the rest of the device.
pub trait Device: std::fmt::Debug + Send + Sync {
    /// What stands in `birth` beside kinds, schemas and limits: cameras, models, versions.
    fn facts(&self) -> Map<String, Value> {
        Map::new()
    }

    /// How it stands, told once a minute; none: nothing is told.
    fn health(&self) -> Option<Value> {
        None
    }

    /// Brings the device to a desired state; what is to be told of it.
    ///
    /// # Errors
    /// Why it stays as it was.
    fn desire(&self, desired: &Map<String, Value>) -> std::result::Result<Value, Refusal> {
        let _ = desired;
        let why = "this device takes its state from its own configuration";
        Err(Refusal::new(crate::contract::Reason::Unavailable, why))
    }

    /// The document of a bare word of Home Assistant, when it may be one: never one that lessens
    /// protection.
    fn command(&self, what: &[String], word: &str) -> Option<(crate::contract::Kind, Value)> {
        let _ = (what, word);
        None
    }
}

/// A device that says nothing of itself.
#[derive(Debug)]
pub struct Plain;

impl Device for Plain {}

/// How the session stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    pub connected: bool,
    /// Connects of this run of the program.
    pub connects: u64,
    /// Why the last one ended.
    pub last_error: Option<String>,
    /// Messages that wait.
    pub waiting: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub took: u64,
}

/// What both sessions and the outside share.
struct Shared {
    settings: Settings,
    config: Option<Arc<ClientConfig>>,
    pool_config: Option<Arc<ClientConfig>>,
    jobs: Arc<Jobs>,
    device: Arc<dyn Device>,
    clock: Arc<dyn Clock>,
    random: Mutex<Box<dyn Random + Send>>,
    stop: AtomicBool,
    status: Mutex<Status>,
    passing: Mutex<std::collections::VecDeque<Message>>,
    twin: AtomicU64,
    reported: Mutex<Option<Value>>,
    wakes: Vec<OwnedFd>,
}

impl Shared {
    fn new(
        settings: Settings,
        jobs: Arc<Jobs>,
        device: Arc<dyn Device>,
        random: Box<dyn Random + Send>,
    ) -> Result<Arc<Self>> {
        let config = settings.broker.tls.as_ref().map(client_config).transpose()?;
        let pool_config = match &settings.pool_tls {
            Some(files) => Some(client_config(files)?),
            None => config.clone(),
        };
        let twin = jobs.store().last_sequence(incoming::TWIN)?;
        let pools = !jobs.settings().pools.is_empty();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = || {
            eventfd(0, flags).map_err(|errno| Error::Thread { name: "fleet", source: errno.into() })
        };
        let mut wakes = vec![event()?];
        if pools {
            wakes.push(event()?);
        }
        Ok(Arc::new(Self {
            settings,
            config,
            pool_config,
            clock: jobs.clock().clone(),
            jobs,
            device,
            random: Mutex::new(random),
            stop: AtomicBool::new(false),
            status: Mutex::new(Status::default()),
            passing: Mutex::default(),
            twin: AtomicU64::new(twin),
            reported: Mutex::default(),
            wakes,
        }))
    }

    fn topics(&self) -> &Topics {
        &self.jobs.settings().topics
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        for wake in &self.wakes {
            // Full is awake.
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn random(&self, below: u64) -> u64 {
        let mut bytes = [0; 8];
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        match random.fill(&mut bytes) {
            Ok(()) => u64::from_le_bytes(bytes) % below.max(1),
            Err(_) => below / 2,
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.wall().0.saturating_mul(1000)
    }
}

/// The session with the fleet.
pub struct Fleet {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Starts to reach for the broker; returns at once.
    ///
    /// # Errors
    /// `Broker`, `File` when TLS can't work with its files; `Thread`, `Store`.
    pub fn start(
        settings: Settings,
        jobs: Arc<Jobs>,
        device: Arc<dyn Device>,
        random: Box<dyn Random + Send>,
    ) -> Result<Self> {
        let shared = Shared::new(settings, jobs, device, random)?;
        let pools = !shared.jobs.settings().pools.is_empty();
        let weak = Arc::downgrade(&shared);
        shared.jobs.on_message(move || {
            if let Some(shared) = weak.upgrade() {
                shared.wake();
            }
        });
        let mut fleet = Self { shared: shared.clone(), threads: Vec::new() };
        let spawn = |name: &'static str, run: fn(&Arc<Shared>)| {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run(&shared))
                .map_err(|source| Error::Thread { name, source })
        };
        fleet.threads.push(spawn("fleet", session::main)?);
        if pools {
            fleet.threads.push(spawn("pool", session::pool)?);
        }
        Ok(fleet)
    }

    /// How the session stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = self.shared.status().clone();
        status.waiting = self.shared.jobs.store().outbox_len().unwrap_or(0);
        status
    }

    /// Tells something that nobody misses when it is lost: numbers, pictures, lines of the log.
    pub fn pass(&self, rest: &str, payload: Vec<u8>, life_s: u32) {
        let mut message =
            Message { topic: self.shared.topics().own(rest), payload, ..Message::default() };
        message.properties.message_expiry = Some(life_s);
        let mut passing = self.shared.passing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.shared.status().connected {
            return;
        }
        if passing.len() >= PASSING {
            passing.pop_front();
        }
        passing.push_back(message);
        drop(passing);
        self.shared.wake();
    }

    /// Waits until the session stands, or `most` has passed.
    #[must_use]
    pub fn wait_connected(&self, most: Duration) -> bool {
        let start: Mono = self.shared.clock.mono();
        while !self.shared.status().connected {
            if self.shared.clock.mono().since(start) >= most {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
