//! A few threads that wait for parts of one layer. Nothing is allocated to hand them out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The work of a layer: called once for each part.
type Work<'a> = &'a (dyn Fn(usize) + Sync);

struct State {
    /// Counts the layers, so that a thread takes each once.
    round: u64,
    parts: usize,
    /// Only between the begin and the end of `run`.
    work: Option<Work<'static>>,
    /// Helpers that have not yet finished this round.
    busy: usize,
    failed: bool,
    closed: bool,
}

struct Board {
    state: Mutex<State>,
    begin: Condvar,
    done: Condvar,
    next: AtomicUsize,
}

/// The calling thread and its helpers. They end with the last owner.
pub struct Team {
    board: Arc<Board>,
    helpers: Vec<std::thread::JoinHandle<()>>,
    /// One layer at a time.
    turn: Mutex<()>,
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("threads", &self.threads()).finish()
    }
}

fn parts(board: &Board, parts: usize, work: Work<'_>) {
    loop {
        let part = board.next.fetch_add(1, Ordering::Relaxed);
        if part >= parts {
            return;
        }
        work(part);
    }
}

fn help(board: &Board) {
    let mut seen = 0;
    loop {
        let (count, work) = {
            let mut state = board.state.lock().unwrap_or_else(PoisonError::into_inner);
            while state.round == seen && !state.closed {
                state = board.begin.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.closed {
                return;
            }
            seen = state.round;
            (state.parts, state.work)
        };
        let work = std::panic::AssertUnwindSafe(|| {
            if let Some(work) = work {
                parts(board, count, work);
            }
        });
        let failed = std::panic::catch_unwind(work).is_err();
        let mut state = board.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed |= failed;
        state.busy -= 1;
        if state.busy == 0 {
            board.done.notify_one();
        }
    }
}

impl Team {
    /// A team of `threads`, of which `threads - 1` start here. Where the system refuses one, the
    /// team is smaller.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let state = State { round: 0, parts: 0, work: None, busy: 0, failed: false, closed: false };
        let board = Arc::new(Board {
            state: Mutex::new(state),
            begin: Condvar::new(),
            done: Condvar::new(),
            next: AtomicUsize::new(0),
        });
        let start = |i: usize| {
            let board = Arc::clone(&board);
            std::thread::Builder::new().name(format!("nn-{i}")).spawn(move || help(&board)).ok()
        };
        let helpers = (1..threads).map_while(start).collect();
        Self { board, helpers, turn: Mutex::new(()) }
    }

    #[must_use]
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `work` once for each of `count` parts, and returns when all are done.
    ///
    /// # Panics
    /// When a part panicked.
    pub(crate) fn run(&self, count: usize, work: Work<'_>) {
        if count <= 1 || self.helpers.is_empty() {
            (0..count).for_each(work);
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: only the lifetime changes. The helpers use it before they count themselves out
        // of `busy`, and this function does not return or unwind before `busy` is nought.
        let lent: Work<'static> = unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
        {
            let mut state = self.board.state.lock().unwrap_or_else(PoisonError::into_inner);
            self.board.next.store(0, Ordering::Relaxed);
            state.round += 1;
            state.parts = count;
            state.work = Some(lent);
            state.busy = self.helpers.len();
            state.failed = false;
        }
        self.board.begin.notify_all();
        let own = std::panic::AssertUnwindSafe(|| parts(&self.board, count, work));
        let own = std::panic::catch_unwind(own);
        let failed = {
            let mut state = self.board.state.lock().unwrap_or_else(PoisonError::into_inner);
            while state.busy > 0 {
                state = self.board.done.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.work = None;
            state.failed
        };
        if let Err(panic) = own {
            std::panic::resume_unwind(panic);
        }
        assert!(!failed, "a thread of the team panicked");
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.board.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.board.begin.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper catches its panics, so it ends in order.
            let _ended = helper.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_done_once_at_any_number_of_threads() {
        for threads in 1..5 {
            let team = Team::new(threads);
            for count in [0, 1, 2, 3, 7, 64] {
                let done: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                for round in 1..20 {
                    team.run(count, &|part| {
                        done[part].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == round));
                }
            }
        }
    }

    #[test]
    fn a_panic_of_a_part_reaches_the_caller_and_the_team_lives_on() {
        let team = Team::new(3);
        for _ in 0..20 {
            let run = || team.run(8, &|part| assert!(part != 5, "as if"));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
            team.run(8, &|_| ());
        }
    }
}
