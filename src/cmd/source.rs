//! `mien source`: enrols, lists and forgets source faces.

use serde::Serialize;

use mien_base::clock::Wall;
use mien_base::consent::{ConsentRecord, Quality, Scope};
use mien_base::id::IdentityId;
use mien_vault::{FileStore, Home, SourceStore as _};

use super::args::{EnrolArgs, ListArgs, ScopeArg, SourceCommand};
use super::desk::{self, Desk};
use super::error::{Error, Result};
use super::out;

pub(crate) fn run(command: &SourceCommand) -> Result<()> {
    match command {
        SourceCommand::Enrol(args) => enrol(args),
        SourceCommand::List(args) => list(args),
        SourceCommand::Forget { name, list } => forget(name, list),
    }
}

fn identity(name: &str) -> Result<IdentityId> {
    name.parse().map_err(|error: mien_base::id::BadName| Error::Usage(error.to_string()))
}

fn enrol(args: &EnrolArgs) -> Result<()> {
    let identity = identity(&args.name)?;
    let mut desk = Desk::open_bare(&args.run)?;
    let consent = consent(args, &identity, desk.wall)?;
    if !args.replace && desk.sources.list()?.contains(&identity) {
        return Err(Error::Usage(format!(
            "The source `{identity}` is enrolled already; --replace enrols it anew"
        )));
    }
    let (record, portrait) = desk.enrol(&identity, &args.file)?;
    let quality = record.quality;
    if args.replace && desk.sources.list()?.contains(&identity) {
        desk.sources.forget(&identity)?;
    }
    desk.sources.put(&record, &portrait, consent.as_ref())?;
    let listed = Listed::of(identity, quality, record.enrolled, consent.as_ref(), desk.wall);
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

fn consent(args: &EnrolArgs, identity: &IdentityId, now: Wall) -> Result<Option<ConsentRecord>> {
    if let Some(file) = &args.consent {
        let text = desk::read_text("Can't read the consent record", file)?;
        return Ok(Some(mien_vault::consent::parse(&text, identity)?));
    }
    let (Some(subject), Some(purpose), Some(days)) = (&args.subject, &args.purpose, args.days)
    else {
        return Ok(None);
    };
    let scope = args.scope.iter().map(|scope| match scope {
        ScopeArg::Swap => Scope::Swap,
        ScopeArg::Reveal => Scope::Reveal,
    });
    Ok(Some(ConsentRecord {
        identity: identity.clone(),
        subject: subject.clone(),
        purpose: purpose.clone(),
        scope: scope.collect(),
        granted: now,
        expires: Wall(now.0.saturating_add(days * 86_400)),
        revoked: None,
        evidence: None,
        operator: args.operator.clone(),
    }))
}

/// One source as it is listed; never its embedding.
#[derive(Debug, Serialize)]
struct Listed {
    identity: IdentityId,
    enrolled: String,
    quality: Quality,
    /// In words: what is permitted until when, or why nothing is.
    consent: String,
}

impl Listed {
    fn of(
        identity: IdentityId,
        quality: Quality,
        enrolled: Wall,
        consent: Option<&ConsentRecord>,
        now: Wall,
    ) -> Self {
        let consent = match consent {
            None => "no consent: recognised, never swapped in or revealed".to_owned(),
            Some(c) if c.revoked.is_some_and(|at| at <= now) => "consent taken back".to_owned(),
            Some(c) if c.expires <= now => format!("consent expired {}", c.expires),
            Some(c) => {
                let scope = c.scope.iter().map(|scope| match scope {
                    Scope::Swap => "swap",
                    Scope::Reveal => "reveal",
                });
                let scope: Vec<&str> = scope.collect();
                format!("consent to {} until {}", scope.join(" and "), c.expires)
            }
        };
        Self { identity, enrolled: enrolled.to_string(), quality, consent }
    }
}

fn list(args: &ListArgs) -> Result<()> {
    use mien_base::clock::{Clock as _, SystemClock};
    let store = FileStore::open(&Home::from_env()?)?;
    let now = SystemClock::start().wall();
    let mut all = Vec::new();
    for id in store.list()? {
        let source = store.get(&id)?;
        let (quality, enrolled) = (source.record.quality, source.record.enrolled);
        all.push(Listed::of(id, quality, enrolled, source.consent.as_ref(), now));
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

fn forget(name: &str, args: &ListArgs) -> Result<()> {
    let identity = identity(name)?;
    FileStore::open(&Home::from_env()?)?.forget(&identity)?;
    if args.json {
        return out::json(&serde_json::json!({ "forgotten": identity }));
    }
    out::line(&format!("{identity}: portrait, embedding and consent erased"))
}
