//! What holds the worker, put on before it reads a byte of input, and the proof that it holds.
//!
//! ```text
//!   main thread: take the socket → null stdio → close all else → rlimits, not dumpable, dies with
//!                the root, no new privileges → Landlock → `every` list
//!   compute:     `compute` list, then the backend and its threads, which inherit it
//!   main thread: `control` list → Hello
//! ```

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus,
    Scope,
};
use mien_base::wire::{Attempt, Landlock, Sandbox};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};

use crate::seccomp::{self, List};
use crate::{Error, Result};

/// Descriptors that the worker may hold at once: a whole policy may wait in the queue.
const DESCRIPTORS: u64 = 256;

/// Bounds that the root program chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Address space in MiB.
    pub memory_mib: u64,
    /// Largest file that is written, in MiB.
    pub file_mib: u64,
}

/// Takes the control socket off standard input and leaves no other descriptor open.
///
/// Call it first: it closes descriptors that others may hold.
///
/// # Errors
/// `Sandbox`.
pub fn take_socket() -> Result<OwnedFd> {
    let failed = |what| move |source| Error::Sandbox { what, source };
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(failed("standard input is not a socket"))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed("/dev/null can't be opened"))?;
    rustix::stdio::dup2_stdin(&null).map_err(failed("standard input stays"))?;
    rustix::stdio::dup2_stdout(&null).map_err(failed("standard output stays"))?;
    rustix::stdio::dup2_stderr(&null).map_err(failed("standard error stays"))?;
    drop(null);
    let kept = socket.as_raw_fd();
    close_range(3, kept - 1);
    close_range(kept + 1, RawFd::MAX);
    Ok(socket)
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: close_range takes three integers; nothing in this process owns a descriptor of the
    // range, because this runs before anything else is opened.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done == 0 {
        return;
    }
    // Emulators know no close_range.
    let most = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1024).min(65_536);
    for fd in first..=last.min(RawFd::try_from(most).unwrap_or(1024)) {
        // SAFETY: close takes an integer; nothing owns `fd`, as above.
        unsafe { libc::close(fd) };
    }
}

/// Puts on what holds the whole process. The seccomp lists of the threads follow by `enforce`.
pub fn enter(bounds: Bounds) -> Sandbox {
    let mib = |n: u64| Rlimit { current: Some(n << 20), maximum: Some(n << 20) };
    let fixed = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
    let rlimits = [
        (Resource::Core, fixed(0)),
        (Resource::Nofile, fixed(DESCRIPTORS)),
        (Resource::Fsize, mib(bounds.file_mib)),
        (Resource::As, mib(bounds.memory_mib)),
    ];
    let rlimits = rlimits.map(|(what, most)| rustix::process::setrlimit(what, most).is_ok());
    Sandbox {
        no_new_privs: rustix::thread::set_no_new_privs(true).is_ok(),
        not_dumpable: rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok(),
        dies_with_root: rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .is_ok(),
        rlimits: rlimits.iter().all(|ok| *ok),
        closed: true,
        landlock: landlock(),
        seccomp: enforce(seccomp::EVERY).unwrap_or(false),
    }
}

/// No right to any file, port, abstract socket or foreign process, as far as the kernel knows how.
fn landlock() -> Landlock {
    let abi = ABI::V6;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|r| r.handle_access(AccessNet::from_all(abi)))
        .and_then(|r| r.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    match ruleset.map(|r| r.ruleset) {
        Ok(RulesetStatus::FullyEnforced) => Landlock::Full,
        Ok(RulesetStatus::PartiallyEnforced) => Landlock::Partial,
        _ => Landlock::None,
    }
}

/// Holds the calling thread, and the threads that it starts, to a list. False when the kernel can't.
///
/// # Errors
/// `Rules`.
pub fn enforce(list: List) -> Result<bool> {
    let programs = seccomp::compile(list)?;
    Ok(programs.iter().all(|program| seccompiler::apply_filter(program).is_ok()))
}

/// What one thread may.
const MAPPED: &str = "map a file to be written";

type Try = fn() -> std::result::Result<(), Errno>;

