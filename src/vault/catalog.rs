//! What a fresh machine can get by package name: models and pictures, each with digest and licence.

use std::sync::OnceLock;

use mien_base::id::ModelId;
use mien_base::model::{Family, Manifest, Role};
use serde::Deserialize;

/// A model, and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogModel {
    pub id: ModelId,
    pub role: Role,
    pub family: Family,
    /// SHA-256 of the ONNX file, 64 hex digits.
    pub sha256: String,
    /// Size of the ONNX file.
    pub bytes: u64,
    pub licence: String,
    pub commercial: bool,
    /// Got only when asked for by name.
    #[serde(default)]
    pub extra: bool,
    /// Name of the package that holds it.
    pub package: String,
    /// Files of the package that the step reads, in its order.
    pub members: Vec<Member>,
    pub step: Step,
}

impl CatalogModel {
    /// The words that both processes know a model by.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        Manifest {
            id: self.id.clone(),
            role: self.role,
            family: self.family,
            sha256: self.sha256.clone(),
            bytes: self.bytes,
            licence: self.licence.clone(),
            commercial: self.commercial,
        }
    }
}

/// A picture, and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    pub id: String,
    pub group: Group,
    /// Name of the finished file.
    pub file: String,
    pub sha256: String,
    pub bytes: u64,
    pub licence: String,
    pub package: String,
    pub members: Vec<Member>,
    pub step: Step,
}

/// What pictures are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Portraits that `mien demo` works on.
    Demo,
    /// Groups of people that tests count faces on.
    Test,
}

/// A file inside a package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// How members become the file: a function of `models/convert`, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// ONNX: initialisers out of the inputs, weights stored as half precision.
    Onnx,
    /// The same, with the input's height and width left open.
    Centerface,
    /// TensorFlow Lite to ONNX.
    Tflite,
    /// The same, with the batch left open and weights stored as half precision.
    TfliteBatch,
    /// Weights of face-api's recognition network to ONNX.
    Dlib,
    /// A TF.js layers model to ONNX.
    Nsfwjs,
    /// The member as it is.
    Copy,
    /// One frame of an H.264 clip to PNG.
    Frame,
}

impl Step {
    /// The name that the converter knows it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::Centerface => "centerface",
            Self::Tflite => "tflite",
            Self::TfliteBatch => "tflite-batch",
            Self::Dlib => "dlib",
            Self::Nsfwjs => "nsfwjs",
            Self::Copy => "copy",
            Self::Frame => "frame",
        }
    }
}

/// A package of a registry, one file of it pinned.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    pub name: String,
    pub registry: Registry,
    pub version: String,
    /// The file's name as its registry gives it.
    pub file: String,
    pub bytes: u64,
    pub sha256: String,
    /// Which of a wheel's platforms is meant, where it has several.
    #[serde(default)]
    pub wheel: Option<Wheel>,
}

/// Where a package comes from, and by which client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registry {
    /// Python packages, by pip.
    Pypi,
    /// Node packages, by npm.
    Npm,
    /// Rust packages, by cargo.
    Crates,
}

/// Tags of one wheel.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    pub python: String,
    pub abi: String,
    pub platform: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Models {
    model: Vec<CatalogModel>,
    package: Vec<Package>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pictures {
    picture: Vec<Picture>,
    package: Vec<Package>,
}

fn parsed() -> &'static (Models, Pictures) {
    static PARSED: OnceLock<(Models, Pictures)> = OnceLock::new();
    PARSED.get_or_init(|| {
        let models = toml::from_str(include_str!("../../models/catalog.toml"));
        let pictures = toml::from_str(include_str!("../../models/pictures.toml"));
        (models.expect("a test parses it"), pictures.expect("a test parses it"))
    })
}

/// Every model, in order of preference within its role.
#[must_use]
pub fn models() -> &'static [CatalogModel] {
    &parsed().0.model
}

/// The model with this id.
#[must_use]
pub fn model(id: &ModelId) -> Option<&'static CatalogModel> {
    models().iter().find(|model| model.id == *id)
}

/// Every picture.
#[must_use]
pub fn pictures() -> &'static [Picture] {
    &parsed().1.picture
}

/// The package with this name.
#[must_use]
pub fn package(name: &str) -> Option<&'static Package> {
    let (models, pictures) = parsed();
    models.package.iter().chain(&pictures.package).find(|package| package.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest;

    #[test]
    fn every_model_is_pinned_from_package_to_result() {
        for model in models() {
            let package = package(&model.package).expect(&model.package);
            assert!(digest::is_hex(&model.sha256), "{}", model.id);
            assert!(digest::is_hex(&package.sha256), "{}", package.name);
            assert!(model.members.iter().all(|m| digest::is_hex(&m.sha256) && m.bytes > 0));
            assert!(!model.members.is_empty() && model.bytes > 0 && package.bytes > 0);
        }
        assert_eq!(models().len(), 9);
    }

    #[test]
    fn every_picture_is_pinned_too() {
        for picture in pictures() {
            let package = package(&picture.package).expect(&picture.package);
            assert!(digest::is_hex(&picture.sha256) && digest::is_hex(&package.sha256));
            assert!(picture.members.iter().all(|m| digest::is_hex(&m.sha256)));
            assert!(!picture.file.contains('/'), "{}", picture.file);
            let npm = package.registry == Registry::Npm;
            assert!(picture.group == Group::Test || !npm, "the demo must do without npm");
        }
    }

    #[test]
    fn without_npm_only_recognition_the_judge_and_extras_are_missing() {
        for model in models().iter().filter(|model| !model.extra) {
            let npm = package(&model.package).unwrap().registry == Registry::Npm;
            assert_eq!(npm, matches!(model.role, Role::Embedder | Role::Judge), "{}", model.id);
        }
    }
}
