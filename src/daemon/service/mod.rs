//! `mien run`: holds the pipelines, the jobs and the fleet, and answers on its control socket.
//!
//! ```text
//!   start ──▶ lock ─▶ record ─▶ parts ─▶ pipelines ─▶ control, metrics ─▶ READY
//!                                          │
//!   loop, once a second ◀──────────────────┘
//!     profile of the time ─▶ pipelines        progress ─▶ watchdog, health, status, metrics
//!     SIGHUP, `reload` ─▶ check ─▶ change what differs ─▶ on a fault back to what was
//!   SIGTERM ──▶ control ─▶ pipelines ─▶ parts ─▶ record ─▶ end      (the way back, a line each)
//! ```

mod lock;
mod wanted;
mod lines;
mod protocol;
mod control;
mod client;
mod status;
mod reload;
mod keep;
mod run;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::Result;
use crate::config::Config;

pub use crate::live::{Line, Lines, Wanted};
pub use client::ask;
pub use control::Peer;
pub use keep::KeepRecord;
pub use lock::Lock;
pub use protocol::{Answer, Request, Steer};
pub use run::{Parts, Service};
pub use status::Status;

/// Something that runs beside the pipelines: jobs, the fleet.
pub trait Part: Send {
    /// As the status and the log name it.
    fn name(&self) -> &'static str;

    /// From now on as the new configuration says.
    ///
    /// # Errors
    /// When it can't be; then it goes on as it was.
    fn reload(&mut self, config: &Config) -> Result<()>;

    /// How it stands.
    fn status(&self) -> Value;

    /// Why it does not do what it should, if so.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends it.
    fn stop(self: Box<Self>);
}

/// Answers verbs of the control socket that belong to a part: `job.submit`, `job.list`.
pub trait Handler: Send + Sync {
    /// Answers.
    ///
    /// # Errors
    /// As it is told to whoever asked.
    fn answer(&self, peer: Peer, verb: &str, args: &Value) -> Result<Value>;
}
