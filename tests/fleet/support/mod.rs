//! What the fleet's tests share: a real mosquitto with TLS and access lists, devices, an operator.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Shared by tests; not each uses all.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use mien_base::clock::{Clock, SystemClock, Wall};
use mien_daemon::contract::{Document, ROOT, State, Topics};
use mien_daemon::fleet::operator::{Heard, Operator};
use mien_daemon::fleet::{Fleet, Plain, Settings as FleetSettings};
use mien_daemon::jobs::{Executor, HomeTrust, Jobs, Parts as JobParts, Settings};
use mien_daemon::mqtt::{Broker, TlsFiles};
use mien_daemon::store::{HomeKeys, PATIENCE, Parts, Store};
use mien_vault::Home;
use mien_vault::random::SystemRandom;
use mien_vault::sign::KeyPair;
use mien_vault::trust::{KeyRole, TrustStore, TrustedKey};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair as TlsKey,
};
use serde_json::{Value, json};

/// A folder that goes away.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let at = std::env::temp_dir().join(format!("mien-{name}-{}-{n}", std::process::id()));
        let _ = fs::remove_dir_all(&at);
        fs::create_dir_all(&at).unwrap();
        Self(at)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A mosquitto of our own.
pub struct Mosquitto {
    pub at: PathBuf,
    pub port: u16,
    host: String,
    child: Option<Child>,
    ca: CertifiedIssuer<'static, TlsKey>,
}

fn issuer() -> CertifiedIssuer<'static, TlsKey> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "mien tests");
    CertifiedIssuer::self_signed(params, TlsKey::generate().unwrap()).unwrap()
}

impl Mosquitto {
    /// With TLS, client certificates and access lists, in this folder.
    pub fn start(at: &Path) -> Self {
        Self::start_at(at, "127.0.0.1")
    }

    /// The same, listening on another address of this machine.
    pub fn start_at(at: &Path, host: &str) -> Self {
        let at = at.join("broker");
        fs::create_dir_all(&at).unwrap();
        let port = TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().port();
        let ca = issuer();
        fs::write(at.join("ca.pem"), ca.pem()).unwrap();
        let mut broker = Self { at, port, host: host.to_owned(), child: None, ca };
        broker.certificate("server");
        let at = broker.at.display().to_string();
        fs::write(
            broker.at.join("acl"),
            format!(
                "user operator\ntopic readwrite {ROOT}/#\n\
                 user thief\ntopic readwrite #\n\
                 pattern write {ROOT}/%u/#\npattern read {ROOT}/%u/twin/desired\n\
                 pattern read {ROOT}/%u/job/#\npattern read {ROOT}/%u/get\n\
                 pattern read {ROOT}/%u/set/#\npattern read {ROOT}/group/#\n\
                 pattern read {ROOT}/pool/#\n"
            ),
        )
        .unwrap();
        fs::write(
            broker.at.join("mosquitto.conf"),
            format!(
                "listener {port} {host}\ncafile {at}/ca.pem\ncertfile {at}/server.pem\n\
                 keyfile {at}/server.key\ntls_version tlsv1.3\nrequire_certificate true\n\
                 use_identity_as_username true\nuse_username_as_clientid true\n\
                 allow_anonymous false\nacl_file {at}/acl\npersistence true\n\
                 persistence_location {at}/data/\nmax_queued_messages 0\n\
                 log_dest file {at}/log\nuser root\n"
            ),
        )
        .unwrap();
        broker.up();
        broker
    }

    /// Without TLS and for anybody: for what is about numbers.
    pub fn open(at: &Path) -> Self {
        let at = at.join("broker");
        fs::create_dir_all(&at).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let conf = format!("listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n");
        fs::write(at.join("mosquitto.conf"), conf).unwrap();
        let host = "127.0.0.1".to_owned();
        let mut broker = Self { at, port, host, child: None, ca: issuer() };
        broker.up();
        broker
    }

