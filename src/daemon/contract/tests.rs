//! The documents as a whole: good ones are read, bad ones are told, and the files that others read
//! are what the types say.

use super::*;
use serde_json::{Map, Value, json};
use std::path::Path;

fn artifact() -> Value {
    json!({ "uri": "file:/in.jpg", "sha256": "0".repeat(64), "size": 10 })
}

fn rules() -> Value {
    json!([
        { "who": "known", "then": { "do": "pass" } },
        { "who": "anna", "then": { "do": "swap", "source": "bert" } },
        { "who": "anyone", "then": { "do": "anonymise", "how": "mosaic" } },
    ])
}

/// Parameters of each kind with every field there.
fn params(kind: Kind) -> Value {
    let signed = || {
        let mut artifact = artifact();
        artifact["sig"] = json!("abc");
        artifact
    };
    let out = || json!({ "uri": "file:/out.jpg" });
    let (from, to) = (1_800_000_000_000_u64, 1_800_000_100_000_u64);
    match kind {
        Kind::PipelineStart | Kind::PipelineUpdate => {
            json!({ "pipeline": "door", "camera": "c1", "rules": rules(), "deadline_ms": 50 })
        }
        Kind::PipelineStop => json!({ "pipeline": "door" }),
        Kind::CameraProbe => json!({ "camera": "c1" }),
        Kind::ClipProcess => json!({
            "input": artifact(), "output": out(), "rules": rules(), "audio": "keep",
            "range_s": [0, 1.5], "tier": "lite",
        }),
        Kind::ImageProcess => {
            json!({ "input": artifact(), "output": out(), "rules": rules(), "tier": "lite" })
        }
        Kind::SourceEnrol => json!({
            "source": "anna", "images": [artifact()],
            "consent": {
                "record_id": "record-1", "subject": "p-1", "purpose": "film", "scope": ["swap"],
                "granted_at": from, "expires_at": to, "evidence_sha256": "0".repeat(64),
                "operator": "o",
            },
        }),
        Kind::SourceForget => json!({ "source": "anna", "reason": "asked for" }),
        Kind::ConsentRevoke => json!({ "record_id": "record-1", "reason": "asked for" }),
        Kind::ModelInstall => {
            json!({ "slot": "swapper", "version": "1.2.3", "artifact": signed() })
        }
        Kind::ModelActivate => json!({
            "slot": "swapper", "version": "1.2.3",
            "canary": { "start_pct": 5, "step_pct": 10, "step_s": 60, "guard": {} },
        }),
        Kind::ModelRollback | Kind::EngineBuild => json!({ "slot": "swapper" }),
        Kind::ModelRemove => json!({ "slot": "swapper", "version": "1.2.3" }),
        Kind::SnapshotTake => json!({ "camera": "c1", "raw": false }),
        Kind::BenchmarkRun => json!({ "frames": 10 }),
        Kind::SelftestRun | Kind::DiagBundle | Kind::DeviceReboot | Kind::DeviceRollback => {
            json!({})
        }
        Kind::ConfigUpdate => json!({ "config": "[device]", "version": 1 }),
        Kind::ProfileActivate => json!({ "profile": "night" }),
        Kind::LogLevel => json!({ "filter": "debug", "for_s": 60 }),
        Kind::LogUpload => json!({ "from": from, "to": to, "output": out() }),
        Kind::AuditExport => json!({ "from": from, "to": to, "output": out() }),
        Kind::MediaPurge => json!({ "before": from, "output": "clips" }),
        Kind::KeyRotate => json!({ "key": "device" }),
        Kind::PowerMode => json!({ "mode": "15w" }),
        Kind::DeviceUpdate => json!({ "version": "1.2.3", "artifact": signed() }),
    }
}

/// A document with every field there.
fn full(kind: Kind) -> Value {
    json!({
        "schema": "mien.job/1",
        "id": "job-00000001",
        "kind": kind,
        "issuer": "operator",
        "issued_at": 1_800_000_000_000_u64,
        "not_before": 1_800_000_001_000_u64,
        "expires_at": 1_800_000_600_000_u64,
        "qos": "silver",
        "priority": 5,
        "timeout_s": 60,
        "stall_s": 10,
        "retry": { "max": 3, "backoff_s": 60 },
        "order_key": "a",
        "supersedes": "job-00000000",
        "expect": { "twin_version": 1, "model": "m", "boot_id": "b" },
        "fence": 1,
        "window": "now",
        "params": params(kind),
        "audience": "dev-1",
        "seq": 7,
    })
}

