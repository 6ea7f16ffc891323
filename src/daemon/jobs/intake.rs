//! From bytes to a job: read, signed by whom, meant for whom, still in time; then kept and answered.
//!
//! ```text
//!   bytes ─▶ size ─▶ envelope ─▶ document ─▶ signature and role ─▶ audience ─▶ time ─▶ can it be?
//!         ─▶ known id? ─▶ sequence ─▶ quota ─▶ job, row of the record, message: one transaction ─▶ ack
//! ```

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mien_base::clock::Mono;
use mien_base::id::JobId;
use mien_vault::sign::Envelope;
use mien_vault::trust::KeyRole;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Inner;
use super::control::Stop;
use crate::audit::{Entry, Kind as AuditKind};
use crate::contract::{
    CONTROL_TYPE, Control, Do, Document, JOB_TYPE, JobState, LARGEST, Reason, Refusal, State,
};
use crate::errors::{Error, Result};
use crate::store::{Asked, JobRow, Moved, Order, Origin, Step, Taken, When};

/// Refusals that are recorded one by one in a minute; more of them are counted.
const RECORDED: u32 = 60;
/// How far an issuer's clock may be ahead, in ms.
const AHEAD: u64 = 300_000;

/// Which way a document came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// For this device.
    Own,
    Group(String),
    Pool(String),
    /// From a user of this machine, who needs no signature.
    Local(String),
}

/// What is answered to a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The id that it had, as far as it could be read.
    pub id: Option<String>,
    pub outcome: std::result::Result<JobState, Refusal>,
}

impl Answer {
    /// As JSON for a response topic or a user.
    #[must_use]
    pub fn json(&self) -> Value {
        match &self.outcome {
            Ok(state) => json!({ "schema": "mien.answer/1", "id": self.id, "state": state }),
            Err(refusal) => json!({ "schema": "mien.answer/1", "id": self.id, "refused": refusal }),
        }
    }
}

/// Counts refusals, so that who floods us with nonsense does not fill the record.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    since: Option<Mono>,
    recorded: u32,
    silent: u64,
}

impl Refusals {
    /// `None`: only counted. Else how many were only counted before.
    fn next(&self, now: Mono) -> Option<u64> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.since.is_none_or(|since| now.since(since) >= Duration::from_secs(60)) {
            (counted.since, counted.recorded) = (Some(now), 0);
        }
        if counted.recorded >= RECORDED {
            counted.silent += 1;
            return None;
        }
        counted.recorded += 1;
        Some(std::mem::take(&mut counted.silent))
    }
}

/// What an envelope holds, once it is known who signed it.
struct Signed {
    issuer: String,
    payload: Vec<u8>,
}

fn open(bytes: &[u8], kind: &str) -> std::result::Result<Envelope, Refusal> {
    // Base64 and the signatures take their part.
    if bytes.len() > LARGEST * 3 / 2 {
        let detail = format!("{} bytes: send what is large as an artifact", bytes.len());
        return Err(Refusal::new(Reason::TooLarge, detail));
    }
    let envelope = Envelope::parse(bytes)
        .map_err(|error| Refusal::new(Reason::InvalidJson, error.to_string()))?;
    if envelope.payload_type() != kind {
        let detail = format!("the envelope must hold `{kind}`");
        return Err(Refusal::at(Reason::UnsupportedSchema, "/payloadType", detail));
    }
    Ok(envelope)
}

impl Inner {
    /// Takes a document in. What comes back is on disk.
    ///
    /// # Errors
    /// `Store…`: then nothing is known, and it must not be acknowledged.
    pub(super) fn submit(&self, via: &Via, retained: bool, bytes: &[u8]) -> Result<Answer> {
        let mut id = None;
        let taken = match self.read(via, retained, bytes, &mut id) {
            Ok(order) => self.store.take_job(order, self.settings.bounds)?,
            Err(refusal) => Taken::Refused(refusal),
        };
        let outcome = match taken {
            Taken::New(job, replaced) => {
                for old in replaced {
                    self.end(old.id(), Stop::Supersede);
                }
                self.changed();
                Ok(job.told())
            }
            Taken::Known(job) => {
                // Who asks again may have missed it: a broker that was wiped has forgotten it.
                self.store.tell_again(job.id()).wait()?;
                self.told();
                Ok(job.told())
            }
            Taken::Refused(refusal) => {
                self.refused("job", id.as_deref(), &refusal)?;
                Err(refusal)
            }
        };
        Ok(Answer { id, outcome })
    }

