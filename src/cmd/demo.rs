//! `mien demo`: the main job on real models and pictures, judged and laid out to look at.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use mien_base::clock::Wall;
use mien_base::consent::{ConsentRecord, Scope};
use mien_base::id::IdentityId;
use mien_base::model::Role;
use mien_base::recipe::{Action, Recipe, Rule};
use mien_base::report::{PictureReport, Verdict};
use mien_daemon::files::Input;
use mien_vault::catalog::Group;
use mien_vault::fetch::Selection;
use mien_vault::{ModelSource as _, ModelStore, SourceStore as _};

use super::args::DemoArgs;
use super::demo_clip::{self, ShownClip};
use super::desk::Desk;
use super::error::{Error, Result};
use super::fetch::Fetcher;
use super::inputs::Task;
use super::judge::{self, Judgement};
use super::out;
use super::recipe::Asked;

/// Name in the store, portrait, pseudonym.
const SOURCES: [(&str, &str, &str); 2] =
    [("demo-astronaut", "astronaut.png", "demo-1"), ("demo-hopper", "hopper.jpg", "demo-2")];
const STRANGER: &str = "carphone.png";
const GROUP: &str = "group.png";
/// Of the third recipe.
pub(super) const RULES: [(&str, &str); 2] =
    [("demo-astronaut", "swap:demo-hopper"), ("demo-hopper", "pass")];
const DAY: u64 = 86_400;

/// One picture of the demo.
#[derive(Debug, Serialize)]
struct Shown {
    recipe: &'static str,
    input: PathBuf,
    output: PathBuf,
    report: PictureReport,
    ms: f64,
    /// What `mien verify` says.
    marks: Verdict,
    /// Of the independent judge, a face each; `None` when it is not installed.
    judged: Option<Vec<Judgement>>,
}

/// The report of the demo.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    made: String,
    seconds: f64,
    pictures: Vec<Shown>,
    clips: Vec<ShownClip>,
    left_out: Vec<String>,
}

pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    let home = mien_vault::Home::from_env()?;
    let mut fetcher = Fetcher::new(args.run.quiet)?;
    let fetched = fetcher.models(&home, Selection::Usual, None)?;
    fetcher.pictures(&home, Group::Demo, None)?;
    let folder = &args.output;
    fs::create_dir_all(folder).map_err(|source| Error::File {
        what: "Can't make the folder",
        path: folder.clone(),
        source,
    })?;
    let mut desk = Desk::open_bare(&args.run)?;
    let store = ModelStore::new(&home, desk.clock.clone());
    let recognises = store.by_role(Role::Embedder)?.is_some();
    let judges = store.by_role(Role::Judge)?.is_some();
    let mut left_out: Vec<String> =
        fetched.skipped.iter().map(|(name, why)| format!("model {name}: {why}")).collect();
    enrol(&mut desk)?;
    let mut pictures = Vec::new();
    for (recipe, action, input, output) in plan(&mut desk, folder)? {
        pictures.push(show(&mut desk, recipe, &action, input, folder.join(output), judges)?);
    }
    if recognises {
        pictures.push(by_identity(&mut desk, folder, judges)?);
    } else {
        left_out.push("rules per identity: need recognition".to_owned());
    }
    let clips = demo_clip::show(&mut desk, folder, (recognises, judges))?;
    contact_sheet(&mut desk, folder, &pictures, &clips)?;
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        made: desk.wall.to_string(),
        seconds: desk.passed().as_secs_f64(),
        pictures,
        clips,
        left_out,
    };
    finish(args, &report)
}