fn parse(value: &Value) -> Result<Document, Refusal> {
    Document::parse(&serde_json::to_vec(value).unwrap())
}

#[test]
fn a_full_document_of_each_kind_is_read_and_written_as_it_was() {
    for kind in Kind::ALL {
        let value = full(*kind);
        let document = parse(&value).unwrap_or_else(|r| panic!("{kind}: {r}"));
        assert_eq!(serde_json::to_value(&document).unwrap(), value, "{kind}");
    }
}

/// Every path to a table of a document, itself included.
fn tables(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(table) => {
            found.push(at.to_owned());
            table.iter().for_each(|(key, v)| tables(v, &format!("{at}/{key}"), found));
        }
        Value::Array(list) => {
            (0..).zip(list).for_each(|(n, v): (usize, _)| tables(v, &format!("{at}/{n}"), found));
        }
        _ => {}
    }
}

#[test]
fn a_field_that_nobody_knows_is_refused_wherever_it_stands() {
    for kind in Kind::ALL {
        let value = full(*kind);
        let mut found = Vec::new();
        tables(&value, "", &mut found);
        // What guards a canary is of the model's maker.
        for at in found.iter().filter(|at| !at.ends_with("/guard")) {
            let mut bad = value.clone();
            bad.pointer_mut(at).unwrap()["colour"] = json!(1);
            let refusal = parse(&bad).unwrap_err();
            assert_eq!(refusal.reason, Reason::InvalidRequest, "{kind} {at}");
            assert_eq!(refusal.at.unwrap(), format!("{at}/colour"), "{kind}");
        }
    }
}

#[test]
fn bad_documents_are_told_with_reason_and_place() {
    let cases: &[(&str, Value, Reason)] = &[
        ("/schema", json!("mien.job/2"), Reason::UnsupportedSchema),
        ("/kind", json!("shell.run"), Reason::UnsupportedKind),
        ("/id", json!("short"), Reason::InvalidRequest),
        ("/expires_at", json!(1), Reason::InvalidRequest),
        ("/expires_at", json!(1_799_999_999_999_u64), Reason::InvalidRequest),
        ("/priority", json!(10), Reason::InvalidRequest),
        ("/seq", json!(0), Reason::InvalidRequest),
        ("/audience", json!("all"), Reason::InvalidRequest),
        ("/audience", json!("pool/a/b"), Reason::InvalidRequest),
        ("/params/rules/1/then/how", json!("nothing"), Reason::InvalidRequest),
        ("/params/input/sha256", json!("00"), Reason::InvalidRequest),
        ("/params/input/uri", json!("http://a/b"), Reason::InvalidRequest),
    ];
    for (at, value, reason) in cases {
        let mut bad = full(Kind::ImageProcess);
        match bad.pointer_mut(at) {
            Some(place) => *place = value.clone(),
            None => bad["params"]["rules"][1]["then"] = json!({ "do": "anonymise", "how": value }),
        }
        let refused = parse(&bad).err();
        if *at == "/audience" && value == "all" {
            assert_eq!(refused, None, "a device may be called all");
            continue;
        }
        let refused = refused.unwrap_or_else(|| panic!("{at} {value}"));
        assert_eq!((refused.reason, refused.at.as_deref()), (*reason, Some(*at)), "{value}");
    }
    let mut raw = full(Kind::SnapshotTake);
    raw["params"]["raw"] = json!(true);
    assert_eq!(parse(&raw).unwrap_err().at.unwrap(), "/params/raw");
    let mut reboot = full(Kind::DeviceReboot);
    reboot["expect"] = json!({});
    assert_eq!(parse(&reboot).unwrap_err().at.unwrap(), "/expect/boot_id");
    let mut clip = full(Kind::ClipProcess);
    clip.as_object_mut().unwrap().remove("timeout_s");
    assert_eq!(parse(&clip).unwrap_err().at.unwrap(), "/timeout_s");
}

