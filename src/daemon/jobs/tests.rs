//! Jobs as a whole: what is refused, what is answered twice alike, how each ends, what a crash leaves.

use super::*;
use crate::audit::Kind as AuditKind;
use crate::contract::{CONTROL_TYPE, Class, JOB_TYPE, Kind, Reason, State, legal};
use crate::store::{HomeKeys, PATIENCE, Parts as StoreParts, Query};
use mien_base::clock::ManualClock;
use mien_vault::Home;
use mien_vault::random::SystemRandom;
use mien_vault::sign::{Envelope, KeyPair};
use mien_vault::trust::{KeyRole, TrustStore, TrustedKey};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const START: Wall = Wall(1_800_000_000);

/// What a job of the tests does is written in its profile's name.
#[derive(Default)]
struct Made {
    began: AtomicU32,
    done: AtomicU32,
}

impl Executor for Made {
    fn admit(&self, document: &Document) -> std::result::Result<(), Refusal> {
        if document.kind == Kind::PowerMode {
            return Err(Refusal::new(Reason::Unavailable, "there is no such device here"));
        }
        Ok(())
    }

    fn run(&self, job: &JobRow, control: &JobControl) -> Outcome {
        self.began.fetch_add(1, Ordering::SeqCst);
        let word = job.document.params.get("profile").and_then(Value::as_str).unwrap_or("do");
        let until_stopped = || {
            while control.stop().is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
            Outcome::Stopped
        };
        match word {
            "wait" => until_stopped(),
            "ignore" => {
                while control.stop() != Some(Stop::Cancel) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                self.done.fetch_add(1, Ordering::SeqCst);
                Outcome::Done(json!({ "late": true }))
            }
            "broken" => Outcome::Failed(Refusal::new(Reason::InputUnreadable, "no picture")),
            "weak" if job.attempt < 3 => Outcome::Failed(Refusal::new(Reason::CameraLost, "gone")),
            "lost" => Outcome::Failed(Refusal::new(Reason::CameraLost, "gone")),
            "panic" => panic!("as asked"),
            "reboot" => Outcome::Leaving,
            _ if job.document.kind == Kind::DeviceReboot => Outcome::Leaving,
            _ => {
                control.progress("working", Some(500));
                self.done.fetch_add(1, Ordering::SeqCst);
                Outcome::Done(json!({ "did": word }))
            }
        }
    }
}

struct Bench {
    at: PathBuf,
    clock: Arc<ManualClock>,
    made: Arc<Made>,
    key: KeyPair,
    jobs: Option<Jobs>,
    seq: AtomicU64,
    keep: bool,
}

fn key(n: u8) -> KeyPair {
    KeyPair::from_seed(&[n; 32])
}

