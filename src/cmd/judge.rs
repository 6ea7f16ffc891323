//! What the independent embedder says of a face before and after: the same person, or not.

use std::path::Path;

use serde::Serialize;

use mien_base::id::IdentityId;
use mien_base::recipe::Action;
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

/// Of many faces in words: how many were treated as asked, and the worst of each kind.
pub(crate) fn counted(all: &[Judgement]) -> String {
    let kind = |judged: &Judgement| match judged.to_source {
        Some(_) => "moved",
        None if judged.done == "pass" => "kept",
        None => "removed",
    };
    let of = |word| {
        let all: Vec<&Judgement> = all.iter().filter(|judged| kind(judged) == word).collect();
        let held = all.iter().filter(|judged| judged.holds).count();
        let far = all.iter().map(|judged| judged.to_source.unwrap_or(judged.to_before));
        let worst = if word == "removed" { far.reduce(f32::min) } else { far.reduce(f32::max) };
        worst.map(|worst| format!("{word} {held} of {} ({worst:.2})", all.len()))
    };
    ["moved", "removed", "kept"].into_iter().filter_map(of).collect::<Vec<_>>().join(", ")
}

/// True when a clip holds: all that was hidden or kept does, and who was swapped is the source to
/// the judge in each look. Which of two people who are nearly alike he is nearer to may change from
/// frame to frame: how often he is, the table says.
pub(crate) fn hold(all: &[Judgement]) -> bool {
    all.iter().all(|judged| judged.to_source.map_or(judged.holds, |far| far < SAME))
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt()
}

/// What was to be done to a face that stands there.
pub(crate) type Done = (String, Landmarks);

/// Judges faces before and after; of clips, in frame `frame`.
pub(crate) fn judge(
    desk: &mut Desk,
    faces: &[Done],
    frame: u64,
    (before, after): (&Path, &Path),
) -> Result<Vec<Judgement>> {
    let places: Vec<Landmarks> = faces.iter().map(|(_, landmarks)| *landmarks).collect();
    let was = embed(desk, &Input::Path(before.to_owned()), (frame, &places))?;
    let is = embed(desk, &Input::Path(after.to_owned()), (frame, &places))?;
    let mut judged = Vec::new();
    for (((done, _), was), is) in faces.iter().zip(&was).zip(&is) {
        let to_before = distance(was, is);
        let source = match done.parse::<Action>() {
            Ok(Action::Swap(swap)) => Some(portrait(desk, &swap.source)?),
            _ => None,
        };
        let to_source = source.as_ref().map(|source| distance(source, is));
        // Who is swapped for himself stays.
        let is_source = source.is_some_and(|source| distance(&source, was) < SAME);
        let holds = match to_source {
            Some(to_source) => to_source < SAME && (is_source || to_source < to_before),
            None if done == "pass" => to_before < SAME,
            None => to_before > SAME,
        };
        judged.push(Judgement { done: done.clone(), to_before, to_source, holds });
    }
    Ok(judged)
}

/// Which of some sources each face is, as the judge sees it.
pub(crate) fn who<'a>(
    desk: &mut Desk,
    sources: &[&'a str],
    faces: &[Landmarks],
    frame: u64,
    clip: &Path,
) -> Result<Vec<Option<&'a str>>> {
    let found = embed(desk, &Input::Path(clip.to_owned()), (frame, faces))?;
    let mut known = Vec::new();
    for name in sources {
        known.push((*name, portrait(desk, &name.parse().expect("a valid name"))?));
    }
    let nearest = |face: &Vec<f32>| {
        let all = known.iter().map(|(name, source)| (*name, distance(source, face)));
        all.filter(|(_, far)| *far < SAME).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
    };
    Ok(found.iter().map(nearest).collect())
}

fn embed(desk: &mut Desk, input: &Input, faces: (u64, &[Landmarks])) -> Result<Vec<Vec<f32>>> {
    let job = desk.next_job()?;
    Ok(desk.worker.judge(job, input, faces)?)
}

/// What the judge sees in the portrait of a source.
fn portrait(desk: &mut Desk, source: &IdentityId) -> Result<Vec<f32>> {
    let known = desk.sources.get(source)?;
    let portrait = Input::Bytes { name: source.to_string(), bytes: known.portrait };
    let mut found = embed(desk, &portrait, (0, &[known.record.landmarks]))?;
    Ok(found.pop().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(to_before: f32, to_source: Option<f32>, holds: bool) -> Judgement {
        Judgement { done: String::new(), to_before, to_source, holds }
    }

    #[test]
    fn a_hidden_face_is_nobody_and_a_swapped_one_the_source_in_each_look() {
        let with = |more: Judgement| hold(&[look(0.51, Some(0.52), false), more]);
        assert!(with(look(0.7, None, true)));
        assert!(!with(look(0.5, None, false)), "one who was hidden is known");
        assert!(!with(look(0.9, Some(0.61), false)), "somebody else in one look");
        assert!(hold(&[]));
    }
}
