//! The compute thread: one request after the other, none of which can take the thread down.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use mien_base::error::ErrorKind;
use mien_base::report::Failure;
use mien_base::wire::{Event, Request};

use crate::link::{Outbox, Work};
use crate::meter::Pulse;
use crate::{Error, Result, sandbox};

/// Everything that a request is carried out with.
#[derive(Debug)]
pub struct Compute {
    pub outbox: Outbox,
    pub pulse: Arc<Pulse>,
    /// Input may be read.
    pub held: bool,
}

impl Compute {
    /// Runs until `Drain` or the end of the control thread.
    pub fn run(mut self, requests: &Receiver<Work>) {
        while let Ok(work) = requests.recv() {
            if work.message == Request::Drain {
                return;
            }
            let job = work.message.job();
            self.pulse.rest();
            let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(work)));
            self.pulse.rest();
            let event = match done {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => Event::Failed { job, failure: error.failure() },
                Err(payload) => {
                    let error = Error::Panic { message: words(payload.as_ref()) };
                    Event::Failed { job, failure: error.failure() }
                }
            };
            self.outbox.send(event);
        }
    }

    fn carry_out(&mut self, work: Work) -> Result<Event> {
        match work.message {
            Request::SelfTest => Ok(Event::SelfTested(sandbox::attempts("compute"))),
            _ if !self.held => Err(Error::Unheld),
            request => Ok(Event::Failed {
                job: request.job(),
                failure: Failure { kind: ErrorKind::Internal, message: "Not there yet".to_owned() },
            }),
        }
    }
}

fn words(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}
