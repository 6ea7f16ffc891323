//! `mien process`: pictures in, marked pictures out.

use std::path::{Path, PathBuf};

use serde::Serialize;

use mien_base::error::ErrorKind;
use mien_base::id::IdentityId;
use mien_base::limits;
use mien_base::recipe::Recipe;
use mien_base::report::{Failure, PictureReport};
use mien_base::wire::Format;
use mien_vault::SourceStore;

use super::args::{FormatArg, ProcessArgs};
use super::desk::Desk;
use super::error::{Error, Result};
use super::inputs::{self, Task};
use super::{out, recipe};

/// Most pictures on a before/after sheet.
const ON_SHEET: usize = limits::WIRE_FDS / 2 - 1;

/// What became of one input.
#[derive(Debug, Serialize)]
struct Outcome {
    input: String,
    output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<PictureReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

/// The JSON document of a run.
#[derive(Debug, Serialize)]
struct Document<'a> {
    pictures: &'a [Outcome],
    done: usize,
    failed: usize,
    faces: usize,
    seconds: f64,
}

pub(crate) fn run(args: &ProcessArgs) -> Result<()> {
    let tasks = inputs::plan(&args.inputs, &args.output, args.format, args.recursive)?;
    let to_stdout = args.output.as_os_str() == "-";
    let originals = tasks.iter().map(|task| task.input.as_path());
    let outputs = tasks.iter().map(|task| task.output.as_path());
    inputs::check_apart(originals, outputs.clone().chain(args.preview.as_deref()))?;
    if args.preview.as_deref().is_some_and(|sheet| outputs.clone().any(|output| output == sheet)) {
        return Err(Error::Usage("--preview names an output; name another file".to_owned()));
    }
    if to_stdout && args.run.json {
        return Err(Error::Usage("--json and `-o -` both write standard output".to_owned()));
    }
    let mut desk = Desk::open(&args.run)?;
    #[cfg(feature = "c2pa")]
    credentials(&mut desk, args)?;
    let source = args.swap.as_deref().map(|text| source(&mut desk, text, args)).transpose()?;
    let asked = recipe::from_process(args, source)?;
    check_sources(&desk, &asked.recipe).inspect_err(|error| {
        desk.recorder.refused("process", error.kind());
    })?;
    desk.recorder.marks(&asked.recipe.mark)?;
    let outcomes = all(&mut desk, args, &tasks, &asked, to_stdout)?;
    if let Some(sheet) = &args.preview {
        preview(&mut desk, sheet, &tasks, &outcomes, args.quality)?;
    }
    conclude(&desk, args, &outcomes, to_stdout)
}

/// Content credentials, when a key is given.
#[cfg(feature = "c2pa")]
fn credentials(desk: &mut Desk, args: &ProcessArgs) -> Result<()> {
    use super::desk::read_text;
    use mien_daemon::provenance::{Sealer, Signer};
    if let (Some(chain), Some(key)) = (&args.c2pa_chain, &args.c2pa_key) {
        let chain = read_text("Can't read the certificates", chain)?;
        let key = read_text("Can't read the key", key)?;
        let signer = Signer::new(chain.as_bytes(), key.as_bytes())?;
        desk.seal = Some(Box::new(Sealer { signer, made: desk.wall }));
    }
    Ok(())
}

/// The identity that `--swap` names: an enrolled one, or a picture with its consent record.
fn source(desk: &mut Desk, text: &str, args: &ProcessArgs) -> Result<IdentityId> {
    if let Some(file) = &args.consent {
        return desk.borrow_source(Path::new(text), file);
    }
    if let Ok(identity) = text.parse::<IdentityId>()
        && desk.sources.list()?.contains(&identity)
    {
        return Ok(identity);
    }
    if Path::new(text).exists() {
        let text = format!(
            "`{text}` is a picture without a consent record: give one with --consent FILE \
             (`mien source enrol --help` shows its form), or enrol it once with `mien source enrol`"
        );
        return Err(Error::NoConsent(text));
    }
    Err(Error::Usage(format!(
        "`{text}` is neither an enrolled source (see `mien source list`) nor a picture"
    )))
}

