//! What a model is: its role, its family (how it is fed and read), and where it comes from.

use serde::{Deserialize, Serialize};

use crate::id::ModelId;

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
