//! Pictures and clips as jobs.

use std::path::Path;

use mien_base::id::IdentityId;
use mien_base::wire::clip::{ClipOutput, Container, Range, Rate};
use mien_daemon::audit::Kind as AuditKind;
use mien_daemon::contract::{Document, Reason, Refusal};
use mien_daemon::files::Input;
use mien_daemon::jobs::JobControl;
use mien_daemon::store::{JobRow, Query};
use mien_vault::{SourceStore as _, digest};
use serde::Deserialize;
use serde_json::{Value, json};

use super::artifact::{Artifact, Target};
use super::rules::{self, Rule};
use super::{Done, Places, Work, fault};
use crate::cmd::args::FormatArg;
use crate::cmd::desk::{ClipTask, Desk};
use crate::cmd::inputs::Task;
use crate::cmd::recipe::Asked;

/// Quality of JPEGs that jobs write.
const QUALITY: u8 = 92;

#[derive(Debug, Deserialize)]
struct Params {
    input: Artifact,
    output: Target,
    rules: Vec<Rule>,
    #[serde(default)]
    audio: Option<String>,
    #[serde(default)]
    range_s: Option<[f64; 2]>,
    #[serde(default)]
    tier: Option<String>,
}

/// What can be told before the work begins.
pub(super) fn admit(document: &Document, places: &Places) -> Result<(), Refusal> {
    let params: Params = document.params()?;
    params.input.admit("/params/input")?;
    params.output.admit("/params/output")?;
    params.output.path(&places.outputs, "/params/output")?;
    rules::admit(&params.rules)?;
    if params.tier.as_deref() == Some("pro") {
        let detail = "this device swaps by the lite tier";
        return Err(Refusal::at(Reason::Unavailable, "/params/tier", detail));
    }
    if let Some([from, to]) = params.range_s
        && from >= to
    {
        let detail = "must begin before it ends";
        return Err(Refusal::at(Reason::InvalidRequest, "/params/range_s", detail));
    }
    Ok(())
}

/// The output of an earlier try that died after it appeared: done is done.
fn done_before(work: &Work, job: &JobRow, output: &Path) -> Result<Option<Value>, Refusal> {
    if job.attempt < 2 || !output.is_file() {
        return Ok(None);
    }
    let query = Query {
        job: Some(job.execution),
        kind: Some(AuditKind::Job),
        most: 64,
        ..Query::default()
    };
    let rows = work.store.query(&query).map_err(|error| fault(&error.into()))?;
    let recorded: Vec<&str> = rows
        .iter()
        .filter(|link| link.row.entry.body.get("outcome").is_some_and(|word| word == "done"))
        .filter_map(|link| link.row.entry.body.get("output")?.as_str())
        .collect();
    if recorded.is_empty() {
        return Ok(None);
    }
    let result = result(output)?;
    let known = result["output"]["sha256"].as_str().is_some_and(|sha| recorded.contains(&sha));
    Ok(known.then_some(result))
}

/// What is told of an output.
fn result(output: &Path) -> Result<Value, Refusal> {
    let unreadable = |error: std::io::Error| {
        Refusal::new(Reason::OutputUnwritable, format!("`{}`: {error}", output.display()))
    };
    let file = std::fs::File::open(output).map_err(unreadable)?;
    let (sha256, size) = digest::of_reader(file, u64::MAX).map_err(unreadable)?;
    let uri = format!("file:{}", output.display());
    Ok(json!({ "output": { "uri": uri, "sha256": sha256, "size": size } }))
}

/// The recipe of a job, by who is enrolled; every source must be one whose consent holds.
fn asked(desk: &Desk, rules: &[Rule]) -> Result<Asked, Refusal> {
    let enrolled: Vec<IdentityId> = desk.sources.list().map_err(|error| fault(&error.into()))?;
    for source in rules::sources(rules) {
        desk.check_swap(&source).map_err(|error| fault(&error))?;
    }
    let mut recipe = rules::recipe(rules, &enrolled)?;
    recipe.mark = crate::cmd::recipe::usual_mark();
    Ok(Asked { recipe, overlay: None })
}

/// One picture.
pub(super) fn image(work: &Work, job: &JobRow, control: &JobControl) -> Done {
    let params: Params = job.document.params()?;
    let output = params.output.path(&work.places.outputs, "/params/output")?;
    if let Some(done) = done_before(work, job, &output)? {
        return Ok(done);
    }
    control.progress("reading", None);
    let bytes = params.input.bytes(&work.places.inputs, "/params/input")?;
    let overlay = match rules::overlay(&params.rules)? {
        Some(image) => Some(image.file(&work.places.inputs, "/params/rules")?),
        None => None,
    };
    let input = Input::Bytes { name: "the input".to_owned(), bytes };
    control.progress("processing", None);
    let finished = work
        .at_desk(job, control, |desk| {
            Ok(asked(desk, &params.rules).and_then(|asked| {
                let asked = Asked { overlay, ..asked };
                let task = Task {
                    input: output.clone(),
                    output: output.clone(),
                    format: by_name(&output),
                };
                desk.process_input(&input, &task, &asked, QUALITY).map_err(|error| fault(&error))
            }))
        })
        .map_err(|error| fault(&error))??;
    let mut result = result(&output)?;
    let did: Vec<&str> = finished.report.faces.iter().map(|face| face.done.as_str()).collect();
    result["faces"] = json!(did.len());
    result["width"] = json!(finished.report.width);
    result["height"] = json!(finished.report.height);
    Ok(result)
}

fn by_name(output: &Path) -> Option<FormatArg> {
    match output.extension()?.to_str()? {
        "png" => Some(FormatArg::Png),
        "jpg" | "jpeg" => Some(FormatArg::Jpeg),
        _ => None,
    }
}

/// One clip; what an earlier try left of it is gone on with.
pub(super) fn clip(work: &Work, job: &JobRow, control: &JobControl) -> Done {
    let params: Params = job.document.params()?;
    let output = params.output.path(&work.places.outputs, "/params/output")?;
    if let Some(done) = done_before(work, job, &output)? {
        return Ok(done);
    }
    control.progress("reading", None);
    let input = Input::Path(params.input.file(&work.places.inputs, "/params/input")?);
    let overlay = match rules::overlay(&params.rules)? {
        Some(image) => Some(image.file(&work.places.inputs, "/params/rules")?),
        None => None,
    };
    let micros = |seconds: f64| (seconds * 1e6).round() as u64;
    let range =
        params.range_s.map(|[from, to]| Range { start: micros(from), end: Some(micros(to)) });
    let audio = params.audio.as_deref() != Some("drop");
    let write = ClipOutput { container: Container::Mp4, rate: Rate::AsInput, audio };
    let finished = work
        .at_desk(job, control, |desk| {
            Ok(asked(desk, &params.rules).and_then(|asked| {
                let asked = Asked { overlay, ..asked };
                let task = ClipTask { input: &input, output: &output, write, range };
                let done = desk.process_clip(&task, &asked, &mut |frame, of| {
                    let permille = of.filter(|of| *of > 0).map(|of| (frame * 1000 / of).min(1000));
                    control.progress("processing", permille.and_then(|n| u16::try_from(n).ok()));
                });
                done.map_err(|error| fault(&error))
            }))
        })
        .map_err(|error| fault(&error))??;
    let mut result = result(&output)?;
    result["frames"] = json!(finished.report.frames);
    result["faces"] = json!(finished.report.faces);
    Ok(result)
}
