//! Where a person stands in a picture, as a probability map.

use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::{Backend, Layout, Normalise};
use mien_engine::contract::{Contract, Dim, Port};
use mien_pixels::geometry::{Affine2, Size};

use crate::meter::Meter;
use crate::{Error, Result};

const SIDE: u32 = 256;
const NORMALISE: Normalise =
    Normalise { mean: [0.0; 3], scale: [1.0 / 255.0; 3], bgr: false, layout: Layout::Nchw };

/// The segmenter's model.
pub struct Segmenter<B: Backend> {
    manifest: Manifest,
    session: B::Session,
}

impl<B: Backend> std::fmt::Debug for Segmenter<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segmenter({})", self.manifest.id)
    }
}

/// A map of 256 x 256 probabilities and where it lies: `to_picture` takes map pixels to picture
/// pixels.
#[derive(Debug)]
pub struct PersonMap<T> {
    pub tensor: T,
    pub to_picture: Affine2,
}

impl<B: Backend> Segmenter<B> {
    /// Loads the segmenter.
    ///
    /// # Errors
    /// `Slot` for another family, `Engine` when the model can't be loaded.
    pub fn load(backend: &B, manifest: Manifest, bytes: &[u8]) -> Result<Self> {
        if (manifest.role, manifest.family) != (Role::Segmenter, Family::Selfie) {
            let detail = "segmentation takes the family selfie".to_owned();
            return Err(Error::Slot { model: manifest.id, detail });
        }
        let side = Dim::Fixed(SIDE as usize);
        let port = |shape| Port { name: String::new(), shape };
        let contract = Contract {
            inputs: vec![port(vec![Dim::Any, Dim::Fixed(3), side, side])],
            outputs: vec![port(vec![Dim::Any, Dim::Fixed(1), side, side])],
        };
        let session =
            backend.load(&manifest, &contract, bytes).map_err(Error::engine("segment"))?;
        Ok(Self { manifest, session })
    }

    /// The persons of a whole picture.
    ///
    /// # Errors
    /// `Engine` and `Output` when the model fails.
    pub fn find(
        &mut self,
        backend: &B,
        picture: &B::Picture,
        meter: &mut Meter<'_>,
    ) -> Result<PersonMap<B::Tensor>> {
        let size = backend.size(picture);
        let side = f64::from(SIDE);
        let to_picture = Affine2::translate(0.5, 0.5)
            .then(&Affine2::scale(f64::from(size.width) / side, f64::from(size.height) / side))
            .then(&Affine2::translate(-0.5, -0.5));
        let input = backend
            .crop_batch(picture, &[to_picture], Size::new(SIDE, SIDE), &NORMALISE)
            .map_err(Error::engine("segment"))?;
        let outputs = meter.run(&mut self.session, &[&input]).map_err(Error::engine("segment"))?;
        let nonsense = || {
            Err(Error::Output {
                model: self.manifest.id.clone(),
                family: "person segmenter",
                detail: "its output is no map of probabilities".to_owned(),
            })
        };
        let Some(tensor) = outputs.into_iter().next() else { return nonsense() };
        let map = backend.download(&tensor).map_err(Error::engine("segment"))?.data;
        let fine = map.iter().all(|v| (-0.01..=1.01).contains(v));
        if fine && map.len() == (SIDE * SIDE) as usize {
            return Ok(PersonMap { tensor, to_picture });
        }
        nonsense()
    }
}