    /// Everything about a document that can be known without the database.
    fn read(
        &self,
        via: &Via,
        retained: bool,
        bytes: &[u8],
        id: &mut Option<String>,
    ) -> std::result::Result<Order, Refusal> {
        if retained {
            return Err(retained_refusal());
        }
        let (document, signed) = match via {
            Via::Local(user) => {
                let document = Document::parse(bytes)?;
                *id = Some(document.id.clone());
                (document, Signed { issuer: user.clone(), payload: bytes.to_vec() })
            }
            _ => {
                let envelope = open(bytes, JOB_TYPE)?;
                let document = Document::parse(envelope.payload())?;
                *id = Some(document.id.clone());
                let role = document.kind.role();
                let issuer = self.trust.signer(&envelope, role, self.clock.wall())?;
                (document, Signed { issuer, payload: envelope.payload().to_vec() })
            }
        };
        self.for_us(via, &document.audience)?;
        let refusal = self.admit(via, &document).err();
        let digest: [u8; 32] = Sha256::digest(&signed.payload).into();
        let text = String::from_utf8(signed.payload)
            .map_err(|_| Refusal::new(Reason::InvalidJson, "it is no text"))?;
        let origin = match via {
            Via::Own | Via::Group(_) => Origin::Fleet,
            Via::Pool(_) => Origin::Pool,
            Via::Local(_) => Origin::Local,
        };
        Ok(Order {
            execution: execution(self.settings.topics.device(), &document.id),
            topic: if self.settings.told {
                self.settings.topics.state(&document.id)
            } else {
                String::new()
            },
            boot: self.settings.boot.clone(),
            issuer: signed.issuer,
            document,
            text,
            digest,
            origin,
            refusal,
        })
    }

    /// The document must be for this device, and have come the way it says.
    fn for_us(&self, via: &Via, audience: &str) -> std::result::Result<(), Refusal> {
        let settings = &self.settings;
        let right = match via {
            Via::Own | Via::Local(_) => audience == settings.topics.device(),
            Via::Group(group) => {
                settings.groups.contains(group)
                    && audience.strip_prefix("group/") == Some(group.as_str())
            }
            Via::Pool(pool) => {
                settings.pools.contains(pool)
                    && audience.strip_prefix("pool/") == Some(pool.as_str())
            }
        };
        if right {
            return Ok(());
        }
        Err(Refusal::at(Reason::Unauthorized, "/audience", "it is meant for somebody else"))
    }

    /// What a document that is ours must fulfil to be a job now.
    fn admit(&self, via: &Via, document: &Document) -> std::result::Result<(), Refusal> {
        let now = self.now();
        if now.trusted && document.expires_at <= now.ms {
            return Err(Refusal::at(Reason::Expired, "/expires_at", "it has passed"));
        }
        if now.trusted && document.issued_at > now.ms.saturating_add(AHEAD) {
            let detail = "lies in the future of this device's clock";
            return Err(Refusal::at(Reason::InvalidRequest, "/issued_at", detail));
        }
        let boot = document.expect.boot_id.as_ref();
        if boot.is_some_and(|boot| *boot != self.settings.boot) {
            let detail = "the device was started again since";
            return Err(Refusal::at(Reason::VersionMismatch, "/expect/boot_id", detail));
        }
        if matches!(via, Via::Pool(_)) && document.fence.is_none() {
            return Err(Refusal::at(Reason::InvalidRequest, "/fence", "an offer must have one"));
        }
        self.executor.admit(document)
    }

