//! The CPU with a detector that loses some of what it sees: CenterFace's peaks are put out, each
//! time anew and the same in every run.
#![allow(dead_code, clippy::unwrap_used)]

use std::sync::Arc;

use mien_base::model::{Family, Manifest};
use mien_engine::Result;
use mien_engine::backend::{Backend, Cover, Likeness, MeshWarp, Normalise, Session, Shape, Tone};
use mien_engine::contract::{Contract, Port};
use mien_engine::cpu::Cpu;
use mien_engine::tensor::Tensor;
use mien_pixels::geometry::{Affine2, Roi, Size};
use mien_pixels::view::{Grey, Rgb};

type CpuSession = <Cpu as Backend>::Session;
type Picture = <Cpu as Backend>::Picture;
type Alpha = <Cpu as Backend>::Alpha;

/// Least height of a peak that is a face for any reader.
const PEAK: f32 = 0.1;

#[derive(Debug)]
pub(crate) struct Lossy {
    cpu: Arc<Cpu>,
    /// Of a thousand faces so many are lost.
    share: u64,
    seed: u64,
}

impl Lossy {
    pub(crate) fn new(cpu: Arc<Cpu>, share: u64, seed: u64) -> Self {
        Self { cpu, share, seed }
    }
}

pub(crate) struct Losing {
    inner: CpuSession,
    share: u64,
    state: u64,
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Losing {
    /// Puts out all of the heat in the box of a peak, so that nothing of the face is found.
    fn lose(&mut self, heat: &mut Tensor, scale: &Tensor) {
        let (h, w) = (heat.shape[2], heat.shape[3]);
        let mut left = heat.data.clone();
        loop {
            let best = (0..left.len()).max_by(|a, b| left[*a].total_cmp(&left[*b])).unwrap();
            if left[best] < PEAK {
                break;
            }
            let lost = random(&mut self.state) % 1000 < self.share;
            let (y, x) = (best / w, best % w);
            // Heights come first.
            let half = |c: usize| (scale.data[c * h * w + best].exp() / 2.0) as usize + 1;
            let (up, aside) = (half(0), half(1));
            for row in y.saturating_sub(up)..(y + up + 1).min(h) {
                for column in x.saturating_sub(aside)..(x + aside + 1).min(w) {
                    left[row * w + column] = 0.0;
                    if lost {
                        heat.data[row * w + column] = 0.0;
                    }
                }
            }
        }
    }
}

impl Session for Losing {
    type Tensor = Tensor;
    fn run(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut outputs = self.inner.run(inputs)?;
        if self.share > 0 {
            let (heat, rest) = outputs.split_first_mut().unwrap();
            self.lose(heat, &rest[0]);
        }
        Ok(outputs)
    }
    fn inputs(&self) -> &[Port] {
        self.inner.inputs()
    }
    fn outputs(&self) -> &[Port] {
        self.inner.outputs()
    }
}

impl Backend for Lossy {
    type Picture = Picture;
    type Tensor = Tensor;
    type Alpha = Alpha;
    type Session = Losing;

