//! What a JSON document must look like: one description that is checked and that makes the schema.

use serde_json::{Map, Value, json};

use super::reason::{Reason, Refusal};

/// A text of a known form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Id of a job or of a consent record.
    Id,
    /// Name of an identity, camera, pipeline or model slot.
    Name,
    Sha256,
    Uri,
    Version,
    /// A device, `group/NAME` or `pool/NAME`.
    Audience,
}

impl Pattern {
    const fn regex(self) -> &'static str {
        match self {
            Self::Id => "^[A-Za-z0-9_-]{8,64}$",
            Self::Name => "^[a-z0-9][a-z0-9_-]{0,62}$",
            Self::Sha256 => "^[0-9a-f]{64}$",
            Self::Uri => "^(https|file|inline):",
            Self::Version => "^\\d+\\.\\d+\\.\\d+",
            Self::Audience => "^((group|pool)/)?[A-Za-z0-9_-]{1,64}$",
        }
    }

    fn holds(self, text: &str) -> bool {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let small = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        match self {
            Self::Id => (8..=64).contains(&text.len()) && text.bytes().all(word),
            Self::Name => {
                (1..=63).contains(&text.len())
                    && text.starts_with(|c: char| c.is_ascii() && small(c as u8))
                    && text.bytes().all(|b| small(b) || b == b'_' || b == b'-')
            }
            Self::Sha256 => {
                text.len() == 64
                    && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            }
            Self::Uri => {
                text.len() <= 2048
                    && ["https:", "file:", "inline:"].iter().any(|start| text.starts_with(start))
            }
            Self::Version => {
                let mut parts = text.splitn(3, '.');
                let digits =
                    |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
                text.len() <= 64
                    && parts.next().is_some_and(digits)
                    && parts.next().is_some_and(digits)
                    && parts
                        .next()
                        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            }
            Self::Audience => {
                let name = text
                    .strip_prefix("group/")
                    .or_else(|| text.strip_prefix("pool/"))
                    .unwrap_or(text);
                (1..=64).contains(&name.len()) && name.bytes().all(word)
            }
        }
    }
}

/// When a field must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Must {
    Not,
    Always,
    /// When another text of the same table has this value.
    When(&'static str, &'static str),
}

/// One field of a table.
#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub must: Must,
    pub shape: &'static Shape,
}

/// A field that must be there.
pub(super) const fn must(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, must: Must::Always, shape }
}

/// A field that may be there.
pub(super) const fn may(name: &'static str, shape: &'static Shape) -> Field {
    Field { name, must: Must::Not, shape }
}