impl Bench {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let at = std::env::temp_dir().join(format!("mien-jobs-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&at);
        std::fs::create_dir_all(&at).unwrap();
        let mut trust = TrustStore::open(&Home::at(&at)).unwrap();
        for (n, role) in [(1, KeyRole::Operate), (2, KeyRole::Models)] {
            trust
                .add(TrustedKey {
                    public: key(n).public(),
                    name: format!("key {n}"),
                    roles: [role].into(),
                    added: START,
                    expires: None,
                    revoked: None,
                })
                .unwrap();
        }
        let clock = Arc::new(ManualClock::at(START));
        let made = Arc::new(Made::default());
        let mut bench =
            Self { at, clock, made, key: key(1), jobs: None, seq: AtomicU64::new(1), keep: false };
        bench.start("boot-1");
        bench
    }

    /// Opens everything, as after a crash when it was open before.
    fn start(&mut self, boot: &str) {
        let home = Home::at(&self.at);
        let keys = HomeKeys::open(&home, &mut SystemRandom, START).unwrap();
        let parts = StoreParts {
            clock: self.clock.clone(),
            keys: Arc::new(keys),
            random: Box::new(SystemRandom),
            patience: PATIENCE,
        };
        let store = Arc::new(Store::open(&self.at, parts).unwrap());
        let topics = Topics::new(crate::contract::ROOT, "dev-1").unwrap();
        let mut settings = Settings::new(topics, boot.to_owned());
        settings.groups = vec!["g".to_owned()];
        settings.pools = vec!["p".to_owned()];
        settings.bounds = Bounds { open: 8, of_one_issuer: 6 };
        let parts = Parts {
            store,
            clock: self.clock.clone(),
            executor: self.made.clone(),
            trust: Box::new(HomeTrust(home)),
            random: Box::new(SystemRandom),
        };
        self.jobs = Some(Jobs::open(settings, parts).unwrap());
    }

    fn jobs(&self) -> &Jobs {
        self.jobs.as_ref().unwrap()
    }

    fn document(&self, id: &str, profile: &str) -> Value {
        let now = self.clock.wall().0 * 1000;
        json!({
            "schema": "mien.job/1", "id": id, "kind": "profile.activate", "issuer": "o",
            "issued_at": now, "expires_at": now + 600_000, "audience": "dev-1",
            "seq": self.seq.fetch_add(1, Ordering::SeqCst), "params": { "profile": profile },
            "retry": { "max": 3, "backoff_s": 10 }, "timeout_s": 3600,
        })
    }

    fn sign(&self, document: &Value, key: &KeyPair) -> Vec<u8> {
        let mut envelope = Envelope::new(JOB_TYPE, serde_json::to_vec(document).unwrap());
        envelope.sign(key);
        envelope.to_json()
    }

    fn send(&self, document: &Value) -> Answer {
        self.jobs().submit(&Via::Own, false, &self.sign(document, &self.key)).unwrap()
    }

    fn reason(&self, document: &Value) -> Reason {
        self.send(document).outcome.unwrap_err().reason
    }

    fn state(&self, id: &str) -> State {
        self.jobs().store().job(id).unwrap().unwrap().state
    }

    /// Waits for a state; time stands still meanwhile.
    fn reaches(&self, id: &str, state: State) {
        for _ in 0..5000 {
            if self.state(id) == state {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("{id} is {}, not {state}", self.state(id));
    }

    /// States of a job as an observer got them.
    fn told(&self, id: &str) -> Vec<State> {
        let all = self.jobs().store().outbox(0, i64::MAX, 0, 10_000).unwrap();
        let of_job = all.iter().filter(|message| message.topic.ends_with(&format!("{id}/state")));
        let mut states: Vec<(u64, State)> = of_job
            .map(|message| {
                let state: crate::contract::JobState =
                    serde_json::from_slice(&message.payload).unwrap();
                (state.version, state.state)
            })
            .collect();
        states.dedup_by_key(|(version, _)| *version);
        states.into_iter().map(|(_, state)| state).collect()
    }

    fn control(&self, id: &str, what: Do) -> std::result::Result<JobRow, Refusal> {
        self.jobs().control(id, what, None, None).unwrap()
    }

    fn refusals(&self) -> usize {
        let query = Query { kind: Some(AuditKind::Refused), most: 1000, ..Query::default() };
        self.jobs().store().query(&query).unwrap().len()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.jobs = None;
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.at);
        }
    }
}

#[test]
fn a_job_goes_from_received_to_its_end_and_every_state_is_told() {
    let bench = Bench::new();
    let answer = bench.send(&bench.document("job-00000001", "do"));
    assert_eq!(answer.outcome.unwrap().state, State::Queued);
    bench.reaches("job-00000001", State::Succeeded);
    let job = bench.jobs().store().job("job-00000001").unwrap().unwrap();
    assert_eq!((job.version, job.attempt, job.result), (3, 1, Some(json!({ "did": "do" }))));
    assert_eq!(bench.told("job-00000001"), [State::Queued, State::Running, State::Succeeded]);
    let query = Query { job: Some(job.execution), most: 10, ..Query::default() };
    assert_eq!(bench.jobs().store().query(&query).unwrap().len(), 3);
    assert_eq!(bench.jobs().store().attempts("job-00000001").unwrap(), [Some(State::Succeeded)]);
}

#[test]
fn the_same_document_again_gets_the_job_s_state_and_another_one_is_a_replay() {
    let bench = Bench::new();
    let document = bench.document("job-00000001", "do");
    bench.send(&document);
    bench.reaches("job-00000001", State::Succeeded);
    // The broker has taken all of it, and then lost it.
    let store = bench.jobs().store();
    let sent = store.outbox(0, i64::MAX, 0, 100).unwrap().iter().map(|one| one.n).collect();
    store.outbox_sent(sent).wait().unwrap();
    assert!(bench.told("job-00000001").is_empty());
    let again = bench.send(&document).outcome.unwrap();
    assert_eq!((again.state, again.version), (State::Succeeded, 3));
    assert_eq!(bench.told("job-00000001"), [State::Succeeded], "told again to who missed it");
    assert_eq!(bench.made.done.load(Ordering::SeqCst), 1);
    assert_eq!(bench.reason(&bench.document("job-00000001", "other")), Reason::Replayed);
    let mut old = bench.document("job-00000002", "do");
    old["seq"] = document["seq"].clone();
    assert_eq!(bench.reason(&old), Reason::Replayed);
    assert!(bench.jobs().store().job("job-00000002").unwrap().is_none());
}

#[test]
fn what_is_not_signed_right_is_no_job_and_stands_in_the_record() {
    let bench = Bench::new();
    let document = bench.document("job-00000001", "do");
    let submit = |via: Via, retained: bool, bytes: &[u8]| {
        bench.jobs().submit(&via, retained, bytes).unwrap().outcome.unwrap_err().reason
    };
    let good = bench.sign(&document, &bench.key);
    let mut forged = Envelope::new(JOB_TYPE, serde_json::to_vec(&document).unwrap());
    forged.sign(&key(9));
    let mut other_type = Envelope::new("application/json", serde_json::to_vec(&document).unwrap());
    other_type.sign(&bench.key);
    let swapped = String::from_utf8(good.clone()).unwrap().replacen("eyJ", "eyK", 1);
    let mut group = document.clone();
    group["audience"] = json!("dev-2");
    for (via, retained, bytes, reason) in [
        (Via::Own, false, forged.to_json(), Reason::SignatureInvalid),
        (Via::Own, false, bench.sign(&document, &key(2)), Reason::Unauthorized),
        (Via::Own, false, other_type.to_json(), Reason::UnsupportedSchema),
        (Via::Own, false, swapped.into_bytes(), Reason::InvalidJson),
        (Via::Own, true, good.clone(), Reason::Retained),
        (Via::Own, false, vec![b'x'; 400_000], Reason::TooLarge),
        (Via::Own, false, serde_json::to_vec(&document).unwrap(), Reason::InvalidJson),
        (Via::Own, false, bench.sign(&group, &bench.key), Reason::Unauthorized),
        (Via::Group("g".into()), false, good.clone(), Reason::Unauthorized),
        (Via::Pool("p".into()), false, good, Reason::Unauthorized),
    ] {
        assert_eq!(submit(via.clone(), retained, &bytes), reason, "{via:?}");
    }
    assert_eq!(bench.refusals(), 10);
    assert!(bench.jobs().store().open_jobs(10).unwrap().is_empty());
}

#[test]
fn ten_thousand_forgeries_leave_a_bounded_record() {
    let bench = Bench::new();
    for _ in 0..2000 {
        bench.jobs().submit(&Via::Own, false, b"nonsense").unwrap();
    }
    assert_eq!(bench.refusals(), 60);
    bench.clock.advance(Duration::from_secs(61));
    bench.jobs().submit(&Via::Own, false, b"nonsense").unwrap();
    let query = Query { kind: Some(AuditKind::Refused), most: 1, ..Query::default() };
    let last = bench.jobs().store().query(&query).unwrap().remove(0);
    assert_eq!(last.row.entry.body["more_not_recorded"], 1940);
}

#[test]
fn a_document_that_can_not_be_done_here_is_a_rejected_job() {
    let bench = Bench::new();
    let mut late = bench.document("job-00000001", "do");
    late["issued_at"] = json!(START.0 * 1000 - 100_000);
    late["expires_at"] = json!(START.0 * 1000 - 50_000);
    let mut boot = bench.document("job-00000002", "do");
    boot["expect"] = json!({ "boot_id": "another" });
    let mut mode = bench.document("job-00000003", "do");
    (mode["kind"], mode["params"]) = (json!("power.mode"), json!({ "mode": "15w" }));
    for (document, reason) in
        [(late, Reason::Expired), (boot, Reason::VersionMismatch), (mode, Reason::Unavailable)]
    {
        let state = bench.send(&document).outcome.unwrap();
        assert_eq!((state.state, state.reason), (State::Rejected, Some(reason)));
        assert_eq!(bench.told(&state.id), [State::Rejected]);
    }
    assert_eq!(bench.made.began.load(Ordering::SeqCst), 0);
}

#[test]
fn failures_that_another_try_may_cure_are_tried_again_and_others_not() {
    let bench = Bench::new();
    for (id, word) in [("job-0000weak", "weak"), ("job-0000lost", "lost")] {
        bench.send(&bench.document(id, word));
    }
    bench.send(&bench.document("job-0broken", "broken"));
    bench.send(&bench.document("job-00panic", "panic"));
    bench.reaches("job-0broken", State::Failed);
    assert_eq!(bench.jobs().store().attempts("job-0broken").unwrap().len(), 1);
    for _ in 0..3000 {
        std::thread::sleep(Duration::from_millis(20));
        let (now, open) =
            (bench.clock.wall().0 * 1000, bench.jobs().store().open_jobs(10).unwrap());
        if open.is_empty() {
            break;
        }
        // Time passes only while all of them wait for it, however slow the machine is.
        if open.iter().all(|job| job.state == State::Queued && job.not_before > now) {
            bench.clock.advance(Duration::from_secs(20));
            bench.jobs().nudge();
        }
    }
    assert_eq!(bench.state("job-0000weak"), State::Succeeded);
    assert_eq!(bench.jobs().store().attempts("job-0000weak").unwrap().len(), 3);
    assert_eq!(bench.state("job-0000lost"), State::Failed);
    assert_eq!(bench.jobs().store().attempts("job-0000lost").unwrap().len(), 4);
    let panicked = bench.jobs().store().job("job-00panic").unwrap().unwrap();
    assert_eq!((panicked.state, panicked.reason), (State::Failed, Some(Reason::Internal)));
    assert!(legal(&bench.told("job-0000weak")));
}

#[test]
fn a_cancellation_is_always_answered_by_what_the_job_becomes() {
    let bench = Bench::new();
    bench.send(&bench.document("job-000wait", "wait"));
    bench.reaches("job-000wait", State::Running);
    bench.control("job-000wait", Do::Cancel).unwrap();
    bench.reaches("job-000wait", State::Cancelled);
    // An end that was reached first is the answer.
    bench.send(&bench.document("job-0ignore", "ignore"));
    bench.reaches("job-0ignore", State::Running);
    bench.control("job-0ignore", Do::Cancel).unwrap();
    bench.reaches("job-0ignore", State::Succeeded);
    assert_eq!(bench.control("job-0ignore", Do::Cancel).unwrap().state, State::Succeeded);
    let mut later = bench.document("job-00later", "do");
    later["not_before"] = json!(START.0 * 1000 + 100_000);
    bench.send(&later);
    assert_eq!(bench.control("job-00later", Do::Cancel).unwrap().state, State::Cancelled);
    assert_eq!(bench.control("job-nobody", Do::Cancel).unwrap_err().reason, Reason::UnknownJob);
}

#[test]
fn a_paused_job_stays_so_and_goes_on_when_told() {
    let bench = Bench::new();
    bench.send(&bench.document("job-000wait", "wait"));
    bench.reaches("job-000wait", State::Running);
    bench.control("job-000wait", Do::Pause).unwrap();
    bench.reaches("job-000wait", State::Paused);
    let refused = bench.control("job-000wait", Do::Pause).unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidStateTransition);
    bench.control("job-000wait", Do::Resume).unwrap();
    bench.reaches("job-000wait", State::Running);
    assert!(legal(&bench.told("job-000wait")));
}

