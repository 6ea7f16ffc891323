//! What comes from a broker can be anything: it is refused, recorded, and never a crash.

use super::*;
use crate::audit::Kind as AuditKind;
use crate::contract::{Document, Kind, ROOT, Reason};
use crate::jobs::{Executor, HomeTrust, JobControl, Outcome, Parts};
use crate::store::{HomeKeys, JobRow, PATIENCE, Parts as StoreParts, Query, Store};
use mien_base::clock::{SystemClock, Wall};
use mien_vault::Home;
use mien_vault::random::SystemRandom;
use mien_vault::sign::{Envelope, KeyPair};
use mien_vault::trust::{KeyRole, TrustStore, TrustedKey};
use proptest::prelude::*;
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

/// Counts what is done.
#[derive(Debug, Default)]
struct Made {
    jobs: AtomicU32,
    desires: AtomicU32,
}

impl Executor for Made {
    fn run(&self, _: &JobRow, _: &JobControl) -> Outcome {
        self.jobs.fetch_add(1, Ordering::SeqCst);
        Outcome::Done(json!({}))
    }
}

impl Device for Made {
    fn desire(&self, desired: &Map<String, Value>) -> std::result::Result<Value, Refusal> {
        self.desires.fetch_add(1, Ordering::SeqCst);
        if desired.contains_key("bad") {
            return Err(Refusal::new(Reason::CanaryFailed, "it did not get well"));
        }
        Ok(json!({}))
    }

    fn command(&self, what: &[String], word: &str) -> Option<(Kind, Value)> {
        let stop = what.first().is_some_and(|first| first == "pipeline") && word == "OFF";
        stop.then(|| (Kind::PipelineStop, json!({ "pipeline": what.get(1) })))
    }
}

struct Bench {
    at: PathBuf,
    made: Arc<Made>,
    shared: Option<Arc<Shared>>,
}

fn key(n: u8) -> KeyPair {
    KeyPair::from_seed(&[n; 32])
}

