//! The file read, its sections one after the other, and what must hold between them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use mien_base::limits;
use toml::de::DeTable;

use super::faults::{Fault, Faults};
use super::table::{Section, Sheet};
use super::{Config, OutputKind, Pipeline, outputs, profile, sections};

pub(super) fn load(path: &Path) -> Result<Config, Faults> {
    let whole = |message: String| Faults {
        file: path.to_owned(),
        faults: vec![Fault { line: 0, key: String::new(), message }],
    };
    let path = std::path::absolute(path).map_err(|e| whole(format!("has no place: {e}")))?;
    let mut text = String::new();
    let read = File::open(&path)
        .and_then(|file| file.take(limits::TEXT_FILE + 1).read_to_string(&mut text));
    read.map_err(|error| whole(format!("can't be read: {error}")))?;
    if text.len() as u64 > limits::TEXT_FILE {
        let most = limits::TEXT_FILE >> 10;
        return Err(whole(format!("has more than {most} KiB, which is the most that is read")));
    }
    parse(&path, &text)
}

pub(super) fn parse(path: &Path, text: &str) -> Result<Config, Faults> {
    let sheet = Sheet::new(path, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    let broken = !errors.is_empty();
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        sheet.fault(at, "", format!("is no TOML: {}", error.message()));
    }
    if broken {
        // What stands behind a fault of grammar would be judged wrongly.
        sheet.close()?;
    }
    let root = Section::new(&sheet, String::new(), 0, document.get_ref());
    let mut config = read(path, root);
    config.digest = mien_vault::digest::of(text.as_bytes());
    sheet.close()?;
    Ok(config)
}

fn read(path: &Path, root: Section<'_, '_>) -> Config {
    let device = sections::device(root.section("device"));
    let worker = sections::worker(root.section("worker"));
    let cameras: Vec<_> = root.sections("camera", limits::CAMERAS);
    unique(&cameras);
    let cameras: Vec<_> = cameras.into_iter().filter_map(sections::camera).collect();
    let written: Vec<_> = root.sections("output", limits::OUTPUTS);
    unique(&written);
    apart(&written);
    let outputs: Vec<_> = written.into_iter().filter_map(outputs::output).collect();
    let pipelines = root.sections("pipeline", limits::PIPELINES);
    unique(&pipelines);
    let seen: Vec<&str> = cameras.iter().map(|camera| camera.name.as_str()).collect();
    let known: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
    let mut base = Vec::new();
    for table in pipelines {
        match outputs::pipeline(&table, device.number, &seen, &known) {
            Some(pipeline) => base.push((pipeline, table)),
            None => table.finish(),
        }
    }
    shared(&base);
    let mut profiles = Vec::new();
    for (name, table) in root.named("profile", limits::PROFILES) {
        if !sections::named(name) {
            let message = format!("is no name; allowed is {}", sections::NAMED);
            table.sheet().fault(table.at, &table.key, message);
        }
        profiles.extend(profile::read(name, table, &base, device.number));
    }
    let control = sections::control(root.section("control"));
    let telemetry = sections::telemetry(root.section("telemetry"));
    let jobs = sections::jobs(root.section("jobs"));
    let fleet = root.section("fleet").and_then(sections::fleet);
    root.finish();
    let mut pipelines = Vec::new();
    for (pipeline, table) in base {
        table.finish();
        pipelines.push(pipeline);
    }
    let path = path.to_owned();
    Config {
        path,
        digest: String::new(),
        device,
        worker,
        cameras,
        outputs,
        pipelines,
        profiles,
        control,
        telemetry,
        jobs,
        fleet,
    }
}

/// No two tables have one name.
fn unique(tables: &[Section<'_, '_>]) {
    let mut seen = BTreeMap::new();
    for table in tables {
        if let Some(name) = table.peek("name")
            && seen.insert(name, ()).is_some()
        {
            table.refuse("name", format!("`{name}` is taken by a table above"));
        }
    }
}

/// No two outputs write to one place.
fn apart(tables: &[Section<'_, '_>]) {
    let mut seen: Vec<PathBuf> = Vec::new();
    for table in tables {
        for key in ["dir", "device", "listen"] {
            let Some(place) = table.peek(key) else { continue };
            let place = table.sheet().place(place);
            let inside = |other: &PathBuf| place.starts_with(other) || other.starts_with(&place);
            if seen.iter().any(inside) {
                let message = "is taken by an output above, or lies inside of it or around it";
                table.refuse(key, message);
            }
            seen.push(place);
        }
    }
}

/// No output belongs to two pipelines.
fn shared(pipelines: &[(Pipeline, Section<'_, '_>)]) {
    for (n, (pipeline, table)) in pipelines.iter().enumerate() {
        for output in &pipeline.outputs {
            let above = pipelines.iter().take(n);
            if let Some((other, _)) = above.clone().find(|(p, _)| p.outputs.contains(output)) {
                let message =
                    format!("`{output}` belongs to the pipeline `{}` already", other.name);
                table.refuse("outputs", message);
            }
        }
    }
}

impl Config {
    /// Folders and files that the configuration lets the daemon write to, beside its home.
    #[must_use]
    pub fn written(&self) -> Vec<&Path> {
        let outputs = self.kept().into_iter().map(|(folder, _)| folder);
        outputs.chain(self.jobs.outputs.iter().map(PathBuf::as_path)).collect()
    }
}

impl Config {
    /// Folders that are written to, each with the bytes that have to stay free there.
    #[must_use]
    pub fn kept(&self) -> Vec<(&Path, u64)> {
        self.outputs
            .iter()
            .filter_map(|output| match &output.kind {
                OutputKind::Segments(segments) => Some((&*segments.dir, segments.keep.free)),
                OutputKind::Snapshots(snapshots) => Some((&*snapshots.dir, snapshots.keep.free)),
                OutputKind::V4l2 { .. } | OutputKind::Mjpeg(_) => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
