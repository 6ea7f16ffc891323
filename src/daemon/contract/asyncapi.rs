//! The contract as an AsyncAPI 3 document, made of the types that the device works with.

use serde_json::{Map, Value, json};

use super::message::JobState;
use super::schema::{control_schema, job_schema};

/// One topic: name, address below the root, who sends, message, retained, life in seconds, what for.
type Row = (&'static str, &'static str, Way, &'static str, bool, u32, &'static str);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// From the device.
    Out,
    /// To the device.
    In,
}

const TOPICS: &[Row] = &[
    (
        "status",
        "{device}/status",
        Way::Out,
        "status",
        true,
        0,
        "Online, stopping or offline; the will says offline after 15 s",
    ),
    (
        "birth",
        "{device}/birth",
        Way::Out,
        "birth",
        true,
        0,
        "Kinds, schema hashes, limits and versions of the device",
    ),
    (
        "twinDesired",
        "{device}/twin/desired",
        Way::In,
        "envelope",
        true,
        0,
        "The whole desired state, signed",
    ),
    (
        "twinReported",
        "{device}/twin/reported",
        Way::Out,
        "reported",
        true,
        0,
        "What of the desired state holds",
    ),
    ("jobRequest", "{device}/job/req", Way::In, "envelope", false, 0, "A job document, signed"),
    (
        "jobControl",
        "{device}/job/{job}/ctl",
        Way::In,
        "envelope",
        false,
        0,
        "A control document, signed",
    ),
    (
        "jobState",
        "{device}/job/{job}/state",
        Way::Out,
        "jobState",
        true,
        86_400,
        "Every change of a job's state, and its progress",
    ),
    (
        "sync",
        "{device}/sync",
        Way::Out,
        "sync",
        false,
        60,
        "On every connect: jobs, the end of the record, gaps",
    ),
    (
        "get",
        "{device}/get",
        Way::In,
        "query",
        false,
        0,
        "A query; the answer goes to the response topic",
    ),
    (
        "groupRequest",
        "group/{group}/job/req",
        Way::In,
        "envelope",
        false,
        0,
        "The same job for every member",
    ),
    (
        "poolOffer",
        "pool/{pool}/offer",
        Way::In,
        "envelope",
        false,
        0,
        "A job with a fence for one member, through a shared subscription",
    ),
    ("health", "{device}/health", Way::Out, "health", true, 180, "One summary a minute"),
    (
        "event",
        "{device}/event/{type}",
        Way::Out,
        "event",
        false,
        604_800,
        "What happened, numbered",
    ),
    ("alarm", "{device}/alarm/{alarm}", Way::Out, "alarm", true, 0, "Raised or cleared"),
    (
        "auditHead",
        "{device}/audit/head",
        Way::Out,
        "envelope",
        true,
        0,
        "The signed end of the record",
    ),
    (
        "set",
        "{device}/set/{what}",
        Way::In,
        "bare",
        false,
        0,
        "A bare word of Home Assistant; never lessens protection",
    ),
];

fn messages() -> Value {
    let json = |title: &str, payload: Value| json!({ "title": title, "contentType": "application/json", "payload": payload });
    let table = |required: &[&str]| json!({ "type": "object", "required": required });
    json!({
        "envelope": json("DSSE envelope, Ed25519 over the exact bytes of its payload", json!({
            "type": "object",
            "required": ["payloadType", "payload", "signatures"],
            "additionalProperties": false,
            "properties": {
                "payloadType": { "type": "string" },
                "payload": { "type": "string", "contentEncoding": "base64" },
                "signatures": {
                    "type": "array",
                    "maxItems": 16,
                    "items": {
                        "type": "object",
                        "required": ["keyid", "sig"],
                        "additionalProperties": false,
                        "properties": {
                            "keyid": { "type": "string", "pattern": "^[0-9a-f]{32}$" },
                            "sig": { "type": "string", "contentEncoding": "base64" },
                        },
                    },
                },
            },
        })),
        "jobState": json("State of a job", JobState::json_schema()),
        "status": json("Status", table(&["state", "boot_id", "conn_seq", "at"])),
        "birth": json("Birth", table(&["kinds", "schemas", "limits", "version", "boot_id"])),
        "reported": json("Reported state", table(&["version"])),
        "sync": json("Reconciliation", table(&["open", "ended", "gaps", "boot_id"])),
        "query": json("Query", table(&["what"])),
        "health": json("Health", table(&["at"])),
        "event": json("Event", table(&["seq", "at"])),
        "alarm": json("Alarm", table(&["raised", "at"])),
        "bare": { "title": "Bare word", "contentType": "text/plain", "payload": { "type": "string" } },
    })
}

/// The document.
#[must_use]
pub fn asyncapi() -> Value {
    let mut channels = Map::new();
    let mut operations = Map::new();
    for (name, address, way, message, retain, life, what) in TOPICS {
        let parameters: Map<String, Value> = address
            .split('/')
            .filter_map(|level| level.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| (name.to_owned(), json!({})))
            .collect();
        let reference = format!("#/components/messages/{message}");
        channels.insert(
            (*name).to_owned(),
            json!({
                "address": format!("mien/v1/{address}"),
                "description": what,
                "parameters": parameters,
                "messages": { *message: { "$ref": reference } },
            }),
        );
        let mut mqtt = json!({ "qos": 1, "retain": retain, "bindingVersion": "0.2.0" });
        if *life > 0 {
            mqtt["messageExpiryInterval"] = json!(life);
        }
        operations.insert(
            (*name).to_owned(),
            json!({
                "action": if *way == Way::Out { "send" } else { "receive" },
                "channel": { "$ref": format!("#/channels/{name}") },
                "bindings": { "mqtt": mqtt },
            }),
        );
    }
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "mien",
            "version": "1",
            "description": "What a fleet may rely on, seen from the device. A job is the payload \
                            of an envelope: job.schema.json; its control: ctl.schema.json.",
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages(),
            "schemas": { "job": job_schema(), "control": control_schema() },
        },
    })
}
