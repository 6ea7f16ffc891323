//! The loaded models, one slot a role; detectors and generators by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use mien_base::id::ModelId;
use mien_base::model::{Manifest, Role};
use mien_engine::backend::Backend;

use crate::detect::Detector;
use crate::embed::Embedder;
use crate::gate::Gate;
use crate::judge::Judge;
use crate::landmarks::Landmarker;
use crate::segment::Segmenter;
use crate::{Error, Result};

/// What a worker has to work with.
pub struct Models<B: Backend> {
    backend: Arc<B>,
    pub(crate) detectors: BTreeMap<ModelId, Detector<B>>,
    pub(crate) landmarks: Option<Landmarker<B>>,
    pub(crate) embedder: Option<Embedder<B>>,
    pub(crate) gate: Option<Gate<B>>,
    pub(crate) segmenter: Option<Segmenter<B>>,
    pub(crate) judge: Option<Judge<B>>,
}

impl<B: Backend> std::fmt::Debug for Models<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Models")
            .field("backend", &self.backend.name())
            .field("detectors", &self.detectors.keys())
            .field("landmarks", &self.landmarks)
            .field("embedder", &self.embedder)
            .field("gate", &self.gate)
            .field("segmenter", &self.segmenter)
            .field("judge", &self.judge)
            .finish()
    }
}

impl<B: Backend> Models<B> {
    /// No model yet.
    #[must_use]
    pub const fn new(backend: Arc<B>) -> Self {
        Self {
            backend,
            detectors: BTreeMap::new(),
            landmarks: None,
            embedder: None,
            gate: None,
            segmenter: None,
            judge: None,
        }
    }

    /// The device.
    #[must_use]
    pub const fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    /// Loads a model into its slot; the one that stood there goes.
    ///
    /// # Errors
    /// `Slot` when role and family don't meet, `Engine` when the model can't be loaded: then what
    /// stood there stays.
    pub fn load(&mut self, manifest: Manifest, bytes: Vec<u8>) -> Result<()> {
        let backend = &*self.backend;
        match manifest.role {
            Role::Detector => {
                let detector = Detector::load(backend, manifest, bytes)?;
                self.detectors.insert(detector.id().clone(), detector);
            }
            Role::Landmarks => self.landmarks = Some(Landmarker::load(backend, manifest, bytes)?),
            Role::Embedder => self.embedder = Some(Embedder::load(backend, manifest, bytes)?),
            Role::Gate => self.gate = Some(Gate::load(backend, manifest, bytes)?),
            Role::Segmenter => self.segmenter = Some(Segmenter::load(backend, manifest, bytes)?),
            Role::Judge => self.judge = Some(Judge::load(backend, manifest, bytes)?),
            Role::Swapper | Role::Crossface => {
                let detail = "generators are not taken yet".to_owned();
                return Err(Error::Slot { model: manifest.id, detail });
            }
        }
        Ok(())
    }

    /// True when a model fills the role.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        match role {
            Role::Detector => !self.detectors.is_empty(),
            Role::Landmarks => self.landmarks.is_some(),
            Role::Embedder => self.embedder.is_some(),
            Role::Gate => self.gate.is_some(),
            Role::Segmenter => self.segmenter.is_some(),
            Role::Judge => self.judge.is_some(),
            Role::Swapper | Role::Crossface => false,
        }
    }

    /// A detector by its name.
    pub(crate) fn detector(&mut self, id: &ModelId) -> Result<&mut Detector<B>> {
        self.detectors.get_mut(id).ok_or_else(|| Error::NotLoaded { model: id.clone() })
    }

    /// Checks that a generator of that name is loaded.
    pub(crate) fn has_generator(&self, id: &ModelId) -> Result<()> {
        Err(Error::NotLoaded { model: id.clone() })
    }

    /// The independent judge, for tests and the demo.
    pub const fn judge(&mut self) -> Option<&mut Judge<B>> {
        self.judge.as_mut()
    }
}
