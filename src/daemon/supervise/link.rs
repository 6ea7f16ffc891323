//! Our end of the control socket, and the process at the other.
//!
//! ```text
//!   spawned ── Hello ──▶ ready ── request ──▶ busy ── terminal event ──▶ ready
//!      └──────────────────┴────── death, silence, nonsense ┴──▶ killed, reaped
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mien_base::clock::{Clock, Mono};
use mien_base::id::{JobId, ModelId};
use mien_base::report::Failure;
use mien_base::wire::fds::{Socket, WireError};
use mien_base::wire::{Event, Hello, PROTOCOL, Request, Stage};

use rustix::process::Signal;

use super::pace::{Hang, Pace};
use crate::{Error, Result};

/// How often the stop flag is looked at while we wait.
const LOOK: Duration = Duration::from_millis(50);

/// The process at the other end.
#[derive(Debug)]
pub(super) enum Process {
    /// Started here: killed and reaped here.
    Child(Child),
    /// Started by another for this connection: it ends with the connection.
    Served,
}

/// One worker. Dropped, it is killed and reaped.
#[derive(Debug)]
pub(super) struct Link {
    process: Process,
    socket: Socket,
    hello: Option<Hello>,
    /// What was sent to be loaded, and why it failed where it did.
    pub(super) models: BTreeMap<ModelId, Option<Failure>>,
    /// Revision of the policy that was sent last.
    pub(super) policy: Option<u64>,
    inbox: VecDeque<Event>,
    /// What it is at.
    job: Option<JobId>,
    stage: Stage,
    pixels: u64,
    /// When the worker last moved.
    moved: Mono,
}

/// What decides how long is waited.
pub(super) struct Patience<'a> {
    pub(super) clock: &'a dyn Clock,
    pub(super) pace: &'a mut Pace,
    pub(super) hang: Hang,
    pub(super) stop: &'a AtomicBool,
    /// How often whoever waits wants to look at something else.
    pub(super) tick: Option<Duration>,
    /// Set when this process is to stop until it is told to go on.
    pub(super) pause: &'a AtomicBool,
}

impl Link {
    pub(super) fn new(process: Process, socket: Socket, clock: &dyn Clock) -> Self {
        Self {
            process,
            socket,
            hello: None,
            models: BTreeMap::new(),
            policy: None,
            inbox: VecDeque::new(),
            job: None,
            stage: Stage::Idle,
            pixels: 0,
            moved: clock.mono(),
        }
    }

    /// 0 where it is not known.
    pub(super) fn pid(&self) -> u32 {
        match &self.process {
            Process::Child(child) => child.id(),
            Process::Served => 0,
        }
    }

    pub(super) fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    /// True until the process has ended.
    pub(super) fn lives(&mut self) -> bool {
        match &mut self.process {
            Process::Child(child) => matches!(child.try_wait(), Ok(None)),
            // What waits there, or its end, is seen when it is read.
            Process::Served => true,
        }
    }

    /// A request begins: silence counts from here.
    pub(super) fn expect(&mut self, clock: &dyn Clock, job: JobId) {
        self.job = Some(job);
        self.moved = clock.mono();
        self.pixels = 0;
    }

    /// Sends a request; while the worker does not take it, its events are taken in.
    pub(super) fn send(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        patience: &Patience<'_>,
    ) -> Result<()> {
        let start = patience.clock.mono();
        loop {
            match self.socket.send(request, fds) {
                Ok(()) => return Ok(()),
                Err(WireError::NotReady) => {
                    self.take_in(patience)?;
                    let waited = patience.clock.mono().since(start);
                    if waited > patience.hang.most {
                        return Err(self.hung(waited));
                    }
                    self.socket.wait_to_send(LOOK).map_err(Error::Wire)?;
                }
                Err(WireError::Closed) => return Err(self.crashed()),
                Err(error) => return Err(Error::Wire(error)),
            }
        }
    }

