//! An independent embedder that judges results; only tests and the demo use it, never `process`.

use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::{Backend, Layout, Normalise};
use mien_engine::contract::{Contract, Dim, Port};
use mien_pixels::geometry::{Affine2, Point, Size};

use crate::meter::Meter;
use crate::subject::Landmarks5;
use crate::{Error, Result};

/// Two descriptors nearer than this are of one person.
pub const SAME: f32 = 0.6;

const SIDE: u32 = 150;
const WIDTH: usize = 128;
const NORMALISE: Normalise =
    Normalise { mean: [0.0; 3], scale: [1.0; 3], bgr: false, layout: Layout::Nhwc };
/// The five points in dlib's mean shape, before its padding of a quarter on each side.
const SHAPE: [(f32, f32); 5] =
    [(0.225, 0.216), (0.755, 0.216), (0.49, 0.516), (0.254, 0.78), (0.726, 0.78)];

/// dlib's descriptor of a face; not normalised.
#[derive(Debug, Clone, PartialEq)]
pub struct Descriptor(Vec<f32>);

impl Descriptor {
    /// 128 finite values.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.0
    }

    /// Euclidean distance.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f32 {
        self.0.iter().zip(&other.0).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt()
    }
}

/// The judge's model.
pub struct Judge<B: Backend> {
    manifest: Manifest,
    session: B::Session,
}

impl<B: Backend> std::fmt::Debug for Judge<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Judge({})", self.manifest.id)
    }
}

impl<B: Backend> Judge<B> {
    /// Loads dlib's descriptor.
    ///
    /// # Errors
    /// `Slot` for another family, `Engine` when the model can't be loaded.
    pub fn load(backend: &B, manifest: Manifest, bytes: &[u8]) -> Result<Self> {
        if (manifest.role, manifest.family) != (Role::Judge, Family::DlibResNet) {
            let detail = "the judge takes the family dlibresnet".to_owned();
            return Err(Error::Slot { model: manifest.id, detail });
        }
        let side = Dim::Fixed(SIDE as usize);
        let port = |shape| Port { name: String::new(), shape };
        let contract = Contract {
            inputs: vec![port(vec![Dim::Any, side, side, Dim::Fixed(3)])],
            outputs: vec![port(vec![Dim::Any, Dim::Fixed(WIDTH)])],
        };
        let session = backend.load(&manifest, &contract, bytes).map_err(Error::engine("judge"))?;
        Ok(Self { manifest, session })
    }

    /// The descriptor of the face that stands at `landmarks`, wherever they come from: an attacker
    /// may know them.
    ///
    /// # Errors
    /// `Face` when the landmarks coincide; `Engine` and `Output` when the model fails.
    pub fn describe(
        &mut self,
        backend: &B,
        picture: &B::Picture,
        landmarks: &Landmarks5,
        meter: &mut Meter<'_>,
    ) -> Result<Descriptor> {
        let place = |v: f32| (v + 0.25) / 1.5 * SIDE as f32;
        let wanted = SHAPE.map(|(x, y)| Point::new(place(x), place(y)));
        let map = Affine2::similarity(&wanted, landmarks.points())
            .ok_or_else(|| Error::Face { detail: "its points coincide".to_owned() })?;
        let input = backend
            .crop_batch(picture, &[map], Size::new(SIDE, SIDE), &NORMALISE)
            .map_err(Error::engine("judge"))?;
        let outputs = meter.infer(backend, &mut self.session, &input, "judge")?;
        let values = outputs.into_iter().next().map(|t| t.data).unwrap_or_default();
        if values.len() == WIDTH && values.iter().all(|v| v.is_finite()) {
            return Ok(Descriptor(values));
        }
        Err(Error::Output {
            model: self.manifest.id.clone(),
            family: "dlib descriptor",
            detail: "its output is not 128 finite values".to_owned(),
        })
    }
}
