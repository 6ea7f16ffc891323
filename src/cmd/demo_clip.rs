//! The clips of `mien demo`: three moving faces, made here, and the three recipes on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use mien_base::recipe::Recipe;
use mien_base::report::{ClipReport, Verdict};
use mien_base::wire::Landmarks;
use mien_base::wire::clip::{ClipOutput, Container, Rate};
use mien_daemon::files::Input;
use mien_daemon::supervise::ClipDetectJob;

use super::demo;
use super::desk::{self, ClipTask, Desk};
use super::error::Result;
use super::judge::{self, Judgement};
use super::recipe::Asked;

/// What the clip is made of, in the store of pictures.
const PARTS: [&str; 3] = ["astronaut.png", "hopper.jpg", "carphone.mp4"];
pub(crate) const MADE: &str = "faces.y4m";
/// Two seconds.
const FRAMES: u16 = 60;
/// The frames that are judged.
const JUDGED: [u64; 6] = [5, 15, 25, 35, 45, 55];

/// One clip of the demo.
#[derive(Debug, Serialize)]
pub(crate) struct ShownClip {
    pub recipe: &'static str,
    pub input: PathBuf,
    pub output: PathBuf,
    pub report: ClipReport,
    pub ms: f64,
    /// What `mien verify` says.
    pub marks: Verdict,
    /// Of the independent judge, every face of some frames; `None` when it is not installed.
    pub judged: Option<Vec<Judgement>>,
}

/// The faces of the made clip that are judged, by frame, each with its source where it has one.
type Known = BTreeMap<u64, Vec<(Landmarks, Option<&'static str>)>>;

/// Makes the clip and does to it what is done to pictures: hide, swap, and by rules.
pub(crate) fn show(
    desk: &mut Desk,
    folder: &Path,
    (recognises, judges): (bool, bool),
) -> Result<Vec<ShownClip>> {
    let pictures = desk.home.pictures();
    let parts = PARTS.map(|file| Input::Path(pictures.join(file)));
    let made = folder.join(MADE);
    let job = desk.next_job()?;
    let mark = desk.sign(job);
    desk.worker.made(job, &parts, &desk::output(&made), (FRAMES, &mark))?;
    let known = if judges { Some(find(desk, &made)?) } else { None };
    let of = |action: &str| {
        let action = action.parse().expect("an action of ours");
        Recipe { action, ..Recipe::default() }
    };
    let mut plan = vec![
        ("anonymise", of("blur"), "faces-anonymised.mp4"),
        ("swap", of("swap:demo-hopper"), "faces-swapped.mp4"),
    ];
    if recognises {
        plan.push(("rules", demo::rules(), "faces-rules.mp4"));
    }
    let mut shown = Vec::new();
    for (name, recipe, file) in plan {
        let mut clip = one(desk, name, &recipe, &made, folder.join(file))?;
        if let Some(known) = &known {
            clip.judged = Some(judged(desk, &recipe, known, (&made, &clip.output))?);
        }
        shown.push(clip);
    }
    Ok(shown)
}

fn one(
    desk: &mut Desk,
    name: &'static str,
    recipe: &Recipe,
    made: &Path,
    output: PathBuf,
) -> Result<ShownClip> {
    let input = desk::input(made);
    let write = ClipOutput { container: Container::Mp4, rate: Rate::Quality(85), audio: false };
    let task = ClipTask { input: &input, output: &output, write, range: None };
    let asked = Asked { recipe: recipe.clone(), overlay: None };
    let before = desk.passed();
    let report = desk.process_clip(&task, &asked, &mut |_, _| {})?.report;
    let ms = (desk.passed() - before).as_secs_f64() * 1e3;
    let job = desk.next_job()?;
    let marks = desk.worker.verify(job, &Input::Path(output.clone()))?;
    let judged = None;
    Ok(ShownClip { recipe: name, input: made.to_owned(), output, report, ms, marks, judged })
}

/// Where the faces stand in the frames that are judged, and whose they are.
fn find(desk: &mut Desk, made: &Path) -> Result<Known> {
    let (job, input, wall) = (desk.next_job()?, desk::input(made), desk.wall);
    let detect = Recipe::default().detect;
    let mut found: BTreeMap<u64, Vec<Landmarks>> = BTreeMap::new();
    let job = ClipDetectJob { job, detect: &detect, input: &input, range: None, wall };
    desk.worker.detect_clip(&job, &mut |frame| {
        if JUDGED.contains(&frame.frame) {
            found.insert(frame.frame, frame.faces.iter().map(|face| face.landmarks).collect());
        }
        true
    })?;
    let sources = demo::RULES.map(|(who, _)| who);
    let mut known = Known::new();
    for (frame, faces) in found {
        let who = judge::who(desk, &sources, &faces, frame, made)?;
        known.insert(frame, faces.into_iter().zip(who).collect());
    }
    Ok(known)
}

/// What the judge says of every face in the frames that are judged.
fn judged(
    desk: &mut Desk,
    recipe: &Recipe,
    known: &Known,
    clips: (&Path, &Path),
) -> Result<Vec<Judgement>> {
    let done = |who: Option<&str>| {
        let rule = recipe.rules.iter().find(|rule| Some(rule.who.as_str()) == who);
        rule.map_or(&recipe.action, |rule| &rule.action).to_string()
    };
    let mut all = Vec::new();
    for (frame, faces) in known {
        let faces: Vec<judge::Done> = faces.iter().map(|(at, who)| (done(*who), *at)).collect();
        all.extend(judge::judge(desk, &faces, *frame, clips)?);
    }
    Ok(all)
}

impl ShownClip {
    /// As the table of the report has it.
    pub(crate) fn row(&self) -> Vec<String> {
        let frames = self.report.frames.max(1);
        let inference: f64 = self.report.stages.iter().map(|s| s.inference_ms).sum();
        let done: Vec<&str> = self.report.done.iter().map(|(done, _)| done.as_str()).collect();
        let judged = self.judged.as_deref().map_or("not judged".to_owned(), judge::counted);
        vec![
            demo::name(&self.output),
            self.recipe.to_owned(),
            format!("{:.1}", self.report.faces as f64 / frames as f64),
            done.join(", "),
            format!("{:.0} a frame", self.ms / frames as f64),
            format!("{:.0}", inference / frames as f64),
            if self.marks.whole { "whole" } else { "NOT WHOLE" }.to_owned(),
            judged,
        ]
    }

    /// True when it is as it must be: marked, every face done to as asked, in each frame, and
    /// nobody is whom he must not be to the judge.
    pub(crate) fn holds(&self) -> bool {
        let ClipReport { frames, faces, covered, reasons, .. } = &self.report;
        let judged = self.judged.as_deref().is_none_or(judge::hold);
        let all = reasons.is_empty() && *covered == 0 && *faces >= 3 * frames;
        self.marks.whole && judged && all
    }
}
