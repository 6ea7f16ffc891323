//! A live pipeline under faults: whatever its detector, its worker or its models do, no face is seen.
//!
//! This program is both the test and, started with `worker`, a worker whose detector fails.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // It is a test, without a harness.

mod support;
#[path = "support/daemon.rs"]
mod daemon;
#[path = "support/scene.rs"]
mod scene;
#[path = "support/faulty.rs"]
mod faulty;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use daemon::Daemon;
use faulty::Faulty;
use scene::Shown;
use serde_json::Value;
use support::Bench;

const FPS: u32 = 60;
/// Frames that are judged; MIEN_LIVE_FRAMES asks for more (10,000 are the whole run).
const FRAMES: u64 = 1000;
/// A worker is killed after so many frames.
const KILL: u64 = 200;

const NAME: &str = "every_fault_leaves_every_face_covered";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == "worker" => {
            let name = std::env::args_os().next().unwrap_or_default();
            let whole = name.to_string_lossy().ends_with("made-worker");
            return mien_worker::main_on(arguments, move |threads| {
                Arc::new(if whole { Faulty::whole(threads) } else { Faulty::new(threads) })
            });
        }
        // A home with the made models, and the scene, for runs by hand and in the VM.
        Some(first) if first == "world" => {
            let home = PathBuf::from(arguments.next().unwrap());
            scene::install_models(&home);
            fs::write(home.join("clip.y4m"), scene::clip(25)).unwrap();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    // A word asks for tests whose names hold it.
    let named = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let is_listed = std::env::args().any(|word| word == "--list");
    if is_listed || named.is_some_and(|word| !NAME.contains(&word)) {
        return ExitCode::SUCCESS;
    }
    every_fault_leaves_every_face_covered();
    println!("test {NAME} ... ok");
    ExitCode::SUCCESS
}

fn wanted() -> u64 {
    std::env::var("MIEN_LIVE_FRAMES").ok().and_then(|n| n.parse().ok()).unwrap_or(FRAMES)
}

fn status(bench: &Bench) -> Option<Value> {
    let ran = bench.run(&["status", "--json"]);
    (ran.code == 0).then(|| ran.json()["pipelines"][0].clone())
}

/// Judges and removes what is recorded; frames by what they show.
fn judge(bench: &Bench, tally: &mut BTreeMap<&'static str, u64>) {
    let mut files = scene::files(&bench.path("rec"), ".mp4");
    files.sort();
    for path in files {
        for (n, image) in scene::frames(&path).iter().enumerate() {
            let shown = match scene::judge(image) {
                Shown::Covered => "covered whole",
                Shown::Masked(_) => "masked",
                exposed @ Shown::Exposed(..) => {
                    fs::copy(&path, std::env::temp_dir().join("mien-exposed.mp4")).unwrap();
                    panic!("{path:?}, frame {n}: {exposed:?}");
                }
            };
            *tally.entry(shown).or_default() += 1;
        }
        fs::remove_file(&path).unwrap();
    }
}

fn every_fault_leaves_every_face_covered() {
    let (bench, wanted) = (Bench::bare("live-faults"), wanted());
    scene::install_models(&bench.home());
    fs::write(bench.path("clip.y4m"), scene::clip(FPS)).unwrap();
    let worker: PathBuf = std::env::current_exe().unwrap();
    let config = format!(
        "[worker]\nprogram = \"{}\"\nthreads = 2\n\
         [[camera]]\nname = \"clip\"\ndevice = \"file:clip.y4m\"\n\
         [[output]]\nname = \"rec\"\nkind = \"segments\"\ndir = \"rec\"\nlength = \"1 s\"\n\
         keep_free = \"1 MiB\"\n\
         [[pipeline]]\nname = \"door\"\ncamera = \"clip\"\noutputs = [\"rec\"]\n\
         detector = \"made\"\ndetector_size = 320\n",
        worker.display()
    );
    let daemon = Daemon::start(&bench, &config);
    let mut tally = BTreeMap::new();
    let (mut killed, mut swapped, mut at, mut last) = (0_u64, 0_u64, 0, Value::Null);
    let judged = |tally: &BTreeMap<&str, u64>| tally.values().sum::<u64>();
    let mut idle = 0;
    while judged(&tally) < wanted {
        std::thread::sleep(Duration::from_millis(150));
        let Some(pipeline) = status(&bench) else { panic!("the daemon is gone: {last:#}") };
        let moved = pipeline["moved"].as_u64().unwrap();
        if moved >= at + KILL
            && let Some(pid) = pipeline["worker"]["pid"].as_u64()
        {
            at = moved;
            // It may have died of itself meanwhile.
            if Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success() {
                killed += 1;
            }
            // Every other time the detector is another one from here on.
            if killed % 2 == 1 {
                swapped += 1;
                scene::install_detector(&bench.home(), swapped as f32 * 1e-3);
            }
            judge(&bench, &mut tally);
        }
        idle = if last["moved"] == pipeline["moved"] { idle + 1 } else { 0 };
        assert!(idle < 1200, "nothing leaves any more: {pipeline:#}");
        last = pipeline;
    }
    last = status(&bench).unwrap();
    daemon.signal("TERM");
    let (code, said) = daemon.end();
    assert_eq!(code, 0, "{said}");
    judge(&bench, &mut tally);
    let mut recoveries: Vec<u64> =
        last["recoveries_ms"].as_array().unwrap().iter().map(|ms| ms.as_u64().unwrap()).collect();
    recoveries.sort_unstable();
    let share = |hundredths: usize| {
        recoveries[(recoveries.len() * hundredths / 100).min(recoveries.len() - 1)]
    };
    println!(
        "{} frames judged ({tally:?}), 0 faces seen; {killed} workers killed, {} lost in all, \
         {swapped} models swapped; recovered after p50 {} p95 {} most {} ms",
        judged(&tally),
        last["workers_lost"],
        share(50),
        share(95),
        recoveries.last().unwrap()
    );
    println!("why: {}", last["stats"]["reasons"]);
    println!("dropped: {}", last["stats"]["drops"]);
    assert!(tally["masked"] > judged(&tally) / 4, "hardly anything was shown: {tally:?}");
    let reasons = last["stats"]["reasons"].to_string();
    for why in ["the detector was late", "the detector failed", "the worker was lost"] {
        assert!(reasons.contains(why), "never: {why} in {reasons}");
    }
    assert!(killed >= wanted / KILL / 2 && swapped > 0);
    assert_eq!(bench.run(&["audit", "verify"]).code, 0);
}