/// Enrols the two sources with a consent record, as `mien source enrol` does.
fn enrol(desk: &mut Desk) -> Result<()> {
    for (name, file, subject) in SOURCES {
        let identity: IdentityId = name.parse().expect("a valid name");
        let picture = desk.home.pictures().join(file);
        let (record, portrait) = desk.enrol(&identity, &picture)?;
        let consent = ConsentRecord {
            identity: identity.clone(),
            subject: subject.to_owned(),
            purpose: "The demo: a public-domain portrait of a public figure".to_owned(),
            scope: vec![Scope::Swap, Scope::Reveal],
            granted: desk.wall,
            expires: Wall(desk.wall.0 + 30 * DAY),
            revoked: None,
            evidence: None,
            operator: "mien demo".to_owned(),
        };
        if desk.sources.list()?.contains(&identity) {
            desk.sources.forget(&identity)?;
        }
        desk.sources.put(&record, &portrait, Some(&consent))?;
        desk.know(record, portrait, vec![consent]);
    }
    Ok(())
}

type Planned = (&'static str, Action, PathBuf, &'static str);

/// The first two recipes: hidden, and swapped.
fn plan(desk: &mut Desk, folder: &Path) -> Result<Vec<Planned>> {
    let pictures = desk.home.pictures();
    let group = folder.join(GROUP);
    let portraits = [SOURCES[0].1, SOURCES[1].1, STRANGER].map(|file| pictures.join(file)).to_vec();
    desk.sheet(&portraits, 3, (480, 480), &group, 92)?;
    let action = |text: &str| text.parse::<Action>().expect("an action of ours");
    Ok(vec![
        ("anonymise", action("blur"), group.clone(), "anonymised.jpg"),
        ("anonymise", action("mosaic"), pictures.join(SOURCES[1].1), "mosaic.jpg"),
        ("anonymise", action("synthetic:7"), group, "synthetic.jpg"),
        ("swap", action("swap:demo-hopper"), pictures.join(SOURCES[0].1), "swap-astronaut.png"),
        ("swap", action("swap:demo-astronaut"), pictures.join(SOURCES[1].1), "swap-hopper.jpg"),
        ("swap", action("swap:demo-astronaut"), pictures.join(STRANGER), "swap-stranger.png"),
    ])
}

fn show(
    desk: &mut Desk,
    recipe: &'static str,
    action: &Action,
    input: PathBuf,
    output: PathBuf,
    judges: bool,
) -> Result<Shown> {
    let recipe_of = Recipe { action: action.clone(), ..Recipe::default() };
    one(desk, recipe, recipe_of, input, output, judges)
}

/// The third recipe: A becomes B, B is allowed, the stranger is hidden; in one pass.
fn by_identity(desk: &mut Desk, folder: &Path, judges: bool) -> Result<Shown> {
    let mut text = String::from("# Who gets what; everybody else is hidden.\n");
    for (who, what) in RULES {
        text.push_str(&format!("\n[[rule]]\nwho = \"{who}\"\ndo = \"{what}\"\n"));
    }
    let path = folder.join("rules.toml");
    write(&path, text.as_bytes())?;
    one(desk, "rules", rules(), folder.join(GROUP), folder.join("rules.png"), judges)
}

/// A becomes B, B is allowed, everybody else is hidden.
pub(super) fn rules() -> Recipe {
    Recipe {
        action: "blur".parse().expect("an action of ours"),
        rules: RULES
            .iter()
            .map(|(who, what)| Rule {
                who: who.parse().expect("a valid name"),
                action: what.parse().expect("an action of ours"),
            })
            .collect(),
        ..Recipe::default()
    }
}

fn one(
    desk: &mut Desk,
    name: &'static str,
    recipe: Recipe,
    input: PathBuf,
    output: PathBuf,
    judges: bool,
) -> Result<Shown> {
    let task = Task { input, output, format: None };
    let task = Task { format: super::inputs::by_name(&task.output)?, ..task };
    let before = desk.passed();
    let finished = desk.process(&task, &Asked { recipe, overlay: None }, 92)?;
    let ms = (desk.passed() - before).as_secs_f64() * 1e3;
    let job = desk.next_job()?;
    let marks = desk.worker.verify(job, &Input::Path(task.output.clone()))?;
    let judged = if judges {
        let faces = &finished.report.faces;
        let faces: Vec<_> = faces.iter().map(|face| (face.done.clone(), face.landmarks)).collect();
        Some(judge::judge(desk, &faces, 0, (&task.input, &task.output))?)
    } else {
        None
    };
    Ok(Shown {
        recipe: name,
        input: task.input,
        output: task.output,
        report: finished.report,
        ms,
        marks,
        judged,
    })
}

