//! What a device says of itself on every connect: status, birth, and what it knows of its jobs.

use std::sync::atomic::Ordering;

use mien_vault::text;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Shared;
use super::drain::Drain;
use crate::contract::{JobState, Kind, LARGEST, Qos, control_schema, job_schema};
use crate::mqtt::packet::{Message, Properties};
use crate::mqtt::{Gone, Greeting};

/// Jobs that have ended which `sync` names.
const ENDED: usize = 64;
/// How long a `health` holds, in seconds.
const HEALTH_LIFE: u32 = 180;
/// How long a `sync` is of use, in seconds.
const SYNC_LIFE: u32 = 60;

/// A message with a JSON body.
pub(super) fn told(topic: String, body: &Value, retain: bool, life_s: Option<u32>) -> Message {
    Message {
        topic,
        payload: serde_json::to_vec(body).expect("plain data with text keys"),
        retain,
        qos1: true,
        properties: Properties {
            message_expiry: life_s,
            content_type: Some("application/json".to_owned()),
            payload_is_text: true,
            ..Properties::default()
        },
        ..Message::default()
    }
}

/// SHA-256 of a schema as it stands in `contract/`.
fn schema_hash(schema: &Value) -> String {
    let text = serde_json::to_string_pretty(schema).expect("plain data") + "\n";
    text::hex(&Sha256::digest(text))
}

/// What a device can do.
pub(super) fn birth(shared: &Shared, number: u64) -> Value {
    let settings = shared.jobs.settings();
    let mut birth = shared.device.facts();
    let own = json!({
        "schema": "mien.birth/1",
        "boot_id": settings.boot,
        "conn_seq": number,
        "at": shared.now_ms(),
        "clock": if shared.clock.wall() < crate::jobs::NOT_SET { "untrusted" } else { "trusted" },
        "version": env!("CARGO_PKG_VERSION"),
        "kinds": Kind::WORDS,
        "qos": Qos::WORDS,
        "schemas": {
            "job": schema_hash(&job_schema()),
            "ctl": schema_hash(&control_schema()),
            "state": schema_hash(&JobState::json_schema()),
        },
        "limits": {
            "document": LARGEST,
            "packet": crate::mqtt::packet::LARGEST,
            "open_jobs": settings.bounds.open,
            "open_jobs_of_one_issuer": settings.bounds.of_one_issuer,
        },
        "groups": settings.groups,
        "pools": settings.pools,
        // What a broker of 3.1.1 takes from the contract.
        "lost": if super::session::has_properties(shared) { json!([]) } else {
            json!(["response topic", "message expiry", "will delay", "reason codes"])
        },
    });
    if let Value::Object(own) = own {
        birth.extend(own);
    }
    Value::Object(birth)
}

/// The jobs that are open, the last that ended, the end of the record, and what was dropped.
fn sync(shared: &Shared, number: u64) -> Result<(Value, Vec<crate::store::Gap>), Gone> {
    let store = shared.jobs.store();
    let brief = |job: &crate::store::JobRow| json!({ "id": job.id(), "state": job.state, "version": job.version });
    let open = store.open_jobs(shared.jobs.settings().bounds.open)?;
    let ended = store.ended_jobs(ENDED)?;
    let gaps = store.gaps()?;
    let (seq, hash) = store.audit_end()?;
    let told: Vec<Value> = gaps
        .iter()
        .map(|gap| json!({ "stream": gap.stream, "from": gap.from, "to": gap.to }))
        .collect();
    let body = json!({
        "schema": "mien.sync/1",
        "boot_id": shared.jobs.settings().boot,
        "conn_seq": number,
        "at": shared.now_ms(),
        "open": open.iter().map(brief).collect::<Vec<_>>(),
        "ended": ended.iter().map(brief).collect::<Vec<_>>(),
        "audit": { "seq": seq, "hash": hash.to_string() },
        "gaps": told,
        "waiting": store.outbox_len()?,
    });
    Ok((body, gaps))
}

/// How the device stands, when it says so.
pub(super) fn health(shared: &Shared) -> Option<Message> {
    let mut health = shared.device.health()?;
    health["at"] = json!(shared.now_ms());
    Some(told(shared.topics().own("health"), &health, true, Some(HEALTH_LIFE)))
}

/// The signed end of the record.
pub(super) fn head(shared: &Shared) -> Result<Option<Message>, Gone> {
    let store = shared.jobs.store();
    store.sign_head()?;
    let topic = shared.topics().own("audit/head");
    Ok(store.last_head()?.map(|envelope| Message {
        payload: envelope.into_bytes(),
        ..told(topic, &Value::Null, true, None)
    }))
}

/// Says who is there, and tells again what the broker may have lost.
pub(super) fn arrive(
    shared: &Shared,
    drain: &mut Drain,
    greeting: &Greeting,
    number: u64,
) -> Result<(), Gone> {
    let topics = shared.topics();
    let status = json!({
        "state": "online",
        "boot_id": shared.jobs.settings().boot,
        "conn_seq": number,
        "at": shared.now_ms(),
    });
    drain.now(told(topics.own("status"), &status, true, None));
    drain.now(told(topics.own("birth"), &birth(shared, number), true, None));
    if !greeting.session {
        // It knows nothing of us, and perhaps lost everything: what was retained is told again.
        let store = shared.jobs.store();
        let mut jobs = store.ended_jobs(ENDED)?;
        jobs.extend(store.open_jobs(shared.jobs.settings().bounds.open)?);
        for job in jobs {
            let state = job.told();
            let life = state.state.is_end().then_some(crate::contract::END_LIFE);
            let body = serde_json::to_value(&state).expect("plain data with text keys");
            drain.now(told(job.topic.clone(), &body, true, life));
        }
    }
    if !greeting.session && shared.twin.load(Ordering::SeqCst) > 0 {
        let reported = super::incoming::reported(shared);
        drain.now(told(topics.own("twin/reported"), &reported, true, None));
    }
    if let Some(discovery) = super::home::message(shared) {
        drain.now(discovery);
    }
    let (body, gaps) = sync(shared, number)?;
    drain.sync(told(topics.own("sync"), &body, false, Some(SYNC_LIFE)), gaps);
    Ok(())
}
