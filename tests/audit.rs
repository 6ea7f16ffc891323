//! What the record says of a run, and what happens when it can't be kept.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::fs;

use support::{Bench, picture, save, small_face};

/// Rows of a query, as JSON.
fn rows(bench: &Bench, args: &[&str]) -> Vec<serde_json::Value> {
    let ran = bench.run(&[&["audit", "query", "--json"], args].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.json().as_array().unwrap().clone()
}

#[test]
fn the_record_of_a_home_without_rows_holds_and_bad_questions_are_named() {
    let bench = Bench::bare("audit-empty");
    let ran = bench.run(&["audit", "verify"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (args, word) in [
        (&["audit", "query", "--kind", "jobs"][..], "model-install"),
        (&["audit", "query", "--region", "5,5,1,1"], "percent"),
        (&["audit", "query", "--from", "noon"], "YYYY-MM-DD"),
        (&["audit", "query", "--job", "12"], "32 hex digits"),
        (&["audit", "export", "x.jsonl"], "No row"),
        (&["audit", "verify", "x.jsonl"], "x.jsonl.sig"),
        (&["consent", "grant", "ada"], "--subject"),
        (&["consent", "revoke", "ada"], "not enrolled"),
        (&["source", "forget", "ada"], "not enrolled"),
    ] {
        let ran = bench.run(args);
        assert_ne!(ran.code, 0, "{args:?}");
        assert!(ran.err.contains(word), "{args:?}: {}", ran.err);
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_picture_and_a_clip_that_fail_are_in_the_record() {
    let bench = Bench::new("audit-failed");
    fs::write(bench.path("cut.png"), &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..]).unwrap();
    fs::write(bench.path("cut.y4m"), &b"YUV4MPEG2 W64 H64 F25:1 Ip C420\nFRAME\nhalf"[..]).unwrap();
    for (input, output) in [("cut.png", "out.png"), ("cut.y4m", "out.y4m")] {
        let ran = bench.run(&["process", input, "-o", output]);
        assert_eq!(ran.code, 4, "{}", ran.err);
    }
    let outcomes = rows(&bench, &["--kind", "job"]);
    let outcomes: Vec<_> = outcomes.iter().map(|row| row["body"]["outcome"].as_str()).collect();
    assert_eq!(outcomes, [Some("failed"); 2]);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn enrolment_consent_jobs_and_refusals_are_recorded_and_proven_elsewhere() {
    let bench = Bench::new("audit-run");
    save(&bench.path("in.png"), &small_face(256));
    let hopper = picture("hopper.jpg");
    bench.enrol("hopper", &hopper);
    let swap = |out: &str| bench.run(&["process", "in.png", "-o", out, "--swap", "hopper"]);
    assert_eq!(swap("out.png").code, 0);
    let revoked = bench.run(&["consent", "revoke", "hopper", "--json"]);
    assert_eq!(revoked.code, 0, "{}", revoked.err);
    assert_eq!(swap("no.png").code, 7);
    let kinds: Vec<String> = rows(&bench, &[])
        .iter()
        .rev()
        .map(|row| row["kind"].as_str().unwrap().to_owned())
        .collect();
    // By time: rows of one second stand by number.
    assert_eq!(kinds, ["enrol", "grant", "job", "revoke", "refused"]);

    let job = rows(&bench, &["--kind", "job"]).remove(0);
    let digest = mien_vault::digest::of(&fs::read(bench.path("out.png")).unwrap());
    assert_eq!(job["body"]["output"], serde_json::Value::from(digest));
    assert_eq!(job["faces"][0]["did"], "swap:hopper");
    let id = revoked.json()[0]["id"].clone();
    assert_eq!(job["body"]["consents"][0], id);
    let [x0, y0, x1, y1] =
        [0, 1, 2, 3].map(|n| job["faces"][0]["box"][n].as_u64().unwrap() as f64 / 100.0);
    let inside = format!("{},{},{},{}", x0 + 1.0, y0 + 1.0, x1 - 1.0, y1 - 1.0);
    assert_eq!(rows(&bench, &["--region", &inside]), [job]);
    let outside = format!("{},0,100,100", (x1 + 1.0).min(100.0));
    assert!(rows(&bench, &["--region", &outside]).is_empty());

    assert_eq!(bench.run(&["audit", "export", "all.jsonl"]).code, 0);
    // Another machine: no home, the file and its signature alone.
    let other = Bench::bare("audit-elsewhere");
    for name in ["all.jsonl", "all.jsonl.sig"] {
        fs::copy(bench.path(name), other.path(name)).unwrap();
    }
    let key = other.run(&["audit", "verify", "all.jsonl", "--json"]);
    assert_eq!(key.code, 0, "{}", key.err);
    let key = key.json()["statement"]["key"].as_str().unwrap().to_owned();
    assert_eq!(other.run(&["audit", "verify", "all.jsonl", "--key", &key]).code, 0);
    assert!(fs::read_dir(other.home()).unwrap().next().is_none(), "no home was needed");
    let text = fs::read_to_string(other.path("all.jsonl")).unwrap();
    fs::write(other.path("all.jsonl"), text.replace("swap:hopper", "solid")).unwrap();
    let ran = other.run(&["audit", "verify", "all.jsonl"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("row 4"), "{} {}", ran.out, ran.err);

    let again = bench.run(&["source", "enrol", "again", hopper.to_str().unwrap(), "--json"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!(again.json()["alike"][0][0], "hopper", "one person under two names is told");
    assert!(again.err.contains("looks like `hopper`"), "{}", again.err);
    let forgotten = bench.run(&["source", "forget", "hopper", "--json"]);
    assert_eq!(forgotten.code, 0, "{}", forgotten.err);
    assert!(forgotten.json()["pieces"].as_u64().unwrap() > 100);
    assert_eq!(bench.run(&["audit", "verify"]).code, 0);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn an_output_whose_row_can_not_be_kept_does_not_appear() {
    let bench = Bench::new("audit-stop");
    save(&bench.path("in.png"), &small_face(256));
    let ran = bench.run(&["process", "in.png", "-o", "first.png"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    // What a full disk does to a row, and only to rows.
    let conn = rusqlite::Connection::open(bench.home().join("mien.db")).unwrap();
    conn.execute_batch(
        "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no room'); END",
    )
    .unwrap();
    let before = bench.files();
    let ran = bench.run(&["process", "in.png", "-o", "second.png"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert_eq!(bench.files(), before, "nothing appeared, nothing half-written is left");
    let ran = bench.run(&["process", "in.png", "-o", "second.png", "--allow-unaudited"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("not recorded"), "{}", ran.err);
}
