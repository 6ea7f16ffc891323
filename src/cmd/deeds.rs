//! What is done with models and keys, put into the record before it takes effect.

use std::io;
use std::sync::Arc;

use mien_base::clock::{Clock as _, SystemClock};
use mien_daemon::audit::{Entry, Kind};
use mien_daemon::store::Store;
use mien_vault::Home;
use mien_vault::audit::{AuditSink, Deed};
use serde_json::Value;

use super::error::Result;
use super::record;

/// The record of a home, opened when the first deed comes.
#[derive(Debug)]
pub(crate) struct Deeds {
    home: Home,
    clock: Arc<SystemClock>,
    store: Option<Store>,
}

impl Deeds {
    /// Of this home.
    pub(crate) fn open(home: &Home) -> Self {
        Self { home: home.clone(), clock: Arc::new(SystemClock::start()), store: None }
    }

    fn store(&mut self) -> Result<&Store> {
        if self.store.is_none() {
            self.store = Some(record::open(&self.home, self.clock.clone(), true)?);
        }
        Ok(self.store.as_ref().expect("opened just now"))
    }
}

impl AuditSink for Deeds {
    fn append(&mut self, deed: Deed, body: Value) -> io::Result<()> {
        let kind = match deed {
            Deed::ModelInstall => Kind::ModelInstall,
            Deed::ModelActivate => Kind::ModelActivate,
            Deed::ModelRemove => Kind::ModelRemove,
            Deed::Key => Kind::Key,
            Deed::Refused => Kind::Refused,
        };
        let entry = Entry::new(kind, self.clock.wall(), body);
        let store = self.store().map_err(|error| io::Error::other(error.chain()))?;
        store.append(entry).map(|_| ()).map_err(io::Error::other)
    }
}