/// Tries, on the calling thread, what it must not be able to do. Only capture may map what it can
/// write: the buffers of a driver are such, and it is handed nothing else to map.
#[must_use]
pub fn attempts(thread: &str) -> Vec<Attempt> {
    let tries: [(&str, Try); 14] = [
        ("open a file to read", || open(c"/etc/passwd".to_bytes_with_nul(), OFlags::RDONLY)),
        ("open a file to write", || {
            open(c"/tmp".to_bytes_with_nul(), OFlags::WRONLY | OFlags::TMPFILE)
        }),
        ("open its own memory", || open(c"/proc/self/mem".to_bytes_with_nul(), OFlags::RDWR)),
        ("open a folder", || open(c"/".to_bytes_with_nul(), OFlags::RDONLY | OFlags::DIRECTORY)),
        ("rename a file", || through(rustix::fs::rename("/mien-a", "/mien-b"))),
        ("make an internet socket", || socket(rustix::net::AddressFamily::INET)),
        ("make a unix socket", || socket(rustix::net::AddressFamily::UNIX)),
        ("make a socket pair", || {
            let (family, kind) =
                (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
            rustix::net::socketpair(family, kind, rustix::net::SocketFlags::empty(), None).map(drop)
        }),
        ("make a process", fork),
        ("make a process by clone3", clone3),
        ("run a program", execute),
        ("send a signal", || rustix::process::test_kill_process(rustix::process::getpid())),
        ("make memory executable", executable),
        (MAPPED, shared),
    ];
    let attempt = |(what, go): (&str, Try)| Attempt {
        thread: thread.to_owned(),
        what: what.to_owned(),
        errno: go().err().map(Errno::raw_os_error),
    };
    let maps = thread == "capture";
    let tries = tries.into_iter().filter(|(what, _)| !(maps && *what == MAPPED));
    tries.map(attempt).collect()
}

/// The call went through to the file system, which did not find the name.
fn through(result: std::result::Result<(), Errno>) -> std::result::Result<(), Errno> {
    if result == Err(Errno::NOENT) { Ok(()) } else { result }
}

fn open(path: &[u8], flags: OFlags) -> std::result::Result<(), Errno> {
    let path = std::ffi::CStr::from_bytes_with_nul(path).map_err(|_| Errno::INVAL)?;
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::RUSR).map(drop)
}

fn socket(family: rustix::net::AddressFamily) -> std::result::Result<(), Errno> {
    rustix::net::socket(family, rustix::net::SocketType::STREAM, None).map(drop)
}

fn last() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

fn fork() -> std::result::Result<(), Errno> {
    // SAFETY: clone with SIGCHLD alone is fork: no stack, no thread pointers are passed, and a
    // child, if there is one, leaves at once through _exit.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match pid {
        -1 => Err(last()),
        // SAFETY: _exit takes an integer and does not return.
        0 => unsafe { libc::_exit(0) },
        _ => Ok(()),
    }
}

fn clone3() -> std::result::Result<(), Errno> {
    // Without CLONE_THREAD: what a filter can't see.
    let arguments: [u64; 8] = [0, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    let size = std::mem::size_of_val(&arguments);
    // SAFETY: the arguments are the first eight fields of clone_args, all zero but the signal: no
    // stack and no thread pointers are passed; a child leaves at once through _exit.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size) };
    match pid {
        -1 => Err(last()),
        // SAFETY: _exit takes an integer and does not return.
        0 => unsafe { libc::_exit(0) },
        _ => Ok(()),
    }
}

fn execute() -> std::result::Result<(), Errno> {
    let (program, end) = (c"/mien-is-not-here", std::ptr::null::<libc::c_char>());
    // SAFETY: the path is a C string and both lists end at their first entry; a program that
    // exists would replace the process, this one does not.
    unsafe { libc::execve(program.as_ptr(), &raw const end, &raw const end) };
    through(Err(last()))
}

fn shared() -> std::result::Result<(), Errno> {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: standard input is /dev/null, which can't be mapped: where the call is not refused
    // before, it fails with ENODEV, and nothing is mapped.
    let page = unsafe { libc::syscall(libc::SYS_mmap, 0, 4096, prot, flags, 0, 0) };
    if page == -1 && last() != Errno::NODEV { Err(last()) } else { Ok(()) }
}

fn executable() -> std::result::Result<(), Errno> {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // The call itself: one C library tells another errno than the kernel.
    // SAFETY: a private anonymous mapping at an address of the kernel's choice touches nothing.
    let page = unsafe { libc::syscall(libc::SYS_mmap, 0, 4096, prot, flags, -1, 0) };
    if page == -1 {
        return Err(last());
    }
    // SAFETY: the page was just mapped here, with this length, and nothing points into it.
    unsafe { libc::syscall(libc::SYS_munmap, page, 4096) };
    Ok(())
}
