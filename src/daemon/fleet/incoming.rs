//! What comes from the broker: who may have sent it is never taken on trust.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use mien_vault::sign::Envelope;
use mien_vault::trust::KeyRole;
use serde_json::{Map, Value, json};

use super::Shared;
use super::announce::{birth, told};
use crate::contract::{Incoming, Kind, LARGEST, Reason, Refusal, control_schema, job_schema};
use crate::errors::Result;
use crate::jobs::{Answer, Via};
use crate::mqtt::packet::Message;

/// Payload type of a desired state's envelope.
pub const TWIN_TYPE: &str = "application/vnd.mien.twin.v1+json";
/// Under which key the versions of desired states are counted.
pub(super) const TWIN: &str = "twin/desired";
/// Longest topic that is answered to, and longest correlation that is given back, in bytes.
const RESPONSE: usize = 256;
/// Jobs in the answer to a query.
const LISTED: usize = 64;

/// Takes a message in: what is to be answered. An error means that it could not be kept.
pub(super) fn take(shared: &Arc<Shared>, message: &Message) -> Result<Vec<Message>> {
    let jobs = &shared.jobs;
    let Some(about) = shared.topics().parse(&message.topic) else {
        let refusal = Refusal::new(Reason::InvalidTopic, "it is not for this device");
        jobs.refuse("topic", &refusal)?;
        return Ok(Vec::new());
    };
    let bytes = &message.payload;
    let answer = match about {
        // Nothing: somebody cleared what was retained.
        Incoming::Job | Incoming::GroupJob(_) | Incoming::Control(_) if bytes.is_empty() => None,
        Incoming::Job => Some(jobs.submit(&Via::Own, message.retain, bytes)?.json()),
        Incoming::GroupJob(group) => {
            Some(jobs.submit(&Via::Group(group), message.retain, bytes)?.json())
        }
        Incoming::Offer(pool) => Some(jobs.submit(&Via::Pool(pool), message.retain, bytes)?.json()),
        Incoming::Control(job) => Some(jobs.submit_control(&job, message.retain, bytes)?.json()),
        Incoming::Desired => return desired(shared, bytes),
        Incoming::Get => Some(get(shared, bytes)?),
        Incoming::Set(what) => set(shared, &what, message)?,
        Incoming::Home => {
            let came = message.payload == b"online";
            return Ok(super::home::message(shared).filter(|_| came).into_iter().collect());
        }
    };
    Ok(answer.and_then(|answer| respond(message, &answer)).into_iter().collect())
}

/// The answer to where the sender wants it.
fn respond(message: &Message, answer: &Value) -> Option<Message> {
    let topic = message.properties.response_topic.as_ref()?;
    let plain = |c: char| !c.is_control() && !"+#$".contains(c);
    if topic.is_empty() || topic.len() > RESPONSE || !topic.chars().all(plain) {
        return None;
    }
    let mut response = told(topic.clone(), answer, false, Some(60));
    let correlation = message.properties.correlation.clone();
    response.properties.correlation = correlation.filter(|bytes| bytes.len() <= RESPONSE);
    Some(response)
}

/// Answers a query.
fn get(shared: &Shared, bytes: &[u8]) -> Result<Value> {
    let store = shared.jobs.store();
    let query: Option<Map<String, Value>> =
        if bytes.len() > LARGEST { None } else { serde_json::from_slice(bytes).ok() };
    let text = |key: &str| query.as_ref()?.get(key)?.as_str();
    let answer = match text("what") {
        Some("job") => {
            let job = text("id").map(|id| store.job(id)).transpose()?.flatten();
            json!({ "job": job.map(|job| job.told()) })
        }
        Some("jobs") => {
            let mut all = store.open_jobs(LISTED)?;
            all.extend(store.ended_jobs(LISTED)?);
            all.truncate(LISTED);
            json!({ "jobs": all.iter().map(|job| job.told()).collect::<Vec<_>>() })
        }
        Some("birth") => json!({ "birth": birth(shared, shared.status().connects) }),
        Some("schema") => json!({ "job": job_schema(), "ctl": control_schema() }),
        Some("twin") => json!({ "reported": reported(shared) }),
        _ => {
            let detail = "ask for `what`: job (with `id`), jobs, birth, schema, twin";
            let refusal = Refusal::at(Reason::InvalidRequest, "/what", detail);
            json!({ "refused": refusal })
        }
    };
    Ok(answer)
}

/// A version, and what is desired.
type Desired = (u64, Map<String, Value>);

/// What is told of the desired state.
pub(super) fn reported(shared: &Shared) -> Value {
    let last = shared.reported.lock().unwrap_or_else(PoisonError::into_inner).clone();
    last.unwrap_or_else(|| json!({ "version": shared.twin.load(Ordering::SeqCst) }))
}

