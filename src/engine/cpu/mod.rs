//! The CPU backend: the embedded default, and the reference for every other.

use std::sync::Arc;

use mien_base::model::Manifest;
use mien_pixels::geometry::{Affine2, Roi, Size};
use mien_pixels::view::{Grey, Rgb, View};
use mien_pixels::{raster, skin, stdm};
use rten::ThreadPool;

use crate::backend::{Backend, Cover, Likeness, MeshWarp, Normalise, Shape, Tone};
use crate::contract::Contract;
use crate::tensor::Tensor;
use crate::{Error, Result};

mod weights;
mod session;

pub use session::Session;

/// A picture in host memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture(Rgb);

/// A mask in host memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alpha(Grey);

/// The CPU: rten for models, `mien_pixels` for pictures.
#[derive(Debug)]
pub struct Cpu {
    pool: Arc<ThreadPool>,
}

impl Cpu {
    /// A backend whose models run on `threads` threads, which start here, once.
    ///
    /// rten folds constants at load on a second, global pool of its own, as wide as the machine
    /// has cores (or `RTEN_NUM_THREADS` in the environment says); it starts here too, so that
    /// nothing starts a thread or reads /proc later, inside a sandbox. It sleeps while models run.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        rten::thread_pool().run(|| ());
        Self { pool: Arc::new(ThreadPool::with_num_threads(threads.max(1))) }
    }
}

fn missing<T>(what: &str) -> Result<T> {
    Err(Error::Picture { what: format!("{what} is not there yet") })
}

fn same(what: &str, a: Size, b: Size) -> Result<()> {
    if a == b {
        return Ok(());
    }
    let (aw, ah, bw, bh) = (a.width, a.height, b.width, b.height);
    Err(Error::Picture { what: format!("`{what}` got {aw}x{ah} and {bw}x{bh}") })
}

/// A region of a picture, when it lies inside.
fn part<'a>(what: &str, picture: &'a Picture, roi: Roi) -> Result<View<'a, 3>> {
    let size = picture.0.size();
    let inside = |at: u32, len: u32, max: u32| at.checked_add(len).is_some_and(|end| end <= max);
    if inside(roi.x, roi.width, size.width) && inside(roi.y, roi.height, size.height) {
        return Ok(picture.0.view().crop(roi));
    }
    Err(Error::Picture { what: format!("`{what}` got a region outside its picture") })
}

impl Backend for Cpu {
    type Picture = Picture;
    type Tensor = Tensor;
    type Alpha = Alpha;
    type Session = Session;

    fn name(&self) -> &'static str {
        "cpu"
    }

    fn load(&self, manifest: &Manifest, contract: &Contract, bytes: Vec<u8>) -> Result<Session> {
        Session::load(manifest.id.as_str(), contract, bytes, Arc::clone(&self.pool))
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

    fn letterbox(&self, _: &Picture, _: Size, _: Size, _: &Normalise) -> Result<Tensor> {
        missing("letterbox")
    }

    fn crop_batch(&self, _: &Picture, _: &[Affine2], _: Size, _: &Normalise) -> Result<Tensor> {
        missing("crop_batch")
    }

    fn crop(&self, _: &Picture, _: &Affine2, _: Size) -> Result<Picture> {
        missing("crop")
    }

    fn to_picture(&self, _: &Tensor, _: f32, _: f32) -> Result<Picture> {
        missing("to_picture")
    }

    fn polyphase_split(&self, _: &Tensor, _: usize) -> Result<Tensor> {
        missing("polyphase_split")
    }

    fn polyphase_join(&self, _: &Tensor, _: usize) -> Result<Tensor> {
        missing("polyphase_join")
    }

    fn warp_mesh(&self, _: &Picture, _: &MeshWarp<'_>) -> Result<(Picture, Alpha)> {
        missing("warp_mesh")
    }

    fn mask(&self, _: &[Shape<&Tensor>], _: Roi) -> Result<Alpha> {
        missing("mask")
    }

    fn meet(&self, _: &mut Alpha, _: &Alpha) -> Result<()> {
        missing("meet")
    }

    fn join(&self, alpha: &mut Alpha, other: &Alpha) -> Result<()> {
        same("join", alpha.0.size(), other.0.size())?;
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
        same("likeness", roi.size(), sample.0.size())?;
        let view = part("likeness", picture, roi)?;
        let Likeness { near, far, grow } = *like;
        Ok(Alpha(skin::likeness(view, &sample.0, &skin::Like { near, far, grow })))
    }

    fn fill(&self, picture: &mut Picture, keep: &Alpha) -> Result<()> {
        same("fill", picture.0.size(), keep.0.size())?;
        skin::fill(&mut picture.0, &keep.0);
        Ok(())
    }

    fn adopt_alpha(&self, alpha: Grey) -> Result<Alpha> {
        Ok(Alpha(alpha))
    }

    fn release_alpha(&self, alpha: Alpha) -> Result<Grey> {
        Ok(alpha.0)
    }

    fn match_tone(&self, _: &mut Picture, _: &Picture, _: Roi, _: &Alpha, _: &Tone) -> Result<()> {
        missing("match_tone")
    }

    fn paste(&self, _: &mut Picture, _: &Picture, _: Roi, _: &Alpha) -> Result<()> {
        missing("paste")
    }

    fn warp_back(&self, _: &Picture, _: &Affine2, _: Roi) -> Result<Picture> {
        missing("warp_back")
    }

    fn cover(&self, _: &mut Picture, _: Roi, _: &Alpha, _: &Cover) -> Result<()> {
        missing("cover")
    }

    fn mark_add(&self, picture: &mut Picture, payload: u64) -> Result<f32> {
        Ok(stdm::add(&mut picture.0.view_mut(), payload))
    }

    fn mark_read(&self, picture: &Picture) -> Result<Option<u64>> {
        Ok(stdm::read(picture.0.view()))
    }
}
