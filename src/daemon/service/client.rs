//! Asks the running daemon.

use std::io::ErrorKind as Io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use mien_base::limits;
use serde_json::Value;

use super::protocol::{Answer, Request, read_line, write_line};
use crate::{Error, Result};

/// Longest time until an answer.
const PATIENCE: Duration = Duration::from_secs(90);

/// Sends one request and waits for its answer.
///
/// # Errors
/// `NotRunning` when nobody listens there, `Asked` when the connection fails, `Failed` as the daemon
/// answers.
pub fn ask(socket: &Path, verb: &str, args: Value) -> Result<Value> {
    let asked = |source| Error::Asked { socket: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).map_err(|source| match source.kind() {
        Io::NotFound | Io::ConnectionRefused => Error::NotRunning { socket: socket.to_owned() },
        _ => Error::Asked { socket: socket.to_owned(), source },
    })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(asked)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(asked)?;
    // Who is refused is told so before it has asked: then the answer is there all the same.
    let sent = write_line(&mut stream, &Request { verb: verb.to_owned(), args });
    let line = read_line(&mut stream, &mut Vec::new(), limits::CONTROL_ANSWER, || false);
    let line = match (line, sent) {
        (Ok(Some(line)), _) => line,
        (_, Err(source)) | (Err(source), Ok(())) => return Err(asked(source)),
        (Ok(None), Ok(())) => return Err(asked(Io::UnexpectedEof.into())),
    };
    match serde_json::from_slice(&line) {
        Ok(Answer::Done(value)) => Ok(value),
        Ok(Answer::Failed(failure)) => Err(Error::Failed(failure)),
        Err(_) => Err(asked(Io::InvalidData.into())),
    }
}
