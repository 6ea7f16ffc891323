//! What a clip's report says, counted frame by frame; it survives an interruption.

use std::collections::BTreeMap;
use std::sync::Arc;

use mien_base::id::IdentityId;
use mien_base::limits;
use mien_base::report::{ClipMarks, ClipReport, StageCost};
use mien_face::clip::FrameReport;
use mien_face::mark::Altered;
use serde::{Deserialize, Serialize};

/// Counts of everything that was written. Counting what is known already allocates nothing.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Tally {
    frames: u64,
    faces: u64,
    /// The highest number of a track: they count from 1.
    tracks: u64,
    detected: u64,
    covered: u64,
    /// Frames in which faces were hidden at most, and in which faces were made.
    masked: u64,
    generated: u64,
    identities: BTreeMap<IdentityId, u64>,
    done: BTreeMap<String, u64>,
    reasons: BTreeMap<String, u64>,
    /// Ticks of all frames.
    ticks: u64,
    stages: Vec<StageCost>,
}

fn count(list: &mut BTreeMap<String, u64>, text: &Arc<str>) {
    let has_room = list.len() < limits::CLIP_LISTED;
    match list.get_mut(&**text) {
        Some(n) => *n += 1,
        None if has_room => {
            let end = text.floor_char_boundary(limits::WIRE_TEXT);
            list.insert(text.get(..end).unwrap_or_default().to_owned(), 1);
        }
        None => {}
    }
}

impl Tally {
    /// One more frame, shown for so many ticks.
    pub(super) fn frame(&mut self, report: &FrameReport, ticks: u32) {
        self.frames += 1;
        self.ticks += u64::from(ticks);
        self.faces += report.faces.len() as u64;
        self.detected += u64::from(report.detected);
        self.covered += u64::from(report.covered.is_some());
        self.masked += u64::from(report.altered == Altered::Masked);
        self.generated += u64::from(report.altered == Altered::Generated);
        report.covered.iter().for_each(|why| count(&mut self.reasons, why));
        for face in &report.faces {
            self.tracks = self.tracks.max(face.track.into());
            count(&mut self.done, &face.done);
            face.reason.iter().for_each(|why| count(&mut self.reasons, why));
            if let Some((identity, _)) = &face.identity {
                let has_room = self.identities.len() < limits::CLIP_LISTED;
                match self.identities.get_mut(identity) {
                    Some(n) => *n += 1,
                    None if has_room => {
                        self.identities.insert(identity.clone(), 1);
                    }
                    None => {}
                }
            }
        }
    }

    /// What must be said when the marks, which stand from the first frame on, say more than was
    /// done by the last.
    pub(super) fn overstated(&self, declared: Altered) -> Option<&'static str> {
        match (declared, self.generated, self.masked) {
            (Altered::Nothing, ..) | (Altered::Generated, 1.., _) | (Altered::Masked, _, 1..) => {
                None
            }
            (_, _, 0) => Some("the marks say what was asked for: no face was altered"),
            _ => Some("the marks say what was asked for: faces were hidden, none was made"),
        }
    }

    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// What the stages cost in this run; those of the runs before are in it already.
    pub(super) fn cost(&mut self, stage: StageCost) {
        match self.stages.iter_mut().find(|s| s.stage == stage.stage) {
            Some(known) => {
                known.ms += stage.ms;
                known.cpu_ms += stage.cpu_ms;
                known.inference_ms += stage.inference_ms;
                known.inference_cpu_ms += stage.inference_cpu_ms;
            }
            None => self.stages.push(stage),
        }
    }

    /// The report of a clip of this size, format, and ticks a second.
    pub(super) fn report(
        self,
        (width, height): (u32, u32),
        format: &str,
        timescale: u32,
        marks: ClipMarks,
    ) -> ClipReport {
        ClipReport {
            width,
            height,
            format: format.to_owned(),
            frames: self.frames,
            seconds: self.ticks as f64 / f64::from(timescale.max(1)),
            faces: self.faces,
            tracks: self.tracks,
            detected: self.detected,
            identities: self.identities.into_iter().collect(),
            done: self.done.into_iter().collect(),
            reasons: self.reasons.into_iter().collect(),
            covered: self.covered,
            marks,
            stages: self.stages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_face::clip::TrackedFace;
    use mien_face::subject::Landmarks5;
    use mien_pixels::geometry::{Point, Rect};

    fn report(faces: &[(u32, &str, Option<&str>)]) -> FrameReport {
        let face = |&(track, done, who): &(u32, &str, Option<&str>)| TrackedFace {
            track,
            rect: Rect::new(0.0, 0.0, 9.0, 9.0),
            landmarks: Landmarks5::new([1.0, 2.0, 3.0, 4.0, 5.0].map(|v| Point::new(v, v * v)))
                .unwrap(),
            score: 0.9,
            identity: who.map(|name| (name.parse().unwrap(), 0.7)),
            done: done.into(),
            reason: None,
        };
        FrameReport {
            number: 0,
            altered: Altered::Nothing,
            faces: faces.iter().map(face).collect(),
            regions: Vec::new(),
            covered: None,
            detected: true,
            scene: false,
        }
    }

    #[test]
    fn faces_are_counted_in_each_frame_and_tracks_once() {
        let mut tally = Tally::default();
        tally.frame(&report(&[(1, "solid", Some("ada")), (2, "blur:0.3", None)]), 40);
        tally.frame(&report(&[(1, "solid", Some("ada"))]), 20);
        let report = tally.report((4, 2), "mp4", 30, ClipMarks::default());
        assert_eq!((report.frames, report.faces, report.tracks, report.seconds), (2, 3, 2, 2.0));
        assert_eq!(report.done, [("blur:0.3".to_owned(), 1), ("solid".to_owned(), 2)]);
        assert_eq!(report.identities, [("ada".parse().unwrap(), 2)]);
    }

    #[test]
    fn marks_that_say_more_than_was_done_are_told_of() {
        let (none, hidden, made) = (Altered::Nothing, Altered::Masked, Altered::Generated);
        for (frames, declared, told) in [
            (vec![none, none], made, Some("no face was altered")),
            (vec![none, none], hidden, Some("no face was altered")),
            (vec![none, hidden], made, Some("none was made")),
            (vec![none, hidden], hidden, None),
            (vec![none, made], made, None),
            (vec![none], none, None),
        ] {
            let mut tally = Tally::default();
            for altered in &frames {
                tally.frame(&FrameReport { altered: *altered, ..report(&[]) }, 1);
            }
            let said = tally.overstated(declared);
            assert!(
                said.is_some() == told.is_some()
                    && told.is_none_or(|told| said.is_some_and(|said| said.contains(told))),
                "{frames:?} {declared:?}: {said:?}"
            );
        }
    }

    #[test]
    fn a_clip_with_a_thousand_reasons_keeps_a_bounded_list() {
        let mut tally = Tally::default();
        for n in 0..1000 {
            let why: Arc<str> = format!("reason {n}").into();
            tally.frame(&FrameReport { covered: Some(why), ..report(&[]) }, 1);
        }
        let report = tally.report((4, 2), "mp4", 30, ClipMarks::default());
        assert_eq!((report.covered, report.reasons.len()), (1000, limits::CLIP_LISTED));
    }
}
