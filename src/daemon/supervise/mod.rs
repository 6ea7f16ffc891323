//! Starts the worker, brings it what a job needs, and answers for it when it dies or hangs.
//!
//! ```text
//!   job ──▶ attempt 1 ──▶ done | failed | cancelled
//!              │ the worker died or hung: killed, reaped, started again after a back-off
//!              ▼
//!           attempt 2 ──▶ done | failed | cancelled
//!              │ again
//!              ▼
//!           quarantined: the job is refused from then on
//! ```

mod pace;
mod needs;
mod spawn;
mod link;
mod config;
mod attempt;
mod consent;
mod jobs;
mod clips;
mod live;

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::consent::{ConsentRecord, SourceRecord};
use mien_base::id::JobId;
use mien_base::wire::fds::Socket;
use mien_base::wire::{Attempt, Event, Hello, Request};
use mien_vault::models::ModelSource;

pub use clips::{ClipDetectJob, ClipFinished, ClipJob, Watch};
pub use config::{Backoff, WorkerConfig};
pub use consent::{ConsentWatch, Consents};
pub use jobs::{
    DetectJob, Ended, EnrolJob, Finished, MeasureJob, ProcessJob, Seal, SheetJob, Witness,
};
pub use pace::Hang;

use crate::{Error, Result};
use consent::TICK;
use link::{Link, Patience, Process};
use pace::Pace;
use spawn::{Program, Spawner};

/// Who is known and who agreed, as the worker is to hold it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    pub sources: Vec<Source>,
}

/// One enrolled face with the records that bind its use.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    pub record: SourceRecord,
    /// PNG file.
    pub portrait: Vec<u8>,
    pub consents: Vec<ConsentRecord>,
}

/// What is known about the worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    pub hello: Hello,
    pub pid: u32,
    /// Resident memory now, in KiB, where the kernel says.
    pub rss_kib: Option<u64>,
    /// Most resident memory of this worker so far, in KiB.
    pub peak_rss_kib: Option<u64>,
    /// Workers that died or were killed for silence.
    pub lost: u32,
}

/// Holds one worker. Jobs run one after the other.
pub struct Supervisor {
    config: WorkerConfig,
    models: Box<dyn ModelSource>,
    clock: Arc<dyn Clock>,
    stop: Arc<AtomicBool>,
    pause: Arc<AtomicBool>,
    witness: Option<Arc<dyn Witness>>,
    watch: Option<Box<dyn ConsentWatch>>,
    spawner: Spawner,
    link: Option<Link>,
    pace: Pace,
    policy: Policy,
    revision: u64,
    quarantined: BTreeSet<JobId>,
    lost: u32,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("link", &self.link).finish_non_exhaustive()
    }
}

/// Ends what a supervisor does, from a signal handler's flag or another thread.
#[derive(Debug, Clone)]
pub struct CancelHandle(Arc<AtomicBool>);

impl CancelHandle {
    /// The job at hand ends with `Cancelled` and leaves nothing; so does every later one.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The flag itself, for a signal handler.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Supervisor {
    /// Starts the first worker without waiting for it.
    ///
    /// # Errors
    /// `Spawn`.
    pub fn start(
        config: WorkerConfig,
        models: Box<dyn ModelSource>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let spawner = Spawner::start()
            .map_err(|source| Error::Spawn { program: config.program.clone(), source })?;
        let mut supervisor = Self {
            config,
            models,
            clock,
            stop: Arc::new(AtomicBool::new(false)),
            pause: Arc::new(AtomicBool::new(false)),
            witness: None,
            watch: None,
            spawner,
            link: None,
            pace: Pace::default(),
            policy: Policy::default(),
            revision: 0,
            quarantined: BTreeSet::new(),
            lost: 0,
        };
        supervisor.spawn()?;
        Ok(supervisor)
    }

