//! The traits every backend implements. Pictures and tensors live where the backend lives.

use mien_base::model::Manifest;
use mien_pixels::geometry::{Affine2, Point, Roi, Size};
pub use mien_pixels::skin::Likeness;
use mien_pixels::view::{Grey, Rgb};

use crate::Result;
use crate::contract::{Contract, Port};
use crate::tensor::Tensor;

/// How RGB bytes become values: (x - mean) * scale per channel, and in which layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalise {
    /// Subtracted from 0..=255, in the order of the tensor's channels.
    pub mean: [f32; 3],
    /// Multiplied after.
    pub scale: [f32; 3],
    /// Blue first.
    pub bgr: bool,
    pub layout: Layout,
}

/// Order of the tensor's axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Nchw,
    Nhwc,
}

/// What a mask is made of. All shapes of a mask meet in their minimum.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape<T> {
    /// Filled polygon in picture coordinates (even-odd).
    Polygon { points: Vec<Point>, feather: Feather },
    /// Ellipse of half-axes 1 about the origin of `to_picture`'s domain.
    Ellipse { to_picture: Affine2, feather: Feather },
    /// Square 0..=side of a crop, softened so that alpha is exactly 0 at its edge.
    CropBox { to_picture: Affine2, side: f32, padding: [f32; 4], blur: f32 },
    /// One value 0..=1 per vertex, linear in each triangle; 0 outside the mesh.
    Vertices { points: Vec<Point>, triangles: Vec<[u16; 3]>, values: Vec<f32> },
    /// A probability map `[.., h, w]`; `to_picture` takes map pixels to picture pixels.
    Map { tensor: T, to_picture: Affine2 },
}

/// How an edge softens: alpha is 0 on the outline and 1 at `width` pixels inside (smoothstep).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Feather {
    pub width: f32,
}

/// How a region is made unrecognisable. Lengths in pixels.
#[derive(Debug, Clone, PartialEq)]
pub enum Cover {
    Solid {
        colour: [u8; 3],
    },
    /// Square cells of `cell` pixels with seeded noise of `noise` levels.
    Mosaic {
        cell: u32,
        noise: f32,
        seed: u64,
    },
    /// Gaussian of deviation `sigma`.
    Blur {
        sigma: f32,
    },
}

/// A piecewise affine map: each triangle of the source goes to one of the destination.
#[derive(Debug, Clone, Copy)]
pub struct MeshWarp<'a> {
    /// Vertices in source picture pixels.
    pub from: &'a [Point],
    /// The same vertices in destination picture pixels.
    pub to: &'a [Point],
    /// Indices into both.
    pub triangles: &'a [[u16; 3]],
    /// The part of the destination that is made.
    pub roi: Roi,
}

/// How a pasted layer's colours are led towards the destination's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tone {
    /// Bounds of the ratio of deviations in Lab, for example (0.7, 1.4).
    pub ratio: (f32, f32),
    /// 0..=1: share of the low-frequency light that is taken from the destination.
    pub relight: f32,
    /// The same where alpha is near 0: what hides the seam.
    pub rim: f32,
    /// Deviation of that low-pass in pixels.
    pub sigma: f32,
}

/// One model on one device. Not shared between threads.
pub trait Session: Send {
    type Tensor;

    /// Runs the model; outputs in the contract's order, checked to be finite and of the right shape.
    ///
    /// # Errors
    /// `Run`, `Contract`, `NotFinite`.
    fn run(&mut self, inputs: &[&Self::Tensor]) -> Result<Vec<Self::Tensor>>;

    /// What the model declares of its inputs, in the contract's order (for example whether it
    /// takes a batch).
    fn inputs(&self) -> &[Port];

    /// What the model declares of its outputs, in the contract's order.
    fn outputs(&self) -> &[Port];
}