    /// Starts it, and waits until it listens.
    pub fn up(&mut self) {
        fs::create_dir_all(self.at.join("data")).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let child = Command::new("mosquitto")
            .env("PATH", format!("{path}:/usr/sbin"))
            .args(["-c", self.at.join("mosquitto.conf").to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("mosquitto is installed");
        self.child = Some(child);
        for _ in 0..500 {
            if std::net::TcpStream::connect((self.host.as_str(), self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("mosquitto does not listen: {:?}", fs::read_to_string(self.at.join("log")));
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Everything that it kept is gone.
    pub fn wipe(&self) {
        let _ = fs::remove_dir_all(self.at.join("data"));
    }

    /// A certificate of this name: its files.
    pub fn certificate(&self, name: &str) -> TlsFiles {
        let key = TlsKey::generate().unwrap();
        let names = vec!["localhost".to_owned(), self.host.clone()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let signed = params.signed_by(&key, &self.ca).unwrap();
        let file = |ending: &str| self.at.join(format!("{name}.{ending}"));
        fs::write(file("pem"), signed.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        TlsFiles { ca: self.at.join("ca.pem"), certificate: file("pem"), key: file("key") }
    }

    /// The files of a certificate that was made.
    pub fn files(&self, name: &str) -> TlsFiles {
        let file = |ending: &str| self.at.join(format!("{name}.{ending}"));
        TlsFiles { ca: self.at.join("ca.pem"), certificate: file("pem"), key: file("key") }
    }

    pub fn address(&self, name: &str) -> Broker {
        let url = format!("mqtts://{}:{}", self.host, self.port);
        Broker::parse(&url, Some(self.certificate(name))).unwrap()
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Keys of an operator, by their roles.
pub fn key(role: KeyRole) -> KeyPair {
    KeyPair::from_seed(&[role as u8 + 1; 32])
}

/// A home that trusts them.
pub fn home(at: &Path) -> Home {
    fs::create_dir_all(at).unwrap();
    let home = Home::at(at);
    let mut trust = TrustStore::open(&home).unwrap();
    for role in KeyRole::ALL {
        trust
            .add(TrustedKey {
                public: key(role).public(),
                name: role.name().to_owned(),
                roles: [role].into(),
                added: Wall(1),
                expires: None,
                revoked: None,
            })
            .unwrap();
    }
    home
}

pub fn store(home: &Home, clock: &Arc<dyn Clock>) -> Arc<Store> {
    let keys = HomeKeys::open(home, &mut SystemRandom, clock.wall()).unwrap();
    let parts = Parts {
        clock: clock.clone(),
        keys: Arc::new(keys),
        random: Box::new(SystemRandom),
        patience: PATIENCE,
    };
    Arc::new(Store::open(home.data(), parts).unwrap())
}

/// Jobs of a device.
pub fn jobs(at: &Path, name: &str, boot: &str, executor: Arc<dyn Executor>) -> Arc<Jobs> {
    jobs_with(at, name, boot, executor, |_| ())
}

pub fn jobs_with(
    at: &Path,
    name: &str,
    boot: &str,
    executor: Arc<dyn Executor>,
    change: impl FnOnce(&mut Settings),
) -> Arc<Jobs> {
    let home = home(at);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let store = store(&home, &clock);
    let mut settings = Settings::new(Topics::new(ROOT, name).unwrap(), boot.to_owned());
    change(&mut settings);
    let parts = JobParts {
        store,
        clock,
        executor,
        trust: Box::new(HomeTrust(home)),
        random: Box::new(SystemRandom),
    };
    Arc::new(Jobs::open(settings, parts).unwrap())
}

pub fn fleet(jobs: &Arc<Jobs>, broker: Broker) -> Fleet {
    let mut settings = FleetSettings::new(broker);
    settings.backoff = (Duration::from_millis(200), Duration::from_secs(2));
    Fleet::start(settings, jobs.clone(), Arc::new(Plain), Box::new(SystemRandom)).unwrap()
}

/// An operator who counts.
pub struct Desk {
    pub operator: Operator,
    seq: AtomicU64,
    pub heard: Vec<Heard>,
}

impl Desk {
    pub fn new(broker: &Mosquitto, listen: &[&str]) -> Self {
        let clock = Arc::new(SystemClock::start());
        let address = broker.address("operator");
        let mut operator = Operator::connect(&address, ROOT, "operator", None, clock).unwrap();
        operator.subscribe(listen).unwrap();
        Self { operator, seq: AtomicU64::new(1), heard: Vec::new() }
    }

    pub fn document(&self, device: &str, id: &str, kind: &str, params: &Value) -> Document {
        document(device, id, kind, params, self.seq.fetch_add(1, Ordering::SeqCst))
    }

    pub fn submit(&mut self, document: &Document) {
        self.operator.submit(document, &key(document.kind.role())).unwrap();
    }

    /// Listens until what was heard is enough.
    pub fn until(&mut self, most: Duration, mut enough: impl FnMut(&[Heard]) -> bool) -> bool {
        let clock = SystemClock::start();
        while !enough(&self.heard) {
            if clock.mono().0 >= most {
                return false;
            }
            let heard = self.operator.hear(Duration::from_millis(200)).unwrap();
            self.heard.extend(heard);
        }
        true
    }

    /// States of a job as they were heard, by their versions, each once.
    pub fn states(&self, id: &str) -> Vec<State> {
        let mut all: Vec<(u64, State)> = self
            .heard
            .iter()
            .filter_map(|heard| match heard {
                Heard::State { state, .. } if state.id == id => Some((state.version, state.state)),
                _ => None,
            })
            .collect();
        all.sort_by_key(|(version, _)| *version);
        all.dedup();
        all.into_iter().map(|(_, state)| state).collect()
    }

    pub fn ended(&self, id: &str) -> bool {
        self.states(id).last().is_some_and(|state| state.is_end())
    }
}

pub fn document(device: &str, id: &str, kind: &str, params: &Value, seq: u64) -> Document {
    let now = SystemClock::start().wall().0 * 1000;
    let mut value = json!({
        "schema": "mien.job/1", "id": id, "kind": kind, "issuer": "operator",
        "issued_at": now - 1000, "expires_at": now + 600_000, "audience": device, "seq": seq,
        "params": params, "timeout_s": 300,
    });
    if kind.starts_with("device.") {
        value["expect"] = json!({ "boot_id": "boot-1" });
    }
    Document::parse(&serde_json::to_vec(&value).unwrap()).unwrap_or_else(|r| panic!("{kind}: {r}"))
}

/// Parameters of a kind, as an example of the contract has them.
pub fn example(kind: &str) -> Value {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = here.ancestors().map(|at| at.join("contract/examples")).find(|at| at.is_dir());
    let path = path.expect("the contract stands at the root of the repository");
    let text = fs::read_to_string(path.join(format!("{kind}.json"))).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["params"].clone()
}
