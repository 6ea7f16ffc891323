//! What only a running daemon can do for a job: its configuration, its log, its figures.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mien_daemon::config::{Level, Pipeline};
use mien_daemon::contract::{Document, Kind, Reason, Refusal};
use mien_daemon::fleet::{Change, Device};
use mien_daemon::jobs::{Executor, JobControl, Outcome};
use mien_daemon::store::{JobRow, Store};
use mien_daemon::telemetry::Log;
use mien_vault::SourceStore as _;
use serde_json::{Map, Value, json};

use super::rules::{self, Rule};
use super::{Done, fault, unavailable};

/// How often a job that waits looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// The daemon, seen from a job of it.
#[derive(Debug)]
pub(crate) struct House {
    change: Change,
    log: Log,
    store: Arc<Store>,
}

fn text<'a>(document: &'a Document, key: &str) -> &'a str {
    document.params.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn level(word: &str) -> Option<Level> {
    Some(match word {
        "error" => Level::Error,
        "warn" => Level::Warn,
        "info" => Level::Info,
        "debug" => Level::Debug,
        _ => return None,
    })
}

impl House {
    /// Of the daemon with this configuration file and home.
    pub(crate) fn new(path: &Path, home: &Path, log: &Log, store: &Arc<Store>) -> Arc<Self> {
        let (change, log, store) = (Change::new(path, home), log.clone(), store.clone());
        Arc::new(Self { change, log, store })
    }

    /// The pipeline of a job, and what is asked of it that can't be.
    fn pipeline(&self, document: &Document) -> Result<Pipeline, Refusal> {
        let name = text(document, "pipeline");
        let pipelines = self.change.config()?.pipelines;
        let pipeline = pipelines.into_iter().find(|pipeline| pipeline.name == name);
        let pipeline = pipeline.ok_or_else(|| invalid("/params/pipeline", "is not configured"))?;
        let camera = text(document, "camera");
        if !camera.is_empty() && camera != pipeline.camera {
            let detail = format!("the pipeline has camera `{}`", pipeline.camera);
            return Err(invalid("/params/camera", detail));
        }
        if document.params.contains_key("deadline_ms") {
            let detail = "this device takes each frame as soon as it can";
            return Err(Refusal::at(Reason::Unavailable, "/params/deadline_ms", detail));
        }
        rules::admit(&rules_of(document)?)?;
        Ok(pipeline)
    }

    /// Starts, stops or changes a pipeline, until the configuration is read again.
    fn steer(&self, document: &Document) -> Done {
        let pipeline = self.pipeline(document)?;
        let mut asked = json!({ "name": pipeline.name });
        match document.kind {
            Kind::PipelineStart => asked["run"] = json!(true),
            Kind::PipelineStop => asked["run"] = json!(false),
            _ => {}
        }
        let rules = rules_of(document)?;
        if !rules.is_empty() {
            let enrolled = self.store.list().map_err(|error| fault(&error.into()))?;
            let recipe = rules::recipe(&rules, &enrolled)?;
            asked["recipe"] = serde_json::to_value(recipe).unwrap_or_default();
        }
        self.change.ask("steer", json!({ "pipeline": asked }))
    }

    /// What a camera delivers, as the pipeline that reads it knows.
    fn probe(&self, document: &Document) -> Done {
        let camera = text(document, "camera");
        let config = self.change.config()?;
        let readers: Vec<&str> = config
            .pipelines
            .iter()
            .filter(|pipeline| pipeline.camera == camera)
            .map(|pipeline| pipeline.name.as_str())
            .collect();
        let status = self.change.ask("status", Value::Null)?;
        let all = status["pipelines"].as_array();
        let reads = |pipeline: &&Value| {
            pipeline["name"].as_str().is_some_and(|name| readers.contains(&name))
                && !pipeline["delivers"].is_null()
        };
        let pipeline = all.into_iter().flatten().find(reads).ok_or_else(|| {
            Refusal::at(Reason::NoCamera, "/params/camera", "no running pipeline gets frames of it")
        })?;
        Ok(json!({
            "camera": camera, "pipeline": pipeline["name"], "delivers": pipeline["delivers"],
            "fps": pipeline["fps"],
        }))
    }

