//! Sources, consent, models, keys and the record as jobs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock, Wall};
use mien_base::consent::{ConsentRecord, Scope};
use mien_base::id::{IdentityId, ModelId};
use mien_daemon::contract::{Document, Kind, Reason, Refusal};
use mien_daemon::jobs::JobControl;
use mien_daemon::store::{ConsentId, JobRow};
use mien_vault::SourceStore as _;
use mien_vault::install::Packages;
use mien_vault::manifest::Version;
use mien_vault::random::SystemRandom;
use mien_vault::{accept, keyring};
use serde::Deserialize;
use serde_json::{Value, json};

use super::artifact::{Artifact, Target};
use super::{Done, Places, Work, fault};
use crate::cmd::deeds::Deeds;
use crate::cmd::error::Error;
use crate::cmd::key::Sources;

/// Deepest folder below an open one in which media are purged.
const DEPTH: u32 = 8;
/// Most files of one purge.
const PURGED: u64 = 1_000_000;

#[derive(Debug, Deserialize)]
struct Enrol {
    images: Vec<Artifact>,
    consent: Consent,
}

#[derive(Debug, Deserialize)]
struct Consent {
    record_id: String,
    subject: String,
    purpose: String,
    #[serde(default)]
    scope: Vec<Scope>,
    granted_at: u64,
    expires_at: u64,
    evidence_sha256: String,
    operator: String,
}

#[derive(Debug, Deserialize)]
struct Model {
    slot: String,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    artifact: Option<Artifact>,
    #[serde(default)]
    canary: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Export {
    from: u64,
    to: u64,
    #[serde(default)]
    output: Option<Target>,
}

fn invalid(at: &str, detail: impl Into<String>) -> Refusal {
    Refusal::at(Reason::InvalidRequest, at, detail)
}

fn text<'a>(document: &'a Document, key: &str) -> &'a str {
    document.params.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn identity(document: &Document) -> Result<IdentityId, Refusal> {
    text(document, "source").parse().map_err(|error| invalid("/params/source", format!("{error}")))
}

fn model(document: &Document) -> Result<(ModelId, Option<Version>), Refusal> {
    let params: Model = document.params()?;
    let id = params.slot.parse().map_err(|error| invalid("/params/slot", format!("{error}")))?;
    let version = params
        .version
        .map(|text| text.parse().map_err(|error| invalid("/params/version", format!("{error}"))))
        .transpose()?;
    Ok((id, version))
}

/// What can be told before the work begins.
pub(super) fn admit(document: &Document, places: &Places) -> Result<(), Refusal> {
    match document.kind {
        Kind::SourceEnrol => {
            let params: Enrol = document.params()?;
            identity(document)?;
            if params.consent.expires_at <= params.consent.granted_at {
                let detail = "must be later than `granted_at`";
                return Err(invalid("/params/consent/expires_at", detail));
            }
            (0..)
                .zip(&params.images)
                .try_for_each(|(n, image): (usize, _)| image.admit(&format!("/params/images/{n}")))
        }
        Kind::SourceForget => identity(document).map(drop),
        Kind::ModelInstall => {
            let params: Model = document.params()?;
            model(document)?;
            params.artifact.map_or(Ok(()), |artifact| artifact.admit("/params/artifact"))
        }
        Kind::ModelActivate => {
            let params: Model = document.params()?;
            if params.canary.is_some() {
                let detail = "this device activates a model whole, after it was measured";
                return Err(Refusal::at(Reason::Unavailable, "/params/canary", detail));
            }
            model(document).map(drop)
        }
        Kind::ModelRollback | Kind::ModelRemove => model(document).map(drop),
        Kind::AuditExport => {
            let params: Export = document.params()?;
            let Some(output) = params.output else {
                let detail = "this device writes exports to a file: address";
                return Err(Refusal::at(Reason::Unavailable, "/params/output", detail));
            };
            output.admit("/params/output")?;
            output.path(&places.outputs, "/params/output").map(drop)
        }
        _ => Ok(()),
    }
}

/// Does it.
pub(super) fn run(work: &Work, job: &JobRow, control: &JobControl) -> Done {
    let document = &job.document;
    match document.kind {
        Kind::SourceEnrol => enrol(work, job, control),
        Kind::SourceForget => forget(work, document),
        Kind::ConsentRevoke => revoke(work, document),
        Kind::ModelInstall | Kind::ModelActivate | Kind::ModelRollback | Kind::ModelRemove => {
            models(work, job, control)
        }
        Kind::AuditExport => export(work, document),
        Kind::SelftestRun => selftest(work, job, control),
        Kind::MediaPurge => purge(work, document, control),
        Kind::KeyRotate => rotate(work, document),
        other => Err(super::unavailable(other)),
    }
}

fn broken<T>(error: T) -> Refusal
where
    Error: From<T>,
{
    fault(&Error::from(error))
}

