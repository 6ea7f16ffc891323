//! The main loop.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use mien_base::clock::{Clock, Mono, Wall};
use serde_json::{Value, json};

use super::control::{Board, Control, Desk, Order};
use super::lines::Running;
use super::{Handler, Lines, Lock, Part, Status, wanted};
use crate::audit::{Entry, Kind};
use crate::config::Config;
use crate::live::State;
use crate::store::Store;
use crate::telemetry::{self, Facts, Health, Log, Metrics, Notify, Pulse};
use crate::{Error, Result};
use mien_base::error::chain;

/// How often signals are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often the pipelines are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long until what failed is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// Least time between two rows about one pipeline's faults.
const TOLD: Duration = Duration::from_secs(60);

/// What a service is made of.
pub struct Parts {
    /// Folder of the lock, and of the socket unless the configuration names another.
    pub home: PathBuf,
    pub lock: Lock,
    pub store: Arc<Store>,
    pub clock: Arc<dyn Clock>,
    pub log: Log,
    pub notify: Notify,
    pub lines: Box<dyn Lines>,
    pub parts: Vec<Box<dyn Part>>,
    pub handlers: BTreeMap<&'static str, Arc<dyn Handler>>,
    /// Set by SIGTERM and SIGINT.
    pub stop: Arc<AtomicBool>,
    /// Set by SIGHUP.
    pub reload: Arc<AtomicBool>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("home", &self.home).finish_non_exhaustive()
    }
}

