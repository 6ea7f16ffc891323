//! What a model is: its role, its family (how it is fed and read), and where it comes from.

use serde::{Deserialize, Serialize};

use crate::id::ModelId;
use crate::limits;

/// What a model does in the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Finds faces.
    Detector,
    /// 468 landmarks of one face.
    Landmarks,
    /// Identity embedding of one aligned face.
    Embedder,
    /// Content gate of a whole picture.
    Gate,
    /// Person mask of a whole picture.
    Segmenter,
    /// Face generator.
    Swapper,
    /// Maps an embedding into a swapper's own identity space.
    Crossface,
    /// An independent embedder that judges results; never part of the pipeline.
    Judge,
}

/// How a model is fed and read. One decoder each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    CenterFace,
    /// BlazeFace back camera, 256.
    BlazeBack,
    /// BlazeFace short range, 128.
    BlazeShort,
    Scrfd,
    RetinaFace,
    YoloFace,
    YuNet,
    /// MediaPipe face mesh, 468 points, 192.
    FaceMesh,
    /// ArcFace-like embedder: 112 crop of `arcface_112_v2`, RGB, (x - 127.5) / 128 or / 127.5.
    ArcFace,
    /// Yahoo open_nsfw, 224.
    OpenNsfw,
    /// nsfwjs MobileNet v2, 224: Drawing, Hentai, Neutral, Porn, Sexy. Listed; no stage reads it.
    NsfwJs,
    /// MediaPipe selfie segmentation, 256.
    Selfie,
    /// inswapper_128 and its kin: source latent = e · emap.
    InSwapper,
    /// simswap_256: normalised crossface latent, ImageNet mean and deviation.
    SimSwap,
    /// ghost_256: crossface latent as it is, [-1, 1] in and out.
    Ghost,
    /// Embedding to latent network beside simswap and ghost.
    Crossface,
    /// dlib's ResNet descriptor, 150 chip, 128 values, same person below L2 0.6.
    DlibResNet,
}

/// A model as it is known to both processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub id: ModelId,
    pub role: Role,
    pub family: Family,
    /// SHA-256 of the ONNX file, 64 hex digits.
    pub sha256: String,
    /// Size of the ONNX file in bytes.
    pub bytes: u64,
    /// SPDX expression or the licence's own words.
    pub licence: String,
    /// False when the licence forbids commercial use.
    pub commercial: bool,
}

/// How far a model is from another one of its role, on the same frames.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Distance {
    /// Faces that were compared.
    pub faces: u32,
    /// Faces that one of the two sees and the other does not.
    pub missed: u32,
    /// Mean overlap (IoU) of boxes; a missed face counts 0.
    pub box_iou: Option<f32>,
    /// Mean distance of landmarks, as a share of the face's width; a missed face counts 1.
    pub landmark_drift: Option<f32>,
    /// Least cosine between embeddings.
    pub cosine: Option<f32>,
}

/// An input or output as a model's file declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFacts {
    pub name: String,
    /// ONNX element type.
    pub element: u8,
    /// 0: any.
    pub shape: Vec<u32>,
}

/// What was folded when a model was looked at; nothing of it changes what the model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Folded {
    /// Initialisers that stood among the inputs, and were taken out of them.
    pub inputs: u32,
    /// Weights that were stored as halves or as codes of a scale, and are floats now.
    pub weights: u32,
    /// Kernels, strides, dilations and pads that were left to be guessed, and stand there now.
    pub attributes: u32,
}

impl Folded {
    /// How many changes there are.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.inputs + self.weights + self.attributes
    }
}

/// What a model's file holds, looked at by the worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Survey {
    pub inputs: Vec<PortFacts>,
    pub outputs: Vec<PortFacts>,
    /// Operators and how often each stands there, by name.
    pub operators: Vec<(String, u32)>,
    pub folded: Folded,
    /// Why the backend can't run it.
    pub refused: Option<String>,
}

impl Survey {
    /// Cuts lists and texts to what the wire carries.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let cut = |text: &mut String| text.truncate(text.floor_char_boundary(limits::WIRE_TEXT));
        for ports in [&mut self.inputs, &mut self.outputs] {
            ports.truncate(limits::SURVEYED);
            ports.iter_mut().for_each(|port| {
                cut(&mut port.name);
                port.shape.truncate(16);
            });
        }
        self.operators.truncate(4 * limits::SURVEYED);
        self.operators.iter_mut().for_each(|(name, _)| cut(name));
        if let Some(why) = &mut self.refused {
            why.truncate(why.floor_char_boundary(limits::WIRE_FAILURE));
        }
        self
    }
}
