//! The pipelines that run, and how they become those that are wanted.

use std::collections::BTreeMap;

use super::wanted::{Set, Step, steps};
use super::{Line, Lines, Wanted};
use crate::Result;
use crate::live::PipelineStatus;
use mien_base::error::chain;

/// What runs, by name.
#[derive(Default)]
pub(super) struct Running {
    lines: BTreeMap<String, (Wanted, Box<dyn Line>)>,
    /// What could not be started, and why; tried again.
    pub(super) failed: BTreeMap<String, String>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.lines.keys()).finish()
    }
}

impl Running {
    /// What runs now.
    pub(super) fn set(&self) -> Set {
        self.lines.iter().map(|(name, (wanted, _))| (name.clone(), wanted.clone())).collect()
    }

    /// Changes what runs, wholly or not at all: after a fault everything is as it was.
    ///
    /// # Errors
    /// The first fault, and that of what could not be brought back.
    pub(super) fn change(&mut self, then: &Set, with: &dyn Lines) -> Result<Vec<Step>> {
        let before = self.set();
        let done = steps(&before, then);
        for step in &done {
            let wanted = match step {
                Step::Apply(name) | Step::Start(name) => then.get(name),
                Step::Stop(_) => None,
            };
            if let Some(wanted) = wanted {
                with.check(wanted)?;
            }
        }
        for step in &done {
            if let Err(error) = self.take(step, then, with) {
                // What can't be brought back is told by its absence, and tried again.
                self.settle(&before, with);
                return Err(error);
            }
        }
        self.failed.clear();
        Ok(done)
    }

    /// Comes as near to what is wanted as can be; what fails is kept in mind.
    pub(super) fn settle(&mut self, then: &Set, with: &dyn Lines) -> Vec<Step> {
        let all = steps(&self.set(), then);
        self.failed.retain(|name, _| then.contains_key(name));
        let mut done = Vec::new();
        for step in all {
            match self.take(&step, then, with) {
                Ok(()) => done.push(step),
                Err(error) => {
                    let (Step::Stop(name) | Step::Apply(name) | Step::Start(name)) = &step;
                    self.failed.insert(name.clone(), chain(&error));
                }
            }
        }
        done
    }

    fn take(&mut self, step: &Step, then: &Set, with: &dyn Lines) -> Result<()> {
        match step {
            Step::Stop(name) => {
                if let Some((_, line)) = self.lines.remove(name) {
                    line.stop();
                }
            }
            Step::Apply(name) => {
                if let (Some((has, line)), Some(wanted)) =
                    (self.lines.get_mut(name), then.get(name))
                {
                    line.apply(wanted)?;
                    *has = wanted.clone();
                    self.failed.remove(name);
                }
            }
            Step::Start(name) => {
                if let Some(wanted) = then.get(name) {
                    let line = with.start(wanted)?;
                    self.lines.insert(name.clone(), (wanted.clone(), line));
                    self.failed.remove(name);
                }
            }
        }
        Ok(())
    }

    /// How all of them stand.
    pub(super) fn statuses(&self) -> Vec<PipelineStatus> {
        self.lines.values().map(|(_, line)| line.status()).collect()
    }

    /// Lets each look after itself.
    pub(super) fn tend(&mut self) {
        self.lines.values_mut().for_each(|(_, line)| line.tend());
    }

    /// Ends all of them.
    pub(super) fn stop(&mut self) {
        while let Some((_, (_, line))) = self.lines.pop_last() {
            line.stop();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::wanted::{at, tests::config, tests::text};
    use super::*;
    use crate::Error;
    use mien_base::clock::Wall;
    use std::sync::{Arc, Mutex};

    /// Pipelines that only note what is done to them; the names in `broken` can't be started.
    #[derive(Clone, Default)]
    pub(in super::super) struct Noted {
        pub(in super::super) deeds: Arc<Mutex<Vec<String>>>,
        pub(in super::super) broken: Arc<Mutex<Vec<String>>>,
        pub(in super::super) unfit: Arc<Mutex<Vec<String>>>,
    }

    impl Noted {
        fn note(&self, deed: &str, name: &str) {
            self.deeds.lock().unwrap().push(format!("{deed} {name}"));
        }

        pub(in super::super) fn told(&self) -> Vec<String> {
            std::mem::take(&mut *self.deeds.lock().unwrap())
        }
    }

    struct One(Noted, PipelineStatus);

    impl Line for One {
        fn status(&self) -> PipelineStatus {
            self.1.clone()
        }
        fn apply(&mut self, wanted: &Wanted) -> Result<()> {
            self.0.note("apply", &wanted.name);
            Ok(())
        }
        fn stop(self: Box<Self>) {
            self.0.note("stop", &self.1.name);
        }
    }

    fn refused(name: &str) -> Error {
        Error::Busy { name: name.to_owned() }
    }

    impl Lines for Noted {
        fn check(&self, wanted: &Wanted) -> Result<()> {
            let unfit = self.unfit.lock().unwrap().contains(&wanted.name);
            if unfit { Err(refused(&wanted.name)) } else { Ok(()) }
        }
        fn start(&self, wanted: &Wanted) -> Result<Box<dyn Line>> {
            if self.broken.lock().unwrap().contains(&wanted.name) {
                return Err(refused(&wanted.name));
            }
            self.note("start", &wanted.name);
            let mut status = PipelineStatus::new(&wanted.name, &wanted.camera.name);
            status.state = crate::live::State::Running;
            Ok(Box::new(One(self.clone(), status)))
        }
    }

    #[test]
    fn a_change_that_fails_leaves_everything_as_it_was() {
        let (noted, mut running) = (Noted::default(), Running::default());
        let before = at(&config(&text(&["a", "b"])), Wall(0));
        running.change(&before, &noted).unwrap();
        assert_eq!(noted.told(), ["start a", "start b"]);
        let then = at(&config(&text(&["b", "c", "d"])), Wall(0));
        noted.broken.lock().unwrap().push("d".to_owned());
        assert!(running.change(&then, &noted).is_err());
        assert_eq!(noted.told(), ["stop a", "start c", "stop c", "start a"], "b was not touched");
        assert_eq!(running.set(), before);

        noted.unfit.lock().unwrap().push("c".to_owned());
        assert!(running.change(&then, &noted).is_err());
        assert!(noted.told().is_empty(), "what fails its check touches nothing");
    }

    #[test]
    fn one_that_fails_does_not_keep_the_others_from_running() {
        let (noted, mut running) = (Noted::default(), Running::default());
        noted.broken.lock().unwrap().push("a".to_owned());
        let then = at(&config(&text(&["a", "b"])), Wall(0));
        running.settle(&then, &noted);
        assert_eq!(noted.told(), ["start b"]);
        assert!(running.failed["a"].contains('a'));
        noted.broken.lock().unwrap().clear();
        running.settle(&then, &noted);
        assert_eq!(noted.told(), ["start a"]);
        assert!(running.failed.is_empty());
    }
}
