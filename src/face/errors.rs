//! What can go wrong between a picture and its marked result.

use mien_base::consent::Scope;
use mien_base::error::ErrorKind;
use mien_base::id::{IdentityId, ModelId};
use mien_base::model::Role;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model failed, or a picture operation was impossible.
    #[error("The {stage} stage failed")]
    Engine { stage: &'static str, source: mien_engine::Error },
    /// An output that the family's decoder can't read.
    #[error("Model `{model}` is no {family}: {detail}")]
    Output { model: ModelId, family: &'static str, detail: String },
    /// A role that no loaded model fills.
    #[error("No {role:?} model is loaded; fetch it with `mien model fetch`")]
    NoModel { role: Role },
    /// A named model that is not loaded.
    #[error("Model `{model}` is not loaded; `mien model list` shows what is there")]
    NotLoaded { model: ModelId },
    /// A model whose role and family don't meet.
    #[error("Model `{model}` can't serve: {detail}")]
    Slot { model: ModelId, detail: String },
    /// More faces than one picture may have; none may be dropped, so all is withheld.
    #[error("The picture has more than {most} faces; cut it into parts")]
    Crowd { most: usize },
    /// The content gate says no.
    #[error("The content gate refused the picture: score {score:.2}, limit {limit:.2}")]
    Refused { score: f32, limit: f32 },
    /// There is no consent that holds.
    #[error("No consent of `{identity}` to {scope:?}: {detail}")]
    NoConsent { identity: IdentityId, scope: Scope, detail: String },
    /// A recipe that can't be carried out; each fault with its key path.
    #[error("The recipe has {} faults: {}", faults.len(), faults.join("; "))]
    Recipe { faults: Vec<String> },
    /// An identity that a recipe names and nobody enrolled.
    #[error("Identity `{identity}` is not enrolled for recognition: {detail}")]
    Unknown { identity: IdentityId, detail: String },
    /// A picture that is none.
    #[error("The picture has no pixels")]
    Empty,
    /// A picture that can't be enrolled.
    #[error("The picture can't be enrolled: {reason}")]
    Enrol { reason: String },
    /// A source record that does not hold together.
    #[error("The record of source `{identity}` is broken: {detail}")]
    Source { identity: IdentityId, detail: String },
    /// A face that can't be changed as asked; the caller covers it.
    #[error("The face can't be changed: {detail}")]
    Face { detail: String },
    /// Frames of a clip that do not belong together, or a state that is none of theirs.
    #[error("The clip can't be worked on: {detail}")]
    Clip { detail: String },
    /// A mark could not be made or read back; the picture is withheld.
    #[error("The picture can't be marked: {detail}")]
    Mark { detail: String },
}

impl Error {
    /// The kind, decided once.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Engine { source, .. } => source.kind(),
            Self::Output { .. }
            | Self::NoModel { .. }
            | Self::NotLoaded { .. }
            | Self::Slot { .. } => ErrorKind::Model,
            Self::Crowd { .. } => ErrorKind::TooLarge,
            Self::Refused { .. } => ErrorKind::ContentRefused,
            Self::NoConsent { .. } => ErrorKind::NoConsent,
            Self::Recipe { .. } | Self::Unknown { .. } => ErrorKind::Usage,
            Self::Empty | Self::Enrol { .. } | Self::Source { .. } | Self::Clip { .. } => {
                ErrorKind::BadInput
            }
            Self::Face { .. } => ErrorKind::Internal,
            Self::Mark { .. } => ErrorKind::NotMarked,
        }
    }

    /// True when it concerns one face only, which is then covered. A picture operation that failed
    /// may have left the picture half changed: that concerns all of it.
    pub(crate) const fn is_of_face(&self) -> bool {
        match self {
            Self::Engine { source, .. } => !matches!(source, mien_engine::Error::Picture { .. }),
            Self::Face { .. } | Self::Output { .. } => true,
            _ => false,
        }
    }

    /// The reason in a face's report.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Engine { source, .. } => source.to_string(),
            Self::Face { detail } => detail.clone(),
            other => other.to_string(),
        }
    }

    /// Names the stage in which an engine error came up.
    pub(crate) fn engine(stage: &'static str) -> impl FnOnce(mien_engine::Error) -> Self {
        move |source| Self::Engine { stage, source }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
