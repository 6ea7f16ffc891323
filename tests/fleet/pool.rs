//! A pool of three daemons, each in a network of its own: one is killed, one is cut off, and every job
//! has one accepted result, from somebody who lives, within two leases.
//!
//! Needs root and `ip netns`; without them it says so and proves nothing.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock};
use mien_daemon::contract::{Document, ROOT, State};
use mien_daemon::fleet::operator::{Heard, Operator};
use mien_daemon::fleet::pool::{Means, Pool};
use mien_daemon::fleet::{Fleet, Plain, Settings as FleetSettings};
use mien_daemon::jobs::{Executor, JobControl, Outcome};
use mien_daemon::mqtt::{Broker, TlsFiles};
use mien_daemon::store::JobRow;
use mien_vault::random::SystemRandom;
use mien_vault::trust::KeyRole;
use serde_json::json;
use support::{Mosquitto, Scratch, document, jobs_with, key};

const CHILD: &str = "MIEN_TEST_POOL_CHILD";
const NAME: &str = "MIEN_TEST_POOL_NAME";
const URL: &str = "MIEN_TEST_POOL_URL";
const BRIDGE: &str = "mienbr0";
const HOST: &str = "10.213.77.1";
const LEASE: Duration = Duration::from_secs(20);
const JOBS: usize = 30;

/// Works for a while, and ends when it is told to.
struct Slow;

impl Executor for Slow {
    fn run(&self, _: &JobRow, control: &JobControl) -> Outcome {
        for n in 0..30 {
            if control.stop().is_some() {
                return Outcome::Stopped;
            }
            control.progress("working", Some(n * 33));
            std::thread::sleep(Duration::from_millis(100));
        }
        Outcome::Done(json!({}))
    }
}

