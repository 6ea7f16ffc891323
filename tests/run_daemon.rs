//! `mien run` as a process: it is alone, says how it stands, obeys signals, and nothing listens.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;
#[path = "support/daemon.rs"]
mod daemon;

use std::fs;

use daemon::Daemon;
use support::Bench;

#[test]
fn a_daemon_says_how_it_stands_obeys_signals_and_leaves_its_record() {
    let bench = Bench::bare("run");
    let daemon = Daemon::start(&bench, "[telemetry]\nlog = \"journald\"\n");
    let status = bench.run(&["status", "--json"]).json();
    assert_eq!(status["health"]["healthy"], true);
    assert_eq!(status["machine"]["pid"], daemon.child.id());
    let shown = bench.run(&["status"]);
    assert!(shown.code == 0 && shown.out.contains("healthy"), "{}", shown.out);
    let health = bench.run(&["health"]);
    assert_eq!((health.code, health.out.as_str()), (0, "healthy\n"));

    let second = bench.run(&["run", "--config", "mien.toml"]);
    assert_eq!(second.code, 2, "{}", second.err);
    assert!(second.err.contains("Another `mien run`"), "{}", second.err);

    fs::write(bench.path("mien.toml"), "[telemetry]\nlog = \"journald\"\nlevel = \"debug\"\n")
        .unwrap();
    assert_eq!(bench.run(&["reload"]).code, 0);
    fs::write(bench.path("mien.toml"), "[telemetry]\nlevle = \"info\"\n").unwrap();
    let refused = bench.run(&["reload"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("mien.toml:2: telemetry.levle"), "{}", refused.err);
    assert!(refused.err.contains("did you mean `level`"), "{}", refused.err);
    daemon.signal("HUP");
    daemon.wait("RELOADING=1");
    daemon.wait("refused");
    assert_eq!(bench.run(&["health"]).code, 0, "it goes on as it was");

    daemon.signal("TERM");
    daemon.wait("STOPPING=1");
    let (code, said) = daemon.end();
    assert_eq!(code, 0, "{said}");
    assert!(said.lines().all(|line| line.starts_with('<')), "{said}");
    assert!(said.contains("<6>stopped"), "{said}");
    assert!(!bench.home().join("control.sock").exists());
    let gone = bench.run(&["health"]);
    assert_eq!(gone.code, 10, "{}", gone.err);
    let rows = bench.run(&["audit", "tail", "--json"]).out;
    for kind in ["\"start\"", "\"config\"", "\"refused\"", "\"stop\""] {
        assert!(rows.contains(kind), "{kind} is not in {rows}");
    }
    assert_eq!(bench.run(&["audit", "verify"]).code, 0);
}

#[test]
fn nothing_listens_unless_it_is_configured() {
    let bench = Bench::bare("listen");
    let daemon = Daemon::start(&bench, "");
    assert_eq!(daemon.listens(), Vec::<String>::new());
    // A port that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let metrics = format!("[telemetry]\nmetrics = \"127.0.0.1:{port}\"\n");
    fs::write(bench.path("mien.toml"), metrics).unwrap();
    let done = bench.run(&["reload"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(daemon.listens(), [format!("tcp 0100007F:{port:04X}")]);
    fs::write(bench.path("mien.toml"), "").unwrap();
    assert_eq!(bench.run(&["reload"]).code, 0);
    assert_eq!(daemon.listens(), Vec::<String>::new());
    daemon.signal("TERM");
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn a_configuration_is_checked_without_starting_anything() {
    let bench = Bench::bare("check");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/mien.toml");
    let good = bench.run(&["check", "--config", example]);
    assert_eq!(good.code, 0, "{}", good.err);
    assert!(good.out.contains("1 camera, 1 output, 1 pipeline"), "{}", good.out);
    fs::write(bench.path("bad.toml"), "[camera]\n[[pipeline]]\nname = \"x\"\nfsp = 3\n").unwrap();
    let bad = bench.run(&["check", "--config", "bad.toml"]);
    assert_eq!(bad.code, 2);
    for told in
        ["bad.toml:1: camera", "bad.toml:2: pipeline.x.camera", "bad.toml:4: pipeline.x.fsp"]
    {
        assert!(bad.err.contains(told), "{told} is not in {}", bad.err);
    }
    assert_eq!(bench.run(&["run", "--config", "bad.toml"]).code, 2);
    assert!(!bench.home().join("mien.db").exists(), "nothing was opened");
}
