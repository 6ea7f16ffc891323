//! Time per stage, and inside it the time of the models, apart.

use std::ops::{AddAssign, Sub};
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::report::StageTime;
use mien_engine::backend::{Backend, Session};
use mien_engine::tensor::Tensor;

use crate::{Error, Result};

/// What models took: time, and CPU of the thread that called them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inference {
    pub passed: Duration,
    pub cpu: Duration,
}

impl AddAssign for Inference {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.cpu += more.cpu;
    }
}

impl Sub for Inference {
    type Output = Self;

    fn sub(self, less: Self) -> Self {
        Self { passed: self.passed - less.passed, cpu: self.cpu - less.cpu }
    }
}

/// Counts time for one picture.
pub struct Meter<'c> {
    clock: &'c dyn Clock,
    /// None where only the models' time is asked for.
    stages: Option<Vec<(&'static str, Duration, Inference)>>,
    inference: Inference,
}

impl std::fmt::Debug for Meter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("stages", &self.stages).finish_non_exhaustive()
    }
}

impl<'c> Meter<'c> {
    /// Starts with nothing counted.
    #[must_use]
    pub fn new(clock: &'c dyn Clock) -> Self {
        Self { clock, stages: Some(Vec::new()), inference: Inference::default() }
    }

    /// Counts the models' time and no stage: it allocates nothing.
    #[must_use]
    pub fn of_models(clock: &'c dyn Clock) -> Self {
        Self { clock, stages: None, inference: Inference::default() }
    }

    /// The clock that it counts by.
    #[must_use]
    pub fn clock(&self) -> &'c dyn Clock {
        self.clock
    }

    /// Runs a stage; the times of several runs under one name add up.
    pub fn stage<T>(&mut self, name: &'static str, work: impl FnOnce(&mut Self) -> T) -> T {
        if self.stages.is_none() {
            return work(self);
        }
        let (start, before) = (self.clock.mono(), self.inference);
        let result = work(self);
        let (all, inside) = (self.clock.mono().since(start), self.inference - before);
        let stages = self.stages.get_or_insert_default();
        match stages.iter_mut().find(|s| s.0 == name) {
            Some(stage) => {
                stage.1 += all;
                stage.2 += inside;
            }
            None => stages.push((name, all, inside)),
        }
        result
    }

    /// Runs a model and counts its time as inference.
    ///
    /// # Errors
    /// What the session gives.
    pub fn run<S: Session>(
        &mut self,
        session: &mut S,
        inputs: &[&S::Tensor],
    ) -> mien_engine::Result<Vec<S::Tensor>> {
        let (start, used) = (self.clock.mono(), self.clock.cpu());
        let result = session.run(inputs);
        self.inference += Inference {
            passed: self.clock.mono().since(start),
            cpu: self.clock.cpu().saturating_sub(used),
        };
        result
    }

    /// Runs a model, counts its time as inference, and brings its outputs to the host.
    ///
    /// # Errors
    /// `Engine` in the name of `stage`.
    pub(crate) fn infer<B: Backend>(
        &mut self,
        backend: &B,
        session: &mut B::Session,
        input: &B::Tensor,
        stage: &'static str,
    ) -> Result<Vec<Tensor>> {
        let outputs = self.run(session, &[input]).map_err(Error::engine(stage))?;
        let host = outputs.iter().map(|t| backend.download(t));
        host.collect::<mien_engine::Result<_>>().map_err(Error::engine(stage))
    }

    /// Time of all models so far.
    #[must_use]
    pub fn inference(&self) -> Inference {
        self.inference
    }

    /// What was counted, in the order in which the stages first ran.
    #[must_use]
    pub fn into_stages(self) -> Vec<StageTime> {
        let ms = |d: Duration| d.as_secs_f32() * 1e3;
        let stage = |(name, all, inside): (&'static str, Duration, Inference)| StageTime {
            stage: name.to_owned(),
            ms: ms(all),
            inference_ms: ms(inside.passed),
            inference_cpu_ms: ms(inside.cpu),
        };
        self.stages.into_iter().flatten().map(stage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::clock::{ManualClock, Wall};
    use mien_engine::contract::Port;

    struct Slow<'a>(&'a ManualClock);
    impl Session for Slow<'_> {
        type Tensor = ();
        fn run(&mut self, _: &[&()]) -> mien_engine::Result<Vec<()>> {
            self.0.advance(Duration::from_millis(30));
            Ok(Vec::new())
        }
        fn inputs(&self) -> &[Port] {
            &[]
        }
        fn outputs(&self) -> &[Port] {
            &[]
        }
    }

    #[test]
    fn inference_is_counted_inside_its_stage_and_apart() {
        let clock = ManualClock::at(Wall(0));
        let mut meter = Meter::new(&clock);
        for _ in 0..2 {
            meter.stage("detect", |m| {
                clock.advance(Duration::from_millis(5));
                m.run(&mut Slow(&clock), &[]).unwrap();
            });
        }
        meter.stage("paint", |_| clock.advance(Duration::from_millis(7)));
        let mut models = Meter::of_models(&clock);
        models.stage("detect", |m| m.run(&mut Slow(&clock), &[]).unwrap());
        assert_eq!(models.inference().passed, Duration::from_millis(30));
        assert!(models.into_stages().is_empty());
        let stages = meter.into_stages();
        assert_eq!(stages.len(), 2);
        assert!((stages[0].ms - 70.0).abs() < 1e-3 && (stages[0].inference_ms - 60.0).abs() < 1e-3);
        assert!((stages[1].ms - 7.0).abs() < 1e-3 && stages[1].inference_ms == 0.0);
    }
}