#[test]
#[ignore = "needs root, ip netns and mosquitto: tests/run installs them"]
fn child() {
    let Some(at) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let name = std::env::var(NAME).unwrap();
    let jobs = jobs_with(&at.join(&name), &name, "boot-1", Arc::new(Slow), |settings| {
        settings.pools = vec!["p".to_owned()];
    });
    let files = |name: &str| {
        let file = |ending: &str| at.join("broker").join(format!("{name}.{ending}"));
        TlsFiles { ca: at.join("broker/ca.pem"), certificate: file("pem"), key: file("key") }
    };
    let broker = Broker::parse(&std::env::var(URL).unwrap(), Some(files(&name))).unwrap();
    let mut settings = FleetSettings::new(broker);
    settings.pool_tls = Some(files(&format!("{name}-pool")));
    settings.keep_alive = 5;
    let _fleet = Fleet::start(settings, jobs, Arc::new(Plain), Box::new(SystemRandom)).unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn ip(args: &str) -> bool {
    Command::new("ip")
        .args(args.split(' '))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// Networks that go away.
struct Networks(Vec<String>);

impl Networks {
    /// A bridge with this machine on it, and a network for each name.
    fn new(names: &[&str]) -> Option<Self> {
        let made = Self(names.iter().map(|name| (*name).to_owned()).collect());
        made.clear();
        let mut good = ip(&format!("link add {BRIDGE} type bridge"))
            && ip(&format!("addr add {HOST}/24 dev {BRIDGE}"))
            && ip(&format!("link set {BRIDGE} up"));
        for (n, name) in names.iter().enumerate() {
            good = good
                && ip(&format!("netns add {name}"))
                && ip(&format!("link add {name}-o type veth peer name eth0 netns {name}"))
                && ip(&format!("link set {name}-o master {BRIDGE} up"))
                && ip(&format!("-n {name} addr add 10.213.77.{}/24 dev eth0", n + 2))
                && ip(&format!("-n {name} link set eth0 up"));
        }
        good.then_some(made)
    }

    fn clear(&self) {
        for name in &self.0 {
            ip(&format!("link del {name}-o"));
            ip(&format!("netns del {name}"));
        }
        ip(&format!("link del {BRIDGE}"));
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        self.clear();
    }
}

struct Device(Child);

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(at: &Path, name: &str, url: &str) -> Device {
    let child = Command::new("ip")
        .args(["netns", "exec", name])
        .arg(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--include-ignored", "--nocapture"])
        .env(CHILD, at)
        .env(NAME, name)
        .env(URL, url)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(at.join(format!("{name}.err"))).unwrap())
        .spawn()
        .unwrap();
    Device(child)
}

#[test]
#[ignore = "needs root, ip netns and mosquitto: tests/run installs them"]
fn jobs_of_who_dies_or_is_cut_off_end_elsewhere_and_once() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let names = ["mien-p1", "mien-p2", "mien-p3"];
    let Some(_networks) = Networks::new(&names) else {
        println!("skipped: this needs root and `ip netns`");
        return;
    };
    let scratch = Scratch::new("pool");
    let broker = Mosquitto::start_at(&scratch.0, HOST);
    for name in names {
        broker.certificate(name);
        broker.certificate(&format!("{name}-pool"));
    }
    let url = format!("mqtts://{HOST}:{}", broker.port);
    let mut devices: BTreeMap<&str, Device> =
        names.iter().map(|name| (*name, spawn(&scratch.0, name, &url))).collect();
    let clock = Arc::new(SystemClock::start());
    let address = broker.address("operator");
    let mut operator = Operator::connect(&address, ROOT, "operator", None, clock.clone()).unwrap();
    operator.subscribe(&["+/status", "+/job/+/state"]).unwrap();
    let mut online = BTreeSet::new();
    while online.len() < names.len() {
        assert!(clock.mono().0 < Duration::from_secs(60), "only {online:?} came");
        for heard in operator.hear(Duration::from_millis(200)).unwrap() {
            if let Heard::Told { device, what, .. } = heard
                && what == "status"
            {
                online.insert(device);
            }
        }
    }
    // The second connection of each has no status of its own.
    std::thread::sleep(Duration::from_secs(2));
    let mut pool = Pool::new(LEASE);
    for n in 0..JOBS {
        let id = format!("pooled-{n:04}");
        let one = document("pool/p", &id, "camera.probe", &json!({ "camera": "c" }), 1);
        let order_key = Some(format!("k{n}"));
        pool.add(Document { fence: Some(1), order_key, ..one });
    }
    let (start, mut seq) = (clock.mono(), 0);
    let (mut struck, mut accepted) = (None, BTreeMap::<String, u32>::new());
    let (mut stale, mut results) = (0, BTreeMap::<String, BTreeSet<String>>::new());
    while pool.open() > 0 {
        let now = clock.mono();
        assert!(now.since(start) < LEASE * 6, "{} of {JOBS} have no result", pool.open());
        for offer in pool.due(now, || {
            seq += 1;
            seq
        }) {
            operator.submit(&offer, &key(KeyRole::Operate)).unwrap();
        }
        for heard in operator.hear(Duration::from_millis(200)).unwrap() {
            let Heard::State { device, state, .. } = heard else { continue };
            if state.state == State::Succeeded {
                results.entry(state.id.clone()).or_default().insert(device.clone());
            }
            match pool.heard(&device, &state, clock.mono()) {
                Means::Accepted => *accepted.entry(state.id).or_default() += 1,
                Means::Stale => stale += 1,
                _ => {}
            }
        }
        if struck.is_none() && now.since(start) > Duration::from_secs(4) {
            // One is killed, and one is alive but alone.
            devices.remove(names[0]);
            assert!(ip(&format!("link set {}-o down", names[1])));
            struck = Some(clock.mono());
        }
    }
    let took = clock.mono().since(struck.unwrap());
    let by = pool.results().fold(BTreeMap::<String, u32>::new(), |mut by, (_, _, who, _)| {
        *by.entry(who.to_owned()).or_default() += 1;
        by
    });
    let again = pool.results().filter(|(.., fence)| *fence > 1).count();
    println!(
        "{JOBS} jobs, {again} offered again, all ended {:.1} s after the stroke (lease {} s); \
         accepted by {by:?}; {stale} states of no account",
        took.as_secs_f64(),
        LEASE.as_secs()
    );
    assert!(took < LEASE * 2, "{took:?}");
    assert!(again > 0, "somebody had jobs when he was struck");
    assert!(accepted.len() == JOBS && accepted.values().all(|count| *count == 1));
    assert!(pool.results().all(|(_, state, ..)| state == State::Succeeded));
    // Who was cut off comes back and tells what it did meanwhile: none of it is taken.
    assert!(ip(&format!("link set {}-o up", names[1])));
    let back = clock.mono();
    while clock.mono().since(back) < Duration::from_secs(15) {
        for heard in operator.hear(Duration::from_millis(200)).unwrap() {
            let Heard::State { device, state, .. } = heard else { continue };
            assert_ne!(pool.heard(&device, &state, clock.mono()), Means::Accepted, "{}", state.id);
        }
    }
}
