//! Runs jobs: begins what the plan says, watches the time outside the worker, ends each by one move.
//!
//! ```text
//!   plan ─▶ running (attempt row) ─▶ thread: Executor::run ─▶ Outcome ─▶ the job's next state
//!              ▲                         │ stop flag: cancel, pause, timeout, stall, preempt, …
//!              └── queued again, later ◀─┴─ a failure that another try may cure
//! ```

use std::sync::Arc;
use std::sync::PoisonError;
use std::time::Duration;

use mien_base::clock::Mono;
use serde_json::{Value, json};

use super::control::{JobControl, Stop};
use super::schedule::{Now, Plan, Runs, Waits, plan};
use super::{Inner, Outcome};
use crate::contract::{Kind, Reason, Refusal, State, Window};
use crate::errors::Result;
use crate::store::{Asked, JobRow, Moved, Origin, Step};

/// How often the time of running jobs is looked at.
const TICK: Duration = Duration::from_millis(200);
/// How long nothing is looked at when nothing can happen.
const IDLE: Duration = Duration::from_secs(60);
/// How often a job of a pool says that it still runs: its lease is renewed by it.
const BEAT: Duration = Duration::from_secs(8);
/// How long a job that was told to end may take before it is given up.
const GRACE: Duration = Duration::from_secs(20);
/// Deaths of the daemon during one job after which it is not begun again.
const CRASHES: u32 = 64;
/// Longest wait before another try, in ms.
const LONGEST_WAIT: u64 = 3_600_000;

/// A job that runs.
#[derive(Debug)]
pub(super) struct Run {
    control: Arc<JobControl>,
    runs: Runs,
    began: Mono,
    timeout: Duration,
    stall: Option<Duration>,
    told: Option<Mono>,
    /// When it last said that it runs; only jobs of a pool do.
    beat: Option<Mono>,
}

impl Run {
    /// Its line to the job.
    pub(super) fn control(&self) -> Arc<JobControl> {
        self.control.clone()
    }
}

impl Inner {
    /// The time, as far as it is known.
    pub(super) fn now(&self) -> Now {
        let wall = self.clock.wall();
        let maintenance = self.settings.maintenance.is_none_or(|(from, to)| {
            let minute = u32::try_from(wall.0 / 60 % 1440).unwrap_or(0);
            if from <= to { (from..to).contains(&minute) } else { minute >= from || minute < to }
        });
        Now { ms: wall.0.saturating_mul(1000), trusted: wall >= super::NOT_SET, maintenance }
    }

    /// The loop, until `stopping`.
    pub(super) fn run(self: &Arc<Self>) {
        loop {
            let turn = self.turn();
            let live = self.live();
            if live.stopping && live.running.is_empty() {
                return;
            }
            if live.dirty {
                drop(live);
                self.live().dirty = false;
                continue;
            }
            let wait = match turn {
                // The database could not be asked: try again soon.
                Err(_) => Duration::from_secs(1),
                Ok(_) if !live.running.is_empty() => TICK,
                Ok(next) => {
                    let now = self.now().ms;
                    next.map_or(IDLE, |at| Duration::from_millis(at.saturating_sub(now).max(50)))
                }
            };
            let waited = self.wake.wait_timeout(live, wait.min(IDLE));
            let (mut live, _) = waited.unwrap_or_else(PoisonError::into_inner);
            live.dirty = false;
        }
    }

    /// Looks at everything once; when something happens next by itself, in ms since 1970.
    fn turn(self: &Arc<Self>) -> Result<Option<u64>> {
        self.watch_time()?;
        if self.live().stopping {
            return Ok(None);
        }
        let open = self.store.open_jobs(self.settings.bounds.open)?;
        let planned = {
            let mut live = self.live();
            let now = self.clock.mono();
            if live.beat.is_none_or(|at| now.since(at) >= BEAT) {
                live.beat = Some(now);
                // Those that run say it themselves.
                let waits =
                    |job: &&JobRow| job.origin == Origin::Pool && job.state == State::Queued;
                open.iter().filter(waits).for_each(|job| drop(self.store.tell_again(job.id())));
            }
            let waits: Vec<Waits> = open
                .iter()
                .filter(|job| !live.running.contains_key(job.id()))
                .filter(|job| job.state != State::Running)
                .map(waits)
                .collect();
            let runs: Vec<Runs> = live.running.values().map(|run| run.runs.clone()).collect();
            plan(&waits, &runs, self.now(), self.settings.slots)
        };
        let Plan { start, expire, preempt, next } = planned;
        for id in expire {
            let step = Step::to(&id, State::Expired, &self.settings.boot);
            self.store.move_job(step.because(Reason::Expired, "before it began"))?;
            self.told();
        }
        for id in preempt {
            self.end(&id, Stop::Preempt);
        }
        for id in start {
            if let Some(job) = open.iter().find(|job| job.id() == id) {
                self.begin(job)?;
            }
        }
        Ok(next)
    }

