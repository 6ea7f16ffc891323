//! What a package says of its model: everything but the weights, signed as exact bytes.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use mien_base::clock::Wall;
use mien_base::id::ModelId;
use mien_base::limits;
use mien_base::model::{Family, Manifest as Model, Role};
use serde::{Deserialize, Serialize};

use crate::digest;
use crate::errors::{Error, Result};
use crate::refusal::Reason;

/// Type of the signed document.
pub const PAYLOAD_TYPE: &str = "application/vnd.mien.model+json;version=1";
/// The interface between a model and this program. It grows when a family is fed or read anew.
pub const API: u32 = 1;
/// The oldest interface that is still served.
pub const OLDEST_API: u32 = 1;

/// Longest text of a field, in bytes.
const TEXT: usize = 1024;
/// Most inputs and outputs, and most axes of one.
const PORTS: usize = 64;

/// A version, `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// The version of this program.
    #[must_use]
    pub fn of_program() -> Self {
        env!("CARGO_PKG_VERSION").parse().expect("cargo writes three numbers")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl FromStr for Version {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::BadKey { what: "A version", must: "three numbers, as 1.0.0" };
        let number = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            let short = part == "0" || !part.starts_with('0');
            part.parse().ok().filter(|_| plain && short).ok_or_else(bad)
        };
        let parts: Vec<&str> = text.split('.').collect();
        match parts.as_slice() {
            [major, minor, patch] => Ok(Self(number(major)?, number(minor)?, number(patch)?)),
            _ => Err(bad()),
        }
    }
}

impl TryFrom<String> for Version {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

/// In what numbers a model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    Fp32,
    /// Half precision, stored or computed.
    Fp16,
    /// Q/DQ in the graph.
    Int8,
}

/// How far a model may be from the FP32 one of the same name, on frames that the device holds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Least mean overlap (IoU) of boxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub box_iou: Option<f32>,
    /// Most mean distance of landmarks, as a share of the face's width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landmark_drift: Option<f32>,
    /// Least cosine between embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f32>,
    /// Least PSNR of made pictures, in dB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psnr: Option<f32>,
}

impl Bounds {
    /// Nothing is bounded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn fault(&self) -> Option<&'static str> {
        let within = |value: Option<f32>, least: f32, most: f32| {
            value.is_none_or(|v| v.is_finite() && v >= least && v <= most)
        };
        if !within(self.box_iou, 0.0, 1.0) {
            Some("`bounds.box_iou` must be 0 to 1")
        } else if !within(self.landmark_drift, 0.0, 1.0) {
            Some("`bounds.landmark_drift` must be 0 to 1")
        } else if !within(self.cosine, -1.0, 1.0) {
            Some("`bounds.cosine` must be -1 to 1")
        } else if !within(self.psnr, 0.0, 200.0) {
            Some("`bounds.psnr` must be 0 to 200")
        } else {
            None
        }
    }
}

/// An input or output of the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    pub name: String,
    /// 0: any.
    pub shape: Vec<u32>,
    /// As ONNX names it: `float32`, `uint8`, ….
    pub dtype: String,
}

/// What the model's graph takes and gives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    #[serde(default)]
    pub inputs: Vec<Port>,
    #[serde(default)]
    pub outputs: Vec<Port>,
}

/// What a package says of its model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub id: ModelId,
    pub role: Role,
    /// Names how the model is fed and read.
    pub family: Family,
    pub version: Version,
    /// The interface that it needs, see [`API`].
    pub api: u32,
    /// Never falls: a package below what was installed once is refused.
    pub security_version: u64,
    /// SHA-256 of the ONNX file, 64 hex digits.
    pub sha256: String,
    /// Size of the ONNX file.
    pub bytes: u64,
    pub precision: Precision,
    #[serde(default, skip_serializing_if = "Bounds::is_empty")]
    pub bounds: Bounds,
    /// SPDX expression, or the licence's own words.
    pub licence: String,
    /// False when the licence forbids commercial use.
    pub commercial: bool,
    /// Where the weights come from.
    pub origin: String,
    pub created: Wall,
    /// The first second in which it is no longer installed or served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Wall>,
    /// The oldest program that it works with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<Version>,
    #[serde(default)]
    pub contract: Contract,
}

impl Manifest {
    /// The words that both processes know a model by.
    #[must_use]
    pub fn model(&self) -> Model {
        Model {
            id: self.id.clone(),
            role: self.role,
            family: self.family,
            sha256: self.sha256.clone(),
            bytes: self.bytes,
            licence: self.licence.clone(),
            commercial: self.commercial,
        }
    }

