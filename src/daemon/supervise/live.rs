//! A live pipeline: it takes the worker for itself until it ends.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use mien_base::model::{Manifest, Role};
use mien_base::recipe::Recipe;
use mien_base::wire::live::{Live, Watch};
use mien_base::wire::{Event, Request};

use super::{Facts, Supervisor, needs};
use crate::{Error, Result};

impl Supervisor {
    /// Starts a pipeline on a worker that is held and has what it needs; its camera is not waited
    /// for. Gives the models that serve it.
    ///
    /// # Errors
    /// Of the models and of the worker.
    pub fn live(&mut self, live: Live, fds: &[OwnedFd]) -> Result<Vec<Manifest>> {
        let wanted = needs::resolve(&needs::of_recipe(&live.recipe), self.models.as_ref())?;
        self.prepare(&wanted)?;
        if let Some(link) = self.link.as_mut() {
            link.expect(self.clock.as_ref(), live.job);
        }
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
        self.send(&Request::Live(Box::new(live)), &borrowed)?;
        Ok(wanted.models)
    }

    /// Watches a camera, which takes no models; its events come as those of a pipeline.
    ///
    /// # Errors
    /// Of the worker.
    pub fn watch_camera(&mut self, watch: Watch, camera: Option<&OwnedFd>) -> Result<()> {
        self.prepare(&needs::Wanted { models: Vec::new(), people: false })?;
        if let Some(link) = self.link.as_mut() {
            link.expect(self.clock.as_ref(), watch.job);
        }
        let fds: Vec<BorrowedFd<'_>> = camera.iter().map(|fd| fd.as_fd()).collect();
        self.send(&Request::Watch(Box::new(watch)), &fds)
    }

    /// The next event of the pipeline; `None` when none came in `most`.
    ///
    /// # Errors
    /// `Failed` as the worker says; `Crashed`, `Hung`, `Wire`, `Protocol` of the worker; of consent.
    pub fn live_next(&mut self, most: Duration) -> Result<Option<Event>> {
        match self.step(Some(most))? {
            Some(Event::Failed { failure, .. }) => {
                // A model that did not load says more than the pipeline that missed it.
                let models = self.link.iter().flat_map(|link| link.models.values());
                let broken = models.flatten().next().cloned();
                Err(Error::Failed(broken.unwrap_or(failure)))
            }
            Some(Event::Started { .. } | Event::PolicyHolds { .. }) => Ok(None),
            other => Ok(other),
        }
    }

    /// Says something to the pipeline.
    ///
    /// # Errors
    /// Of the worker.
    pub fn live_say(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.send(request, fds)
    }

    /// Brings the worker what serves the recipe now in place of `serving`. False when that takes
    /// another worker: only those who look are changed while frames go on.
    ///
    /// # Errors
    /// Of the models and of the worker.
    pub fn live_models(&mut self, recipe: &Recipe, serving: &mut Vec<Manifest>) -> Result<bool> {
        let wanted = needs::resolve(&needs::of_recipe(recipe), self.models.as_ref())?.models;
        if wanted == *serving {
            return Ok(true);
        }
        let looks = |manifest: &&Manifest| matches!(manifest.role, Role::Detector | Role::Gate);
        let rest = |all: &[Manifest]| -> Vec<Manifest> {
            all.iter().filter(|manifest| !looks(manifest)).cloned().collect()
        };
        if rest(&wanted) != rest(serving) {
            return Ok(false);
        }
        for manifest in wanted.iter().filter(looks).filter(|m| !serving.contains(m)) {
            let fd = self.models.open(manifest)?;
            self.send(&Request::Load(manifest.clone()), &[fd.as_fd()])?;
            if let Some(link) = self.link.as_mut() {
                link.models.insert(manifest.id.clone(), None);
            }
        }
        *serving = wanted;
        Ok(true)
    }

    /// Facts about the worker, when there is one that said `Hello`.
    #[must_use]
    pub fn live_facts(&mut self) -> Option<Facts> {
        self.link.as_ref().and_then(|link| link.hello())?;
        self.facts().ok()
    }

    /// Ends the worker, which did not do what it should; the next pipeline gets another.
    pub fn give_up(&mut self) {
        if self.link.is_some() {
            self.lose();
        }
    }
}