    fn begin(self: &Arc<Self>, job: &JobRow) -> Result<()> {
        let control = Arc::new(JobControl::new(job.id(), self.store.clone(), self.clock.clone()));
        let document = &job.document;
        let run = Run {
            control: control.clone(),
            runs: Runs {
                id: job.id().to_owned(),
                qos: document.qos,
                arrival: job.arrival,
                order: document.order(),
                room: document.kind.room(),
                yields: document.kind == Kind::ClipProcess,
            },
            began: self.clock.mono(),
            timeout: Duration::from_secs(u64::from(document.timeout())),
            stall: document.stall_s.map(|stall| Duration::from_secs(u64::from(stall))),
            told: None,
            beat: (job.origin == Origin::Pool).then(|| self.clock.mono()),
        };
        let id = job.id().to_owned();
        // First, so that what is asked of it from now on reaches it.
        self.live().running.insert(id.clone(), run);
        let step = Step::to(&id, State::Running, &self.settings.boot);
        let job = match self.store.move_job(step) {
            Ok(Moved::Done(job)) => job,
            other => {
                self.live().running.remove(&id);
                // It was cancelled or ended in between.
                return other.map(drop);
            }
        };
        self.told();
        let inner = self.clone();
        let thread = std::thread::Builder::new().name("job".to_owned()).spawn(move || {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                inner.executor.run(&job, &control)
            }));
            let outcome = caught.unwrap_or_else(|_| {
                Outcome::Failed(Refusal::new(Reason::Internal, "it broke off by a fault of ours"))
            });
            inner.ended(&job, &control, outcome);
        });
        if thread.is_err() {
            self.live().running.remove(&id);
            let step = Step::to(&id, State::Interrupted, &self.settings.boot);
            let step = step.because(Reason::InsufficientMemory, "no thread can be made");
            self.store.move_job(step)?;
            let mut step = Step::to(&id, State::Queued, &self.settings.boot);
            step.not_before = Some(self.now().ms + 1000);
            self.store.move_job(step)?;
        }
        Ok(())
    }

    /// Keeps what became of a job; when the database can't, it is tried until it can.
    fn ended(&self, job: &JobRow, control: &JobControl, outcome: Outcome) {
        let next = self.after(job, control.stop(), outcome);
        let mut pause = TICK;
        for step in next {
            while self.store.move_job(step.clone()).is_err() {
                if self.live().stopping && pause > Duration::from_secs(2) {
                    break;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_secs(10));
            }
        }
        let mut live = self.live();
        let ours =
            live.running.get(job.id()).is_some_and(|run| std::ptr::eq(&*run.control, control));
        if ours {
            live.running.remove(job.id());
        }
        drop(live);
        self.told();
        self.changed();
    }

    /// The moves that an outcome stands for.
    fn after(&self, job: &JobRow, stop: Option<Stop>, outcome: Outcome) -> Vec<Step> {
        let to = |state| Step::to(job.id(), state, &self.settings.boot);
        let again = |step: Step| vec![step, to(State::Queued)];
        let refusal = match outcome {
            // What is done is done, whatever was asked meanwhile.
            Outcome::Done(result) => {
                return vec![Step { result: Some(result), ..to(State::Succeeded) }];
            }
            // The next boot says whether it went well.
            Outcome::Leaving => return Vec::new(),
            Outcome::Failed(refusal) if refusal.reason != Reason::Cancelled => refusal,
            Outcome::Failed(_) | Outcome::Stopped => match stop {
                Some(Stop::Cancel) => {
                    return vec![to(State::Cancelled).because(Reason::Cancelled, "as was asked")];
                }
                Some(Stop::Timeout) => {
                    let detail = format!("after {} s", job.document.timeout());
                    return vec![to(State::TimedOut).because(Reason::TimedOut, detail)];
                }
                Some(Stop::Pause) => return vec![to(State::Paused)],
                Some(Stop::Preempt) => return again(to(State::Preempted)),
                // It stands as superseded already.
                Some(Stop::Supersede) => return Vec::new(),
                Some(Stop::Fence) => {
                    return vec![to(State::Failed).because(Reason::Fenced, "offered anew since")];
                }
                Some(Stop::Stall) => Refusal::new(Reason::Stalled, "it got on no more"),
                Some(Stop::Shutdown) | None => {
                    let why =
                        to(State::Interrupted).because(Reason::Interrupted, "the daemon ends");
                    return again(why);
                }
            },
        };
        let retry = job.document.retry;
        let tries = job.attempt.saturating_sub(job.crashes);
        if !refusal.reason.retryable() || tries > retry.max || stop == Some(Stop::Cancel) {
            return vec![to(State::Failed).because(refusal.reason, refusal.detail)];
        }
        let doubled = retry.backoff_s.saturating_mul(1000) << tries.saturating_sub(1).min(10);
        let wait = doubled.min(LONGEST_WAIT);
        // Up to a quarter more or less, so that many devices don't come back at once.
        let wait = wait * 3 / 4 + self.random(wait / 2 + 1);
        let mut later = to(State::Queued);
        later.not_before = Some(self.now().ms.saturating_add(wait));
        vec![to(State::Interrupted).because(refusal.reason, refusal.detail), later]
    }

    /// Ends what runs for too long, or gets on no more.
    fn watch_time(&self) -> Result<()> {
        let now = self.clock.mono();
        let mut lost = Vec::new();
        let mut live = self.live();
        for (id, run) in &mut live.running {
            if now.since(run.began) >= run.timeout {
                run.control.end(Stop::Timeout);
            } else if run.stall.is_some_and(|stall| run.control.silent_for() >= stall) {
                run.control.end(Stop::Stall);
            }
            if let Some(beat) = run.beat.as_mut().filter(|beat| now.since(**beat) >= BEAT) {
                *beat = now;
                run.control.beat();
            }
            if let Some(stop) = run.control.stop() {
                let told = *run.told.get_or_insert(now);
                if now.since(told) >= GRACE {
                    lost.push((id.clone(), stop));
                }
            }
        }
        for (id, _) in &lost {
            live.running.remove(id);
        }
        drop(live);
        for (id, stop) in lost {
            // Its thread may hang on; whatever it says later is an illegal move, and does nothing.
            let to = |state| Step::to(&id, state, &self.settings.boot);
            let detail = "it did not end when it was told to, and was given up";
            let step = match stop {
                // The next start takes it up.
                Stop::Shutdown => continue,
                Stop::Cancel => to(State::Cancelled).because(Reason::Cancelled, detail),
                Stop::Timeout => to(State::TimedOut).because(Reason::TimedOut, detail),
                Stop::Fence => to(State::Failed).because(Reason::Fenced, detail),
                _ => to(State::Failed).because(Reason::Stalled, detail),
            };
            self.store.move_job(step)?;
            self.told();
        }
        Ok(())
    }

    /// What a job that was running when the daemon died becomes.
    pub(super) fn recover(&self) -> Result<()> {
        for job in self.store.open_jobs(self.settings.bounds.open)? {
            let to = |state| Step::to(job.id(), state, &self.settings.boot);
            let steps = match job.state {
                State::Running => self.recovered(&job),
                State::Interrupted | State::Preempted => vec![to(State::Queued)],
                _ => Vec::new(),
            };
            for step in steps {
                self.store.move_job(step)?;
            }
        }
        Ok(())
    }

    fn recovered(&self, job: &JobRow) -> Vec<Step> {
        let to = |state| Step::to(job.id(), state, &self.settings.boot);
        let rebooted = job.boot != self.settings.boot;
        if job.document.kind.needs_boot() && self.executor.left(job) {
            if rebooted {
                let result: Value = json!({ "boot_id": self.settings.boot });
                return vec![Step { result: Some(result), ..to(State::Succeeded) }];
            }
            let why = "the device was to start again, and did not";
            return vec![to(State::Failed).because(Reason::Interrupted, why)];
        }
        match job.asked {
            Some(Asked::Cancel) => {
                return vec![to(State::Cancelled).because(Reason::Cancelled, "as was asked")];
            }
            Some(Asked::Pause) => return vec![to(State::Paused)],
            None => {}
        }
        let why = if rebooted { "the device was started again" } else { "the daemon died" };
        let mut interrupted = to(State::Interrupted).because(Reason::Interrupted, why);
        interrupted.crashed = true;
        let next = if job.crashes >= CRASHES {
            to(State::Failed).because(Reason::Interrupted, format!("{why}, {CRASHES} times"))
        } else {
            to(State::Queued)
        };
        vec![interrupted, next]
    }
}

fn waits(job: &JobRow) -> Waits {
    let document = &job.document;
    Waits {
        id: job.id().to_owned(),
        state: job.state,
        qos: document.qos,
        priority: job.priority,
        arrival: job.arrival,
        order: document.order(),
        room: document.kind.room(),
        not_before: job.not_before,
        expires: document.expires_at,
        maintenance: document.window == Window::Maintenance,
    }
}