/// The running daemon.
pub struct Service {
    pub(super) config: Config,
    pub(super) own: Parts,
    pub(super) running: Running,
    pub(super) control: Option<Control>,
    pub(super) metrics: Option<Metrics>,
    board: Arc<Board>,
    orders: Receiver<Order>,
    send: SyncSender<Order>,
    handlers: Arc<BTreeMap<&'static str, Arc<dyn Handler>>>,
    pulse: Pulse,
    start: (Mono, Wall),
    pub(super) reloads: u64,
    profile: Option<String>,
    tried: Mono,
    line: String,
    /// State of each pipeline as it was recorded, and when.
    told: BTreeMap<String, (State, Mono)>,
    /// Workers that each pipeline had lost when it was recorded, and when.
    lost: BTreeMap<String, (u32, Mono)>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Service {
    /// Starts everything that the configuration asks for. A pipeline that can't be started keeps
    /// none of the others from running: it is told by the health, and tried again.
    ///
    /// # Errors
    /// When the record can't be written, or the socket can't be listened on.
    pub fn start(config: Config, mut own: Parts) -> Result<Self> {
        let (send, orders) = sync_channel(8);
        let now = own.clock.mono();
        let start = (now, own.clock.wall());
        let handlers = Arc::new(std::mem::take(&mut own.handlers));
        let mut service = Self {
            config,
            own,
            running: Running::default(),
            control: None,
            metrics: None,
            board: Arc::default(),
            orders,
            send,
            handlers,
            pulse: Pulse::default(),
            start,
            reloads: 0,
            profile: None,
            tried: now,
            line: String::new(),
            told: BTreeMap::new(),
            lost: BTreeMap::new(),
        };
        let names: Vec<&str> = service.config.pipelines.iter().map(|p| p.name.as_str()).collect();
        service.record(
            Kind::Start,
            json!({
                "version": env!("CARGO_PKG_VERSION"),
                "config": service.config.digest,
                "pipelines": names,
            }),
        )?;
        service.metrics = service.config.telemetry.metrics.map(Metrics::start).transpose()?;
        service.control = Some(service.listen(&service.config)?);
        service.settle();
        service.look();
        let socket = service.control.as_ref().map(|c| c.path().display().to_string());
        let (pipelines, socket) = (service.running.set().len(), socket.unwrap_or_default());
        service.own.log.info("running", &[("pipelines", &pipelines), ("control", &socket)]);
        service.own.notify.ready(&service.line);
        Ok(service)
    }

    /// Runs until it is told to stop, then ends everything in order.
    ///
    /// # Errors
    /// When the end can't be recorded.
    pub fn run(mut self) -> Result<()> {
        let look = self.own.notify.period().map_or(LOOK, |period| period.min(LOOK));
        let mut looked = self.own.clock.mono();
        while !self.own.stop.load(Ordering::Relaxed) {
            let (done, answer) = match self.orders.recv_timeout(TICK) {
                Ok(Order::Reload { by, answer }) => (Some(self.reload(Some(by))), Some(answer)),
                Ok(Order::Steer { by, steer, answer }) => {
                    (Some(self.steer(&steer, by)), Some(answer))
                }
                Err(_) => (None, None),
            };
            if let (Some(done), Some(answer)) = (done, answer) {
                // Who asked may have gone.
                let _ = answer.try_send(done);
            }
            if self.own.reload.swap(false, Ordering::Relaxed) {
                self.reload(None);
            }
            let now = self.own.clock.mono();
            if now.since(looked) >= look {
                looked = now;
                self.turn(now);
            }
        }
        self.end()
    }

    /// What is done about once a second.
    pub(super) fn turn(&mut self, now: Mono) {
        let profile = self.config.profile_at(self.own.clock.wall()).map(|p| p.name.clone());
        let failed = !self.running.failed.is_empty() && now.since(self.tried) >= AGAIN;
        if profile != self.profile || failed {
            self.settle();
        }
        self.running.tend();
        self.look();
    }

    /// Makes what runs what the configuration wants at this time.
    fn settle(&mut self) {
        let wall = self.own.clock.wall();
        let profile = self.config.profile_at(wall).map(|profile| profile.name.clone());
        let wanted = wanted::at(&self.config, wall);
        let known = self.running.failed.clone();
        let done = self.running.settle(&wanted, self.own.lines.as_ref());
        self.tried = self.own.clock.mono();
        for (name, why) in self.running.failed.iter().filter(|(name, _)| !known.contains_key(*name))
        {
            self.own.log.error("pipeline can't be started", &[("pipeline", name), ("why", why)]);
            self.aside(
                Kind::Fault,
                json!({ "what": "pipeline can't be started", "pipeline": name }),
            );
        }
        if profile != self.profile {
            let shown = profile.clone().unwrap_or_else(|| "none".to_owned());
            self.own.log.info("profile", &[("profile", &shown), ("changes", &done.len())]);
            self.aside(Kind::Config, json!({ "profile": profile }));
            self.profile = profile;
        }
    }

    /// Looks at everything, and tells whoever listens.
    pub(super) fn look(&mut self) {
        let now = self.own.clock.mono();
        let pipelines = self.running.statuses();
        let stalled = self.pulse.stalled(&pipelines, now, self.config.telemetry.stall);
        if stalled.is_empty() {
            self.own.notify.alive();
        }
        let kept = self.config.kept();
        let machine = telemetry::machine(&kept);
        let mut faults: Vec<String> =
            self.own.parts.iter().flat_map(|part| part.faults()).collect();
        faults.extend(
            self.running
                .failed
                .iter()
                .map(|(name, why)| format!("pipeline {name} can't be started: {why}")),
        );
        let health = telemetry::judge(&Facts {
            pipelines: &pipelines,
            stalled: &stalled,
            machine: &machine,
            faults: &faults,
        });
        for pipeline in &pipelines {
            self.transition(&pipeline.name, pipeline.state, pipeline.why.as_deref(), now);
            self.workers(&pipeline.name, pipeline.workers_lost, now);
        }
        if let Some(metrics) = &self.metrics {
            metrics.tell(telemetry::metrics_text(&pipelines, &machine, &health), health.clone());
        }
        let status = Status {
            version: env!("CARGO_PKG_VERSION"),
            device: self.config.device.name.clone(),
            since: self.start.1.to_string(),
            uptime_s: now.since(self.start.0).as_secs(),
            config: self.config.path.clone(),
            config_digest: self.config.digest.clone(),
            reloads: self.reloads,
            profile: self.profile.clone(),
            health,
            pipelines,
            machine,
            parts: self.own.parts.iter().map(|part| (part.name(), part.status())).collect(),
        };
        let line = status.line();
        if line != self.line {
            self.own.notify.status(&line);
            self.line = line;
        }
        self.tell_health(&status.health);
        self.board.show(status);
    }

    fn tell_health(&self, health: &Health) {
        for reason in &health.reasons {
            self.own.log.debug("not healthy", &[("why", reason)]);
        }
    }

    /// Records that a pipeline lost workers: most are replaced before anybody looks.
    fn workers(&mut self, name: &str, lost: u32, now: Mono) {
        let before = self.lost.get(name).copied();
        let told = before.map_or(0, |(told, _)| told).min(lost);
        if lost == told || before.is_some_and(|(_, at)| now.since(at) < TOLD) {
            return;
        }
        self.own.log.warn("worker lost", &[("pipeline", &name), ("lost", &lost)]);
        let body = json!({ "pipeline": name, "state": "worker-lost", "workers": lost - told });
        self.aside(Kind::Fault, body);
        self.lost.insert(name.to_owned(), (lost, now));
    }

    /// Logs a change of a pipeline's state, and records one for the worse.
    fn transition(&mut self, name: &str, state: State, why: Option<&str>, now: Mono) {
        let before = self.told.get(name).copied();
        if before.is_some_and(|(told, _)| told == state) {
            return;
        }
        let shown = format!("{state:?}");
        let why = why.unwrap_or("");
        self.own.log.info("pipeline", &[("pipeline", &name), ("state", &shown), ("why", &why)]);
        let worse = matches!(state, State::CameraLost | State::WorkerLost | State::Failed);
        // A camera that comes and goes does not fill the record.
        let due = before.is_none_or(|(_, at)| now.since(at) >= TOLD);
        let told = if worse && due { now } else { before.map_or(Mono(Duration::ZERO), |b| b.1) };
        if worse && due {
            let what = serde_json::to_value(state).unwrap_or(Value::Null);
            self.aside(Kind::Fault, json!({ "pipeline": name, "state": what }));
        }
        self.told.insert(name.to_owned(), (state, told));
    }

    /// Listens where a configuration says.
    pub(super) fn listen(&self, config: &Config) -> Result<Control> {
        let socket = self.socket(config);
        let desk = Desk {
            board: self.board.clone(),
            orders: self.send.clone(),
            handlers: self.handlers.clone(),
        };
        Control::start(&socket, &config.control.users, desk)
    }

    /// Where the control socket of a configuration is.
    pub(super) fn socket(&self, config: &Config) -> PathBuf {
        config.control.socket.clone().unwrap_or_else(|| self.own.home.join("control.sock"))
    }

    /// Writes a row of the record.
    pub(super) fn record(&self, kind: Kind, body: Value) -> Result<()> {
        self.own.store.append(Entry::new(kind, self.own.clock.wall(), body)).map(drop)
    }

    /// Writes a row where the work goes on without it; what can't be recorded is said.
    pub(super) fn aside(&self, kind: Kind, body: Value) {
        if let Err(error) = self.record(kind, body) {
            self.own.log.error("not recorded", &[("why", &chain(&error))]);
        }
    }

    /// The way back, a line for each step.
    fn end(mut self) -> Result<()> {
        let log = self.own.log.clone();
        self.own.notify.stopping();
        log.info("stopping", &[]);
        self.control = None;
        self.metrics = None;
        log.info("control closed", &[]);
        self.running.stop();
        log.info("pipelines stopped", &[]);
        while let Some(part) = self.own.parts.pop() {
            let name = part.name();
            part.stop();
            log.info("part stopped", &[("part", &name)]);
        }
        let uptime = self.own.clock.mono().since(self.start.0).as_secs();
        self.record(Kind::Stop, json!({ "uptime_s": uptime }))?;
        self.own.store.sign_head()?;
        log.info("stopped", &[("uptime_s", &uptime)]);
        Ok(())
    }

    /// The error of a configuration that can't be used.
    pub(super) fn unusable(faults: crate::config::Faults) -> Error {
        Error::Config(faults)
    }
}
