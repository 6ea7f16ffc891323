//! Consent while work is going on: what changes is sent at once, and holds from the next frame.
//!
//! ```text
//!   revoked (any process) ─▶ watch, at most a tick later ─▶ Consents ─▶ worker, before its next frame
//!                                       record ◀─ witness ◀─ ConsentsHold { frame } ◀─┘
//! ```

use std::time::Duration;

use mien_base::consent::ConsentRecord;
use mien_base::id::{IdentityId, JobId};
use mien_base::wire::Request;

use super::Supervisor;
use crate::Result;

/// How often the watch is asked while a job runs.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// Records by source.
pub type Consents = Vec<(IdentityId, Vec<ConsentRecord>)>;

/// Knows when consent has changed.
pub trait ConsentWatch: std::fmt::Debug + Send {
    /// The records of each source that it watches, when they may have changed since it was asked
    /// last; a source that is gone has none.
    ///
    /// # Errors
    /// When that can't be known: then what runs ends.
    fn changed(&mut self) -> Result<Option<Consents>>;
}

impl Supervisor {
    /// From here on changes of consent reach what runs.
    pub fn watch_consent(&mut self, watch: Box<dyn ConsentWatch>) {
        self.watch = Some(watch);
    }

    /// Brings the worker what has changed. When that can't be known or sent, no worker is left that
    /// could go on with what was permitted before.
    pub(super) fn look_at_consent(&mut self) -> Result<()> {
        let Some(watch) = self.watch.as_mut() else { return Ok(()) };
        let told = match watch.changed() {
            Ok(None) => Ok(()),
            Ok(Some(all)) => self.bring_consent(all),
            Err(error) => Err(error),
        };
        if told.is_err() {
            self.link = None;
        }
        told
    }

    fn bring_consent(&mut self, all: Consents) -> Result<()> {
        for (identity, consents) in all {
            let mut sources = self.policy.sources.iter_mut();
            let Some(source) = sources.find(|s| s.record.identity == identity) else { continue };
            if source.consents == consents {
                continue;
            }
            source.consents.clone_from(&consents);
            let before = self.revision;
            self.revision += 1;
            let revision = self.revision;
            // A worker with another policy, or none, gets the whole of it before its next job.
            if self.link.as_ref().is_some_and(|link| link.policy == Some(before)) {
                self.send(&Request::Consents { revision, identity, consents }, &[])?;
                if let Some(link) = self.link.as_mut() {
                    link.policy = Some(revision);
                }
            }
        }
        Ok(())
    }

    /// The worker holds itself to what was sent.
    pub(super) fn holds(
        &mut self,
        identity: &IdentityId,
        clip: Option<(JobId, u64)>,
    ) -> Result<()> {
        let (Some(witness), Some((job, frame))) = (&self.witness, clip) else { return Ok(()) };
        let kept = witness.consent_holds(identity, job, frame);
        if kept.is_err() {
            self.link = None;
        }
        kept
    }
}
