//! Between camera and chain: the newest frames, in order. When it is full the oldest goes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use mien_base::limits;
use mien_pixels::i420::I420;

use crate::camera::{Fault, Shot};

/// A frame of a camera.
#[derive(Debug)]
pub struct Taken {
    pub image: I420,
    pub shot: Shot,
}

/// What a wait gives.
#[derive(Debug)]
pub enum Popped {
    Frame(Taken),
    /// Nothing came.
    Nothing,
    /// The camera has ended, of this.
    Over(Fault),
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Taken>,
    over: Option<Fault>,
    /// The chain has ended.
    closed: bool,
}

/// The queue.
#[derive(Debug)]
pub struct Newest {
    state: Mutex<State>,
    ready: Condvar,
}

impl Default for Newest {
    fn default() -> Self {
        let frames = VecDeque::with_capacity(limits::LIVE_QUEUE);
        Self { state: Mutex::new(State { frames, ..State::default() }), ready: Condvar::new() }
    }
}

impl Newest {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Puts the newest frame in; gives back the one whose place it takes.
    pub fn push(&self, taken: Taken) -> Option<Taken> {
        let mut state = self.lock();
        let oldest =
            if state.frames.len() >= limits::LIVE_QUEUE { state.frames.pop_front() } else { None };
        state.frames.push_back(taken);
        drop(state);
        self.ready.notify_one();
        oldest
    }

    /// Takes the oldest of those that wait.
    pub fn pop(&self, most: Duration) -> Popped {
        let mut state = self.lock();
        if state.frames.is_empty() && state.over.is_none() {
            let waited = self.ready.wait_timeout(state, most);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        match (state.frames.pop_front(), &state.over) {
            (Some(taken), _) => Popped::Frame(taken),
            (None, Some(fault)) => Popped::Over(fault.clone()),
            (None, None) => Popped::Nothing,
        }
    }

    /// No more frames come.
    pub fn end(&self, fault: Fault) {
        self.lock().over.get_or_insert(fault);
        self.ready.notify_one();
    }

    /// Nobody takes frames any more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.frames.clear();
    }

    /// True once nobody takes frames any more.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sequence: u64) -> Taken {
        let shot = Shot { sequence, at: None, fetched: Duration::ZERO };
        Taken { image: I420::default(), shot }
    }

    fn number(popped: Popped) -> Option<u64> {
        match popped {
            Popped::Frame(taken) => Some(taken.shot.sequence),
            _ => None,
        }
    }

    #[test]
    fn the_newest_two_are_kept_in_their_order() {
        let queue = Newest::default();
        let gone: Vec<Option<u64>> =
            (0..5).map(|n| queue.push(taken(n)).map(|t| t.shot.sequence)).collect();
        assert_eq!(gone, [None, None, Some(0), Some(1), Some(2)]);
        let rest = [(); 3].map(|()| number(queue.pop(Duration::from_millis(1))));
        assert_eq!(rest, [Some(3), Some(4), None]);
    }

    #[test]
    fn frames_from_before_the_end_are_still_taken() {
        let queue = Newest::default();
        queue.push(taken(7));
        queue.end(Fault::Gone);
        queue.end(Fault::NoSignal);
        assert_eq!(number(queue.pop(Duration::ZERO)), Some(7));
        assert!(matches!(queue.pop(Duration::from_secs(60)), Popped::Over(Fault::Gone)));
    }
}