/// A device: it loads models and holds pictures.
///
/// Every operation on pictures may fail (`Picture`): where sizes do not agree, a region reaches
/// outside, a map is not finite, or the device fails. Then no picture was changed, or all of it
/// must be thrown away; a caller that gets an error never goes on with the picture.
pub trait Backend: Send + Sync + 'static {
    type Picture: Send + std::fmt::Debug;
    type Tensor: Send + std::fmt::Debug;
    /// A mask over a region of a picture.
    type Alpha: Send + std::fmt::Debug;
    type Session: Session<Tensor = Self::Tensor>;

    /// Name in reports: `cpu`.
    fn name(&self) -> &'static str;

    /// Loads a model from its bytes and checks the contract.
    ///
    /// # Errors
    /// `Load`, `Contract`.
    fn load(&self, manifest: &Manifest, contract: &Contract, bytes: &[u8])
    -> Result<Self::Session>;

    // ---- pictures in and out

    /// Takes a host picture; free of copies where memory is shared.
    fn adopt(&self, image: Rgb) -> Result<Self::Picture>;
    /// Gives it back to the host.
    fn release(&self, picture: Self::Picture) -> Result<Rgb>;
    /// A second picture with the same pixels.
    fn duplicate(&self, picture: &Self::Picture) -> Result<Self::Picture>;
    fn size(&self, picture: &Self::Picture) -> Size;

    // ---- tensors in and out

    fn upload(&self, tensor: Tensor) -> Result<Self::Tensor>;
    fn download(&self, tensor: &Self::Tensor) -> Result<Tensor>;

    // ---- from pictures to tensors

    /// Scales the picture into the top-left `fit` of a canvas of `canvas` pixels (the rest is
    /// value zero before normalisation), by area when it shrinks and bilinear when it grows.
    fn letterbox(
        &self,
        picture: &Self::Picture,
        canvas: Size,
        fit: Size,
        normalise: &Normalise,
    ) -> Result<Self::Tensor>;

    /// Crops of `size` pixels; each map takes crop pixels to picture pixels. Bilinear, border
    /// replicated, and area-filtered where a crop shrinks by more than two. Batch is the first axis.
    fn crop_batch(
        &self,
        picture: &Self::Picture,
        maps: &[Affine2],
        size: Size,
        normalise: &Normalise,
    ) -> Result<Self::Tensor>;

    /// A crop as a picture of its own; the map takes crop pixels to picture pixels.
    fn crop(&self, picture: &Self::Picture, map: &Affine2, size: Size) -> Result<Self::Picture>;

    /// A generator's output `[1, 3, h, w]`, x * scale + offset clipped to 0..=255, as a picture.
    fn to_picture(&self, tensor: &Self::Tensor, scale: f32, offset: f32) -> Result<Self::Picture>;

    /// Polyphase split `[1,3,k·n,k·n] -> [k²,3,n,n]` (ALGORITHMS.md §1.7), and its inverse.
    fn polyphase_split(&self, tensor: &Self::Tensor, k: usize) -> Result<Self::Tensor>;
    fn polyphase_join(&self, tensor: &Self::Tensor, k: usize) -> Result<Self::Tensor>;

    // ---- what changes pictures

    /// Warps `source` by triangles into a layer of the size of `warp.roi`, and says where it is
    /// covered (255 inside the mesh, 0 outside).
    fn warp_mesh(
        &self,
        source: &Self::Picture,
        warp: &MeshWarp<'_>,
    ) -> Result<(Self::Picture, Self::Alpha)>;

    /// A mask of the size of `roi`: the minimum of all shapes, 0..=255; 255 where there are none.
    fn mask(&self, shapes: &[Shape<&Self::Tensor>], roi: Roi) -> Result<Self::Alpha>;

    /// Takes a mask back that is of no more use; the next may stand in its memory.
    fn spare(&self, alpha: Self::Alpha);

    /// Per-pixel minimum, in place; both of one size.
    fn meet(&self, alpha: &mut Self::Alpha, other: &Self::Alpha) -> Result<()>;

    /// Per-pixel maximum, in place; both of one size.
    fn join(&self, alpha: &mut Self::Alpha, other: &Self::Alpha) -> Result<()>;

    /// 255 minus each value, in place.
    fn invert(&self, alpha: &mut Self::Alpha) -> Result<()>;

    /// Where `picture` at `roi` has the colours that it has where `sample` (of the size of `roi`)
    /// is high: 255 where it is like them, 0 where it is not. Even light across the region is
    /// allowed for.
    fn likeness(
        &self,
        picture: &Self::Picture,
        roi: Roi,
        sample: &Self::Alpha,
        like: &Likeness,
    ) -> Result<Self::Alpha>;

    /// Replaces what `keep` (of the picture's size) leaves out by what stands around it, smoothly.
    fn fill(&self, picture: &mut Self::Picture, keep: &Self::Alpha) -> Result<()>;

    /// A host mask (for what is drawn once: glyphs), and back.
    fn adopt_alpha(&self, alpha: Grey) -> Result<Self::Alpha>;
    fn release_alpha(&self, alpha: Self::Alpha) -> Result<Grey>;

    /// Leads a layer's colours to those of `onto` at `roi`, weighing by alpha.
    fn match_tone(
        &self,
        layer: &mut Self::Picture,
        onto: &Self::Picture,
        roi: Roi,
        alpha: &Self::Alpha,
        tone: &Tone,
    ) -> Result<()>;

    /// Blends a layer over `roi`, in place: exactly nothing changes where alpha is 0.
    fn paste(
        &self,
        onto: &mut Self::Picture,
        layer: &Self::Picture,
        roi: Roi,
        alpha: &Self::Alpha,
    ) -> Result<()>;

    /// Warps a crop back (map: picture pixels to crop pixels) into a layer of the size of `roi`,
    /// border replicated.
    fn warp_back(&self, crop: &Self::Picture, map: &Affine2, roi: Roi) -> Result<Self::Picture>;

    /// Makes a region unrecognisable, in place, weighed by alpha.
    fn cover(
        &self,
        picture: &mut Self::Picture,
        roi: Roi,
        alpha: &Self::Alpha,
        cover: &Cover,
    ) -> Result<()>;

    /// Adds the invisible mark, in place; returns the luma PSNR in dB.
    /// `code`: coded bits and pilots as `mien_pixels::stdm` defines them.
    fn mark_add(&self, picture: &mut Self::Picture, payload: u64) -> Result<f32>;

    /// Reads the invisible mark back.
    fn mark_read(&self, picture: &Self::Picture) -> Result<Option<u64>>;
}
