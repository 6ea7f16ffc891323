//! The compute thread: one request after the other, none of which can take the thread down.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use mien_base::clock::{Clock as _, SystemClock};
use mien_base::wire::{Event, Request, Stage};
use mien_engine::backend::Backend;
use mien_face::models::Models;
use mien_face::policy::Policy;

use crate::clip::{Changes, Stages, is_clip};
use crate::fault::words;
use crate::link::{Outbox, Work};
use crate::live::{Threads, Wishes};
use crate::load::Coming;
use crate::meter::Pulse;
use crate::still::{Desk, Files};
use crate::{Error, Result, sandbox, sealed};

/// Everything that requests are carried out with.
#[derive(Debug)]
pub struct Compute<B: Backend> {
    outbox: Outbox,
    pulse: Arc<Pulse>,
    stages: Stages,
    live: Option<Threads>,
    /// Input may be read.
    held: bool,
    machine: SystemClock,
    models: Models<B>,
    policy: Policy<B>,
    coming: Option<Coming<B>>,
    /// Requests that came while a clip was at hand.
    later: VecDeque<Work>,
}

impl<B: Backend> Compute<B> {
    /// No model yet, nobody known. Input is read only when `held`.
    pub fn new(
        backend: Arc<B>,
        outbox: Outbox,
        pulse: Arc<Pulse>,
        stages: Stages,
        held: bool,
    ) -> Self {
        Self {
            outbox,
            pulse,
            stages,
            live: None,
            held,
            machine: SystemClock::start(),
            models: Models::new(backend),
            policy: Policy::new(0),
            coming: None,
            later: VecDeque::new(),
        }
    }

    /// It can run pipelines.
    #[must_use]
    pub fn with_live(mut self, threads: Threads) -> Self {
        self.live = Some(threads);
        self
    }

    /// Runs until `Drain` or the end of the control thread.
    pub fn run(mut self, requests: &Receiver<Work>) {
        while let Some(work) = self.later.pop_front().or_else(|| requests.recv().ok()) {
            if work.message == Request::Drain {
                return;
            }
            let job = work.message.job();
            self.pulse.rest();
            if let Some(job) = job {
                self.outbox.send(Event::Started { job });
            }
            let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(work, requests)));
            self.pulse.rest();
            match done {
                Ok(Ok(Some(event))) => self.outbox.send(event),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => {
                    self.outbox.send(Event::Failed { job, failure: error.failure() });
                }
                Err(payload) => {
                    let error = Error::Panic { message: words(payload.as_ref()) };
                    self.outbox.send(Event::Failed { job, failure: error.failure() });
                }
            }
        }
    }

    fn carry_out(&mut self, work: Work, requests: &Receiver<Work>) -> Result<Option<Event>> {
        let mut files = Files::new(work.fds);
        match work.message {
            Request::SelfTest => {
                let mut tried = sandbox::attempts("compute");
                tried.extend(self.stages.attempts());
                tried.extend(self.live.iter().flat_map(Threads::attempts));
                return Ok(Some(Event::SelfTested(tried)));
            }
            _ if !self.held => return Err(Error::Unheld),
            Request::Load(manifest) => {
                self.pulse.enter(Stage::Load)?;
                let (id, start) = (manifest.id.clone(), self.machine.mono());
                let loaded = sealed::model(&mut self.models, manifest, &files.take()?);
                let ms = self.machine.mono().since(start).as_secs_f32() * 1e3;
                return Ok(Some(match loaded {
                    Ok(()) => Event::Loaded { model: id, ms },
                    Err(error) => Event::NotLoaded { model: id, failure: error.failure() },
                }));
            }
            Request::Policy { revision, sources } => {
                self.coming = Some(Coming::begin(revision, sources)?);
                return Ok(self.settle());
            }
            Request::Source { revision, record, consents } => {
                let portrait = files.take()?;
                let backend = self.models.backend().clone();
                let coming = self.coming.as_mut();
                let coming = coming.ok_or(Error::Protocol { what: "a source without a policy" })?;
                let added = coming.add(&backend, revision, *record, consents, &portrait);
                if added.is_err() {
                    // Half a policy is none: until the next one nobody is known and nobody agreed.
                    self.coming = None;
                    self.policy = Policy::new(revision);
                }
                added?;
                return Ok(self.settle());
            }
            Request::Consents { revision, identity, consents } => {
                self.policy.set_consents(revision, &identity, consents).map_err(Error::Face)?;
                return Ok(Some(Event::ConsentsHold { revision, identity, clip: None }));
            }
            // What the policy takes back must not be used once more.
            _ if self.coming.is_some() => {
                return Err(Error::Protocol { what: "a job before its policy is whole" });
            }
            _ => {}
        }
        let mut desk = Desk { models: &mut self.models, pulse: &self.pulse, machine: self.machine };
        match work.message {
            Request::Process(request) => desk.process(&self.policy, *request, files),
            Request::Clip(request) => {
                let (outbox, later) = (&self.outbox, &mut self.later);
                let changes = Changes { job: request.job, requests, later, outbox };
                desk.clip(&mut self.policy, *request, files, &self.stages, changes)
            }
            Request::Live(request) => {
                let threads = self.live.as_ref();
                let threads = threads.ok_or(Error::Protocol { what: "no pipeline runs here" })?;
                let (outbox, later) = (&self.outbox, &mut self.later);
                let wishes = Wishes { job: request.job, requests, later, outbox };
                desk.live(&mut self.policy, &request, files, threads, wishes)
            }
            Request::Watch(request) => {
                let threads = self.live.as_ref();
                let threads = threads.ok_or(Error::Protocol { what: "no pipeline runs here" })?;
                desk.watch(*request, files, threads, &self.outbox)
            }
            // Of a pipeline that is over.
            Request::LiveFile { .. } | Request::LiveTaken { .. } => return Ok(None),
            Request::ClipDetect(request) => {
                desk.detect_clip(*request, files, &self.stages, &self.outbox)
            }
            Request::Detect { job, detect, draw, wall } => {
                desk.detect(job, &detect, draw, wall, files)
            }
            Request::Verify { job } => {
                let input = files.take()?;
                if is_clip(&input)? {
                    desk.verify_clip(job, input, &self.stages)
                } else {
                    desk.verify(job, &input)
                }
            }
            Request::Enrol { job, identity, detect, wall } => {
                desk.enrol(job, identity, &detect, wall, files)
            }
            Request::Judge { job, frame, faces } => {
                desk.judge(job, (frame, &faces), files, &self.stages)
            }
            Request::Measure { job, reference, candidate, detect } => {
                desk.measure(job, *reference, *candidate, &detect, files)
            }
            Request::Inspect { job, manifest } => desk.inspect(job, &manifest, files),
            Request::Sheet { job, columns, cell, output, mark, wall } => {
                desk.sheet(job, columns, cell, output, &mark, wall, files, &self.stages)
            }
            Request::Made { job, frames, mark } => {
                desk.made(job, frames, mark, files, &self.stages)
            }
            _ => Err(Error::Protocol { what: "a request for the control thread" }),
        }
        .map(Some)
    }

    /// Puts a policy in force once all of it is there.
    fn settle(&mut self) -> Option<Event> {
        match self.coming.take()?.complete() {
            Ok(policy) => {
                let revision = policy.revision();
                self.policy = policy;
                Some(Event::PolicyHolds { revision })
            }
            Err(coming) => {
                self.coming = Some(coming);
                None
            }
        }
    }
}
