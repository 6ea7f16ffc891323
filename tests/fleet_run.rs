//! `mien run` with a broker: real jobs ordered over MQTT with TLS and access lists, and at the socket.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

#[path = "support/clips.rs"]
mod clips;
#[path = "fleet/support/mod.rs"]
mod fleet;
#[path = "fleet/site.rs"]
mod site;
mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use site::{Daemon, Site, picture, states};
use support::Bench;

#[test]
#[ignore = "needs mosquitto and models: tests/run installs and fetches them"]
fn a_signed_job_is_done_once_and_watched_to_its_end() {
    let site = Site::new(Bench::new("fleet-run"), "");
    let daemon = Daemon::start(&site.device);
    site.connected();
    let output = site.device.path("out/covered.png");
    let params = json!({
        "input": picture(&site, "face.png"),
        "output": { "uri": format!("file:{}", output.display()) },
        "rules": [{ "who": "anyone", "then": { "do": "anonymise", "how": "solid" } }],
    })
    .to_string();
    let order = ["submit", "dev-1", "image.process", "--id", "picture-1", "--as", "ops"];
    let ran = site.fleet(&[&order[..], &["--params", &params]].concat());
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let seen = states(&ran);
    assert_eq!(seen.last().unwrap(), "succeeded", "{seen:?}");
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    let told = &last["job"]["result"]["output"];
    let bytes = fs::read(&output).unwrap();
    assert_eq!(told["sha256"], mien_vault::digest::of(&bytes));
    assert_eq!(told["size"], bytes.len());
    assert_eq!(last["job"]["result"]["faces"], 1);
    assert_eq!(site.device.run(&["verify", output.to_str().unwrap()]).code, 0);

    // The same id with another body is a replay, and changes nothing.
    let ran = site.fleet(&[&order[..], &["--params", &params, "--priority", "9"]].concat());
    assert!(ran.code != 0 && ran.err.contains("Replayed"), "{} {}", ran.out, ran.err);
    let events = site.device.run(&["audit", "query", "--kind", "refused", "--json"]).out;
    assert!(events.contains("Replayed"), "{events}");

    // At the machine itself the job is seen, and others are ordered.
    let shown = site.device.run(&["job", "show", "picture-1"]).json();
    assert_eq!(shown["job"]["state"], "succeeded");
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1);
    let input = site.device.path("in/face.png");
    let outside = site.device.path("elsewhere.png");
    let (input, outside) = (input.to_str().unwrap(), outside.to_str().unwrap());
    let refused =
        site.device.run(&["job", "submit", "image.process", "--input", input, "--output", outside]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("Unauthorized"), "{}", refused.err);
    let inside = site.device.path("out/local.png");
    let inside = inside.to_str().unwrap();
    let local =
        site.device.run(&["job", "submit", "image.process", "--input", input, "--output", inside]);
    assert_eq!(local.code, 0, "{}", local.err);
    assert!(Path::new(inside).exists());
    let listed = site.device.run(&["job", "list", "--json"]).json();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 3);

    // What is outside the kinds of this device is refused by a code that an operator sees.
    let ran = site.fleet(&[
        "submit",
        "dev-1",
        "power.mode",
        "--as",
        "ops",
        "--params",
        r#"{"mode":"low"}"#,
    ]);
    assert_eq!(states(&ran), ["rejected"], "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("Unavailable"), "{}", ran.out);

    let watched = site.fleet(&["watch", "--for", "2"]);
    assert!(watched.out.contains("online"), "{} {}", watched.out, watched.err);
    assert_eq!(daemon.stop(), 0);
    let watched = site.fleet(&["watch", "--for", "2"]);
    assert!(watched.out.contains("offline"), "{} {}", watched.out, watched.err);
    assert_eq!(site.device.run(&["audit", "verify"]).code, 0);
    let done = site.device.run(&["audit", "query", "--kind", "job", "--json"]).out;
    let effects = done.matches(&mien_vault::digest::of(&bytes)).count();
    assert!(effects >= 1, "{done}");
}

#[test]
#[ignore = "needs mosquitto and models: tests/run installs and fetches them"]
fn a_clip_is_paused_goes_on_and_ends_after_its_daemon_was_killed() {
    let site = Site::new(Bench::new("fleet-clip"), "");
    let daemon = Daemon::start(&site.device);
    let clip = site.device.path("in/clip.y4m");
    fs::write(&clip, clips::wandering(600)).unwrap();
    let (input, output) = (clip.display().to_string(), site.device.path("out/clip.mp4"));
    let output = output.display().to_string();
    let order = ["job", "submit", "clip.process", "--id", "the-clip-1", "--input", &input];
    let ran = site.device.run(&[&order[..], &["--output", &output, "--no-wait"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let state = || site.device.run(&["job", "show", "the-clip-1"]).json()["job"].clone();
    let until = |wanted: &dyn Fn(&Value) -> bool| {
        for _ in 0..1200 {
            if wanted(&state()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{} {}", state(), fs::read_to_string(site.device.path("log")).unwrap());
    };
    until(&|job| job["state"] == "running" && job["progress"]["step"] == "processing");
    assert_eq!(site.device.run(&["job", "pause", "the-clip-1"]).code, 0);
    until(&|job| job["state"] == "paused");
    assert!(!Path::new(&output).exists());
    assert_eq!(site.device.run(&["job", "resume", "the-clip-1"]).code, 0);
    until(&|job| job["state"] == "running");
    drop(daemon);
    let _daemon = Daemon::start(&site.device);
    let ran = site.device.run(&["job", "watch", "the-clip-1", "--json"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let job = ran.json();
    assert_eq!(job["result"]["frames"], 600, "{job}");
    assert_eq!(
        job["result"]["output"]["sha256"],
        mien_vault::digest::of(&fs::read(&output).unwrap())
    );
    assert!(job["attempt"].as_u64().unwrap() >= 2, "{job}");
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn a_connected_daemon_that_has_nothing_to_do_costs_little() {
    let site = Site::new(Bench::bare("fleet-idle"), "");
    let daemon = Daemon::start(&site.device);
    site.connected();
    // The first summary goes out with the greeting, the next ones once a minute.
    std::thread::sleep(Duration::from_secs(5));
    let proc = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", daemon.0.id())).unwrap();
    let ticks = || -> u64 {
        let stat = proc("stat");
        let fields = stat.rsplit(')').next().unwrap().split_whitespace();
        fields.skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum()
    };
    let wire = || {
        let status = site.device.run(&["status", "--json"]).json();
        let fleet = &status["parts"]["jobs"]["fleet"];
        fleet["sent_bytes"].as_u64().unwrap() + fleet["received_bytes"].as_u64().unwrap()
    };
    let (bytes, cpu, watched) = (wire(), ticks(), 120);
    std::thread::sleep(Duration::from_secs(watched));
    let (bytes, cpu) = (wire() - bytes, ticks() - cpu);
    let rollup = proc("smaps_rollup");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    let pss_kib: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    // A hundredth of a second is a tick.
    let (hourly, percent) = (bytes * 3600 / watched, cpu as f64 / watched as f64);
    println!("idle: PSS {pss_kib} KiB, CPU {percent:.2} %, {hourly} bytes an hour above TLS");
    assert!(pss_kib <= 20 << 10, "{pss_kib} KiB");
    assert!(percent < 1.0, "{percent} % of a core");
    assert!(hourly < 40_000, "{hourly} bytes an hour");
}
