//! The swap by a generator: a source's latent and a target's crop in, a new crop out.

use mien_base::id::ModelId;
use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::{Backend, Layout, Normalise, Session};
use mien_engine::contract::{Contract, Dim, Port};
use mien_engine::onnx::{self, Constant};
use mien_engine::tensor::Tensor;
use mien_pixels::geometry::Size;

use crate::align::{self, ARCFACE_112_V1, ARCFACE_128, Template};
use crate::consent::Consent;
use crate::mask::{Place, Region};
use crate::meter::Meter;
use crate::paste;
use crate::subject::{Embedding, Face, Landmarks5};
use crate::{Error, Result};

/// Crops as multiples of a generator's own side.
pub const BOOST_MOST: u32 = 4;
/// The weight that leaves a latent as it is.
const NEUTRAL: f32 = 0.5;
/// Length of an `ArcFace` embedding before it is normalised, which the crossface networks were
/// trained on; enrolled embeddings keep their direction only.
const EMBEDDING_LENGTH: f32 = 21.0;
/// Sides that a generator may have.
const SIDES: std::ops::RangeInclusive<usize> = 16..=1024;

/// How a family is fed and read (ALGORITHMS.md §1.6).
struct Style {
    template: &'static Template,
    side: usize,
    normalise: Normalise,
    /// Output times this,
    scale: f32,
    /// plus this, is a level 0..=255.
    offset: f32,
}

impl Style {
    fn of(family: Family, side: Option<usize>) -> Option<Self> {
        let unit =
            Normalise { mean: [0.0; 3], scale: [1.0 / 255.0; 3], bgr: false, layout: Layout::Nchw };
        let plain =
            |template, side| Self { template, side, normalise: unit, scale: 255.0, offset: 0.0 };
        let style = match family {
            Family::InSwapper => plain(&ARCFACE_128, side.unwrap_or(128)),
            // The unofficial export of 512 takes 0..=1 as it is.
            Family::SimSwap if side == Some(512) => plain(&ARCFACE_112_V1, 512),
            Family::SimSwap => Self {
                normalise: Normalise {
                    mean: [0.485 * 255.0, 0.456 * 255.0, 0.406 * 255.0],
                    scale: [0.229, 0.224, 0.225].map(|d: f32| 1.0 / (255.0 * d)),
                    ..unit
                },
                ..plain(&ARCFACE_112_V1, side.unwrap_or(256))
            },
            Family::Ghost => Self {
                normalise: Normalise { mean: [127.5; 3], scale: [1.0 / 127.5; 3], ..unit },
                scale: 127.5,
                offset: 127.5,
                ..plain(&ARCFACE_112_V1, side.unwrap_or(256))
            },
            _ => return None,
        };
        Some(style)
    }
}

/// Maps an embedding into the identity space of simswap or ghost.
pub struct Crossface<B: Backend> {
    manifest: Manifest,
    session: B::Session,
}

impl<B: Backend> std::fmt::Debug for Crossface<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Crossface({})", self.manifest.id)
    }
}

impl<B: Backend> Crossface<B> {
    /// Loads a crossface network.
    ///
    /// # Errors
    /// `Slot` for another family, `Engine` when the model can't be loaded.
    pub fn load(backend: &B, manifest: Manifest, bytes: &[u8]) -> Result<Self> {
        if (manifest.role, manifest.family) != (Role::Crossface, Family::Crossface) {
            let detail = "a crossface slot takes the family crossface".to_owned();
            return Err(Error::Slot { model: manifest.id, detail });
        }
        let port = || Port { name: String::new(), shape: vec![Dim::Any, Dim::Any] };
        let contract = Contract { inputs: vec![port()], outputs: vec![port()] };
        let session = backend.load(&manifest, &contract, bytes).map_err(Error::engine("swap"))?;
        Ok(Self { manifest, session })
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> &ModelId {
        &self.manifest.id
    }

    /// The name of the crossface network that belongs to a generator.
    #[must_use]
    pub fn name_for(generator: &ModelId) -> String {
        format!("{generator}-crossface")
    }

    fn map(&mut self, backend: &B, direction: &[f32], meter: &mut Meter<'_>) -> Result<Vec<f32>> {
        let data = direction.iter().map(|v| v * EMBEDDING_LENGTH).collect();
        let input = Tensor { shape: vec![1, direction.len()], data };
        let input = backend.upload(input).map_err(Error::engine("swap"))?;
        let outputs = meter.infer(backend, &mut self.session, &input, "swap")?;
        outputs.into_iter().next().map(|t| t.data).filter(|d| !d.is_empty()).ok_or_else(|| {
            Error::Output {
                model: self.manifest.id.clone(),
                family: "crossface network",
                detail: "its output is empty".to_owned(),
            }
        })
    }
}

/// What is to be put on a face.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    pub consent: &'a Consent,
    pub embedding: &'a Embedding,
    /// The target's own embedding, for weights beside 0.5.
    pub target: Option<&'a Embedding>,
    /// 0..=1; above 0.5 is more of the source, below more of the target.
    pub weight: f32,
    /// Side of the crop as a multiple of the generator's own, 1..=4.
    pub boost: u32,
}

