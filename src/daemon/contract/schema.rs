//! The shapes of the documents that a device takes: the job with its parameters, and its control.

use serde_json::{Value, json};

use super::kind::{Kind, Qos};
use super::reason::Refusal;
use super::shape::{Field, MS, Must, Pattern, Shape, may, must, table};

/// What a job document names itself.
pub const JOB: &str = "mien.job/1";
/// What a control document names itself.
pub const CONTROL: &str = "mien.ctl/1";

const ID: Shape = Shape::Form(Pattern::Id);
const NAME: Shape = Shape::Form(Pattern::Name);
const SHA256: Shape = Shape::Form(Pattern::Sha256);
const VERSION: Shape = Shape::Form(Pattern::Version);
const SIGNATURE: Shape = Shape::Text { least: 1, most: 4096 };
const LINE: Shape = Shape::Text { least: 1, most: 128 };
const WHY: Shape = Shape::Text { least: 3, most: 256 };
const SIZE: Shape = Shape::Whole { least: 1, most: 1 << 40 };
const COUNT: Shape = Shape::Whole { least: 1, most: 1 << 53 };
const RISING: Shape = Shape::Whole { least: 0, most: 1 << 53 };

const ARTIFACT_FIELDS: [Field; 4] = [
    must("uri", &Shape::Form(Pattern::Uri)),
    must("sha256", &SHA256),
    must("size", &SIZE),
    may("sig", &SIGNATURE),
];
const ARTIFACT: Shape = Shape::Table(&ARTIFACT_FIELDS);
const SIGNED_ARTIFACT: Shape = Shape::Table(&[
    must("uri", &Shape::Form(Pattern::Uri)),
    must("sha256", &SHA256),
    must("size", &SIZE),
    must("sig", &SIGNATURE),
]);
const OUTPUT: Shape = Shape::Table(&[must("uri", &Shape::Form(Pattern::Uri))]);

const OP: Shape = Shape::Choice {
    by: "do",
    of: &[
        ("swap", &[must("source", &NAME), may("consent", &ID)]),
        (
            "anonymise",
            &[
                must("how", &Shape::OneOf(&["solid", "mosaic", "blur", "image", "synthetic"])),
                Field { name: "image", must: Must::When("how", "image"), shape: &ARTIFACT },
            ],
        ),
        ("pass", &[]),
    ],
};
const RULES: Shape = Shape::List {
    of: &Shape::Table(&[must("who", &NAME), may("zone", &NAME), must("then", &OP)]),
    least: 1,
    most: 64,
};
const CONSENT: Shape = Shape::Table(&[
    must("record_id", &ID),
    must("subject", &LINE),
    must("purpose", &WHY),
    may("scope", &Shape::List { of: &Shape::OneOf(&["swap", "reveal"]), least: 1, most: 2 }),
    must("granted_at", &MS),
    must("expires_at", &MS),
    must("evidence_sha256", &SHA256),
    must("operator", &LINE),
]);
const CANARY: Shape = Shape::Table(&[
    must("start_pct", &Shape::Number { least: 0.0, most: 100.0, above: true }),
    may("step_pct", &Shape::Number { least: 0.0, most: 100.0, above: true }),
    may("step_s", &Shape::Whole { least: 1, most: 86_400 }),
    may("guard", &Shape::Open),
]);
const TIER: Shape = Shape::OneOf(&["lite", "pro"]);

const PIPELINE: Shape = Shape::Table(&[
    must("pipeline", &NAME),
    may("camera", &NAME),
    may("rules", &RULES),
    may("deadline_ms", &Shape::Whole { least: 1, most: 60_000 }),
]);
const SLOT: Shape = Shape::Table(&[must("slot", &NAME)]);
const SLOT_VERSION: Shape = Shape::Table(&[must("slot", &NAME), must("version", &VERSION)]);
const CAMERA: Shape = Shape::Table(&[must("camera", &NAME)]);
const NOTHING: Shape = Shape::Table(&[]);