    /// Takes in what waits on the socket, without waiting.
    fn take_in(&mut self, patience: &Patience<'_>) -> Result<()> {
        loop {
            match self.socket.receive::<Event>() {
                Ok(got) if !got.fds.is_empty() => {
                    return Err(Error::Protocol { what: "a descriptor came from the worker" });
                }
                Ok(got) => {
                    self.moved = patience.clock.mono();
                    self.inbox.push_back(got.message);
                }
                Err(WireError::NotReady) => return Ok(()),
                Err(WireError::Closed) => {
                    return if self.inbox.is_empty() { Err(self.crashed()) } else { Ok(()) };
                }
                Err(error) => return Err(Error::Wire(error)),
            }
        }
    }

    /// The next event that is not mere progress; `None` when none came within a tick.
    ///
    /// # Errors
    /// `Crashed`, `Hung`, `Cancelled`, `Wire`, `Protocol`.
    pub(super) fn next(&mut self, patience: &mut Patience<'_>) -> Result<Option<Event>> {
        let mut waited = false;
        loop {
            let before = self.moved;
            if self.inbox.is_empty() {
                self.take_in(patience)?;
            }
            match self.inbox.pop_front() {
                Some(Event::Heartbeat { stage, pixels, .. }) => {
                    patience.pace.learn(self.stage, self.pixels, self.moved.since(before));
                    (self.stage, self.pixels) = (stage, pixels);
                    continue;
                }
                Some(Event::Hello(hello)) => {
                    if hello.protocol != PROTOCOL {
                        return Err(Error::Version { theirs: hello.protocol, ours: PROTOCOL });
                    }
                    self.hello = Some(hello.clone());
                    return Ok(Some(Event::Hello(hello)));
                }
                Some(Event::Loaded { .. }) => continue,
                Some(Event::NotLoaded { model, failure }) => {
                    self.models.insert(model, Some(failure));
                    continue;
                }
                Some(event) => return Ok(Some(event)),
                None if waited && patience.tick.is_some() => return Ok(None),
                None => {}
            }
            if patience.stop.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            if patience.pause.swap(false, Ordering::Relaxed) {
                self.hold(patience)?;
            }
            let silent = patience.clock.mono().since(self.moved);
            let most = patience.pace.deadline(&patience.hang, self.stage, self.pixels);
            if silent >= most {
                return Err(self.hung(silent));
            }
            let look = patience.tick.unwrap_or(LOOK);
            self.socket.wait(Some(look.min(most - silent))).map_err(Error::Wire)?;
            waited = true;
        }
    }

    /// Holds the job, stops this process, and goes on when somebody lets it.
    fn hold(&mut self, patience: &Patience<'_>) -> Result<()> {
        if let Some(job) = self.job {
            self.send(&Request::Pause { job, paused: true }, &[], patience)?;
        }
        // SIGSTOP, because SIGTSTP is what was caught.
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
        if let Some(job) = self.job {
            self.send(&Request::Pause { job, paused: false }, &[], patience)?;
        }
        self.take_in(patience)?;
        self.moved = patience.clock.mono();
        Ok(())
    }

    fn at(&self) -> Option<Stage> {
        (self.stage != Stage::Idle).then_some(self.stage)
    }

    fn hung(&self, silent: Duration) -> Error {
        Error::Hung { stage: self.at(), seconds: silent.as_secs_f32() }
    }

    /// The other end is gone: says how the process ended.
    fn crashed(&mut self) -> Error {
        let ended = match &mut self.process {
            Process::Child(child) => {
                let _ = child.kill();
                child.wait()
            }
            Process::Served => {
                let how = "the connection to it was closed".to_owned();
                return Error::Crashed { stage: self.at(), how };
            }
        };
        let how = match ended {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("signal {signal}"),
                (None, Some(code)) => format!("exit code {code}"),
                (None, None) => "no status".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        Error::Crashed { stage: self.at(), how }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Process::Child(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
