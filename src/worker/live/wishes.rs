//! What the root program says while a pipeline runs.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender};

use mien_base::id::JobId;
use mien_base::limits;
use mien_base::model::Role;
use mien_base::wire::{Event, Request};
use mien_engine::backend::Backend;
use mien_face::policy::Policy;

use super::look::Look;
use super::sink::Hand;
use crate::link::{Outbox, Work};
use crate::{Error, Result, sealed};

/// The way of requests to the pipeline at hand.
#[derive(Debug)]
pub struct Wishes<'a> {
    pub job: JobId,
    pub requests: &'a Receiver<Work>,
    /// Takes what is for after the pipeline.
    pub later: &'a mut VecDeque<Work>,
    pub outbox: &'a Outbox,
}

impl Wishes<'_> {
    /// Takes in what has come; consent holds from `frame` on.
    pub(super) fn take_in<B: Backend>(
        &mut self,
        policy: &mut Policy<B>,
        look: &Look<B>,
        hands: &SyncSender<Hand>,
        frame: u64,
    ) -> Result<()> {
        while let Ok(mut work) = self.requests.try_recv() {
            match work.message {
                Request::Consents { revision, identity, consents } => {
                    policy.set_consents(revision, &identity, consents).map_err(Error::Face)?;
                    let clip = Some((self.job, frame));
                    self.outbox.send(Event::ConsentsHold { revision, identity, clip });
                }
                Request::LiveFile { job, output } if job == self.job => {
                    let fd = work.fds.pop();
                    let fd = fd.ok_or(Error::Protocol { what: "a descriptor is missing" })?;
                    // An output that does not take what it is given needs nothing more.
                    let _ = hands.try_send(Hand::File { output, fd });
                }
                Request::LiveTaken { job, output, slot } if job == self.job => {
                    let _ = hands.try_send(Hand::Taken { output, slot });
                }
                // Of a pipeline that is over.
                Request::LiveFile { .. } | Request::LiveTaken { .. } => {}
                Request::Load(ref manifest)
                    if matches!(manifest.role, Role::Detector | Role::Gate) =>
                {
                    let fd = work.fds.pop();
                    let fd = fd.ok_or(Error::Protocol { what: "a descriptor is missing" })?;
                    let model = manifest.id.clone();
                    let bytes = sealed::bytes(&fd, "model", limits::MODEL_FILE);
                    let failure = match bytes.map(|bytes| look.load(manifest.clone(), bytes)) {
                        Ok(true) => continue,
                        Ok(false) => Error::Protocol { what: "the look thread takes no model" },
                        Err(error) => error,
                    };
                    let failure = failure.failure();
                    self.outbox.send(Event::NotLoaded { model, failure });
                }
                _ => self.later.push_back(work),
            }
        }
        Ok(())
    }
}
