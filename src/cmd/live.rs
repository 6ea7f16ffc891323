//! What live pipelines work with: models, sources and workers of this home. Composition only.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mien_base::clock::{Clock, SystemClock, Wall};
use mien_base::id::{IdentityId, JobId};
use mien_base::limits;
use mien_daemon::audit::{Entry, Kind};
use mien_daemon::config;
use mien_daemon::live::Means;
use mien_daemon::store::Store;
use mien_daemon::supervise::{Hang, Policy, Source, Supervisor, WorkerConfig};
use mien_vault::random::{Random as _, SystemRandom};
use mien_vault::{Home, ModelStore, SourceStore as _};
use mien_worker::camera::v4l2::{Driver as _, Node};
use serde_json::Value;

use super::recipe;
use super::record::{Consents, Recorder};

/// A pipeline's worker says something at least once a second; with less it hangs.
const HANG: Hang = Hang {
    factor: 8.0,
    least: std::time::Duration::from_secs(5),
    most: std::time::Duration::from_secs(60),
};

/// Stores and clock of the daemon.
#[derive(Debug)]
pub(crate) struct Shop {
    pub home: Home,
    pub store: Arc<Store>,
    pub clock: Arc<SystemClock>,
}

impl Means for Shop {
    fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    fn worker(
        &self,
        worker: &config::Worker,
        known: &[IdentityId],
    ) -> mien_daemon::Result<Supervisor> {
        let mut config = WorkerConfig::this_program()?;
        if let Some(program) = &worker.program {
            config.program.clone_from(program);
            config.arguments = vec!["worker".into()];
        }
        if let Some(threads) = worker.threads {
            config.threads = threads;
        }
        config.memory_mib = worker.memory_mib;
        config.unsandboxed = worker.allow_unsandboxed;
        config.file_mib = u32::try_from(limits::CLIP_FILE >> 20).unwrap_or(u32::MAX);
        config.hang = HANG;
        let models = Box::new(ModelStore::new(&self.home, self.clock.clone()));
        let mut supervisor = Supervisor::start(config, models, self.clock.clone())?;
        supervisor.set_witness(Arc::new(Recorder {
            store: self.store.clone(),
            clock: self.clock.clone(),
            wall: self.clock.wall(),
            lenient: false,
        }));
        supervisor.watch_consent(Box::new(Consents::new(&self.store, known.to_vec())?));
        Ok(supervisor)
    }

    fn known(&self) -> mien_daemon::Result<Vec<IdentityId>> {
        let mut all = self.store.list()?;
        all.truncate(limits::IDENTITIES);
        Ok(all)
    }

    fn policy(&self, known: &[IdentityId]) -> mien_daemon::Result<Policy> {
        let sources = known.iter().map(|id| {
            let stored = self.store.get(id)?;
            let (record, portrait, consents) = (stored.record, stored.portrait, stored.consents);
            Ok(Source { record, portrait, consents })
        });
        let sources: mien_daemon::Result<Vec<Source>> = sources.collect();
        Ok(Policy { sources: sources? })
    }

    fn job(&self, wall: Wall) -> mien_daemon::Result<(JobId, u32)> {
        let mut bytes = [0; 16];
        SystemRandom.fill(&mut bytes).map_err(|error| {
            let source = error
                .raw_os_error()
                .map_or(rustix::io::Errno::IO, rustix::io::Errno::from_raw_os_error);
            mien_daemon::Error::Memory { what: "a random number", source }
        })?;
        let job = JobId(bytes);
        Ok((job, recipe::counter(job, wall)))
    }

    fn bus(&self, node: BorrowedFd<'_>) -> Option<String> {
        let own = node.try_clone_to_owned().ok()?;
        Node::new(own).ok()?.card().ok().map(|card| card.bus)
    }

    fn record(&self, job: JobId, body: Value) -> mien_daemon::Result<()> {
        let entry = Entry::new(Kind::Job, self.clock.wall(), body).of_job(job);
        self.store.append(entry).map(drop)
    }
}