    fn name(&self) -> &'static str {
        "lossy"
    }
    fn load(&self, manifest: &Manifest, contract: &Contract, bytes: &[u8]) -> Result<Losing> {
        let share = if manifest.family == Family::CenterFace { self.share } else { 0 };
        Ok(Losing { inner: self.cpu.load(manifest, contract, bytes)?, share, state: self.seed })
    }
    fn adopt(&self, image: Rgb) -> Result<Picture> {
        self.cpu.adopt(image)
    }
    fn release(&self, picture: Picture) -> Result<Rgb> {
        self.cpu.release(picture)
    }
    fn duplicate(&self, picture: &Picture) -> Result<Picture> {
        self.cpu.duplicate(picture)
    }
    fn size(&self, picture: &Picture) -> Size {
        self.cpu.size(picture)
    }
    fn upload(&self, tensor: Tensor) -> Result<Tensor> {
        self.cpu.upload(tensor)
    }
    fn download(&self, tensor: &Tensor) -> Result<Tensor> {
        self.cpu.download(tensor)
    }
    fn letterbox(&self, p: &Picture, canvas: Size, fit: Size, n: &Normalise) -> Result<Tensor> {
        self.cpu.letterbox(p, canvas, fit, n)
    }
    fn crop_batch(&self, p: &Picture, m: &[Affine2], s: Size, n: &Normalise) -> Result<Tensor> {
        self.cpu.crop_batch(p, m, s, n)
    }
    fn crop(&self, picture: &Picture, map: &Affine2, size: Size) -> Result<Picture> {
        self.cpu.crop(picture, map, size)
    }
    fn to_picture(&self, tensor: &Tensor, scale: f32, offset: f32) -> Result<Picture> {
        self.cpu.to_picture(tensor, scale, offset)
    }
    fn polyphase_split(&self, tensor: &Tensor, k: usize) -> Result<Tensor> {
        self.cpu.polyphase_split(tensor, k)
    }
    fn polyphase_join(&self, tensor: &Tensor, k: usize) -> Result<Tensor> {
        self.cpu.polyphase_join(tensor, k)
    }
    fn warp_mesh(&self, source: &Picture, warp: &MeshWarp<'_>) -> Result<(Picture, Alpha)> {
        self.cpu.warp_mesh(source, warp)
    }
    fn mask(&self, shapes: &[Shape<&Tensor>], roi: Roi) -> Result<Alpha> {
        self.cpu.mask(shapes, roi)
    }
    fn spare(&self, alpha: Alpha) {
        self.cpu.spare(alpha);
    }
    fn meet(&self, alpha: &mut Alpha, other: &Alpha) -> Result<()> {
        self.cpu.meet(alpha, other)
    }
    fn join(&self, alpha: &mut Alpha, other: &Alpha) -> Result<()> {
        self.cpu.join(alpha, other)
    }
    fn invert(&self, alpha: &mut Alpha) -> Result<()> {
        self.cpu.invert(alpha)
    }
    fn likeness(&self, p: &Picture, roi: Roi, sample: &Alpha, like: &Likeness) -> Result<Alpha> {
        self.cpu.likeness(p, roi, sample, like)
    }
    fn fill(&self, picture: &mut Picture, keep: &Alpha) -> Result<()> {
        self.cpu.fill(picture, keep)
    }
    fn adopt_alpha(&self, alpha: Grey) -> Result<Alpha> {
        self.cpu.adopt_alpha(alpha)
    }
    fn release_alpha(&self, alpha: Alpha) -> Result<Grey> {
        self.cpu.release_alpha(alpha)
    }
    fn match_tone(
        &self,
        layer: &mut Picture,
        onto: &Picture,
        roi: Roi,
        alpha: &Alpha,
        tone: &Tone,
    ) -> Result<()> {
        self.cpu.match_tone(layer, onto, roi, alpha, tone)
    }
    fn paste(&self, onto: &mut Picture, layer: &Picture, roi: Roi, alpha: &Alpha) -> Result<()> {
        self.cpu.paste(onto, layer, roi, alpha)
    }
    fn warp_back(&self, crop: &Picture, map: &Affine2, roi: Roi) -> Result<Picture> {
        self.cpu.warp_back(crop, map, roi)
    }
    fn cover(&self, p: &mut Picture, roi: Roi, alpha: &Alpha, cover: &Cover) -> Result<()> {
        self.cpu.cover(p, roi, alpha, cover)
    }
    fn mark_add(&self, picture: &mut Picture, payload: u64) -> Result<f32> {
        self.cpu.mark_add(picture, payload)
    }
    fn mark_read(&self, picture: &Picture) -> Result<Option<u64>> {
        self.cpu.mark_read(picture)
    }
}
