//! Against a real mosquitto over TLS with access lists: what the fleet is promised holds there.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock};
use mien_daemon::audit::Kind as AuditKind;
use mien_daemon::contract::{Control, Do, Document, JOB_TYPE, Kind, Reason, Refusal, State, legal};
use mien_daemon::fleet::operator::{self, Heard};
use mien_daemon::jobs::{Executor, JobControl, Outcome};
use mien_daemon::mqtt::packet::{Message, Properties};
use mien_daemon::store::{JobRow, Query};
use mien_vault::sign::Envelope;
use mien_vault::trust::KeyRole;
use serde_json::{Value, json};
use support::{Desk, Mosquitto, Scratch, document, example, fleet, jobs, key};

const LONG: Duration = Duration::from_secs(60);

/// Does what the job's id says; counts effects.
#[derive(Default)]
struct Made {
    effects: AtomicU32,
}

impl Executor for Made {
    fn admit(&self, document: &Document) -> Result<(), Refusal> {
        if document.id.contains("reject") {
            return Err(Refusal::new(Reason::Unavailable, "there is no such thing here"));
        }
        Ok(())
    }

    fn run(&self, job: &JobRow, control: &JobControl) -> Outcome {
        let id = job.id();
        if id.contains("cancel")
            || id.contains("timeout")
            || id.contains("pause") && job.attempt == 1
        {
            while control.stop().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            return Outcome::Stopped;
        }
        if id.contains("fail") {
            return Outcome::Failed(Refusal::new(Reason::InputUnreadable, "no such picture"));
        }
        if id.contains("retry") && job.attempt < 2 {
            return Outcome::Failed(Refusal::new(Reason::CameraLost, "it is gone"));
        }
        control.progress("working", Some(500));
        self.effects.fetch_add(1, Ordering::SeqCst);
        Outcome::Done(json!({}))
    }
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn every_kind_is_submitted_and_watched_to_each_of_its_ends() {
    let scratch = Scratch::new("kinds");
    let broker = Mosquitto::start(&scratch.0);
    let made = Arc::new(Made::default());
    let jobs = jobs(&scratch.0.join("dev"), "dev-1", "boot-1", made.clone());
    let mut desk = Desk::new(&broker, &["+/job/+/state"]);
    let fleet = fleet(&jobs, broker.address("dev-1"));
    assert!(fleet.wait_connected(LONG));
    let outcomes = [
        ("succeed", State::Succeeded),
        ("retry", State::Succeeded),
        ("fail", State::Failed),
        ("reject", State::Rejected),
        ("cancel", State::Cancelled),
        ("timeout", State::TimedOut),
        ("pause", State::Succeeded),
        ("expire", State::Expired),
    ];
    let mut table = String::new();
    for kind in Kind::ALL {
        let word = kind.word();
        let name = word.replace('.', "-");
        for (outcome, _) in outcomes {
            let id = format!("{name}-{outcome}");
            let mut document = desk.document("dev-1", &id, word, &example(word));
            document.order_key = Some(outcome.to_owned());
            document.retry.backoff_s = 1;
            match outcome {
                "timeout" => document.timeout_s = Some(1),
                "expire" => {
                    let now = SystemClock::start().wall().0 * 1000;
                    document.expires_at = now + 3000;
                    document.not_before = Some(now + 2999);
                }
                _ => {}
            }
            desk.submit(&document);
        }
        let steer = |desk: &mut Desk, id: String, what: Do, seq: u64| {
            let now = SystemClock::start().wall().0 * 1000;
            let control = Control {
                schema: "mien.ctl/1".to_owned(),
                job: id,
                r#do: what,
                issuer: "operator".to_owned(),
                issued_at: now,
                expires_at: now + 60_000,
                audience: "dev-1".to_owned(),
                seq,
                expect_version: None,
                priority: None,
            };
            desk.operator.control("dev-1", &control, &key(KeyRole::Operate)).unwrap();
        };
        let n = 1 + 10 * Kind::ALL.iter().position(|k| k == kind).unwrap() as u64;
        let state_is = |desk: &Desk, id: &str, state: State| desk.states(id).last() == Some(&state);
        let (cancel, pause) = (format!("{name}-cancel"), format!("{name}-pause"));
        let mut steered = [false; 3];
        let clock = SystemClock::start();
        while !outcomes.iter().all(|(outcome, _)| desk.ended(&format!("{name}-{outcome}"))) {
            assert!(
                clock.mono().0 < LONG,
                "{word}: {:?}",
                outcomes.map(|(o, _)| (o, desk.states(&format!("{name}-{o}"))))
            );
            let heard = desk.operator.hear(Duration::from_millis(100)).unwrap();
            desk.heard.extend(heard);
            if !steered[0] && state_is(&desk, &cancel, State::Running) {
                steer(&mut desk, cancel.clone(), Do::Cancel, n);
                steered[0] = true;
            }
            if !steered[1] && state_is(&desk, &pause, State::Running) {
                steer(&mut desk, pause.clone(), Do::Pause, n + 1);
                steered[1] = true;
            }
            if !steered[2] && state_is(&desk, &pause, State::Paused) {
                steer(&mut desk, pause.clone(), Do::Resume, n + 2);
                steered[2] = true;
            }
        }
        write!(table, "{word:17}").unwrap();
        for (outcome, end) in outcomes {
            let states = desk.states(&format!("{name}-{outcome}"));
            assert!(legal(&states), "{word} {outcome}: {states:?}");
            assert_eq!(states.last(), Some(&end), "{word} {outcome}: {states:?}");
            write!(table, " {outcome}={end}").unwrap();
        }
        table.push('\n');
    }
    println!("{table}");
    let wanted = 3 * Kind::ALL.len();
    assert_eq!(made.effects.load(Ordering::SeqCst) as usize, wanted);
    jobs.store().verify().unwrap();
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn after_the_broker_lost_everything_it_knows_all_again_within_ten_seconds() {
    let scratch = Scratch::new("wiped");
    let mut broker = Mosquitto::start(&scratch.0);
    let jobs = jobs(&scratch.0.join("dev"), "dev-1", "boot-1", Arc::new(Made::default()));
    let fleet = fleet(&jobs, broker.address("dev-1"));
    assert!(fleet.wait_connected(LONG));
    let mut desk = Desk::new(&broker, &["#"]);
    for (id, kind) in [("open-cancel-1", "camera.probe"), ("done-00001", "selftest.run")] {
        let document = desk.document("dev-1", id, kind, &example(kind));
        desk.submit(&document);
    }
    assert!(desk.until(LONG, |heard| {
        let state = |id: &str, wanted: State| {
            heard.iter().any(|h| matches!(h, Heard::State { state, .. } if state.id == id && state.state == wanted))
        };
        state("open-cancel-1", State::Running) && state("done-00001", State::Succeeded)
    }));
    drop(desk);
    broker.kill();
    broker.wipe();
    std::thread::sleep(Duration::from_secs(1));
    broker.up();
    let clock = SystemClock::start();
    assert!(fleet.wait_connected(LONG));
    let mut desk = Desk::new(&broker, &["#"]);
    let complete = |heard: &[Heard]| {
        let told = |wanted: &str| {
            heard
                .iter()
                .any(|h| matches!(h, Heard::Told { what, retained: true, .. } if what == wanted))
        };
        let state = |id: &str| {
            heard
                .iter()
                .any(|h| matches!(h, Heard::State { state, retained: true, .. } if state.id == id))
        };
        told("status") && told("birth") && state("open-cancel-1") && state("done-00001")
    };
    assert!(desk.until(Duration::from_secs(10), complete), "{:?}", desk.heard);
    // And it is subscribed again: a job gets through.
    let id = "after-00001";
    let document = desk.document("dev-1", id, "selftest.run", &example("selftest.run"));
    desk.submit(&Document { seq: 100, ..document });
    assert!(desk.until(Duration::from_secs(10), |heard| {
        heard.iter().any(|h| matches!(h, Heard::State { state, .. } if state.id == id && state.state == State::Succeeded))
    }));
    let took = clock.mono().0;
    println!("complete again after {:.1} s", took.as_secs_f64());
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn what_a_thief_of_the_broker_sends_is_refused_and_recorded() {
    let scratch = Scratch::new("thief");
    let broker = Mosquitto::start(&scratch.0);
    let made = Arc::new(Made::default());
    let jobs = jobs(&scratch.0.join("dev"), "dev-1", "boot-1", made.clone());
    let fleet = fleet(&jobs, broker.address("dev-1"));
    assert!(fleet.wait_connected(LONG));
    let mut desk = Desk::new(&broker, &["dev-1/reply/#"]);
    let clock = Arc::new(SystemClock::start());
    let mut thief = operator::Operator::connect(
        &broker.address("thief"),
        mien_daemon::contract::ROOT,
        "thief",
        None,
        clock,
    )
    .unwrap();
    let own = key(KeyRole::Operate);
    let forger = mien_vault::sign::KeyPair::from_seed(&[99; 32]);
    let params = example("selftest.run");
    let good = |id: &str, seq: u64| document("dev-1", id, "selftest.run", &params, seq);
    let raw = |document: &Document| serde_json::to_vec(document).unwrap();
    let signed_raw = |payload: Vec<u8>, key: &mien_vault::sign::KeyPair| {
        let mut envelope = Envelope::new(JOB_TYPE, payload);
        envelope.sign(key);
        envelope.to_json()
    };
    // One that is right, which is then replayed.
    let first = good("right-0001", 1);
    let captured = operator::sign(&first, &own);
    let mut expired = good("expired-01", 3);
    (expired.issued_at, expired.expires_at) = (1_700_000_000_000, 1_700_000_001_000);
    let mut changed = String::from_utf8(captured.clone()).unwrap();
    let at = changed.find("payload\":\"").unwrap() + 30;
    changed.replace_range(at..=at, if &changed[at..=at] == "A" { "B" } else { "A" });
    let reused = good("reused-001", 1);
    let other =
        Document { params: json!({}).as_object().unwrap().clone(), priority: 9, ..first.clone() };
    let elsewhere = Document { audience: "dev-2".to_owned(), ..good("elsewhere1", 5) };
    let cases: Vec<(&str, Vec<u8>, bool, Option<Reason>)> = vec![
        ("right", captured.clone(), false, None),
        ("the same again", captured.clone(), false, None),
        (
            "forged",
            operator::sign(&good("forged-001", 2), &forger),
            false,
            Some(Reason::SignatureInvalid),
        ),
        ("one byte changed", changed.into_bytes(), false, Some(Reason::InvalidJson)),
        ("unsigned", raw(&good("unsigned-1", 2)), false, Some(Reason::InvalidJson)),
        ("expired", operator::sign(&expired, &own), false, Some(Reason::Expired)),
        (
            "wrong role",
            operator::sign(&good("role-00001", 4), &key(KeyRole::Models)),
            false,
            Some(Reason::Unauthorized),
        ),
        ("another device's", operator::sign(&elsewhere, &own), false, Some(Reason::Unauthorized)),
        ("number used again", operator::sign(&reused, &own), false, Some(Reason::Replayed)),
        ("id used again", operator::sign(&other, &own), false, Some(Reason::Replayed)),
        ("retained", operator::sign(&good("retained-1", 6), &own), true, Some(Reason::Retained)),
        ("oversized", vec![b'{'; 210_000], false, Some(Reason::TooLarge)),
        (
            "no kind of ours",
            signed_raw(raw(&good("shell-0001", 7)).replace(b"selftest.run", b"shell.runner"), &own),
            false,
            Some(Reason::UnsupportedKind),
        ),
        ("no document", signed_raw(b"[]".to_vec(), &own), false, Some(Reason::InvalidRequest)),
    ];
    for (n, (_, bytes, retain, _)) in cases.iter().enumerate() {
        thief
            .send(Message {
                topic: format!("{}/dev-1/job/req", mien_daemon::contract::ROOT),
                payload: bytes.clone(),
                qos1: true,
                retain: *retain,
                properties: Properties {
                    response_topic: Some(format!(
                        "{}/dev-1/reply/{n}",
                        mien_daemon::contract::ROOT
                    )),
                    correlation: Some(vec![n as u8]),
                    ..Properties::default()
                },
                ..Message::default()
            })
            .unwrap();
    }
    let count = cases.len();
    assert!(desk.until(LONG, |heard| heard.len() >= count), "{:?}", desk.heard);
    let mut answers: BTreeMap<usize, Value> = BTreeMap::new();
    for heard in &desk.heard {
        if let Heard::Told { what, payload, .. } = heard {
            let n = what.strip_prefix("reply/").unwrap().parse().unwrap();
            answers.insert(n, serde_json::from_slice(payload).unwrap());
        }
    }
    for (n, (name, _, _, reason)) in cases.iter().enumerate() {
        let answer = &answers[&n];
        let got = answer["refused"]["reason"].as_str().or(answer["state"]["reason"].as_str());
        println!("{name:20} {}", got.unwrap_or("taken"));
        assert_eq!(got, reason.map(Reason::name), "{name}: {answer}");
    }
    let query = Query { kind: Some(AuditKind::Refused), most: 100, ..Query::default() };
    let recorded = jobs.store().query(&query).unwrap().len();
    assert_eq!(recorded, cases.iter().filter(|(.., reason)| reason.is_some()).count());
    assert_eq!(made.effects.load(Ordering::SeqCst), 1, "the right one, once");
}

trait Replace {
    fn replace(self, from: &[u8], to: &[u8]) -> Self;
}

impl Replace for Vec<u8> {
    fn replace(self, from: &[u8], to: &[u8]) -> Self {
        String::from_utf8(self)
            .unwrap()
            .replace(std::str::from_utf8(from).unwrap(), std::str::from_utf8(to).unwrap())
            .into_bytes()
    }
}