/// The shape of a kind's parameters.
#[must_use]
pub const fn params(kind: Kind) -> &'static Shape {
    match kind {
        Kind::PipelineStart | Kind::PipelineUpdate => &PIPELINE,
        Kind::PipelineStop => const { &Shape::Table(&[must("pipeline", &NAME)]) },
        Kind::CameraProbe => &CAMERA,
        Kind::ClipProcess => {
            const {
                &Shape::Table(&[
                    must("input", &ARTIFACT),
                    must("output", &OUTPUT),
                    must("rules", &RULES),
                    may("audio", &Shape::OneOf(&["keep", "drop"])),
                    may(
                        "range_s",
                        &Shape::List {
                            of: &Shape::Number { least: 0.0, most: 1e9, above: false },
                            least: 2,
                            most: 2,
                        },
                    ),
                    may("tier", &TIER),
                ])
            }
        }
        Kind::ImageProcess => {
            const {
                &Shape::Table(&[
                    must("input", &ARTIFACT),
                    must("output", &OUTPUT),
                    must("rules", &RULES),
                    may("tier", &TIER),
                ])
            }
        }
        Kind::SourceEnrol => {
            const {
                &Shape::Table(&[
                    must("source", &NAME),
                    must("images", &Shape::List { of: &ARTIFACT, least: 1, most: 16 }),
                    must("consent", &CONSENT),
                ])
            }
        }
        Kind::SourceForget => {
            const { &Shape::Table(&[must("source", &NAME), must("reason", &WHY)]) }
        }
        Kind::ConsentRevoke => {
            const { &Shape::Table(&[must("record_id", &ID), must("reason", &WHY)]) }
        }
        Kind::ModelInstall => {
            const {
                &Shape::Table(&[
                    must("slot", &NAME),
                    must("version", &VERSION),
                    must("artifact", &SIGNED_ARTIFACT),
                ])
            }
        }
        Kind::ModelActivate => {
            const {
                &Shape::Table(&[
                    must("slot", &NAME),
                    must("version", &VERSION),
                    may("canary", &CANARY),
                ])
            }
        }
        Kind::ModelRollback | Kind::EngineBuild => &SLOT,
        Kind::ModelRemove => &SLOT_VERSION,
        Kind::SnapshotTake => {
            const { &Shape::Table(&[must("camera", &NAME), may("raw", &Shape::Never)]) }
        }
        Kind::BenchmarkRun => {
            const { &Shape::Table(&[may("frames", &Shape::Whole { least: 1, most: 1000 })]) }
        }
        Kind::SelftestRun | Kind::DiagBundle | Kind::DeviceReboot | Kind::DeviceRollback => {
            &NOTHING
        }
        Kind::ConfigUpdate => {
            const {
                &Shape::Table(&[
                    must("config", &Shape::Text { least: 1, most: 65_536 }),
                    may("version", &RISING),
                ])
            }
        }
        Kind::ProfileActivate => const { &Shape::Table(&[must("profile", &NAME)]) },
        Kind::LogLevel => {
            const {
                &Shape::Table(&[
                    must("filter", &LINE),
                    must("for_s", &Shape::Whole { least: 1, most: 86_400 }),
                ])
            }
        }
        Kind::LogUpload => {
            const { &Shape::Table(&[must("from", &MS), must("to", &MS), must("output", &OUTPUT)]) }
        }
        Kind::AuditExport => {
            const { &Shape::Table(&[must("from", &MS), must("to", &MS), may("output", &OUTPUT)]) }
        }
        Kind::MediaPurge => const { &Shape::Table(&[must("before", &MS), may("output", &NAME)]) },
        Kind::KeyRotate => const { &Shape::Table(&[must("key", &NAME)]) },
        Kind::PowerMode => const { &Shape::Table(&[must("mode", &NAME)]) },
        Kind::DeviceUpdate => {
            const { &Shape::Table(&[must("version", &VERSION), must("artifact", &SIGNED_ARTIFACT)]) }
        }
    }
}

const KINDS: Shape = Shape::OneOf(Kind::WORDS);
const EXPECT: Shape =
    Shape::Table(&[may("twin_version", &RISING), may("model", &LINE), may("boot_id", &LINE)]);
