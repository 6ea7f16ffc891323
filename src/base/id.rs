//! Identifiers: parse, print, never mix.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits;

/// A name that is not one: empty, too long, or with a character outside `[a-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{text}` must be 1 to {max} characters of a-z, 0-9, `.`, `_`, `-`, and begin with a letter or digit", max = limits::NAME)]
pub struct BadName {
    /// Which identifier was asked for.
    pub what: &'static str,
    /// The text, cut to a printable length.
    pub text: String,
}

fn check(what: &'static str, text: &str) -> Result<(), BadName> {
    let ok = !text.is_empty()
        && text.len() <= limits::NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b));
    if ok {
        return Ok(());
    }
    let text = text.chars().take(80).flat_map(char::escape_debug).collect();
    Err(BadName { what, text })
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                check($what, text)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                check($what, &text)?;
                Ok(Self(text))
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }
    };
}

name!(
    /// A person enrolled in the gallery (a pseudonym, never a legal name).
    IdentityId,
    "identity"
);
name!(
    /// A model in the catalogue, for example `centerface`.
    ModelId,
    "model"
);

/// One job: what is asked for once and has one effect. Printed as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub [u8; 16]);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

/// A job id that is not 32 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("A job id is 32 hex digits")]
pub struct BadJobId;

impl FromStr for JobId {
    type Err = BadJobId;
    fn from_str(text: &str) -> Result<Self, BadJobId> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(BadJobId);
        }
        let value = u128::from_str_radix(text, 16).map_err(|_| BadJobId)?;
        Ok(Self(value.to_be_bytes()))
    }
}

/// The 28-bit number of a device that stands in its watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId(u32);

impl DeviceId {
    /// Largest device number.
    pub const MAX: u32 = (1 << 28) - 1;

    /// A device number, `None` beyond 28 bits.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_plain() {
        assert!("astronaut".parse::<IdentityId>().is_ok());
        for bad in ["", "A", "../x", "a b", "é", "-a", &"a".repeat(65)] {
            assert!(bad.parse::<IdentityId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn job_id_prints_what_it_parses() {
        let text = "00112233445566778899aabbccddeeff";
        assert_eq!(text.parse::<JobId>().unwrap().to_string(), text);
        assert!("+0112233445566778899aabbccddeeff".parse::<JobId>().is_err());
    }
}
