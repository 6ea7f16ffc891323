//! What is done to a frame when it leaves: decisions, alterations, the report.

use std::sync::Arc;

use mien_base::recipe::{Anonymise, Mask, MaskKind};
use mien_engine::backend::Backend;
use mien_pixels::geometry::{Affine2, Point, Rect, Roi, Size};

use super::look::READ;
use super::{ClipRun, Frame, FrameReport, Slot, Tools, TrackedFace};
use crate::alteration::{Notes, Outcome, Subject, Work, makes_a_face};
use crate::anonymise;
use crate::decision::{Decision, Deed, Who};
use crate::gallery::Match;
use crate::mark::Altered;
use crate::mask::{Place, Region};
use crate::meter::Meter;
use crate::pipeline;
use crate::select;
use crate::subject::Face;
use crate::track::{HOLD, Presence, Track};
use crate::{Error, Result};

/// Lists of one frame's faces, kept for the next frame.
pub(super) struct Lists<B: Backend> {
    subjects: Vec<Subject>,
    /// Empty between two frames.
    decisions: Vec<Decision<'static, B>>,
    notes: Notes,
}

impl<B: Backend> Default for Lists<B> {
    fn default() -> Self {
        Self { subjects: Vec::new(), decisions: Vec::new(), notes: Notes::default() }
    }
}

