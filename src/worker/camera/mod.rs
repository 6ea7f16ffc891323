//! Where live frames come from: cameras of the kernel, clips and patterns in their place.

pub mod v4l2;
pub mod clip;
pub mod pattern;

use std::time::Duration;

use mien_base::wire::live::Delivers;
use mien_pixels::i420::I420;
use rustix::time::{ClockId, clock_gettime};

use v4l2::Failed;

/// What is known of a frame beside its pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shot {
    /// Grows with each frame that the camera made; what is left out was lost.
    pub sequence: u64,
    /// When it was taken, on the monotonic clock of the machine, where the camera says.
    pub at: Option<Duration>,
    /// When it was fetched, on the same clock.
    pub fetched: Duration,
}

/// The monotonic clock of the machine, by which drivers stamp their frames.
#[must_use]
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Why a frame is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("the driver marked it as damaged")]
    Marked,
    #[error("it is shorter than its format says")]
    Short,
    #[error("its JPEG has no beginning or no end")]
    Torn,
    #[error("its JPEG does not decode")]
    Undecodable,
    #[error("its JPEG has another size than the camera said")]
    Resized,
}

/// Why no frame came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// This frame is left out; the next may be fine.
    #[error("a frame was left out: {0}")]
    Damaged(Damage),
    /// Frames come, and the driver says that nothing is connected: they show noise.
    #[error("the camera has no signal")]
    NoSignal,
    #[error("no frame came in {millis} ms")]
    Silent { millis: u64 },
    /// The device was unplugged or its driver taken away.
    #[error("the camera is gone")]
    Gone,
    #[error("{0}")]
    Driver(#[from] Failed),
    /// It can't deliver what is asked for, or nothing that is read here.
    #[error("{detail}")]
    Unusable { detail: String },
    /// A clip in its place can't be read.
    #[error("the clip can't be played: {detail}")]
    Clip { detail: String },
}

impl Fault {
    /// Only this frame is lost: nothing needs to be done.
    #[must_use]
    pub const fn passes(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::NoSignal)
    }

    /// A short name for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Damaged(Damage::Marked) => "marked as damaged",
            Self::Damaged(Damage::Short) => "too short",
            Self::Damaged(_) => "damaged JPEG",
            Self::NoSignal => "no signal",
            Self::Silent { .. } => "silent",
            Self::Gone => "gone",
            Self::Driver(_) => "driver",
            Self::Unusable { .. } => "unusable",
            Self::Clip { .. } => "clip",
        }
    }
}

/// A source of frames that come in their own time.
pub trait FrameSource: Send {
    /// What it delivers.
    fn delivers(&self) -> &Delivers;

    /// The next frame into a frame of the pool; waits no longer than `most`.
    ///
    /// # Errors
    /// `Fault`; after one that does not pass, `reopen` comes next.
    fn next(&mut self, into: &mut I420, most: Duration) -> Result<Shot, Fault>;

    /// Begins anew on the same device.
    ///
    /// # Errors
    /// `Fault`.
    fn reopen(&mut self) -> Result<(), Fault>;
}

/// Counts on where 32 bits wrap, repeats do not count, and a driver that begins anew goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequence {
    last: Option<u32>,
    count: u64,
}

impl Sequence {
    /// The number of the next frame.
    pub fn next(&mut self, number: u32) -> u64 {
        let step = match self.last {
            None => 0,
            Some(last) => match number.wrapping_sub(last) {
                // The same number again, or one from before.
                0 => 1,
                step if step < 1 << 31 => u64::from(step),
                _ => 1,
            },
        };
        self.last = Some(number);
        self.count += step;
        self.count
    }

    /// The driver begins anew: the next number says nothing about what was lost.
    pub fn restart(&mut self) {
        if self.last.take().is_some() {
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_repeat_and_begin_anew_and_time_goes_on() {
        let mut sequence = Sequence::default();
        let first = u32::MAX - 1;
        let seen: Vec<u64> = [first, first, u32::MAX, 0, 3, 1].map(|n| sequence.next(n)).to_vec();
        assert_eq!(seen, [0, 1, 2, 3, 6, 7]);
        sequence.restart();
        assert_eq!([0, 1].map(|n| sequence.next(n)), [8, 9]);
    }
}