/// Before and after, side by side; of clips a frame.
fn contact_sheet(
    desk: &mut Desk,
    folder: &Path,
    pictures: &[Shown],
    clips: &[ShownClip],
) -> Result<()> {
    let clips = clips.iter().flat_map(|c| [c.input.clone(), c.output.clone()]);
    let pairs: Vec<PathBuf> =
        pictures.iter().flat_map(|p| [p.input.clone(), p.output.clone()]).chain(clips).collect();
    desk.sheet(&pairs, 2, (720, 480), &folder.join("contact.jpg"), 90)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|source| Error::File {
        what: "Can't write",
        path: path.to_owned(),
        source,
    })
}

fn finish(args: &DemoArgs, report: &Report) -> Result<()> {
    let table = table(report);
    let folder = &args.output;
    let json = serde_json::to_vec_pretty(report).expect("reports hold only plain data");
    write(&folder.join("report.json"), &json)?;
    write(&folder.join("report.txt"), format!("{table}\n").as_bytes())?;
    if args.run.json {
        out::json(report)?;
    } else if !args.run.quiet {
        let at = folder.display();
        out::line(&format!(
            "{table}\n\nLook at {at}/contact.jpg: before on the left, after on the right.\n\
             The report stands in {at}/report.json. To go on:\n\
             \x20 mien process photo.jpg -o out.jpg --anonymise blur\n\
             \x20 mien process photo.jpg -o out.jpg --swap demo-hopper\n\
             \x20 mien process {at}/group.png -o out.png --rules {at}/rules.toml\n\
             \x20 mien process {at}/faces.y4m -o out.mp4 --anonymise mosaic\n\
             \x20 mien verify {at}/faces-swapped.mp4\n\
             \x20 mien source enrol --help        (a face of your own, with consent)\n\
             \x20 mien source forget demo-hopper  (the demo enrolled two)"
        ))?;
    }
    let failed: Vec<String> = report
        .pictures
        .iter()
        .filter(|p| {
            let judged = p.judged.iter().flatten().all(|judgement| judgement.holds);
            let as_asked = p.report.faces.iter().all(|face| face.reason.is_none());
            !(p.marks.whole && judged && as_asked && !p.report.faces.is_empty())
        })
        .map(|p| &p.output)
        .chain(report.clips.iter().filter(|clip| !clip.holds()).map(|clip| &clip.output))
        .map(|path| path.display().to_string())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::Check(format!("Not as it must be: {}; see report.json", failed.join(", "))))
}

pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn table(report: &Report) -> String {
    let mut rows = Vec::new();
    for shown in &report.pictures {
        let inference: f32 = shown.report.stages.iter().map(|s| s.inference_ms).sum();
        let done: Vec<&str> = shown.report.faces.iter().map(|f| f.done.as_str()).collect();
        let judged = shown.judged.as_ref().map_or("not judged".to_owned(), |all| {
            all.iter().map(Judgement::words).collect::<Vec<_>>().join(", ")
        });
        rows.push(vec![
            name(&shown.output),
            shown.recipe.to_owned(),
            shown.report.faces.len().to_string(),
            done.join(", "),
            format!("{:.0}", shown.ms),
            format!("{inference:.0}"),
            if shown.marks.whole { "whole" } else { "NOT WHOLE" }.to_owned(),
            judged,
        ]);
    }
    rows.extend(report.clips.iter().map(ShownClip::row));
    let header =
        ["picture", "recipe", "faces", "done", "ms", "inference", "marks", "identity (judge)"];
    let mut text = out::table(&header, &rows);
    text.push_str(&format!("\n{:.1} s in all", report.seconds));
    for what in &report.left_out {
        text.push_str(&format!("\nleft out: {what}"));
    }
    text
}