#[test]
fn a_signed_control_is_held_to_signature_version_and_sequence() {
    let bench = Bench::new();
    bench.send(&bench.document("job-000wait", "wait"));
    bench.reaches("job-000wait", State::Running);
    let now = START.0 * 1000;
    let signed = |seq: u64, version: u64, by: &KeyPair| {
        let control = json!({
            "schema": "mien.ctl/1", "job": "job-000wait", "do": "cancel", "issuer": "o",
            "issued_at": now, "expires_at": now + 60_000, "audience": "dev-1", "seq": seq,
            "expect_version": version,
        });
        let mut envelope = Envelope::new(CONTROL_TYPE, serde_json::to_vec(&control).unwrap());
        envelope.sign(by);
        envelope.to_json()
    };
    let submit =
        |job: &str, bytes: &[u8]| bench.jobs().submit_control(job, false, bytes).unwrap().outcome;
    let reason = |outcome: std::result::Result<_, Refusal>| {
        outcome.map(|_: crate::contract::JobState| ()).unwrap_err().reason
    };
    assert_eq!(reason(submit("job-000wait", &signed(1, 2, &key(9)))), Reason::SignatureInvalid);
    assert_eq!(reason(submit("job-000wait", &signed(1, 2, &key(2)))), Reason::Unauthorized);
    assert_eq!(reason(submit("job-other-1", &signed(1, 2, &bench.key))), Reason::InvalidTopic);
    assert_eq!(reason(submit("job-000wait", &signed(1, 1, &bench.key))), Reason::VersionMismatch);
    assert_eq!(submit("job-000wait", &signed(1, 2, &bench.key)).unwrap().state, State::Running);
    assert!(submit("job-000wait", &signed(2, 2, &bench.key)).is_ok());
    bench.reaches("job-000wait", State::Cancelled);
}