/// A source from the best of its pictures, with the consent that comes with it. A source that is
/// there with the same consent was enrolled by an earlier try.
fn enrol(work: &Work, job: &JobRow, control: &JobControl) -> Done {
    let (params, identity) = (job.document.params::<Enrol>()?, identity(&job.document)?);
    let consent = params.consent;
    let scope = if consent.scope.is_empty() { vec![Scope::Swap] } else { consent.scope };
    let record = ConsentRecord {
        identity: identity.clone(),
        subject: consent.subject,
        purpose: consent.purpose,
        scope,
        granted: Wall(consent.granted_at / 1000),
        expires: Wall(consent.expires_at / 1000),
        revoked: None,
        evidence: Some(consent.evidence_sha256),
        operator: consent.operator,
    };
    let told = |store: &mien_daemon::store::Store| -> Done {
        let all = store.consents(Some(&identity)).map_err(broken)?;
        let ids: Vec<String> = all.iter().map(|stored| stored.id.to_string()).collect();
        Ok(json!({ "source": identity.as_str(), "consents": ids, "record_id": consent.record_id }))
    };
    if work.store.list().map_err(broken)?.contains(&identity) {
        let same = work.store.consents(Some(&identity)).map_err(broken)?.iter().any(|stored| {
            stored.record.as_ref().is_ok_and(|(_, known)| known.evidence == record.evidence)
        });
        if job.attempt > 1 && same {
            return told(&work.store);
        }
        return Err(invalid("/params/source", "is enrolled already; forget it first"));
    }
    let scratch = work.home.data().join("enrolling");
    let mut best: Option<(f32, mien_base::consent::SourceRecord, Vec<u8>)> = None;
    let mut last = None;
    for (n, image) in params.images.iter().enumerate() {
        control.progress(&format!("picture {}", n + 1), None);
        let bytes = image.bytes(&work.places.inputs, &format!("/params/images/{n}"))?;
        let picture = scratch.join(format!("{}-{n}", job.execution));
        std::fs::create_dir_all(&scratch)
            .and_then(|()| std::fs::write(&picture, &bytes))
            .map_err(|error| Refusal::new(Reason::OutputUnwritable, error.to_string()))?;
        let measured = work.at_desk(job, control, |desk| desk.enrol(&identity, &picture));
        let _ = std::fs::remove_file(&picture);
        match measured {
            Ok((source, portrait)) => {
                let quality = source.quality.face_px * source.quality.sharpness.max(1.0).sqrt();
                if best.as_ref().is_none_or(|(other, ..)| quality > *other) {
                    best = Some((quality, source, portrait));
                }
            }
            Err(error) => last = Some(fault(&error)),
        }
    }
    let Some((_, source, portrait)) = best else {
        return Err(last.unwrap_or_else(|| invalid("/params/images", "no face is to be seen")));
    };
    work.store.put(&source, &portrait, Some(&record)).map_err(broken)?;
    told(&work.store)
}

fn forget(work: &Work, document: &Document) -> Done {
    let identity = identity(document)?;
    match work.store.forget(&identity) {
        Ok(_) => Ok(json!({ "source": identity.as_str(), "forgotten": true })),
        // Gone is gone, by whichever try.
        Err(mien_daemon::Error::Vault(mien_vault::Error::SourceUnknown { .. })) => {
            Ok(json!({ "source": identity.as_str(), "forgotten": false, "was": "not there" }))
        }
        Err(error) => Err(broken(error)),
    }
}

fn revoke(work: &Work, document: &Document) -> Done {
    let id = text(document, "record_id");
    let all = work.store.consents(None).map_err(broken)?;
    let stored = all.iter().find(|stored| stored.id.to_string() == id);
    let stored = stored.ok_or_else(|| {
        Refusal::at(Reason::ConsentMissing, "/params/record_id", "there is no such record here")
    })?;
    let now = SystemClock::start().wall();
    let taken = work
        .store
        .revoke(&stored.identity, Some(&ConsentId::named(id)), now, &document.issuer)
        .map_err(broken)?;
    Ok(json!({ "source": stored.identity.as_str(), "taken_back": taken.len() }))
}

