//! The control socket: who asks is known by the kernel, what is asked is bounded.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mien_base::error::ErrorKind;
use mien_base::limits;
use mien_base::report::Failure;
use serde_json::Value;

use super::protocol::{Answer, Request, Steer, read_line, write_line};
use super::{Handler, Status};
use crate::{Error, Result};
use mien_base::error::chain;

/// How often a connection looks whether it is to end.
const TICK: Duration = Duration::from_millis(250);
/// Ticks without a request after which a connection is closed.
const IDLE: u32 = 240;
/// Longest time that the main loop may take for a request.
const LOOP: Duration = Duration::from_secs(60);

/// The process at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub pid: u32,
}

/// What only the main loop can do.
#[derive(Debug)]
pub(super) enum Order {
    Reload { by: Peer, answer: SyncSender<Answer> },
    Steer { by: Peer, steer: Steer, answer: SyncSender<Answer> },
}

/// What connections answer from.
#[derive(Debug, Default)]
pub(super) struct Board {
    status: Mutex<Option<Arc<Status>>>,
}

impl Board {
    pub(super) fn show(&self, status: Status) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(status));
    }

    fn status(&self) -> Option<Arc<Status>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What answers.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) board: Arc<Board>,
    pub(super) orders: SyncSender<Order>,
    /// By the first part of a verb.
    pub(super) handlers: Arc<BTreeMap<&'static str, Arc<dyn Handler>>>,
}

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct Control {
    path: PathBuf,
    users: Arc<Mutex<Vec<u32>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at a path; what was left there by a process that died is removed. The caller holds
    /// the home's lock, so nobody else answers there.
    ///
    /// # Errors
    /// `Listen`.
    pub(super) fn start(path: &Path, users: &[u32], desk: Desk) -> Result<Self> {
        let failed = |source| Error::Listen { place: path.display().to_string(), source };
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| {
            use std::os::unix::fs::FileTypeExt as _;
            meta.file_type().is_socket()
        });
        if is_socket {
            std::fs::remove_file(path).map_err(failed)?;
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        // Who may ask is decided by the user id; the mode keeps out those who never may.
        let mode = if users.is_empty() { 0o600 } else { 0o666 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        let users = Arc::new(Mutex::new(users.to_vec()));
        let stop = Arc::new(AtomicBool::new(false));
        let (known, ended) = (users.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || listen(&listener, &known, &ended, &desk))
            .map_err(failed)?;
        Ok(Self { path: path.to_owned(), users, stop, thread: Some(thread) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread from its wait.
        let _ = UnixStream::connect(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
        let _ = self.users.lock().map(|mut users| users.clear());
    }
}

fn listen(
    listener: &UnixListener,
    users: &Arc<Mutex<Vec<u32>>>,
    stop: &Arc<AtomicBool>,
    desk: &Desk,
) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors: whoever asked comes again.
            std::thread::sleep(TICK);
            continue;
        };
        let (users, stop, desk, open) = (users.clone(), stop.clone(), desk.clone(), open.clone());
        if open.fetch_add(1, Ordering::Relaxed) >= limits::CONTROL_PEERS {
            open.fetch_sub(1, Ordering::Relaxed);
            refuse(stream, ErrorKind::Unreachable, "Too many ask at once; try again");
            continue;
        }
        let left = open.clone();
        let serve = move || {
            // Who goes away is not answered.
            let _ = serve(stream, &users, &stop, &desk);
            open.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("peer".to_owned()).spawn(serve).is_err() {
            left.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn refuse(mut stream: UnixStream, kind: ErrorKind, why: &str) {
    let _ = stream.set_write_timeout(Some(TICK));
    let _ = write_line(&mut stream, &Answer::failed(kind, why));
}

fn serve(
    mut stream: UnixStream,
    users: &Mutex<Vec<u32>>,
    stop: &AtomicBool,
    desk: &Desk,
) -> std::io::Result<()> {
    let found = rustix::net::sockopt::socket_peercred(&stream)?;
    let peer =
        Peer { uid: found.uid.as_raw(), pid: found.pid.as_raw_nonzero().get().unsigned_abs() };
    let own = rustix::process::geteuid().as_raw();
    let listed = users.lock().is_ok_and(|users| users.contains(&peer.uid));
    if peer.uid != 0 && peer.uid != own && !listed {
        let why = format!(
            "User {} may not speak to this daemon; `users` of [control] says who may",
            peer.uid
        );
        refuse(stream, ErrorKind::Usage, &why);
        return Ok(());
    }
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut held = Vec::new();
    loop {
        let mut ticks = 0;
        let wait = || {
            ticks += 1;
            ticks < IDLE && !stop.load(Ordering::Relaxed)
        };
        let line = match read_line(&mut stream, &mut held, limits::CONTROL_LINE, wait) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                let most = limits::CONTROL_LINE >> 10;
                let why = format!("A request has at most {most} KiB");
                refuse(stream, ErrorKind::TooLarge, &why);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let answer = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => desk.answer(peer, &request),
            Err(error) => {
                let why = format!("Not a request: {error}; write {{\"verb\":\"status\"}}");
                Answer::failed(ErrorKind::Usage, why)
            }
        };
        write_line(&mut stream, &answer)?;
    }
}

impl Desk {
    /// Has the main loop do something.
    fn order(&self, order: impl FnOnce(SyncSender<Answer>) -> Order) -> Answer {
        let (give, take) = sync_channel(1);
        if self.orders.try_send(order(give)).is_err() {
            return Answer::failed(ErrorKind::Unreachable, "The daemon is busy or ending");
        }
        take.recv_timeout(LOOP).unwrap_or_else(|_| {
            Answer::failed(ErrorKind::Late, "The daemon did not answer in time")
        })
    }

    fn answer(&self, peer: Peer, request: &Request) -> Answer {
        let starting = || Answer::failed(ErrorKind::Unreachable, "The daemon is still starting");
        let verb = request.verb.as_str();
        match verb {
            "status" => self.board.status().map_or_else(starting, |status| {
                Answer::Done(serde_json::to_value(&*status).unwrap_or(Value::Null))
            }),
            "health" => self.board.status().map_or_else(starting, |status| {
                Answer::Done(serde_json::to_value(&status.health).unwrap_or(Value::Null))
            }),
            "reload" => self.order(|answer| Order::Reload { by: peer, answer }),
            "steer" => match serde_json::from_value(request.args.clone()) {
                Ok(steer) => self.order(|answer| Order::Steer { by: peer, steer, answer }),
                Err(error) => Answer::failed(ErrorKind::Usage, format!("Not a steering: {error}")),
            },
            _ => {
                let first = verb.split('.').next().unwrap_or_default();
                match self.handlers.get(first) {
                    Some(handler) => match handler.answer(peer, verb, &request.args) {
                        Ok(value) => Answer::Done(value),
                        Err(error) => {
                            Answer::Failed(Failure { kind: error.kind(), message: chain(&error) })
                        }
                    },
                    None => {
                        let parts = self.handlers.keys().map(|part| format!(", {part}.*"));
                        let known: String = parts.collect();
                        let verb: String =
                            verb.chars().take(40).flat_map(char::escape_debug).collect();
                        let why = format!(
                            "`{verb}` is no verb; there are status, health, reload, steer{known}"
                        );
                        Answer::failed(ErrorKind::Usage, why)
                    }
                }
            }
        }
    }
}
