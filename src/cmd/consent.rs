//! `mien consent`: records who agreed to what, takes it back, shows what holds.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use mien_base::clock::{Clock, SystemClock, Wall};
use mien_base::consent::{ConsentRecord, Scope};
use mien_base::id::IdentityId;
use mien_daemon::store::{ConsentId, Store, StoredConsent, sign_consent};
use mien_vault::{Home, keyring};

use super::error::{Error, Result};
use super::source_args::{ConsentArgs, ConsentCommand, ScopeArg};
use super::{desk, out, record};

pub(crate) fn run(command: &ConsentCommand) -> Result<()> {
    let clock = Arc::new(SystemClock::start());
    let open = || record::open(&Home::from_env()?, clock.clone(), false);
    match command {
        ConsentCommand::Sign { name, record, key, output } => {
            sign(&identity(name)?, record, key, output)
        }
        ConsentCommand::Grant { name, signed: Some(file), list, .. } => {
            let identity = identity(name)?;
            let envelope = desk::read_text("Can't read the signed record", file)?;
            let store = open()?;
            let id = store.grant_signed(&identity, envelope.trim_end())?;
            done(&store, &identity, &[id], list.json, "taken in as it was signed", clock.wall())
        }
        ConsentCommand::Grant { name, consent, list, .. } => {
            let identity = identity(name)?;
            let words = || {
                let text = "Give the record with --consent FILE, --signed FILE, or --subject, \
                            --purpose, --scope and --days";
                Error::Usage(text.to_owned())
            };
            let record = read(consent, &identity, clock.wall())?.ok_or_else(words)?;
            let store = open()?;
            let id = store.grant(&record)?;
            done(&store, &identity, &[id], list.json, "recorded and signed", clock.wall())
        }
        ConsentCommand::Revoke { name, id, operator, list } => {
            let identity = identity(name)?;
            let only = id.as_deref().map(ConsentId::named);
            let store = open()?;
            let taken = store.revoke(&identity, only.as_ref(), clock.wall(), operator)?;
            done(&store, &identity, &taken, list.json, "taken back", clock.wall())
        }
        ConsentCommand::List { name, list } => {
            let identity = name.as_deref().map(identity).transpose()?;
            let now = clock.wall();
            let all: Vec<Shown> = open()?
                .consents(identity.as_ref())?
                .iter()
                .map(|stored| Shown::of(stored, now))
                .collect();
            show(&all, list.json)
        }
    }
}

/// Signs a record for machines that trust the key; nothing of it is kept here.
fn sign(identity: &IdentityId, file: &Path, key: &str, output: &Path) -> Result<()> {
    let text = desk::read_text("Can't read the consent record", file)?;
    let record = mien_vault::consent::parse(&text, identity)?;
    if record.revoked.is_some() {
        return Err(Error::Usage("The record is taken back already".to_owned()));
    }
    let key = keyring::signing(&Home::from_env()?, key)?;
    let envelope = sign_consent(&record, &key) + "\n";
    let failed = |source| Error::File { what: "Can't write", path: output.to_owned(), source };
    std::fs::write(output, envelope).map_err(failed)?;
    let (at, public) = (output.display(), key.public());
    out::line(&format!("{at}: consent of `{identity}`, signed by {} (public: {public})", key.id()))
}

pub(super) fn identity(name: &str) -> Result<IdentityId> {
    name.parse().map_err(|error: mien_base::id::BadName| Error::Usage(error.to_string()))
}

/// The record that options or a file give, if they do.
pub(super) fn read(
    args: &ConsentArgs,
    identity: &IdentityId,
    now: Wall,
) -> Result<Option<ConsentRecord>> {
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

/// One record as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    id: ConsentId,
    identity: IdentityId,
    /// True when it holds now.
    holds: bool,
    /// In words: what it permits until when, or why it permits nothing.
    pub(super) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<ConsentRecord>,
    /// Id of the key that signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl Shown {
    pub(super) fn of(stored: &StoredConsent, now: Wall) -> Self {
        let (id, identity) = (stored.id.clone(), stored.identity.clone());
        match &stored.record {
            Ok((key, record)) => {
                let (holds, state) = state(record, now);
                let (record, key) = (Some(record.clone()), Some(key.to_string()));
                Self { id, identity, holds, state, record, key }
            }
            Err(why) => {
                let state = format!("counts for nothing: {why}");
                Self { id, identity, holds: false, state, record: None, key: None }
            }
        }
    }
}

/// Whether a record holds, and in words.
pub(super) fn state(record: &ConsentRecord, now: Wall) -> (bool, String) {
    if let Some(at) = record.revoked {
        return (false, format!("taken back {at}"));
    }
    if record.expires <= now {
        return (false, format!("expired {}", record.expires));
    }
    if record.granted > now {
        return (false, format!("begins {}", record.granted));
    }
    let scope: Vec<&str> = record
        .scope
        .iter()
        .map(|scope| match scope {
            Scope::Swap => "swap",
            Scope::Reveal => "reveal",
        })
        .collect();
    (true, format!("to {} until {}", scope.join(" and "), record.expires))
}

fn done(
    store: &Store,
    identity: &IdentityId,
    ids: &[ConsentId],
    json: bool,
    what: &str,
    now: Wall,
) -> Result<()> {
    let stored = store.consents(Some(identity))?;
    let shown: Vec<Shown> =
        stored.iter().filter(|s| ids.contains(&s.id)).map(|s| Shown::of(s, now)).collect();
    if json {
        return out::json(&shown);
    }
    if shown.is_empty() {
        return out::line(&format!("{identity}: nothing is left to take back"));
    }
    for one in shown {
        out::line(&format!("{identity}: consent {} {what}; {}", one.id, one.state))?;
    }
    Ok(())
}

fn show(all: &[Shown], json: bool) -> Result<()> {
    if json {
        return out::json(&all);
    }
    if all.is_empty() {
        return out::line("no consent is recorded; `mien consent grant --help` says how");
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let said = |of: fn(&ConsentRecord) -> &String| {
                one.record.as_ref().map_or_else(String::new, |record| of(record).clone())
            };
            vec![
                one.identity.to_string(),
                one.id.to_string(),
                one.state.clone(),
                said(|record| &record.subject),
                said(|record| &record.purpose),
            ]
        })
        .collect();
    out::line(&out::table(&["source", "record", "consent", "subject", "purpose"], &rows))
}
