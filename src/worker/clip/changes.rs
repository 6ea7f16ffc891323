//! What the root program says while a clip is at hand: consent holds from the next frame on, the
//! rest waits.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use mien_base::id::JobId;
use mien_base::wire::{Event, Request};
use mien_engine::backend::Backend;
use mien_face::policy::Policy;

use crate::link::{Outbox, Work};
use crate::{Error, Result};

/// The way of requests to the clip at hand.
#[derive(Debug)]
pub struct Changes<'a> {
    pub job: JobId,
    pub requests: &'a Receiver<Work>,
    /// Takes what is for after the clip; the queue that it comes from is bounded, and who fills it
    /// sends one job at a time.
    pub later: &'a mut VecDeque<Work>,
    pub outbox: &'a Outbox,
}

impl Changes<'_> {
    /// Takes in what has come, and says that it holds from `frame` on.
    ///
    /// # Errors
    /// Of the policy; then the clip ends, for nobody knows who agrees.
    pub(super) fn take_in<B: Backend>(&mut self, policy: &mut Policy<B>, frame: u64) -> Result<()> {
        while let Ok(work) = self.requests.try_recv() {
            match work.message {
                Request::Consents { revision, identity, consents } => {
                    policy.set_consents(revision, &identity, consents).map_err(Error::Face)?;
                    let clip = Some((self.job, frame));
                    self.outbox.send(Event::ConsentsHold { revision, identity, clip });
                }
                _ => self.later.push_back(work),
            }
        }
        Ok(())
    }
}
