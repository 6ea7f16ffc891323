//! Real models and pictures from the folders that `tests/run` names.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;

use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::Backend;
use mien_engine::cpu::Cpu;
use mien_face::models::Models;
use mien_pixels::codec;
use mien_pixels::view::Rgb;

pub(crate) fn backend() -> Arc<Cpu> {
    Arc::new(Cpu::new(1))
}

fn folder(variable: &str) -> PathBuf {
    std::env::var_os(variable).map(PathBuf::from).expect("tests/run sets it")
}

pub(crate) fn picture(name: &str) -> Rgb {
    let bytes = std::fs::read(folder("MIEN_PICTURES").join(name)).unwrap();
    codec::decode(&bytes, &codec::Bounds::default()).unwrap().rgb
}

pub(crate) fn model(id: &str, role: Role, family: Family) -> (Manifest, Vec<u8>) {
    let bytes = std::fs::read(folder("MIEN_MODELS").join(format!("{id}.onnx"))).unwrap();
    let manifest = Manifest {
        id: id.parse().unwrap(),
        role,
        family,
        sha256: "0".repeat(64),
        bytes: bytes.len() as u64,
        licence: String::new(),
        commercial: true,
    };
    (manifest, bytes)
}

/// All models that a machine can get.
pub(crate) fn models() -> Models<Cpu> {
    models_on(backend())
}

/// The same on another backend.
pub(crate) fn models_on<B: Backend>(backend: Arc<B>) -> Models<B> {
    let mut models = Models::new(backend);
    for (id, role, family) in [
        ("centerface", Role::Detector, Family::CenterFace),
        ("blazeface_back256", Role::Detector, Family::BlazeBack),
        ("blazeface_short128", Role::Detector, Family::BlazeShort),
        ("facemesh468", Role::Landmarks, Family::FaceMesh),
        ("mobilefacenet192", Role::Embedder, Family::ArcFace),
        ("open_nsfw", Role::Gate, Family::OpenNsfw),
        ("selfie256", Role::Segmenter, Family::Selfie),
        ("dlib_resnet128", Role::Judge, Family::DlibResNet),
    ] {
        let (manifest, bytes) = model(id, role, family);
        models.load(manifest, &bytes).unwrap();
    }
    models
}
