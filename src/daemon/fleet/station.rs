//! The jobs and the fleet of `mien run`: opened as the configuration says, and anew when that changes.
//!
//! ```text
//!   start ─▶ jobs ─▶ fleet, when there is a [fleet]      control socket ─▶ Clerk ─▶ jobs
//!   reload ─▶ [jobs], [fleet] as they were? nothing : fleet ends, jobs end, both begin anew
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mien_base::clock::Clock;
use mien_base::error::ErrorKind;
use mien_base::report::Failure;
use mien_vault::Home;
use mien_vault::random::Random;
use serde_json::{Value, json};

use super::{Device, Fleet, Settings};
use crate::config::{self, Config};
use crate::contract::{ROOT, Reason, Refusal, Topics};
use crate::errors::{Error, Result};
use crate::jobs::{self, Executor, HomeTrust, Jobs, verbs};
use crate::service::{Handler, Part, Peer};
use crate::store::{Bounds, Store};

/// Gives who does the work that a configuration allows.
pub type Hires = dyn Fn(&Config) -> Arc<dyn Executor> + Send;

/// What the jobs and the fleet are made of.
pub struct Makes {
    pub home: Home,
    pub store: Arc<Store>,
    pub clock: Arc<dyn Clock>,
    /// Changes when the machine starts again.
    pub boot: String,
    /// Does the work, as a configuration allows it.
    pub executor: Box<Hires>,
    /// What the fleet is told of the device, and asks of it.
    pub device: Arc<dyn Device>,
    pub random: fn() -> Box<dyn Random + Send>,
}

/// What runs now.
#[derive(Default)]
struct Open {
    jobs: Option<Arc<Jobs>>,
    fleet: Option<Fleet>,
    /// Why there is no fleet although one is configured.
    fault: Option<String>,
}

/// Name of a device in topics when there is no fleet.
const ALONE: &str = "here";

/// The jobs and the fleet, as a part of the service.
pub struct Station {
    makes: Makes,
    config: Config,
    open: Arc<Mutex<Open>>,
}

/// Answers `job.*` on the control socket.
pub struct Clerk(Arc<Mutex<Open>>);

fn held(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(config: &Config, boot: &str) -> jobs::Settings {
    let fleet = config.fleet.as_ref();
    let topics = match fleet {
        Some(fleet) => Topics::new(&fleet.root, &fleet.device),
        None => Topics::new(ROOT, ALONE),
    };
    let topics = topics.expect("the configuration checks roots and names");
    let mut settings = jobs::Settings::new(topics, boot.to_owned());
    settings.told = fleet.is_some();
    if let Some(fleet) = fleet {
        (settings.groups, settings.pools) = (fleet.groups.clone(), fleet.pools.clone());
    }
    let open = config.jobs.waiting as usize;
    settings.bounds = Bounds { open, of_one_issuer: open.div_ceil(2) };
    settings.slots.worker = config.jobs.running as usize;
    settings
}

impl Station {
    /// Opens the jobs, and reaches for the broker. A fleet that can't be is told by `faults`: the
    /// device works on without it.
    ///
    /// # Errors
    /// `Store…`, `Thread`.
    pub fn start(makes: Makes, config: &Config) -> Result<Self> {
        let station = Self { makes, config: config.clone(), open: Arc::default() };
        station.open_jobs()?;
        if let Err(error) = station.open_fleet() {
            held(&station.open).fault = Some(error.to_string());
        }
        Ok(station)
    }

    /// Who answers `job.*`.
    #[must_use]
    pub fn clerk(&self) -> Arc<dyn Handler> {
        Arc::new(Clerk(self.open.clone()))
    }

    fn open_jobs(&self) -> Result<()> {
        let makes = &self.makes;
        let parts = jobs::Parts {
            store: makes.store.clone(),
            clock: makes.clock.clone(),
            executor: (makes.executor)(&self.config),
            trust: Box::new(HomeTrust(makes.home.clone())),
            random: (makes.random)(),
        };
        let jobs = Jobs::open(settings(&self.config, &makes.boot), parts)?;
        held(&self.open).jobs = Some(Arc::new(jobs));
        Ok(())
    }

    fn open_fleet(&self) -> Result<()> {
        let mut open = held(&self.open);
        open.fault = None;
        if let (Some(fleet), Some(jobs)) = (&self.config.fleet, &open.jobs) {
            let (device, random) = (self.makes.device.clone(), (self.makes.random)());
            open.fleet = Some(Fleet::start(Settings::from(fleet), jobs.clone(), device, random)?);
        }
        Ok(())
    }

    fn close(&self) {
        let (fleet, jobs) = {
            let mut open = held(&self.open);
            (open.fleet.take(), open.jobs.take())
        };
        // What runs ends first, so that the fleet can still be told of it.
        if let Some(jobs) = jobs {
            jobs.close();
        }
        drop(fleet);
    }
}

/// The sections that make it begin anew when they change.
fn own(config: &Config) -> (&config::Jobs, &Option<config::Fleet>) {
    (&config.jobs, &config.fleet)
}

impl Part for Station {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn reload(&mut self, config: &Config) -> Result<()> {
        let changed = own(config) != own(&self.config) || held(&self.open).fault.is_some();
        let old = std::mem::replace(&mut self.config, config.clone());
        if !changed {
            return Ok(());
        }
        self.close();
        let opened = self.open_jobs().and_then(|()| self.open_fleet());
        if let Err(error) = opened {
            self.config = old;
            self.close();
            self.open_jobs()?;
            if let Err(second) = self.open_fleet() {
                held(&self.open).fault = Some(second.to_string());
            }
            return Err(error);
        }
        Ok(())
    }

    fn status(&self) -> Value {
        let open = held(&self.open);
        let Some(jobs) = &open.jobs else { return json!({ "state": "closed" }) };
        let most = jobs.settings().bounds.open;
        let waiting = jobs.store().open_jobs(most).map_or(0, |all| all.len());
        let mut told = json!({ "open": waiting, "running": jobs.running() });
        if let Some(fleet) = &open.fleet {
            told["fleet"] = serde_json::to_value(fleet.status()).unwrap_or_default();
        }
        told
    }

    fn faults(&self) -> Vec<String> {
        let fault = held(&self.open).fault.clone();
        fault.map(|why| format!("the fleet can't be reached: {why}")).into_iter().collect()
    }

    fn stop(self: Box<Self>) {
        self.close();
    }
}

/// A refusal as whoever asked on the control socket is told.
fn refused(refusal: &Refusal) -> Error {
    let kind = match refusal.reason {
        Reason::Internal => ErrorKind::Internal,
        Reason::QueueFull | Reason::QuotaExceeded => ErrorKind::Unreachable,
        _ => ErrorKind::Usage,
    };
    Error::Failed(Failure { kind, message: refusal.to_string() })
}

impl Handler for Clerk {
    fn answer(&self, peer: Peer, verb: &str, args: &Value) -> Result<Value> {
        let jobs = held(&self.0).jobs.clone();
        let jobs = jobs.ok_or_else(|| {
            let message = "The jobs are being opened anew; ask again".to_owned();
            Error::Failed(Failure { kind: ErrorKind::Unreachable, message })
        })?;
        let user = format!("uid:{}", peer.uid);
        verbs::answer(&jobs, &user, verb, args)?.map_err(|refusal| refused(&refusal))
    }
}

impl std::fmt::Debug for Station {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Station").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Clerk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clerk").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Makes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Makes").finish_non_exhaustive()
    }
}