const JOB_FIELDS: [Field; 20] = [
    must("schema", &Shape::Const(JOB)),
    must("id", &ID),
    must("kind", &KINDS),
    must("issuer", &LINE),
    must("issued_at", &MS),
    may("not_before", &MS),
    must("expires_at", &MS),
    may("qos", &Shape::OneOf(Qos::WORDS)),
    may("priority", &Shape::Whole { least: 0, most: 9 }),
    may("timeout_s", &Shape::Whole { least: 1, most: 86_400 }),
    may("stall_s", &Shape::Whole { least: 1, most: 3600 }),
    may(
        "retry",
        &Shape::Table(&[
            may("max", &Shape::Whole { least: 0, most: 10 }),
            may("backoff_s", &Shape::Whole { least: 1, most: 3600 }),
        ]),
    ),
    may("order_key", &Shape::Text { least: 0, most: 64 }),
    may("supersedes", &ID),
    may("expect", &EXPECT),
    may("fence", &COUNT),
    may("window", &Shape::OneOf(&["now", "maintenance"])),
    must("params", &Shape::Open),
    must("audience", &Shape::Form(Pattern::Audience)),
    must("seq", &COUNT),
];
/// A job document, its parameters apart.
pub(super) const DOCUMENT: Shape = Shape::Table(&JOB_FIELDS);

const CONTROL_SHAPE: Shape = Shape::Choice {
    by: "do",
    of: &[
        ("cancel", &CONTROL_FIELDS),
        ("pause", &CONTROL_FIELDS),
        ("resume", &CONTROL_FIELDS),
        ("reprioritise", &REPRIORITISE_FIELDS),
    ],
};
const CONTROL_FIELDS: [Field; 8] = [
    must("schema", &Shape::Const(CONTROL)),
    must("job", &ID),
    must("issuer", &LINE),
    must("issued_at", &MS),
    must("expires_at", &MS),
    must("audience", &Shape::Form(Pattern::Audience)),
    must("seq", &COUNT),
    may("expect_version", &COUNT),
];
const REPRIORITISE_FIELDS: [Field; 9] = [
    must("schema", &Shape::Const(CONTROL)),
    must("job", &ID),
    must("issuer", &LINE),
    must("issued_at", &MS),
    must("expires_at", &MS),
    must("audience", &Shape::Form(Pattern::Audience)),
    must("seq", &COUNT),
    may("expect_version", &COUNT),
    must("priority", &Shape::Whole { least: 0, most: 9 }),
];

/// Checks a control document.
///
/// # Errors
/// `InvalidRequest` with a JSON pointer.
pub(super) fn check_control(value: &Value) -> Result<(), Refusal> {
    CONTROL_SHAPE.check(value, "")
}

/// JSON Schema of the job document, its parameters by kind.
#[must_use]
pub fn job_schema() -> Value {
    let mut schema = table(&JOB_FIELDS, None);
    let kinds = Kind::ALL.iter().map(|kind| {
        let mut then = json!({ "properties": { "params": params(*kind).schema() } });
        if kind.needs_timeout() {
            then["required"] = json!(["timeout_s"]);
        }
        if kind.needs_boot() {
            then["required"] = json!(["expect"]);
            then["properties"]["expect"] = json!({ "required": ["boot_id"] });
        }
        json!({ "if": { "properties": { "kind": { "const": kind.word() } } }, "then": then })
    });
    schema["allOf"] = kinds.collect();
    head(schema, "job", "mien job document, version 1")
}

/// JSON Schema of the control document.
#[must_use]
pub fn control_schema() -> Value {
    head(CONTROL_SHAPE.schema(), "ctl", "mien control document of a job, version 1")
}

fn head(mut schema: Value, name: &str, title: &str) -> Value {
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["$id"] = json!(format!("urn:mien:schema:{name}:1"));
    schema["title"] = json!(title);
    schema["description"] =
        json!("The payload of a DSSE envelope: what is signed are its exact bytes.");
    schema
}