    /// Logs from this level on for a time, then as the configuration says.
    fn log_level(&self, document: &Document, control: &JobControl) -> Done {
        let wanted = level(text(document, "filter")).unwrap_or(Level::Info);
        let seconds = document.params.get("for_s").and_then(Value::as_u64).unwrap_or(1);
        self.log.set(self.change.config()?.telemetry.log, wanted);
        control.progress("logging", None);
        let mut left = Duration::from_secs(seconds);
        while !left.is_zero() && control.stop().is_none() {
            let step = left.min(LOOK);
            std::thread::sleep(step);
            left -= step;
        }
        let telemetry = self.change.config()?.telemetry;
        self.log.set(telemetry.log, telemetry.level);
        if control.stop().is_some() {
            return Err(Refusal::new(Reason::Cancelled, "ended early; the log is as it was"));
        }
        Ok(json!({ "filter": text(document, "filter"), "for_s": seconds }))
    }

    /// How everything stands, without a name or a face.
    fn bundle(&self, control: &JobControl) -> Done {
        control.progress("asking", None);
        let status = self.change.ask("status", Value::Null)?;
        Ok(json!({ "bundle": { "status": status, "program": env!("CARGO_PKG_VERSION") } }))
    }

    /// The figures of `mien bench` on this machine.
    fn benchmark(&self, document: &Document, control: &JobControl) -> Done {
        let failed = |error: std::io::Error| Refusal::new(Reason::Internal, error.to_string());
        let rounds = document.params.get("frames").and_then(Value::as_u64).unwrap_or(5);
        let program = std::env::current_exe().map_err(failed)?;
        control.progress("measuring", None);
        let mut child = Command::new(program)
            .args(["bench", "--json", "--quiet", "--sizes", "480p", "--rounds"])
            .arg(rounds.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        // More than a pipe holds would stop it: it is read while it runs.
        let mut out =
            child.stdout.take().ok_or_else(|| failed(std::io::ErrorKind::Other.into()))?;
        let reader = std::thread::Builder::new().name("figures".to_owned()).spawn(move || {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut out, &mut text).map(|_| text)
        });
        let reader = reader.map_err(failed)?;
        let status = loop {
            if control.stop().is_some() {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Refusal::new(Reason::Cancelled, "ended early"));
            }
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None => std::thread::sleep(LOOK),
            }
        };
        let text = reader.join().ok().and_then(Result::ok).unwrap_or_default();
        if !status.success() {
            let detail = "the measurement failed; `mien bench` at the machine says why";
            return Err(Refusal::new(Reason::Unavailable, detail));
        }
        let figures: Value = serde_json::from_str(&text)
            .map_err(|error| Refusal::new(Reason::Internal, error.to_string()))?;
        Ok(json!({ "figures": figures }))
    }
}

fn invalid(at: &str, detail: impl Into<String>) -> Refusal {
    Refusal::at(Reason::InvalidRequest, at, detail)
}

fn rules_of(document: &Document) -> Result<Vec<Rule>, Refusal> {
    let rules = document.params.get("rules").cloned().unwrap_or_else(|| json!([]));
    serde_json::from_value(rules).map_err(|error| invalid("/params/rules", error.to_string()))
}