fn models(work: &Work, job: &JobRow, control: &JobControl) -> Done {
    let document = &job.document;
    let (id, version) = model(document)?;
    let packages = Packages::new(&work.home, Arc::new(SystemClock::start()));
    let mut audit = Deeds::open(&work.home);
    let told = |version: Option<Version>| json!({ "slot": id.as_str(), "version": version.map(|version| version.to_string()) });
    match document.kind {
        Kind::ModelInstall => {
            let artifact = document.params::<Model>()?.artifact;
            let artifact = artifact.ok_or_else(|| invalid("/params/artifact", "is missing"))?;
            control.progress("reading", None);
            let path = artifact.file(&work.places.inputs, "/params/artifact")?;
            control.progress("installing", None);
            let package = packages.verified(&path).map_err(broken)?;
            let manifest = package.manifest();
            if manifest.id != id || Some(manifest.version) != version {
                let detail = format!("the package holds {} {}", manifest.id, manifest.version);
                return Err(Refusal::at(Reason::ModelIncompatible, "/params/artifact", detail));
            }
            let manifest = packages.install(&path, &mut audit).map_err(broken)?;
            Ok(told(Some(manifest.version)))
        }
        Kind::ModelActivate => {
            let version = version.ok_or_else(|| invalid("/params/version", "is missing"))?;
            let package = packages.version(&id, version).map_err(broken)?;
            let measured = if accept::needs_measuring(package.manifest()) {
                control.progress("measuring", None);
                let measured = work.at_desk(job, control, |desk| {
                    crate::cmd::measure::installed(desk, &id, version, None)
                });
                Some(measured.map_err(|error| fault(&error))?)
            } else {
                None
            };
            packages.activate(&id, version, measured.as_ref(), &mut audit).map_err(broken)?;
            Ok(told(Some(version)))
        }
        Kind::ModelRollback => {
            let manifest = packages.rollback(&id, &mut audit).map_err(broken)?;
            Ok(told(Some(manifest.version)))
        }
        _ => {
            packages.remove(&id, version, &mut audit).map_err(broken)?;
            Ok(told(version))
        }
    }
}

fn export(work: &Work, document: &Document) -> Done {
    let params: Export = document.params()?;
    let output = params.output.ok_or_else(|| invalid("/params/output", "is missing"))?;
    let path = output.path(&work.places.outputs, "/params/output")?;
    let (from, to) = (Wall(params.from / 1000), Wall(params.to / 1000));
    let export = work.store.export(&path, Some(from), Some(to)).map_err(broken)?;
    let export = export.ok_or_else(|| invalid("/params/from", "no row of the record is there"))?;
    let statement = serde_json::to_value(&export.statement).unwrap_or_default();
    Ok(json!({ "output": { "uri": format!("file:{}", path.display()) }, "statement": statement }))
}

fn selftest(work: &Work, job: &JobRow, control: &JobControl) -> Done {
    control.progress("sandbox", None);
    let held = work
        .at_desk(job, control, |desk| {
            let facts = desk.worker.facts()?;
            Ok((desk.worker.self_test()?.len(), facts.hello.backend.clone()))
        })
        .map_err(|error| fault(&error))?;
    control.progress("record", None);
    let checked = work.store.verify().map_err(broken)?;
    let _ = checked;
    Ok(json!({ "attempts_of_the_worker": held.0, "backend": held.1, "record": "whole" }))
}

/// Removes what was written before a time below the open folders, or one of them.
fn purge(work: &Work, document: &Document, control: &JobControl) -> Done {
    let before = document.params.get("before").and_then(Value::as_u64).unwrap_or(0);
    let only = document.params.get("output").and_then(Value::as_str);
    let before = std::time::UNIX_EPOCH + Duration::from_millis(before);
    let mut count = Purged::default();
    for folder in &work.places.outputs {
        let folder = only.map_or_else(|| folder.clone(), |name| folder.join(name));
        sweep(&folder, before, DEPTH, &mut count, control);
    }
    Ok(json!({
        "removed": count.removed, "bytes": count.bytes, "kept": count.kept, "failed": count.failed,
    }))
}

#[derive(Default)]
struct Purged {
    removed: u64,
    bytes: u64,
    kept: u64,
    failed: u64,
}

fn sweep(
    folder: &Path,
    before: std::time::SystemTime,
    depth: u32,
    count: &mut Purged,
    control: &JobControl,
) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if control.stop().is_some() || count.removed + count.kept > PURGED {
            return;
        }
        let (path, Ok(meta)) = (entry.path(), entry.metadata()) else { continue };
        if meta.is_dir() && depth > 0 {
            sweep(&path, before, depth - 1, count, control);
        } else if meta.is_file() && meta.modified().is_ok_and(|at| at < before) {
            match std::fs::remove_file(&path) {
                Ok(()) => {
                    (count.removed, count.bytes) = (count.removed + 1, count.bytes + meta.len());
                }
                Err(_) => count.failed += 1,
            }
        } else {
            count.kept += 1;
        }
    }
}

fn rotate(work: &Work, document: &Document) -> Done {
    let (name, mut audit) = (text(document, "key"), Deeds::open(&work.home));
    let now = SystemClock::start().wall();
    if name != "device" {
        let key = keyring::rotate_signing(&work.home, name, now, &mut SystemRandom, &mut audit)
            .map_err(broken)?;
        return Ok(json!({ "key": name, "id": key.id().to_string() }));
    }
    let packages = Packages::new(&work.home, Arc::new(SystemClock::start()));
    let (mut sources, random) = (Sources(&work.store), &mut SystemRandom);
    let (key, count) =
        keyring::rotate_device(&packages, &work.home, &mut sources, random, &mut audit)
            .map_err(broken)?;
    let (packages, sources) = (count.packages, count.sources);
    let id = key.public().id().to_string();
    Ok(json!({ "key": name, "id": id, "packages": packages, "sources": sources }))
}
