//! `mien check`: models, sources, the sandbox and the machine, each with what to do.

use std::path::Path;

use serde::Serialize;

use mien_base::consent::ConsentRecord;
use mien_base::wire::Landlock;
use mien_daemon::config::Config;
use mien_vault::keyslot::Keeper;
use mien_vault::models::State as Kept;
use mien_vault::{ModelStore, SourceStore as _, keyslot, memfd};

use super::args::CheckArgs;
use super::consent;
use super::desk::Desk;
use super::error::{Error, Result};
use super::out;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    state: State,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warn,
    Bad,
}

pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    if let Some(path) = &args.config {
        return configuration(path, args);
    }
    let mut desk = Desk::open_bare(&args.run)?;
    let mut findings = Vec::new();
    keys(&desk, &mut findings);
    models(&desk, &mut findings)?;
    sources(&desk, &mut findings)?;
    database(&desk, &mut findings)?;
    sandbox(&mut desk, &mut findings)?;
    let bad = findings.iter().filter(|f| f.state == State::Bad).count();
    if args.run.json {
        out::json(&findings)?;
    } else {
        for finding in findings.iter().filter(|f| !args.run.quiet || f.state == State::Bad) {
            let mark = match finding.state {
                State::Ok => "ok  ",
                State::Warn => "warn",
                State::Bad => "BAD ",
            };
            out::line(&format!("{mark}  {}: {}", finding.what, finding.detail))?;
        }
    }
    if bad == 0 {
        Ok(())
    } else {
        Err(Error::Check(format!("{bad} of {} checks failed", findings.len())))
    }
}

/// What a configuration asks for, when it can be used.
fn configuration(path: &Path, args: &CheckArgs) -> Result<()> {
    let config = Config::load(path).map_err(mien_daemon::Error::Config)?;
    if args.run.json {
        let names = |names: Vec<&String>| serde_json::json!(names);
        return out::json(&serde_json::json!({
            "config": config.path,
            "digest": config.digest,
            "cameras": names(config.cameras.iter().map(|camera| &camera.name).collect()),
            "outputs": names(config.outputs.iter().map(|output| &output.name).collect()),
            "pipelines": names(config.pipelines.iter().map(|pipeline| &pipeline.name).collect()),
            "profiles": names(config.profiles.iter().map(|profile| &profile.name).collect()),
            "fleet": config.fleet.is_some(),
        }));
    }
    if args.run.quiet {
        return Ok(());
    }
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    out::line(&format!(
        "ok    {}: {}, {}, {}, {}{}",
        config.path.display(),
        count(config.cameras.len(), "camera"),
        count(config.outputs.len(), "output"),
        count(config.pipelines.len(), "pipeline"),
        count(config.profiles.len(), "profile"),
        if config.fleet.is_some() { ", a fleet" } else { "" },
    ))
}

fn keys(desk: &Desk, findings: &mut Vec<Finding>) {
    let mut add = |what: &str, state, detail: String| {
        findings.push(Finding { what: what.to_owned(), state, detail });
    };
    let sources = keyslot::sources(&desk.home, keyslot::credentials().as_deref());
    match keyslot::load(&sources) {
        Ok(Some(key)) => {
            let state = if key.keeper() == Keeper::File { State::Warn } else { State::Ok };
            add("device key", state, format!("kept by {}", key.keeper().words()));
        }
        Ok(None) => {
            add("device key", State::Warn, "none yet; `mien key new` makes it".to_owned());
        }
        Err(error) => add("device key", State::Bad, error.to_string()),
    }
    let (state, detail) = match memfd::swap() {
        None => (State::Ok, "there is no swap on a disk that it could reach".to_owned()),
        Some(at) => {
            let told = "a model may be swapped to it in plain: set MemorySwapMax=0 for the service, or encrypt it";
            (State::Warn, format!("swap on `{at}`; {told}"))
        }
    };
    add("memory of models", state, detail);
    let (state, detail) = if memfd::never_dump() {
        (State::Ok, "off: neither a model nor a key reaches a file when the program dies")
    } else {
        (State::Bad, "can't be turned off: a model or a key may reach a file when the program dies")
    };
    add("core dumps", state, detail.to_owned());
}

