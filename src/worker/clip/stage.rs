//! The threads of a clip beside the compute thread: each is held by a list of its own from the start.
//!
//! ```text
//!   decode ══ frames ══▶ compute ══ marked frames ══▶ encode
//!      ▲                                                 │
//!      └═══════════════ empty frames ◀═══════════════════┘
//! ```
//! All queues are bounded. A thread that is done, or can't go on, drops its ends: those who wait
//! for it then end too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use mien_base::clock::{Clock as _, Mono, SystemClock};
use mien_base::report::StageCost;
use mien_base::wire::{Attempt, Stage};
use mien_face::meter::Inference;

use crate::fault::words;
use crate::meter::{Busy, Pulse};
use crate::seccomp::{self, List};
use crate::{Error, Result, sandbox};

use super::decode::DecodeJob;
use super::encode::EncodeJob;

/// Stack of a stage's thread, in bytes.
const STACK: usize = 4 << 20;

/// What a stage's thread is asked for.
pub(crate) enum Order<J> {
    /// Try what it must not be able to do.
    Try(SyncSender<Vec<Attempt>>),
    Work(Box<J>),
}

/// The ends of the stages' threads.
pub struct Stages {
    decode: SyncSender<Order<DecodeJob>>,
    encode: SyncSender<Order<EncodeJob>>,
}

impl std::fmt::Debug for Stages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stages")
    }
}

/// Work of one stage on one clip.
pub(crate) trait Job: Send + 'static {
    fn run(self, pulse: &Arc<Pulse>);
}

impl Stages {
    /// Starts the threads; true when their lists hold.
    ///
    /// # Errors
    /// `Thread`, `Rules`.
    pub fn start(pulse: &Arc<Pulse>) -> Result<(Self, bool)> {
        let (decode, first) = start("decode", seccomp::DECODE, pulse)?;
        let (encode, second) = start("encode", seccomp::ENCODE, pulse)?;
        Ok((Self { decode, encode }, first && second))
    }

    /// Each thread tries what it must not be able to do.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        let (give, take) = sync_channel(2);
        // A thread that is gone answers nothing, which whoever asked counts.
        let _ = self.decode.send(Order::Try(give.clone()));
        let _ = self.encode.send(Order::Try(give));
        take.into_iter().flatten().collect()
    }

    pub(super) fn decode(&self, job: DecodeJob) -> Result<()> {
        self.decode.send(Order::Work(Box::new(job))).map_err(|_| gone())
    }

    pub(super) fn encode(&self, job: EncodeJob) -> Result<()> {
        self.encode.send(Order::Work(Box::new(job))).map_err(|_| gone())
    }
}

/// A stage's thread ended, which it never does.
pub(crate) fn gone() -> Error {
    Error::Protocol { what: "a stage of the clip is gone" }
}

pub(crate) fn start<J: Job>(
    name: &'static str,
    list: List,
    pulse: &Arc<Pulse>,
) -> Result<(SyncSender<Order<J>>, bool)> {
    let (orders, take) = sync_channel::<Order<J>>(1);
    let (ready, is) = sync_channel(1);
    let pulse = Arc::clone(pulse);
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(move || {
            if ready.send(sandbox::enforce(list)).is_err() {
                return;
            }
            drop(ready);
            while let Ok(order) = take.recv() {
                match order {
                    Order::Try(answer) => drop(answer.send(sandbox::attempts(name))),
                    Order::Work(job) => job.run(&pulse),
                }
            }
        })
        .map_err(|source| Error::Thread { name, source })?;
    Ok((orders, is.recv().map_err(|_| gone())??))
}

/// Runs a stage's work; a panic is an error like any other.
pub(crate) fn guard<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => Err(Error::Panic { message: words(payload.as_ref()) }),
    }
}

/// What a stage costs while it is at work. All who hold one see the same.
#[derive(Debug, Clone)]
pub(super) struct Cost {
    machine: SystemClock,
    spent: Arc<Spent>,
}

/// In nanoseconds.
#[derive(Debug, Default)]
struct Spent {
    passed: AtomicU64,
    cpu: AtomicU64,
    models: AtomicU64,
    models_cpu: AtomicU64,
}

/// Work that is being counted until it is dropped.
#[derive(Debug)]
pub(super) struct Running<'a> {
    cost: &'a Cost,
    _busy: Busy<'a>,
    start: Mono,
    cpu: Duration,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Cost {
    pub(super) fn new(machine: SystemClock) -> Self {
        Self { machine, spent: Arc::default() }
    }

    /// The calling thread works for `stage` until the answer is dropped.
    pub(super) fn begin<'a>(&'a self, pulse: &'a Pulse, stage: Stage) -> Running<'a> {
        Running {
            cost: self,
            _busy: pulse.busy(stage),
            start: self.machine.mono(),
            cpu: self.machine.cpu(),
        }
    }

    /// So long models have run in it, all in all.
    pub(super) fn models(&self, time: Inference) {
        self.spent.models.store(nanos(time.passed), Ordering::Relaxed);
        self.spent.models_cpu.store(nanos(time.cpu), Ordering::Relaxed);
    }

    /// As it stands in the report.
    pub(super) fn report(&self, stage: &str) -> StageCost {
        let ms = |nanos: &AtomicU64| nanos.load(Ordering::Relaxed) as f64 / 1e6;
        StageCost {
            stage: stage.to_owned(),
            ms: ms(&self.spent.passed),
            cpu_ms: ms(&self.spent.cpu),
            inference_ms: ms(&self.spent.models),
            inference_cpu_ms: ms(&self.spent.models_cpu),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Cost { machine, spent } = self.cost;
        spent.passed.fetch_add(nanos(machine.mono().since(self.start)), Ordering::Relaxed);
        spent.cpu.fetch_add(nanos(machine.cpu().saturating_sub(self.cpu)), Ordering::Relaxed);
    }
}
