//! Consent that is taken back while a clip is worked on ends the swap with the next frame.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;
#[path = "support/clips.rs"]
mod clips;

use std::process::Stdio;
use std::time::Duration;

use support::{Bench, Ran, picture};

const FRAMES: u32 = 900;

/// Bytes below the folder beside the input.
fn written(bench: &Bench) -> u64 {
    let files = bench.files();
    let others = files.iter().filter(|name| *name != "in.y4m");
    others.filter_map(|name| std::fs::metadata(bench.path(name)).ok()).map(|m| m.len()).sum()
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_revocation_by_another_process_ends_the_swap_with_the_next_frame_and_is_recorded() {
    let bench = Bench::new("clip-consent");
    bench.enrol("hopper", &picture("hopper.jpg"));
    clips::write(&bench.path("in.y4m"), &clips::wandering(FRAMES));
    let args = ["process", "in.y4m", "-o", "out.mp4", "--swap", "hopper", "--json"];
    let child = bench
        .mien(&[&args[..], &["--detector-size", "96"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It is well on its way once a segment is there.
    while written(&bench) < 20_000 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let revoked = bench.run(&["consent", "revoke", "hopper"]);
    assert_eq!(revoked.code, 0, "{}", revoked.err);
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.err);

    let rows = bench.run(&["audit", "query", "--kind", "revoke", "--json"]).json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2, "it was taken back, and it held: {rows:?}");
    let held = &rows[0];
    let frame = held["body"]["frame"].as_u64().unwrap();
    assert!((1..u64::from(FRAMES)).contains(&frame), "in the middle of the clip: {frame}");

    // There is one face: swapped in each frame up to that one and not once more.
    let report = ran.json()["clips"][0]["report"].clone();
    assert_eq!(report["frames"].as_u64(), Some(u64::from(FRAMES)));
    let done = |what: &str| -> u64 {
        let all = report["done"].as_array().unwrap().iter();
        all.filter(|one| one[0].as_str().unwrap().starts_with(what))
            .filter_map(|one| one[1].as_u64())
            .sum()
    };
    assert_eq!(done("swap"), frame, "{report}");
    assert!(done("solid") >= u64::from(FRAMES) - frame, "{report}");
    let job = bench.run(&["audit", "query", "--kind", "job", "--json"]).json();
    assert_eq!(held["job"], job[0]["job"]);
    assert_eq!(bench.run(&["audit", "verify"]).code, 0);
}
