//! Keeps the record while the daemon runs: what is full or old is sealed by itself.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::Part;
use crate::config::Config;
use crate::store::Store;
use crate::telemetry::Log;
use crate::{Error, Result};

/// How often it is looked at.
const EACH: Duration = Duration::from_secs(600);

/// How it went the last time.
#[derive(Debug, Default)]
struct Last {
    sealed: u64,
    fault: Option<String>,
}

/// The part that looks after the record. Sealing takes seconds, so it has a thread of its own.
#[derive(Debug)]
pub struct KeepRecord {
    stop: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
    last: Arc<Mutex<Last>>,
}

impl KeepRecord {
    /// Starts it.
    ///
    /// # Errors
    /// `Thread`.
    pub fn start(store: Arc<Store>, log: Log) -> Result<Self> {
        Self::start_each(store, log, EACH)
    }

    pub(super) fn start_each(store: Arc<Store>, log: Log, each: Duration) -> Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let last = Arc::new(Mutex::new(Last::default()));
        let shared = last.clone();
        let work = move || {
            while stopped.recv_timeout(each) == Err(RecvTimeoutError::Timeout) {
                let done = store.tend();
                let mut last = shared.lock().unwrap_or_else(PoisonError::into_inner);
                last.fault = None;
                match done {
                    Ok(None) => {}
                    Ok(Some(sealed)) => {
                        last.sealed += 1;
                        let (first, rows) = (sealed.statement.first, sealed.statement.last);
                        log.info("record sealed", &[("first", &first), ("last", &rows)]);
                    }
                    Err(error) => {
                        let why = mien_base::error::chain(&error);
                        log.error("record can't be sealed", &[("why", &why)]);
                        last.fault = Some(format!("the record can't be sealed: {why}"));
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("record".to_owned()).spawn(work);
        let thread = thread.map_err(|source| Error::Thread { name: "record", source })?;
        Ok(Self { stop, thread: Some(thread), last })
    }
}

impl Part for KeepRecord {
    fn name(&self) -> &'static str {
        "record"
    }

    fn reload(&mut self, _: &Config) -> Result<()> {
        Ok(())
    }

    fn status(&self) -> Value {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        json!({ "sealed": last.sealed })
    }

    fn faults(&self) -> Vec<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.fault.iter().cloned().collect()
    }

    fn stop(mut self: Box<Self>) {
        // A thread that is gone has nothing to be told.
        let _ = self.stop.try_send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
