//! The control socket's words: one JSON document a line, both ways.

use std::io::{self, Read, Write};

use mien_base::error::ErrorKind;
use mien_base::recipe::Recipe;
use mien_base::report::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// `status`, `health`, `reload`, or a verb of a part as `job.list`.
    pub verb: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub args: Value,
}

/// How the daemon is to run otherwise than its file says, until that is read again: the arguments
/// of the verb `steer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Steer {
    /// A pipeline runs or not, and by which recipe; what is not named stays.
    Pipeline {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recipe: Option<Box<Recipe>>,
    },
    /// This profile holds, whatever the time.
    Profile { name: String },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Done(Value),
    Failed(Failure),
}

impl Answer {
    /// A failure in words.
    #[must_use]
    pub fn failed(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::Failed(Failure { kind, message: message.into() })
    }
}

/// Reads one line of at most `most` bytes, without its end; `None` at the end of the stream.
/// `wait` is called when nothing came for a while, and says whether to go on.
pub(super) fn read_line(
    from: &mut impl Read,
    held: &mut Vec<u8>,
    most: usize,
    mut wait: impl FnMut() -> bool,
) -> io::Result<Option<Vec<u8>>> {
    let mut looked = 0;
    loop {
        let new = held.get(looked..).unwrap_or_default();
        if let Some(end) = new.iter().position(|b| *b == b'\n').map(|at| at + looked) {
            let rest = held.split_off(end + 1);
            let mut line = std::mem::replace(held, rest);
            line.pop();
            return Ok(Some(line));
        }
        looked = held.len();
        if looked > most {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let mut part = [0; 4096];
        match from.read(&mut part) {
            Ok(0) => return Ok(None),
            Ok(n) => held.extend(part.get(..n).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                if !wait() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes one document and the end of its line.
pub(super) fn write_line(to: &mut impl Write, document: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(document).map_err(io::Error::other)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_and_a_long_one_ends_it() {
        let mut from = io::Cursor::new(b"{}\n\nabc\nend".to_vec());
        let mut held = Vec::new();
        let mut next = || read_line(&mut from, &mut held, 64, || false).unwrap();
        assert_eq!(next().unwrap(), b"{}");
        assert_eq!(next().unwrap(), b"");
        assert_eq!(next().unwrap(), b"abc");
        assert_eq!(next(), None, "half a line is none");
        let mut long = io::Cursor::new(vec![b'x'; 100_000]);
        assert!(read_line(&mut long, &mut Vec::new(), 10_000, || false).is_err());
        assert!(long.position() < 20_000, "no more is read than is allowed");
    }
}