/// The same memory without what was in it. (Collecting a vector's own items reuses it.)
fn emptied<'b, B: Backend>(mut list: Vec<Decision<'_, B>>) -> Vec<Decision<'b, B>> {
    list.clear();
    list.into_iter().map(|_| Decision { deed: Deed::Cover, reason: None }).collect()
}

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

    fn upright_size(&self) -> Size {
        let Size { width, height } = self.shape.size;
        match self.shape.rotation {
            90 | 270 => Size::new(height, width),
            _ => self.shape.size,
        }
    }

    /// How frames are turned to stand upright, for zones and orders.
    fn upright(&self, face: &Face) -> Face {
        let Size { width, height } = self.shape.size;
        let (w, h) = (f64::from(width), f64::from(height));
        let map = match self.shape.rotation {
            90 => Affine2 { a: 0.0, b: -1.0, c: h, d: 1.0, e: 0.0, f: 0.0 },
            180 => Affine2 { a: -1.0, b: 0.0, c: w, d: 0.0, e: -1.0, f: h },
            270 => Affine2 { a: 0.0, b: 1.0, c: 0.0, d: -1.0, e: 0.0, f: w },
            _ => return *face,
        };
        let r = &face.rect;
        let corners = [Point::new(r.x0, r.y0), Point::new(r.x1, r.y1)].map(|p| map.apply(p));
        Face { rect: Rect::around(&corners).unwrap_or(face.rect), ..*face }
    }

    fn subject(&mut self, presence: &Presence, number: u64) -> Subject {
        let who = self.who(&self.tracker.tracks()[presence.index]);
        let zones = &self.recipe.recipe().select.zones;
        let in_zones =
            select::is_in_zones(&self.upright(&presence.face), zones, self.upright_size());
        let track = self.tracker.track_mut(presence.index);
        let mesh = track.and_then(|t| t.following.at(number)).map(Ok);
        let (face, cover, number) = (presence.face, presence.cover, presence.track);
        Subject { face, cover, in_zones, mesh, who, number }
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
        let mut lists = self.lists.take().unwrap_or_default();
        for presence in present {
            let subject = self.subject(presence, frame.number);
            lists.subjects.push(subject);
        }
        let mut canvas = std::mem::replace(&mut self.canvas, super::Canvas::new(self.shape.size));
        let done = self.work(tools, frame, present, &mut lists, report, &mut canvas);
        self.canvas = canvas;
        lists.subjects.clear();
        self.lists = Some(lists);
        done
    }

    fn work(
        &self,
        tools: &mut Tools<'_, B>,
        frame: &mut Frame,
        present: &[Presence],
        lists: &mut Lists<B>,
        report: &mut FrameReport,
        canvas: &mut super::Canvas<B>,
    ) -> Result<()> {
        let mut decisions = emptied(std::mem::take(&mut lists.decisions));
        let Lists { subjects, notes, .. } = lists;
        let upright = |s: &Subject| self.upright(&s.face);
        let seen = (upright, self.upright_size());
        let (policy, clock) = (tools.policy, tools.clock);
        pipeline::decide_for(&self.recipe, policy, subjects, seen, clock, &mut decisions);
        let done =
            self.carry_out(tools, frame, (present, subjects, &decisions), notes, report, canvas);
        lists.decisions = emptied(decisions);
        done
    }

    fn carry_out(
        &self,
        tools: &mut Tools<'_, B>,
        frame: &mut Frame,
        (present, subjects, decisions): (&[Presence], &mut [Subject], &[Decision<'_, B>]),
        notes: &mut Notes,
        report: &mut FrameReport,
        canvas: &mut super::Canvas<B>,
    ) -> Result<()> {
        let backend = Arc::clone(tools.models.backend());
        let mut meter = Meter::of_models(tools.clock);
        let (size, overlay) = (self.shape.size, tools.overlay);
        for ((subject, decision), presence) in subjects.iter_mut().zip(decisions).zip(present) {
            shape(subject, decision, presence);
        }
        let mask = &self.recipe.recipe().mask;
        let scale = mask.scale;
        let whole = overlay.is_some() || self.recipe.wants_person();
        let by_mesh = mask.kinds.contains(&MaskKind::Area);
        let altered = |(s, d): (&Subject, &Decision<'_, B>)| match &d.deed {
            Deed::Pass => None,
            Deed::Cover => anonymise::covered(&s.cover, size),
            Deed::Anonymise(how) if !by_mesh && is_cover(how) => hidden::<B>(s, mask, size),
            _ => reach(s, scale, size),
        };
        if decisions.iter().any(|d| !matches!(d.deed, Deed::Pass)) {
            if whole {
                report.regions.push(Roi::whole(size));
            } else {
                report.regions.extend(subjects.iter().zip(decisions).filter_map(altered));
            }
        }
        // Only who is made anew, or masked by landmarks, is read beyond what changes.
        let is_read = |d: &Decision<'_, B>| by_mesh || makes_a_face(&d.deed);
        let read = subjects.iter().zip(decisions).filter(|(_, d)| is_read(d));
        let read = read.filter_map(|(s, _)| s.face.rect.scaled(READ).pixels(size));
        let parts = report.regions.iter().copied().chain(read);
        let picture = canvas.lay(&backend, &frame.image, parts)?;
        let Some(mut passed) = self.sight.proof(picture) else {
            return Err(Error::Clip { detail: "the content gate gave no verdict".to_owned() });
        };
        let mut work = Work {
            models: tools.models,
            backend: &backend,
            recipe: &self.recipe,
            overlay,
            subjects,
            decisions,
            notes,
            person: None,
        };
        report.altered = work.carry_out(&mut passed, &mut meter)?;
        self.count(meter.inference());
        canvas.write(&backend, passed.into_inner(), &mut frame.image, &report.regions)?;
        for ((subject, outcome), presence) in subjects.iter().zip(&notes.outcomes).zip(present) {
            report.faces.push(traced(subject, outcome, presence));
        }
        Ok(())
    }
}

/// Pixels that a cover may touch, also the one that comes when it fails.
fn hidden<B: Backend>(subject: &Subject, mask: &Mask, size: Size) -> Option<Roi> {
    let Ok(place) = Place::of(&subject.face, size) else { return Some(Roi::whole(size)) };
    let mesh = subject.mesh.as_ref().and_then(|mesh| mesh.as_ref().ok());
    let region = Region::<B> { mask, mesh, person: None };
    let (scale, feather) = region.cover_reach(&place);
    let failed = anonymise::covered(&subject.cover, size);
    match (anonymise::reach(&region, &place, scale, feather, size), failed) {
        (Some(a), Some(b)) => Some(around(a, b)),
        (one, other) => one.or(other),
    }
}

/// True for what changes nothing beyond the reach of a cover.
const fn is_cover(how: &Anonymise) -> bool {
    matches!(how, Anonymise::Solid { .. } | Anonymise::Mosaic { .. } | Anonymise::Blur { .. })
}

/// The least region that holds both.
fn around(a: Roi, b: Roi) -> Roi {
    let (x, y) = (a.x.min(b.x), a.y.min(b.y));
    let (right, bottom) =
        ((a.x + a.width).max(b.x + b.width), (a.y + a.height).max(b.y + b.height));
    Roi { x, y, width: right - x, height: bottom - y }
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
    let Ok(place) = Place::of(&subject.face, size) else { return Some(Roi::whole(size)) };
    let rect = match &subject.mesh {
        Some(Ok(mesh)) => mesh.rect().scaled(scale.max(1.6)),
        _ => cover,
    };
    let ends = |r: &Rect| [Point::new(r.x0, r.y0), Point::new(r.x1, r.y1)];
    let ([a, b], [c, d]) = (ends(&cover), ends(&rect));
    let [e, f, g, h] = place.corners(scale + 0.1, 0.4 * place.half.0 + 2.0);
    Rect::around(&[a, b, c, d, e, f, g, h])?.pixels(size)
}

fn traced(subject: &Subject, outcome: &Outcome, presence: &Presence) -> TrackedFace {
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
        done: Arc::clone(&outcome.done),
        reason: outcome.reason.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Landmarks5;
    use mien_engine::cpu::Cpu;
    use mien_pixels::view::Rgb;

    const SIZE: Size = Size::new(240, 200);

    fn subject(turn: f64, at: (f64, f64)) -> Subject {
        let map = Affine2::rotate(turn).then(&Affine2::translate(at.0, at.1));
        let to = |x: f32, y: f32| map.apply(Point::new(x, y));
        let five =
            [to(-14.0, -10.0), to(14.0, -10.0), to(0.0, 5.0), to(-12.0, 17.0), to(12.0, 17.0)];
        let corners = [to(-28.0, -38.0), to(28.0, -38.0), to(28.0, 38.0), to(-28.0, 38.0)];
        let rect = Rect::around(&corners).unwrap();
        let face = Face { rect, score: 0.9, landmarks: Landmarks5::new(five).unwrap() };
        let (cover, who) = (rect.scaled(1.1), Who::Unasked);
        Subject { face, cover, in_zones: true, mesh: None, who, number: 3 }
    }

    #[test]
    fn no_cover_reaches_beyond_the_region_that_is_written_back() {
        let backend = Cpu::new(1);
        let before = Rgb::filled(SIZE, [90, 120, 30]);
        let hows = [
            Anonymise::Solid { colour: [1, 2, 3] },
            Anonymise::Mosaic { cells: 5 },
            Anonymise::Blur { sigma: 0.3 },
        ];
        for kinds in [vec![], vec![MaskKind::Ellipse], vec![MaskKind::Box]] {
            for (scale, blur) in [(1.0, 0.0), (1.3, 0.3), (2.2, 1.0)] {
                let mask = Mask { kinds: kinds.clone(), scale, blur, padding: [0.0; 4] };
                for (turn, at) in
                    [(0.0, (120.0, 100.0)), (0.7, (30.0, 180.0)), (-1.4, (200.0, 60.0))]
                {
                    let subject = subject(turn, at);
                    let roi = hidden::<Cpu>(&subject, &mask, SIZE).unwrap();
                    let region = Region::<Cpu> { mask: &mask, mesh: None, person: None };
                    let mut image = backend.adopt(before.clone()).unwrap();
                    for how in &hows {
                        let face = &subject.face;
                        anonymise::apply(&backend, &mut image, face, how, &region, None, 7)
                            .unwrap();
                    }
                    anonymise::cover_box(&backend, &mut image, &subject.cover).unwrap();
                    let after = backend.release(image).unwrap();
                    let inside = |x, y| {
                        (roi.x..roi.x + roi.width).contains(&x)
                            && (roi.y..roi.y + roi.height).contains(&y)
                    };
                    for (x, y) in
                        (0..SIZE.height).flat_map(|y| (0..SIZE.width).map(move |x| (x, y)))
                    {
                        let same = after.view().pixel(x, y) == before.view().pixel(x, y);
                        assert!(same || inside(x, y), "{kinds:?} {scale} {turn}: {x},{y} {roi:?}");
                    }
                }
            }
        }
    }
}
