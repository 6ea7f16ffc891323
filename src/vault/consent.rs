//! Consent records as people write them, in TOML or JSON; every fault is reported at once.

use std::collections::BTreeMap;

use mien_base::clock::Wall;
use mien_base::consent::{ConsentRecord, Scope};
use mien_base::id::IdentityId;

use crate::digest;
use crate::errors::{Error, Result};

/// Longest text of a field, in characters.
const TEXT: usize = 400;

/// A record to copy and fill in.
pub const TEMPLATE: &str = r#"# Consent record: who agreed that a face may be used, for what, until when.
subject  = "p-0417"                     # pseudonym of the person who agreed, not a name
purpose  = "Training film for new staff"
scope    = ["swap"]                     # swap: put on others' faces; reveal: shown unaltered
granted  = 2026-11-30                   # UTC; or a time: 2026-11-30T18:00:00Z
expires  = 2027-11-30                   # the first day on which it no longer holds
operator = "front desk"                 # who enters this record
# identity = "astronaut"                # optional: refused for any other source
# evidence = "<64 hex digits>"          # optional: SHA-256 of the signed form or the recording
"#;

const KEYS: [&str; 9] = [
    "subject", "purpose", "scope", "granted", "expires", "operator", "identity", "evidence",
    "revoked",
];

/// A value of either format, as far as a record needs it.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    Seconds(u64),
    Date(String),
    List(Vec<Value>),
    Nothing,
    Other(&'static str),
}

/// Reads a record that a user wrote for `identity`. JSON when it begins with `{`, else TOML.
///
/// # Errors
/// `ConsentBad` with every fault: its key, what it must be, what it was.
pub fn parse(text: &str, identity: &IdentityId) -> Result<ConsentRecord> {
    let mut reader = Reader { values: values(text)?, faults: Vec::new() };
    reader.known();
    let subject = reader.text("subject", "a pseudonym of the person who agreed");
    let purpose = reader.text("purpose", "why, in your words");
    let operator = reader.text("operator", "who enters the record");
    let scope = reader.scope();
    let granted = reader.time("granted", true);
    let expires = reader.time("expires", true);
    let revoked = reader.time("revoked", false);
    let evidence = reader.evidence();
    reader.bound_to(identity);
    if let (Some(from), Some(until)) = (granted, expires)
        && until <= from
    {
        reader.faults.push(format!("`expires` ({until}) must be later than `granted` ({from})"));
    }
    let (Some(granted), Some(expires)) = (granted, expires) else { return Err(reader.bad()) };
    if !reader.faults.is_empty() {
        return Err(reader.bad());
    }
    Ok(ConsentRecord {
        identity: identity.clone(),
        subject,
        purpose,
        scope,
        granted,
        expires,
        revoked,
        evidence,
        operator,
    })
}

#[derive(Debug)]
struct Reader {
    values: BTreeMap<String, Value>,
    faults: Vec<String>,
}

impl Reader {
    fn bad(self) -> Error {
        Error::ConsentBad { faults: self.faults }
    }

    fn known(&mut self) {
        for key in self.values.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            let key: String = key.chars().take(40).flat_map(char::escape_debug).collect();
            self.faults.push(format!("`{key}` is not a key; the keys are {}", KEYS.join(", ")));
        }
    }

    fn fault(&mut self, key: &str, must: &str, found: Option<&Value>) {
        let found = match found {
            None | Some(Value::Nothing) => "it is missing".to_owned(),
            Some(Value::Text(text) | Value::Date(text)) => {
                let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
                format!("it is `{shown}`")
            }
            Some(Value::Seconds(number)) => format!("it is {number}"),
            Some(Value::List(_)) => "it is a list".to_owned(),
            Some(Value::Other(kind)) => format!("it is {kind}"),
        };
        self.faults.push(format!("`{key}` must be {must}; {found}"));
    }

    fn text(&mut self, key: &'static str, what: &str) -> String {
        let value = self.values.remove(key);
        match &value {
            Some(Value::Text(text))
                if !text.trim().is_empty()
                    && text.chars().count() <= TEXT
                    && !text.chars().any(char::is_control) =>
            {
                text.clone()
            }
            _ => {
                let must = format!("{what}: 1 to {TEXT} printable characters");
                self.fault(key, &must, value.as_ref());
                String::new()
            }
        }
    }

    fn scope(&mut self) -> Vec<Scope> {
        const MUST: &str = "a list of one or both of `swap`, `reveal`";
        let value = self.values.remove("scope");
        let Some(Value::List(items)) = &value else {
            self.fault("scope", MUST, value.as_ref());
            return Vec::new();
        };
        let mut scopes = Vec::new();
        for item in items {
            match item {
                Value::Text(text) if text == "swap" => scopes.push(Scope::Swap),
                Value::Text(text) if text == "reveal" => scopes.push(Scope::Reveal),
                other => self.fault("scope", MUST, Some(other)),
            }
        }
        scopes.sort_unstable();
        scopes.dedup();
        if items.is_empty() {
            self.faults.push(format!("`scope` must be {MUST}; it is empty"));
        }
        scopes
    }

    fn time(&mut self, key: &'static str, required: bool) -> Option<Wall> {
        let value = self.values.remove(key);
        let time = match &value {
            None | Some(Value::Nothing) if !required => return None,
            Some(Value::Text(text) | Value::Date(text)) => parse_time(text),
            // Seconds as in a stored record; bounded to the year 9999.
            Some(Value::Seconds(seconds)) if *seconds < 253_402_300_800 => Some(Wall(*seconds)),
            _ => None,
        };
        if time.is_none() {
            self.fault(key, "a date `YYYY-MM-DD` or a time `YYYY-MM-DDThh:mm:ssZ`", value.as_ref());
        }
        time
    }

    fn evidence(&mut self) -> Option<String> {
        let value = self.values.remove("evidence");
        match &value {
            None | Some(Value::Nothing) => None,
            Some(Value::Text(text)) if digest::is_hex(&text.to_ascii_lowercase()) => {
                Some(text.to_ascii_lowercase())
            }
            _ => {
                self.fault("evidence", "a SHA-256 of 64 hex digits, or absent", value.as_ref());
                None
            }
        }
    }

    fn bound_to(&mut self, identity: &IdentityId) {
        let value = self.values.remove("identity");
        match &value {
            None | Some(Value::Nothing) => {}
            Some(Value::Text(text)) if text == identity.as_str() => {}
            _ => {
                let must = format!("`{identity}`, the source that it is given for, or absent");
                self.fault("identity", &must, value.as_ref());
            }
        }
    }
}