    /// What ends the work.
    #[must_use]
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle(Arc::clone(&self.stop))
    }

    /// Set, it holds a clip between two frames and stops this process until it is told to go on
    /// (SIGCONT): for the handler of SIGTSTP.
    #[must_use]
    pub fn pause_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.pause)
    }

    /// From the next job on no output appears that the witness did not keep.
    pub fn set_witness(&mut self, witness: Arc<dyn Witness>) {
        self.witness = Some(witness);
    }

    /// From the next job on this policy holds, and nothing of the one before.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.revision += 1;
    }

    /// Facts about the worker; starts one when there is none.
    ///
    /// # Errors
    /// `Spawn`, `NeverReady`, `Version`, `Unheld`, `Cancelled`.
    pub fn facts(&mut self) -> Result<Facts> {
        self.ready()?;
        let link = self.link.as_ref().ok_or(Error::Protocol { what: "no worker" })?;
        let hello = link.hello().cloned().ok_or(Error::Protocol { what: "no Hello" })?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", link.pid()));
        let status = status.unwrap_or_default();
        let kib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().strip_suffix("kB")?.trim().parse().ok()
        };
        Ok(Facts {
            hello,
            pid: link.pid(),
            rss_kib: kib("VmRSS:"),
            peak_rss_kib: kib("VmHWM:"),
            lost: self.lost,
        })
    }

    /// Each thread of the worker tries what it must not be able to do.
    ///
    /// # Errors
    /// As `facts`, and `Crashed`, `Hung`.
    pub fn self_test(&mut self) -> Result<Vec<Attempt>> {
        self.ready()?;
        self.send(&Request::SelfTest, &[])?;
        let mut all = Vec::new();
        // One answer of the control thread, one of the compute thread.
        let mut answers = 0;
        while answers < 2 {
            match self.next()? {
                Event::SelfTested(attempts) => {
                    answers += 1;
                    all.extend(attempts);
                }
                Event::PolicyHolds { .. } => {}
                _ => return Err(Error::Protocol { what: "no answer to a self-test" }),
            }
        }
        Ok(all)
    }

    fn spawn(&mut self) -> Result<()> {
        let failed = |program: &PathBuf| {
            let program = program.clone();
            move |source| Error::Spawn { program, source }
        };
        let clock = self.clock.as_ref();
        if spawn::is_socket(&self.config.program) {
            let socket = spawn::connect(&self.config.program);
            let socket = Socket::from_fd(socket.map_err(failed(&self.config.program))?);
            self.link = Some(Link::new(Process::Served, socket, clock));
            return Ok(());
        }
        let (ours, theirs) = Socket::pair().map_err(Error::Wire)?;
        let mut program =
            Program { path: self.config.program.clone(), arguments: self.config.arguments.clone() };
        program.arguments.extend([
            format!("--threads={}", self.config.threads).into(),
            format!("--memory-mib={}", self.config.memory_mib).into(),
            format!("--file-mib={}", self.config.file_mib).into(),
        ]);
        if self.config.unsandboxed {
            program.arguments.push("--allow-unsandboxed".into());
        }
        let child =
            self.spawner.spawn(program, theirs.into_fd()).map_err(failed(&self.config.program))?;
        self.link = Some(Link::new(Process::Child(child), ours, self.clock.as_ref()));
        Ok(())
    }

    /// A worker that said `Hello` and is held; started anew, after a back-off, as often as allowed.
    fn ready(&mut self) -> Result<()> {
        self.bury();
        let mut wait = self.config.backoff.first;
        let mut last = String::new();
        for _ in 0..self.config.backoff.tries {
            if self.link.is_none() {
                self.spawn()?;
            }
            if self.link.as_ref().is_some_and(|link| link.hello().is_some()) {
                return Ok(());
            }
            match self.next() {
                Ok(Event::Hello(hello)) => return self.accept(&hello),
                Ok(_) => {
                    last = "it spoke before its turn".to_owned();
                    self.lose();
                }
                Err(error) if error.blames_worker() => {
                    last = error.to_string();
                    self.lose();
                }
                Err(error) => {
                    self.link = None;
                    return Err(error);
                }
            }
            self.pause(wait)?;
            wait = (wait * 2).min(self.config.backoff.most);
        }
        let program = self.config.program.clone();
        Err(Error::NeverReady { program, tries: self.config.backoff.tries, last })
    }

    fn accept(&mut self, hello: &Hello) -> Result<()> {
        let held = &hello.sandbox;
        if held.holds() || self.config.unsandboxed {
            return Ok(());
        }
        let layers = [
            ("no_new_privs", held.no_new_privs),
            ("seccomp", held.seccomp),
            ("closed descriptors", held.closed),
        ];
        let missing: Vec<&str> = layers.iter().filter(|l| !l.1).map(|l| l.0).collect();
        self.link = None;
        Err(Error::Unheld { missing: missing.join(", ") })
    }

    /// Counts a worker that died while nobody looked: no job is to blame.
    fn bury(&mut self) {
        if self.link.as_mut().is_some_and(|link| !link.lives()) {
            self.lose();
        }
    }

    /// Kills and reaps the worker, and counts it.
    fn lose(&mut self) {
        self.link = None;
        self.lost = self.lost.saturating_add(1);
    }

    fn pause(&self, span: Duration) -> Result<()> {
        let start = self.clock.mono();
        while self.clock.mono().since(start) < span {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            std::thread::sleep(Duration::from_millis(10).min(span));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Event> {
        let tick = self.watch.is_some().then_some(TICK);
        loop {
            if let Some(event) = self.step(tick)? {
                return Ok(event);
            }
        }
    }

    /// The next event; `None` when none came within a tick, or it was for us alone.
    fn step(&mut self, tick: Option<Duration>) -> Result<Option<Event>> {
        self.look_at_consent()?;
        let link = self.link.as_mut().ok_or(Error::Protocol { what: "no worker" })?;
        let event = link.next(&mut Patience {
            clock: self.clock.as_ref(),
            pace: &mut self.pace,
            hang: self.config.hang,
            stop: &self.stop,
            tick,
            pause: &self.pause,
        })?;
        match event {
            Some(Event::ConsentsHold { identity, clip, .. }) => {
                self.holds(&identity, clip)?;
                Ok(None)
            }
            other => Ok(other),
        }
    }

    fn send(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let link = self.link.as_mut().ok_or(Error::Protocol { what: "no worker" })?;
        let patience = Patience {
            clock: self.clock.as_ref(),
            pace: &mut self.pace,
            hang: self.config.hang,
            stop: &self.stop,
            tick: None,
            pause: &self.pause,
        };
        link.send(request, fds, &patience)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // The worker first, then the thread that it dies with.
        self.link = None;
    }
}
