//! Starts workers from a thread of its own: a worker dies with the thread that started it. Or asks
//! systemd for one, which listens and starts a worker for each connection.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// What to run.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<OsString>,
}

/// True when workers are not started here, but are had by connecting.
pub(super) fn is_socket(program: &Path) -> bool {
    std::fs::metadata(program).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Connects to whoever starts workers.
pub(super) fn connect(path: &Path) -> std::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::connect(&socket, &rustix::net::SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Lives as long as the supervisor.
#[derive(Debug)]
pub(super) struct Spawner {
    orders: SyncSender<(Program, OwnedFd)>,
    children: Receiver<std::io::Result<Child>>,
}

impl Spawner {
    pub(super) fn start() -> std::io::Result<Self> {
        let (orders, take) = sync_channel::<(Program, OwnedFd)>(1);
        let (give, children) = sync_channel(1);
        std::thread::Builder::new().name("spawn".to_owned()).spawn(move || {
            while let Ok((program, socket)) = take.recv() {
                if give.send(spawn(&program, socket)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { orders, children })
    }

    /// Starts a worker whose standard input is the socket.
    pub(super) fn spawn(&self, program: Program, socket: OwnedFd) -> std::io::Result<Child> {
        let gone = || std::io::Error::other("the spawn thread is gone");
        self.orders.send((program, socket)).map_err(|_| gone())?;
        self.children.recv().map_err(|_| gone())?
    }
}

/// How glibc keeps the worker's heap: in one arena of huge pages that holds on to what was freed.
/// By default every activation of a model is mapped, faulted in and unmapped again, which took a
/// quarter of a picture's CPU. Other C libraries don't read it.
const HEAP: &str = "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1:\
                    glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=268435456";

fn spawn(program: &Program, socket: OwnedFd) -> std::io::Result<Child> {
    Command::new(&program.path)
        .args(&program.arguments)
        .env_clear()
        .env("GLIBC_TUNABLES", HEAP)
        .current_dir("/")
        // Ctrl-C at a terminal is ours to answer.
        .process_group(0)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
