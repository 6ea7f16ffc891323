//! Jobs: taken in once, run in order, ended with one effect and one state that everybody is told.
//!
//! ```text
//!   submit ─▶ intake ─▶ store (job, record, outbox in one transaction) ─▶ runner ─▶ Executor
//!   control ───┘                     ▲                                      │
//!                                    └──────────── each change of state ────┘
//! ```
//! The loop has a thread of its own, and each running job has one.

mod control;
mod intake;
mod runner;
pub mod schedule;
mod trust;
pub mod verbs;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mien_base::clock::{Clock, Mono, Wall};
use mien_vault::random::Random;
use serde_json::Value;

pub use control::{JobControl, Stop};
pub use intake::{Answer, Via, execution};
pub use trust::{HomeTrust, Trust};

use crate::contract::{Do, Document, Refusal, Topics};
use crate::errors::{Error, Result};
use crate::store::{Bounds, JobRow, Store};
use runner::Run;

/// A clock before this was never set.
pub const NOT_SET: Wall = Wall(1_767_225_600);

/// What a device is, to its jobs.
#[derive(Debug, Clone)]
pub struct Settings {
    pub topics: Topics,
    pub groups: Vec<String>,
    pub pools: Vec<String>,
    /// Changes when the machine is started again.
    pub boot: String,
    pub bounds: Bounds,
    pub slots: schedule::Slots,
    /// From and to in minutes of the day (UTC) when the device may be maintained; none: always.
    pub maintenance: Option<(u32, u32)>,
    /// There is a fleet that is told of every state; else nothing goes into the outbox.
    pub told: bool,
}

impl Settings {
    /// What usually holds.
    #[must_use]
    pub fn new(topics: Topics, boot: String) -> Self {
        Self {
            topics,
            groups: Vec::new(),
            pools: Vec::new(),
            boot,
            bounds: Bounds { open: 1024, of_one_issuer: 512 },
            slots: schedule::Slots { light: 4, worker: 1 },
            maintenance: None,
            told: true,
        }
    }
}

/// How a job's work ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It has its effect; what is told of it.
    Done(Value),
    Failed(Refusal),
    /// It ended because it was told to; what it did so far is kept where that can be.
    Stopped,
    /// The machine starts again; the next boot closes the job.
    Leaving,
}

/// Does the work of jobs.
pub trait Executor: Send + Sync {
    /// Whether a job can be here at all, before it is taken in.
    ///
    /// # Errors
    /// Why it can't.
    fn admit(&self, document: &Document) -> std::result::Result<(), Refusal> {
        let _ = document;
        Ok(())
    }

    /// Does the work; returns soon after `control` says stop. The same job may come again after a
    /// crash: what was done already must not be done twice.
    fn run(&self, job: &JobRow, control: &JobControl) -> Outcome;

    /// True when the job had told the machine to start again.
    fn left(&self, job: &JobRow) -> bool {
        let _ = job;
        true
    }
}

#[derive(Default)]
struct Live {
    running: BTreeMap<String, Run>,
    stopping: bool,
    dirty: bool,
    /// When jobs of pools that wait last gave a sign of life.
    beat: Option<Mono>,
    /// Rises with each change that somebody may want to see.
    generation: u64,
}

type Bell = Box<dyn Fn() + Send + Sync>;

struct Inner {
    settings: Settings,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    executor: Arc<dyn Executor>,
    trust: Box<dyn Trust>,
    random: Mutex<Box<dyn Random + Send>>,
    refusals: intake::Refusals,
    live: Mutex<Live>,
    wake: Condvar,
    watchers: Condvar,
    bell: Mutex<Option<Bell>>,
}

impl Inner {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is to be planned anew.
    fn changed(&self) {
        self.live().dirty = true;
        self.wake.notify_all();
        self.told();
    }

    /// Something stands in the outbox.
    fn told(&self) {
        self.live().generation += 1;
        self.watchers.notify_all();
        if let Some(bell) = &*self.bell.lock().unwrap_or_else(PoisonError::into_inner) {
            bell();
        }
    }

    /// Tells a running job to end.
    fn end(&self, id: &str, why: Stop) {
        let control = self.live().running.get(id).map(|run| run.control());
        if let Some(control) = control {
            control.end(why);
        }
    }

