//! `mien run`: the daemon. Wiring only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mien_base::clock::SystemClock;
use mien_daemon::config::Config;
use mien_daemon::fleet::{Makes, Station};
use mien_daemon::jobs::Executor;
use mien_daemon::live::Pipelines;
use mien_daemon::service::{KeepRecord, Lock, Parts, Service};
use mien_daemon::store::Store;
use mien_daemon::telemetry::{Log, Notify};
use mien_vault::Home;
use mien_vault::random::SystemRandom;

use super::args::DaemonArgs;
use super::error::{Error, Result};
use super::live::Shop;
use super::work::{House, Places, Work};
use super::{desk, job, record};

pub(crate) fn run(args: &DaemonArgs) -> Result<()> {
    let config = Config::load(&args.config).map_err(mien_daemon::Error::Config)?;
    let clock = Arc::new(SystemClock::start());
    let log = Log::new(config.telemetry.log, config.telemetry.level, clock.clone());
    let home = Home::from_env()?;
    home.create()?;
    let lock = Lock::take(home.data())?;
    let store = Arc::new(record::open(&home, clock.clone(), true)?);
    let (stop, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    desk::stop_on_signal(&stop)?;
    signal_hook::flag::register(signal_hook::consts::SIGHUP, reload.clone())
        .map_err(|source| Error::Signal { source })?;
    let shop = Arc::new(Shop { home: home.clone(), store: store.clone(), clock: clock.clone() });
    let station = Station::start(
        makes(&home, &store, &clock, House::new(&args.config, home.data(), &log, &store)),
        &config,
    )?;
    let handlers = BTreeMap::from([("job", station.clerk())]);
    let record = Box::new(KeepRecord::start(store.clone(), log.clone())?);
    let parts = Parts {
        home: home.data().to_owned(),
        lock,
        store,
        clock,
        log,
        notify: Notify::from_env(),
        lines: Box::new(Pipelines::new(shop)),
        parts: vec![record, Box::new(station)],
        handlers,
        stop,
        reload,
    };
    Ok(Service::start(config, parts)?.run()?)
}

/// What jobs and the fleet are made of.
fn makes(home: &Home, store: &Arc<Store>, clock: &Arc<SystemClock>, house: Arc<House>) -> Makes {
    let (of, known, rest) = (home.clone(), store.clone(), house.clone());
    let executor = move |config: &Config| {
        let (inputs, outputs) = (config.jobs.inputs.clone(), config.jobs.outputs.clone());
        let places = Places { inputs, outputs };
        let work = Work::new(&of, known.clone(), places, Some(rest.clone()))
            .threads(config.worker.threads)
            .unsandboxed(config.worker.allow_unsandboxed);
        Arc::new(work) as Arc<dyn Executor>
    };
    Makes {
        home: home.clone(),
        store: store.clone(),
        clock: clock.clone(),
        boot: job::boot(),
        executor: Box::new(executor),
        device: house,
        random: || Box::new(SystemRandom),
    }
}
