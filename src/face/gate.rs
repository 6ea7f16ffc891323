//! Content gate: a picture becomes `Passed` or is refused. Only `Gate::inspect` makes a `Passed`.
//!
//! ```compile_fail,E0451
//! let forged = mien_face::gate::Passed { inner: 1, score: 0.0 };
//! ```

use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::{Backend, Layout, Normalise};
use mien_engine::contract::{Contract, Dim, Port};
use mien_pixels::geometry::{Affine2, Size};

use crate::meter::Meter;
use crate::{Error, Result};

/// A score at or above it refuses the picture.
pub const LIMIT: f32 = 0.8;

const SIDE: u32 = 224;
/// The picture is stretched to this side and its centre is shown to the model.
const WHOLE: f64 = 256.0;
const NORMALISE: Normalise =
    Normalise { mean: [104.0, 117.0, 123.0], scale: [1.0; 3], bgr: true, layout: Layout::Nhwc };

/// Proof that the gate saw what is inside and let it pass.
#[derive(Debug)]
pub struct Passed<T> {
    inner: T,
    score: f32,
}

impl<T> Passed<T> {
    /// What passed.
    #[must_use]
    pub const fn get(&self) -> &T {
        &self.inner
    }

    /// For the stages that alter it in place.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// What passed, without the proof.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// What passed, and the proof by itself.
    pub(crate) fn into_parts(self) -> (T, Passed<()>) {
        (self.inner, Passed { inner: (), score: self.score })
    }

    /// Probability of unsafe content that the gate saw, below `LIMIT`.
    #[must_use]
    pub const fn score(&self) -> f32 {
        self.score
    }
}

impl Passed<()> {
    /// Another frame of the scene in which the gate saw one a moment ago.
    pub(crate) const fn of_scene<T>(&self, inner: T) -> Passed<T> {
        Passed { inner, score: self.score }
    }
}

/// The gate's model.
pub struct Gate<B: Backend> {
    manifest: Manifest,
    session: B::Session,
}

impl<B: Backend> std::fmt::Debug for Gate<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate({})", self.manifest.id)
    }
}

impl<B: Backend> Gate<B> {
    /// Loads `open_nsfw`.
    ///
    /// # Errors
    /// `Slot` for another family, `Engine` when the model can't be loaded.
    pub fn load(backend: &B, manifest: Manifest, bytes: &[u8]) -> Result<Self> {
        if (manifest.role, manifest.family) != (Role::Gate, Family::OpenNsfw) {
            return Err(Error::Slot {
                model: manifest.id,
                detail: "the content gate takes the family opennsfw".to_owned(),
            });
        }
        let side = Dim::Fixed(SIDE as usize);
        let contract = Contract {
            inputs: vec![Port {
                name: String::new(),
                shape: vec![Dim::Any, side, side, Dim::Fixed(3)],
            }],
            outputs: vec![Port { name: String::new(), shape: vec![Dim::Any, Dim::Fixed(2)] }],
        };
        let session =
            backend.load(&manifest, &contract, bytes).map_err(Error::engine("content gate"))?;
        Ok(Self { manifest, session })
    }

    /// Looks at a picture.
    ///
    /// # Errors
    /// `Refused` at or above `LIMIT`; whatever keeps the model from a verdict is an error too.
    pub fn inspect(
        &mut self,
        backend: &B,
        picture: B::Picture,
        meter: &mut Meter<'_>,
    ) -> Result<Passed<B::Picture>> {
        let score = self.score(backend, &picture, meter)?;
        if score < LIMIT {
            return Ok(Passed { inner: picture, score });
        }
        Err(Error::Refused { score, limit: LIMIT })
    }

    fn score(&mut self, backend: &B, picture: &B::Picture, meter: &mut Meter<'_>) -> Result<f32> {
        let size = backend.size(picture);
        let border = (WHOLE - f64::from(SIDE)) / 2.0;
        // Pixel centres stand at whole coordinates: half a pixel out, scale, half a pixel back.
        let map = Affine2::translate(border + 0.5, border + 0.5)
            .then(&Affine2::scale(f64::from(size.width) / WHOLE, f64::from(size.height) / WHOLE))
            .then(&Affine2::translate(-0.5, -0.5));
        let input = backend
            .crop_batch(picture, &[map], Size::new(SIDE, SIDE), &NORMALISE)
            .map_err(Error::engine("content gate"))?;
        let outputs = meter.infer(backend, &mut self.session, &input, "content gate")?;
        outputs.first().and_then(|t| read(&t.data)).ok_or_else(|| Error::Output {
            model: self.manifest.id.clone(),
            family: "open_nsfw",
            detail: "its output is not two probabilities".to_owned(),
        })
    }
}

/// The second of two probabilities; `None` when they are none.
fn read(verdict: &[f32]) -> Option<f32> {
    let &[safe, other] = verdict else { return None };
    let fine = (0.0..=1.0).contains(&safe)
        && (0.0..=1.0).contains(&other)
        && (safe + other - 1.0).abs() < 0.01;
    fine.then_some(other)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn only_two_probabilities_are_a_verdict() {
        assert_eq!(read(&[0.9, 0.1]), Some(0.1));
        for none in [&[][..], &[0.1], &[0.0, 0.0], &[f32::NAN, 0.1], &[-1.0, 2.0], &[0.9, 0.1, 0.0]]
        {
            assert_eq!(read(none), None, "{none:?}");
        }
    }
}
