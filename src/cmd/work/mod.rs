//! Does the work of jobs: what a command does at a shell, a job does for the fleet.

mod artifact;
mod goods;
mod house;
mod media;
mod rules;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mien_daemon::contract::{Document, Kind, Reason, Refusal};
use mien_daemon::jobs::{Executor, JobControl, Outcome};
use mien_daemon::store::{JobRow, Store, Watch};
use mien_vault::Home;
use serde_json::Value;

pub(crate) use house::House;

use super::args::RunArgs;
use super::desk::Desk;
use super::error::{Error, Result};

/// Where jobs may read and write.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub inputs: Vec<PathBuf>,
    pub outputs: Vec<PathBuf>,
}

/// Works at a desk of its own, one picture or clip after the other.
pub(crate) struct Work {
    home: Home,
    store: Arc<Store>,
    places: Places,
    allow_unsandboxed: bool,
    threads: Option<usize>,
    desk: Mutex<Option<(Desk, Watch)>>,
    /// Cameras and pipelines, the configuration, the machine itself: what only a daemon has.
    rest: Option<Arc<dyn Executor>>,
}

/// What a job is told to be when it can't.
type Fault = Refusal;

/// What the rest of a daemon does, when there is one.
const REST: [Kind; 16] = [
    Kind::PipelineStart,
    Kind::PipelineStop,
    Kind::PipelineUpdate,
    Kind::CameraProbe,
    Kind::SnapshotTake,
    Kind::ConfigUpdate,
    Kind::ProfileActivate,
    Kind::LogLevel,
    Kind::LogUpload,
    Kind::EngineBuild,
    Kind::BenchmarkRun,
    Kind::DiagBundle,
    Kind::PowerMode,
    Kind::DeviceReboot,
    Kind::DeviceUpdate,
    Kind::DeviceRollback,
];

impl Work {
    /// For the jobs of a home.
    pub(crate) fn new(
        home: &Home,
        store: Arc<Store>,
        places: Places,
        rest: Option<Arc<dyn Executor>>,
    ) -> Self {
        let (home, desk) = (home.clone(), Mutex::new(None));
        Self { home, store, places, allow_unsandboxed: false, threads: None, desk, rest }
    }

    /// Works although the kernel can't hold the worker.
    pub(crate) fn unsandboxed(mut self, allowed: bool) -> Self {
        self.allow_unsandboxed = allowed;
        self
    }

    /// With so many compute threads; none: as many as the machine has cores.
    pub(crate) fn threads(mut self, threads: Option<u16>) -> Self {
        self.threads = threads.map(usize::from);
        self
    }

    /// Does something at a desk that knows who is enrolled now, and ends it when the job must end.
    fn at_desk<T: Send>(
        &self,
        job: &JobRow,
        control: &JobControl,
        work: impl FnOnce(&mut Desk) -> Result<T> + Send,
    ) -> Result<T> {
        let mut kept = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = match kept.as_mut() {
            Some((_, watch)) => watch.changed()?,
            None => true,
        };
        if stale {
            *kept = None;
            // Before the desk reads: what changes from here on is seen.
            let watch = self.store.watch()?;
            let args = RunArgs {
                json: false,
                quiet: true,
                threads: self.threads,
                job: None,
                clock: None,
                allow_unaudited: false,
                allow_unsandboxed: self.allow_unsandboxed,
            };
            *kept = Some((Desk::open_for_jobs(&self.home, &self.store, &args)?, watch));
        }
        let (desk, _) = kept.as_mut().expect("opened just now");
        desk.begin(job.execution);
        let (flag, ends) = (desk.worker.cancel_handle().flag(), control.flag());
        flag.store(false, Ordering::SeqCst);
        let done = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("job-stop".to_owned())
                .spawn_scoped(scope, || {
                    while !done.load(Ordering::SeqCst) {
                        if ends.load(Ordering::SeqCst) {
                            flag.store(true, Ordering::SeqCst);
                        }
                        std::thread::park_timeout(Duration::from_millis(20));
                    }
                })
                .map_err(|source| Error::Signal { source })?;
            let result = work(desk);
            done.store(true, Ordering::SeqCst);
            result
        });
        flag.store(false, Ordering::SeqCst);
        if result
            .as_ref()
            .is_err_and(|error| error.kind() != mien_base::error::ErrorKind::Cancelled)
        {
            // A worker that failed a job is not asked for the next one.
            *kept = None;
        }
        result
    }
}

/// What an error is to the fleet.
fn fault(error: &Error) -> Refusal {
    let reason = match error {
        Error::Vault(vault) | Error::Daemon(mien_daemon::Error::Vault(vault)) => match vault {
            mien_vault::Error::SourceUnknown { .. } => Reason::SourceUnknown,
            mien_vault::Error::ConsentMissing { .. } => Reason::ConsentMissing,
            mien_vault::Error::DiskFull { .. } => Reason::DiskFull,
            mien_vault::Error::Refused { .. } => Reason::ModelSignatureInvalid,
            other => Reason::of_error(other.kind()),
        },
        Error::Daemon(mien_daemon::Error::Full { .. }) => Reason::DiskFull,
        Error::Daemon(mien_daemon::Error::Memory { .. }) => Reason::InsufficientMemory,
        Error::Daemon(mien_daemon::Error::Read { .. }) => Reason::InputUnreadable,
        other => Reason::of_error(other.kind()),
    };
    let detail: String = error.chain().chars().take(400).collect();
    Refusal::new(reason, detail)
}

impl Executor for Work {
    fn admit(&self, document: &Document) -> std::result::Result<(), Refusal> {
        if REST.contains(&document.kind) {
            return match &self.rest {
                Some(rest) => rest.admit(document),
                None => Err(unavailable(document.kind)),
            };
        }
        match document.kind {
            Kind::ImageProcess | Kind::ClipProcess => media::admit(document, &self.places),
            _ => goods::admit(document, &self.places),
        }
    }

    fn run(&self, job: &JobRow, control: &JobControl) -> Outcome {
        let kind = job.document.kind;
        if REST.contains(&kind) {
            return match &self.rest {
                Some(rest) => rest.run(job, control),
                None => Outcome::Failed(unavailable(kind)),
            };
        }
        let done = match kind {
            Kind::ImageProcess => media::image(self, job, control),
            Kind::ClipProcess => media::clip(self, job, control),
            _ => goods::run(self, job, control),
        };
        match done {
            Ok(result) => Outcome::Done(result),
            Err(refusal) if refusal.reason == Reason::Cancelled => Outcome::Stopped,
            Err(refusal) => Outcome::Failed(refusal),
        }
    }

    fn left(&self, job: &JobRow) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.left(job))
    }
}

fn unavailable(kind: Kind) -> Refusal {
    Refusal::at(Reason::Unavailable, "/kind", format!("`{kind}` can't be done on this device"))
}

/// What a kind's work gives: a table for the job's result.
type Done = std::result::Result<Value, Fault>;