fn values(text: &str) -> Result<BTreeMap<String, Value>> {
    if text.trim_start().starts_with('{') {
        let table: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|error| unreadable("JSON", &error.to_string()))?;
        return Ok(table.into_iter().map(|(key, value)| (key, of_json(value))).collect());
    }
    let table: toml::Table =
        toml::from_str(text).map_err(|error| unreadable("TOML", error.message()))?;
    Ok(table.into_iter().map(|(key, value)| (key, of_toml(value))).collect())
}

fn unreadable(format: &str, why: &str) -> Error {
    let fault = format!("it is not {format} ({why}); `mien source enrol --help` shows one");
    Error::ConsentBad { faults: vec![fault] }
}

fn of_json(value: serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Nothing,
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Number(number) => {
            number.as_u64().map_or(Value::Other("no whole number"), Value::Seconds)
        }
        serde_json::Value::Array(items) => Value::List(items.into_iter().map(of_json).collect()),
        serde_json::Value::Bool(_) => Value::Other("a truth value"),
        serde_json::Value::Object(_) => Value::Other("a table"),
    }
}

fn of_toml(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::Text(text),
        toml::Value::Integer(number) => {
            u64::try_from(number).map_or(Value::Other("a negative number"), Value::Seconds)
        }
        toml::Value::Datetime(time) => Value::Date(time.to_string()),
        toml::Value::Array(items) => Value::List(items.into_iter().map(of_toml).collect()),
        toml::Value::Float(_) => Value::Other("no whole number"),
        toml::Value::Boolean(_) => Value::Other("a truth value"),
        toml::Value::Table(_) => Value::Other("a table"),
    }
}

/// `YYYY-MM-DD`, or that and `Thh:mm:ssZ`.
#[must_use]
pub fn parse_time(text: &str) -> Option<Wall> {
    let (date, time) = text.split_once(['T', ' ']).map_or((text, None), |(d, t)| (d, Some(t)));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let midnight = Wall::from_date(year, month, day)?;
    let Some(time) = time else { return Some(midnight) };
    let [hour, minute, second] = numbers(time.strip_suffix('Z')?, ':', [2, 2, 2])?;
    let within = hour < 24 && minute < 60 && second < 60;
    within.then_some(Wall(midnight.0 + hour * 3_600 + minute * 60 + second))
}

fn numbers(text: &str, between: char, widths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(between);
    let mut next = |width| {
        let part = parts.next().filter(|p| p.len() == width)?;
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let found = [next(widths[0])?, next(widths[1])?, next(widths[2])?];
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn astronaut() -> IdentityId {
        "astronaut".parse().unwrap()
    }

    fn faults(text: &str) -> String {
        parse(text, &astronaut()).unwrap_err().to_string()
    }

    #[test]
    fn the_template_is_a_record() {
        let record = parse(TEMPLATE, &astronaut()).unwrap();
        assert_eq!(record.scope, [Scope::Swap]);
        assert_eq!(record.granted.to_string(), "2026-11-30T00:00:00Z");
        assert_eq!(record.expires, Wall::from_date(2027, 11, 30).unwrap());
        assert_eq!(record.evidence, None);
    }

    #[test]
    fn a_stored_record_is_read_back_as_it_was() {
        let mut record = parse(TEMPLATE, &astronaut()).unwrap();
        record.evidence = Some(digest::of(b"form"));
        record.revoked = Some(Wall(1_800_000_000));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(parse(&text, &astronaut()).unwrap(), record);
    }

    #[test]
    fn every_fault_is_named_with_its_key_and_what_it_must_be() {
        let told = faults(
            "subject = 3\npurpose = ''\nscope = ['swap', 'sell']\ngranted = '2026-02-30'\n\
             operator = 'x'\nevidence = 'ab'\nidentity = 'hopper'\ncolour = 'red'\n",
        );
        for word in [
            "`colour` is not a key",
            "`subject`",
            "`purpose`",
            "`sell`",
            "`swap`, `reveal`",
            "`2026-02-30`",
            "YYYY-MM-DD",
            "`expires`",
            "missing",
            "`evidence`",
            "`hopper`",
        ] {
            assert!(told.contains(word), "{word} is not in: {told}");
        }
    }

    #[test]
    fn a_record_that_ends_before_it_begins_is_refused() {
        let text = TEMPLATE.replace("2027-11-30", "2026-11-30");
        assert!(faults(&text).contains("later than `granted`"));
    }

    #[test]
    fn text_of_neither_format_says_so() {
        assert!(faults("{\"subject\"").contains("not JSON"));
        assert!(faults("subject: x").contains("not TOML"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
            let _ = parse(&text, &astronaut());
        }

        #[test]
        fn times_are_read_as_they_are_printed(seconds in 0_u64..253_402_300_800) {
            proptest::prop_assert_eq!(parse_time(&Wall(seconds).to_string()), Some(Wall(seconds)));
        }
    }
}
