//! A thousand mixed pictures through one worker: flat memory, and the same output at start and end.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mien_base::clock::{SystemClock, Wall};
use mien_base::id::JobId;
use mien_base::recipe::{Detect, Recipe};
use mien_base::wire::Output as Write;
use mien_daemon::files::{Input, Output};
use mien_daemon::supervise::{ProcessJob, Supervisor, WorkerConfig};
use mien_vault::{Home, ModelStore};
use support::{Bench, picture, save, small_face};

const PICTURES: u32 = 1000;

fn supervisor(bench: &Bench) -> Supervisor {
    let mut config = WorkerConfig::this_program().unwrap();
    config.program = PathBuf::from(env!("CARGO_BIN_EXE_mien"));
    let models =
        Box::new(ModelStore::new(&Home::at(&bench.home()), Arc::new(SystemClock::start())));
    Supervisor::start(config, models, Arc::new(SystemClock::start())).unwrap()
}

/// The bytes of one processed picture; `None` when it was refused.
fn process(
    worker: &mut Supervisor,
    bench: &Bench,
    n: u32,
    input: &Path,
    size: u32,
) -> Option<Vec<u8>> {
    let actions = ["solid", "blur", "mosaic:4", "synthetic:3"];
    let fallback = Recipe::default();
    let recipe = Recipe {
        action: actions[n as usize % actions.len()].parse().unwrap(),
        detect: Detect { size: Some(size), angles: vec![0], ..fallback.detect.clone() },
        ..fallback
    };
    let output = bench.path("out.png");
    let _ = fs::remove_file(&output);
    let done = worker.process(&ProcessJob {
        job: JobId(u128::from(n).to_be_bytes()),
        recipe: &recipe,
        input: &Input::Path(input.to_owned()),
        output: &Output::Path(output.clone()),
        overlay: None,
        write: Write { format: None, quality: 90 },
        wall: Wall(1_796_000_000),
    });
    done.is_ok().then(|| fs::read(output).unwrap())
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_thousand_mixed_pictures_leave_memory_flat_and_the_output_the_same() {
    let bench = Bench::new("endurance");
    let mut inputs = Vec::new();
    for (side, name) in [(96, "a.png"), (120, "b.jpg"), (64, "c.png"), (161, "d.jpg")] {
        save(&bench.path(name), &small_face(side));
        inputs.push(bench.path(name));
    }
    fs::write(bench.path("broken.jpg"), &fs::read(&inputs[1]).unwrap()[..700]).unwrap();
    inputs.push(bench.path("broken.jpg"));
    let grey = mien_pixels::view::Rgb::filled(mien_pixels::geometry::Size::new(200, 40), [77; 3]);
    save(&bench.path("none.png"), &grey);
    inputs.push(bench.path("none.png"));

    let mut worker = supervisor(&bench);
    let first = process(&mut worker, &bench, 1, &picture("astronaut.png"), 320).unwrap();
    let (mut early, mut done) = (0, 0);
    for n in 0..PICTURES {
        let input = &inputs[n as usize % inputs.len()];
        done += u32::from(process(&mut worker, &bench, n, input, 96).is_some());
        if n == PICTURES / 5 {
            early = worker.facts().unwrap().rss_kib.unwrap();
        }
    }
    let late = worker.facts().unwrap();
    let last = process(&mut worker, &bench, 1, &picture("astronaut.png"), 320).unwrap();
    assert!(last == first, "nothing of a job leaks into another");
    assert_eq!(done, PICTURES - PICTURES / 6, "all but the broken ones");
    assert_eq!(late.lost, 0, "one worker did it all");
    let late = late.rss_kib.unwrap();
    assert!(late < early + early / 20 + 4096, "resident KiB at a fifth {early}, at the end {late}");
}
