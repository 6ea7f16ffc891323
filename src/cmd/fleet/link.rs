//! A connection of an operator, the keys he signs with, and the documents he sends.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock};
use mien_base::error::ErrorKind;
use mien_base::report::Failure;
use mien_daemon::contract::{Document, JOB, JobState, Refusal};
use mien_daemon::fleet::operator::{Heard, Operator};
use mien_daemon::mqtt::{Broker, Gone, TlsFiles};
use mien_vault::sign::KeyPair;
use mien_vault::{Home, keyring};
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde_json::{Value, json};

use crate::cmd::error::{Error, Result};
use crate::cmd::fleet_args::{Ordered, Reach};
use crate::cmd::{desk, job, out};

/// How often is looked at what is due.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn usage(option: &str, why: impl std::fmt::Display) -> Error {
    Error::Usage(format!("{option}: {why}"))
}

pub(super) fn lost(broker: &str) -> impl Fn(Gone) -> Error {
    let url = broker.to_owned();
    move |gone| mien_daemon::Error::BrokerGone { url: url.clone(), why: gone.to_string() }.into()
}

impl Reach {
    /// The broker that is meant.
    pub(super) fn broker(&self) -> Result<Broker> {
        let tls = match (&self.ca, &self.certificate, &self.tls_key) {
            (Some(ca), Some(certificate), Some(key)) => {
                let (ca, certificate, key) = (ca.clone(), certificate.clone(), key.clone());
                Some(TlsFiles { ca, certificate, key })
            }
            (None, None, None) => None,
            _ => return Err(usage("--ca", "give --ca, --certificate and --tls-key together")),
        };
        Ok(Broker::parse(&self.broker, tls)?)
    }
}

/// A connection, and what it is called in errors.
pub(super) struct Link {
    pub(super) operator: Operator,
    url: String,
    pub(super) clock: Arc<SystemClock>,
    stop: Arc<AtomicBool>,
}

impl Link {
    pub(super) fn open(reach: &Reach, listen: &[&str]) -> Result<Self> {
        let broker = reach.broker()?;
        let clock = Arc::new(SystemClock::start());
        let operator = Operator::connect(&broker, &reach.root, &reach.client, None, clock.clone())?;
        let stop = Arc::new(AtomicBool::new(false));
        desk::stop_on_signal(&stop)?;
        let mut link = Self { operator, url: reach.broker.clone(), clock, stop };
        if !listen.is_empty() {
            link.operator.subscribe(listen).map_err(lost(&link.url))?;
        }
        Ok(link)
    }

    pub(super) fn hear(&mut self) -> Result<Vec<Heard>> {
        if self.stop.load(Ordering::SeqCst) {
            return Err(Error::Cancelled);
        }
        let heard = self.operator.hear(LOOK).map_err(lost(&self.url))?;
        for (topic, code) in self.operator.refused() {
            out::note(&format!("the broker refused `{topic}` (code {code:#04x})"));
        }
        Ok(heard)
    }

    /// Sends a job that its device answers under `reply/NAME`.
    pub(super) fn order(&mut self, document: &Document, key: &KeyPair, reply: &str) -> Result<()> {
        self.operator.order(document, key, Some(reply)).map_err(lost(&self.url))
    }

    /// Waits until the broker has everything.
    pub(super) fn finish(self) -> Result<()> {
        self.operator.finish().map_err(lost(&self.url))
    }

    pub(super) fn send(&mut self, document: &Document, key: &KeyPair) -> Result<()> {
        self.operator.submit(document, key).map_err(lost(&self.url))
    }
}

/// A signing key with its counter, which only rises, whoever uses it.
pub(super) struct Signer {
    pub(super) key: KeyPair,
    path: std::path::PathBuf,
}

impl Signer {
    pub(super) fn open(name: &str) -> Result<Self> {
        let home = Home::from_env()?;
        let key = keyring::signing(&home, name)?;
        Ok(Self { key, path: home.keys().join(format!("{name}.count")) })
    }

    /// Takes the next so many numbers; the first of them.
    pub(super) fn take(&self, count: u64) -> Result<u64> {
        let failed =
            |source| Error::File { what: "Can't count in", path: self.path.clone(), source };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&self.path, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| failed(errno.into()))?;
        rustix::fs::flock(&fd, FlockOperation::LockExclusive)
            .map_err(|errno| failed(errno.into()))?;
        let text = fs::read_to_string(&self.path).map_err(failed)?;
        let last: u64 = match text.trim() {
            "" => 0,
            text => text.parse().map_err(|error| failed(std::io::Error::other(error)))?,
        };
        let mut file = fs::File::from(fd);
        file.write_all(format!("{:020}\n", last + count).as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        Ok(last + 1)
    }
}

pub(super) fn table(text: &str) -> Result<Value> {
    let text = match text.strip_prefix('@') {
        Some(file) => desk::read_text("Can't read the parameters", Path::new(file))?,
        None => text.to_owned(),
    };
    serde_json::from_str(&text).map_err(|error| usage("--params", error))
}

/// The document of a job, as its device would check it.
pub(super) fn document(
    job: &Ordered,
    to: &str,
    id: &str,
    params: &Value,
    seq: u64,
) -> Result<Document> {
    let now = SystemClock::start().wall().0.saturating_mul(1000);
    let mut value = json!({
        "schema": JOB, "id": id, "kind": job.kind, "issuer": job.signer, "issued_at": now,
        "expires_at": now + job.expires.saturating_mul(1000), "qos": job.qos,
        "priority": job.priority, "params": params, "audience": to, "seq": seq,
    });
    if let Some(seconds) = job.timeout {
        value["timeout_s"] = json!(seconds);
    }
    if let Some(boot) = &job.boot {
        value["expect"] = json!({ "boot_id": boot });
    }
    let bytes = serde_json::to_vec(&value).expect("a value is JSON");
    Document::parse(&bytes).map_err(|refusal: Refusal| Error::Usage(refusal.to_string()))
}

pub(super) fn tell(device: &str, state: &JobState, as_json: bool) -> Result<()> {
    if as_json {
        return out::line(&json!({ "device": device, "job": state }).to_string());
    }
    out::line(&format!("{device}  {}", job::words(state)))
}

pub(super) fn failed(message: String) -> Error {
    Error::Failed(Failure { kind: ErrorKind::Internal, message })
}
