//! How workers are started and held.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::pace::Hang;
use crate::{Error, Result};

/// How workers are started and held.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// A program, or a socket where one that is started for each connection listens.
    pub program: PathBuf,
    /// What stands before the arguments that we add: `worker`.
    pub arguments: Vec<OsString>,
    /// Threads that run models.
    pub threads: u16,
    /// Address space of the worker.
    pub memory_mib: u32,
    /// Largest file that the worker may write.
    pub file_mib: u32,
    /// Work on a kernel without seccomp (emulators).
    pub unsandboxed: bool,
    pub hang: Hang,
    pub backoff: Backoff,
}

/// Waiting time between starts of a worker that dies: doubles from `first` to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
    /// Starts in a row without a `Hello` before we give up.
    pub tries: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), most: Duration::from_secs(5), tries: 4 }
    }
}

impl WorkerConfig {
    /// This program in its worker role, on as many threads as the machine has cores.
    ///
    /// Where it can't start itself again (an emulator), `MIEN_WORKER` names program and arguments
    /// that do, parted by spaces, with whole paths (a worker starts in `/`):
    /// `/usr/bin/qemu-aarch64-static /opt/mien worker`.
    ///
    /// # Errors
    /// `Spawn` when the program does not know where it stands.
    pub fn this_program() -> Result<Self> {
        let named = std::env::var("MIEN_WORKER").unwrap_or_default();
        let mut words = named.split_whitespace().map(OsString::from);
        let (program, arguments) = match words.next() {
            Some(program) => (PathBuf::from(program), words.collect()),
            None => {
                let program = std::env::current_exe()
                    .map_err(|source| Error::Spawn { program: PathBuf::from("mien"), source })?;
                (program, vec![OsString::from("worker")])
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self {
            program,
            arguments,
            threads: u16::try_from(threads).unwrap_or(u16::MAX),
            memory_mib: 6144,
            file_mib: 1024,
            unsandboxed: false,
            hang: Hang::default(),
            backoff: Backoff::default(),
        })
    }
}
