//! The sandboxed process that reads pictures and runs models: no network, no keys, no file names.
//!
//! Read downwards: each module uses only those above it.

#[path = "errors.rs"]
mod errors;
pub mod seccomp;
pub mod sandbox;
pub mod meter;
mod fault;
pub mod link;
pub mod load;
pub mod sealed;
pub mod sink;
pub mod still;
pub mod clip;
pub mod sheet;
pub mod judge;
pub mod camera;
pub mod live;
pub mod goods;
pub mod compute;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use mien_base::wire::fds::Socket;
use mien_base::wire::{Event, Hello, PROTOCOL};
use mien_engine::backend::Backend;
use mien_engine::cpu::Cpu;

pub use errors::{Error, Result};

use crate::clip::Stages;
use crate::compute::Compute;
use crate::link::Link;
use crate::live::Threads;
use crate::meter::Pulse;
use crate::sandbox::Bounds;

/// Stack of the compute thread, in bytes.
const STACK: usize = 8 << 20;

/// What the root program says on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arguments {
    /// Threads that run models.
    pub threads: u16,
    pub bounds: Bounds,
    /// Read input even where the kernel has no seccomp.
    pub unsandboxed: bool,
}

impl Arguments {
    /// Reads what follows `mien worker`.
    ///
    /// # Errors
    /// `Argument`.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut parsed = Self {
            threads: 1,
            bounds: Bounds { memory_mib: 6144, file_mib: 1024 },
            unsandboxed: false,
        };
        for argument in arguments {
            let text = argument.to_string_lossy();
            let bad = || Error::Argument { argument: text.clone().into_owned() };
            let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n > 0);
            match text.split_once('=') {
                None if text == "--allow-unsandboxed" => parsed.unsandboxed = true,
                Some(("--threads", n)) => {
                    parsed.threads = n.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?;
                }
                Some(("--memory-mib", n)) => {
                    parsed.bounds.memory_mib = number(n).ok_or_else(bad)?.into();
                }
                Some(("--file-mib", n)) => {
                    parsed.bounds.file_mib = number(n).ok_or_else(bad)?.into();
                }
                _ => return Err(bad()),
            }
        }
        Ok(parsed)
    }
}

/// `mien worker`: standard input is the control socket. Call it before anything else is opened.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    main_on(arguments, |threads| Arc::new(Cpu::new(threads)))
}

/// As `main`, on a backend that is made, with so many threads, once the compute thread is held.
pub fn main_on<B: Backend>(
    arguments: impl IntoIterator<Item = OsString>,
    backend: impl FnOnce(usize) -> Arc<B> + Send + 'static,
) -> ExitCode {
    match Arguments::parse(arguments).and_then(|arguments| run(arguments, backend)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(error.kind().exit_code()),
    }
}

fn run<B: Backend>(
    arguments: Arguments,
    backend: impl FnOnce(usize) -> Arc<B> + Send + 'static,
) -> Result<()> {
    let socket = Socket::from_fd(sandbox::take_socket()?);
    let mut facts = sandbox::enter(arguments.bounds);
    fault::note();

    let pulse = Arc::new(Pulse::default());
    let (outbox, events) = link::outbox()?;
    let (stages, staged) = Stages::start(&pulse)?;
    let (threads, caught) = Threads::start(&pulse)?;
    let staged = staged && caught;
    facts.seccomp &= staged;
    let (wake, pulse_of_compute) = (outbox.wake(), Arc::clone(&pulse));
    let (requests, work) = std::sync::mpsc::sync_channel(link::REQUESTS);
    let (ready, compute_is) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("compute".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let listed = sandbox::enforce(seccomp::COMPUTE);
            let held = matches!(listed, Ok(true));
            let backend = backend(arguments.threads.into());
            if ready.send((listed, backend.name())).is_ok() {
                let held = held && staged || arguments.unsandboxed;
                Compute::new(backend, outbox, pulse_of_compute, stages, held)
                    .with_live(threads)
                    .run(&work);
            }
        })
        .map_err(|source| Error::Thread { name: "compute", source })?;
    facts.seccomp &= sandbox::enforce(seccomp::CONTROL)?;
    let gone = |_| Error::Protocol { what: "the compute thread is gone" };
    let (listed, backend) = compute_is.recv().map_err(gone)?;
    facts.seccomp &= listed?;

    let hello = Event::Hello(Hello {
        protocol: PROTOCOL,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        backend: backend.to_owned(),
        threads: arguments.threads,
        sandbox: facts,
    });
    socket.send(&hello, &[]).map_err(Error::Wire)?;
    Link { socket, requests, events, wake, pulse }.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_arguments_are_taken() {
        let parse = |list: &[&str]| Arguments::parse(list.iter().map(OsString::from));
        let given = parse(&["--threads=2", "--memory-mib=512", "--allow-unsandboxed"]).unwrap();
        assert_eq!((given.threads, given.bounds.memory_mib, given.unsandboxed), (2, 512, true));
        for bad in ["--threads=0", "--threads", "x", "--memory-mib=-1", "--threads=99999"] {
            assert!(parse(&[bad]).is_err(), "{bad}");
        }
    }
}