impl Bench {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let at = std::env::temp_dir().join(format!("mien-fleet-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&at);
        std::fs::create_dir_all(&at).unwrap();
        let mut trust = TrustStore::open(&Home::at(&at)).unwrap();
        let trusted = TrustedKey {
            public: key(1).public(),
            name: "ops".to_owned(),
            roles: [KeyRole::Operate].into(),
            added: Wall(1),
            expires: None,
            revoked: None,
        };
        trust.add(trusted).unwrap();
        let mut bench = Self { at, made: Arc::default(), shared: None };
        bench.start();
        bench
    }

    fn start(&mut self) {
        self.shared = None;
        let home = Home::at(&self.at);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let keys = HomeKeys::open(&home, &mut SystemRandom, clock.wall()).unwrap();
        let parts = StoreParts {
            clock: clock.clone(),
            keys: Arc::new(keys),
            random: Box::new(SystemRandom),
            patience: PATIENCE,
        };
        let store = Arc::new(Store::open(&self.at, parts).unwrap());
        let topics = Topics::new(ROOT, "dev-1").unwrap();
        let mut settings = crate::jobs::Settings::new(topics, "boot-1".to_owned());
        settings.groups = vec!["g".to_owned()];
        settings.pools = vec!["p".to_owned()];
        let parts = Parts {
            store,
            clock,
            executor: self.made.clone(),
            trust: Box::new(HomeTrust(home)),
            random: Box::new(SystemRandom),
        };
        let jobs = Arc::new(Jobs::open(settings, parts).unwrap());
        let mut settings = Settings::new(Broker::parse("mqtt://127.0.0.1:1", None).unwrap());
        settings.commands = true;
        let random = Box::new(SystemRandom);
        self.shared = Some(Shared::new(settings, jobs, self.made.clone(), random).unwrap());
    }

    fn shared(&self) -> &Arc<Shared> {
        self.shared.as_ref().unwrap()
    }

    fn take(&self, topic: &str, payload: Vec<u8>, retain: bool) -> Vec<Value> {
        let message = Message {
            topic: topic.to_owned(),
            payload,
            retain,
            properties: crate::mqtt::packet::Properties {
                response_topic: Some("mien/v1/dev-1/reply".to_owned()),
                ..Default::default()
            },
            ..Message::default()
        };
        let answers = incoming::take(self.shared(), &message).unwrap();
        answers.iter().map(|answer| serde_json::from_slice(&answer.payload).unwrap()).collect()
    }

    fn desire(&self, version: u64, desired: &Value) -> Vec<Value> {
        let body = json!({ "version": version, "audience": "dev-1", "desired": desired });
        let mut envelope = Envelope::new(TWIN_TYPE, serde_json::to_vec(&body).unwrap());
        envelope.sign(&key(1));
        self.take("mien/v1/dev-1/twin/desired", envelope.to_json(), true)
    }

    fn refusals(&self) -> usize {
        let query = Query { kind: Some(AuditKind::Refused), most: 1000, ..Query::default() };
        self.shared().jobs.store().query(&query).unwrap().len()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.shared = None;
        let _ = std::fs::remove_dir_all(&self.at);
    }
}

fn document() -> Document {
    let now = SystemClock::start().wall().0 * 1000;
    let value = json!({
        "schema": "mien.job/1", "id": "job-00001", "kind": "selftest.run", "issuer": "o",
        "issued_at": now, "expires_at": now + 600_000, "audience": "dev-1", "seq": 1,
        "params": {},
    });
    Document::parse(&serde_json::to_vec(&value).unwrap()).unwrap()
}

#[test]
fn a_desired_state_is_tried_once_whatever_becomes_of_it_and_versions_only_rise() {
    let mut bench = Bench::new();
    assert_eq!(bench.desire(3, &json!({}))[0]["version"], 3);
    assert!(bench.desire(3, &json!({})).is_empty(), "the broker brings it on every connect");
    assert_eq!(bench.desire(2, &json!({}))[0]["refused"]["reason"], "VersionMismatch");
    let bad = bench.desire(4, &json!({ "bad": 1 }));
    assert_eq!(
        (&bad[0]["version"], &bad[0]["refused"]["reason"]),
        (&json!(4), &json!("CanaryFailed"))
    );
    assert!(bench.desire(4, &json!({ "bad": 1 })).is_empty());
    bench.start();
    assert!(bench.desire(4, &json!({ "bad": 1 })).is_empty(), "known after a restart");
    assert_eq!(bench.desire(3, &json!({}))[0]["refused"]["reason"], "VersionMismatch");
    assert_eq!(bench.made.desires.load(Ordering::SeqCst), 2);
    assert_eq!(bench.refusals(), 3);
}

#[test]
fn bare_words_only_do_what_lessens_nothing() {
    let bench = Bench::new();
    for (topic, word, retain, taken) in [
        ("set/pipeline/door", "OFF", false, true),
        ("set/pipeline/door", "ON", false, false),
        ("set/pipeline/door", "OFF", true, false),
        ("set/model/x", "OFF", false, false),
    ] {
        let before = bench.refusals();
        let answers = bench.take(&format!("mien/v1/dev-1/{topic}"), word.into(), retain);
        assert_eq!(!answers.is_empty(), taken, "{topic} {word} {answers:?}");
        assert_eq!(bench.refusals() - before, usize::from(!taken), "{topic} {word}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_topic_and_no_payload_is_a_crash_or_a_job(
        tries in proptest::collection::vec(
            (0..12_usize, "\\PC{0,40}", proptest::collection::vec(any::<u8>(), 0..400), any::<bool>(), any::<(u16, u8)>()),
            1..40,
        ),
    ) {
        let bench = Bench::new();
        let good = operator::sign(&document(), &key(1));
        for (place, topic, noise, retain, (at, byte)) in tries {
            let topic = match place {
                0 => topic,
                1 => "mien/v1/dev-1/job/req".to_owned(),
                2 => "mien/v1/group/g/job/req".to_owned(),
                3 => "mien/v1/pool/p/offer".to_owned(),
                4 => "mien/v1/dev-1/job/job-00001/ctl".to_owned(),
                5 => "mien/v1/dev-1/twin/desired".to_owned(),
                6 => "mien/v1/dev-1/get".to_owned(),
                7 => "mien/v1/dev-1/set/pipeline/door".to_owned(),
                8 => "homeassistant/status".to_owned(),
                9 => format!("mien/v1/dev-1/job/{topic}/ctl"),
                10 => format!("mien/v1/dev-1/set/{topic}"),
                _ => format!("mien/v1/dev-2/{topic}"),
            };
            // Half of them are what an operator signed with one byte changed or cut off.
            let payload = if byte % 2 == 0 { noise } else {
                let mut bytes = good.clone();
                let at = usize::from(at) % bytes.len();
                if byte % 4 == 1 { bytes.truncate(at) } else { bytes[at] ^= byte };
                bytes
            };
            bench.take(&topic, payload, retain);
        }
        let store = bench.shared().jobs.store();
        // One byte of the parts that nobody signs (white space, key id of two) may change nothing.
        for job in store.open_jobs(100).unwrap().iter().chain(&store.ended_jobs(100).unwrap()) {
            prop_assert!(job.id() == "job-00001" || job.id().starts_with("set-"), "{}", job.id());
        }
        store.verify().unwrap();
    }
}