#[test]
fn what_is_no_plain_json_is_refused() {
    for bad in [
        &b""[..],
        b"{",
        b"[1]",
        b"{\"schema\":\"mien.job/1\",\"schema\":\"mien.job/1\"}",
        b"\xff\xfe",
        &[b'['; 100_000],
    ] {
        let refusal = Document::parse(bad).unwrap_err();
        assert!(
            [Reason::InvalidJson, Reason::InvalidRequest].contains(&refusal.reason),
            "{refusal}"
        );
    }
    let large = vec![b' '; LARGEST + 1];
    assert_eq!(Document::parse(&large).unwrap_err().reason, Reason::TooLarge);
}

#[test]
fn jobs_on_the_same_thing_share_an_order_and_others_do_not() {
    let order = |mut value: Value, id: &str| {
        value.as_object_mut().unwrap().remove("order_key");
        value["id"] = json!(id);
        parse(&value).unwrap().order()
    };
    let start = order(full(Kind::PipelineStart), "job-00000001");
    assert_eq!(start, order(full(Kind::PipelineStop), "job-00000002"));
    let image = order(full(Kind::ImageProcess), "job-00000001");
    assert_ne!(image, order(full(Kind::ImageProcess), "job-00000002"));
}

#[test]
fn a_control_document_is_read_strictly() {
    let mut good = json!({
        "schema": "mien.ctl/1", "job": "job-00000001", "do": "cancel", "issuer": "o",
        "issued_at": 1_800_000_000_000_u64, "expires_at": 1_800_000_100_000_u64,
        "audience": "dev-1", "seq": 8, "expect_version": 2,
    });
    let control = Control::parse(&serde_json::to_vec(&good).unwrap()).unwrap();
    assert_eq!((control.r#do, control.expect_version), (Do::Cancel, Some(2)));
    good["do"] = json!("reprioritise");
    let refusal = Control::parse(&serde_json::to_vec(&good).unwrap()).unwrap_err();
    assert_eq!(refusal.at.unwrap(), "/priority");
}

/// The files for those who read the contract without this program: (name, what it must be).
fn files() -> Vec<(String, String)> {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap() + "\n";
    let mut all = vec![
        ("asyncapi.json".to_owned(), pretty(&asyncapi())),
        ("job.schema.json".to_owned(), pretty(&job_schema())),
        ("ctl.schema.json".to_owned(), pretty(&control_schema())),
        ("state.schema.json".to_owned(), pretty(&JobState::json_schema())),
    ];
    for kind in Kind::ALL {
        all.push((format!("examples/{kind}.json"), pretty(&full(*kind))));
    }
    all
}

#[test]
fn the_published_contract_is_what_the_types_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contract");
    let rewrite = std::env::var_os("MIEN_REWRITE").is_some();
    for (name, text) in files() {
        let path = folder.join(&name);
        if rewrite {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "contract/{name} is not what the types say; MIEN_REWRITE=1 writes it"
        );
    }
}

#[test]
fn the_schema_names_every_field_that_is_read() {
    let schema = job_schema();
    let named: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let full = full(Kind::ImageProcess);
    let read: Vec<&String> = full.as_object().unwrap().keys().collect();
    assert_eq!(named, read);
}

proptest::proptest! {
    #[test]
    fn no_document_makes_the_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let _ = Document::parse(&bytes);
        let _ = Control::parse(&bytes);
    }

    #[test]
    fn a_changed_document_never_makes_the_reader_panic(
        kind in 0..29_usize, at in 0..2000_usize, byte in proptest::num::u8::ANY
    ) {
        let mut bytes = serde_json::to_vec(&full(Kind::ALL[kind])).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = Document::parse(&bytes);
    }
}

#[test]
fn a_state_is_told_as_its_schema_says() {
    let state = JobState {
        schema: "mien.state/1".to_owned(),
        id: "job-00000001".to_owned(),
        kind: Kind::ImageProcess,
        state: State::Failed,
        version: 4,
        at: 1,
        attempt: 1,
        boot_id: "b".to_owned(),
        progress: Some(Progress { step: "x".to_owned(), permille: Some(3), eta_s: None }),
        reason: Some(Reason::Stalled),
        retryable: Some(true),
        pointer: Some("/a".to_owned()),
        detail: Some("d".to_owned()),
        result: Some(Value::Object(Map::new())),
        fence: Some(2),
    };
    let told = serde_json::to_value(&state).unwrap();
    let schema = JobState::json_schema();
    let named: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(named, told.as_object().unwrap().keys().collect::<Vec<_>>());
    assert_eq!(serde_json::from_value::<JobState>(told).unwrap(), state);
}