#[test]
fn time_that_runs_out_ends_a_job_from_outside() {
    let bench = Bench::new();
    let mut whole = bench.document("job-timeout", "wait");
    whole["timeout_s"] = json!(30);
    let mut stall = bench.document("job-0stalls", "wait");
    (stall["stall_s"], stall["retry"]) = (json!(10), json!({ "max": 0 }));
    let mut expires = bench.document("job-expires", "do");
    expires["not_before"] = json!(START.0 * 1000 + 300_000);
    expires["expires_at"] = json!(START.0 * 1000 + 301_000);
    for document in [&whole, &stall, &expires] {
        bench.send(document);
    }
    bench.reaches("job-timeout", State::Running);
    bench.reaches("job-0stalls", State::Running);
    bench.clock.advance(Duration::from_secs(11));
    bench.reaches("job-0stalls", State::Failed);
    bench.clock.advance(Duration::from_secs(20));
    bench.reaches("job-timeout", State::TimedOut);
    bench.clock.advance(Duration::from_secs(400));
    bench.jobs().nudge();
    bench.reaches("job-expires", State::Expired);
}

#[test]
fn what_is_full_says_so_and_takes_the_job_later() {
    let bench = Bench::new();
    let later = |n: u32| {
        let mut document = bench.document(&format!("job-000000{n:02}"), "do");
        document["not_before"] = json!(START.0 * 1000 + 100_000);
        document
    };
    for n in 0..6 {
        bench.send(&later(n)).outcome.unwrap();
    }
    let one_more = later(6);
    assert_eq!(bench.reason(&one_more), Reason::QuotaExceeded);
    bench.control("job-00000000", Do::Cancel).unwrap();
    // The same document, whose number was not used up by the refusal.
    assert_eq!(bench.send(&one_more).outcome.unwrap().state, State::Queued);
}

