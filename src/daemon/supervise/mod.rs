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
mod jobs;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::consent::{ConsentRecord, SourceRecord};
use mien_base::id::JobId;
use mien_base::model::Manifest;
use mien_base::wire::fds::Socket;
use mien_base::wire::{Attempt, Event, Hello, Request};
use mien_vault::models::ModelSource;

pub use jobs::{DetectJob, EnrolJob, Finished, ProcessJob, SheetJob};
pub use pace::Hang;

use crate::{Error, Result, files};
use link::{Link, Patience};
use needs::Need;
use pace::Pace;
use spawn::{Program, Spawner};

/// Times that a job may be tried.
const ATTEMPTS: u32 = 2;
/// Jobs that are remembered as quarantined; the oldest ids go first.
const QUARANTINED: usize = 4096;

/// How workers are started and held.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    pub program: PathBuf,
    /// What stands before the arguments that we add: `worker`.
    pub arguments: Vec<OsString>,
    /// Threads that run models.
    pub threads: u16,
    /// Address space of the worker.
    pub memory_mib: u32,
    /// Largest file that the worker may write.
    pub file_mib: u32,
    /// Work on a kernel without seccomp (emulators).
    pub unsandboxed: bool,
    pub hang: Hang,
    pub backoff: Backoff,
}

/// Waiting time between starts of a worker that dies: doubles from `first` to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
    /// Starts in a row without a `Hello` before we give up.
    pub tries: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), most: Duration::from_secs(5), tries: 4 }
    }
}

impl WorkerConfig {
    /// This program in its worker role, on as many threads as the machine has cores.
    ///
    /// # Errors
    /// `Spawn` when the program does not know where it stands.
    pub fn this_program() -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(|source| Error::Spawn { program: PathBuf::from("mien"), source })?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self {
            program,
            arguments: vec![OsString::from("worker")],
            threads: u16::try_from(threads).unwrap_or(u16::MAX),
            memory_mib: 6144,
            file_mib: 1024,
            unsandboxed: false,
            hang: Hang::default(),
            backoff: Backoff::default(),
        })
    }
}

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

