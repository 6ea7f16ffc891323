//! Whether the daemon does what it was asked for, and if not, why.

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use crate::live::{PipelineStatus, State};

/// Healthy when there is no reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub healthy: bool,
    pub reasons: Vec<String>,
}

/// What is judged.
#[derive(Debug)]
pub struct Facts<'a> {
    pub pipelines: &'a [PipelineStatus],
    /// Names of those that make no progress.
    pub stalled: &'a [String],
    pub machine: &'a Machine,
    /// What else does not hold: a profile that could not be started, a broker out of reach.
    pub faults: &'a [String],
}

/// Judges; each reason names what, and says why.
#[must_use]
pub fn judge(facts: &Facts<'_>) -> Health {
    let mut reasons = Vec::new();
    for pipeline in facts.pipelines {
        let why = pipeline.why.as_deref().map_or(String::new(), |why| format!(": {why}"));
        let what = match pipeline.state {
            State::Running if facts.stalled.contains(&pipeline.name) => "makes no progress",
            State::Running => "",
            State::Starting => "is still starting",
            State::CameraLost => "has lost its camera",
            State::WorkerLost => "has lost its worker",
            State::Failed => "has failed",
            State::Stopped => "has stopped",
        };
        if !what.is_empty() {
            reasons.push(format!("pipeline {} {what}{why}", pipeline.name));
        }
        for output in &pipeline.outputs {
            if let Some(fault) = &output.fault {
                reasons.push(format!("output {} delivers nothing: {fault}", output.name));
            }
        }
    }
    for disk in &facts.machine.disks {
        if disk.free < disk.keep {
            reasons.push(format!(
                "the disk of {} has {} MiB free, {} MiB are to stay free",
                disk.folder.display(),
                disk.free >> 20,
                disk.keep >> 20
            ));
        }
    }
    reasons.extend(facts.faults.iter().cloned());
    Health { healthy: reasons.is_empty(), reasons }
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Disk, machine};
    use super::*;

    #[test]
    fn every_reason_names_what_and_why() {
        let mut machine = machine(&[]);
        let mut door = PipelineStatus::new("door", "door");
        door.state = State::Running;
        let judged = |door: &PipelineStatus, stalled: &[String], machine: &Machine| {
            judge(&Facts { pipelines: std::slice::from_ref(door), stalled, machine, faults: &[] })
                .reasons
        };
        assert!(judged(&door, &[], &machine).is_empty());
        assert_eq!(
            judged(&door, &["door".to_owned()], &machine),
            ["pipeline door makes no progress"]
        );
        door.state = State::CameraLost;
        door.why = Some("no such device".to_owned());
        machine.disks.push(Disk { folder: "/r".into(), free: 5 << 20, keep: 6 << 20 });
        assert_eq!(
            judged(&door, &[], &machine),
            [
                "pipeline door has lost its camera: no such device",
                "the disk of /r has 5 MiB free, 6 MiB are to stay free"
            ]
        );
    }
}
