//! A new configuration from afar: checked, written, applied, looked at, and taken back when it harms.
//!
//! ```text
//!   text ─▶ check ─▶ write ─▶ reload ─▶ healthy for a while ─▶ it stays
//!                       ▲        │ refused        │ new faults
//!                       └────────┴── what was ◀───┘
//! ```

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mien_base::error::ErrorKind;
use serde_json::{Value, json};

use crate::config::Config;
use crate::contract::{Reason, Refusal};
use crate::service::ask;

/// How long the device is looked at after a change.
const WATCHED: Duration = Duration::from_secs(5);
/// How often.
const LOOK: Duration = Duration::from_millis(500);

/// Changes the configuration of the running daemon.
#[derive(Debug)]
pub struct Change {
    path: PathBuf,
    home: PathBuf,
    /// One change at a time.
    turn: Mutex<()>,
}

fn invalid(detail: impl Into<String>) -> Refusal {
    Refusal::at(Reason::InvalidRequest, "/params/config", detail)
}

fn cut(text: &str) -> String {
    text.chars().take(600).collect()
}

impl Change {
    /// Of the daemon with this configuration file and home.
    #[must_use]
    pub fn new(path: &Path, home: &Path) -> Self {
        // As it is read: what is relative in it stands beside the file.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, home: home.to_owned(), turn: Mutex::new(()) }
    }

    /// The configuration as it stands in its file.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn config(&self) -> Result<Config, Refusal> {
        Config::load(&self.path).map_err(|_| {
            Refusal::new(Reason::Unavailable, "the file of the configuration has faults")
        })
    }

    /// Asks the daemon.
    ///
    /// # Errors
    /// `Unavailable`, `Internal`.
    pub fn ask(&self, verb: &str, args: Value) -> Result<Value, Refusal> {
        let socket = self.config()?.control.socket;
        let socket = socket.unwrap_or_else(|| self.home.join("control.sock"));
        ask(&socket, verb, args).map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::Unreachable | ErrorKind::Late => Reason::Internal,
                other => Reason::of_error(other),
            };
            Refusal::new(reason, cut(&error.to_string()))
        })
    }

    /// Reads a text as the configuration; what cuts the device off from its fleet can't be changed
    /// from there.
    ///
    /// # Errors
    /// `InvalidRequest` with all faults, `Unauthorized`.
    pub fn check(&self, text: &str) -> Result<(), Refusal> {
        let new =
            Config::parse(&self.path, text).map_err(|faults| invalid(cut(&faults.to_string())))?;
        let now = self.config()?;
        let parts = [
            ("fleet", new.fleet == now.fleet),
            ("jobs", new.jobs == now.jobs),
            ("control", new.control == now.control),
        ];
        if let Some((name, _)) = parts.iter().find(|(_, same)| !same) {
            let detail = format!("[{name}] can only be changed at the machine itself");
            return Err(Refusal::at(Reason::Unauthorized, "/params/config", detail));
        }
        Ok(())
    }

    fn unhealthy(&self) -> Result<Vec<String>, Refusal> {
        let health = self.ask("health", Value::Null)?;
        let reasons = health["reasons"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(reasons.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    fn reload(&self) -> Result<Value, Refusal> {
        self.ask("reload", Value::Null)
            .map_err(|refusal| Refusal { reason: Reason::CanaryFailed, ..refusal })
    }

    /// Applies it; after a fault the device is as it was. `stop` ends the watch early, as a fault.
    ///
    /// # Errors
    /// As `check`; `OutputUnwritable`, `CanaryFailed`.
    pub fn apply(&self, text: &str, stop: &dyn Fn() -> bool) -> Result<Value, Refusal> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.check(text)?;
        let unwritable =
            |error: std::io::Error| Refusal::new(Reason::OutputUnwritable, error.to_string());
        let old = fs::read(&self.path).map_err(unwritable)?;
        let before = self.unhealthy()?;
        replace(&self.path, text.as_bytes()).map_err(unwritable)?;
        let outcome = self.reload().and_then(|done| self.watch(&before, stop).map(|()| done));
        if outcome.is_err() {
            replace(&self.path, &old).map_err(unwritable)?;
            // What was held a moment ago.
            self.reload()?;
        }
        outcome
    }

    fn watch(&self, before: &[String], stop: &dyn Fn() -> bool) -> Result<(), Refusal> {
        let mut new = Vec::new();
        for _ in 0..WATCHED.as_millis() / LOOK.as_millis() {
            std::thread::sleep(LOOK);
            if stop() {
                return Err(Refusal::new(
                    Reason::Cancelled,
                    "ended before it was known to be good",
                ));
            }
            new = self.unhealthy()?;
            new.retain(|reason| !before.contains(reason));
        }
        if new.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(Reason::CanaryFailed, cut(&new.join("; "))))
    }

    /// Brings the device to a desired state: a table with `config`.
    ///
    /// # Errors
    /// As `apply`.
    pub fn desire(&self, desired: &serde_json::Map<String, Value>) -> Result<Value, Refusal> {
        if let Some(key) = desired.keys().find(|key| *key != "config") {
            let detail = "a desired state holds `config`, the whole configuration as text";
            return Err(Refusal::at(Reason::InvalidRequest, format!("/desired/{key}"), detail));
        }
        let text = desired.get("config").and_then(Value::as_str);
        let text = text.ok_or_else(|| {
            Refusal::at(Reason::InvalidRequest, "/desired/config", "must be text")
        })?;
        let done = self.apply(text, &|| false)?;
        Ok(json!({ "config": done["config"], "changes": done["changes"] }))
    }
}

/// A file as a whole, or as it was.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let part = path.with_extension("toml.part");
    let mut file = fs::File::create(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    if let Ok(meta) = fs::metadata(path) {
        fs::set_permissions(&part, meta.permissions())?;
    }
    fs::rename(&part, path)?;
    match path.parent().map(fs::File::open) {
        Some(folder) => folder?.sync_all(),
        None => Ok(()),
    }
}
