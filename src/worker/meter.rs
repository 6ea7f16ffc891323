//! Where a job stands, shared between the threads, and the clock of a job.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use mien_base::clock::{Clock, Mono, SystemClock, Wall};
use mien_base::wire::Stage;

use crate::{Error, Result};

/// Written by the compute thread, read by the control thread.
#[derive(Debug, Default)]
pub struct Pulse {
    stage: AtomicU8,
    seq: AtomicU64,
    pixels: AtomicU64,
    cancelled: AtomicBool,
}

impl Pulse {
    /// Enters a stage, unless the job was cancelled.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn enter(&self, stage: Stage) -> Result<()> {
        self.stage.store(stage as u8, Ordering::Relaxed);
        self.step();
        if self.cancelled.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// A job begins or ends: nothing is known of it, nothing is cancelled.
    pub fn rest(&self) {
        self.stage.store(Stage::Idle as u8, Ordering::Relaxed);
        self.pixels.store(0, Ordering::Relaxed);
        self.cancelled.store(false, Ordering::Relaxed);
        self.step();
    }

    /// Says how large the picture is.
    pub fn pixels(&self, pixels: u64) {
        self.pixels.store(pixels, Ordering::Relaxed);
    }

    /// The job at hand ends at its next stage.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn step(&self) {
        self.seq.fetch_add(1, Ordering::Relaxed);
    }

    /// Stage, steps so far, pixels.
    #[must_use]
    pub fn read(&self) -> (Stage, u64, u64) {
        let stage = usize::from(self.stage.load(Ordering::Relaxed));
        let stage = Stage::ALL.get(stage).copied().unwrap_or(Stage::Idle);
        (stage, self.seq.load(Ordering::Relaxed), self.pixels.load(Ordering::Relaxed))
    }
}

/// The clock of one job: its wall time stands still, so that the same job gives the same bytes, and
/// each look at the monotonic clock counts as a sign of life.
#[derive(Debug, Clone, Copy)]
pub struct JobClock<'a> {
    pulse: &'a Pulse,
    machine: SystemClock,
    wall: Wall,
}

impl<'a> JobClock<'a> {
    /// A clock at the wall time of the job.
    #[must_use]
    pub fn new(pulse: &'a Pulse, machine: SystemClock, wall: Wall) -> Self {
        Self { pulse, machine, wall }
    }
}

impl Clock for JobClock<'_> {
    fn mono(&self) -> Mono {
        self.pulse.step();
        self.machine.mono()
    }

    fn wall(&self) -> Wall {
        self.wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_job_ends_at_the_next_stage_and_the_next_job_does_not() {
        let pulse = Pulse::default();
        pulse.enter(Stage::Decode).unwrap();
        pulse.cancel();
        assert!(matches!(pulse.enter(Stage::Face), Err(Error::Cancelled)));
        pulse.rest();
        pulse.enter(Stage::Decode).unwrap();
    }

    #[test]
    fn a_look_at_the_clock_is_a_sign_of_life_and_the_wall_stands_still() {
        let pulse = Pulse::default();
        let clock = JobClock::new(&pulse, SystemClock::start(), Wall(5));
        let before = pulse.read().1;
        clock.mono();
        assert_eq!(pulse.read().1, before + 1);
        assert_eq!(clock.wall(), Wall(5));
    }

    #[test]
    fn every_stage_reads_back_as_itself() {
        let pulse = Pulse::default();
        for stage in Stage::ALL {
            pulse.enter(stage).unwrap();
            assert_eq!(pulse.read().0, stage);
        }
    }
}
