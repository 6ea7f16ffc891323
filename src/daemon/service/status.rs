//! How the daemon stands, as `mien status` and the fleet are told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use crate::live::PipelineStatus;
use crate::telemetry::{Health, Machine};

/// The whole daemon.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    pub version: &'static str,
    pub device: String,
    /// Wall time of the start.
    pub since: String,
    pub uptime_s: u64,
    pub config: PathBuf,
    /// SHA-256 of the configuration that holds.
    pub config_digest: String,
    /// Times that a configuration was applied.
    pub reloads: u64,
    pub profile: Option<String>,
    pub health: Health,
    pub pipelines: Vec<PipelineStatus>,
    pub machine: Machine,
    /// Jobs, the fleet.
    pub parts: BTreeMap<&'static str, Value>,
}

impl Status {
    /// One line, for systemd.
    #[must_use]
    pub fn line(&self) -> String {
        let running = self
            .pipelines
            .iter()
            .filter(|pipeline| pipeline.state == crate::live::State::Running)
            .count();
        let mut line = format!("{running} of {} pipelines run", self.pipelines.len());
        if let Some(profile) = &self.profile {
            line.push_str(&format!(", profile {profile}"));
        }
        match self.health.reasons.as_slice() {
            [] => {}
            [one] => line.push_str(&format!("; {one}")),
            [one, rest @ ..] => line.push_str(&format!("; {one}, and {} more", rest.len())),
        }
        line
    }
}
