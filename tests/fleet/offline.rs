//! A day without a broker, in simulated time: what must be told is, what was dropped is announced,
//! nothing grows without bound, and news do not wait behind the backlog.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock, ManualClock, SystemClock};
use mien_daemon::contract::{ROOT, State, Topics, legal};
use mien_daemon::fleet::operator::Heard;
use mien_daemon::fleet::{Fleet, Plain, Settings as FleetSettings};
use mien_daemon::jobs::{Executor, HomeTrust, JobControl, Jobs, Outcome, Parts, Settings, Via};
use mien_daemon::store::JobRow;
use mien_vault::random::SystemRandom;
use serde_json::{Value, json};
use support::{Desk, Mosquitto, Scratch, document, example};

const EVENTS: u64 = 10_500;
/// Most events that are kept.
const KEPT: u64 = 10_000;
const JOBS: usize = 200;

struct AtOnce;

impl Executor for AtOnce {
    fn run(&self, _: &JobRow, control: &JobControl) -> Outcome {
        control.progress("working", Some(500));
        Outcome::Done(json!({}))
    }
}

/// Memory of this process that is its own, in KiB.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn after_a_day_offline_nothing_that_must_be_told_is_missing() {
    let scratch = Scratch::new("offline");
    let broker = Mosquitto::start(&scratch.0);
    let at = scratch.0.join("dev");
    let home = support::home(&at);
    let clock = Arc::new(ManualClock::at(SystemClock::start().wall()));
    let shared: Arc<dyn Clock> = clock.clone();
    let store = support::store(&home, &shared);
    let settings = Settings::new(Topics::new(ROOT, "dev-1").unwrap(), "boot-1".to_owned());
    let parts = Parts {
        store: store.clone(),
        clock: shared,
        executor: Arc::new(AtOnce),
        trust: Box::new(HomeTrust(home)),
        random: Box::new(SystemRandom),
    };
    let jobs = Arc::new(Jobs::open(settings, parts).unwrap());
    let before = memory();
    let mut ids = Vec::new();
    for n in 0..EVENTS {
        if n % (EVENTS / JOBS as u64) == 0 && ids.len() < JOBS {
            let id = format!("offline-{:05}", ids.len());
            let mut one = document("dev-1", &id, "selftest.run", &example("selftest.run"), n + 1);
            (one.issued_at, one.expires_at) =
                (clock.wall().0 * 1000, clock.wall().0 * 1000 + 3_600_000);
            let bytes = serde_json::to_vec(&one).unwrap();
            jobs.submit(&Via::Local("test".to_owned()), false, &bytes).unwrap().outcome.unwrap();
            ids.push(id);
            // Simulated time passes only while nothing runs.
            while !store.open_jobs(1).unwrap().is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let event = json!({ "camera": "door", "frame": n });
        let Value::Object(event) = event else { panic!() };
        drop(store.put_event("camera_lost", format!("{ROOT}/dev-1/event/camera_lost"), event));
        clock.advance(Duration::from_millis(86_400_000 / EVENTS));
    }
    let real = SystemClock::start();
    while !store.open_jobs(1).unwrap().is_empty() {
        assert!(real.mono().0 < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    store.trim_outbox().unwrap();
    let (waiting, after) = (store.outbox_len().unwrap(), memory());
    let disk: u64 =
        std::fs::read_dir(&at).unwrap().flatten().map(|f| f.metadata().unwrap().len()).sum();
    println!(
        "{waiting} messages wait; memory {before} KiB before, {after} KiB after; {} KiB on disk",
        disk >> 10
    );
    assert!(waiting <= KEPT + 3 * JOBS as u64, "{waiting}");
    assert!(after < before + (24 << 10), "{after} KiB of memory");
    assert!(disk < 32 << 20, "{disk} bytes on disk");

    let mut desk = Desk::new(&broker, &["dev-1/#"]);
    let fleet = Fleet::start(
        FleetSettings::new(broker.address("dev-1")),
        jobs.clone(),
        Arc::new(Plain),
        Box::new(SystemRandom),
    )
    .unwrap();
    // The first thing that is heard is who is there; an order goes out at once.
    let is =
        |heard: &Heard, wanted: &str| matches!(heard, Heard::Told { what, .. } if what == wanted);
    assert!(desk.until(Duration::from_secs(30), |heard| heard.iter().any(|h| is(h, "sync"))));
    let id = "live-00001";
    let mut live = desk.document("dev-1", id, "selftest.run", &example("selftest.run"));
    (live.seq, live.issued_at) = (1_000_000, clock.wall().0 * 1000);
    live.expires_at = live.issued_at + 600_000;
    let ordered = real.mono();
    desk.submit(&live);
    let ended = |heard: &Heard| matches!(heard, Heard::State { state, .. } if state.id == id && state.state.is_end());
    assert!(desk.until(Duration::from_secs(60), |heard| heard.iter().any(ended)));
    let (took, ahead) = (real.mono().since(ordered), desk.heard.len());
    let last = format!("{EVENTS}");
    let events = |heard: &[Heard]| -> BTreeSet<u64> {
        let seq = |heard: &Heard| match heard {
            Heard::Told { what, payload, .. } if what == "event/camera_lost" => {
                serde_json::from_slice::<Value>(payload).unwrap()["seq"].as_u64()
            }
            _ => None,
        };
        heard.iter().filter_map(seq).collect()
    };
    let all = |heard: &[Heard]| {
        let ends: BTreeSet<&str> = heard
            .iter()
            .filter_map(|heard| match heard {
                Heard::State { state, .. } if state.state.is_end() => Some(state.id.as_str()),
                _ => None,
            })
            .collect();
        ends.len() > JOBS && events(heard).len() as u64 >= KEPT
    };
    assert!(desk.until(Duration::from_secs(120), all), "{} heard", desk.heard.len());
    println!(
        "the live job ended after {} ms, behind {ahead} of {} messages; all after {} ms",
        took.as_millis(),
        desk.heard.len(),
        real.mono().since(ordered).as_millis()
    );
    assert!(ahead < desk.heard.len() / 4, "{ahead} messages went before it");
    for id in &ids {
        let states = desk.states(id);
        assert_eq!(states, [State::Queued, State::Running, State::Succeeded], "{id}");
        assert!(legal(&states));
    }
    let sync = desk.heard.iter().find_map(|heard| match heard {
        Heard::Told { what, payload, .. } if what == "sync" => {
            Some(serde_json::from_slice::<Value>(payload).unwrap())
        }
        _ => None,
    });
    let gaps: BTreeMap<String, (u64, u64)> = sync.unwrap()["gaps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gap| {
            let n = |key: &str| gap[key].as_u64().unwrap();
            (gap["stream"].as_str().unwrap().to_owned(), (n("from"), n("to")))
        })
        .collect();
    let (from, to) = gaps["camera_lost"];
    let heard = events(&desk.heard);
    let missing: BTreeSet<u64> = (1..=EVENTS).filter(|n| !heard.contains(n)).collect();
    println!("events {from} to {to} of {last} were dropped and announced");
    assert_eq!(missing, (from..=to).collect(), "what is missing is what was announced");
    for _ in 0..100 {
        if store.outbox_len().unwrap() == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(store.outbox_len().unwrap(), 0);
    assert!(store.gaps().unwrap().is_empty(), "they are told once");
    drop(fleet);
}
