//! `mien source`: enrols, lists, shows and forgets source faces.

use std::sync::Arc;

use serde::Serialize;

use mien_base::clock::{Clock, SystemClock, Wall};
use mien_base::consent::{ConsentRecord, Quality, SourceRecord};
use mien_base::id::IdentityId;
use mien_daemon::store::Store;
use mien_vault::{Home, SourceStore as _, StoredSource};

use super::consent::{self, Shown, identity};
use super::desk::Desk;
use super::error::{Error, Result};
use super::model_args::ListArgs;
use super::source_args::{EnrolArgs, SourceCommand};
use super::{out, record};

/// Cosine from which two embeddings are likely of one person: the gallery's own threshold.
const ALIKE: f32 = 0.5;

pub(crate) fn run(command: &SourceCommand) -> Result<()> {
    match command {
        SourceCommand::Enrol(args) => enrol(args),
        SourceCommand::List(args) => list(args),
        SourceCommand::Show { name, list } => show(name, list),
        SourceCommand::Forget { name, list } => forget(name, list),
    }
}

fn enrol(args: &EnrolArgs) -> Result<()> {
    let identity = identity(&args.name)?;
    let mut desk = Desk::open_bare(&args.run)?;
    let consent = consent::read(&args.consent, &identity, desk.wall)?;
    let known = desk.sources.list()?;
    if !args.replace && known.contains(&identity) {
        return Err(Error::Usage(format!(
            "The source `{identity}` is enrolled already; --replace enrols it anew"
        )));
    }
    let (record, portrait) = desk.enrol(&identity, &args.file).inspect_err(|error| {
        desk.recorder.refused("source enrol", error.kind());
    })?;
    let alike = alike(&desk.sources, &record, &known)?;
    if args.replace && known.contains(&identity) {
        desk.sources.forget(&identity)?;
    }
    desk.sources.put(&record, &portrait, consent.as_ref())?;
    let quality = record.quality;
    let consents: Vec<ConsentRecord> = consent.into_iter().collect();
    let mut listed = Listed::of(identity, quality, record.enrolled, &consents, desk.wall);
    listed.alike = alike;
    for (other, cosine) in &listed.alike {
        out::note(&format!(
            "{}: looks like `{other}` (cosine {cosine:.2}): one person under two names is taken \
             for neither; forget one of them",
            listed.identity
        ));
    }
    if args.run.json {
        return out::json(&listed);
    }
    if args.run.quiet {
        return Ok(());
    }
    out::line(&format!(
        "{}: enrolled, face of {:.0} px; {}",
        listed.identity, quality.face_px, listed.consent
    ))
}

/// Others who look like this one, most alike first. Only embeddings of one model are compared.
fn alike(
    store: &Store,
    record: &SourceRecord,
    known: &[IdentityId],
) -> Result<Vec<(IdentityId, f32)>> {
    let mut alike = Vec::new();
    for id in known.iter().filter(|id| **id != record.identity) {
        // A source that can't be read is no reason not to enrol another.
        let Ok(other) = store.get(id) else { continue };
        let same_space = record.embedder.is_some() && other.record.embedder == record.embedder;
        let cosine = cosine(&record.embedding, &other.record.embedding);
        if same_space && cosine >= ALIKE {
            alike.push((id.clone(), cosine));
        }
    }
    alike.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(alike)
}

/// Of two vectors of one length; zero where there is none.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(x, y)| x * y).sum() };
    let length = (dot(a, a) * dot(b, b)).sqrt();
    if a.len() == b.len() && length > 0.0 { dot(a, b) / length } else { 0.0 }
}

/// One source as it is listed; never its embedding.
#[derive(Debug, Serialize)]
struct Listed {
    identity: IdentityId,
    enrolled: String,
    quality: Quality,
    /// In words: what is permitted until when, or why nothing is.
    consent: String,
    /// Other sources that are likely the same person, and the cosine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alike: Vec<(IdentityId, f32)>,
}

impl Listed {
    fn of(
        identity: IdentityId,
        quality: Quality,
        enrolled: Wall,
        consents: &[ConsentRecord],
        now: Wall,
    ) -> Self {
        let states: Vec<(bool, String)> =
            consents.iter().map(|consent| consent::state(consent, now)).collect();
        let holding = states.iter().filter(|(holds, _)| *holds);
        let mut words: Vec<String> = holding.map(|(_, words)| words.clone()).collect();
        if words.is_empty() {
            words.extend(states.last().map(|(_, words)| words.clone()));
        }
        let consent = if words.is_empty() {
            "no consent: recognised, never swapped in or revealed".to_owned()
        } else {
            format!("consent {}", words.join(", "))
        };
        Self { identity, enrolled: enrolled.to_string(), quality, consent, alike: Vec::new() }
    }
}

