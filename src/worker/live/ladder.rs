//! What becomes of a frame that nobody has looked at: from a mask that is held to nothing at all.
//!
//! ```text
//!   open ── no look in time ──▶ hold ── HELD frames, or hold_ms, or something else moved ──▶ cover
//!    ▲                                                                     │ withhold_ms
//!    └───────────────── a look that worked ◀────────────────── withhold ◀──┘
//! ```

use std::time::Duration;

use mien_base::wire::live::Patience;

/// Frames in a row for which masks are held: a face that leaves the picture is held as long.
const HELD: u32 = 4;

/// What is done with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Masks are held, grown.
    Hold,
    /// The whole frame is covered.
    Cover,
    /// It does not leave.
    Withhold,
}

/// How long nobody has looked.
#[derive(Debug, Clone, Copy)]
pub struct Ladder {
    patience: Patience,
    since: Option<Duration>,
    frames: u32,
}

impl Ladder {
    /// Somebody has just looked.
    #[must_use]
    pub const fn new(patience: Patience) -> Self {
        Self { patience, since: None, frames: 0 }
    }

    /// A look worked, or nothing moved since one did.
    pub const fn looked(&mut self) {
        (self.since, self.frames) = (None, 0);
    }

    /// A frame of which nobody knows; `elsewhere`: something moved where no face is known to be.
    pub fn unseen(&mut self, now: Duration, elsewhere: bool) -> Rung {
        let silent = now.saturating_sub(*self.since.get_or_insert(now));
        self.frames = self.frames.saturating_add(1);
        let beyond = |millis: u32| silent >= Duration::from_millis(millis.into());
        if beyond(self.patience.withhold_ms) {
            Rung::Withhold
        } else if elsewhere || self.frames > HELD || beyond(self.patience.hold_ms) {
            Rung::Cover
        } else {
            Rung::Hold
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { look_ms: 50, hold_ms: 300, withhold_ms: 2000 };

    fn at(ladder: &mut Ladder, ms: u64, elsewhere: bool) -> Rung {
        ladder.unseen(Duration::from_millis(ms), elsewhere)
    }

    #[test]
    fn masks_are_held_then_the_frame_is_covered_then_nothing_leaves() {
        let mut ladder = Ladder::new(PATIENCE);
        let rungs: Vec<Rung> = (0..8).map(|n| at(&mut ladder, 1000 + n * 33, false)).collect();
        assert_eq!(rungs, [[Rung::Hold; 4], [Rung::Cover; 4]].concat());
        assert_eq!(at(&mut ladder, 2999, false), Rung::Cover);
        assert_eq!(at(&mut ladder, 3000, false), Rung::Withhold);
        ladder.looked();
        assert_eq!(at(&mut ladder, 3010, false), Rung::Hold);
    }

    #[test]
    fn slow_frames_are_not_held_longer_than_quick_ones() {
        let mut ladder = Ladder::new(PATIENCE);
        let rungs = [0, 200, 400].map(|ms| at(&mut ladder, ms, false));
        assert_eq!(rungs, [Rung::Hold, Rung::Hold, Rung::Cover]);
    }

    #[test]
    fn what_moves_where_no_face_is_known_may_be_one() {
        let mut ladder = Ladder::new(PATIENCE);
        assert_eq!(at(&mut ladder, 0, true), Rung::Cover);
        assert_eq!(at(&mut ladder, 10, false), Rung::Hold);
    }
}
