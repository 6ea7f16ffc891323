//! The database as commands use it: opened in one place, and the rows that they leave in the record.

use std::sync::Arc;

use serde_json::{Value, json};

use mien_base::clock::{Clock as _, SystemClock, Wall};
use mien_base::consent::{ConsentRecord, Scope};
use mien_base::error::ErrorKind;
use mien_base::id::{IdentityId, JobId};
use mien_base::recipe::{Mark, Recipe};
use mien_base::report::{FaceReport, MarkReport};
use mien_daemon::audit::{self, Entry, Face, Kind};
use mien_daemon::store::{HomeKeys, PATIENCE, Parts, Store, Watch};
use mien_daemon::supervise::{self, ConsentWatch, Ended, Witness};
use mien_vault::Home;
use mien_vault::random::SystemRandom;

use super::error::{Error, Result};
use super::out;

/// Opens the database of a home; says what was made or taken over on the way.
pub(crate) fn open(home: &Home, clock: Arc<SystemClock>, quiet: bool) -> Result<Store> {
    home.create()?;
    let say = |text: String| {
        if !quiet {
            out::note(&format!("mien: {text}"));
        }
    };
    let keys = HomeKeys::open(home, &mut SystemRandom, clock.wall())?;
    if let Some(id) = keys.made() {
        let (at, keeper) = (home.keys().display().to_string(), keys.keeper().words());
        say(format!(
            "made the operator's key {id} in {at}: it signs consent that is entered here; \
             this machine's own key signs the record and seals the sources: {keeper}"
        ));
    }
    let random = Box::new(SystemRandom);
    let parts = Parts { clock, keys: Arc::new(keys), random, patience: PATIENCE };
    let store = Store::open(home.data(), parts)?;
    let imported = store.import(home)?;
    for id in &imported.taken {
        say(format!("{id}: taken over from a file into the database, and the file erased"));
    }
    for (id, why) in &imported.left {
        out::note(&format!("{id}: left in {}: {why}", home.identities().display()));
    }
    if let Some(sealed) = store.tend()? {
        let (first, last, at) =
            (sealed.statement.first, sealed.statement.last, sealed.file.display());
        say(format!("rows {first} to {last} of the record were sealed into {at}"));
    }
    Ok(store)
}

/// Puts a row into the record for each output before it appears.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub store: Arc<Store>,
    pub clock: Arc<SystemClock>,
    /// Wall time of the jobs, by which consent is judged.
    pub wall: Wall,
    /// An output may appear although its row could not be written.
    pub lenient: bool,
}

