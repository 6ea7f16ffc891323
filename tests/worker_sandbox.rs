//! The worker can open no file, no socket and no process, and says which layers hold it.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use mien_base::clock::SystemClock;
use mien_base::id::ModelId;
use mien_base::model::{Manifest, Role};
use mien_daemon::supervise::{Backoff, Hang, Supervisor, WorkerConfig};
use mien_vault::models::ModelSource;

struct NoModels;

impl ModelSource for NoModels {
    fn by_id(&self, id: &ModelId) -> mien_vault::Result<Manifest> {
        Err(mien_vault::Error::ModelUnknown { id: id.clone() })
    }
    fn by_role(&self, _: Role) -> mien_vault::Result<Option<Manifest>> {
        Ok(None)
    }
    fn open(&self, manifest: &Manifest) -> mien_vault::Result<OwnedFd> {
        Err(mien_vault::Error::ModelMissing { id: manifest.id.clone() })
    }
}

fn config() -> WorkerConfig {
    WorkerConfig {
        program: PathBuf::from(env!("CARGO_BIN_EXE_mien")),
        arguments: vec![OsString::from("worker")],
        threads: 2,
        memory_mib: 4096,
        file_mib: 64,
        unsandboxed: false,
        hang: Hang::default(),
        backoff: Backoff::default(),
    }
}

fn supervisor(config: WorkerConfig) -> Supervisor {
    Supervisor::start(config, Box::new(NoModels), Arc::new(SystemClock::start())).unwrap()
}

#[test]
fn every_thread_of_the_worker_is_refused_files_sockets_and_processes() {
    let attempts = supervisor(config()).self_test().unwrap();
    for thread in ["control", "compute", "decode", "encode", "capture", "sink"] {
        let tried: Vec<_> = attempts.iter().filter(|a| a.thread == thread).collect();
        // Buffers of a camera's driver are mapped to be written.
        let least = if thread == "capture" { 13 } else { 14 };
        assert!(tried.len() >= least, "{thread}: {tried:?}");
        for attempt in tried {
            // EPERM; on the compute threads clone3 does not exist (ENOSYS).
            let wanted =
                if attempt.what.ends_with("clone3") && thread == "compute" { 38 } else { 1 };
            assert_eq!(attempt.errno, Some(wanted), "{attempt:?}");
        }
    }
}

#[test]
fn the_layers_that_hold_are_reported() {
    let facts = supervisor(config()).facts().unwrap();
    let held = facts.hello.sandbox;
    assert!(held.holds() && held.not_dumpable && held.dies_with_root && held.rlimits, "{held:?}");
    assert_eq!(facts.lost, 0);
    assert!(facts.rss_kib.unwrap() > 0 && facts.peak_rss_kib >= facts.rss_kib);
}

#[test]
fn the_worker_holds_only_its_socket_and_null() {
    let mut supervisor = supervisor(config());
    let pid = supervisor.facts().unwrap().pid;
    // A worker is not dumpable: only the superuser may look at its descriptors.
    let Ok(listed) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return };
    let mut open: Vec<String> = listed
        .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().display().to_string())
        .collect();
    open.sort();
    let kinds: Vec<&str> = open.iter().map(|o| o.split(':').next().unwrap()).collect();
    let expected = ["/dev/null", "/dev/null", "/dev/null", "anon_inode", "socket"];
    assert_eq!(kinds, expected, "{open:?}");
}

#[test]
fn a_worker_has_neither_the_environment_nor_the_folder_of_its_root() {
    let mut supervisor = supervisor(config());
    let pid = supervisor.facts().unwrap().pid;
    if let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) {
        let names = environment.split(|b| *b == 0).filter(|entry| !entry.is_empty());
        // glibc parts its tunables by zeros, in place.
        let ours = [&b"GLIBC_TUNABLES="[..], b"glibc.malloc."];
        let foreign = names.filter(|entry| !ours.iter().any(|o| entry.starts_with(o))).count();
        assert_eq!(foreign, 0, "only what we set: {}", String::from_utf8_lossy(&environment));
    }
    if let Ok(folder) = std::fs::read_link(format!("/proc/{pid}/cwd")) {
        assert_eq!(folder, PathBuf::from("/"));
    }
}

#[test]
fn a_program_that_is_no_worker_is_given_up_after_a_few_tries() {
    let config = WorkerConfig {
        program: PathBuf::from("/bin/true"),
        backoff: Backoff { first: std::time::Duration::from_millis(1), ..Backoff::default() },
        ..config()
    };
    let error = supervisor(config).facts().unwrap_err();
    assert_eq!(error.kind(), mien_base::error::ErrorKind::Worker, "{error}");
    assert!(error.to_string().contains("4 times"), "{error}");
}

#[test]
fn the_worker_ends_with_its_supervisor() {
    let mut supervisor = supervisor(config());
    let pid = supervisor.facts().unwrap().pid;
    let there = || std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(there());
    drop(supervisor);
    assert!(!there());
}
