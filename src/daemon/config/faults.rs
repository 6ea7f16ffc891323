//! What is wrong with a configuration file: every fault, with its place and what is allowed.

use std::fmt;
use std::path::PathBuf;

/// One thing that can't be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// From 1; 0 where no line is to blame.
    pub line: usize,
    /// For example `camera.door.fps`; empty where no key is to blame.
    pub key: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// All faults of one file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    pub file: PathBuf,
    pub faults: Vec<Fault>,
}

/// Most faults of one file that are told.
pub(super) const TOLD: usize = 64;

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, count) = (self.file.display(), self.faults.len());
        write!(f, "The configuration `{file}` can't be used; {count} fault")?;
        f.write_str(if count == 1 { "" } else { "s" })?;
        for fault in &self.faults {
            write!(f, "\n  {file}")?;
            if fault.line > 0 {
                write!(f, ":{}", fault.line)?;
            }
            f.write_str(": ")?;
            if !fault.key.is_empty() {
                write!(f, "{}: ", fault.key)?;
            }
            f.write_str(&fault.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
