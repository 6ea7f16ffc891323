//! Job and control documents as they are signed: read strictly, checked against their shape.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::{Kind, Qos};
use super::reason::{Reason, Refusal};
use super::schema;

/// Payload type of a job's envelope.
pub const JOB_TYPE: &str = "application/vnd.mien.job.v1+json";
/// Payload type of a control document's envelope.
pub const CONTROL_TYPE: &str = "application/vnd.mien.ctl.v1+json";
/// Largest job document in its envelope, in bytes: more travels as an artifact.
pub const LARGEST: usize = 128 << 10;
/// Longest time from issue to expiry, in ms.
const LONGEST_LIFE: u64 = 90 * 86_400_000;
/// Deepest nesting of a document.
const DEEPEST: usize = 16;

/// What the issuer expects of the device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin_version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// How often a failure that another try may cure is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    #[serde(default = "three")]
    pub max: u32,
    #[serde(default = "minute")]
    pub backoff_s: u64,
}

const fn three() -> u32 {
    3
}

const fn minute() -> u64 {
    60
}

impl Default for Retry {
    fn default() -> Self {
        Self { max: three(), backoff_s: minute() }
    }
}

/// When a job may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    #[default]
    Now,
    Maintenance,
}

/// A job document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub schema: String,
    pub id: String,
    pub kind: Kind,
    pub issuer: String,
    pub issued_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<u64>,
    pub expires_at: u64,
    #[serde(default)]
    pub qos: Qos,
    #[serde(default = "five")]
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_s: Option<u32>,
    #[serde(default)]
    pub retry: Retry,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
    #[serde(default)]
    pub expect: Expect,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    #[serde(default)]
    pub window: Window,
    pub params: Map<String, Value>,
    pub audience: String,
    pub seq: u64,
}

const fn five() -> u8 {
    5
}

/// JSON of bounded depth; what is no JSON, or says a key twice, is refused.
fn json(bytes: &[u8]) -> Result<Value, Refusal> {
    if bytes.len() > LARGEST {
        let detail = format!("{} bytes, at most {LARGEST} can be", bytes.len());
        return Err(Refusal::new(Reason::TooLarge, detail));
    }
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > DEEPEST {
        return Err(Refusal::new(Reason::InvalidJson, format!("nested deeper than {DEEPEST}")));
    }
    let bad = |error: serde_json::Error| Refusal::new(Reason::InvalidJson, error.to_string());
    serde_json::from_slice::<Strict>(bytes).map_err(bad).map(|Strict(value)| value)
}

/// A value whose tables say each key once.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> serde::de::Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(Value::Bool(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut from: A) -> Result<Strict, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(value)) = from.next_element()? {
            list.push(value);
        }
        Ok(Strict(Value::Array(list)))
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut from: A) -> Result<Strict, A::Error> {
        let mut table = Map::new();
        while let Some((key, Strict(value))) = from.next_entry::<String, Strict>()? {
            if table.contains_key(&key) {
                return Err(serde::de::Error::custom(format!(
                    "the key `{key}` stands there twice"
                )));
            }
            table.insert(key, value);
        }
        Ok(Strict(Value::Object(table)))
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Refusal> {
    // Can't fail where the shape holds; a test keeps the two equal.
    serde_json::from_value(value)
        .map_err(|error| Refusal::new(Reason::InvalidRequest, error.to_string()))
}

fn invalid(at: &str, detail: &str) -> Refusal {
    Refusal::at(Reason::InvalidRequest, at, detail)
}

impl Document {
    /// Reads the payload of an envelope.
    ///
    /// # Errors
    /// `TooLarge`, `InvalidJson`, `UnsupportedSchema`, `UnsupportedKind`, `InvalidRequest`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let value = json(bytes)?;
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        match text("schema") {
            Some(schema::JOB) => {}
            Some(_) => {
                let detail = format!("this device knows `{}`", schema::JOB);
                return Err(Refusal::at(Reason::UnsupportedSchema, "/schema", detail));
            }
            None => return Err(invalid("/schema", "is missing")),
        }
        if let Some(word) = text("kind")
            && Kind::of(word).is_none()
        {
            let detail = "this device knows no such kind; `birth` lists those it does";
            return Err(Refusal::at(Reason::UnsupportedKind, "/kind", detail));
        }
        schema::DOCUMENT.check(&value, "")?;
        let document: Self = typed(value)?;
        document.check()?;
        Ok(document)
    }

    fn check(&self) -> Result<(), Refusal> {
        let params = Value::Object(self.params.clone());
        schema::params(self.kind).check(&params, "/params")?;
        if self.kind.needs_timeout() && self.timeout_s.is_none() {
            return Err(invalid("/timeout_s", "is missing"));
        }
        if self.kind.needs_boot() && self.expect.boot_id.is_none() {
            return Err(invalid("/expect/boot_id", "is missing"));
        }
        if self.expires_at <= self.issued_at {
            return Err(invalid("/expires_at", "must be later than `issued_at`"));
        }
        if self.expires_at - self.issued_at > LONGEST_LIFE {
            return Err(invalid("/expires_at", "must be at most 90 days after `issued_at`"));
        }
        if self.not_before.is_some_and(|from| from >= self.expires_at) {
            return Err(invalid("/not_before", "must be earlier than `expires_at`"));
        }
        if self.supersedes.as_ref() == Some(&self.id) {
            return Err(invalid("/supersedes", "must name another job"));
        }
        Ok(())
    }

    /// Jobs with the same key keep their order.
    #[must_use]
    pub fn order(&self) -> String {
        let given = self.order_key.clone().filter(|key| !key.is_empty());
        given.unwrap_or_else(|| {
            let named = self.kind.order_by().and_then(|name| {
                let value = self.params.get(name)?.as_str()?;
                Some(format!("{name}/{value}"))
            });
            // What works on nothing that has a name keeps no order.
            named.unwrap_or_else(|| format!("job/{}", self.id))
        })
    }

    /// Time for the whole, in seconds.
    #[must_use]
    pub fn timeout(&self) -> u32 {
        self.timeout_s.unwrap_or_else(|| self.kind.seconds())
    }

    /// One parameter, typed.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        typed(Value::Object(self.params.clone()))
    }
}

/// What is to happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Do {
    Cancel,
    Pause,
    Resume,
    Reprioritise,
}

/// A control document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    pub schema: String,
    pub job: String,
    pub r#do: Do,
    pub issuer: String,
    pub issued_at: u64,
    pub expires_at: u64,
    pub audience: String,
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

impl Control {
    /// Reads the payload of an envelope.
    ///
    /// # Errors
    /// `TooLarge`, `InvalidJson`, `UnsupportedSchema`, `InvalidRequest`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let value = json(bytes)?;
        match value.get("schema").and_then(Value::as_str) {
            Some(schema::CONTROL) => {}
            Some(_) => {
                let detail = format!("this device knows `{}`", schema::CONTROL);
                return Err(Refusal::at(Reason::UnsupportedSchema, "/schema", detail));
            }
            None => return Err(invalid("/schema", "is missing")),
        }
        schema::check_control(&value)?;
        typed(value)
    }
}
