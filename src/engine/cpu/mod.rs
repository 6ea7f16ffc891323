//! The CPU backend: the embedded default, and the reference for every other.

use std::sync::{Arc, Mutex};

use ::rten::ThreadPool;
use mien_base::model::Manifest;
use mien_nn::Team;
use mien_pixels::geometry::{Affine2, Roi, Size};
use mien_pixels::view::{Grey, Rgb};
use mien_pixels::{blend, raster, skin, stdm, tone};

use crate::Result;
use crate::backend::{Backend, Cover, Likeness, MeshWarp, Normalise, Shape, Tone};
use crate::contract::Contract;
use crate::tensor::Tensor;

mod rten;
mod session;
mod ops;

pub use session::Session;

/// A picture in host memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture(Rgb);

/// A mask in host memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alpha(Grey);

/// The CPU: our engine for models, rten for those that it refuses, `mien_pixels` for pictures.
pub struct Cpu {
    shared: session::Shared,
    scratch: ops::Scratch,
    covers: ops::Covers,
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cpu").field("threads", &self.shared.team.threads()).finish_non_exhaustive()
    }
}

impl Cpu {
    /// A backend whose models run on `threads` threads, which start here, once.
    ///
    /// rten folds constants at load on a second, global pool of its own, as wide as the machine
    /// has cores (or `RTEN_NUM_THREADS` in the environment says); it starts here too, so that
    /// nothing starts a thread or reads /proc later, inside a sandbox. It sleeps while models run.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        ::rten::thread_pool().run(|| ());
        let pool = Arc::new(ThreadPool::with_num_threads(threads.max(1)));
        let team = Arc::new(Team::new(threads.max(1)));
        let memory = Arc::new(Mutex::new(Vec::new()));
        let shared = session::Shared { pool, team, memory, only_rten: false };
        Self { shared, scratch: ops::Scratch::default(), covers: ops::Covers::default() }
    }

    /// The same with every model on rten: what our engine is compared with.
    #[must_use]
    pub fn on_rten(threads: usize) -> Self {
        let mut cpu = Self::new(threads);
        cpu.shared.only_rten = true;
        cpu
    }
}

impl Backend for Cpu {
    type Picture = Picture;
    type Tensor = Tensor;
    type Alpha = Alpha;
    type Session = Session;

