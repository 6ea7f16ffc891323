//! The units that are shipped hold what they promise, and a worker that systemd starts is a worker.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use mien_base::clock::SystemClock;
use mien_daemon::supervise::{Supervisor, WorkerConfig};
use mien_vault::{Home, ModelStore};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use support::Bench;

const MIEN: &str = env!("CARGO_BIN_EXE_mien");

/// The units with the program where it is now.
fn units(bench: &Bench) -> PathBuf {
    let to = bench.path("units");
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")).unwrap() {
        let from = entry.unwrap().path();
        let text = fs::read_to_string(&from).unwrap().replace("/usr/bin/mien", MIEN);
        fs::write(to.join(from.file_name().unwrap()), text).unwrap();
    }
    to
}

fn analyze(arguments: &[&str]) -> (i32, String) {
    let ran = Command::new("systemd-analyze").args(arguments).output();
    let ran = ran.expect("systemd-analyze is of the package systemd; tests/run installs it");
    let text = [ran.stdout, ran.stderr].concat();
    (ran.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn the_units_are_without_faults_and_let_hardly_anything_through() {
    let bench = Bench::bare("units");
    let folder = units(&bench);
    let path = |name: &str| folder.join(name).display().to_string();
    for name in ["mien.service", "mien-worker.socket", "mien-worker@.service"] {
        let (code, said) = analyze(&["verify", "--man=no", &path(name)]);
        assert_eq!((code, said.trim()), (0, ""), "{name}");
    }
    for (name, most) in [("mien.service", 1.5), ("mien-worker@.service", 1.0)] {
        let (_, said) = analyze(&["security", "--offline=true", "--no-pager", &path(name)]);
        let line = said.lines().find(|line| line.contains("Overall exposure level")).unwrap();
        let level: f32 =
            line.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        println!("{name}: {level}");
        assert!(level <= most, "{name}: {said}");
    }
}

/// As systemd does with `Accept=yes`: a worker for each connection, on its standard input.
fn serve(path: &Path, workers: usize) {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 4).unwrap();
    let serve = move || {
        let mut children = Vec::new();
        for _ in 0..workers {
            let connection: OwnedFd = rustix::net::accept(&socket).unwrap();
            let mut command = Command::new(MIEN);
            command.args(["worker", "--memory-mib=4096"]).stdin(Stdio::from(connection));
            children.push(command.spawn().unwrap());
        }
        // Each ends with its connection.
        children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
    };
    std::thread::Builder::new().spawn(serve).unwrap();
}

#[test]
fn a_worker_that_another_starts_for_a_connection_is_held_like_our_own() {
    let bench = Bench::bare("served");
    let socket = bench.path("worker.sock");
    serve(&socket, 1);
    let clock = Arc::new(SystemClock::start());
    let models = Box::new(ModelStore::new(&Home::at(&bench.home()), clock.clone()));
    let mut config = WorkerConfig::this_program().unwrap();
    config.program = socket;
    let mut supervisor = Supervisor::start(config, models, clock).unwrap();
    let facts = supervisor.facts().unwrap();
    assert!(facts.hello.sandbox.holds(), "{facts:?}");
    let attempts = supervisor.self_test().unwrap();
    assert!(attempts.len() >= 28, "{attempts:?}");
    for attempt in attempts {
        assert!(attempt.errno.is_some(), "{attempt:?}");
    }
}
