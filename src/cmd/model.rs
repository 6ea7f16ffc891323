//! `mien model`: gets and lists models.

use serde::Serialize;

use mien_base::id::ModelId;
use mien_base::model::Role;
use mien_vault::catalog::Group;
use mien_vault::fetch::Selection;
use mien_vault::{Home, ModelStore};

use super::args::{FetchArgs, ListArgs, ModelCommand};
use super::error::{Error, Result};
use super::fetch::Fetcher;
use super::out;

pub(crate) fn run(command: &ModelCommand) -> Result<()> {
    match command {
        ModelCommand::Fetch(args) => fetch(args),
        ModelCommand::List(args) => list(args),
    }
}

fn fetch(args: &FetchArgs) -> Result<()> {
    let home = Home::from_env()?;
    let ids: Vec<ModelId> = args
        .models
        .iter()
        .map(|name| name.parse())
        .collect::<std::result::Result<_, mien_base::id::BadName>>()
        .map_err(|error| Error::Usage(error.to_string()))?;
    let wanted = if ids.is_empty() { Selection::Usual } else { Selection::Ids(&ids) };
    let mut fetcher = Fetcher::new(args.quiet)?;
    let outcome = fetcher.models(&home, wanted)?;
    if let Some(folder) = &args.test_pictures {
        fetcher.pictures(&home, Group::Demo, Some(folder))?;
        fetcher.pictures(&home, Group::Test, Some(folder))?;
    }
    if !args.quiet {
        let (here, new) = (outcome.present.len(), outcome.fetched.len());
        out::line(&format!(
            "{new} fetched, {here} here already, {} left out",
            outcome.skipped.len()
        ))?;
    }
    Ok(())
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
}

fn list(args: &ListArgs) -> Result<()> {
    let store = ModelStore::new(&Home::from_env()?);
    let rows: Vec<Row> = store
        .list()?
        .into_iter()
        .map(|listed| Row {
            model: listed.manifest.id,
            role: listed.manifest.role,
            family: listed.manifest.family,
            bytes: listed.manifest.bytes,
            licence: listed.manifest.licence,
            commercial: listed.manifest.commercial,
            installed: listed.installed,
            own: listed.own,
            sha256: listed.manifest.sha256,
        })
        .collect();
    if args.json {
        return out::json(&rows);
    }
    let text: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.model.to_string(),
                format!("{:?}", row.role).to_lowercase(),
                format!("{:.1} MB", row.bytes as f64 / 1e6),
                if row.installed { "installed" } else { "missing" }.to_owned(),
                if row.own { "own" } else { "catalogue" }.to_owned(),
                row.licence.clone(),
            ]
        })
        .collect();
    out::line(&out::table(&["model", "role", "size", "state", "from", "licence"], &text))?;
    if rows.iter().any(|row| !row.installed) {
        out::line("\n`mien model fetch` gets what is missing")?;
    }
    Ok(())
}