    /// A number below `below`, or the middle when there is no randomness.
    fn random(&self, below: u64) -> u64 {
        let mut bytes = [0; 8];
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        match random.fill(&mut bytes) {
            Ok(()) => u64::from_le_bytes(bytes) % below.max(1),
            Err(_) => below / 2,
        }
    }
}

/// The jobs of a device.
pub struct Jobs {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

/// What jobs work with.
pub struct Parts {
    pub store: Arc<Store>,
    pub clock: Arc<dyn Clock>,
    pub executor: Arc<dyn Executor>,
    pub trust: Box<dyn Trust>,
    pub random: Box<dyn Random + Send>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Jobs {
    /// Takes up what a crash left, and begins to run jobs.
    ///
    /// # Errors
    /// `Store…`, `StoreThread`.
    pub fn open(settings: Settings, parts: Parts) -> Result<Self> {
        let Parts { store, clock, executor, trust, random } = parts;
        let inner = Arc::new(Inner {
            settings,
            store,
            clock,
            executor,
            trust,
            random: Mutex::new(random),
            refusals: intake::Refusals::default(),
            live: Mutex::new(Live::default()),
            wake: Condvar::new(),
            watchers: Condvar::new(),
            bell: Mutex::new(None),
        });
        inner.recover()?;
        let runner = inner.clone();
        let thread = std::thread::Builder::new()
            .name("jobs".to_owned())
            .spawn(move || runner.run())
            .map_err(|source| Error::Thread { name: "jobs", source })?;
        Ok(Self { inner, thread: Mutex::new(Some(thread)) })
    }

    /// What holds for the device.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Where jobs, record and outbox stand.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.inner.store
    }

    /// The clock of it all.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// Takes a document in: an envelope, or the document itself from a user of this machine. What
    /// is answered is on disk: it may be acknowledged.
    ///
    /// # Errors
    /// `Store…`: then it must not be acknowledged.
    pub fn submit(&self, via: &Via, retained: bool, bytes: &[u8]) -> Result<Answer> {
        self.inner.submit(via, retained, bytes)
    }

    /// Takes a signed control document of a job in.
    ///
    /// # Errors
    /// As `submit`.
    pub fn submit_control(&self, job: &str, retained: bool, bytes: &[u8]) -> Result<Answer> {
        self.inner.submit_control(job, retained, bytes)
    }

    /// Does with a job what a user of this machine asks.
    ///
    /// # Errors
    /// `Store…`.
    pub fn control(
        &self,
        id: &str,
        what: Do,
        priority: Option<u8>,
        expect_version: Option<u64>,
    ) -> Result<std::result::Result<JobRow, Refusal>> {
        self.inner.control(id, what, priority, expect_version)
    }

    /// Records a message that was refused before it could be a document.
    ///
    /// # Errors
    /// `Store…`.
    pub fn refuse(&self, what: &str, refusal: &Refusal) -> Result<()> {
        self.inner.refused(what, None, refusal)
    }

    /// Whose signature makes an envelope hold for a role now.
    ///
    /// # Errors
    /// `SignatureInvalid`, `Unauthorized`.
    pub fn signer(
        &self,
        envelope: &mien_vault::sign::Envelope,
        role: mien_vault::trust::KeyRole,
    ) -> std::result::Result<String, Refusal> {
        self.inner.trust.signer(envelope, role, self.inner.clock.wall())
    }

    /// Is called whenever something new stands in the outbox.
    pub fn on_message(&self, bell: impl Fn() + Send + Sync + 'static) {
        let mut own = self.inner.bell.lock().unwrap_or_else(PoisonError::into_inner);
        *own = Some(Box::new(bell));
    }

    /// Waits until something changed after `seen`, or `most` has passed; what to give next.
    #[must_use]
    pub fn wait(&self, seen: u64, most: Duration) -> u64 {
        let live = self.inner.live();
        let waited = self
            .inner
            .watchers
            .wait_timeout_while(live, most, |live| live.generation == seen && !live.stopping);
        waited.unwrap_or_else(PoisonError::into_inner).0.generation
    }

    /// How many jobs run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.inner.live().running.len()
    }

    /// Plans anew: the time was set, or something outside changed.
    pub fn nudge(&self) {
        self.inner.changed();
    }

    /// Tells what runs to end, and waits for it; the next start takes it up. Nothing begins any more.
    pub fn close(&self) {
        {
            let mut live = self.inner.live();
            live.stopping = true;
            live.running.values().for_each(|run| run.control().end(Stop::Shutdown));
        }
        self.inner.changed();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