    /// Takes a signed control document in.
    ///
    /// # Errors
    /// As `submit`.
    pub(super) fn submit_control(&self, job: &str, retained: bool, bytes: &[u8]) -> Result<Answer> {
        let id = Some(job.to_owned());
        let outcome = match self.read_control(job, retained, bytes) {
            Ok((control, issuer)) => {
                if self.store.take_sequence(&format!("{issuer}/ctl"), control.seq)? {
                    self.control(job, control.r#do, control.priority, control.expect_version)?
                } else if let Some(job) = self.store.job(job)? {
                    // A duplicate of what was done already, or a replay that does nothing.
                    Ok(job)
                } else {
                    Err(Refusal::at(Reason::Replayed, "/seq", "its signer used this number before"))
                }
            }
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = &outcome {
            self.refused("ctl", Some(job), refusal)?;
        }
        Ok(Answer { id, outcome: outcome.map(|job| job.told()) })
    }

    fn read_control(
        &self,
        job: &str,
        retained: bool,
        bytes: &[u8],
    ) -> std::result::Result<(Control, String), Refusal> {
        if retained {
            return Err(retained_refusal());
        }
        let envelope = open(bytes, CONTROL_TYPE)?;
        let control = Control::parse(envelope.payload())?;
        let role = match self.store.job(&control.job) {
            Ok(Some(job)) => job.document.kind.role(),
            _ => KeyRole::Operate,
        };
        // Who operates a device may stop anything on it; who ordered a job may steer that.
        let now = self.clock.wall();
        let issuer = self
            .trust
            .signer(&envelope, KeyRole::Operate, now)
            .or_else(|first| self.trust.signer(&envelope, role, now).map_err(|_| first))?;
        if control.job != job {
            return Err(Refusal::at(Reason::InvalidTopic, "/job", "the topic names another job"));
        }
        self.for_us(&Via::Own, &control.audience)?;
        let now = self.now();
        if now.trusted && control.expires_at <= now.ms {
            return Err(Refusal::at(Reason::Expired, "/expires_at", "it has passed"));
        }
        Ok((control, issuer))
    }

    /// Does what was asked with a job. A cancellation is always answered by what the job is or
    /// becomes.
    ///
    /// # Errors
    /// `Store…`.
    pub(super) fn control(
        &self,
        id: &str,
        what: Do,
        priority: Option<u8>,
        expect_version: Option<u64>,
    ) -> Result<std::result::Result<JobRow, Refusal>> {
        let Some(job) = self.store.job(id)? else {
            return Ok(Err(Refusal::new(Reason::UnknownJob, "there is no such job here")));
        };
        if expect_version.is_some_and(|version| version != job.version) {
            let detail = format!("the job has version {}", job.version);
            return Ok(Err(Refusal::at(Reason::VersionMismatch, "/expect_version", detail)));
        }
        if job.state.is_end() {
            // The end that it has is the answer to a cancellation.
            let answer = if what == Do::Cancel {
                Ok(job)
            } else {
                Err(Refusal::new(Reason::TerminalStateReached, format!("it is {}", job.state)))
            };
            return Ok(answer);
        }
        let (to, asked) = match what {
            Do::Cancel => (State::Cancelled, Some((Asked::Cancel, Stop::Cancel))),
            Do::Pause => (State::Paused, Some((Asked::Pause, Stop::Pause))),
            Do::Resume => (State::Queued, None),
            Do::Reprioritise => {
                self.store.prioritise_job(id, priority.unwrap_or(job.priority))?;
                self.changed();
                return self.store.job(id)?.map_or_else(|| Err(gone()), |job| Ok(Ok(job)));
            }
        };
        if let Some((asked, stop)) = asked.filter(|_| job.state == State::Running)
            && self.store.ask_of_job(id, asked)?
        {
            self.end(id, stop);
            self.changed();
            return self.store.job(id)?.map_or_else(|| Err(gone()), |job| Ok(Ok(job)));
        }
        let step = Step::to(id, to, &self.settings.boot);
        let step = if to == State::Cancelled {
            step.because(Reason::Cancelled, "before it began")
        } else {
            step
        };
        let moved = self.store.move_job(step)?;
        self.changed();
        Ok(match moved {
            Moved::Done(job) => Ok(job),
            // It began or ended in between: asked again, it is answered by what it is now.
            Moved::Illegal(job) | Moved::Stale(job) if what == Do::Cancel => {
                return self.control(job.id(), what, priority, None);
            }
            Moved::Illegal(job) | Moved::Stale(job) => {
                let detail = format!("it is {}", job.state);
                Err(Refusal::new(Reason::InvalidStateTransition, detail))
            }
            Moved::Unknown => Err(Refusal::new(Reason::UnknownJob, "there is no such job here")),
        })
    }

    /// Records a refusal.
    pub(super) fn refused(&self, what: &str, id: Option<&str>, refusal: &Refusal) -> Result<()> {
        let Some(silent) = self.refusals.next(self.clock.mono()) else { return Ok(()) };
        let body = json!({
            "command": what,
            "id": id,
            "reason": refusal.reason.name(),
            "at": refusal.at,
            "more_not_recorded": silent,
        });
        let entry = Entry::new(AuditKind::Refused, self.clock.wall(), body);
        self.store.append(entry)?;
        if !self.settings.told {
            return Ok(());
        }
        let topic = self.settings.topics.own("event/refused");
        let event = json!({ "command": what, "id": id, "reason": refusal.reason });
        if let Value::Object(event) = event {
            drop(self.store.put_event("refused", topic, event));
        }
        if refusal.reason == Reason::Retained {
            self.alarm("retained-command", "a command was retained on the broker; clear it")?;
        }
        Ok(())
    }

    /// Raises an alarm.
    fn alarm(&self, name: &str, detail: &str) -> Result<()> {
        let at = self.clock.wall().0.saturating_mul(1000);
        let body = json!({ "raised": true, "severity": "warning", "detail": detail, "at": at });
        let draft = crate::contract::Draft {
            topic: self.settings.topics.own(&format!("alarm/{name}")),
            class: crate::contract::Class::Latest,
            retain: true,
            life_s: None,
            payload: serde_json::to_vec(&body).expect("plain data with text keys"),
        };
        self.store.put_message(When::Soon, draft).wait()
    }
}

fn gone() -> Error {
    Error::StoreCommit { detail: "a job that is open is gone".to_owned() }
}

fn retained_refusal() -> Refusal {
    let detail = "commands must not be retained: whoever connects later would get them again";
    Refusal::new(Reason::Retained, detail)
}

/// Under which id the worker and the record know a job: of this device alone.
#[must_use]
pub fn execution(device: &str, id: &str) -> JobId {
    let digest: [u8; 32] = Sha256::digest(format!("mien job\0{device}\0{id}")).into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(digest.get(..16).unwrap_or_default());
    JobId(bytes)
}
