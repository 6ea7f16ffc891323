//! How long a stage may be silent: learned from what it took before, never under a floor.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mien_base::wire::Stage;

/// Steps that are remembered of each stage.
const REMEMBERED: usize = 256;
/// Steps before a stage's own figures count.
const ENOUGH: usize = 20;
/// Pixels of a picture of which nothing is known yet.
const UNKNOWN: u64 = mien_base::limits::PICTURE_PIXELS;

/// Bounds of the deadline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hang {
    /// Multiple of the 99th percentile of a step.
    pub factor: f32,
    pub least: Duration,
    /// Also what holds before enough is known, and on a second try.
    pub most: Duration,
}

impl Default for Hang {
    fn default() -> Self {
        Self { factor: 8.0, least: Duration::from_secs(2), most: Duration::from_secs(60) }
    }
}

/// What the steps of each stage took: seconds, and seconds per megapixel.
///
/// Some steps grow with the picture, some (a model's run) do not; the longer of both counts.
#[derive(Debug, Default)]
pub(super) struct Pace {
    steps: BTreeMap<Stage, VecDeque<(f32, f32)>>,
}

fn megapixels(pixels: u64) -> f32 {
    (pixels as f32 / 1e6).max(1.0)
}

impl Pace {
    /// A step of a stage took this long.
    pub(super) fn learn(&mut self, stage: Stage, pixels: u64, took: Duration) {
        let steps = self.steps.entry(stage).or_default();
        if steps.len() == REMEMBERED {
            steps.pop_front();
        }
        let seconds = took.as_secs_f32();
        steps.push_back((seconds, seconds / megapixels(pixels)));
    }

    /// How long a step of a stage may take now; `pixels` is 0 when not known.
    #[must_use]
    pub(super) fn deadline(&self, hang: &Hang, stage: Stage, pixels: u64) -> Duration {
        let Some(steps) = self.steps.get(&stage).filter(|s| s.len() >= ENOUGH) else {
            return hang.most;
        };
        let pixels = if pixels == 0 { UNKNOWN } else { pixels };
        let plain = p99(steps.iter().map(|step| step.0));
        let grown = p99(steps.iter().map(|step| step.1)) * megapixels(pixels);
        let span = hang.factor * plain.max(grown);
        Duration::try_from_secs_f32(span).unwrap_or(hang.most).clamp(hang.least, hang.most)
    }
}

fn p99(steps: impl Iterator<Item = f32>) -> f32 {
    let mut sorted: Vec<f32> = steps.collect();
    sorted.sort_by(f32::total_cmp);
    let rank = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(ms: u64, pixels: u64) -> Pace {
        let mut pace = Pace::default();
        for _ in 0..ENOUGH {
            pace.learn(Stage::Face, pixels, Duration::from_millis(ms));
        }
        pace
    }

    #[test]
    fn before_enough_is_known_the_bound_holds() {
        let hang = Hang::default();
        assert_eq!(Pace::default().deadline(&hang, Stage::Face, 1), hang.most);
        let mut few = Pace::default();
        few.learn(Stage::Face, 1, Duration::from_millis(1));
        assert_eq!(few.deadline(&hang, Stage::Face, 1), hang.most);
    }

    #[test]
    fn a_quick_stage_has_the_floor_and_a_slow_one_its_multiple() {
        let hang = Hang::default();
        assert_eq!(learned(5, 1).deadline(&hang, Stage::Face, 1_000_000), hang.least);
        assert_eq!(learned(500, 1).deadline(&hang, Stage::Face, 1_000_000), Duration::from_secs(4));
        assert_eq!(learned(500, 1).deadline(&hang, Stage::Decode, 1), hang.most);
    }

    #[test]
    fn a_large_picture_has_longer_than_the_small_ones_before_it() {
        let hang = Hang::default();
        let pace = learned(100, 1_000_000);
        let span = pace.deadline(&hang, Stage::Face, 20_000_000);
        assert!((span.as_secs_f32() - 16.0).abs() < 0.01, "{span:?}");
        assert!(pace.deadline(&hang, Stage::Face, 0) > span);
    }

    #[test]
    fn a_small_picture_has_as_long_as_the_large_ones_before_it_took() {
        let span = learned(1000, 10_000_000).deadline(&Hang::default(), Stage::Face, 1_000_000);
        assert_eq!(span, Duration::from_secs(8));
    }

    #[test]
    fn a_rare_slow_step_counts_only_above_one_in_a_hundred() {
        let mut pace = Pace::default();
        for i in 0..200 {
            let ms = if i == 7 { 10_000 } else { 500 };
            pace.learn(Stage::Face, 1, Duration::from_millis(ms));
        }
        assert_eq!(pace.deadline(&Hang::default(), Stage::Face, 1), Duration::from_secs(4));
    }
}
