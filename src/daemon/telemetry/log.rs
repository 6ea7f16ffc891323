//! The log: one line an event on standard error, as journald or a collector of JSON reads it.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use mien_base::clock::Clock;
use serde_json::{Map, Value};

use crate::config::{Level, LogFormat};

/// Where lines go, and which.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Mutex<Shared>>,
    clock: Arc<dyn Clock>,
}

struct Shared {
    format: LogFormat,
    level: Level,
    to: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

/// Longest line; longer is cut.
const LONGEST: usize = 8 << 10;

impl Log {
    /// To standard error.
    #[must_use]
    pub fn new(format: LogFormat, level: Level, clock: Arc<dyn Clock>) -> Self {
        Self::to(format, level, clock, Box::new(std::io::stderr()))
    }

    /// To anything.
    #[must_use]
    pub fn to(
        format: LogFormat,
        level: Level,
        clock: Arc<dyn Clock>,
        to: Box<dyn Write + Send>,
    ) -> Self {
        Self { shared: Arc::new(Mutex::new(Shared { format, level, to })), clock }
    }

    /// From now on in this form and from this level on.
    pub fn set(&self, format: LogFormat, level: Level) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        (shared.format, shared.level) = (format, level);
    }

    /// Something that was asked for did not happen.
    pub fn error(&self, message: &str, fields: &[(&str, &dyn std::fmt::Display)]) {
        self.line(Level::Error, message, fields);
    }

    /// Something unusual; the work goes on.
    pub fn warn(&self, message: &str, fields: &[(&str, &dyn std::fmt::Display)]) {
        self.line(Level::Warn, message, fields);
    }

    /// A rare change of state.
    pub fn info(&self, message: &str, fields: &[(&str, &dyn std::fmt::Display)]) {
        self.line(Level::Info, message, fields);
    }

    /// For whoever looks for a fault.
    pub fn debug(&self, message: &str, fields: &[(&str, &dyn std::fmt::Display)]) {
        self.line(Level::Debug, message, fields);
    }

    fn line(&self, level: Level, message: &str, fields: &[(&str, &dyn std::fmt::Display)]) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if level > shared.level {
            return;
        }
        let (number, word) = match level {
            Level::Error => (3, "error"),
            Level::Warn => (4, "warn"),
            Level::Info => (6, "info"),
            Level::Debug => (7, "debug"),
        };
        let mut line = String::with_capacity(128);
        match shared.format {
            LogFormat::Json => {
                let mut object = Map::new();
                object.insert("time".to_owned(), self.clock.wall().to_string().into());
                object.insert("level".to_owned(), word.into());
                object.insert("message".to_owned(), message.into());
                for (key, value) in fields {
                    object.insert((*key).to_owned(), cut(&value.to_string()).into());
                }
                line = Value::Object(object).to_string();
            }
            LogFormat::Journald => {
                let _ = write!(line, "<{number}>");
                plain(&mut line, message, fields);
            }
            LogFormat::Plain => {
                let _ = write!(line, "{} {word:5} ", self.clock.wall());
                plain(&mut line, message, fields);
            }
        }
        line.push('\n');
        // A closed standard error is nobody listening.
        let _ = shared.to.write_all(line.as_bytes()).and_then(|()| shared.to.flush());
    }
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST / 4).collect()
}

/// The message and its fields on one line: what breaks lines or drives a terminal is shown.
fn plain(line: &mut String, message: &str, fields: &[(&str, &dyn std::fmt::Display)]) {
    let tame = |line: &mut String, text: &str| {
        for c in text.chars().take(LONGEST / 4) {
            if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
        }
    };
    tame(line, message);
    for (key, value) in fields {
        let _ = write!(line, " {key}=");
        let value = value.to_string();
        let quoted = value.is_empty() || value.contains([' ', '"', '=']);
        if quoted {
            line.push('"');
            tame(line, &value.replace('"', "\\\""));
            line.push('"');
        } else {
            tame(line, &value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::clock::{ManualClock, Wall};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn said(format: LogFormat, say: impl Fn(&Log)) -> String {
        let kept = Kept::default();
        let clock = Arc::new(ManualClock::at(Wall(1_796_063_974)));
        say(&Log::to(format, Level::Info, clock, Box::new(kept.clone())));
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_form_says_level_message_and_fields_on_one_line() {
        let say = |log: &Log| {
            log.warn("camera\nlost", &[("camera", &"door"), ("why", &"no \"such\"\x1b device")]);
            log.debug("not shown", &[]);
        };
        assert_eq!(
            said(LogFormat::Journald, say),
            "<4>camera\\nlost camera=door why=\"no \\\"such\\\"\\u{1b} device\"\n"
        );
        assert!(said(LogFormat::Plain, say).starts_with("2026-11-30T18:39:34Z warn  camera"));
        let json = said(LogFormat::Json, say);
        let value: Value = serde_json::from_str(json.trim_end()).unwrap();
        assert_eq!(value["level"], "warn");
        assert_eq!(value["why"], "no \"such\"\u{1b} device");
        assert_eq!(json.lines().count(), 1);
    }
}
