//! What Home Assistant is told: one retained message that says which entities the device has.

use serde_json::{Map, Value, json};

use super::Shared;
use super::announce::told;
use crate::contract::Topics;
use crate::mqtt::packet::Message;

/// One thing that is to be seen: its key, what it is, the topic, how to read it, what it measures.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const ENTITIES: &[Row] = &[
    (
        "connectivity",
        "binary_sensor",
        "status",
        "{{ 'ON' if value_json.state == 'online' else 'OFF' }}",
        "connectivity",
        "",
    ),
    (
        "problem",
        "binary_sensor",
        "health",
        "{{ 'OFF' if value_json.healthy else 'ON' }}",
        "problem",
        "",
    ),
    ("memory", "sensor", "health", "{{ value_json.memory_kib }}", "data_size", "KiB"),
    ("temperature", "sensor", "health", "{{ value_json.temperature }}", "temperature", "°C"),
    ("queue", "sensor", "health", "{{ value_json.jobs_open }}", "", "jobs"),
];
/// What each pipeline has beside these.
const OF_PIPELINE: &[(&str, &str, &str)] =
    &[("fps", "fps", "1/s"), ("latency", "latency_ms", "ms"), ("faces", "faces", "")];

/// The message, and its topic.
fn discovery(topics: &Topics, facts: &Map<String, Value>) -> (String, Value) {
    let device = topics.device();
    let id = format!("mien_{device}");
    let mut entities = Map::new();
    let mut add = |key: &str, kind: &str, topic: &str, read: &str, class: &str, unit: &str| {
        let mut entity = json!({
            "p": kind,
            "name": key.replace('_', " "),
            "uniq_id": format!("{id}_{key}"),
            "stat_t": topics.own(topic),
            "val_tpl": read,
        });
        if !class.is_empty() {
            entity["dev_cla"] = json!(class);
        }
        if !unit.is_empty() {
            entity["unit_of_meas"] = json!(unit);
        }
        entities.insert(key.to_owned(), entity);
    };
    for (key, kind, topic, read, class, unit) in ENTITIES {
        add(key, kind, topic, read, class, unit);
    }
    let names = facts.get("pipelines").and_then(Value::as_array);
    for name in names.into_iter().flatten().filter_map(Value::as_str) {
        for (key, field, unit) in OF_PIPELINE {
            let read = format!("{{{{ value_json.pipelines['{name}'].{field} }}}}");
            add(&format!("{name}_{key}"), "sensor", "health", &read, "", unit);
        }
    }
    let shown = facts.get("name").and_then(Value::as_str).unwrap_or(device);
    let body = json!({
        "dev": {
            "ids": [&id], "name": shown, "mf": "mien", "mdl": "mien",
            "sw": env!("CARGO_PKG_VERSION"),
        },
        "o": { "name": "mien", "sw": env!("CARGO_PKG_VERSION") },
        "avty": [{
            "t": topics.own("status"),
            "val_tpl": "{{ 'online' if value_json.state == 'online' else 'offline' }}",
        }],
        "qos": 1,
        "cmps": entities,
    });
    (format!("homeassistant/device/{id}/config"), body)
}

/// The message that tells it, when it is to be told.
pub(super) fn message(shared: &Shared) -> Option<Message> {
    if !shared.settings.discovery {
        return None;
    }
    let (topic, body) = discovery(shared.topics(), &shared.device.facts());
    Some(told(topic, &body, true, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{ROOT, asyncapi};

    #[test]
    fn every_entity_reads_a_topic_of_the_contract_and_has_a_name_of_its_own() {
        let topics = Topics::new(ROOT, "dev-1").unwrap();
        let facts = json!({ "name": "hall", "pipelines": ["door", "yard"] });
        let (topic, body) = discovery(&topics, facts.as_object().unwrap());
        assert_eq!(topic, "homeassistant/device/mien_dev-1/config");
        for key in ["dev", "o", "avty", "qos", "cmps"] {
            assert!(!body[key].is_null(), "{key}");
        }
        let entities = body["cmps"].as_object().unwrap();
        assert_eq!(entities.len(), ENTITIES.len() + 2 * OF_PIPELINE.len());
        let contract = asyncapi().to_string();
        let mut names = std::collections::BTreeSet::new();
        for (key, entity) in entities {
            let topic = entity["stat_t"].as_str().unwrap().replace("mien/v1/dev-1", "{device}");
            assert!(contract.contains(&format!("{topic}\"")), "{topic}");
            assert!(names.insert(entity["uniq_id"].as_str().unwrap().to_owned()), "{key}");
            assert!(entity["cmd_t"].is_null(), "{key}: nothing is commanded");
        }
        let read = entities["door_fps"]["val_tpl"].as_str().unwrap();
        assert_eq!(read, "{{ value_json.pipelines['door'].fps }}");
    }
}
