//! Worker and root program are killed at any moment: the clip comes out as if nobody had been.
//!
//! `MIEN_KILLS` says how many times the worker is killed; 10 where it is not set.

#![allow(clippy::unwrap_used)]

mod support;
#[path = "support/clips.rs"]
mod clips;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mien_base::clock::{SystemClock, Wall};
use mien_base::error::ErrorKind;
use mien_base::id::JobId;
use mien_base::recipe::{Detect, Recipe};
use mien_base::wire::clip::{ClipOutput, Container, Rate};
use mien_daemon::files::{Input, Output};
use mien_daemon::supervise::{Backoff, ClipJob, Supervisor, WorkerConfig};
use mien_vault::{Home, ModelStore};
use rustix::process::{Pid, Signal, kill_process};
use support::{Bench, Ran};

const ARGS: [&str; 8] = [
    "process",
    "in.y4m",
    "--detector-size",
    "96",
    "--clock",
    "1796000000",
    "--job",
    "00112233445566778899aabbccddeeff",
];

/// A random number below `most`, of a sequence that is the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % most
    }
}

fn children(pid: u32) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let lists = tasks.flatten().map(|task| fs::read_to_string(task.path().join("children")));
    let pids = lists.flatten().flat_map(|list| {
        list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()).collect::<Vec<_>>()
    });
    pids.filter_map(Pid::from_raw).collect()
}

