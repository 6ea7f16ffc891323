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
use crate::swap::generator::{Crossface, Generator};
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
    generators: BTreeMap<ModelId, Generator<B>>,
    crossfaces: BTreeMap<String, Crossface<B>>,
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
            .field("generators", &self.generators.keys())
            .field("crossfaces", &self.crossfaces.keys())
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
            generators: BTreeMap::new(),
            crossfaces: BTreeMap::new(),
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
    pub fn load(&mut self, manifest: Manifest, bytes: &[u8]) -> Result<()> {
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
            Role::Swapper => {
                let generator = Generator::load(backend, manifest, bytes)?;
                self.generators.insert(generator.id().clone(), generator);
            }
            Role::Crossface => {
                let crossface = Crossface::load(backend, manifest, bytes)?;
                self.crossfaces.insert(crossface.id().to_string(), crossface);
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
            Role::Swapper => !self.generators.is_empty(),
            Role::Crossface => !self.crossfaces.is_empty(),
        }
    }

    /// A detector by its name.
    pub(crate) fn detector(&mut self, id: &ModelId) -> Result<&mut Detector<B>> {
        self.detectors.get_mut(id).ok_or_else(|| Error::NotLoaded { model: id.clone() })
    }

    /// Checks that a generator of that name is loaded, and what it needs beside it.
    pub(crate) fn has_generator(&self, id: &ModelId) -> Result<()> {
        let generator =
            self.generators.get(id).ok_or_else(|| Error::NotLoaded { model: id.clone() })?;
        let beside = Crossface::<B>::name_for(id);
        if generator.needs_crossface() && !self.crossfaces.contains_key(&beside) {
            let detail = format!("it needs the model `{beside}` beside it");
            return Err(Error::Slot { model: id.clone(), detail });
        }
        Ok(())
    }

    /// A generator by its name, with the crossface network that belongs to it.
    pub(crate) fn generator(
        &mut self,
        id: &ModelId,
    ) -> Result<(&mut Generator<B>, Option<&mut Crossface<B>>)> {
        self.has_generator(id)?;
        let crossface = self.crossfaces.get_mut(&Crossface::<B>::name_for(id));
        let generator = self.generators.get_mut(id);
        Ok((generator.ok_or_else(|| Error::NotLoaded { model: id.clone() })?, crossface))
    }

    /// Takes gate and detectors out, for a thread that does nothing but look.
    pub(crate) fn take_sight(&mut self) -> Self {
        let mut sight = Self::new(Arc::clone(&self.backend));
        sight.gate = self.gate.take();
        sight.detectors = std::mem::take(&mut self.detectors);
        sight
    }

    /// Puts back what `take_sight` took.
    pub(crate) fn put_sight(&mut self, sight: Self) {
        self.gate = sight.gate;
        self.detectors = sight.detectors;
    }

    /// The independent judge, for tests and the demo.
    pub const fn judge(&mut self) -> Option<&mut Judge<B>> {
        self.judge.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::model::Family;
    use mien_engine::cpu::Cpu;
    use mien_engine::made::Model;

    fn manifest(id: &str, role: Role, family: Family) -> Manifest {
        Manifest {
            id: id.parse().unwrap(),
            role,
            family,
            sha256: "0".repeat(64),
            bytes: 1,
            licence: "none".to_owned(),
            commercial: true,
        }
    }

    #[test]
    fn a_generator_counts_once_its_crossface_network_is_there() {
        let mut models = Models::new(Arc::new(Cpu::new(1)));
        let id: ModelId = "ghost".parse().unwrap();
        assert!(matches!(models.has_generator(&id), Err(Error::NotLoaded { .. })));
        let bytes = Model::answering(
            &[("target", &[1, 3, 32, 32]), ("source", &[1, 4])],
            &[("output", &[1, 3, 32, 32], &[0.0; 3 * 32 * 32])],
        )
        .bytes();
        models.load(manifest("ghost", Role::Swapper, Family::Ghost), &bytes).unwrap();
        assert!(models.has(Role::Swapper) && !models.has(Role::Crossface));
        assert!(matches!(models.has_generator(&id), Err(Error::Slot { .. })));
        let beside = manifest("ghost-crossface", Role::Crossface, Family::Crossface);
        models.load(beside, &Model::identity(&[1, 4]).bytes()).unwrap();
        assert!(models.generator(&id).unwrap().1.is_some());
    }
}
