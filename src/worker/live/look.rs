//! The look thread: whatever becomes of a detector, the chain goes on without it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock};
use mien_base::model::Manifest;
use mien_base::wire::Event;
use mien_engine::backend::Backend;
use mien_face::clip::Looker;
use mien_face::gate::Passed;
use mien_face::subject::Face;

use crate::fault::words;
use crate::link::Outbox;
use crate::sealed::Bytes;
use crate::{Error, Result};

/// Orders that may wait: a look, a verdict, models.
const ORDERS: usize = 16;
/// How long a look thread that is asked to end may take for what it is at.
const END: Duration = Duration::from_secs(2);
/// Its stack, in bytes.
const STACK: usize = 8 << 20;

enum Order<B: Backend> {
    Faces { number: u64, picture: B::Picture, fell: bool },
    Gate { picture: B::Picture },
    Load { manifest: Box<Manifest>, bytes: Bytes },
}

/// What comes back.
pub(super) enum Answer<B: Backend> {
    Faces {
        number: u64,
        /// With the picture that was looked at; after a fault it is lost.
        picture: Option<B::Picture>,
        faces: std::result::Result<Vec<Face>, String>,
    },
    Gate {
        picture: Option<B::Picture>,
        verdict: std::result::Result<Passed<()>, String>,
    },
}

/// The chain's end of the look thread.
pub(super) struct Look<B: Backend> {
    orders: Option<SyncSender<Order<B>>>,
    answers: Receiver<Answer<B>>,
    back: Receiver<Looker<B>>,
}

impl<B: Backend> Look<B> {
    pub(super) fn start(
        mut looker: Looker<B>,
        machine: SystemClock,
        outbox: Outbox,
    ) -> Result<Self> {
        let (orders, take) = sync_channel::<Order<B>>(ORDERS);
        let (give, answers) = sync_channel(ORDERS);
        let (home, back) = sync_channel(1);
        std::thread::Builder::new()
            .name("look".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                while let Ok(order) = take.recv() {
                    if !carry_out(order, &mut looker, machine, &outbox, &give) {
                        break;
                    }
                }
                // Nobody may wait for it any more.
                let _ = home.send(looker);
            })
            .map_err(|source| Error::Thread { name: "look", source })?;
        Ok(Self { orders: Some(orders), answers, back })
    }

    fn order(&self, order: Order<B>) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok())
    }

    /// Asks for the faces of a frame; false when that can't be asked for now.
    pub(super) fn faces(&self, number: u64, picture: B::Picture, fell: bool) -> bool {
        self.order(Order::Faces { number, picture, fell })
    }

    /// Asks for a verdict.
    pub(super) fn gate(&self, picture: B::Picture) -> bool {
        self.order(Order::Gate { picture })
    }

    /// Another model from here on.
    pub(super) fn load(&self, manifest: Manifest, bytes: Bytes) -> bool {
        self.order(Order::Load { manifest: Box::new(manifest), bytes })
    }

    /// The next answer; `None` when none comes in time. Whoever is gone answers nothing either.
    pub(super) fn answer(&self, most: Duration) -> Option<Answer<B>> {
        match self.answers.recv_timeout(most) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(most);
                None
            }
        }
    }

    /// Ends the thread; `None` when it does not end.
    pub(super) fn end(mut self) -> Option<Looker<B>> {
        self.orders = None;
        self.back.recv_timeout(END).ok()
    }
}

/// False when nobody listens any more.
fn carry_out<B: Backend>(
    order: Order<B>,
    looker: &mut Looker<B>,
    machine: SystemClock,
    outbox: &Outbox,
    give: &SyncSender<Answer<B>>,
) -> bool {
    match order {
        Order::Faces { number, picture, fell } => {
            let found = catch_unwind(AssertUnwindSafe(|| {
                looker.faces(number, &picture, fell, &machine).map_err(|e| e.to_string())
            }));
            let faces = found.unwrap_or_else(|payload| Err(words(payload.as_ref())));
            give.send(Answer::Faces { number, picture: Some(picture), faces }).is_ok()
        }
        Order::Gate { picture } => {
            let said = catch_unwind(AssertUnwindSafe(|| {
                looker.inspect(picture, &machine).map_err(|e| e.to_string())
            }));
            let said = said.unwrap_or_else(|payload| Err(words(payload.as_ref())));
            let answer = match said {
                Ok((picture, passed)) => {
                    Answer::Gate { picture: Some(picture), verdict: Ok(passed) }
                }
                Err(why) => Answer::Gate { picture: None, verdict: Err(why) },
            };
            give.send(answer).is_ok()
        }
        Order::Load { manifest, bytes } => {
            let (model, start) = (manifest.id.clone(), machine.mono());
            let loaded = catch_unwind(AssertUnwindSafe(|| looker.load(*manifest, &bytes)));
            let loaded = match loaded {
                Ok(loaded) => loaded.map_err(Error::Face),
                Err(payload) => Err(Error::Panic { message: words(payload.as_ref()) }),
            };
            let ms = machine.mono().since(start).as_secs_f32() * 1e3;
            outbox.send(match loaded {
                Ok(()) => Event::Loaded { model, ms },
                Err(error) => Event::NotLoaded { model, failure: error.failure() },
            });
            true
        }
    }
}
