//! Which version of each model serves, which one before it, and how far back one may go.
//!
//! ```text
//! installed ──activate──▶ active ──activate another──▶ previous ──▶ removed
//!                            ▲────────rollback────────────┘
//! ```
//! One small file, replaced as a whole: at any instant it names one active version or none.

use std::collections::BTreeMap;
use std::path::Path;

use mien_base::id::ModelId;
use mien_base::limits;
use mien_base::model::Role;
use serde::{Deserialize, Serialize};

use crate::errors::{Error, Result};
use crate::files;
use crate::manifest::Version;

/// The versions of one model that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    #[serde(default)]
    pub active: Option<Version>,
    #[serde(default)]
    pub previous: Option<Version>,
}

/// What is remembered of the installed models.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slots {
    #[serde(default)]
    pub models: BTreeMap<ModelId, Slot>,
    /// The model that a user chose for a role: it is that role's default.
    #[serde(default)]
    pub preferred: BTreeMap<Role, ModelId>,
    /// The highest `security_version` that was ever active; it outlives the model.
    #[serde(default)]
    pub floors: BTreeMap<ModelId, u64>,
}

impl Slots {
    /// Reads the file; nothing is remembered when there is none.
    ///
    /// # Errors
    /// `Exposed`, `Damaged`, `TooLarge`, `Io`.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let bytes = files::read_own(path, limits::TEXT_FILE, files::Own::Written)?;
        let damaged = |error: serde_json::Error| {
            let why = error.to_string();
            Error::Damaged { path: path.to_owned(), why }
        };
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self).expect("names and numbers are JSON");
        text.push(b'\n');
        files::replace(path, &text)
    }

    /// The slot of a model.
    #[must_use]
    pub fn slot(&self, id: &ModelId) -> Slot {
        self.models.get(id).copied().unwrap_or_default()
    }

    /// The least `security_version` that a model may have.
    #[must_use]
    pub fn floor(&self, id: &ModelId) -> u64 {
        self.floors.get(id).copied().unwrap_or(0)
    }

    /// Puts a version into use; `chosen` makes the model its role's default as well.
    pub fn activate(
        &mut self,
        id: &ModelId,
        version: Version,
        security: u64,
        chosen: Option<Role>,
    ) {
        let slot = self.models.entry(id.clone()).or_default();
        if slot.active != Some(version) {
            slot.previous = slot.active.replace(version);
        }
        if let Some(role) = chosen {
            self.preferred.insert(role, id.clone());
        }
        let floor = self.floors.entry(id.clone()).or_default();
        *floor = security.max(*floor);
    }

    /// Forgets a model, but not how far back one may go.
    pub fn remove(&mut self, id: &ModelId) {
        self.models.remove(id);
        self.preferred.retain(|_, preferred| preferred != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activation_keeps_the_one_before_and_the_floor_never_falls() {
        let id: ModelId = "m".parse().unwrap();
        let mut slots = Slots::default();
        let version = |minor| Version(1, minor, 0);
        slots.activate(&id, version(0), 3, Some(Role::Gate));
        slots.activate(&id, version(1), 5, None);
        slots.activate(&id, version(1), 5, None);
        assert_eq!(slots.preferred.get(&Role::Gate), Some(&id));
        let slot = slots.slot(&id);
        assert_eq!((slot.active, slot.previous), (Some(version(1)), Some(version(0))));
        slots.activate(&id, version(0), 3, None);
        assert_eq!(slots.floor(&id), 5);
        slots.remove(&id);
        assert_eq!((slots.floor(&id), slots.slot(&id)), (5, Slot::default()));
        assert!(slots.preferred.is_empty());
    }
}
