//! Sources and consent: an enrolled face, and who agreed that it may be used, for what, until when.

use serde::{Deserialize, Serialize};

use crate::clock::Wall;
use crate::id::{IdentityId, ModelId};

/// What a source may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Its face may be put on others.
    Swap,
    /// Its face may be shown unaltered.
    Reveal,
}

/// The record as it is stored. `face::consent::Consent` is the proof that one holds now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsentRecord {
    /// The source that the record is bound to.
    pub identity: IdentityId,
    /// Pseudonym of the person who agreed.
    pub subject: String,
    /// Why, in the operator's words.
    pub purpose: String,
    /// What is permitted.
    pub scope: Vec<Scope>,
    /// When it was given.
    pub granted: Wall,
    /// The first second at which it no longer holds.
    pub expires: Wall,
    /// When it was taken back.
    #[serde(default)]
    pub revoked: Option<Wall>,
    /// SHA-256 of the signed form or recording that proves it, hex, when there is one.
    #[serde(default)]
    pub evidence: Option<String>,
    /// Who entered the record.
    pub operator: String,
}

/// An enrolled face as it is stored beside its portrait (a PNG crop around the face).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRecord {
    pub identity: IdentityId,
    /// Embedder that made `embedding`, and its file's SHA-256; `None` when none was installed.
    pub embedder: Option<(ModelId, String)>,
    /// L2-normalised; empty when no embedder was installed.
    pub embedding: Vec<f32>,
    /// 468 points x, y, z in pixels of the portrait.
    pub mesh: Vec<[f32; 3]>,
    /// Image-left eye, image-right eye, nose, image-left and image-right mouth corner, portrait pixels.
    pub landmarks: [[f32; 2]; 5],
    pub quality: Quality,
    pub enrolled: Wall,
}

/// What the enrolment gate measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    /// Width of the face in pixels of the picture that was given.
    pub face_px: f32,
    /// Variance of the Laplacian over the aligned face, 0..; low is blurred.
    pub sharpness: f32,
    /// Degrees away from frontal, estimated from the mesh.
    pub yaw: f32,
    pub pitch: f32,
    /// Detector score.
    pub score: f32,
}
