//! Whether the frame loops get on: what systemd's watchdog is fed by.

use std::collections::BTreeMap;
use std::time::Duration;

use mien_base::clock::Mono;

use crate::live::{PipelineStatus, State};

/// When each pipeline got on last.
#[derive(Debug, Default)]
pub struct Pulse {
    seen: BTreeMap<String, (u64, Mono)>,
}

impl Pulse {
    /// Looks at all pipelines; those that made no progress for `stall`, though they should.
    ///
    /// A pipeline without its camera, or whose worker is started anew, is looked after by its own
    /// thread, and that is told by its health; it must not make systemd end all the others.
    pub fn stalled(
        &mut self,
        pipelines: &[PipelineStatus],
        now: Mono,
        stall: Duration,
    ) -> Vec<String> {
        self.seen.retain(|name, _| pipelines.iter().any(|pipeline| pipeline.name == *name));
        let mut stalled = Vec::new();
        for pipeline in pipelines {
            let counted = pipeline.moved.wrapping_add(pipeline.stats.captured);
            let seen = self.seen.entry(pipeline.name.clone()).or_insert((counted, now));
            if seen.0 != counted || !matches!(pipeline.state, State::Running) {
                *seen = (counted, now);
            } else if now.since(seen.1) > stall {
                stalled.push(pipeline.name.clone());
            }
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    #[test]
    fn a_pipeline_that_runs_without_frames_is_stalled_and_one_without_camera_is_not() {
        let mut pulse = Pulse::default();
        let stall = Duration::from_secs(10);
        let mut door = PipelineStatus::new("door", "door");
        let mut hall = PipelineStatus::new("hall", "hall");
        (door.state, hall.state) = (State::Running, State::CameraLost);
        let mut look = |door: &PipelineStatus, hall: &PipelineStatus, s| {
            pulse.stalled(&[door.clone(), hall.clone()], at(s), stall)
        };
        assert!(look(&door, &hall, 0).is_empty());
        assert!(look(&door, &hall, 10).is_empty());
        assert_eq!(look(&door, &hall, 11), ["door"]);
        door.moved += 1;
        assert!(look(&door, &hall, 12).is_empty(), "one frame is enough");
        hall.state = State::Running;
        assert!(look(&door, &hall, 22).is_empty(), "it counts from when it runs");
        assert_eq!(look(&door, &hall, 23), ["door", "hall"]);
    }
}
