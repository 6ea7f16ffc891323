//! `mien model`: gets, installs, activates, lists and removes models.

use std::sync::Arc;

use serde::Serialize;

use mien_base::clock::SystemClock;
use mien_base::id::ModelId;
use mien_base::model::Role;
use mien_vault::catalog::Group;
use mien_vault::fetch::Selection;
use mien_vault::install::Packages;
use mien_vault::manifest::{Bounds, Manifest, Version};
use mien_vault::models::State;
use mien_vault::{Home, ModelStore, accept};

use super::args::RunArgs;
use super::deeds::Deeds;
use super::desk::Desk;
use super::error::{Error, Result};
use super::fetch::Fetcher;
use super::model_args::{
    ActivateArgs, FetchArgs, InstallArgs, ListArgs, ModelCommand, RemoveArgs, SlotArgs,
};
use super::{measure, out, pack};

pub(crate) fn run(command: &ModelCommand) -> Result<()> {
    match command {
        ModelCommand::Fetch(args) => fetch(args),
        ModelCommand::List(args) => list(*args),
        ModelCommand::Pack(args) => pack::pack(args),
        ModelCommand::Import(args) => measure::import(args),
        ModelCommand::Measure(args) => measure::measure(args),
        ModelCommand::Inspect(args) => pack::inspect(args),
        ModelCommand::Verify(args) => pack::verify(args),
        ModelCommand::Install(args) => install(args),
        ModelCommand::Activate(args) => activate(args),
        ModelCommand::Rollback(args) => rollback(args),
        ModelCommand::Remove(args) => remove(args),
    }
}

fn id(name: &str) -> Result<ModelId> {
    name.parse().map_err(|error: mien_base::id::BadName| Error::Usage(error.to_string()))
}

fn fetch(args: &FetchArgs) -> Result<()> {
    let home = Home::from_env()?;
    let ids = args.models.iter().map(|name| id(name)).collect::<Result<Vec<_>>>()?;
    let wanted = if ids.is_empty() { Selection::Usual } else { Selection::Ids(&ids) };
    let mut fetcher = Fetcher::new(args.quiet)?;
    let outcome = fetcher.models(&home, wanted, args.plain.as_deref())?;
    if let Some(folder) = &args.test_pictures {
        fetcher.pictures(&home, Group::Demo, Some(folder))?;
        fetcher.pictures(&home, Group::Test, Some(folder))?;
    }
    if !args.quiet {
        if args.plain.is_none() {
            pack::warn_of(&packages(&home))?;
        }
        let (here, new) = (outcome.present.len(), outcome.fetched.len());
        out::line(&format!(
            "{new} fetched, {here} here already, {} left out",
            outcome.skipped.len()
        ))?;
    }
    Ok(())
}

fn packages(home: &Home) -> Packages {
    Packages::new(home, Arc::new(SystemClock::start()))
}

/// One model as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    model: ModelId,
    role: Role,
    family: mien_base::model::Family,
    bytes: u64,
    licence: String,
    commercial: bool,
    installed: bool,
    /// One of the user's own.
    own: bool,
    sha256: String,
    /// How it is kept: missing, plain, sealed, refused.
    kept: &'static str,
    /// Why a package does not hold.
    refused: Option<String>,
    /// The version that serves, and all that are installed as packages.
    active: Option<Version>,
    versions: Vec<Version>,
}

fn rows() -> Result<Vec<Row>> {
    let store = ModelStore::new(&Home::from_env()?, Arc::new(SystemClock::start()));
    let installed = store.packages().list()?;
    let row = |listed: mien_vault::models::Listed| {
        let of_model = installed.iter().filter(|i| i.manifest.id == listed.manifest.id);
        Row {
            versions: of_model.map(|i| i.manifest.version).collect(),
            installed: listed.state.installed(),
            kept: match listed.state {
                State::Missing => "missing",
                State::Plain(_) => "plain",
                State::Sealed(_) => "sealed",
                State::Refused(_) => "refused",
            },
            active: match listed.state {
                State::Sealed(version) => Some(version),
                _ => None,
            },
            refused: match listed.state {
                State::Refused(why) => Some(why),
                _ => None,
            },
            model: listed.manifest.id,
            role: listed.manifest.role,
            family: listed.manifest.family,
            bytes: listed.manifest.bytes,
            licence: listed.manifest.licence,
            commercial: listed.manifest.commercial,
            own: listed.own,
            sha256: listed.manifest.sha256,
        }
    };
    Ok(store.list()?.into_iter().map(row).collect())
}

