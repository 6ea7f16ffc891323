//! A manifest as its author writes it, in TOML; what can be measured is measured, not written.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use mien_base::clock::Wall;
use mien_base::id::ModelId;
use mien_base::limits;
use mien_base::model::{Family, Manifest as Model, Role};
use serde::Deserialize;

use crate::consent;
use crate::digest;
use crate::errors::{Error, Result};
use crate::files;
use crate::manifest::{API, Bounds, Contract, Manifest, Precision, Version};

/// A draft to copy and fill in.
pub const TEMPLATE: &str = r#"# What a model package says of its model. Size and digest are measured.
id = "my-detector"
role = "detector"             # detector landmarks embedder gate segmenter swapper crossface judge
family = "scrfd"              # how it is fed and read: centerface blazeback blazeshort scrfd
                              # retinaface yoloface yunet facemesh arcface opennsfw selfie
                              # inswapper simswap ghost crossface dlibresnet
version = "1.0.0"
security_version = 1          # raise it when older versions must not come back
precision = "fp32"            # fp32 fp16 int8
licence = "MIT"
commercial = true             # false: refused where vault.toml says `commercial = true`
origin = "trained by us, run 17"
# expires = "2027-11-30"      # the first day on which it is refused
# requires = "0.1.0"          # the oldest mien that serves it
# [bounds]                    # INT8 only: how far from FP32 it may be on the device's own check
# box_iou = 0.9
# landmark_drift = 0.03
# cosine = 0.97
# psnr = 30.0
"#;

/// A manifest without what is measured.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    pub id: ModelId,
    pub role: Role,
    pub family: Family,
    pub version: Version,
    #[serde(default = "one")]
    pub security_version: u64,
    #[serde(default = "api")]
    pub api: u32,
    #[serde(default = "full")]
    pub precision: Precision,
    #[serde(default)]
    pub bounds: Bounds,
    pub licence: String,
    pub commercial: bool,
    pub origin: String,
    /// A date or a time.
    #[serde(default)]
    pub expires: Option<String>,
    #[serde(default)]
    pub requires: Option<Version>,
    #[serde(default)]
    pub contract: Contract,
}

const fn one() -> u64 {
    1
}

const fn api() -> u32 {
    API
}

const fn full() -> Precision {
    Precision::Fp32
}

impl Draft {
    /// Reads a draft, or a plain manifest of one's own model beside its ONNX file.
    ///
    /// # Errors
    /// `Manifest` with the key that can't be; `TooLarge`, `Io`.
    pub fn read(path: &Path) -> Result<Self> {
        let refuse = |why: String| Error::Manifest { path: path.to_owned(), why };
        let bytes = files::read_bounded(path, limits::TEXT_FILE)?;
        let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8".to_owned()))?;
        match toml::from_str(&text) {
            Ok(draft) => Ok(draft),
            Err(error) => match toml::from_str::<Model>(&text) {
                Ok(model) => Ok(Self::of_plain(model)),
                Err(_) => Err(refuse(error.message().to_owned())),
            },
        }
    }

    fn of_plain(model: Model) -> Self {
        Self {
            id: model.id,
            role: model.role,
            family: model.family,
            version: Version(1, 0, 0),
            security_version: 1,
            api: API,
            precision: Precision::Fp32,
            bounds: Bounds::default(),
            licence: model.licence,
            commercial: model.commercial,
            origin: "a plain model of this machine".to_owned(),
            expires: None,
            requires: None,
            contract: Contract::default(),
        }
    }

    /// The manifest of a model file, and the file at its beginning.
    ///
    /// # Errors
    /// `Manifest` for what can't be; `TooLarge`, `Io`.
    pub fn measure(self, model: &Path, now: Wall) -> Result<(Manifest, File)> {
        let refuse = |why: &str| Error::Manifest { path: model.to_owned(), why: why.to_owned() };
        let mut file = files::open_regular(model)?;
        let (sha256, bytes) =
            digest::of_reader(&file, limits::MODEL_FILE).map_err(files::io("read", model))?;
        if bytes > limits::MODEL_FILE {
            return Err(Error::TooLarge { path: model.to_owned(), max: limits::MODEL_FILE });
        }
        file.seek(SeekFrom::Start(0)).map_err(files::io("read", model))?;
        let bad_date = || refuse("`expires` must be a date `YYYY-MM-DD` or a time in UTC");
        let expires =
            self.expires.as_deref().map(|text| consent::parse_time(text).ok_or_else(bad_date));
        let manifest = Manifest {
            id: self.id,
            role: self.role,
            family: self.family,
            version: self.version,
            api: self.api,
            security_version: self.security_version,
            sha256,
            bytes,
            precision: self.precision,
            bounds: self.bounds,
            licence: self.licence,
            commercial: self.commercial,
            origin: self.origin,
            created: now,
            expires: expires.transpose()?,
            requires: self.requires,
            contract: self.contract,
        };
        manifest.check().map_err(|why| refuse(&why))?;
        Ok((manifest, file))
    }
}

/// The model and the draft that a user means: a folder with `model.onnx` and `manifest.toml`, or
/// `NAME.onnx` beside `NAME.toml`.
#[must_use]
pub fn places(given: &Path) -> (PathBuf, PathBuf) {
    if given.is_dir() {
        (given.join("model.onnx"), given.join("manifest.toml"))
    } else {
        (given.to_owned(), given.with_extension("toml"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::Scratch;

    #[test]
    fn the_template_is_a_draft_and_what_is_measured_is_right() {
        let scratch = Scratch::new();
        let (model, draft) = (scratch.0.join("m.onnx"), scratch.0.join("m.toml"));
        std::fs::write(&model, b"weights").unwrap();
        std::fs::write(&draft, format!("expires = \"2030-01-01\"\n{TEMPLATE}")).unwrap();
        assert_eq!(places(&model), (model.clone(), draft.clone()));
        let (made, _) = Draft::read(&draft).unwrap().measure(&model, Wall(5)).unwrap();
        assert_eq!((made.bytes, made.sha256.as_str()), (7, digest::of(b"weights").as_str()));
        assert_eq!(made.expires, Wall::from_date(2030, 1, 1));
        made.check().unwrap();
    }

    #[test]
    fn the_plain_manifest_of_an_own_model_is_taken_as_one() {
        let scratch = Scratch::new();
        let path = scratch.0.join("m.toml");
        let model = crate::manifest::tests::manifest("m", b"w").model();
        std::fs::write(&path, toml::to_string(&model).unwrap()).unwrap();
        assert_eq!(Draft::read(&path).unwrap().id, model.id);
        std::fs::write(&path, TEMPLATE.replace("licence", "license")).unwrap();
        assert!(Draft::read(&path).unwrap_err().to_string().contains("license"));
        let bad = TEMPLATE.replace("# expires = \"2027-11-30\"", "expires = \"soon\"");
        std::fs::write(&path, bad).unwrap();
        std::fs::write(scratch.0.join("m.onnx"), b"w").unwrap();
        let refused = Draft::read(&path).unwrap().measure(&scratch.0.join("m.onnx"), Wall(0));
        assert!(refused.unwrap_err().to_string().contains("`expires`"));
    }
}
