//! The figures of a running pipeline, written by all its threads and told about once a second.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use mien_base::limits;
use mien_base::wire::live::{Lag, LiveStats};

/// Eight steps an octave, in microseconds.
const BUCKETS: usize = 256;
/// Steps after which older ones count half, and half again.
const WINDOW: u64 = 16_384;

/// How long the steps of one stage took.
#[derive(Debug)]
pub struct Steps {
    buckets: [AtomicU32; BUCKETS],
    count: AtomicU64,
}

impl Default for Steps {
    fn default() -> Self {
        Self { buckets: [const { AtomicU32::new(0) }; BUCKETS], count: AtomicU64::new(0) }
    }
}

fn bucket(micros: u64) -> usize {
    if micros < 8 {
        return micros as usize;
    }
    let octave = 63 - micros.leading_zeros();
    let part = (micros >> (octave - 3)) & 7;
    ((octave as usize - 2) * 8 + part as usize).min(BUCKETS - 1)
}

/// The longest step that falls into a bucket.
fn edge(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let octave = bucket / 8 + 2;
    ((9 + bucket as u64 % 8) << (octave - 3)) - 1
}

impl Steps {
    /// One more.
    pub fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros)].fetch_add(1, Ordering::Relaxed);
        if self.count.fetch_add(1, Ordering::Relaxed) % WINDOW == WINDOW - 1 {
            for bucket in &self.buckets {
                bucket.store(bucket.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    fn lag(&self, stage: &str) -> Lag {
        let counts = self.buckets.each_ref().map(|b| u64::from(b.load(Ordering::Relaxed)));
        let all: u64 = counts.iter().sum();
        let share = |hundredths: u64| {
            let rank = (all * hundredths).div_ceil(100).max(1);
            let mut sum = 0;
            let at = counts.iter().position(|n| {
                sum += n;
                sum >= rank
            });
            at.map_or(0, edge)
        };
        let count = self.count.load(Ordering::Relaxed);
        Lag { stage: stage.to_owned(), count, p50: share(50), p95: share(95), p99: share(99) }
    }
}

/// All figures.
#[derive(Debug, Default)]
pub struct Board {
    /// From one frame of the camera to the next.
    pub interval: Steps,
    /// From the driver's stamp to its hand.
    pub driver: Steps,
    /// Unpacking into planes.
    pub convert: Steps,
    /// Waiting for the chain.
    pub queue: Steps,
    /// The chain waiting for a look.
    pub look: Steps,
    pub alter: Steps,
    pub mark: Steps,
    /// Encoding and writing.
    pub deliver: Steps,
    /// What `total` of one frame differs from that of the one before.
    pub jitter: Steps,
    /// From the camera's hand to the last output.
    pub total: Steps,
    pub captured: AtomicU64,
    pub left: AtomicU64,
    pub covered: AtomicU64,
    pub withheld: AtomicU64,
    pub held: AtomicU64,
    pub looks: AtomicU64,
    pub still: AtomicU64,
    pub faces: AtomicU32,
    pub masks: AtomicU32,
    /// Longest wait in the queue since it was told.
    queue_us: AtomicU64,
    drops: Mutex<Vec<(&'static str, u64)>>,
    reasons: Mutex<Vec<(String, u64)>>,
}

pub(super) fn one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Board {
    /// A frame waited so long.
    pub fn queued(&self, wait: Duration) {
        self.queue.add(wait);
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.queue_us.fetch_max(micros, Ordering::Relaxed);
    }

    /// A frame was dropped.
    pub fn drop_for(&self, why: &'static str) {
        self.drop_many(why, 1);
    }

    /// Frames were dropped.
    pub fn drop_many(&self, why: &'static str, frames: u64) {
        let mut drops = self.drops.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let room = drops.len() < limits::CLIP_LISTED;
        match drops.iter_mut().find(|(known, _)| *known == why) {
            Some((_, n)) => *n += frames,
            None if room => drops.push((why, frames)),
            None => {}
        }
    }

    /// Something else was done than asked for.
    pub fn reason(&self, why: &str) {
        let mut reasons = self.reasons.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let room = reasons.len() < limits::CLIP_LISTED;
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, n)) => *n += 1,
            None if room => reasons.push((why.to_owned(), 1)),
            None => {}
        }
    }

    /// As it is told.
    #[must_use]
    pub fn stats(&self) -> LiveStats {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let stages = [
            ("interval", &self.interval),
            ("driver", &self.driver),
            ("convert", &self.convert),
            ("queue", &self.queue),
            ("look", &self.look),
            ("alter", &self.alter),
            ("mark", &self.mark),
            ("deliver", &self.deliver),
            ("jitter", &self.jitter),
            ("total", &self.total),
        ];
        let drops = self.drops.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let reasons = self.reasons.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        LiveStats {
            captured: get(&self.captured),
            left: get(&self.left),
            covered: get(&self.covered),
            withheld: get(&self.withheld),
            held: get(&self.held),
            looks: get(&self.looks),
            still: get(&self.still),
            faces: self.faces.load(Ordering::Relaxed),
            masks: self.masks.load(Ordering::Relaxed),
            queue_us: self.queue_us.swap(0, Ordering::Relaxed),
            lags: stages.iter().map(|(name, steps)| steps.lag(name)).collect(),
            drops: drops.iter().map(|(why, n)| ((*why).to_owned(), *n)).collect(),
            reasons: reasons.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_steps_is_told_to_an_eighth() {
        let steps = Steps::default();
        for micros in 1..=1000 {
            steps.add(Duration::from_micros(micros));
        }
        let lag = steps.lag("x");
        assert_eq!(lag.count, 1000);
        for (told, true_one) in [(lag.p50, 500), (lag.p95, 950), (lag.p99, 990)] {
            assert!(told >= true_one && told <= true_one * 9 / 8 + 1, "{told} {true_one}");
        }
        for micros in [0, 7, 8, 9, 1023, 1024, 70_000, u64::from(u32::MAX)] {
            let b = bucket(micros);
            assert!(edge(b) >= micros && (b == 0 || edge(b - 1) < micros), "{micros}");
        }
        steps.add(Duration::MAX);
    }

    #[test]
    fn old_steps_fade() {
        let steps = Steps::default();
        for n in 0..3 * WINDOW {
            steps.add(Duration::from_millis(if n < WINDOW { 500 } else { 1 }));
        }
        let lag = steps.lag("x");
        assert!(lag.p50 < 1200, "{lag:?}");
    }

    #[test]
    fn lists_of_reasons_are_bounded() {
        let board = Board::default();
        (0..1000).for_each(|n| board.reason(&format!("reason {n}")));
        (0..3).for_each(|_| board.drop_for("queue"));
        let stats = board.stats();
        assert_eq!(stats.reasons.len(), limits::CLIP_LISTED);
        assert_eq!(stats.drops, [("queue".to_owned(), 3)]);
    }
}
