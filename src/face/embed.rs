//! Aligned crop to embedding.

use mien_base::id::ModelId;
use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::{Backend, Layout, Normalise};
use mien_engine::contract::{Contract, Dim, Port};
use mien_pixels::geometry::Size;

use crate::align;
use crate::meter::Meter;
use crate::subject::{Embedding, Landmarks5};
use crate::{Error, Result};

const SIDE: u32 = 112;
const NORMALISE: Normalise =
    Normalise { mean: [127.5; 3], scale: [1.0 / 128.0; 3], bgr: false, layout: Layout::Nchw };

/// The embedder's model.
pub struct Embedder<B: Backend> {
    manifest: Manifest,
    session: B::Session,
}

impl<B: Backend> std::fmt::Debug for Embedder<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Embedder({})", self.manifest.id)
    }
}

impl<B: Backend> Embedder<B> {
    /// Loads an embedder of the `ArcFace` kind, of any width.
    ///
    /// # Errors
    /// `Slot` for another family, `Engine` when the model can't be loaded.
    pub fn load(backend: &B, manifest: Manifest, bytes: &[u8]) -> Result<Self> {
        if (manifest.role, manifest.family) != (Role::Embedder, Family::ArcFace) {
            let detail = "recognition takes the family arcface".to_owned();
            return Err(Error::Slot { model: manifest.id, detail });
        }
        let side = Dim::Fixed(SIDE as usize);
        let port = |shape| Port { name: String::new(), shape };
        let contract = Contract {
            inputs: vec![port(vec![Dim::Any, Dim::Fixed(3), side, side])],
            outputs: vec![port(vec![Dim::Any, Dim::Any])],
        };
        let session = backend.load(&manifest, &contract, bytes).map_err(Error::engine("embed"))?;
        Ok(Self { manifest, session })
    }

    /// Its name and the digest of its file: embeddings compare only within one of them.
    #[must_use]
    pub fn space(&self) -> (ModelId, String) {
        (self.manifest.id.clone(), self.manifest.sha256.clone())
    }

    /// The embedding of the face that stands at `landmarks`.
    ///
    /// # Errors
    /// `Face` when the landmarks are implausible; `Engine` and `Output` when the model fails.
    pub fn embed(
        &mut self,
        backend: &B,
        picture: &B::Picture,
        landmarks: &Landmarks5,
        meter: &mut Meter<'_>,
    ) -> Result<Embedding> {
        let template = &align::ARCFACE_112_V2;
        let map = align::from_crop(landmarks, template, SIDE, backend.size(picture))?;
        let input = backend
            .crop_batch(picture, &[map], Size::new(SIDE, SIDE), &NORMALISE)
            .map_err(Error::engine("embed"))?;
        let outputs = meter.infer(backend, &mut self.session, &input, "embed")?;
        let values = outputs.into_iter().next().map(|t| t.data);
        values.and_then(Embedding::new).ok_or_else(|| Error::Output {
            model: self.manifest.id.clone(),
            family: "embedder",
            detail: "its output is no direction".to_owned(),
        })
    }
}