/// Every source that the recipe names is enrolled, and known before work begins.
fn check_sources(desk: &Desk, recipe: &Recipe) -> Result<()> {
    let swaps =
        recipe.rules.iter().map(|rule| &rule.action).chain([&recipe.action, &recipe.others]);
    for action in swaps {
        if let mien_base::recipe::Action::Swap(swap) = action {
            desk.check_swap(&swap.source)?;
        }
    }
    let named = recipe.rules.iter().map(|rule| &rule.who).chain(&recipe.select.reference);
    for who in named {
        desk.check_known(who)?;
    }
    Ok(())
}

fn all(
    desk: &mut Desk,
    args: &ProcessArgs,
    tasks: &[Task],
    asked: &recipe::Asked,
    to_stdout: bool,
) -> Result<Vec<Outcome>> {
    let clock = desk.clock.clone();
    let mut progress = out::Progress::new(&*clock, tasks.len(), args.run.quiet || to_stdout);
    let mut outcomes = Vec::with_capacity(tasks.len());
    for (done, task) in tasks.iter().enumerate() {
        progress.step(done, &task.input.to_string_lossy());
        let result = desk.process(task, asked, args.quality);
        let cancelled = matches!(&result, Err(e) if e.kind() == ErrorKind::Cancelled);
        let (report, error) = match result {
            Ok(finished) => {
                if finished.attempts > 1 {
                    progress.finish();
                    out::note(&format!("{}: done by a second worker", task.input.display()));
                }
                (Some(finished.report), None)
            }
            Err(error) => (None, Some(Failure { kind: error.kind(), message: error.chain() })),
        };
        if let Some(failure) = &error
            && tasks.len() > 1
            && !args.run.json
            && !cancelled
        {
            progress.finish();
            out::note(&format!("{}: {}", task.input.display(), failure.message));
        }
        outcomes.push(Outcome {
            input: task.input.display().to_string(),
            output: task.output.display().to_string(),
            report,
            error,
        });
        if cancelled {
            return Err(Error::Cancelled);
        }
    }
    Ok(outcomes)
}

fn preview(
    desk: &mut Desk,
    sheet: &Path,
    tasks: &[Task],
    outcomes: &[Outcome],
    quality: u8,
) -> Result<()> {
    let pairs: Vec<PathBuf> = tasks
        .iter()
        .zip(outcomes)
        .filter(|(task, outcome)| outcome.error.is_none() && task.input.as_os_str() != "-")
        .take(ON_SHEET)
        .flat_map(|(task, _)| [task.input.clone(), task.output.clone()])
        .collect();
    if pairs.is_empty() {
        return Ok(());
    }
    desk.sheet(&pairs, 2, (640, 480), sheet, quality)
}

fn conclude(desk: &Desk, args: &ProcessArgs, outcomes: &[Outcome], to_stdout: bool) -> Result<()> {
    let failed: Vec<&Outcome> = outcomes.iter().filter(|o| o.error.is_some()).collect();
    let faces = outcomes.iter().filter_map(|o| o.report.as_ref()).map(|r| r.faces.len()).sum();
    if args.run.json {
        out::json(&Document {
            pictures: outcomes,
            done: outcomes.len() - failed.len(),
            failed: failed.len(),
            faces,
            seconds: desk.passed().as_secs_f64(),
        })?;
    } else if !args.run.quiet && !to_stdout {
        for outcome in outcomes {
            if let Some(report) = &outcome.report {
                out::line(&summary(outcome, report))?;
            }
        }
    }
    let Some(first) = failed.first().and_then(|o| o.error.clone()) else { return Ok(()) };
    if outcomes.len() == 1 {
        return Err(Error::Failed(first));
    }
    Err(Error::Some { failed: failed.len(), all: outcomes.len(), first })
}

fn summary(outcome: &Outcome, report: &PictureReport) -> String {
    let mut done: Vec<String> = Vec::new();
    for face in &report.faces {
        let who = face.identity.as_ref().map_or(String::new(), |(id, _)| format!("{id} "));
        let why = face.reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
        done.push(format!("{who}{}{why}", face.done));
    }
    let ms: f32 = report.stages.iter().map(|s| s.ms).sum();
    let faces = if done.is_empty() { "no face".to_owned() } else { done.join(", ") };
    let missing = report.marks.iter().flat_map(|marks| &marks.reasons);
    let missing: String = missing.map(|reason| format!("; {reason}")).collect();
    format!("{} -> {}: {faces}; {ms:.0} ms{missing}", outcome.input, outcome.output)
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Jpeg => Self::Jpeg,
            FormatArg::Png => Self::Png,
        }
    }
}
