//! The kinds of jobs: who may order one, what it works on, what it needs for itself.

use mien_vault::trust::KeyRole;
use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($name:ident $word:literal $role:ident $room:ident $key:expr, $seconds:literal;)*) => {
        /// What a job does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Kind { $(#[serde(rename = $word)] $name,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Their words, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];

            /// Its word in documents and in the database.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The role of a key that may order it.
            #[must_use]
            pub const fn role(self) -> KeyRole {
                match self { $(Self::$name => KeyRole::$role,)* }
            }

            /// What it takes for itself while it runs.
            #[must_use]
            pub const fn room(self) -> Room {
                match self { $(Self::$name => Room::$room,)* }
            }

            /// The parameter that names what it works on; jobs on the same thing keep their order.
            #[must_use]
            pub const fn order_by(self) -> Option<&'static str> {
                match self { $(Self::$name => $key,)* }
            }

            /// Time for the whole when the document says none, in seconds.
            #[must_use]
            pub const fn seconds(self) -> u32 {
                match self { $(Self::$name => $seconds,)* }
            }
        }
    };
}

/// What a job takes for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// Little: runs beside others.
    Light,
    /// The worker: one at a time.
    Worker,
    /// The whole device: everything else ends first.
    Device,
}

kinds! {
    PipelineStart   "pipeline.start"   Operate Light  Some("pipeline"), 60;
    PipelineStop    "pipeline.stop"    Operate Light  Some("pipeline"), 60;
    PipelineUpdate  "pipeline.update"  Operate Light  Some("pipeline"), 60;
    CameraProbe     "camera.probe"     Operate Light  Some("camera"), 60;
    ClipProcess     "clip.process"     Operate Worker None, 86400;
    ImageProcess    "image.process"    Operate Worker None, 600;
    SourceEnrol     "source.enrol"     Consent Worker Some("source"), 600;
    SourceForget    "source.forget"    Consent Light  Some("source"), 600;
    ConsentRevoke   "consent.revoke"   Consent Light  Some("record_id"), 60;
    ModelInstall    "model.install"    Models  Light  Some("slot"), 7200;
    ModelActivate   "model.activate"   Models  Worker Some("slot"), 3600;
    ModelRollback   "model.rollback"   Models  Light  Some("slot"), 600;
    ModelRemove     "model.remove"     Models  Light  Some("slot"), 600;
    EngineBuild     "engine.build"     Models  Light  Some("slot"), 14400;
    SnapshotTake    "snapshot.take"    Operate Light  Some("camera"), 60;
    BenchmarkRun    "benchmark.run"    Operate Worker None, 3600;
    SelftestRun     "selftest.run"     Operate Worker None, 600;
    ConfigUpdate    "config.update"    Operate Light  None, 120;
    ProfileActivate "profile.activate" Operate Light  None, 60;
    LogLevel        "log.level"        Operate Light  None, 86400;
    LogUpload       "log.upload"       Operate Light  None, 3600;
    DiagBundle      "diag.bundle"      Operate Light  None, 3600;
    AuditExport     "audit.export"     Operate Light  None, 3600;
    MediaPurge      "media.purge"      Operate Light  None, 3600;
    KeyRotate       "key.rotate"       Operate Device None, 3600;
    PowerMode       "power.mode"       Operate Device None, 300;
    DeviceReboot    "device.reboot"    Operate Device None, 600;
    DeviceUpdate    "device.update"    Update  Device None, 14400;
    DeviceRollback  "device.rollback"  Update  Device None, 3600;
}

impl Kind {
    /// The kind of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// True for jobs that must say in which boot they are meant.
    #[must_use]
    pub const fn needs_boot(self) -> bool {
        matches!(self, Self::DeviceReboot | Self::DeviceUpdate | Self::DeviceRollback)
    }

    /// True for jobs that must say how long they may take.
    #[must_use]
    pub const fn needs_timeout(self) -> bool {
        matches!(self, Self::ClipProcess)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// Which job goes first: the device's promise to cameras before clips before the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Qos {
    Gold,
    #[default]
    Silver,
    Bronze,
}

impl Qos {
    /// Their words, the first one first served.
    pub const WORDS: &'static [&'static str] = &["gold", "silver", "bronze"];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gold => "gold",
            Self::Silver => "silver",
            Self::Bronze => "bronze",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_29_kinds_and_each_is_found_by_its_word() {
        assert_eq!(Kind::ALL.len(), 29);
        for (kind, word) in Kind::ALL.iter().zip(Kind::WORDS) {
            assert_eq!(Kind::of(word), Some(*kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), *word);
        }
        assert_eq!(Kind::of("shell.run"), None);
    }
}