/// A generator's model.
pub struct Generator<B: Backend> {
    manifest: Manifest,
    session: B::Session,
    style: Style,
    /// inswapper's own map of embeddings, `[from, to]`.
    emap: Option<Tensor>,
    /// False once it has refused a batch.
    batches: bool,
}

impl<B: Backend> std::fmt::Debug for Generator<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generator({})", self.manifest.id)
    }
}

impl<B: Backend> Generator<B> {
    /// Loads a generator. Its inputs are named `target` (a crop) and `source` (a latent).
    ///
    /// # Errors
    /// `Slot` for another family, `Engine` when the model can't be loaded or, for inswapper, has
    /// no map of embeddings as its last constant.
    pub fn load(backend: &B, manifest: Manifest, bytes: &[u8]) -> Result<Self> {
        let slot =
            |detail: &str| Error::Slot { model: manifest.id.clone(), detail: detail.to_owned() };
        if manifest.role != Role::Swapper || Style::of(manifest.family, None).is_none() {
            return Err(slot("generators are of the families inswapper, simswap and ghost"));
        }
        let emap = (manifest.family == Family::InSwapper)
            .then(|| onnx::constant(manifest.id.as_str(), bytes, Constant::Last))
            .transpose()
            .map_err(Error::engine("swap"))?;
        if emap.as_ref().is_some_and(|e| !matches!(e.shape[..], [a, b] if a * b == e.data.len())) {
            return Err(slot("its last constant is no map of embeddings"));
        }
        let picture = vec![Dim::Any, Dim::Fixed(3), Dim::Any, Dim::Any];
        let port = |name: &str, shape| Port { name: name.to_owned(), shape };
        let contract = Contract {
            inputs: vec![port("target", picture.clone()), port("source", vec![Dim::Any, Dim::Any])],
            outputs: vec![port("", picture)],
        };
        let session = backend.load(&manifest, &contract, bytes).map_err(Error::engine("swap"))?;
        let declared = match session.inputs().first().map(|p| p.shape.as_slice()) {
            Some([_, _, Dim::Fixed(h), Dim::Fixed(w)]) if h == w => Some(*h),
            Some([_, _, Dim::Fixed(_), Dim::Fixed(_)]) => {
                return Err(slot("its crop is not square"));
            }
            _ => None,
        };
        let style = Style::of(manifest.family, declared).filter(|s| SIDES.contains(&s.side));
        let style = style.ok_or_else(|| slot("its crop has an impossible side"))?;
        Ok(Self { manifest, session, style, emap, batches: true })
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> &ModelId {
        &self.manifest.id
    }

    /// True when it needs a crossface network beside it.
    #[must_use]
    pub const fn needs_crossface(&self) -> bool {
        self.emap.is_none()
    }

    /// Puts the source on a face, in place; nothing outside the crop changes.
    ///
    /// # Errors
    /// `Face` when landmarks, embedding or weight don't serve: the caller covers the face.
    /// `Engine` and `Output` when the model fails.
    #[expect(clippy::too_many_arguments, reason = "each is another owner's")]
    pub fn apply(
        &mut self,
        backend: &B,
        picture: &mut B::Picture,
        face: &Face,
        landmarks: &Landmarks5,
        wish: &Wish<'_>,
        crossface: Option<&mut Crossface<B>>,
        region: &Region<'_, B>,
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        let engine = Error::engine;
        let size = backend.size(picture);
        let place = Place::of(face, size)?;
        let boost = wish.boost.clamp(1, BOOST_MOST);
        let side = self.style.side as u32 * boost;
        let map = align::from_crop(landmarks, self.style.template, side, size)?;
        let latent = self.latent(backend, wish, crossface, meter)?;
        let crop = backend
            .crop_batch(picture, &[map], Size::new(side, side), &self.style.normalise)
            .map_err(engine("swap"))?;
        let made = if boost == 1 {
            self.run(backend, &crop, &latent, 1, meter)?
        } else {
            let k = boost as usize;
            let parts = backend.polyphase_split(&crop, k).map_err(engine("swap"))?;
            let parts = self.run_all(backend, &parts, &latent, k * k, meter)?;
            backend.polyphase_join(&parts, k).map_err(engine("swap"))?
        };
        let made = backend
            .to_picture(&made, self.style.scale, self.style.offset)
            .map_err(engine("swap"))?;
        paste::back(backend, picture, &made, side, &map, &place, region)
    }

    /// The source as the generator wants it, `[1, n]`.
    fn latent(
        &self,
        backend: &B,
        wish: &Wish<'_>,
        crossface: Option<&mut Crossface<B>>,
        meter: &mut Meter<'_>,
    ) -> Result<B::Tensor> {
        let no = |detail: String| Error::Face { detail };
        let direction = blended(wish).map_err(no)?;
        let values = match (&self.emap, crossface) {
            (Some(emap), _) => through(emap, &direction).map_err(no)?,
            (None, Some(crossface)) => {
                let mapped = crossface.map(backend, &direction, meter)?;
                match self.manifest.family {
                    Family::SimSwap => unit(mapped).ok_or_else(|| no("its latent is 0".into()))?,
                    _ => mapped,
                }
            }
            (None, None) => {
                let name = Crossface::<B>::name_for(&self.manifest.id);
                return Err(no(format!("the generator needs the model `{name}` beside it")));
            }
        };
        let tensor = Tensor { shape: vec![1, values.len()], data: values };
        backend.upload(tensor).map_err(Error::engine("swap"))
    }

    fn run(
        &mut self,
        backend: &B,
        crops: &B::Tensor,
        latent: &B::Tensor,
        count: usize,
        meter: &mut Meter<'_>,
    ) -> Result<B::Tensor> {
        let side = self.style.side;
        let outputs =
            meter.run(&mut self.session, &[crops, latent]).map_err(Error::engine("swap"))?;
        let made = outputs.into_iter().next();
        let wanted = [count, 3, side, side];
        made.filter(|t| backend.download(t).is_ok_and(|t| t.shape == wanted)).ok_or_else(|| {
            Error::Output {
                model: self.manifest.id.clone(),
                family: "generator",
                detail: format!("its output is not {wanted:?}"),
            }
        })
    }

    /// All parts in one run, or one by one where the model takes no batch.
    fn run_all(
        &mut self,
        backend: &B,
        parts: &B::Tensor,
        latent: &B::Tensor,
        count: usize,
        meter: &mut Meter<'_>,
    ) -> Result<B::Tensor> {
        if self.batches {
            match self.run(backend, parts, latent, count, meter) {
                Ok(made) => return Ok(made),
                Err(_) => self.batches = false,
            }
        }
        let engine = Error::engine;
        let host = backend.download(parts).map_err(engine("swap"))?;
        let mut all =
            Tensor { shape: host.shape.clone(), data: Vec::with_capacity(host.data.len()) };
        for part in host.data.chunks_exact((host.data.len() / count).max(1)) {
            let shape = vec![1, 3, self.style.side, self.style.side];
            let one =
                backend.upload(Tensor { shape, data: part.to_vec() }).map_err(engine("swap"))?;
            let made = self.run(backend, &one, latent, 1, meter)?;
            all.data.extend(backend.download(&made).map_err(engine("swap"))?.data);
        }
        backend.upload(all).map_err(engine("swap"))
    }
}

/// The source's direction, led to or from the target's by the weight.
fn blended(wish: &Wish<'_>) -> std::result::Result<Vec<f32>, String> {
    let source = wish.embedding.values();
    let weight = if wish.weight.is_finite() { wish.weight.clamp(0.0, 1.0) } else { NEUTRAL };
    let k = 0.35 - 0.7 * weight;
    if k.abs() < 1e-6 {
        return Ok(source.to_vec());
    }
    let target = wish
        .target
        .map(Embedding::values)
        .filter(|t| t.len() == source.len())
        .ok_or("a weight beside 0.5 needs the face's own embedding, and there is none")?;
    let mixed = source.iter().zip(target).map(|(s, t)| s * (1.0 - k) + t * k).collect();
    unit(mixed).ok_or_else(|| "its latent is 0".to_owned())
}

fn unit(mut values: Vec<f32>) -> Option<Vec<f32>> {
    let length = values.iter().map(|v| v * v).sum::<f32>().sqrt();
    if !(length.is_finite() && length > 1e-6) {
        return None;
    }
    values.iter_mut().for_each(|v| *v /= length);
    Some(values)
}

/// A direction times a map `[from, to]`, of length 1.
fn through(emap: &Tensor, direction: &[f32]) -> std::result::Result<Vec<f32>, String> {
    let [from, to] = emap.shape[..] else { return Err("the map of embeddings is flat".into()) };
    if direction.len() != from {
        return Err(format!(
            "the generator takes embeddings of {from} values, and the embedder gives {}",
            direction.len()
        ));
    }
    let mut out = vec![0.0f32; to];
    for (v, row) in direction.iter().zip(emap.data.chunks_exact(to.max(1))) {
        out.iter_mut().zip(row).for_each(|(o, w)| *o += v * w);
    }
    unit(out).ok_or_else(|| "its latent is 0".to_owned())
}

#[cfg(test)]
#[path = "generator_tests.rs"]
mod tests;
