//! Real models and pictures through the sandboxed worker. `tests/run` sets MIEN_MODELS and MIEN_PICTURES.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mien_base::clock::{SystemClock, Wall};
use mien_base::consent::{ConsentRecord, Quality, Scope, SourceRecord};
use mien_base::error::ErrorKind;
use mien_base::id::JobId;
use mien_base::limits;
use mien_base::recipe::Recipe;
use mien_base::wire;
use mien_daemon::files::{Input, Output};
use mien_daemon::supervise::{
    Backoff, DetectJob, EnrolJob, Finished, Hang, Policy, ProcessJob, SheetJob, Source, Supervisor,
    WorkerConfig,
};
use mien_pixels::codec::{self, FileFormat, Metadata};
use mien_pixels::geometry::Size;
use mien_pixels::view::Rgb;
use mien_vault::{Home, ModelStore};
use rustix::process::{Pid, Signal, kill_process};

const WALL: Wall = Wall(1_796_063_974);
const AS_INPUT: wire::Output = wire::Output { format: None, quality: 92 };

fn folder(variable: &str) -> PathBuf {
    std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")).into()
}

fn picture(name: &str) -> Input {
    Input::Path(folder("MIEN_PICTURES").join(name))
}

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mien-jobs-{}-{count}", std::process::id()));
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(folder("MIEN_MODELS"), path.join("models")).unwrap();
        fs::create_dir(path.join("out")).unwrap();
        Self(path)
    }

    fn out(&self, name: &str) -> PathBuf {
        self.0.join("out").join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("out")).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn supervisor(&self) -> Supervisor {
        let config = WorkerConfig {
            program: PathBuf::from(env!("CARGO_BIN_EXE_mien")),
            arguments: vec![OsString::from("worker")],
            threads: 2,
            memory_mib: 4096,
            file_mib: 256,
            unsandboxed: false,
            hang: Hang::default(),
            backoff: Backoff { first: Duration::from_millis(1), ..Backoff::default() },
        };
        let models = Box::new(ModelStore::new(&Home::at(&self.0), Arc::new(SystemClock::start())));
        Supervisor::start(config, models, Arc::new(SystemClock::start())).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn process(
    supervisor: &mut Supervisor,
    n: u8,
    recipe: &Recipe,
    input: &Input,
    output: &Path,
) -> mien_daemon::Result<Finished> {
    supervisor.process(&ProcessJob {
        job: JobId([n; 16]),
        recipe,
        input,
        output: &Output::Path(output.to_owned()),
        overlay: None,
        write: AS_INPUT,
        wall: WALL,
    })
}

fn marked(supervisor: &mut Supervisor, n: u8, path: &Path) -> bool {
    let input = Input::Path(path.to_owned());
    supervisor.verify(JobId([n; 16]), &input).unwrap().payload.is_some()
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn the_same_job_twice_gives_the_same_marked_bytes() {
    let scratch = Scratch::new();
    let mut supervisor = scratch.supervisor();
    let (a, b) = (scratch.out("a.png"), scratch.out("b.png"));
    let recipe = Recipe::default();
    let first = process(&mut supervisor, 1, &recipe, &picture("astronaut.png"), &a).unwrap();
    let second = process(&mut supervisor, 1, &recipe, &picture("astronaut.png"), &b).unwrap();
    assert_eq!(first.report.faces.len(), 1, "{:?}", first.report);
    assert_eq!(first.report.faces[0].done, "solid");
    assert_eq!(first.report.format, "png");
    assert_eq!(fs::read(&a).unwrap(), fs::read(&b).unwrap());
    assert_eq!(first.written, second.written);
    assert_eq!(first.written.unwrap().bytes, fs::metadata(&a).unwrap().len());
    assert!(marked(&mut supervisor, 2, &a));
    assert!(!marked(&mut supervisor, 3, &folder("MIEN_PICTURES").join("astronaut.png")));
    let stages: Vec<_> = first.report.stages.iter().map(|s| s.stage.as_str()).collect();
    assert!(stages.first() == Some(&"decode") && stages.last() == Some(&"encode"), "{stages:?}");
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_detection_alters_nothing_and_its_drawing_is_marked() {
    let scratch = Scratch::new();
    let mut supervisor = scratch.supervisor();
    let recipe = Recipe::default();
    let drawn = Output::Path(scratch.out("drawn.jpg"));
    let mut job = DetectJob {
        job: JobId([1; 16]),
        detect: &recipe.detect,
        input: &picture("hopper.jpg"),
        draw: None,
        wall: WALL,
    };
    let found = supervisor.detect(&job).unwrap();
    assert_eq!((found.report.faces.len(), found.written), (1, None));
    job.draw = Some((&drawn, AS_INPUT, &recipe.mark));
    supervisor.detect(&job).unwrap();
    assert!(marked(&mut supervisor, 2, &scratch.out("drawn.jpg")));
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_swap_needs_a_source_and_its_consent_and_a_revocation_ends_it() {
    let scratch = Scratch::new();
    let mut supervisor = scratch.supervisor();
    let mut recipe = Recipe::default();
    let (record, portrait) = supervisor
        .enrol(&EnrolJob {
            job: JobId([1; 16]),
            identity: &"grace".parse().unwrap(),
            detect: &recipe.detect,
            input: &picture("hopper.jpg"),
            wall: WALL,
        })
        .unwrap();
    assert!(portrait.starts_with(b"\x89PNG") && record.mesh.len() == 468);
    let consent = ConsentRecord {
        identity: record.identity.clone(),
        subject: "p-1".to_owned(),
        purpose: "test".to_owned(),
        scope: vec![Scope::Swap],
        granted: Wall(1),
        expires: Wall(WALL.0 + 1),
        revoked: None,
        evidence: None,
        operator: "test".to_owned(),
    };
    let policy = |consents| Policy {
        sources: vec![Source { record: record.clone(), portrait: portrait.clone(), consents }],
    };
    recipe.action = "swap:grace".parse().unwrap();
    let (input, out) = (picture("astronaut.png"), scratch.out("swap.png"));
    let done = |result: &mien_daemon::Result<Finished>| match result {
        Ok(finished) => finished.report.faces[0].done.clone(),
        Err(error) => format!("{:?}", error.kind()),
    };

    let nobody = process(&mut supervisor, 2, &recipe, &input, &out);
    assert!(!done(&nobody).starts_with("swap"), "{nobody:?}");
    supervisor.set_policy(policy(vec![]));
    let without = process(&mut supervisor, 3, &recipe, &input, &out);
    assert!(!done(&without).starts_with("swap"), "{without:?}");
    supervisor.set_policy(policy(vec![consent.clone()]));
    let with = process(&mut supervisor, 4, &recipe, &input, &out);
    assert_eq!(done(&with), "swap:grace", "{with:?}");
    let revoked = ConsentRecord { revoked: Some(Wall(2)), ..consent };
    supervisor.set_policy(policy(vec![revoked]));
    let after = process(&mut supervisor, 5, &recipe, &input, &out);
    assert!(!done(&after).starts_with("swap"), "{after:?}");
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_worker_killed_while_it_writes_leaves_whole_files_or_none() {
    let scratch = Scratch::new();
    let mut supervisor = scratch.supervisor();
    let (recipe, input) = (Recipe::default(), picture("astronaut.png"));
    let wanted = scratch.out("wanted.png");
    process(&mut supervisor, 0, &recipe, &input, &wanted).unwrap();
    let wanted = fs::read(wanted).unwrap();
    for n in 1..=15u8 {
        let pid = Pid::from_raw(supervisor.facts().unwrap().pid.cast_signed()).unwrap();
        let signal = if n % 5 == 0 { Signal::SEGV } else { Signal::KILL };
        let killer = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(Duration::from_millis(u64::from(n) * 17));
            let _ = kill_process(pid, signal);
        });
        let out = scratch.out("out.png");
        match process(&mut supervisor, n, &recipe, &input, &out) {
            Ok(_) => assert_eq!(fs::read(&out).unwrap(), wanted, "{n}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Quarantined, "{n}: {error}");
                assert!(!out.exists());
            }
        }
        killer.unwrap().join().unwrap();
        let _ = fs::remove_file(out);
        assert_eq!(scratch.names(), ["wanted.png"], "{n}");
    }
    assert!(supervisor.facts().unwrap().lost > 0);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_cancelled_job_leaves_nothing_and_keeps_the_old_file() {
    let scratch = Scratch::new();
    for n in 1..=6u8 {
        let mut supervisor = scratch.supervisor();
        fs::write(scratch.out("out.png"), b"old").unwrap();
        let handle = supervisor.cancel_handle();
        let canceller = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(Duration::from_millis(u64::from(n) * 12));
            handle.cancel();
        });
        let out = scratch.out("out.png");
        let end = process(&mut supervisor, n, &Recipe::default(), &picture("astronaut.png"), &out);
        canceller.unwrap().join().unwrap();
        if let Err(error) = end {
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            assert_eq!(fs::read(&out).unwrap(), b"old");
        }
        assert_eq!(scratch.names(), ["out.png"]);
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_sheet_of_an_altered_picture_is_marked_like_it() {
    let scratch = Scratch::new();
    let mut supervisor = scratch.supervisor();
    let (recipe, input) = (Recipe::default(), picture("astronaut.png"));
    process(&mut supervisor, 1, &recipe, &input, &scratch.out("a.png")).unwrap();
    let inputs = [input, Input::Path(scratch.out("a.png"))];
    let job = SheetJob {
        job: JobId([2; 16]),
        inputs: &inputs,
        columns: 2,
        cell: (400, 300),
        output: &Output::Path(scratch.out("sheet.jpg")),
        write: AS_INPUT,
        mark: &recipe.mark,
        wall: WALL,
    };
    supervisor.sheet(&job).unwrap();
    let sheet = Input::Path(scratch.out("sheet.jpg"));
    let marks = supervisor.verify(JobId([3; 16]), &sheet).unwrap();
    assert_eq!(marks.altered, Some(true), "{marks:?}");
}

/// As many sources as there may be, and `more`.
fn policy(more: usize) -> Policy {
    let size = Size::new(64, 64);
    let rgb = Rgb::filled(size, [90; 3]);
    let portrait =
        codec::encode(rgb.view(), None, FileFormat::Png, 100, &Metadata::default()).unwrap();
    let quality = Quality { face_px: 64.0, sharpness: 99.0, yaw: 0.0, pitch: 0.0, score: 1.0 };
    let source = |n| Source {
        record: SourceRecord {
            identity: format!("person-{n}").parse().unwrap(),
            embedder: None,
            embedding: Vec::new(),
            mesh: Vec::new(),
            landmarks: [[20., 20.], [44., 20.], [32., 32.], [24., 44.], [40., 44.]],
            quality,
            enrolled: Wall(1),
        },
        portrait: portrait.clone(),
        consents: Vec::new(),
    };
    Policy { sources: (0..limits::IDENTITIES + more).map(source).collect() }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn the_largest_policy_holds_a_larger_one_is_refused_and_a_broken_one_leaves_nobody() {
    let scratch = Scratch::new();
    let (mut supervisor, input) = (scratch.supervisor(), picture("astronaut.png"));
    // Nobody agreed to anything, so the face is covered; but whoever is asked for is handed over.
    let recipe = Recipe { action: "swap:person-0".parse().unwrap(), ..Recipe::default() };
    let mut go = |n: u8, policy| {
        supervisor.set_policy(policy);
        let done = process(&mut supervisor, n, &recipe, &input, &scratch.out("out.png"));
        done.map(drop).map_err(|error| error.kind())
    };
    assert_eq!(go(1, policy(0)), Ok(()));
    assert_eq!(go(2, policy(1)), Err(ErrorKind::Worker));
    let mut broken = policy(0);
    broken.sources[5].portrait = b"no picture".to_vec();
    assert_eq!(go(3, broken), Err(ErrorKind::BadInput));
    assert_eq!(go(4, policy(0)), Ok(()));
}