#[test]
fn a_job_that_is_superseded_ends_so_even_while_it_runs() {
    let bench = Bench::new();
    bench.send(&bench.document("job-000wait", "wait"));
    bench.reaches("job-000wait", State::Running);
    let mut new = bench.document("job-000next", "do");
    new["supersedes"] = json!("job-000wait");
    bench.send(&new);
    bench.reaches("job-000wait", State::Superseded);
    bench.reaches("job-000next", State::Succeeded);
    assert!(legal(&bench.told("job-000wait")));
}

#[test]
fn an_offer_with_a_newer_fence_is_the_same_job_and_an_older_one_is_refused() {
    let bench = Bench::new();
    let offer = |fence: u64| {
        let mut document = bench.document("job-0offer1", "wait");
        (document["audience"], document["fence"]) = (json!("pool/p"), json!(fence));
        let bytes = bench.sign(&document, &bench.key);
        bench.jobs().submit(&Via::Pool("p".into()), false, &bytes).unwrap().outcome
    };
    assert_eq!(offer(2).unwrap().fence, Some(2));
    bench.reaches("job-0offer1", State::Running);
    assert_eq!(offer(1).unwrap_err().reason, Reason::Fenced);
    assert_eq!(offer(3).unwrap().fence, Some(3));
    assert_eq!(bench.made.began.load(Ordering::SeqCst), 1);
}

