//! A rollout in waves: the next one begins when the last went well, and nothing more when it did not.
//!
//! ```text
//!   wave 1 ─▶ all ended, enough succeeded ─▶ wave 2 ─▶ … ─▶ done
//!      └─▶ too many failed ─▶ aborted        pause holds before the next wave
//! ```

use std::collections::BTreeMap;

use crate::contract::State;

/// How a rollout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The wave is under way.
    Under,
    /// These devices are to get the job now.
    Next,
    Done,
    /// Too many failed: those that have not begun are left alone.
    Aborted,
}

/// When the next wave may begin, in percent of a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// So many must have succeeded.
    pub success: u32,
    /// More than so many failures end it.
    pub failure: u32,
}

/// A rollout.
#[derive(Debug, Clone)]
pub struct Rollout {
    waves: Vec<Vec<String>>,
    at: usize,
    begun: bool,
    paused: bool,
    aborted: bool,
    ends: BTreeMap<String, State>,
    thresholds: Thresholds,
}

/// Cuts devices into waves: each size is a number or a share in percent of all.
///
/// # Errors
/// What is wrong with the sizes.
pub fn waves(devices: &[String], sizes: &str) -> Result<Vec<Vec<String>>, String> {
    let mut rest = devices;
    let mut all = Vec::new();
    for size in sizes.split(',').map(str::trim) {
        let bad = || format!("`{size}` is no size of a wave: a number, or a share as 10%");
        let upto = match size.strip_suffix('%') {
            Some(share) => {
                let share: usize = share.parse().map_err(|_| bad())?;
                if share == 0 || share > 100 {
                    return Err(bad());
                }
                (devices.len() * share).div_ceil(100)
            }
            None => size.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?,
        };
        let done = devices.len() - rest.len();
        let (wave, left) = rest.split_at(upto.saturating_sub(done).min(rest.len()));
        if !wave.is_empty() {
            all.push(wave.to_vec());
        }
        rest = left;
    }
    if !rest.is_empty() {
        all.push(rest.to_vec());
    }
    Ok(all)
}

impl Rollout {
    /// Begins nothing yet.
    #[must_use]
    pub fn new(waves: Vec<Vec<String>>, thresholds: Thresholds) -> Self {
        let (begun, paused, aborted) = (false, false, false);
        Self { waves, at: 0, begun, paused, aborted, ends: BTreeMap::new(), thresholds }
    }

    /// Devices of the wave at hand.
    #[must_use]
    pub fn wave(&self) -> &[String] {
        self.waves.get(self.at).map_or(&[], Vec::as_slice)
    }

    /// Number of the wave at hand, from 1, and of all.
    #[must_use]
    pub fn number(&self) -> (usize, usize) {
        (self.at + 1, self.waves.len())
    }

    /// A device ended its job.
    pub fn ended(&mut self, device: &str, state: State) {
        let ours = self.waves.iter().take(self.at + 1).any(|wave| wave.iter().any(|d| d == device));
        if ours && state.is_end() {
            self.ends.entry(device.to_owned()).or_insert(state);
        }
    }

    /// Holds, or goes on, before the next wave.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Ends it by hand.
    pub fn abort(&mut self) {
        self.aborted = true;
    }

    /// Of the wave at hand: succeeded, failed, not ended.
    #[must_use]
    pub fn count(&self) -> (usize, usize, usize) {
        let wave = self.wave();
        let ends: Vec<State> =
            wave.iter().filter_map(|device| self.ends.get(device)).copied().collect();
        let good = ends.iter().filter(|state| **state == State::Succeeded).count();
        (good, ends.len() - good, wave.len() - ends.len())
    }

    /// What is to happen now; after `Next` the wave at hand has begun.
    pub fn turn(&mut self) -> Verdict {
        let (good, failed, open) = self.count();
        let of = |share: u32| self.wave().len() * share as usize;
        if self.aborted || failed * 100 > of(self.thresholds.failure) {
            self.aborted = true;
            return Verdict::Aborted;
        }
        if !self.begun {
            if self.paused {
                return Verdict::Under;
            }
            self.begun = true;
            return if self.wave().is_empty() { Verdict::Done } else { Verdict::Next };
        }
        if open > 0 {
            return Verdict::Under;
        }
        if good * 100 < of(self.thresholds.success) {
            self.aborted = true;
            return Verdict::Aborted;
        }
        if self.at + 1 >= self.waves.len() {
            return Verdict::Done;
        }
        if self.paused {
            return Verdict::Under;
        }
        self.at += 1;
        Verdict::Next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("dev-{n}")).collect()
    }

    fn sizes(count: usize, text: &str) -> Vec<usize> {
        waves(&devices(count), text).unwrap().iter().map(Vec::len).collect()
    }

    #[test]
    fn waves_grow_to_the_sizes_that_were_given_and_leave_nobody_out() {
        assert_eq!(sizes(100, "1,10%,100%"), [1, 9, 90]);
        assert_eq!(sizes(10, "3"), [3, 7]);
        assert_eq!(sizes(2, "5,50%"), [2]);
        for bad in ["0", "x", "101%", "", "10%,,"] {
            assert!(waves(&devices(5), bad).is_err(), "{bad}");
        }
    }

    fn rollout(text: &str) -> Rollout {
        Rollout::new(waves(&devices(100), text).unwrap(), Thresholds { success: 90, failure: 10 })
    }

    #[test]
    fn the_next_wave_begins_when_the_last_ended_well() {
        let mut rollout = rollout("10,100%");
        assert_eq!((rollout.turn(), rollout.wave().len()), (Verdict::Next, 10));
        for n in 0..9 {
            rollout.ended(&format!("dev-{n}"), State::Succeeded);
            assert_eq!(rollout.turn(), Verdict::Under);
        }
        rollout.pause(true);
        rollout.ended("dev-9", State::Failed);
        assert_eq!(rollout.turn(), Verdict::Under);
        rollout.pause(false);
        assert_eq!((rollout.turn(), rollout.wave().len()), (Verdict::Next, 90));
        (10..100).for_each(|n| rollout.ended(&format!("dev-{n}"), State::Succeeded));
        assert_eq!(rollout.turn(), Verdict::Done);
    }

    #[test]
    fn too_many_failures_end_it_before_the_wave_is_over() {
        let mut rollout = rollout("10,100%");
        rollout.turn();
        rollout.ended("dev-0", State::Failed);
        assert_eq!(rollout.turn(), Verdict::Under);
        rollout.ended("dev-1", State::TimedOut);
        assert_eq!(rollout.turn(), Verdict::Aborted);
        (2..10).for_each(|n| rollout.ended(&format!("dev-{n}"), State::Succeeded));
        assert_eq!(rollout.turn(), Verdict::Aborted, "it stays so");
    }

    #[test]
    fn a_device_of_a_later_wave_and_an_end_that_is_none_do_not_count() {
        let mut rollout = rollout("1,100%");
        rollout.turn();
        rollout.ended("dev-50", State::Failed);
        rollout.ended("dev-0", State::Running);
        assert_eq!(rollout.count(), (0, 0, 1));
    }
}