    /// The bytes that are signed.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are JSON")
    }

    /// Reads and checks what was signed.
    ///
    /// # Errors
    /// `Refused` with `ManifestMalformed`, and the key that can't be.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let bad = |why: &str| Error::refused("The manifest", Reason::ManifestMalformed, why);
        let manifest: Self = serde_json::from_slice(json).map_err(|e| bad(&e.to_string()))?;
        manifest.check().map_err(|why| bad(&why))?;
        Ok(manifest)
    }

    /// What can't be, said of its key.
    ///
    /// # Errors
    /// The fault.
    pub fn check(&self) -> std::result::Result<(), String> {
        let text = |key: &str, value: &str| {
            let fits = (1..=TEXT).contains(&value.len()) && !value.chars().any(char::is_control);
            if fits { Ok(()) } else { Err(format!("`{key}` must be 1 to {TEXT} printable bytes")) }
        };
        text("licence", &self.licence)?;
        text("origin", &self.origin)?;
        if !digest::is_hex(&self.sha256) {
            return Err("`sha256` must be 64 digits of 0-9, a-f".to_owned());
        }
        if self.bytes == 0 || self.bytes > limits::MODEL_FILE {
            return Err(format!("`bytes` must be 1 to {}", limits::MODEL_FILE));
        }
        if let Some(fault) = self.bounds.fault() {
            return Err(fault.to_owned());
        }
        for ports in [&self.contract.inputs, &self.contract.outputs] {
            if ports.len() > PORTS || ports.iter().any(|port| port.shape.len() > PORTS) {
                return Err(format!("`contract` has more than {PORTS} ports or axes"));
            }
            for port in ports {
                text("contract.name", &port.name)?;
                text("contract.dtype", &port.dtype)?;
            }
        }
        if self.expires.is_some_and(|at| at <= self.created) {
            return Err("`expires` must be later than `created`".to_owned());
        }
        Ok(())
    }

    /// Whether this program can serve it now.
    ///
    /// # Errors
    /// `Refused`: `ManifestExpired`, `ApiVersion`, `ProgramTooOld`.
    pub fn fits(&self, program: Version, now: Wall) -> Result<()> {
        let refuse = |reason, why: String| Err(Error::refused("The package", reason, &why));
        if let Some(at) = self.expires.filter(|at| *at <= now) {
            return refuse(Reason::ManifestExpired, format!("it expired at {at}"));
        }
        if !(OLDEST_API..=API).contains(&self.api) {
            let why = format!("it needs interface {}, here are {OLDEST_API} to {API}", self.api);
            return refuse(Reason::ApiVersion, why);
        }
        match self.requires.map(|least| (least, least.cmp(&program))) {
            Some((least, Ordering::Greater)) => {
                refuse(Reason::ProgramTooOld, format!("it needs mien {least}, this is {program}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn manifest(id: &str, model: &[u8]) -> Manifest {
        Manifest {
            id: id.parse().unwrap(),
            role: Role::Detector,
            family: Family::CenterFace,
            version: Version(1, 0, 0),
            api: API,
            security_version: 1,
            sha256: digest::of(model),
            bytes: model.len() as u64,
            precision: Precision::Fp32,
            bounds: Bounds::default(),
            licence: "MIT".to_owned(),
            commercial: true,
            origin: "made for a test".to_owned(),
            created: Wall(1_700_000_000),
            expires: None,
            requires: None,
            contract: Contract::default(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut made = manifest("m", b"weights");
        made.bounds.cosine = Some(0.98);
        made.contract.inputs.push(Port {
            name: "x".to_owned(),
            shape: vec![1, 3, 0, 0],
            dtype: "float32".to_owned(),
        });
        assert_eq!(Manifest::parse(&made.to_json()).unwrap(), made);
    }

    #[test]
    fn each_value_that_cannot_be_is_named() {
        type Change = fn(&mut Manifest);
        let changes: [(&str, Change); 8] = [
            ("licence", |m| m.licence.clear()),
            ("origin", |m| m.origin = "a\nb".to_owned()),
            ("sha256", |m| m.sha256.make_ascii_uppercase()),
            ("bytes", |m| m.bytes = 0),
            ("bytes", |m| m.bytes = limits::MODEL_FILE + 1),
            ("cosine", |m| m.bounds.cosine = Some(2.0)),
            ("contract", |m| {
                let port = Port { name: "x".to_owned(), shape: vec![], dtype: "d".to_owned() };
                m.contract.outputs = vec![port; PORTS + 1];
            }),
            ("expires", |m| m.expires = Some(m.created)),
        ];
        for (key, change) in changes {
            let mut made = manifest("m", b"weights");
            change(&mut made);
            let error = Manifest::parse(&made.to_json()).unwrap_err();
            assert_eq!(error.reason(), Some(Reason::ManifestMalformed));
            assert!(error.to_string().contains(key), "{key}: {error}");
        }
        let more = String::from_utf8(manifest("m", b"w").to_json()).unwrap();
        let more = more.replacen('{', "{\"colour\":1,", 1);
        assert!(Manifest::parse(more.as_bytes()).is_err());
    }

    #[test]
    fn the_compatibility_table_holds() {
        let here = Version(0, 4, 2);
        let reason = |api, requires: Option<&str>, expires: Option<u64>| {
            let mut made = manifest("m", b"w");
            made.api = api;
            made.requires = requires.map(|text| text.parse().unwrap());
            made.expires = expires.map(Wall);
            made.fits(here, Wall(1_800_000_000)).err().and_then(|error| error.reason())
        };
        for (api, requires, expires, expected) in [
            (API, None, None, None),
            (API, Some("0.4.2"), None, None),
            (API, Some("0.3.9"), None, None),
            (API, Some("0.4.3"), None, Some(Reason::ProgramTooOld)),
            (API, Some("1.0.0"), None, Some(Reason::ProgramTooOld)),
            (API + 1, None, None, Some(Reason::ApiVersion)),
            (OLDEST_API - 1, None, None, Some(Reason::ApiVersion)),
            (API, None, Some(1_800_000_001), None),
            (API, None, Some(1_800_000_000), Some(Reason::ManifestExpired)),
            (API + 1, Some("9.0.0"), Some(1), Some(Reason::ManifestExpired)),
        ] {
            assert_eq!(reason(api, requires, expires), expected, "{api} {requires:?} {expires:?}");
        }
    }

    #[test]
    fn versions_are_three_numbers_and_ordered() {
        let version = |text: &str| text.parse::<Version>();
        assert!(version("1.10.0").unwrap() > version("1.9.9").unwrap());
        for bad in ["1.0", "1.0.0.0", "01.0.0", "1.0.x", "+1.0.0", ""] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }
}