/// What a value must be.
#[derive(Debug)]
pub enum Shape {
    /// Any table.
    Open,
    Const(&'static str),
    /// Only `false`.
    Never,
    Flag,
    OneOf(&'static [&'static str]),
    Text {
        least: usize,
        most: usize,
    },
    Form(Pattern),
    Whole {
        least: u64,
        most: u64,
    },
    /// A number, from `least` on (not itself when `above`) to `most`.
    Number {
        least: f64,
        most: f64,
        above: bool,
    },
    List {
        of: &'static Shape,
        least: usize,
        most: usize,
    },
    /// A table with these fields and no others.
    Table(&'static [Field]),
    /// Tables told apart by a text.
    Choice {
        by: &'static str,
        of: &'static [(&'static str, &'static [Field])],
    },
}

/// Milliseconds since 1970; what lies before 2017 is a clock that was never set.
pub(super) const MS: Shape = Shape::Whole { least: 1_500_000_000_000, most: 253_402_300_799_999 };

fn wrong(at: &str, detail: impl Into<String>) -> Refusal {
    let at = if at.is_empty() { "/" } else { at };
    Refusal::at(Reason::InvalidRequest, at, detail)
}

/// A key as a JSON pointer writes it, cut to a bound.
fn escaped(key: &str) -> String {
    key.chars().take(64).collect::<String>().replace('~', "~0").replace('/', "~1")
}

impl Shape {
    /// Checks a value; the first fault, with its place.
    ///
    /// # Errors
    /// `InvalidRequest` with a JSON pointer.
    pub fn check(&self, value: &Value, at: &str) -> Result<(), Refusal> {
        match self {
            Self::Open if value.is_object() => Ok(()),
            Self::Open => Err(wrong(at, "must be a table")),
            Self::Const(text) if value == text => Ok(()),
            Self::Const(text) => Err(wrong(at, format!("must be `{text}`"))),
            Self::Never if *value == Value::Bool(false) => Ok(()),
            Self::Never => Err(wrong(at, "may only be false")),
            Self::Flag if value.is_boolean() => Ok(()),
            Self::Flag => Err(wrong(at, "must be true or false")),
            Self::OneOf(words) => match value.as_str() {
                Some(text) if words.contains(&text) => Ok(()),
                _ => Err(wrong(at, format!("must be one of {}", words.join(", ")))),
            },
            Self::Text { least, most } => {
                let fits = |text: &str| (*least..=*most).contains(&text.chars().count());
                match value.as_str() {
                    Some(text) if fits(text) => Ok(()),
                    _ => Err(wrong(at, format!("must be a text of {least} to {most} characters"))),
                }
            }
            Self::Form(pattern) => match value.as_str() {
                Some(text) if pattern.holds(text) => Ok(()),
                _ => Err(wrong(at, format!("must be a text of the form {}", pattern.regex()))),
            },
            Self::Whole { least, most } => match value.as_u64() {
                Some(n) if (*least..=*most).contains(&n) => Ok(()),
                _ => Err(wrong(at, format!("must be a whole number, {least} to {most}"))),
            },
            Self::Number { least, most, above } => match value.as_f64() {
                Some(n) if n <= *most && (n > *least || !above && n >= *least) => Ok(()),
                _ => Err(wrong(at, format!("must be a number, {least} to {most}"))),
            },
            Self::List { of, least, most } => {
                let list = value.as_array().filter(|list| (*least..=*most).contains(&list.len()));
                let list =
                    list.ok_or_else(|| wrong(at, format!("must be a list of {least} to {most}")))?;
                list.iter().enumerate().try_for_each(|(n, v)| of.check(v, &format!("{at}/{n}")))
            }
            Self::Table(fields) => {
                let table = value.as_object().ok_or_else(|| wrong(at, "must be a table"))?;
                check_fields(table, fields, None, at)
            }
            Self::Choice { by, of } => {
                let table = value.as_object().ok_or_else(|| wrong(at, "must be a table"))?;
                let word = table.get(*by).and_then(Value::as_str);
                let words = || of.iter().map(|(w, _)| *w).collect::<Vec<_>>().join(", ");
                let (_, fields) = of.iter().find(|(w, _)| Some(*w) == word).ok_or_else(|| {
                    wrong(&format!("{at}/{by}"), format!("must be one of {}", words()))
                })?;
                check_fields(table, fields, Some(by), at)
            }
        }
    }