fn start(bench: &Bench, out: &str) -> Child {
    let args = [&ARGS[..], &["-o", out, "--json"]].concat();
    bench.mien(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The clip as it comes out when nobody is killed, and how long that takes.
fn whole(bench: &Bench) -> (Vec<u8>, Duration) {
    clips::write(&bench.path("in.y4m"), &clips::wandering(600));
    #[expect(clippy::disallowed_methods, reason = "kills must fall into the time of a run")]
    let start_of_run = Instant::now();
    let ran: Ran = start(bench, "whole.mp4").wait_with_output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.err);
    (fs::read(bench.path("whole.mp4")).unwrap(), start_of_run.elapsed())
}

fn killed(bench: &Bench, out: &str, after: Duration) -> Ran {
    let child = start(bench, out);
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    std::thread::sleep(after);
    let _ = kill_process(pid, Signal::KILL);
    child.wait_with_output().unwrap().into()
}

/// Kills the worker at random moments, never more often than a segment takes, until it is told.
fn hunt(parent: u32, kills: &AtomicU64, most: u64, pause: Duration) {
    let mut dice = Dice(kills.load(Ordering::Relaxed) + 7);
    while fs::exists(format!("/proc/{parent}/task")).unwrap()
        && kills.load(Ordering::Relaxed) < most
    {
        std::thread::sleep(pause.mul_f64(0.2 + dice.below(1000) as f64 / 1000.0));
        for worker in children(parent) {
            if kill_process(worker, Signal::KILL).is_ok() {
                kills.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_worker_killed_at_random_moments_costs_no_byte_of_the_clip() {
    let wanted: u64 = std::env::var("MIEN_KILLS").map_or(10, |n| n.parse().unwrap());
    let bench = Bench::new("clip-worker-killed");
    let (bytes, time) = whole(&bench);
    let (mut kills, mut runs, mut goes_on) = (0, 0, 0);
    let hits = Arc::new(AtomicU64::new(0));
    while kills < wanted {
        runs += 1;
        let child = start(&bench, "out.mp4");
        let (parent, counter) = (child.id(), Arc::clone(&hits));
        let hunter =
            std::thread::Builder::new().spawn(move || hunt(parent, &counter, wanted, time / 4));
        let ran: Ran = child.wait_with_output().unwrap().into();
        hunter.unwrap().join().unwrap();
        kills = hits.load(Ordering::Relaxed);
        // Two kills in one segment are what quarantine is for: the next run goes on.
        if ran.code == 13 {
            assert!(!bench.path("out.mp4").exists());
            continue;
        }
        assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
        goes_on += u64::from(ran.json()["clips"][0]["resumed"].as_u64().unwrap_or(0) > 0);
        assert!(fs::read(bench.path("out.mp4")).unwrap() == bytes, "after {kills} kills");
        fs::remove_file(bench.path("out.mp4")).unwrap();
    }
    println!("{kills} kills, {runs} runs, {goes_on} went on from another's segments");
    if bench.path(".out.mp4.mien").exists() {
        let last: Ran = start(&bench, "out.mp4").wait_with_output().unwrap().into();
        assert_eq!(last.code, 0, "{}", last.err);
        assert!(fs::read(bench.path("out.mp4")).unwrap() == bytes);
        fs::remove_file(bench.path("out.mp4")).unwrap();
    }
    assert_eq!(bench.files(), ["in.y4m", "whole.mp4"]);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_root_program_killed_at_random_moments_is_gone_on_with_by_the_next() {
    let bench = Bench::new("clip-root-killed");
    let (bytes, time) = whole(&bench);
    let (mut dice, mut resumed) = (Dice(3), 0);
    for round in 0..3 {
        for _ in 0..3 {
            killed(&bench, "out.mp4", time.mul_f64(0.2 + dice.below(700) as f64 / 1000.0));
            // It may have been done before: then it is whole.
            if let Ok(out) = fs::read(bench.path("out.mp4")) {
                assert!(out == bytes, "round {round}: something half is there");
            }
        }
        let last: Ran = start(&bench, "out.mp4").wait_with_output().unwrap().into();
        assert_eq!(last.code, 0, "{}", last.err);
        resumed += last.json()["clips"][0]["resumed"].as_u64().unwrap_or(0);
        assert!(fs::read(bench.path("out.mp4")).unwrap() == bytes, "round {round}");
        fs::remove_file(bench.path("out.mp4")).unwrap();
        assert_eq!(bench.files(), ["in.y4m", "whole.mp4"]);
    }
    assert!(resumed > 0, "some run went on where another one was killed");
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_stopped_clip_keeps_its_segments_and_a_held_one_goes_on() {
    let bench = Bench::new("clip-stopped");
    let (bytes, _) = whole(&bench);
    let child = start(&bench, "out.mp4");
    let state = bench.path(".out.mp4.mien/state");
    while !state.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    // Ctrl-Z: the whole stops, and the worker waits between two frames.
    kill_process(pid, Signal::TSTP).unwrap();
    let is_stopped =
        || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(" T ");
    while !is_stopped() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let ticks = || {
        let worker = children(child.id())[0].as_raw_nonzero();
        let stat = fs::read_to_string(format!("/proc/{worker}/stat")).unwrap();
        stat.split(' ').nth(13).unwrap().parse::<u64>().unwrap()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_millis(700));
    assert!(ticks() <= before + 5, "the worker works on while it is held");
    kill_process(pid, Signal::CONT).unwrap();
    // Ctrl-C.
    std::thread::sleep(Duration::from_millis(300));
    kill_process(pid, Signal::INT).unwrap();
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 130, "{} {}", ran.out, ran.err);
    assert!(ran.err.contains(".out.mp4.mien") && ran.err.contains("goes on"), "{}", ran.err);
    assert!(state.exists() && !bench.path("out.mp4").exists());

    let last: Ran = start(&bench, "out.mp4").wait_with_output().unwrap().into();
    assert_eq!(last.code, 0, "{}", last.err);
    assert!(last.json()["clips"][0]["resumed"].as_u64().unwrap() >= 120);
    assert!(fs::read(bench.path("out.mp4")).unwrap() == bytes);
    assert_eq!(bench.files(), ["in.y4m", "out.mp4", "whole.mp4"]);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_clip_that_kills_its_worker_twice_in_one_segment_is_quarantined() {
    let bench = Bench::new("clip-quarantine");
    let input = clips::write(&bench.path("in.y4m"), &clips::wandering(600));
    let mut config = WorkerConfig::this_program().unwrap();
    config.program = PathBuf::from(env!("CARGO_BIN_EXE_mien"));
    config.file_mib = 64;
    config.backoff = Backoff { first: Duration::from_millis(1), ..Backoff::default() };
    let clock = Arc::new(SystemClock::start());
    let models = Box::new(ModelStore::new(&Home::at(&bench.home()), clock.clone()));
    let mut supervisor = Supervisor::start(config, models, clock).unwrap();
    let fallback = Recipe::default();
    let recipe = Recipe {
        detect: Detect { size: Some(320), angles: vec![0], ..fallback.detect.clone() },
        ..fallback
    };
    let output = Output::Path(bench.path("out.mp4"));
    let job = ClipJob {
        job: JobId([9; 16]),
        recipe: &recipe,
        input: &Input::Path(input),
        output: &output,
        overlay: None,
        write: ClipOutput { container: Container::Mp4, rate: Rate::AsInput, audio: true },
        range: None,
        wall: Wall(1_796_000_000),
    };
    let segments = supervisor.segments(&job, (None, None)).unwrap();
    let me = std::process::id();
    let mut frames = 0;
    let done = supervisor.clip(&job, segments, None, &mut |frame, _| {
        // In the second segment.
        if frame > 130 {
            frames = frame;
            let ours = |pid: &Pid| {
                let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
                String::from_utf8_lossy(&line.unwrap_or_default()).contains("--file-mib=64")
            };
            children(me).into_iter().filter(ours).for_each(|pid| {
                let _ = kill_process(pid, Signal::KILL);
            });
        }
    });
    let error = done.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quarantined, "{error}");
    assert!((131..=240).contains(&frames), "{frames}");
    assert!(!bench.path("out.mp4").exists());
    assert!(bench.path(".out.mp4.mien/state").exists(), "the first segment is kept");
    let again = supervisor.clip(&job, None, None, &mut |_, _| {});
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Quarantined);
}