/// Brings the device to a desired state that is signed, for this device, and newer than the last.
/// Each version is tried once: one that harmed is not tried again on the next connect.
fn desired(shared: &Shared, bytes: &[u8]) -> Result<Vec<Message>> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let (version, outcome) = match read_desired(shared, bytes) {
        // The one that was tried already: the broker keeps it, and brings it on every connect.
        Ok(None) => return Ok(Vec::new()),
        Ok(Some((version, desired))) => {
            shared.jobs.store().take_sequence(TWIN, version)?;
            shared.twin.store(version, Ordering::SeqCst);
            (version, shared.device.desire(&desired))
        }
        Err(refusal) => (shared.twin.load(Ordering::SeqCst), Err(refusal)),
    };
    let at = shared.now_ms();
    let body = match outcome {
        Ok(state) => json!({ "version": version, "state": state, "at": at }),
        Err(refusal) => {
            shared.jobs.refuse("twin", &refusal)?;
            json!({ "version": version, "refused": refusal, "at": at })
        }
    };
    let mut last = shared.reported.lock().unwrap_or_else(PoisonError::into_inner);
    *last = Some(body.clone());
    Ok(vec![told(shared.topics().own("twin/reported"), &body, true, None)])
}

fn read_desired(shared: &Shared, bytes: &[u8]) -> std::result::Result<Option<Desired>, Refusal> {
    let invalid = |at: &str, detail: &str| Refusal::at(Reason::InvalidRequest, at, detail);
    if bytes.len() > LARGEST * 3 / 2 {
        return Err(Refusal::new(Reason::TooLarge, "it is too large"));
    }
    let envelope = Envelope::parse(bytes)
        .map_err(|error| Refusal::new(Reason::InvalidJson, error.to_string()))?;
    if envelope.payload_type() != TWIN_TYPE {
        let detail = format!("the envelope must hold `{TWIN_TYPE}`");
        return Err(Refusal::at(Reason::UnsupportedSchema, "/payloadType", detail));
    }
    shared.jobs.signer(&envelope, KeyRole::Operate)?;
    let table: Map<String, Value> = serde_json::from_slice(envelope.payload())
        .map_err(|error| Refusal::new(Reason::InvalidJson, error.to_string()))?;
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    if text("audience") != Some(shared.topics().device()) {
        return Err(Refusal::at(Reason::Unauthorized, "/audience", "it is for another device"));
    }
    let version = table.get("version").and_then(Value::as_u64);
    let version = version.ok_or_else(|| invalid("/version", "must be a whole number"))?;
    let desired = table.get("desired").and_then(Value::as_object);
    let desired = desired.ok_or_else(|| invalid("/desired", "must be a table"))?;
    let held = shared.twin.load(Ordering::SeqCst);
    if version == held {
        return Ok(None);
    }
    if version < held {
        let detail = format!("version {held} holds already");
        return Err(Refusal::at(Reason::VersionMismatch, "/version", detail));
    }
    Ok(Some((version, desired.clone())))
}

/// Turns a bare word into a job of this machine, when it may be one.
fn set(shared: &Shared, what: &[String], message: &Message) -> Result<Option<Value>> {
    let refuse = |reason: Reason, detail: &str| {
        shared.jobs.refuse("set", &Refusal::new(reason, detail)).map(|()| None)
    };
    if !shared.settings.commands {
        return refuse(Reason::Unauthorized, "bare commands are switched off");
    }
    if message.retain {
        return refuse(Reason::Retained, "a bare command was retained");
    }
    let word = std::str::from_utf8(&message.payload).ok().filter(|word| word.len() <= 64);
    let Some((kind, params)) = word.and_then(|word| shared.device.command(what, word)) else {
        return refuse(Reason::Unauthorized, "it is no command that may come without a signature");
    };
    let answer = local(shared, kind, &params)?;
    Ok(Some(answer.json()))
}

fn local(shared: &Shared, kind: Kind, params: &Value) -> Result<Answer> {
    let now = shared.now_ms();
    let id = format!("set-{:016x}", shared.random(u64::MAX));
    let document = json!({
        "schema": crate::contract::JOB, "id": id, "kind": kind, "issuer": "home-assistant",
        "issued_at": now.max(1_500_000_000_000), "expires_at": now.max(1_500_000_000_000) + 60_000,
        "audience": shared.topics().device(), "seq": 1, "params": params,
    });
    let bytes = serde_json::to_vec(&document).expect("plain data with text keys");
    shared.jobs.submit(&Via::Local("home-assistant".to_owned()), false, &bytes)
}