    fn name(&self) -> &'static str {
        "cpu"
    }

    fn load(&self, manifest: &Manifest, contract: &Contract, bytes: &[u8]) -> Result<Session> {
        Session::load(manifest.id.as_str(), contract, bytes, &self.shared)
    }

    fn adopt(&self, image: Rgb) -> Result<Picture> {
        Ok(Picture(image))
    }

    fn release(&self, picture: Picture) -> Result<Rgb> {
        Ok(picture.0)
    }

    fn duplicate(&self, picture: &Picture) -> Result<Picture> {
        Ok(picture.clone())
    }

    fn size(&self, picture: &Picture) -> Size {
        picture.0.size()
    }

    fn upload(&self, tensor: Tensor) -> Result<Tensor> {
        Ok(tensor)
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor> {
        Ok(tensor.clone())
    }

    fn letterbox(
        &self,
        picture: &Picture,
        canvas: Size,
        fit: Size,
        normalise: &Normalise,
    ) -> Result<Tensor> {
        ops::letterbox(&self.scratch, &picture.0, canvas, fit, normalise)
    }

    fn crop_batch(
        &self,
        picture: &Picture,
        maps: &[Affine2],
        size: Size,
        normalise: &Normalise,
    ) -> Result<Tensor> {
        ops::crop_batch(&self.scratch, &picture.0, maps, size, normalise)
    }

    fn crop(&self, picture: &Picture, map: &Affine2, size: Size) -> Result<Picture> {
        ops::crop(&picture.0, map, size).map(Picture)
    }

    fn to_picture(&self, tensor: &Tensor, scale: f32, offset: f32) -> Result<Picture> {
        ops::to_picture(tensor, scale, offset).map(Picture)
    }

    fn polyphase_split(&self, tensor: &Tensor, k: usize) -> Result<Tensor> {
        ops::polyphase_split(tensor, k)
    }

    fn polyphase_join(&self, tensor: &Tensor, k: usize) -> Result<Tensor> {
        ops::polyphase_join(tensor, k)
    }

    fn warp_mesh(&self, source: &Picture, warp: &MeshWarp<'_>) -> Result<(Picture, Alpha)> {
        ops::warp_mesh(&source.0, warp).map(|(layer, alpha)| (Picture(layer), Alpha(alpha)))
    }

    fn mask(&self, shapes: &[Shape<&Tensor>], roi: Roi) -> Result<Alpha> {
        ops::mask(&self.scratch, shapes, roi).map(Alpha)
    }

    fn spare(&self, alpha: Alpha) {
        self.scratch.keep(alpha.0);
    }

    fn meet(&self, alpha: &mut Alpha, other: &Alpha) -> Result<()> {
        ops::same("meet", alpha.0.size(), other.0.size())?;
        raster::meet(&mut alpha.0, &other.0);
        Ok(())
    }

    fn join(&self, alpha: &mut Alpha, other: &Alpha) -> Result<()> {
        ops::same("join", alpha.0.size(), other.0.size())?;
        raster::join(&mut alpha.0, &other.0);
        Ok(())
    }

    fn invert(&self, alpha: &mut Alpha) -> Result<()> {
        raster::invert(&mut alpha.0);
        Ok(())
    }

    fn likeness(
        &self,
        picture: &Picture,
        roi: Roi,
        sample: &Alpha,
        like: &Likeness,
    ) -> Result<Alpha> {
        ops::same("likeness", roi.size(), sample.0.size())?;
        let view = ops::part("likeness", &picture.0, roi)?;
        Ok(Alpha(skin::likeness(view, &sample.0, like)))
    }

    fn fill(&self, picture: &mut Picture, keep: &Alpha) -> Result<()> {
        ops::same("fill", picture.0.size(), keep.0.size())?;
        skin::fill(&mut picture.0, &keep.0);
        Ok(())
    }

    fn adopt_alpha(&self, alpha: Grey) -> Result<Alpha> {
        Ok(Alpha(alpha))
    }

    fn release_alpha(&self, alpha: Alpha) -> Result<Grey> {
        Ok(alpha.0)
    }

    fn match_tone(
        &self,
        layer: &mut Picture,
        onto: &Picture,
        roi: Roi,
        alpha: &Alpha,
        tone: &Tone,
    ) -> Result<()> {
        ops::same("match_tone", roi.size(), layer.0.size())?;
        ops::same("match_tone", roi.size(), alpha.0.size())?;
        let onto = ops::part("match_tone", &onto.0, roi)?;
        let Tone { ratio, relight, rim, sigma } = *tone;
        let how = tone::Match { ratio, relight, rim, sigma };
        tone::match_tone(&mut layer.0, onto, &alpha.0, &how);
        Ok(())
    }

    fn paste(&self, onto: &mut Picture, layer: &Picture, roi: Roi, alpha: &Alpha) -> Result<()> {
        ops::same("paste", roi.size(), layer.0.size())?;
        ops::same("paste", roi.size(), alpha.0.size())?;
        let mut part = ops::part_mut("paste", &mut onto.0, roi)?;
        blend::paste(&mut part, layer.0.view(), alpha.0.view());
        Ok(())
    }

    fn warp_back(&self, crop: &Picture, map: &Affine2, roi: Roi) -> Result<Picture> {
        ops::warp_back(&crop.0, map, roi).map(Picture)
    }

    fn cover(&self, picture: &mut Picture, roi: Roi, alpha: &Alpha, cover: &Cover) -> Result<()> {
        ops::cover(&self.covers, &mut picture.0, roi, &alpha.0, cover)
    }

    fn mark_add(&self, picture: &mut Picture, payload: u64) -> Result<f32> {
        Ok(stdm::add(&mut picture.0.view_mut(), payload))
    }

    fn mark_read(&self, picture: &Picture) -> Result<Option<u64>> {
        Ok(stdm::read(picture.0.view()))
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod ours_tests;
