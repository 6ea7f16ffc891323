//! What a running job is told, and what it tells.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mien_base::clock::{Clock, Mono};

use crate::contract::Progress;
use crate::store::Store;

/// Least time between two notes of progress.
const NOTED_EVERY: Duration = Duration::from_secs(1);

/// Why a job has to end; of several the last in this list holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Something more urgent needs the worker.
    Preempt,
    Pause,
    /// The daemon ends.
    Shutdown,
    /// No progress for too long.
    Stall,
    /// It took too long.
    Timeout,
    /// Another one took its place.
    Supersede,
    Fence,
    Cancel,
}

const STOPS: [Stop; 8] = [
    Stop::Preempt,
    Stop::Pause,
    Stop::Shutdown,
    Stop::Stall,
    Stop::Timeout,
    Stop::Supersede,
    Stop::Fence,
    Stop::Cancel,
];

/// One job's line to its runner.
pub struct JobControl {
    id: String,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    stop: AtomicU8,
    flag: Arc<AtomicBool>,
    /// When it last got on, when that was last noted, and how far it was.
    at: Mutex<(Mono, Option<Mono>, Progress)>,
}

impl std::fmt::Debug for JobControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobControl").field("id", &self.id).field("stop", &self.stop()).finish()
    }
}

impl JobControl {
    pub(super) fn new(id: &str, store: Arc<Store>, clock: Arc<dyn Clock>) -> Self {
        let at = Mutex::new((clock.mono(), None, Progress::default()));
        let (id, flag) = (id.to_owned(), Arc::new(AtomicBool::new(false)));
        Self { id, store, clock, stop: AtomicU8::new(0), flag, at }
    }

    /// Tells the job to end; a stronger reason takes the place of a weaker one.
    pub(super) fn end(&self, why: Stop) {
        self.stop.fetch_max(why as u8 + 1, Ordering::SeqCst);
        self.flag.store(true, Ordering::SeqCst);
    }

    /// Why the job has to end, when it has to.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        let n = self.stop.load(Ordering::SeqCst);
        STOPS.get(usize::from(n.checked_sub(1)?)).copied()
    }

    /// Set when the job has to end.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// Says how far the job is. The same again is no progress: then it stalls.
    pub fn progress(&self, step: &str, permille: Option<u16>) {
        let now = self.clock.mono();
        let mut at = self.at();
        let progress = Progress { step: step.to_owned(), permille, eta_s: None };
        if progress == at.2 {
            return;
        }
        let next = at.2.step != step || at.1.is_none_or(|then| now.since(then) >= NOTED_EVERY);
        (at.0, at.2) = (now, progress.clone());
        if next {
            at.1 = Some(now);
            // Nobody waits for it: the next one says the same and more.
            drop(self.store.note_progress(&self.id, progress));
        }
    }

    /// Tells again how far the job is, so that it is known to run.
    pub(super) fn beat(&self) {
        let progress = self.at().2.clone();
        let step = if progress.step.is_empty() { "running".to_owned() } else { progress.step };
        drop(self.store.note_progress(&self.id, Progress { step, ..progress }));
    }

    /// Time since the job last got on.
    pub(super) fn silent_for(&self) -> Duration {
        self.clock.mono().since(self.at().0)
    }

    fn at(&self) -> MutexGuard<'_, (Mono, Option<Mono>, Progress)> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