fn models(desk: &Desk, findings: &mut Vec<Finding>) -> Result<()> {
    let store = ModelStore::new(&desk.home, desk.clock.clone());
    for listed in store.list()? {
        let what = format!("model {}", listed.manifest.id);
        let whole = || store.check(&listed.manifest);
        let (state, detail) = match &listed.state {
            Kept::Missing => (State::Warn, "missing; `mien model fetch` gets it".to_owned()),
            Kept::Refused(why) => (State::Bad, why.clone()),
            kept => match (whole(), kept) {
                (Err(error), _) => (State::Bad, error.to_string()),
                (Ok(()), Kept::Sealed(version)) => {
                    (State::Ok, format!("sealed, version {version}, signed, every chunk holds"))
                }
                (Ok(()), _) => {
                    let told = "whole, but a PLAIN file; `mien model fetch` seals those of the catalogue, `mien model pack` others";
                    (State::Warn, told.to_owned())
                }
            },
        };
        findings.push(Finding { what, state, detail });
    }
    Ok(())
}

fn sources(desk: &Desk, findings: &mut Vec<Finding>) -> Result<()> {
    for id in desk.sources.list()? {
        let (state, detail) = match desk.sources.get(&id) {
            Ok(source) => {
                let holds = |c: &ConsentRecord| consent::state(c, desk.wall).0;
                if source.consents.is_empty() || source.consents.iter().any(holds) {
                    (State::Ok, "whole".to_owned())
                } else {
                    (State::Warn, "whole; none of its consent records holds".to_owned())
                }
            }
            Err(error) => (State::Bad, error.to_string()),
        };
        findings.push(Finding { what: format!("source {id}"), state, detail });
    }
    Ok(())
}

/// The database: what stands in it, and whether the record holds.
fn database(desk: &Desk, findings: &mut Vec<Finding>) -> Result<()> {
    for stored in desk.sources.consents(None)? {
        if let Err(why) = stored.record {
            let what = format!("consent {} of {}", stored.id, stored.identity);
            findings.push(Finding { what, state: State::Bad, detail: why });
        }
    }
    let checked = desk.sources.verify()?;
    let (state, detail) = match checked.faults.first() {
        None => (State::Ok, format!("{} rows hold together", checked.rows)),
        Some(fault) => (State::Bad, format!("{fault}; `mien audit verify` says all")),
    };
    findings.push(Finding { what: "record".to_owned(), state, detail });
    Ok(())
}

fn sandbox(desk: &mut Desk, findings: &mut Vec<Finding>) -> Result<()> {
    let facts = desk.worker.facts()?;
    let held = facts.hello.sandbox;
    let mut add = |what: &str, state, detail: String| {
        findings.push(Finding { what: what.to_owned(), state, detail });
    };
    let hello = &facts.hello;
    let detail = format!("{} on {} threads, version {}", hello.backend, hello.threads, hello.build);
    add("worker", State::Ok, detail);
    for (what, holds) in [
        ("no new privileges", held.no_new_privs),
        ("not dumpable", held.not_dumpable),
        ("dies with its root", held.dies_with_root),
        ("resource limits", held.rlimits),
        ("descriptors closed", held.closed),
        ("system calls filtered (seccomp)", held.seccomp),
    ] {
        let (state, detail) =
            if holds { (State::Ok, "holds") } else { (State::Bad, "does not hold") };
        add(what, state, detail.to_owned());
    }
    let (state, detail) = match held.landlock {
        Landlock::Full => (State::Ok, "holds"),
        Landlock::Partial => (State::Warn, "holds in part: an older kernel"),
        Landlock::None => (State::Warn, "the kernel has none; seccomp alone holds"),
    };
    add("no file or network rights (Landlock)", state, detail.to_owned());
    for attempt in desk.worker.self_test()? {
        let what = format!("{} thread tries to {}", attempt.thread, attempt.what);
        match attempt.errno {
            Some(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                findings.push(Finding {
                    what,
                    state: State::Ok,
                    detail: format!("refused: {error}"),
                });
            }
            None => {
                let detail = "IT WORKED: the sandbox has a hole".to_owned();
                findings.push(Finding { what, state: State::Bad, detail });
            }
        }
    }
    Ok(())
}
