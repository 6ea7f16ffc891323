//! Killed at random instants (daemon, worker, broker), with every document sent several times and
//! out of order: no job is lost, none has two effects, every sequence of states is legal.
//!
//! `MIEN_KILLS` says how often something is killed: 1000 is the promise, CI takes a tenth.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock};
use mien_daemon::contract::{Document, ROOT, Reason, Refusal, State, legal};
use mien_daemon::fleet::operator::{Heard, Operator};
use mien_daemon::jobs::{Executor, JobControl, Outcome};
use mien_daemon::store::{JobRow, Query};
use mien_vault::trust::KeyRole;
use serde_json::json;
use support::{Mosquitto, Scratch, document, fleet, jobs, key};

/// Folder of a child of this test; it is a child when this is set.
const CHILD: &str = "MIEN_TEST_FLEET_CHILD";
const PORT: &str = "MIEN_TEST_FLEET_PORT";
/// Jobs that are on their way at the same time.
const BATCH: usize = 200;

fn kills() -> u32 {
    std::env::var("MIEN_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(100)
}

/// Numbers without a pattern.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Works by a process of its own, and publishes by a rename; each publication leaves a line.
struct Publisher(PathBuf);

impl Executor for Publisher {
    fn run(&self, job: &JobRow, control: &JobControl) -> Outcome {
        let place = self.0.join("effects").join(job.id());
        if place.exists() {
            return Outcome::Done(json!({ "effect": "an earlier try's" }));
        }
        let mut worker = Command::new("sleep").arg("0.1").spawn().unwrap();
        fs::write(self.0.join("workers").join(job.id()), worker.id().to_string()).unwrap();
        control.progress("working", None);
        let ended = loop {
            if control.stop().is_some() {
                let _ = worker.kill();
                let _ = worker.wait();
                return Outcome::Stopped;
            }
            if let Some(ended) = worker.try_wait().unwrap() {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let _ = fs::remove_file(self.0.join("workers").join(job.id()));
        if !ended.success() {
            return Outcome::Failed(Refusal::new(Reason::Interrupted, "the worker died"));
        }
        let part = place.with_extension(format!("part-{}", job.attempt));
        let mut file = fs::File::create(&part).unwrap();
        file.write_all(job.id().as_bytes()).unwrap();
        file.sync_all().unwrap();
        let mut log =
            fs::OpenOptions::new().append(true).create(true).open(self.0.join("log")).unwrap();
        fs::rename(&part, &place).unwrap();
        log.write_all(format!("{}\n", job.id()).as_bytes()).unwrap();
        Outcome::Done(json!({}))
    }
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn child() {
    let Some(at) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
    let jobs = jobs(&at.join("dev"), "dev-1", "boot-1", Arc::new(Publisher(at.clone())));
    let file = |ending: &str| at.join("broker").join(format!("dev-1.{ending}"));
    let tls = mien_daemon::mqtt::TlsFiles {
        ca: at.join("broker/ca.pem"),
        certificate: file("pem"),
        key: file("key"),
    };
    let url = format!("mqtts://127.0.0.1:{port}");
    let broker = mien_daemon::mqtt::Broker::parse(&url, Some(tls)).unwrap();
    let _fleet = fleet(&jobs, broker);
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn spawn(at: &Path, port: u16) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--include-ignored", "--nocapture"])
        .env(CHILD, at)
        .env(PORT, port.to_string())
        .stdout(Stdio::null())
        .stderr(fs::OpenOptions::new().append(true).create(true).open(at.join("stderr")).unwrap())
        .spawn()
        .unwrap()
}

/// Sends what is missing, whatever happens to the broker.
struct Sender {
    operator: Option<Operator>,
    ended: BTreeSet<String>,
    told: BTreeMap<String, BTreeMap<u64, State>>,
    sent: u64,
}

impl Sender {
    fn turn(&mut self, broker: &Mosquitto, send: &[&Document]) {
        if self.operator.is_none() {
            let clock = Arc::new(SystemClock::start());
            let address = mien_daemon::mqtt::Broker::parse(
                &format!("mqtts://127.0.0.1:{}", broker.port),
                Some(broker.files("operator")),
            );
            let Ok(mut operator) =
                Operator::connect(&address.unwrap(), ROOT, "operator", None, clock)
            else {
                return;
            };
            if operator.subscribe(&["dev-1/job/+/state"]).is_err() {
                return;
            }
            self.operator = Some(operator);
        }
        let done = self.exchange(send);
        if done.is_err() {
            self.operator = None;
        }
    }

    fn exchange(&mut self, send: &[&Document]) -> Result<(), mien_daemon::mqtt::Gone> {
        let operator = self.operator.as_mut().unwrap();
        for document in send {
            operator.submit(document, &key(KeyRole::Operate))?;
            self.sent += 1;
        }
        for heard in operator.hear(Duration::from_millis(20))? {
            if let Heard::State { state, .. } = heard {
                self.told.entry(state.id.clone()).or_default().insert(state.version, state.state);
                if state.state.is_end() {
                    self.ended.insert(state.id);
                }
            }
        }
        Ok(())
    }
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn whatever_is_killed_each_job_ends_once_with_one_effect() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let scratch = Scratch::new("crash");
    let at = scratch.0.clone();
    for folder in ["effects", "workers"] {
        fs::create_dir_all(at.join(folder)).unwrap();
    }
    let mut broker = Mosquitto::start(&at);
    broker.certificate("dev-1");
    broker.certificate("operator");
    let mut daemon = spawn(&at, broker.port);
    let (kills, mut dice) = (kills(), Dice(0x9e37_79b9_7f4a_7c15));
    let (mut killed, mut of) = (0, [0_u32; 3]);
    let mut sender =
        Sender { operator: None, ended: BTreeSet::new(), told: BTreeMap::new(), sent: 0 };
    let mut all: Vec<Document> = Vec::new();
    let mut first = 0;
    let clock = SystemClock::start();
    let mut next = clock.mono().0 + Duration::from_millis(500);
    let limit = Duration::from_secs(180 + u64::from(kills));
    loop {
        let open: Vec<usize> =
            (first..all.len()).filter(|n| !sender.ended.contains(&all[*n].id)).collect();
        if open.is_empty() {
            if killed >= kills && !all.is_empty() {
                break;
            }
            first = all.len();
            for n in first..first + BATCH {
                let mut one = document(
                    "dev-1",
                    &format!("job-{n:06}"),
                    "camera.probe",
                    &json!({ "camera": "c" }),
                    n as u64 + 1,
                );
                one.order_key = Some(format!("k{}", n % 40));
                (one.retry.max, one.retry.backoff_s) = (10, 1);
                all.push(one);
            }
            continue;
        }
        // Some of what has not ended, in any order, and some of what has.
        let mut send = Vec::new();
        for _ in 0..6 {
            send.push(&all[open[dice.below(open.len() as u64) as usize]]);
        }
        send.push(&all[dice.below(all.len() as u64) as usize]);
        sender.turn(&broker, &send);
        // No faster than a loaded machine reads: what waits at the broker is work, not a test.
        std::thread::sleep(Duration::from_millis(60));
        let now = clock.mono().0;
        assert!(now < limit, "{killed} killed, {} of {} ended", sender.ended.len(), all.len());
        if now >= next && killed < kills {
            killed += 1;
            next = now + Duration::from_millis(30 + dice.below(500));
            match dice.below(20) {
                0 => {
                    broker.kill();
                    if dice.below(2) == 0 {
                        broker.wipe();
                    }
                    broker.up();
                    of[2] += 1;
                }
                1..8 => {
                    let entries = fs::read_dir(at.join("workers")).unwrap();
                    for entry in entries.flatten() {
                        let pid = fs::read_to_string(entry.path()).ok();
                        if let Some(pid) = pid
                            .and_then(|pid| pid.parse().ok())
                            .and_then(rustix::process::Pid::from_raw)
                        {
                            let _ =
                                rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                            of[1] += 1;
                            break;
                        }
                    }
                }
                _ => {
                    daemon.kill().unwrap();
                    daemon.wait().unwrap();
                    for entry in fs::read_dir(at.join("workers")).unwrap().flatten() {
                        let _ = fs::remove_file(entry.path());
                    }
                    daemon = spawn(&at, broker.port);
                    of[0] += 1;
                }
            }
        }
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let home = support::home(&at.join("dev"));
    let system: Arc<dyn mien_base::clock::Clock> = Arc::new(SystemClock::start());
    let store = support::store(&home, &system);
    let mut ends: BTreeMap<State, u32> = BTreeMap::new();
    let (mut tries, mut illegal, mut lost) = (0, 0, 0);
    for document in &all {
        let Some(job) = store.job(&document.id).unwrap() else {
            lost += 1;
            continue;
        };
        *ends.entry(job.state).or_default() += 1;
        tries += job.attempt;
        let query = Query { job: Some(job.execution), most: 1000, ..Query::default() };
        let mut rows = store.query(&query).unwrap();
        rows.reverse();
        let states: Vec<State> = rows
            .iter()
            .filter_map(|link| State::of(link.row.entry.body.get("state")?.as_str()?))
            .collect();
        let told: Vec<State> = sender.told[&document.id].values().copied().collect();
        let subsequence = {
            let mut all = states.iter();
            told.iter().all(|state| all.any(|other| other == state))
        };
        if !legal(&states) || states.len() as u64 != job.version || !subsequence {
            illegal += 1;
            println!("{}: {states:?}, told {told:?}", document.id);
        }
    }
    let log = fs::read_to_string(at.join("log")).unwrap();
    let mut effects: BTreeMap<&str, u32> = BTreeMap::new();
    log.lines().for_each(|id| *effects.entry(id).or_default() += 1);
    let twice = effects.values().filter(|count| **count > 1).count();
    let published = fs::read_dir(at.join("effects"))
        .unwrap()
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().contains("part"))
        .count();
    let succeeded = ends.get(&State::Succeeded).copied().unwrap_or(0) as usize;
    let checked = store.verify().unwrap();
    println!(
        "{killed} kills (daemon {}, worker {}, broker {}), {} jobs, {} documents sent, {tries} tries: \
         {lost} lost, {twice} with two effects, {illegal} illegal, ends {ends:?}, {published} \
         effects, record {checked:?}, {:.0} s",
        of[0],
        of[1],
        of[2],
        all.len(),
        sender.sent,
        clock.mono().0.as_secs_f64()
    );
    assert_eq!((lost, twice, illegal), (0, 0, 0));
    assert_eq!(published, succeeded, "each job that succeeded has its effect, and no other");
    assert!(ends.keys().all(|state| state.is_end()));
}