fn list(args: ListArgs) -> Result<()> {
    let rows = rows()?;
    if args.json {
        return out::json(&rows);
    }
    let text: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let versions: Vec<String> = row
                .versions
                .iter()
                .map(|v| if Some(*v) == row.active { format!("*{v}") } else { v.to_string() })
                .collect();
            vec![
                row.model.to_string(),
                format!("{:?}", row.role).to_lowercase(),
                format!("{:.1} MB", row.bytes as f64 / 1e6),
                row.kept.to_owned(),
                versions.join(" "),
                if row.own { "own" } else { "catalogue" }.to_owned(),
                row.licence.clone(),
            ]
        })
        .collect();
    let head = ["model", "role", "size", "kept", "versions", "from", "licence"];
    out::line(&out::table(&head, &text))?;
    for row in rows.iter().filter(|row| row.refused.is_some()) {
        out::line(&format!("\n{}: {}", row.model, row.refused.as_deref().unwrap_or_default()))?;
    }
    if rows.iter().any(|row| row.kept == "missing") {
        out::line("\n`mien model fetch` gets what is missing")?;
    }
    if rows.iter().any(|row| row.kept == "plain" && !row.own) {
        out::line("\n`mien model fetch` seals the catalogue's plain models for this machine")?;
    }
    Ok(())
}

/// Says what became of a model.
fn tell(manifest: &Manifest, done: &str, json: bool) -> Result<()> {
    if json {
        return out::json(manifest);
    }
    out::line(&format!("{} {}: {done}", manifest.id, manifest.version))
}

fn install(args: &InstallArgs) -> Result<()> {
    let home = Home::from_env()?;
    let (packages, mut audit) = (packages(&home), Deeds::open(&home));
    let manifest = packages.install(&args.package, &mut audit)?;
    if args.activate {
        let (id, version) = (&manifest.id, manifest.version);
        let measured = measured(&packages, id, version, None, &args.run)?;
        packages.activate(id, version, measured.as_ref(), &mut audit)?;
    }
    let serves = packages.slots()?.slot(&manifest.id).active == Some(manifest.version);
    let done = if serves {
        "installed; it serves".to_owned()
    } else {
        format!("installed; `mien model activate {}` puts it into use", manifest.id)
    };
    tell(&manifest, &done, args.run.json)
}

fn activate(args: &ActivateArgs) -> Result<()> {
    let home = Home::from_env()?;
    let (packages, mut audit) = (packages(&home), Deeds::open(&home));
    let id = id(&args.model)?;
    let version = match &args.version {
        Some(text) => text.parse()?,
        None => {
            let installed = packages.list()?.into_iter().filter(|i| i.manifest.id == id);
            let newest = installed.map(|i| i.manifest.version).max();
            let none = || {
                let text = format!(
                    "No version of `{id}` is installed as a package; `mien model list` shows what is"
                );
                Error::Usage(text)
            };
            newest.ok_or_else(none)?
        }
    };
    let measured = measured(&packages, &id, version, args.against.as_deref(), &args.run)?;
    let manifest = packages.activate(&id, version, measured.as_ref(), &mut audit)?;
    tell(&manifest, "it serves", args.run.json)
}

/// An INT8 version is measured before it serves.
fn measured(
    packages: &Packages,
    model: &ModelId,
    version: Version,
    against: Option<&str>,
    run: &RunArgs,
) -> Result<Option<Bounds>> {
    let package = packages.version(model, version)?;
    if !accept::needs_measuring(package.manifest()) {
        return Ok(None);
    }
    let against = against.map(id).transpose()?;
    let mut desk = Desk::open_bare(run)?;
    measure::installed(&mut desk, model, version, against.as_ref()).map(Some)
}

fn rollback(args: &SlotArgs) -> Result<()> {
    let home = Home::from_env()?;
    let (packages, mut audit) = (packages(&home), Deeds::open(&home));
    let manifest = packages.rollback(&id(&args.model)?, &mut audit)?;
    tell(&manifest, "it serves again", args.list.json)
}

fn remove(args: &RemoveArgs) -> Result<()> {
    let home = Home::from_env()?;
    let (packages, mut audit) = (packages(&home), Deeds::open(&home));
    let version = args.version.as_deref().map(str::parse).transpose()?;
    packages.remove(&id(&args.model)?, version, &mut audit)?;
    out::line(&format!("{}: removed", args.model))
}
