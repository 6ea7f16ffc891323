//! What devices and brokers tell: watched, compared, probed.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock as _, Mono, SystemClock};
use mien_daemon::contract::{JobState, State};
use mien_daemon::fleet::TWIN_TYPE;
use mien_daemon::fleet::operator::Heard;
use mien_daemon::fleet::probe::{Probe, Row};
use mien_daemon::mqtt::packet::Properties;
use mien_vault::sign::Envelope;
use serde_json::{Value, json};

use super::link::{Link, Signer, failed, lost, tell, usage};
use crate::cmd::error::{Error, Result};
use crate::cmd::fleet_args::{Reach, TwinArgs, WatchArgs};
use crate::cmd::{desk, job, out};

#[derive(Default)]
struct Seen {
    status: String,
    open: BTreeMap<String, JobState>,
    ended: u64,
    failed: u64,
}

pub(super) fn watch(args: &WatchArgs) -> Result<()> {
    let of = args.device.as_deref().unwrap_or("+");
    let topics = [format!("{of}/status"), format!("{of}/job/+/state"), format!("{of}/alarm/+")];
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let mut link = Link::open(&args.reach, &topics)?;
    let mut all: BTreeMap<String, Seen> = BTreeMap::new();
    let live = !args.reach.json && std::io::stdout().is_terminal();
    let until = args.seconds.map(Duration::from_secs);
    let mut drawn = Mono(Duration::ZERO);
    loop {
        let heard = match link.hear() {
            Err(Error::Cancelled) => return Ok(()),
            heard => heard?,
        };
        for heard in heard {
            match heard {
                Heard::State { device, state, retained } => {
                    if !live && !retained {
                        tell(&device, &state, args.reach.json)?;
                    }
                    let seen = all.entry(device).or_default();
                    if !state.state.is_end() {
                        seen.open.insert(state.id.clone(), *state);
                    } else if seen.open.remove(&state.id).is_some() || !retained {
                        seen.ended += 1;
                        seen.failed += u64::from(state.state != State::Succeeded);
                    }
                }
                Heard::Told { device, what, payload, .. } => {
                    let told: Value = serde_json::from_slice(&payload).unwrap_or_default();
                    if what == "status" {
                        let status = told["state"].as_str().unwrap_or("?").to_owned();
                        all.entry(device.clone()).or_default().status = status;
                    }
                    if args.reach.json {
                        let line = json!({ "device": device, "topic": what, "told": told });
                        out::line(&line.to_string())?;
                    } else if !live {
                        let word = told["state"].as_str().or(told["detail"].as_str());
                        out::line(&format!("{device}  {what}  {}", word.unwrap_or("")))?;
                    }
                }
                Heard::Gone { .. } | Heard::Other(_) => {}
            }
        }
        let now = link.clock.mono();
        if live && now.since(drawn) >= Duration::from_millis(500) {
            drawn = now;
            out::bytes(b"\x1b[H\x1b[2J")?;
            out::line(&drawing(&all))?;
        }
        if until.is_some_and(|until| now.0 >= until) {
            return Ok(());
        }
    }
}

fn drawing(all: &BTreeMap<String, Seen>) -> String {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|(device, seen)| {
            let now = seen.open.values().find(|job| job.state == State::Running);
            vec![
                device.clone(),
                seen.status.clone(),
                seen.open.len().to_string(),
                seen.ended.to_string(),
                seen.failed.to_string(),
                now.map_or_else(String::new, job::words),
            ]
        })
        .collect();
    out::table(&["device", "status", "open", "ended", "failed", "now"], &rows)
}

pub(super) fn twin(args: &TwinArgs) -> Result<()> {
    let (desired, reported) =
        (format!("{}/twin/desired", args.device), format!("{}/twin/reported", args.device));
    let mut link = Link::open(&args.reach, &[&desired, &reported])?;
    if args.what == "set" {
        let signer = args.signer.as_ref().ok_or_else(|| usage("--as", "names the signing key"))?;
        let file = args.file.as_ref().ok_or_else(|| usage("FILE", "holds the desired state"))?;
        let version = args.version.ok_or_else(|| usage("--version", "must be given"))?;
        let text = desk::read_text("Can't read the desired state", file)?;
        let wanted: Value = serde_json::from_str(&text).map_err(|error| usage("FILE", error))?;
        let body = json!({ "version": version, "audience": args.device, "desired": wanted });
        let payload = serde_json::to_vec(&body).expect("a value is JSON");
        let mut envelope = Envelope::new(TWIN_TYPE, payload);
        envelope.sign(&Signer::open(signer)?.key);
        let message = mien_daemon::mqtt::packet::Message {
            topic: format!("{}/{desired}", args.reach.root),
            payload: envelope.to_json(),
            qos1: true,
            retain: true,
            properties: Properties::default(),
            ..Default::default()
        };
        link.operator.send(message).map_err(lost(&args.reach.broker))?;
    }
    let mut told: BTreeMap<String, Value> = BTreeMap::new();
    let patience = Duration::from_secs(if args.what == "set" { 30 } else { 2 });
    while link.clock.mono().0 < patience {
        for heard in link.hear()? {
            let Heard::Told { what, payload, retained, .. } = heard else { continue };
            let value = match Envelope::parse(&payload) {
                Ok(envelope) => serde_json::from_slice(envelope.payload()).unwrap_or_default(),
                Err(_) => serde_json::from_slice(&payload).unwrap_or_default(),
            };
            let answered = args.what == "set" && what == "twin/reported" && !retained;
            told.insert(what, value);
            if answered {
                let reported = &told["twin/reported"];
                out::json(reported)?;
                return match reported.get("refused") {
                    None => Ok(()),
                    Some(why) => {
                        let words = |key: &str| why[key].as_str().unwrap_or_default().to_owned();
                        let (reason, detail) = (words("reason"), words("detail"));
                        Err(failed(format!("{} refuses it: {reason}: {detail}", args.device)))
                    }
                };
            }
        }
    }
    if args.what == "set" {
        return Err(failed(format!("{} does not answer", args.device)));
    }
    if args.what == "diff" {
        let of = |what: &str, key: &str| told.get(what).and_then(|told| told.get(key)).cloned();
        let (wanted, holds) = (of("twin/desired", "version"), of("twin/reported", "version"));
        let refused = of("twin/reported", "refused");
        let same = wanted == holds && refused.is_none();
        let held = json!({ "desired": wanted, "reported": holds, "refused": refused });
        out::json(&held)?;
        return if same { Ok(()) } else { Err(failed("they differ".to_owned())) };
    }
    out::json(&told)
}

/// Asks a broker what it really does.
pub(super) fn probe(reach: &Reach) -> Result<()> {
    let (broker, clock) = (reach.broker()?, Arc::new(SystemClock::start()));
    let name = format!("{}/probe/{}", reach.root, job::random_id("p")?);
    let probe = Probe::new(&broker, &name, clock)?;
    let word = |row: &Row| match row.as_counted_on {
        Some(true) => "as counted on",
        Some(false) => "OTHERWISE",
        None => "not answered",
    };
    let mut said = Ok(());
    let rows = probe.run(|row| {
        if said.is_ok() && !reach.json {
            let text = format!("{:2}  {:14} {}: {}", row.n, word(row), row.question, row.found);
            said = out::line(&text);
        }
    });
    said?;
    if reach.json {
        out::json(&rows)?;
    }
    let other = rows.iter().filter(|row| row.as_counted_on != Some(true)).count();
    if other == 0 {
        return Ok(());
    }
    Err(failed(format!("{other} rows are not what the contract counts on")))
}
