//! `mien fleet rollout` over a thousand simulated devices: waves, thresholds, abort, and what it costs.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

#[path = "fleet/support/mod.rs"]
mod fleet;
mod support;

use std::fs;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fleet::Mosquitto;
use mien_base::clock::{Clock as _, SystemClock};
use mien_daemon::contract::{Document, JobState, ROOT, STATE, State};
use mien_daemon::mqtt::packet::{Connect, Filter, Message, Properties, Version};
use mien_daemon::mqtt::{Broker, Client, Event};
use mien_vault::sign::Envelope;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use support::Bench;

/// How many there are; `MIEN_DEVICES` sets it.
fn count() -> usize {
    std::env::var("MIEN_DEVICES").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

/// Devices that answer each job by its states; those of `bad` fail.
struct Crowd {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

fn name(n: usize) -> String {
    format!("sim-{n:04}")
}

fn device(
    n: usize,
    broker: &Broker,
    bad: &Range<usize>,
    stop: &AtomicBool,
    asked: &AtomicU32,
    up: &AtomicU32,
) {
    let clock = Arc::new(SystemClock::start());
    let connect = Connect {
        version: Version::V5,
        client: name(n),
        clean: true,
        keep_alive: 0,
        user: None,
        password: None,
        properties: Properties::default(),
        will: None,
    };
    let patience = Duration::from_secs(60);
    let (mut client, _) = Client::connect(broker, None, &connect, clock.clone(), patience).unwrap();
    let filter = format!("{ROOT}/{}/job/req", name(n));
    let filter = Filter { filter, no_retained: true, as_published: true, no_local: true };
    client.subscribe(vec![filter]).unwrap();
    let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    while !stop.load(Ordering::Relaxed) {
        for event in client.wait(wake.as_fd(), Duration::from_millis(500)).unwrap() {
            match event {
                Event::Subscribed { .. } => {
                    up.fetch_add(1, Ordering::SeqCst);
                }
                Event::Message(message) => {
                    asked.fetch_add(1, Ordering::SeqCst);
                    client.acknowledge(message.id).unwrap();
                    let envelope = Envelope::parse(&message.payload).unwrap();
                    let document = Document::parse(envelope.payload()).unwrap();
                    assert_eq!(document.audience, name(n));
                    let end = if bad.contains(&n) { State::Failed } else { State::Succeeded };
                    for (version, state) in (1..).zip([State::Queued, State::Running, end]) {
                        let told = JobState {
                            schema: STATE.to_owned(),
                            id: document.id.clone(),
                            kind: document.kind,
                            state,
                            version,
                            at: clock.wall().0 * 1000,
                            attempt: 1,
                            boot_id: "boot".to_owned(),
                            progress: None,
                            reason: None,
                            retryable: None,
                            pointer: None,
                            detail: None,
                            result: None,
                            fence: None,
                        };
                        let payload = serde_json::to_vec(&told).unwrap();
                        let topic = format!("{ROOT}/{}/job/{}/state", name(n), document.id);
                        let message = Message { topic, payload, qos1: true, ..Message::default() };
                        client.publish(message).unwrap();
                    }
                }
                Event::Taken { .. } => {}
            }
        }
    }
}

impl Crowd {
    fn new(broker: &Mosquitto, of: usize, bad: Range<usize>) -> Self {
        let broker = Broker::parse(&format!("mqtt://127.0.0.1:{}", broker.port), None).unwrap();
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let up = Arc::new(AtomicU32::new(0));
        let threads = (0..of)
            .map(|n| {
                let (broker, stop, asked, up, bad) =
                    (broker.clone(), stop.clone(), asked.clone(), up.clone(), bad.clone());
                std::thread::Builder::new()
                    .stack_size(128 << 10)
                    .spawn(move || device(n, &broker, &bad, &stop, &asked, &up))
                    .unwrap()
            })
            .collect();
        let clock = SystemClock::start();
        while (up.load(Ordering::SeqCst) as usize) < of {
            assert!(clock.mono().0 < Duration::from_secs(120), "{up:?} of {of}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { stop, asked, threads }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// What a run of the program said and cost.
struct Cost {
    code: i32,
    lines: Vec<Value>,
    cpu: Duration,
    peak_kib: u64,
    wall: Duration,
}

fn rollout(bench: &Bench, broker: &Mosquitto, of: usize) -> Cost {
    let devices: String = (0..of).map(|n| name(n) + "\n").collect();
    fs::write(bench.path("devices"), devices).unwrap();
    let url = format!("mqtt://127.0.0.1:{}", broker.port);
    let clock = SystemClock::start();
    let out = fs::File::create(bench.path("out")).unwrap();
    let mut child = bench
        .mien(&["fleet", "rollout", "selftest.run", "--devices", "devices", "--as", "ops"])
        .args(["--waves", "1,10%,100%", "--success", "95", "--failure", "5", "--json"])
        .args(["--broker", &url])
        .stdout(out)
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (mut cpu, mut peak_kib) = (0, 0);
    let code = loop {
        let proc = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", child.id()));
        if let (Ok(stat), Ok(status)) = (proc("stat"), proc("status")) {
            let after = stat.rsplit(')').next().unwrap();
            let ticks =
                |n: usize| after.split_whitespace().nth(n).and_then(|t| t.parse::<u64>().ok());
            cpu = ticks(11).zip(ticks(12)).map_or(cpu, |(user, system)| user + system);
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            peak_kib = peak.unwrap_or(peak_kib);
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status.code().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = fs::read_to_string(bench.path("out")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cpu = Duration::from_millis(cpu * 10);
    Cost { code, lines, cpu, peak_kib, wall: clock.mono().0 }
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn a_rollout_goes_in_waves_and_ends_when_too_many_fail() {
    // Each device is a descriptor here and one at the broker.
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20).min(1 << 16);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum }).unwrap();
    let of = count();
    let bench = Bench::bare("rollout");
    assert_eq!(bench.run(&["key", "new", "ops", "--role", "operate"]).code, 0);
    let waves = |cost: &Cost| -> Vec<u64> {
        let sizes = cost.lines.iter().filter(|line| line["wave"].is_u64());
        sizes.map(|line| line["devices"].as_u64().unwrap()).collect()
    };

    let broker = Mosquitto::open(&bench.at);
    let crowd = Crowd::new(&broker, of, 0..0);
    let cost = rollout(&bench, &broker, of);
    println!(
        "{of} devices: {:.2} s, CPU {:.2} s, peak {} KiB",
        cost.wall.as_secs_f64(),
        cost.cpu.as_secs_f64(),
        cost.peak_kib
    );
    assert_eq!(cost.code, 0);
    assert_eq!(cost.lines.last().unwrap()["outcome"], "done");
    assert_eq!(waves(&cost), [1, of as u64 / 10 - 1, of as u64 - of as u64 / 10]);
    assert_eq!(crowd.asked.load(Ordering::SeqCst) as usize, of);
    assert!(cost.peak_kib < 64 << 10, "{} KiB", cost.peak_kib);
    drop(crowd);

    // One in ten of the second wave fails: the third is never begun.
    let second = of / 10;
    let crowd = Crowd::new(&broker, of, 1..1 + second / 10);
    let cost = rollout(&bench, &broker, of);
    assert_ne!(cost.code, 0);
    let last = cost.lines.last().unwrap();
    assert_eq!(last["outcome"], "aborted", "{last}");
    assert_eq!(waves(&cost), [1, second as u64 - 1]);
    let asked = crowd.asked.load(Ordering::SeqCst) as usize;
    assert!(asked <= second, "{asked} were asked, {second} are in the first two waves");
}
