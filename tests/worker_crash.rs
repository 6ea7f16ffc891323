//! A worker that dies or hangs costs a retry, a job that kills two is quarantined, and nothing half is left.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mien_base::clock::SystemClock;
use mien_base::error::ErrorKind;
use mien_base::id::{JobId, ModelId};
use mien_base::model::{Manifest, Role};
use mien_daemon::files::Input;
use mien_daemon::supervise::{Backoff, Hang, Supervisor, WorkerConfig};
use mien_pixels::codec::{self, FileFormat, Metadata};
use mien_pixels::geometry::Size;
use mien_pixels::view::Rgb;
use mien_vault::models::ModelSource;
use rustix::process::{Pid, Signal, kill_process};

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

/// A supervisor whose workers are known by the file bound on their command line.
fn supervisor(file_mib: u32, most: Duration) -> Supervisor {
    let config = WorkerConfig {
        program: PathBuf::from(env!("CARGO_BIN_EXE_mien")),
        arguments: vec![OsString::from("worker")],
        threads: 1,
        memory_mib: 4096,
        file_mib,
        unsandboxed: false,
        hang: Hang { least: most, most, ..Hang::default() },
        backoff: Backoff { first: Duration::from_millis(1), ..Backoff::default() },
    };
    Supervisor::start(config, Box::new(NoModels), Arc::new(SystemClock::start())).unwrap()
}

const PATIENT: Duration = Duration::from_secs(60);

/// A picture that takes a while to read.
fn picture() -> Input {
    let size = Size::new(700, 700);
    let mut state = 1u32;
    let bytes = (0..size.pixels() * 3).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let rgb = Rgb::from_vec(size, bytes.collect()).unwrap();
    let bytes =
        codec::encode(rgb.view(), None, FileFormat::Png, 100, &Metadata::default()).unwrap();
    Input::Bytes { name: "noise".to_owned(), bytes }
}

fn job(n: u8) -> JobId {
    JobId([n; 16])
}

/// Living workers with this file bound.
fn workers(file_mib: u32) -> Vec<Pid> {
    let mark = format!("--file-mib={file_mib}");
    let ours = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).any(|word| word == mark.as_bytes())
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = all.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != std::process::id().cast_signed() && ours(pid))
        .filter_map(Pid::from_raw)
        .collect()
}

/// Sends every worker a signal, again and again, until told to stop.
fn hunt(file_mib: u32, signal: Signal, every: Duration) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let hunter = std::thread::Builder::new().spawn(move || {
        while !told.load(Ordering::Relaxed) {
            std::thread::sleep(every);
            for pid in workers(file_mib) {
                let _ = kill_process(pid, signal);
            }
        }
    });
    (stop, hunter.unwrap())
}

#[test]
fn a_worker_killed_at_any_moment_costs_at_most_a_retry() {
    let (mut supervisor, input) = (supervisor(101, PATIENT), picture());
    let wanted = supervisor.verify(job(0), &input).unwrap();
    for n in 1..=20u8 {
        let pid = Pid::from_raw(supervisor.facts().unwrap().pid.cast_signed()).unwrap();
        let killer = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(Duration::from_millis(u64::from(n) * 3));
            let _ = kill_process(pid, Signal::KILL);
        });
        assert_eq!(supervisor.verify(job(n), &input).unwrap(), wanted, "{n}");
        killer.unwrap().join().unwrap();
    }
    assert!(supervisor.facts().unwrap().lost >= 1, "no kill hit a job");
}

#[test]
fn a_worker_that_hangs_is_killed_and_the_job_done_by_the_next() {
    let (mut supervisor, input) = (supervisor(102, Duration::from_secs(5)), picture());
    let wanted = supervisor.verify(job(0), &input).unwrap();
    let pid = Pid::from_raw(supervisor.facts().unwrap().pid.cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    assert_eq!(supervisor.verify(job(1), &input).unwrap(), wanted);
    let facts = supervisor.facts().unwrap();
    assert_eq!(facts.lost, 1);
    assert_ne!(facts.pid, pid.as_raw_nonzero().get().cast_unsigned());
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists());
}

#[test]
fn a_job_that_costs_two_workers_is_quarantined_and_the_next_is_done() {
    let (mut supervisor, input) = (supervisor(103, PATIENT), picture());
    supervisor.facts().unwrap();
    let (stop, hunter) = hunt(103, Signal::KILL, Duration::from_millis(25));
    let mut ends = Vec::new();
    for n in 1..=12u8 {
        ends.push((n, supervisor.verify(job(n), &input).map_err(|e| e.kind())));
    }
    stop.store(true, Ordering::Relaxed);
    hunter.join().unwrap();
    let quarantined: Vec<u8> = ends
        .iter()
        .filter(|(_, end)| *end == Err(ErrorKind::Quarantined))
        .map(|(n, _)| *n)
        .collect();
    assert!(!quarantined.is_empty(), "{ends:?}");
    for (n, end) in &ends {
        let known = end.is_ok() || matches!(end, Err(ErrorKind::Quarantined | ErrorKind::Worker));
        assert!(known, "{n}: {end:?}");
    }
    let lost = supervisor.facts().unwrap().lost;
    let again = supervisor.verify(job(quarantined[0]), &input).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Quarantined);
    assert_eq!(supervisor.facts().unwrap().lost, lost, "a quarantined job is not tried");
    supervisor.verify(job(99), &input).unwrap();
}

#[test]
fn a_cancelled_job_ends_at_once() {
    let (mut supervisor, input) = (supervisor(104, PATIENT), picture());
    supervisor.verify(job(1), &input).unwrap();
    supervisor.cancel_handle().cancel();
    let error = supervisor.verify(job(2), &input).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn no_worker_outlives_its_supervisor_even_stopped() {
    let mut supervisor = supervisor(105, PATIENT);
    let pid = Pid::from_raw(supervisor.facts().unwrap().pid.cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    drop(supervisor);
    assert!(workers(105).is_empty());
}

#[test]
fn a_picture_that_is_none_fails_and_costs_no_worker() {
    let mut supervisor = supervisor(106, PATIENT);
    let input = Input::Bytes { name: "text".to_owned(), bytes: b"no picture".to_vec() };
    let error = supervisor.verify(job(1), &input).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    assert_eq!(supervisor.facts().unwrap().lost, 0);
}