impl Executor for House {
    fn admit(&self, document: &Document) -> Result<(), Refusal> {
        match document.kind {
            Kind::PipelineStart | Kind::PipelineStop | Kind::PipelineUpdate => {
                self.pipeline(document).map(drop)
            }
            Kind::CameraProbe => {
                let known = |name| self.change.config().map(|config| config.camera(name).is_some());
                match known(text(document, "camera"))? {
                    true => Ok(()),
                    false => Err(invalid("/params/camera", "is not configured")),
                }
            }
            Kind::ProfileActivate => {
                let name = text(document, "profile");
                let profiles = self.change.config()?.profiles;
                match profiles.iter().any(|profile| profile.name == name) {
                    true => Ok(()),
                    false => Err(invalid("/params/profile", "is not configured")),
                }
            }
            Kind::ConfigUpdate => self.change.check(text(document, "config")),
            Kind::LogLevel if level(text(document, "filter")).is_none() => Err(Refusal::at(
                Reason::InvalidRequest,
                "/params/filter",
                "must be error, warn, info or debug",
            )),
            Kind::LogLevel | Kind::DiagBundle | Kind::BenchmarkRun => Ok(()),
            other => Err(unavailable(other)),
        }
    }

    fn run(&self, job: &JobRow, control: &JobControl) -> Outcome {
        let document = &job.document;
        let done = match document.kind {
            Kind::ConfigUpdate => {
                control.progress("applying", None);
                self.change.apply(text(document, "config"), &|| control.stop().is_some())
            }
            Kind::PipelineStart | Kind::PipelineStop | Kind::PipelineUpdate => self.steer(document),
            Kind::ProfileActivate => {
                let name = text(document, "profile");
                self.change.ask("steer", json!({ "profile": { "name": name } }))
            }
            Kind::CameraProbe => self.probe(document),
            Kind::LogLevel => self.log_level(document, control),
            Kind::DiagBundle => self.bundle(control),
            Kind::BenchmarkRun => self.benchmark(document, control),
            other => Err(unavailable(other)),
        };
        match done {
            Ok(result) => Outcome::Done(result),
            Err(refusal) if refusal.reason == Reason::Cancelled => Outcome::Stopped,
            Err(refusal) => Outcome::Failed(refusal),
        }
    }
}

impl Device for House {
    fn facts(&self) -> Map<String, Value> {
        let Ok(config) = self.change.config() else { return Map::new() };
        let cameras: Vec<&str> = config.cameras.iter().map(|c| c.name.as_str()).collect();
        let pipelines: Vec<&str> = config.pipelines.iter().map(|p| p.name.as_str()).collect();
        let profiles: Vec<&str> = config.profiles.iter().map(|p| p.name.as_str()).collect();
        let facts = json!({
            "name": config.device.name, "cameras": cameras, "pipelines": pipelines,
            "profiles": profiles, "config": config.digest,
            "hw": { "arch": std::env::consts::ARCH, "cores": cores() },
        });
        match facts {
            Value::Object(facts) => facts,
            _ => Map::new(),
        }
    }

    fn health(&self) -> Option<Value> {
        let status = self.change.ask("status", Value::Null).ok()?;
        let of = |pipeline: &Value| {
            let lags = pipeline["stats"]["lags"].as_array();
            let whole = lags.and_then(|lags| lags.last()).and_then(|lag| lag["p95"].as_f64());
            let figures = json!({
                "state": pipeline["state"], "fps": pipeline["fps"],
                "faces": pipeline["stats"]["faces"],
                "latency_ms": whole.map(|micros| micros / 1000.0),
            });
            (pipeline["name"].as_str().unwrap_or_default().to_owned(), figures)
        };
        let pipelines: Map<String, Value> =
            status["pipelines"].as_array().into_iter().flatten().map(of).collect();
        let zones = status["machine"]["temperatures"].as_array();
        let hottest = zones.into_iter().flatten().filter_map(|zone| zone[1].as_f64());
        Some(json!({
            "schema": "mien.health/1",
            "healthy": status["health"]["healthy"],
            "reasons": status["health"]["reasons"].as_array().map_or(0, Vec::len),
            "uptime_s": status["uptime_s"],
            "memory_kib": status["machine"]["rss_kib"],
            "temperature": hottest.fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b)))),
            "jobs_open": status["parts"]["jobs"]["open"],
            "pipelines": pipelines,
        }))
    }

    fn desire(&self, desired: &Map<String, Value>) -> Result<Value, Refusal> {
        self.change.desire(desired)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