impl Recorder {
    /// Writes a row now. When it can't be, that is an error unless the user takes the risk.
    pub(crate) fn write(&self, entry: Entry) -> mien_daemon::Result<()> {
        match self.store.append(entry) {
            Ok(_) => Ok(()),
            Err(error) if self.lenient => {
                out::note(&format!("not recorded: {}", Error::from(error).chain()));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn entry(&self, kind: Kind, body: Value) -> Entry {
        Entry::new(kind, self.clock.wall(), body)
    }

    /// A job that left nothing.
    pub(crate) fn failed(&self, job: JobId, error: &mien_daemon::Error) {
        let refusal = error.refusal();
        let kind = error.kind();
        let row = match kind {
            _ if refusal.is_some() => Kind::Refused,
            ErrorKind::NoConsent | ErrorKind::ContentRefused => Kind::Refused,
            ErrorKind::Quarantined => Kind::Fault,
            _ => Kind::Job,
        };
        let mut body = json!({ "outcome": "failed", "reason": kind.reason() });
        if let Some(refusal) = refusal {
            // The package that was to serve, and why it does not.
            body["reason"] = refusal.code().into();
            body["what"] = error.to_string().into();
        }
        self.aside(self.entry(row, body).of_job(job));
    }

    /// A command that was refused before it became a job.
    pub(crate) fn refused(&self, command: &str, kind: ErrorKind) {
        let body = json!({ "command": command, "reason": kind.reason() });
        self.aside(self.entry(Kind::Refused, body));
    }

    /// Consent that was given for one command alone.
    pub(crate) fn borrowed(&self, consent: &ConsentRecord) -> mien_daemon::Result<()> {
        let body = json!({
            "borrowed": true,
            "scope": consent.scope,
            "granted": consent.granted.to_string(),
            "expires": consent.expires.to_string(),
            "evidence": consent.evidence,
            "operator": consent.operator,
        });
        self.write(self.entry(Kind::Grant, body).about(&consent.identity))
    }

    /// Mark settings other than the usual ones.
    pub(crate) fn marks(&self, mark: &Mark) -> mien_daemon::Result<()> {
        let usual = Recipe::default().mark;
        // Device and counter are of this machine and this job, and stand in each job's row.
        let (device, counter) = (usual.device, usual.counter);
        if (Mark { device, counter, ..mark.clone() }) == usual {
            return Ok(());
        }
        self.write(self.entry(Kind::Marks, settings(mark)))
    }

    /// Where nothing leaves anyway: what can't be recorded is only said.
    fn aside(&self, entry: Entry) {
        if let Err(error) = self.store.append(entry) {
            out::note(&format!("not recorded: {}", Error::from(error).chain()));
        }
    }

    /// Names of the records by which sources could be swapped in.
    fn consents<'a>(
        &self,
        done: impl IntoIterator<Item = &'a str>,
    ) -> mien_daemon::Result<Vec<String>> {
        let mut names = Vec::new();
        let sources = done.into_iter().filter_map(|done| done.strip_prefix("swap:"));
        let mut sources: Vec<IdentityId> =
            sources.filter_map(|source| source.split([',', ' ']).next()?.parse().ok()).collect();
        sources.sort();
        sources.dedup();
        for source in sources {
            // A source that was borrowed for this command stands in no table.
            let found = self.store.consents(Some(&source)).unwrap_or_default();
            let holds = found.into_iter().filter(|stored| {
                stored.record.as_ref().is_ok_and(|(_, consent)| {
                    consent.scope.contains(&Scope::Swap)
                        && consent.revoked.is_none()
                        && consent.granted <= self.wall
                        && self.wall < consent.expires
                })
            });
            names.extend(holds.map(|stored| stored.id.to_string()));
        }
        Ok(names)
    }
}

/// Watches the consent of the sources that a command took from the database.
#[derive(Debug)]
pub(crate) struct Consents {
    store: Arc<Store>,
    watch: Watch,
    known: Vec<IdentityId>,
}

impl Consents {
    /// Of these sources; what changed before this is not told.
    pub(crate) fn new(store: &Arc<Store>, known: Vec<IdentityId>) -> mien_daemon::Result<Self> {
        Ok(Self { store: store.clone(), watch: store.watch()?, known })
    }
}

impl ConsentWatch for Consents {
    fn changed(&mut self) -> mien_daemon::Result<Option<supervise::Consents>> {
        if !self.watch.changed()? {
            return Ok(None);
        }
        let stored = self.store.consents(None)?;
        let of = |id: &IdentityId| {
            let own = stored.iter().filter(|one| one.identity == *id);
            own.filter_map(|one| Some(one.record.as_ref().ok()?.1.clone())).collect()
        };
        Ok(Some(self.known.iter().map(|id| (id.clone(), of(id))).collect()))
    }
}

impl Witness for Recorder {
    fn consent_holds(
        &self,
        identity: &IdentityId,
        job: JobId,
        frame: u64,
    ) -> mien_daemon::Result<()> {
        let body = json!({ "what": "changed consent holds in a running clip", "frame": frame });
        self.write(self.entry(Kind::Revoke, body).about(identity).of_job(job))
    }

    fn ends(&self, job: JobId, ended: &Ended<'_>) -> mien_daemon::Result<()> {
        let entry = match ended {
            Ended::Picture { mark, report, written } => {
                let faces = faces(&report.faces, report.width, report.height);
                let consents = self.consents(faces.iter().map(|face| face.did.as_str()))?;
                let body = json!({
                    "outcome": "done",
                    "output": hex(&written.digest),
                    "bytes": written.bytes,
                    "mark": settings(mark),
                    "marks": report.marks.as_ref().map(marks),
                    "consents": consents,
                });
                Entry { faces, ..self.entry(Kind::Job, body) }
            }
            Ended::Drawn { mark, report, written } => {
                let faces = faces(&report.faces, report.width, report.height);
                let body = json!({
                    "outcome": "done",
                    "what": "boxes drawn, faces left as they are",
                    "output": hex(&written.digest),
                    "bytes": written.bytes,
                    "mark": settings(mark),
                });
                Entry { faces, ..self.entry(Kind::Job, body) }
            }
            Ended::Clip { mark, report, bytes, digest } => {
                let marks = &report.marks;
                let body = json!({
                    "outcome": "done",
                    "what": "clip",
                    "output": digest,
                    "bytes": bytes,
                    "frames": report.frames,
                    "faces": report.faces,
                    "tracks": report.tracks,
                    "did": report.done,
                    "covered": report.covered,
                    "who": report.identities,
                    "mark": settings(mark),
                    "marks": {
                        "visible": marks.visible,
                        "gops": marks.gops,
                        "marked": marks.marked,
                        "metadata": marks.metadata,
                        "payload": marks.payload,
                    },
                    "consents": self.consents(report.done.iter().map(|(did, _)| did.as_str()))?,
                });
                self.entry(Kind::Job, body)
            }
            Ended::Sheet { mark, written } => {
                let body = json!({
                    "outcome": "done",
                    "what": "sheet",
                    "output": hex(&written.digest),
                    "bytes": written.bytes,
                    "mark": settings(mark),
                });
                self.entry(Kind::Job, body)
            }
        };
        self.write(entry.of_job(job))
    }
}

fn faces(reports: &[FaceReport], width: u32, height: u32) -> Vec<Face> {
    reports
        .iter()
        .map(|report| Face {
            place: audit::place(report.rect, width, height),
            did: report.done.clone(),
            who: report.identity.as_ref().map(|(who, _)| who.clone()),
        })
        .collect()
}

fn marks(marks: &MarkReport) -> Value {
    json!({
        "visible": marks.visible,
        "invisible": marks.invisible,
        "metadata": marks.metadata,
        "payload": marks.payload,
    })
}

/// How a picture is marked; fractions as ten-thousandths.
fn settings(mark: &Mark) -> Value {
    json!({
        "device": mark.device.get(),
        "counter": mark.counter,
        "label_height": (mark.label_height * 1e4).round() as i64,
        "corner": mark.corner,
        "producer": mark.producer,
    })
}

fn hex(bytes: &[u8]) -> String {
    mien_vault::text::hex(bytes)
}