/// A request as it is sent, made anew for each attempt.
struct Sent<T> {
    request: Request,
    fds: Vec<OwnedFd>,
    /// What the answer is worked into: an output that is not yet committed.
    keep: T,
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
        self.link = Some(Link::new(child, ours, self.clock.as_ref()));
        Ok(())
    }

    /// A worker that said `Hello` and is held; started anew, after a back-off, as often as allowed.
    fn ready(&mut self) -> Result<()> {
        self.bury();
        let mut wait = self.config.backoff.first;
        for _ in 0..self.config.backoff.tries {
            if self.link.is_none() {
                self.spawn()?;
            }
            if self.link.as_ref().is_some_and(|link| link.hello().is_some()) {
                return Ok(());
            }
            match self.next() {
                Ok(Event::Hello(hello)) => return self.accept(&hello),
                Ok(_) => self.lose(),
                Err(error) if error.blames_worker() => self.lose(),
                Err(error) => {
                    self.link = None;
                    return Err(error);
                }
            }
            self.pause(wait)?;
            wait = (wait * 2).min(self.config.backoff.most);
        }
        Err(Error::NeverReady { tries: self.config.backoff.tries })
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
        let link = self.link.as_mut().ok_or(Error::Protocol { what: "no worker" })?;
        link.next(&mut Patience {
            clock: self.clock.as_ref(),
            pace: &mut self.pace,
            hang: self.config.hang,
            stop: &self.stop,
        })
    }

    fn send(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let link = self.link.as_mut().ok_or(Error::Protocol { what: "no worker" })?;
        let patience = Patience {
            clock: self.clock.as_ref(),
            pace: &mut self.pace,
            hang: self.config.hang,
            stop: &self.stop,
        };
        link.send(request, fds, &patience)
    }

    /// Sends the models that the worker does not have yet. Does not wait for them.
    fn bring_models(&mut self, wanted: &[Manifest]) -> Result<()> {
        for manifest in wanted {
            let known = self.link.as_ref().is_some_and(|l| l.models.contains_key(&manifest.id));
            if known {
                continue;
            }
            let fd = self.models.open(manifest)?;
            self.send(&Request::Load(manifest.clone()), &[fd.as_fd()])?;
            if let Some(link) = self.link.as_mut() {
                link.models.insert(manifest.id.clone(), None);
            }
        }
        Ok(())
    }

    /// Sends the policy when the worker has another. Does not wait for it.
    fn bring_policy(&mut self) -> Result<()> {
        let revision = self.revision;
        if revision == 0 || self.link.as_ref().is_some_and(|l| l.policy == Some(revision)) {
            return Ok(());
        }
        let policy = std::mem::take(&mut self.policy);
        let sent = self.send_policy(&policy);
        self.policy = policy;
        sent?;
        if let Some(link) = self.link.as_mut() {
            link.policy = Some(revision);
        }
        Ok(())
    }

    fn send_policy(&mut self, policy: &Policy) -> Result<()> {
        let revision = self.revision;
        let sources = u16::try_from(policy.sources.len()).unwrap_or(u16::MAX);
        self.send(&Request::Policy { revision, sources }, &[])?;
        for source in &policy.sources {
            let portrait = files::memory("a portrait", &source.portrait)?;
            let record = Box::new(source.record.clone());
            let consents = source.consents.clone();
            self.send(&Request::Source { revision, record, consents }, &[portrait.as_fd()])?;
        }
        Ok(())
    }

    /// Runs a job to its end, on a second worker when the first dies of it.
    fn run<T>(
        &mut self,
        job: JobId,
        needs: &[Need],
        mut make: impl FnMut(&AtomicBool) -> Result<Sent<T>>,
    ) -> Result<(Event, T, u32)> {
        if self.quarantined.contains(&job) {
            return Err(Error::Quarantined { job, last: "it was before".to_owned() });
        }
        let wanted = needs::resolve(needs, self.models.as_ref())?;
        let mut wait = self.config.backoff.first;
        let mut last = String::new();
        for attempt in 1..=ATTEMPTS {
            match self.attempt(job, &wanted, &mut make, attempt) {
                Ok((event, keep)) => return Ok((event, keep, attempt)),
                Err(error) if error.blames_worker() => {
                    self.lose();
                    if self.stop.load(Ordering::Relaxed) {
                        return Err(Error::Cancelled);
                    }
                    last = error.to_string();
                    if attempt < ATTEMPTS {
                        self.pause(wait)?;
                        wait = (wait * 2).min(self.config.backoff.most);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if self.quarantined.len() >= QUARANTINED {
            self.quarantined.pop_first();
        }
        self.quarantined.insert(job);
        Err(Error::Quarantined { job, last })
    }

    fn attempt<T>(
        &mut self,
        job: JobId,
        wanted: &[Manifest],
        make: &mut impl FnMut(&AtomicBool) -> Result<Sent<T>>,
        attempt: u32,
    ) -> Result<(Event, T)> {
        self.bury();
        if self.link.is_none() {
            self.spawn()?;
        }
        // Models and policy are ours: they may go out before the worker is known to be held.
        let sent = self.bring_models(wanted).and_then(|()| self.bring_policy());
        match sent {
            Err(error) if error.blames_worker() => self.lose(),
            other => other?,
        }
        self.ready()?;
        // After a restart in `ready` nothing is there; otherwise both do nothing.
        self.bring_models(wanted)?;
        self.bring_policy()?;

        let Sent { request, fds, keep } = make(&self.stop)?;
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
        if let Some(link) = self.link.as_mut() {
            link.expect(self.clock.as_ref());
        }
        self.send(&request, &borrowed)?;
        drop(fds);
        // The second attempt has all the time there is: the first may just have been slow.
        let hang = self.config.hang;
        if attempt > 1 {
            self.config.hang.least = hang.most;
        }
        let event = self.answer(job, wanted);
        self.config.hang = hang;
        event.map(|event| (event, keep))
    }

    /// The terminal event of a job.
    fn answer(&mut self, job: JobId, wanted: &[Manifest]) -> Result<Event> {
        loop {
            let event = match self.next() {
                Err(Error::Cancelled) => {
                    self.call_off(job);
                    return Err(Error::Cancelled);
                }
                other => other?,
            };
            match event {
                Event::Started { .. } | Event::PolicyHolds { .. } => {}
                Event::Failed { job: None, failure } => {
                    // The policy does not hold together. What was sent after it is still to come:
                    // a new worker is quicker than to tell it apart.
                    self.link = None;
                    return Err(Error::Failed(failure));
                }
                Event::Failed { job: Some(of), failure } if of == job => {
                    // A model that did not load says more than the job that missed it.
                    let models = self.link.as_ref().map(|link| &link.models);
                    let broken = wanted.iter().find_map(|m| models?.get(&m.id)?.clone());
                    return Err(Error::Failed(broken.unwrap_or(failure)));
                }
                event if job_of(&event) == Some(job) => return Ok(event),
                _ => return Err(Error::Protocol { what: "an answer that nobody asked for" }),
            }
        }
    }

    /// Ends a job: asks, waits a moment, kills.
    fn call_off(&mut self, job: JobId) {
        let asked = self.send(&Request::Cancel { job }, &[]);
        if asked.is_err() {
            self.link = None;
            return;
        }
        // The stop flag is set, so this looks without waiting; what does not answer in time dies.
        let start = self.clock.mono();
        while self.clock.mono().since(start) < Duration::from_millis(200) {
            match self.next() {
                Ok(Event::Failed { job: Some(of), .. }) if of == job => return,
                Ok(event) if job_of(&event) == Some(job) => return,
                Ok(_) => {}
                Err(Error::Cancelled) => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => break,
            }
        }
        self.link = None;
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // The worker first, then the thread that it dies with.
        self.link = None;
    }
}

fn job_of(event: &Event) -> Option<JobId> {
    match event {
        Event::Done { job, .. }
        | Event::Detected { job, .. }
        | Event::Verified { job, .. }
        | Event::Enrolled { job, .. }
        | Event::Judged { job, .. }
        | Event::Sheeted { job, .. } => Some(*job),
        _ => None,
    }
}
