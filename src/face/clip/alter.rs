//! What is done to a frame when it leaves: decisions, alterations, the report.

use std::sync::Arc;

use mien_base::recipe::MaskKind;
use mien_engine::backend::Backend;
use mien_pixels::geometry::{Affine2, Point, Rect, Roi, Size};

use super::look::READ;
use super::{ClipRun, Frame, FrameReport, Slot, Tools, TrackedFace};
use crate::alteration::{Subject, Work, makes_a_face};
use crate::decision::{Decision, Deed, Who};
use crate::gallery::Match;
use crate::mark::Altered;
use crate::mask::Place;
use crate::meter::Meter;
use crate::pipeline;
use crate::select;
use crate::subject::Face;
use crate::track::{HOLD, Presence, Track};
use crate::{Error, Result};

impl<B: Backend> ClipRun<B> {
    /// Alters a frame as decided. What can't be done ends in a cover, of the face or of the frame.
    pub(super) fn alter(
        &mut self,
        tools: &mut Tools<'_, B>,
        mut slot: Slot,
    ) -> Result<(Frame, FrameReport)> {
        let number = slot.frame.number;
        let mut report = self.spare.pop().unwrap_or_else(|| FrameReport {
            number,
            altered: Altered::Nothing,
            faces: Vec::new(),
            regions: Vec::new(),
            covered: None,
            detected: false,
            scene: false,
        });
        report.number = number;
        report.altered = Altered::Nothing;
        (report.detected, report.scene, report.covered) = (slot.detected, slot.scene, None);
        let lost = self.tracker.unseen(number).is_none_or(|n| n > u64::from(HOLD));
        let unseen = match slot.unseen {
            Some(why) if lost || self.sight.gate.is_none() => Some(why),
            None if lost => Some("the detector failed for too long".into()),
            _ => None,
        };
        let mut doubt = slot.ungated.or(unseen);
        let mut present = std::mem::take(&mut self.present);
        self.tracker.presences(number, &mut present);
        if doubt.is_none()
            && let Err(error) = self.faces(tools, &mut slot.frame, &present, &mut report)
        {
            doubt = Some(format!("the frame could not be altered: {}", error.reason()).into());
        }
        self.present = present;
        if let Some(why) = doubt {
            cover_whole(&mut slot.frame, &mut report, &why, self.shape.size);
        }
        Ok((slot.frame, report))
    }

    fn who(&self, track: &Track) -> Who {
        if !self.recipe.recognises() {
            return Who::Unasked;
        }
        match track.votes.who(&self.gallery) {
            Some(found) => Who::Seen(found),
            None => Who::Failed("it was never seen well enough".to_owned()),
        }
    }

    /// How frames are turned to stand upright, for zones and orders.
    fn upright(&self, face: &Face) -> (Face, Size) {
        let Size { width, height } = self.shape.size;
        let (w, h) = (f64::from(width), f64::from(height));
        let (map, size) = match self.shape.rotation {
            90 => (
                Affine2 { a: 0.0, b: -1.0, c: h, d: 1.0, e: 0.0, f: 0.0 },
                Size::new(height, width),
            ),
            180 => (Affine2 { a: -1.0, b: 0.0, c: w, d: 0.0, e: -1.0, f: h }, self.shape.size),
            270 => (
                Affine2 { a: 0.0, b: 1.0, c: 0.0, d: -1.0, e: 0.0, f: w },
                Size::new(height, width),
            ),
            _ => return (*face, self.shape.size),
        };
        let r = &face.rect;
        let corners = [Point::new(r.x0, r.y0), Point::new(r.x1, r.y1)].map(|p| map.apply(p));
        let rect = Rect::around(&corners).unwrap_or(face.rect);
        (Face { rect, ..*face }, size)
    }

    fn subject(&mut self, presence: &Presence, number: u64) -> Subject {
        let who = self.who(&self.tracker.tracks()[presence.index]);
        let (face, size) = self.upright(&presence.face);
        let zones = &self.recipe.recipe().select.zones;
        let in_zones = select::in_zones(&[face], zones, size) == [true];
        let track = self.tracker.track_mut(presence.index);
        let mesh = track.and_then(|t| t.following.at(number)).map(Ok);
        let (face, cover, number) = (presence.face, presence.cover, presence.track);
        Subject { face, cover, in_zones, mesh, who, number }
    }

    fn decide<'a>(&'a self, tools: &Tools<'a, B>, subjects: &[Subject]) -> Vec<Decision<'a, B>> {
        let turned: Vec<(Face, Size)> = subjects.iter().map(|s| self.upright(&s.face)).collect();
        let faces: Vec<Face> = turned.iter().map(|t| t.0).collect();
        let size = turned.first().map_or(self.shape.size, |t| t.1);
        pipeline::decide_for(&self.recipe, tools.policy, subjects, &faces, size, tools.clock)
    }

    /// True when the face of a track is to be made anew, or masked by its landmarks.
    pub(super) fn needs_mesh(&self, presence: &Presence) -> bool {
        let recipe = self.recipe.recipe();
        if recipe.mask.kinds.contains(&MaskKind::Area) || recipe.rules.is_empty() {
            return true;
        }
        let found = self.tracker.tracks()[presence.index].votes.who(&self.gallery);
        let known = found.as_ref().and_then(Match::known);
        let rule = known.and_then(|who| recipe.rules.iter().find(|r| r.who == *who));
        rule.map_or(&recipe.action, |r| &r.action).makes_a_face() || recipe.others.makes_a_face()
    }

