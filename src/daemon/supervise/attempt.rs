//! One job, tried once or twice: what the worker needs for it, the request, the answer.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mien_base::id::JobId;
use mien_base::model::Manifest;
use mien_base::wire::{Event, Request};

use super::needs::{self, Need, Wanted};
use super::{Policy, Supervisor};
use crate::{Error, Result, stream};

/// Times that a job may be tried.
const ATTEMPTS: u32 = 2;
/// Jobs that are remembered as quarantined; the oldest ids go first.
const QUARANTINED: usize = 4096;
/// How long a worker has to end a job that was called off.
const GRACE: Duration = Duration::from_millis(200);

/// A request as it is sent, made anew for each attempt.
pub(super) struct Sent<T> {
    pub(super) request: Request,
    pub(super) fds: Vec<OwnedFd>,
    /// What the answer is worked into: an output that is not yet committed.
    pub(super) keep: T,
}

impl Supervisor {
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
            let portrait = stream::memory("a portrait", &source.portrait)?;
            let record = Box::new(source.record.clone());
            let consents = source.consents.clone();
            self.send(&Request::Source { revision, record, consents }, &[portrait.as_fd()])?;
        }
        Ok(())
    }

    /// Runs a job to its end, on a second worker when the first dies of it.
    pub(super) fn run<T>(
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
        self.quarantine(job);
        Err(Error::Quarantined { job, last })
    }

    /// The job is not tried again.
    pub(super) fn quarantine(&mut self, job: JobId) {
        if self.quarantined.len() >= QUARANTINED {
            self.quarantined.pop_first();
        }
        self.quarantined.insert(job);
    }

    /// A worker that is held and has, or is about to have, the models and the policy.
    pub(super) fn prepare(&mut self, wanted: &Wanted) -> Result<()> {
        self.look_at_consent()?;
        self.bury();
        if self.link.is_none() {
            self.spawn()?;
        }
        // Models and policy are ours: they may go out before the worker is known to be held.
        let sent = self.bring(wanted);
        match sent {
            Err(error) if error.blames_worker() => self.lose(),
            other => other?,
        }
        self.ready()?;
        // After a restart in `ready` nothing is there; otherwise both do nothing.
        self.bring(wanted)
    }

    fn bring(&mut self, wanted: &Wanted) -> Result<()> {
        self.bring_models(&wanted.models)?;
        if wanted.people { self.bring_policy() } else { Ok(()) }
    }

    fn attempt<T>(
        &mut self,
        job: JobId,
        wanted: &Wanted,
        make: &mut impl FnMut(&AtomicBool) -> Result<Sent<T>>,
        attempt: u32,
    ) -> Result<(Event, T)> {
        self.prepare(wanted)?;
        let Sent { request, fds, keep } = make(&self.stop)?;
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
        if let Some(link) = self.link.as_mut() {
            link.expect(self.clock.as_ref(), job);
        }
        self.send(&request, &borrowed)?;
        drop(fds);
        // The second attempt has all the time there is: the first may just have been slow.
        let hang = self.config.hang;
        if attempt > 1 {
            self.config.hang.least = hang.most;
        }
        let event = self.next_of(job, wanted);
        self.config.hang = hang;
        event.map(|event| (event, keep))
    }

    /// The next event of a job but `Started`.
    pub(super) fn next_of(&mut self, job: JobId, wanted: &Wanted) -> Result<Event> {
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
                    let broken = wanted.models.iter().find_map(|m| models?.get(&m.id)?.clone());
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
        while self.clock.mono().since(start) < GRACE {
            match self.next() {
                Ok(Event::Failed { job: Some(of), .. }) if of == job => return,
                Ok(event) if job_of(&event) == Some(job) && !goes_on(&event) => return,
                Ok(_) => {}
                Err(Error::Cancelled) => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => break,
            }
        }
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
        | Event::Measured { job, .. }
        | Event::Inspected { job, .. }
        | Event::Sheeted { job, .. }
        | Event::Made { job, .. }
        | Event::Progress { job, .. }
        | Event::Segment { job, .. }
        | Event::ClipDone { job, .. }
        | Event::FrameFaces { job, .. }
        | Event::ClipDetected { job, .. } => Some(*job),
        _ => None,
    }
}

/// More of the job is to come.
fn goes_on(event: &Event) -> bool {
    matches!(event, Event::Progress { .. } | Event::Segment { .. } | Event::FrameFaces { .. })
}
