//! Where a job stands, shared between the threads, and the clock of a job.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use mien_base::clock::{Clock, Mono, SystemClock, Wall};
use mien_base::wire::Stage;

use crate::{Error, Result};

/// How long a held job sleeps before it looks whether it may go on.
const HELD: Duration = Duration::from_millis(50);

/// Written by the threads that work, read by the control thread.
#[derive(Debug, Default)]
pub struct Pulse {
    stage: AtomicU8,
    /// Stages of a clip that are at work just now, not waiting for another: one bit each.
    busy: AtomicU8,
    paused: AtomicBool,
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

    /// The boundary between two frames: here a job ends when it was cancelled, and waits while it
    /// is held.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn boundary(&self) -> Result<()> {
        self.wait()?;
        while self.paused.load(Ordering::Relaxed) {
            std::thread::sleep(HELD);
            self.wait()?;
        }
        Ok(())
    }

    /// A sign of life of somebody who waits for the world outside.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn wait(&self) -> Result<()> {
        self.step();
        if self.cancelled.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Holds the job at its next boundary, or lets it go on.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// A stage of a clip is at work until the answer is dropped.
    #[must_use]
    pub fn busy(&self, stage: Stage) -> Busy<'_> {
        let bit = 1 << stage as u8;
        self.busy.fetch_or(bit, Ordering::Relaxed);
        self.step();
        Busy { pulse: self, bit }
    }

    /// A job begins or ends: nothing is known of it, nothing is cancelled or held.
    pub fn rest(&self) {
        self.paused.store(false, Ordering::Relaxed);
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

    /// Stage, steps so far, pixels. Of a clip, the first stage that is at work: when one hangs the
    /// others soon wait for it.
    #[must_use]
    pub fn read(&self) -> (Stage, u64, u64) {
        let busy = self.busy.load(Ordering::Relaxed);
        let stage = match busy {
            0 => usize::from(self.stage.load(Ordering::Relaxed)),
            busy => busy.trailing_zeros() as usize,
        };
        let stage = Stage::ALL.get(stage).copied().unwrap_or(Stage::Idle);
        (stage, self.seq.load(Ordering::Relaxed), self.pixels.load(Ordering::Relaxed))
    }
}

/// See `Pulse::busy`.
#[derive(Debug)]
pub struct Busy<'a> {
    pulse: &'a Pulse,
    bit: u8,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.pulse.busy.fetch_and(!self.bit, Ordering::Relaxed);
        self.pulse.step();
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

    fn cpu(&self) -> Duration {
        self.machine.cpu()
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
    fn the_stage_that_hangs_is_named_when_the_others_wait() {
        let pulse = Pulse::default();
        pulse.enter(Stage::Face).unwrap();
        let hung = pulse.busy(Stage::Encode);
        drop((pulse.busy(Stage::Decode), pulse.busy(Stage::Face)));
        assert_eq!(pulse.read().0, Stage::Encode);
        drop(hung);
        assert_eq!(pulse.read().0, Stage::Face);
    }

    #[test]
    fn a_held_job_waits_at_its_boundary_and_shows_that_it_lives() {
        let pulse = Pulse::default();
        pulse.pause(true);
        std::thread::scope(|scope| {
            let held = scope.spawn(|| pulse.boundary());
            let before = pulse.read().1;
            while pulse.read().1 < before + 3 {
                std::thread::yield_now();
            }
            assert!(!held.is_finished());
            pulse.pause(false);
            held.join().unwrap().unwrap();
            pulse.pause(true);
            let held = scope.spawn(|| pulse.boundary());
            pulse.cancel();
            assert!(matches!(held.join().unwrap(), Err(Error::Cancelled)));
        });
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