#[test]
fn after_a_crash_jobs_go_on_and_a_reboot_is_closed_by_another_boot() {
    let mut bench = Bench::new();
    let mut reboot = bench.document("job-0reboot", "do");
    (reboot["kind"], reboot["params"]) = (json!("device.reboot"), json!({}));
    reboot["expect"] = json!({ "boot_id": "boot-1" });
    bench.send(&reboot);
    bench.reaches("job-0reboot", State::Running);
    bench.send(&bench.document("job-0000000", "do"));
    // As a crash: nothing is told to end. The device's job holds back the other.
    let old = std::mem::take(&mut bench.jobs).unwrap();
    std::mem::forget(old);
    bench.start("boot-2");
    bench.reaches("job-0reboot", State::Succeeded);
    bench.reaches("job-0000000", State::Succeeded);
    assert_eq!(bench.made.done.load(Ordering::SeqCst), 1);
    assert!(legal(&bench.told("job-0reboot")));
}

#[test]
fn an_untrusted_clock_judges_no_expiry() {
    let bench = Bench::new();
    assert!(bench.jobs().inner.now().trusted);
    assert!(Wall(1_000_000) < NOT_SET);
}

#[test]
fn only_the_newest_progress_waits_and_an_end_takes_its_place() {
    let bench = Bench::new();
    bench.send(&bench.document("job-000wait", "wait"));
    bench.reaches("job-000wait", State::Running);
    let store = bench.jobs().store();
    let control = JobControl::new("job-000wait", store.clone(), bench.clock.clone());
    for n in 0..50 {
        bench.clock.advance(Duration::from_secs(1));
        control.progress("working", Some(n));
    }
    store
        .put_message(
            crate::store::When::Now,
            crate::contract::Draft {
                topic: "x".into(),
                class: Class::Must,
                retain: false,
                life_s: None,
                payload: vec![],
            },
        )
        .wait()
        .unwrap();
    let waiting = |store: &Store| {
        let all = store.outbox(0, i64::MAX, 0, 1000).unwrap();
        all.into_iter().filter(|m| m.topic.ends_with("wait/state")).count()
    };
    assert_eq!(waiting(store), 3);
    bench.control("job-000wait", Do::Cancel).unwrap();
    bench.reaches("job-000wait", State::Cancelled);
    assert_eq!(waiting(store), 3);
}
