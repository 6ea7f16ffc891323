//! The control loop: requests and descriptors in, events out.
//!
//! One thread speaks, one computes. Requests queue to the compute thread in order; events queue
//! back, and an eventfd wakes this loop. End of file, on either side, is the end of the process.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError};
use std::time::Duration;

use mien_base::id::JobId;
use mien_base::wire::fds::{Received, Socket, WireError};
use mien_base::wire::{Event, Request};
use rustix::event::{EventfdFlags, eventfd};

use crate::meter::Pulse;
use crate::{Error, Result, sandbox};

/// Requests that wait for the compute thread; beyond it the root program breaks the protocol.
pub const REQUESTS: usize = 256;
/// Events that wait for the control thread; beyond it the compute thread waits.
pub const EVENTS: usize = 64;
/// How often a running job is looked at for a heartbeat.
const BEAT: Duration = Duration::from_millis(100);
/// How long the root program may leave an event unread.
const UNREAD: Duration = Duration::from_secs(10);

/// A request with its descriptors.
pub type Work = Received<Request>;

/// The compute thread's way to the control thread.
#[derive(Debug, Clone)]
pub struct Outbox {
    events: SyncSender<Event>,
    wake: Arc<OwnedFd>,
}

impl Outbox {
    /// Queues an event and wakes the control thread. When that one is gone so is the process.
    pub fn send(&self, event: Event) {
        if self.events.send(event.bounded()).is_ok() {
            // A full counter has woken the reader already.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// Makes the way between the threads.
///
/// # Errors
/// `Sandbox` when no eventfd can be had.
pub fn outbox() -> Result<(Outbox, Receiver<Event>)> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|source| Error::Sandbox { what: "no eventfd", source })?;
    let (events, inbox) = std::sync::mpsc::sync_channel(EVENTS);
    Ok((Outbox { events, wake: Arc::new(wake) }, inbox))
}

/// The control thread's state.
#[derive(Debug)]
pub struct Link {
    pub socket: Socket,
    pub requests: SyncSender<Work>,
    pub events: Receiver<Event>,
    pub wake: Arc<OwnedFd>,
    pub pulse: Arc<Pulse>,
}

impl Outbox {
    /// The descriptor that becomes readable when an event waits.
    #[must_use]
    pub fn wake(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }
}

impl Link {
    /// Runs until the root program is gone, says `Drain`, or breaks the protocol.
    ///
    /// # Errors
    /// `Wire`, `Protocol`.
    pub fn run(mut self) -> Result<()> {
        let mut jobs: VecDeque<JobId> = VecDeque::new();
        let mut seen = self.pulse.read();
        loop {
            let timeout = (!jobs.is_empty() || seen != self.pulse.read()).then_some(BEAT);
            let ready = self.socket.wait_or(self.wake.as_fd(), timeout).map_err(Error::Wire)?;
            if !ready && seen != self.pulse.read() {
                seen = self.pulse.read();
                let (stage, seq, pixels) = seen;
                let beat = Event::Heartbeat { job: jobs.front().copied(), stage, seq, pixels };
                // A root that does not read does not need heartbeats either.
                match self.socket.send(&beat, &[]) {
                    Ok(()) | Err(WireError::NotReady) => {}
                    Err(WireError::Closed) => return Ok(()),
                    Err(error) => return Err(Error::Wire(error)),
                }
            }
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
            loop {
                match self.events.try_recv() {
                    Ok(event) => {
                        if ends_job(&event) {
                            jobs.pop_front();
                        }
                        if !self.send(&event)? {
                            return Ok(());
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    // The compute thread has drained, or died.
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            match self.socket.receive::<Request>() {
                Ok(work) => {
                    if !work.message.descriptors().contains(&work.fds.len()) {
                        return Err(Error::Protocol { what: "wrong number of descriptors" });
                    }
                    match work.message {
                        Request::Cancel { job } => {
                            if jobs.contains(&job) {
                                self.pulse.cancel();
                            }
                        }
                        Request::Pause { job, paused } => {
                            if jobs.contains(&job) {
                                self.pulse.pause(paused);
                            }
                        }
                        Request::SelfTest => {
                            let tried = sandbox::attempts("control");
                            if !self.send(&Event::SelfTested(tried))? {
                                return Ok(());
                            }
                            self.queue(work)?;
                        }
                        ref request => {
                            jobs.extend(request.job());
                            self.queue(work)?;
                        }
                    }
                }
                Err(WireError::NotReady) => {}
                Err(WireError::Closed) => return Ok(()),
                Err(error) => return Err(Error::Wire(error)),
            }
        }
    }

    fn queue(&self, work: Work) -> Result<()> {
        match self.requests.try_send(work) {
            // Gone after `Drain`: the end follows by the event queue.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(Error::Protocol { what: "too many requests wait" }),
        }
    }

    /// False when the root program is gone.
    fn send(&self, event: &Event) -> Result<bool> {
        loop {
            match self.socket.send(event, &[]) {
                Ok(()) => return Ok(true),
                Err(WireError::Closed) => return Ok(false),
                Err(WireError::NotReady) => {
                    if !self.socket.wait_to_send(UNREAD).map_err(Error::Wire)? {
                        return Err(Error::Wire(WireError::NotReady));
                    }
                }
                Err(error) => return Err(Error::Wire(error)),
            }
        }
    }
}

fn ends_job(event: &Event) -> bool {
    matches!(
        event,
        Event::Done { .. }
            | Event::Detected { .. }
            | Event::Verified { .. }
            | Event::Enrolled { .. }
            | Event::Judged { .. }
            | Event::Measured { .. }
            | Event::Inspected { .. }
            | Event::Sheeted { .. }
            | Event::Made { .. }
            | Event::ClipDone { .. }
            | Event::ClipDetected { .. }
            | Event::LiveEnded { .. }
            | Event::Failed { job: Some(_), .. }
    )
}