    fn faces(
        &mut self,
        tools: &mut Tools<'_, B>,
        frame: &mut Frame,
        present: &[Presence],
        report: &mut FrameReport,
    ) -> Result<()> {
        if present.is_empty() {
            return Ok(());
        }
        let number = frame.number;
        let mut subjects: Vec<Subject> = Vec::with_capacity(present.len());
        for presence in present {
            let subject = self.subject(presence, number);
            subjects.push(subject);
        }
        let mut canvas = std::mem::replace(&mut self.canvas, super::Canvas::new(self.shape.size));
        let done = self.work(tools, frame, present, &mut subjects, report, &mut canvas);
        self.canvas = canvas;
        done
    }

    fn work(
        &self,
        tools: &mut Tools<'_, B>,
        frame: &mut Frame,
        present: &[Presence],
        subjects: &mut Vec<Subject>,
        report: &mut FrameReport,
        canvas: &mut super::Canvas<B>,
    ) -> Result<()> {
        let backend = Arc::clone(tools.models.backend());
        let mut meter = Meter::new(tools.clock);
        let size = self.shape.size;
        let (policy, overlay, clock) = (tools.policy, tools.overlay, tools.clock);
        let view = Tools { models: &mut *tools.models, policy, overlay, clock };
        let decisions = self.decide(&view, subjects);
        for ((subject, decision), presence) in subjects.iter_mut().zip(&decisions).zip(present) {
            shape(subject, decision, presence);
        }
        let scale = self.recipe.recipe().mask.scale;
        let whole = overlay.is_some() || self.recipe.wants_person();
        let altered = |(s, d): (&Subject, &Decision<'_, B>)| {
            (!matches!(d.deed, Deed::Pass)).then(|| reach(s, scale, size)).flatten()
        };
        if decisions.iter().any(|d| !matches!(d.deed, Deed::Pass)) {
            if whole {
                report.regions.push(Roi::whole(size));
            } else {
                report.regions.extend(subjects.iter().zip(&decisions).filter_map(altered));
            }
        }
        let read = subjects.iter().filter_map(|s| s.face.rect.scaled(READ).pixels(size));
        let parts = report.regions.iter().copied().chain(read);
        let picture = canvas.lay(&backend, &frame.image, parts)?;
        let Some(mut passed) = self.sight.proof(picture) else {
            return Err(Error::Clip { detail: "the content gate gave no verdict".to_owned() });
        };
        let mut work = Work {
            models: view.models,
            backend: &backend,
            recipe: &self.recipe,
            overlay,
            subjects,
            decisions: &decisions,
            outcomes: Vec::new(),
            person: None,
        };
        report.altered = work.carry_out(&mut passed, &mut meter)?;
        self.count(meter.inference());
        let outcomes = work.outcomes;
        canvas.write(&backend, passed.into_inner(), &mut frame.image, &report.regions)?;
        for ((subject, outcome), presence) in subjects.iter().zip(outcomes).zip(present) {
            report.faces.push(traced(subject, outcome, presence));
        }
        Ok(())
    }
}

/// Chooses what a face is altered by: its mesh when it is made anew, its whole cover when it is
/// hidden.
fn shape<B: Backend>(subject: &mut Subject, decision: &Decision<'_, B>, presence: &Presence) {
    if makes_a_face(&decision.deed) {
        if let Some(Ok(mesh)) = &subject.mesh {
            subject.face = Face { rect: mesh.rect(), landmarks: mesh.five(), ..subject.face };
        }
        return;
    }
    // The oval of a box that is wider than high would not reach its sides.
    let mut rect = presence.cover;
    let (w, h) = (rect.width(), rect.height());
    if w > h {
        rect.y0 -= (w - h) / 2.0;
        rect.y1 += (w - h) / 2.0;
    }
    subject.face.rect = rect;
    subject.cover = rect;
}

/// Pixels that an alteration may touch.
fn reach(subject: &Subject, scale: f32, size: Size) -> Option<Roi> {
    let scale = if scale.is_finite() { scale.clamp(1.3, 4.0) } else { 4.0 };
    let cover = subject.cover.scaled(1.4);
    let mut points = vec![Point::new(cover.x0, cover.y0), Point::new(cover.x1, cover.y1)];
    match Place::of(&subject.face, size) {
        Ok(place) => points.extend(place.corners(scale + 0.1, 0.4 * place.half.0 + 2.0)),
        Err(_) => return Some(Roi::whole(size)),
    }
    if let Some(Ok(mesh)) = &subject.mesh {
        let rect = mesh.rect().scaled(scale.max(1.6));
        points.extend([Point::new(rect.x0, rect.y0), Point::new(rect.x1, rect.y1)]);
    }
    Rect::around(&points)?.pixels(size)
}

fn traced(
    subject: &Subject,
    (done, reason): (String, Option<String>),
    presence: &Presence,
) -> TrackedFace {
    let face = match &subject.mesh {
        Some(Ok(mesh)) => Face { landmarks: mesh.five(), ..presence.face },
        _ => presence.face,
    };
    let identity = match &subject.who {
        Who::Seen(Match::Known(identity, cosine)) => Some((identity.clone(), *cosine)),
        _ => None,
    };
    TrackedFace {
        track: subject.number,
        rect: face.rect,
        landmarks: face.landmarks,
        score: face.score,
        identity,
        done: done.into(),
        reason: reason.map(Into::into),
    }
}

/// Nothing of the frame is shown.
fn cover_whole(frame: &mut Frame, report: &mut FrameReport, why: &Arc<str>, size: Size) {
    frame.image.blacken();
    report.altered = Altered::Masked;
    report.covered = Some(Arc::clone(why));
    report.regions.clear();
    report.regions.push(Roi::whole(size));
    for face in &mut report.faces {
        face.done = "solid".into();
        face.reason = Some(Arc::clone(why));
    }
}
