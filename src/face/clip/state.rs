//! What is left at the end of a segment, and how another run goes on from it.

use mien_engine::backend::Backend;
use serde::{Deserialize, Serialize};

use super::ClipRun;
use crate::track::Kept;
use crate::{Error, Result};

/// A state's version; readers take no other.
const VERSION: u16 = 1;
/// Largest state in bytes.
pub(super) const STATE: usize = mien_base::limits::CLIP_STATE;

#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u16,
    next: u64,
    angle: u16,
    before: Vec<u8>,
    leap: f32,
    tracks: Kept,
}

impl<B: Backend> ClipRun<B> {
    /// A segment has left: what follows begins with a look and with what a state can hold.
    pub(super) fn rest(&mut self) {
        self.watch.rest();
        let angle = self.sight.angle();
        self.sight.rest(angle);
        let (before, _) = self.watch.kept();
        let room = STATE.saturating_sub(before.len() + 1024);
        self.tracker.rest(room);
    }

    /// What the frames after a whole segment need to know of those before: a clip that is resumed
    /// with it at that frame gives the same bytes. To be asked when `next` has given the last frame
    /// of a segment, before the next is pushed.
    ///
    /// # Errors
    /// `Clip` when frames are inside.
    pub fn state(&self) -> Result<Vec<u8>> {
        let broken = |detail: &str| Error::Clip { detail: detail.to_owned() };
        if !self.waiting.is_empty() || !self.next.is_multiple_of(self.shape.segment) {
            return Err(broken("its state was asked for in the middle of a segment"));
        }
        let (before, leap) = self.watch.kept();
        let state = State {
            version: VERSION,
            next: self.next,
            angle: self.sight.angle(),
            before: before.to_vec(),
            leap,
            tracks: self.tracker.kept(),
        };
        let bytes = postcard::to_stdvec(&state).map_err(|_| broken("its state has no form"))?;
        if bytes.len() > STATE {
            return Err(broken("its state is too large"));
        }
        Ok(bytes)
    }

    /// Goes on where another run of the same clip gave `state`: the next frame is the one after.
    ///
    /// # Errors
    /// `Clip` when it is no state of such a clip, or this one has begun.
    pub fn restore(&mut self, state: &[u8]) -> Result<()> {
        let broken = || Error::Clip { detail: "what is left of it is no state of it".to_owned() };
        if state.len() > STATE || self.next != 0 {
            return Err(broken());
        }
        let state: State = postcard::from_bytes(state).map_err(|_| broken())?;
        let State { version, next, angle, before, leap, tracks } = state;
        let fits = version == VERSION
            && next.is_multiple_of(self.shape.segment)
            && leap.is_finite()
            && matches!(angle, 0 | 90 | 180 | 270);
        if !fits || !self.tracker.keep(tracks) {
            return Err(broken());
        }
        self.next = next;
        self.sight.rest(angle);
        self.watch.keep(before, leap);
        Ok(())
    }
}
