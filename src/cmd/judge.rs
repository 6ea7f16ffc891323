//! What the independent embedder says of a face before and after: the same person, or not.

use std::path::Path;

use serde::Serialize;

use mien_base::recipe::Action;
use mien_base::report::PictureReport;
use mien_base::wire::Landmarks;
use mien_daemon::files::Input;
use mien_vault::SourceStore as _;

use super::desk::Desk;
use super::error::Result;

/// Distance below which the judge calls two faces one person (dlib's documented threshold).
const SAME: f32 = 0.6;

/// One face, judged at the place where it stood.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Judgement {
    /// What was done to it.
    pub done: String,
    /// Distance between the face before and after.
    pub to_before: f32,
    /// Distance to the source that was swapped in.
    pub to_source: Option<f32>,
    /// Removed when hidden, moved when swapped, kept when passed.
    pub holds: bool,
}

impl Judgement {
    /// In words, for a table.
    pub(crate) fn words(&self) -> String {
        let verdict = match (self.done.as_str(), self.to_source, self.holds) {
            ("pass", _, true) => "kept".to_owned(),
            (_, Some(to_source), true) => format!("moved {to_source:.2}"),
            (_, None, true) => "removed".to_owned(),
            (_, Some(to_source), false) => format!("NOT MOVED {to_source:.2}"),
            (_, None, false) => "NOT AS ASKED".to_owned(),
        };
        format!("{verdict} ({:.2})", self.to_before)
    }
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt()
}

/// Judges every face of a processed picture.
pub(crate) fn judge(
    desk: &mut Desk,
    report: &PictureReport,
    before: &Path,
    after: &Path,
) -> Result<Vec<Judgement>> {
    let faces: Vec<Landmarks> = report.faces.iter().map(|face| face.landmarks).collect();
    let embed = |desk: &mut Desk, input: &Input, faces: &[Landmarks]| {
        let job = desk.next_job()?;
        desk.worker.judge(job, input, faces).map_err(super::error::Error::from)
    };
    let was = embed(desk, &Input::Path(before.to_owned()), &faces)?;
    let is = embed(desk, &Input::Path(after.to_owned()), &faces)?;
    let mut judged = Vec::new();
    for ((face, was), is) in report.faces.iter().zip(&was).zip(&is) {
        let to_before = distance(was, is);
        let to_source = match face.done.parse::<Action>() {
            Ok(Action::Swap(swap)) => {
                let source = desk.sources.get(&swap.source)?;
                let name = swap.source.to_string();
                let portrait = Input::Bytes { name, bytes: source.portrait };
                let of_source = embed(desk, &portrait, &[source.record.landmarks])?;
                of_source.first().map(|of_source| distance(of_source, is))
            }
            _ => None,
        };
        let holds = match to_source {
            Some(to_source) => to_source < SAME && to_source < to_before,
            None if face.done == "pass" => to_before < SAME,
            None => to_before > SAME,
        };
        judged.push(Judgement { done: face.done.clone(), to_before, to_source, holds });
    }
    Ok(judged)
}