fn open() -> Result<(Store, Wall)> {
    let clock = Arc::new(SystemClock::start());
    let store = record::open(&Home::from_env()?, clock.clone(), false)?;
    Ok((store, clock.wall()))
}

fn list(args: &ListArgs) -> Result<()> {
    let (store, now) = open()?;
    let mut all = Vec::new();
    for id in store.list()? {
        let source = store.get(&id)?;
        let (quality, enrolled) = (source.record.quality, source.record.enrolled);
        all.push(Listed::of(id, quality, enrolled, &source.consents, now));
    }
    if args.json {
        return out::json(&all);
    }
    if all.is_empty() {
        return out::line("no source is enrolled; `mien source enrol --help` says how");
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|s| {
            let face = format!("{:.0} px", s.quality.face_px);
            vec![s.identity.to_string(), face, s.enrolled.clone(), s.consent.clone()]
        })
        .collect();
    out::line(&out::table(&["source", "face", "enrolled", "consent"], &rows))
}

/// One source in full; never its embedding.
#[derive(Debug, Serialize)]
struct Full {
    identity: IdentityId,
    enrolled: String,
    quality: Quality,
    /// The model that made its embedding; without one it can be swapped in, not recognised.
    embedder: Option<String>,
    portrait_bytes: usize,
    consents: Vec<Shown>,
}

fn show(name: &str, args: &ListArgs) -> Result<()> {
    let identity = identity(name)?;
    let (store, now) = open()?;
    let StoredSource { record, portrait, .. } = store.get(&identity)?;
    let consents = store.consents(Some(&identity))?;
    let full = Full {
        identity,
        enrolled: record.enrolled.to_string(),
        quality: record.quality,
        embedder: record.embedder.map(|(model, _)| model.to_string()),
        portrait_bytes: portrait.len(),
        consents: consents.iter().map(|stored| Shown::of(stored, now)).collect(),
    };
    if args.json {
        return out::json(&full);
    }
    let q = &full.quality;
    let embedder = full.embedder.as_deref().unwrap_or("none: swapped in, not recognised");
    let mut rows = vec![
        ("source", full.identity.to_string()),
        ("enrolled", full.enrolled.clone()),
        ("face", format!("{:.0} px, score {:.2}", q.face_px, q.score)),
        ("sharpness", format!("{:.0}", q.sharpness)),
        ("pose", format!("aside {:.0}, tilted {:.0} degrees", q.yaw, q.pitch)),
        ("recognised by", embedder.to_owned()),
        ("portrait", format!("{} bytes, sealed", full.portrait_bytes)),
    ];
    rows.extend(full.consents.iter().map(|one| ("consent", one.state.clone())));
    let lines: Vec<String> = rows.iter().map(|(k, v)| format!("{k:<14} {v}")).collect();
    out::line(&lines.join("\n"))
}

fn forget(name: &str, args: &ListArgs) -> Result<()> {
    let identity = identity(name)?;
    let (store, _) = open()?;
    let erased = store.forget(&identity)?;
    let (bytes, needles) = (erased.bytes, erased.needles);
    if args.json {
        return out::json(&serde_json::json!({
            "forgotten": identity,
            "looked_through": bytes,
            "pieces": needles,
            "found": 0,
        }));
    }
    out::line(&format!(
        "{identity}: portrait, embedding, key and consent erased; none of {needles} pieces of them \
         stands in the {bytes} bytes of the database"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeness_is_measured_between_vectors_of_one_length_alone() {
        assert!((cosine(&[1.0, 0.0], &[3.0, 3.0]) - 0.707).abs() < 0.001);
        assert!(cosine(&[1.0, 0.0], &[0.0, 2.0]).abs() < f32::EPSILON);
        for none in [(&[][..], &[][..]), (&[1.0][..], &[1.0, 0.0][..]), (&[0.0][..], &[1.0][..])] {
            assert!(cosine(none.0, none.1).abs() < f32::EPSILON);
        }
    }
}
