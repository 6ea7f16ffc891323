//! `mien process`: pictures and clips in, marked ones out.

use std::path::{Path, PathBuf};

use serde::Serialize;

use mien_base::error::ErrorKind;
use mien_base::id::IdentityId;
use mien_base::limits;
use mien_base::recipe::Recipe;
use mien_base::report::{ClipReport, Failure, PictureReport};
use mien_base::wire::clip::Range;
use mien_daemon::kind::Kind;
use mien_vault::SourceStore;

use super::args::ProcessArgs;
use super::desk::{self, Desk};
use super::error::{Error, Result};
use super::inputs::{self, Task};
use super::{clips, out, recipe};

/// Most pictures on a before/after sheet.
const ON_SHEET: usize = limits::WIRE_FDS / 2 - 1;

/// JPEG quality where none is asked for.
const QUALITY: u8 = 92;

/// What became of one input.
#[derive(Debug, Serialize)]
struct Outcome {
    input: String,
    output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
    /// Frames of a clip that an interrupted run had left.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
    #[serde(skip)]
    is_clip: bool,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Report {
    Picture(PictureReport),
    Clip(Box<ClipReport>),
}

/// The JSON document of a run.
#[derive(Debug, Serialize)]
struct Document<'a> {
    pictures: Vec<&'a Outcome>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clips: Vec<&'a Outcome>,
    done: usize,
    failed: usize,
    /// Those of clips are counted in each frame.
    faces: u64,
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
    let range = args.clip.range.as_deref().map(clips::range).transpose()?;
    let has_clips = tasks.iter().any(|task| inputs::may_be_clip(&task.input));
    let mut desk = Desk::open_for(&args.run, has_clips)?;
    #[cfg(feature = "c2pa")]
    credentials(&mut desk, args)?;
    let source = args.swap.as_deref().map(|text| source(&mut desk, text, args)).transpose()?;
    let asked = recipe::from_process(args, source)?;
    check_sources(&desk, &asked.recipe).inspect_err(|error| {
        desk.recorder.refused("process", error.kind());
    })?;
    desk.recorder.marks(&asked.recipe.mark)?;
    let outcomes = all(&mut desk, args, &tasks, (&asked, range), to_stdout)?;
    if let Some(sheet) = &args.preview {
        preview(&mut desk, sheet, &tasks, &outcomes, args.quality.unwrap_or(QUALITY))?;
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
    asked: (&recipe::Asked, Option<Range>),
    to_stdout: bool,
) -> Result<Vec<Outcome>> {
    let clock = desk.clock.clone();
    let mut progress = out::Progress::new(&*clock, tasks.len(), args.run.quiet || to_stdout);
    let mut outcomes = Vec::with_capacity(tasks.len());
    for (done, task) in tasks.iter().enumerate() {
        progress.step(done, &task.input.to_string_lossy());
        let mut done = one(desk, args, task, asked, &mut progress, tasks.len() == 1);
        let cancelled = matches!(&done.result, Err(e) if e.kind() == ErrorKind::Cancelled);
        if cancelled {
            progress.finish();
            return Err(done.result.err().unwrap_or(Error::Cancelled));
        }
        let (report, error) = match done.result {
            Ok(report) => (Some(report), None),
            Err(error) => (None, Some(Failure { kind: error.kind(), message: error.chain() })),
        };
        if report.is_some() && done.attempts > 1 {
            progress.finish();
            out::note(&format!("{}: done by another worker", task.input.display()));
        }
        if let Some(failure) = &error
            && tasks.len() > 1
            && !args.run.json
        {
            progress.finish();
            out::note(&format!("{}: {}", task.input.display(), failure.message));
        }
        outcomes.push(Outcome {
            input: task.input.display().to_string(),
            output: task.output.display().to_string(),
            report,
            resumed: done.resumed.take_if(|frames| *frames > 0),
            error,
            is_clip: done.is_clip,
        });
    }
    Ok(outcomes)
}

/// One input that was worked on.
struct Worked {
    is_clip: bool,
    result: Result<Report>,
    attempts: u32,
    resumed: Option<u64>,
}

fn one(
    desk: &mut Desk,
    args: &ProcessArgs,
    task: &Task,
    (asked, range): (&recipe::Asked, Option<Range>),
    progress: &mut out::Progress<'_>,
    alone: bool,
) -> Worked {
    let failed =
        |is_clip, error| Worked { is_clip, result: Err(error), attempts: 1, resumed: None };
    let stop = desk.worker.cancel_handle().flag();
    let (input, kind) = match desk::input(&task.input).sniff(&stop) {
        Ok(known) => known,
        Err(error) => return failed(false, error.into()),
    };
    if kind == Kind::Picture {
        if task.format.is_some_and(|format| format.clip().is_some()) {
            let text = format!("`{}` is no clip: name its output .jpg or .png", input.name());
            return failed(false, Error::Usage(text));
        }
        let done = desk.process_input(&input, task, asked, args.quality.unwrap_or(QUALITY));
        return match done {
            Ok(done) => Worked {
                is_clip: false,
                result: Ok(Report::Picture(done.report)),
                attempts: done.attempts,
                resumed: None,
            },
            Err(error) => failed(false, error),
        };
    }
    match clips::process(desk, args, &input, kind, task, asked, range, progress, alone) {
        Ok(done) => Worked {
            is_clip: true,
            result: Ok(Report::Clip(Box::new(done.report))),
            attempts: done.attempts,
            resumed: Some(done.resumed),
        },
        Err(error) => failed(true, error),
    }
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
        .filter(|(task, outcome)| {
            outcome.error.is_none() && !outcome.is_clip && task.input.as_os_str() != "-"
        })
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
    let faces = |report: &Report| match report {
        Report::Picture(report) => report.faces.len() as u64,
        Report::Clip(report) => report.faces,
    };
    let faces = outcomes.iter().filter_map(|o| o.report.as_ref()).map(faces).sum();
    let (clips, pictures) = outcomes.iter().partition(|o| o.is_clip);
    if args.run.json {
        out::json(&Document {
            pictures,
            clips,
            done: outcomes.len() - failed.len(),
            failed: failed.len(),
            faces,
            seconds: desk.passed().as_secs_f64(),
        })?;
    } else if !args.run.quiet && !to_stdout {
        for outcome in outcomes {
            let text = match &outcome.report {
                Some(Report::Picture(report)) => summary(report),
                Some(Report::Clip(report)) => clips::summary(report, outcome.resumed),
                None => continue,
            };
            out::line(&format!("{} -> {}: {text}", outcome.input, outcome.output))?;
        }
    }
    let Some(first) = failed.first().and_then(|o| o.error.clone()) else { return Ok(()) };
    if outcomes.len() == 1 {
        return Err(Error::Failed(first));
    }
    Err(Error::Some { failed: failed.len(), all: outcomes.len(), first })
}

fn summary(report: &PictureReport) -> String {
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
    format!("{faces}; {ms:.0} ms{missing}")
}