    /// The same as JSON Schema (draft 2020-12).
    #[must_use]
    pub fn schema(&self) -> Value {
        match self {
            Self::Open => json!({ "type": "object" }),
            Self::Const(text) => json!({ "const": text }),
            Self::Never => json!({ "const": false }),
            Self::Flag => json!({ "type": "boolean" }),
            Self::OneOf(words) => json!({ "enum": words }),
            Self::Text { least, most } => {
                json!({ "type": "string", "minLength": least, "maxLength": most })
            }
            Self::Form(pattern) => json!({ "type": "string", "pattern": pattern.regex() }),
            Self::Whole { least, most } => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            Self::Number { least, most, above } => {
                let key = if *above { "exclusiveMinimum" } else { "minimum" };
                json!({ "type": "number", key: least, "maximum": most })
            }
            Self::List { of, least, most } => {
                json!({ "type": "array", "items": of.schema(), "minItems": least, "maxItems": most })
            }
            Self::Table(fields) => table(fields, None),
            Self::Choice { by, of } => {
                let all: Vec<Value> =
                    of.iter().map(|(word, fields)| table(fields, Some((by, word)))).collect();
                json!({ "oneOf": all })
            }
        }
    }
}

fn check_fields(
    table: &Map<String, Value>,
    fields: &[Field],
    tag: Option<&str>,
    at: &str,
) -> Result<(), Refusal> {
    for key in table.keys() {
        if tag != Some(key) && !fields.iter().any(|field| field.name == key) {
            return Err(wrong(&format!("{at}/{}", escaped(key)), "is not a field here"));
        }
    }
    for Field { name, must, shape } in fields {
        let at = format!("{at}/{name}");
        match table.get(*name) {
            Some(value) => shape.check(value, &at)?,
            None => {
                let missing = match must {
                    Must::Not => false,
                    Must::Always => true,
                    Must::When(other, word) => {
                        table.get(*other).and_then(Value::as_str) == Some(*word)
                    }
                };
                if missing {
                    return Err(wrong(&at, "is missing"));
                }
            }
        }
    }
    Ok(())
}

/// The schema of a closed table.
pub(super) fn table(fields: &[Field], tag: Option<(&str, &str)>) -> Value {
    let mut properties = Map::new();
    let mut required: Vec<&str> = Vec::new();
    let mut conditions = Vec::new();
    if let Some((by, word)) = tag {
        properties.insert(by.to_owned(), json!({ "const": word }));
        required.push(by);
    }
    for Field { name, must, shape } in fields {
        properties.insert((*name).to_owned(), shape.schema());
        match must {
            Must::Not => {}
            Must::Always => required.push(name),
            Must::When(other, word) => conditions.push(json!({
                "if": { "properties": { *other: { "const": word } }, "required": [other] },
                "then": { "required": [name] },
            })),
        }
    }
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if !conditions.is_empty() {
        schema["allOf"] = Value::Array(conditions);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOUR: Shape = Shape::OneOf(&["red", "green"]);
    const SIDE: Shape = Shape::Number { least: 0.0, most: 1.0, above: true };
    const BOXES: Shape = Shape::List {
        of: &Shape::Choice {
            by: "do",
            of: &[
                (
                    "paint",
                    &[
                        must("colour", &COLOUR),
                        Field { name: "side", must: Must::When("colour", "red"), shape: &SIDE },
                    ],
                ),
                ("keep", &[]),
            ],
        },
        least: 1,
        most: 2,
    };

    #[test]
    fn a_fault_is_told_with_its_place() {
        for (value, at) in [
            (json!([]), "/"),
            (json!([{ "do": "keep" }, { "do": "keep" }, { "do": "keep" }]), "/"),
            (json!([{ "do": "burn" }]), "/0/do"),
            (json!([{ "do": "keep", "a/b": 1 }]), "/0/a~1b"),
            (json!([{ "do": "paint" }]), "/0/colour"),
            (json!([{ "do": "keep" }, { "do": "paint", "colour": "red" }]), "/1/side"),
            (json!([{ "do": "paint", "colour": "red", "side": 0.0 }]), "/0/side"),
        ] {
            assert_eq!(BOXES.check(&value, "").unwrap_err().at.unwrap(), at, "{value}");
        }
        BOXES.check(&json!([{ "do": "paint", "colour": "green" }]), "").unwrap();
        BOXES.check(&json!([{ "do": "paint", "colour": "red", "side": 0.5 }]), "").unwrap();
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_pattern_panic(text in "\\PC{0,80}") {
            for pattern in [Pattern::Id, Pattern::Name, Pattern::Sha256, Pattern::Uri, Pattern::Version, Pattern::Audience] {
                let _ = pattern.holds(&text);
            }
        }
    }
}
