//! The service with pipelines that only note what is done to them.

use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use mien_base::clock::{Clock as _, ManualClock, SystemClock, Wall};
use mien_vault::Home;
use mien_vault::random::SystemRandom;
use serde_json::{Value, json};

use super::lines::tests::Noted;
use super::wanted::tests::text;
use super::*;
use crate::audit::Kind;
use crate::config::{Config, Level, LogFormat};
use crate::store::{self, HomeKeys, Store};
use crate::telemetry::{Log, Notify};

/// A folder with a home, a configuration and what the service is made of.
struct Bench {
    at: PathBuf,
    noted: Noted,
    store: Arc<Store>,
    clock: Arc<ManualClock>,
    stop: Arc<AtomicBool>,
}

impl Bench {
    fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let at = std::env::temp_dir().join(format!("mien-service-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&at);
        std::fs::create_dir_all(&at).unwrap();
        let wall = Wall::from_date(2026, 12, 4).unwrap();
        let clock = Arc::new(ManualClock::at(wall));
        let keys = HomeKeys::open(&Home::at(&at), &mut SystemRandom, wall).unwrap();
        let parts = store::Parts {
            clock: clock.clone(),
            keys: Arc::new(keys),
            random: Box::new(SystemRandom),
            patience: store::PATIENCE,
        };
        let store = Arc::new(Store::open(&at, parts).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let bench = Self { at, noted: Noted::default(), store, clock, stop };
        bench.write(text);
        bench
    }

    fn write(&self, text: &str) {
        std::fs::write(self.at.join("mien.toml"), text).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.at.join("control.sock")
    }

    fn service(&self, notify: Notify, clock: Arc<dyn mien_base::clock::Clock>) -> Service {
        let config = Config::load(&self.at.join("mien.toml")).unwrap();
        let quiet = Box::new(std::io::sink());
        let parts = Parts {
            home: self.at.clone(),
            lock: Lock::take(&self.at).unwrap(),
            store: self.store.clone(),
            clock: clock.clone(),
            log: Log::to(LogFormat::Plain, Level::Error, clock, quiet),
            notify,
            lines: Box::new(self.noted.clone()),
            parts: Vec::new(),
            handlers: BTreeMap::from([("echo", Arc::new(Echo) as Arc<dyn Handler>)]),
            stop: self.stop.clone(),
            reload: Arc::new(AtomicBool::new(false)),
        };
        Service::start(config, parts).unwrap()
    }

    /// Runs the service while `work` asks it.
    fn run(&self, work: impl FnOnce(&dyn Fn(&str) -> Result<Value>)) {
        let service = self.service(Notify::of(|_| None, 0), Arc::new(SystemClock::start()));
        let thread = std::thread::Builder::new().spawn(move || service.run()).unwrap();
        let socket = self.socket();
        work(&|verb| ask(&socket, verb, json!({ "n": 1 })));
        self.stop.store(true, Ordering::Relaxed);
        thread.join().unwrap().unwrap();
    }

    fn rows(&self, kind: Kind) -> usize {
        let query = store::Query { kind: Some(kind), most: 100, ..store::Query::default() };
        self.store.query(&query).unwrap().len()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.at);
    }
}

struct Echo;

impl Handler for Echo {
    fn answer(&self, peer: Peer, verb: &str, args: &Value) -> Result<Value> {
        match verb {
            "echo.back" => Ok(json!({ "uid": peer.uid, "args": args })),
            _ => Err(crate::Error::Busy { name: verb.to_owned() }),
        }
    }
}

#[test]
fn it_starts_answers_and_ends_in_order() {
    let bench = Bench::new(&text(&["a", "b"]));
    bench.run(|ask| {
        let status = ask("status").unwrap();
        assert_eq!(status["pipelines"].as_array().unwrap().len(), 2);
        assert_eq!(status["config_digest"].as_str().unwrap().len(), 64);
        assert_eq!(ask("health").unwrap()["healthy"], true, "{status}");
        let echo = ask("echo.back").unwrap();
        assert_eq!(echo["args"], json!({ "n": 1 }));
        assert_eq!(echo["uid"], rustix::process::geteuid().as_raw());
        let failed = ask("echo.x").unwrap_err();
        assert_eq!(failed.kind(), mien_base::error::ErrorKind::Io);
        let unknown = ask("stauts").unwrap_err().to_string();
        assert!(unknown.contains("status, health, reload, steer, echo.*"), "{unknown}");
    });
    assert_eq!(bench.noted.told(), ["start a", "start b", "stop b", "stop a"]);
    assert_eq!((bench.rows(Kind::Start), bench.rows(Kind::Stop)), (1, 1));
    assert!(!bench.socket().exists());
    assert!(matches!(
        ask(&bench.socket(), "status", Value::Null),
        Err(crate::Error::NotRunning { .. })
    ));
}

#[test]
fn a_reload_touches_what_changed_and_nothing_else() {
    let bench = Bench::new(&text(&["a", "b"]));
    bench.run(|ask| {
        bench.noted.told();
        assert_eq!(ask("reload").unwrap()["changes"], json!([]));
        bench.write(&(text(&["a", "b"]) + "anonymise = \"blur\"\n"));
        assert_eq!(ask("reload").unwrap()["changes"], json!([{ "applied": "b" }]));
        assert_eq!(bench.noted.told(), ["apply b"]);
        bench.write(&text(&["b", "c"]));
        ask("reload").unwrap();
        assert_eq!(bench.noted.told(), ["stop a", "apply b", "start c"]);
        assert_eq!(ask("status").unwrap()["reloads"], 3);
    });
    assert_eq!(bench.rows(Kind::Config), 3);
}

#[test]
fn a_file_with_faults_or_one_that_cannot_be_carried_out_changes_nothing() {
    let bench = Bench::new(&text(&["a"]));
    bench.run(|ask| {
        bench.noted.told();
        let digest = ask("status").unwrap()["config_digest"].clone();
        bench.write(&(text(&["a"]) + "anonymize = \"blur\"\n"));
        let refused = ask("reload").unwrap_err().to_string();
        assert!(refused.contains("mien.toml:12: pipeline.a.anonymize"), "{refused}");
        bench.write(&text(&["b", "c"]));
        bench.noted.broken.lock().unwrap().push("c".to_owned());
        assert!(ask("reload").is_err());
        assert_eq!(bench.noted.told(), ["stop a", "start b", "stop b", "start a"]);
        let after = ask("status").unwrap();
        assert_eq!(after["config_digest"], digest);
        assert_eq!(after["pipelines"][0]["name"], "a");
    });
    assert_eq!((bench.rows(Kind::Refused), bench.rows(Kind::Config)), (2, 0));
}

#[test]
fn a_socket_that_moves_is_listened_on_before_the_old_one_goes() {
    let bench = Bench::new("");
    bench.run(|ask_old| {
        let other = bench.at.join("other.sock");
        bench.write("[control]\nsocket = \"no/such/folder.sock\"\n");
        assert!(ask_old("reload").is_err());
        assert!(ask_old("status").is_ok(), "it still listens where it did");
        bench.write("[control]\nsocket = \"other.sock\"\n");
        ask_old("reload").unwrap();
        assert!(ask(&other, "status", Value::Null).is_ok());
        assert!(!bench.socket().exists());
    });
}

#[test]
fn requests_are_bounded_and_many_may_ask() {
    use std::io::{Read as _, Write as _};
    let bench = Bench::new("");
    bench.run(|ask| {
        let mut stream = UnixStream::connect(bench.socket()).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        let _ = stream.write_all(&vec![b'x'; mien_base::limits::CONTROL_LINE + 8192]);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.contains("512 KiB"), "{answer}");
        let mut stream = UnixStream::connect(bench.socket()).unwrap();
        stream.write_all(b"{\"verb\":1}\nnonsense\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.lines().filter(|line| line.contains("Not a request")).count(), 2);
        let idle: Vec<_> = (0..mien_base::limits::CONTROL_PEERS)
            .map(|_| UnixStream::connect(bench.socket()).unwrap())
            .collect();
        let mut crowded = false;
        for _ in 0..100 {
            crowded = ask("health").is_err_and(|error| error.to_string().contains("Too many"));
            if crowded {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(crowded);
        drop(idle);
        let again = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            ask("health").is_ok()
        });
        assert!(again, "places are given back");
    });
}

#[test]
fn the_watchdog_is_fed_by_frames_and_not_by_a_timer() {
    let name = format!("mien-fed-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let bench = Bench::new(&text(&["a"]));
    let var = |key: &str| (key == "NOTIFY_SOCKET").then(|| format!("@{name}"));
    let mut service = bench.service(Notify::of(var, 0), bench.clock.clone());
    let fed = || {
        let (mut buffer, mut fed) = ([0; 512], 0);
        while let Ok(n) = socket.recv(&mut buffer) {
            fed += usize::from(&buffer[..n] == b"WATCHDOG=1");
        }
        fed
    };
    assert_eq!(fed(), 1, "the start counts");
    bench.clock.advance(Duration::from_secs(10));
    service.look();
    assert_eq!(fed(), 1, "within its patience");
    for _ in 0..5 {
        bench.clock.advance(Duration::from_secs(1));
        service.look();
    }
    assert_eq!(fed(), 0, "no frame moved for longer than `stall`");
}

#[test]
fn a_profile_comes_and_goes_by_the_clock_of_the_wall() {
    let night = "[profile.night]\nfrom = \"22:00\"\nto = \"06:00\"\n\
                 [profile.night.pipeline.a]\nenabled = false\n";
    let bench = Bench::new(&(text(&["a", "b"]) + night));
    let mut service = bench.service(Notify::of(|_| None, 0), bench.clock.clone());
    // It is midnight: the pipeline `a` does not run.
    assert_eq!(bench.noted.told(), ["start b"]);
    bench.clock.advance(Duration::from_secs(6 * 3600));
    let now = bench.clock.mono();
    service.turn(now);
    assert_eq!(bench.noted.told(), ["start a"]);
    bench.clock.advance(Duration::from_secs(16 * 3600));
    service.turn(bench.clock.mono());
    assert_eq!(bench.noted.told(), ["stop a"]);
    assert!(Path::new(&bench.socket()).exists());
}

#[test]
fn the_record_is_sealed_by_itself_while_the_service_runs() {
    let bench = Bench::new(&text(&["a"]));
    bench
        .store
        .append(crate::audit::Entry::new(Kind::Config, bench.clock.wall(), json!({})))
        .unwrap();
    let log =
        Log::to(LogFormat::Plain, Level::Error, bench.clock.clone(), Box::new(std::io::sink()));
    let kept = KeepRecord::start_each(bench.store.clone(), log, Duration::from_millis(5)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(kept.status()["sealed"], 0, "it is not due");
    bench.clock.advance(Duration::from_secs(90 * 86_400));
    let sealed = (0..400).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        kept.status()["sealed"] == 1
    });
    assert!(sealed, "{:?}", kept.faults());
    Box::new(kept).stop();
    assert_eq!(bench.store.sealed().unwrap().len(), 1);
    assert_eq!(bench.store.verify().unwrap().faults, []);
}

#[test]
fn steering_holds_until_the_file_is_read_again() {
    let bench = Bench::new(&text(&["a", "b"]));
    let service = bench.service(Notify::of(|_| None, 0), Arc::new(SystemClock::start()));
    let thread = std::thread::Builder::new().spawn(move || service.run()).unwrap();
    let steer = |steer: Value| ask(&bench.socket(), "steer", steer);
    let pipeline = |name: &str, run: bool| json!({ "pipeline": { "name": name, "run": run } });
    assert_eq!(steer(pipeline("a", false)).unwrap()["changes"], json!([{ "stopped": "a" }]));
    assert_eq!(steer(pipeline("a", false)).unwrap()["changes"], json!([]));
    assert_eq!(steer(pipeline("a", true)).unwrap()["changes"], json!([{ "started": "a" }]));
    let recipe = serde_json::to_value(mien_base::recipe::Recipe {
        action: mien_base::recipe::Action::Pass,
        ..Default::default()
    });
    let other = json!({ "pipeline": { "name": "b", "recipe": recipe.unwrap() } });
    assert_eq!(steer(other).unwrap()["changes"], json!([{ "applied": "b" }]));
    assert!(steer(pipeline("c", true)).is_err());
    assert!(steer(json!({ "profile": { "name": "c" } })).is_err());
    assert!(steer(json!({ "shell": { "name": "c" } })).is_err());
    let done = ask(&bench.socket(), "reload", Value::Null).unwrap();
    assert_eq!(done["changes"], json!([{ "applied": "b" }]), "as the file says");
    bench.stop.store(true, Ordering::Relaxed);
    thread.join().unwrap().unwrap();
}
