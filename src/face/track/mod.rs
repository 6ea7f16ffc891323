//! Follows faces from frame to frame, and says where the detector must look.
//!
//! # When the detector runs
//! Not on every frame. It looks at a frame when
//! - a scene begins, and at the two frames after that (`watch`: a cut is told by a thumbnail of
//!   luma), so that a single miss leaves nobody out;
//! - `CADENCE` frames have passed since the last look;
//! - a block of the thumbnail has changed since the last look outside the regions in which faces
//!   are known: at once where it was quiet, and every fourth frame where it has been changing
//!   for a while, beside such, or where the camera moves (trees behind a car window, hands);
//! - there is doubt: a look failed, or a face that was being followed was not found, then every
//!   frame until it is found again or given up after `HOLD` looks; or a face has just been born;
//! - a segment or the clip ends.
//!
//! Where nothing has stirred at all since the last look, what was found then stands, up to 48
//! frames.
//!
//! # Why no face is missed by it
//! Frames leave a window later than they come. A face that is found is covered backwards over the
//! window, as long as its scene lasts, and two looks leave no gap longer than `CADENCE`: it can be
//! missed only when it comes and goes between two looks, and changes no quiet block while it does.
//! Between two sightings the hull of both is covered. Tests compare this with a look at every
//! frame on real and made clips.
//!
//! # When a face is lost
//! Its region is covered where it is expected, 1.25 times as large with each look that missed it,
//! until it is found (then the gap is filled from both sides) or `HOLD` looks have missed it.

use std::collections::VecDeque;

use mien_pixels::geometry::{Point, Rect, Size};

use crate::subject::{Face, Landmarks5};

pub mod motion;
pub mod assign;
pub mod votes;
pub mod smooth;
pub mod watch;
mod kept;

use assign::Assign;
pub use kept::Kept;
use motion::Motion;
use smooth::Following;
use votes::Votes;
pub use watch::{Asks, CADENCE, Glance, Stir, Watch};

/// Looks without a sighting after which a track is given up.
pub const HOLD: u32 = 15;
/// The same for a face that leaves the picture.
const HOLD_LEFT: u32 = 4;
/// Frames before its first sighting over which a face is covered.
pub const BACK: u64 = 15;
/// Growth with each look that missed a face, and the most of it.
const GROWTH: f32 = 1.25;
const GROWTH_MOST: f32 = 3.0;
const GROWTH_BETWEEN: f32 = 2.0;
/// What every cover has more than its sightings: a detector's own jitter.
const MARGIN: f32 = 1.08;
/// A face of this score is believed at once; another when it is found twice.
const BELIEVED: f32 = 0.5;
/// Changes within this much of a face are its own.
const AROUND: f32 = 1.45;
/// Least visible share of a box; below, the face leaves the picture.
const VISIBLE: f32 = 0.35;
/// Most tracks at a time: a tentative one goes before one that is sure.
const TRACKS: usize = mien_base::limits::FACES;
/// Sightings of a track that a window holds.
const SIGHTINGS: usize = 32;

/// A face in a frame that the detector looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sighting {
    frame: u64,
    face: Face,
}

/// One look of the detector, or a frame that stands for one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Look {
    frame: u64,
    worked: bool,
}

/// How it is known that a face is in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// It was found in this frame,
    Seen,
    /// before it and after it,
    Between,
    /// only before it,
    Ahead,
    /// only after it.
    Behind,
}

/// A track's face in one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Presence {
    /// Index of the track.
    pub index: usize,
    pub track: u32,
    /// Where it stands, as exactly as is known.
    pub face: Face,
    /// What must be covered if it is to be hidden.
    pub cover: Rect,
    pub basis: Basis,
    /// Looks that missed it, up to the nearest sighting.
    pub missed: u32,
}

/// One face through one scene.
#[derive(Debug)]
pub struct Track {
    id: u32,
    /// First frame of its scene.
    scene: u64,
    /// First frame of the next scene, once that has begun.
    until: Option<u64>,
    motion: Motion,
    sightings: VecDeque<Sighting>,
    sure: bool,
    missed: u32,
    /// Who it is.
    pub votes: Votes,
    /// Its meshes.
    pub following: Following,
}

impl Track {
    fn new(frame: u64, face: &Face) -> Self {
        let mut sightings = VecDeque::with_capacity(SIGHTINGS);
        sightings.push_back(Sighting { frame, face: *face });
        Self {
            id: 0,
            scene: 0,
            until: None,
            motion: Motion::new(frame, &face.rect),
            sightings,
            sure: face.score >= BELIEVED,
            missed: 0,
            votes: Votes::default(),
            following: Following::default(),
        }
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// True while its scene lasts and it is not given up.
    fn is_live(&self) -> bool {
        self.until.is_none() && self.missed <= HOLD && (self.sure || self.missed == 0)
    }

    fn expected(&self, frame: u64) -> Rect {
        self.motion.at(frame)
    }

    fn last(&self) -> Option<&Sighting> {
        self.sightings.back()
    }

    /// Pixels a frame at its first sighting, as those soon after say; none when they say too little.
    fn velocity_back(&self) -> Point {
        let none = Point::default();
        let Some(a) = self.sightings.front() else { return none };
        let soon = |s: &&Sighting| s.frame <= a.frame + CADENCE;
        let Some(b) = self.sightings.iter().rev().find(soon) else { return none };
        let frames = b.frame - a.frame;
        if frames < CADENCE / 2 {
            return none;
        }
        let (p, q) = (a.face.rect.centre(), b.face.rect.centre());
        Point::new((q.x - p.x) / frames as f32, (q.y - p.y) / frames as f32)
    }
}

/// All faces of a clip.
#[derive(Debug)]
pub struct Tracker {
    size: Size,
    tracks: Vec<Track>,
    next: u32,
    scene: u64,
    looks: VecDeque<Look>,
    assign: Assign,
    bound: Vec<Option<usize>>,
    live: Vec<usize>,
}

fn hull(a: &Rect, b: &Rect) -> Rect {
    Rect::new(a.x0.min(b.x0), a.y0.min(b.y0), a.x1.max(b.x1), a.y1.max(b.y1))
}

fn between(a: f32, b: f32, t: f32) -> f32 {
    a + (b - a) * t
}

fn moved(face: &Face, rect: Rect) -> Face {
    let (from, to) = (face.rect.centre(), rect.centre());
    let scale = rect.width() / face.rect.width().max(1e-3);
    let place =
        |p: &Point| Point::new(to.x + (p.x - from.x) * scale, to.y + (p.y - from.y) * scale);
    let landmarks = Landmarks5::new(std::array::from_fn(|i| place(&face.landmarks.points()[i])));
    Face { rect, landmarks: landmarks.unwrap_or(face.landmarks), score: face.score }
}

fn interpolated(a: &Face, b: &Face, t: f32) -> Face {
    let (p, q) = (&a.rect, &b.rect);
    let rect = Rect::new(
        between(p.x0, q.x0, t),
        between(p.y0, q.y0, t),
        between(p.x1, q.x1, t),
        between(p.y1, q.y1, t),
    );
    let point = |i: usize| {
        let (p, q) = (a.landmarks.points()[i], b.landmarks.points()[i]);
        Point::new(between(p.x, q.x, t), between(p.y, q.y, t))
    };
    let landmarks = Landmarks5::new(std::array::from_fn(point)).unwrap_or(a.landmarks);
    Face { rect, landmarks, score: if t < 0.5 { a.score } else { b.score } }
}

/// The box halfway between the last sighting up to `before` and the first after `after`, where both
/// are near.
fn around(track: &Track, before: u64, after: u64) -> Option<Rect> {
    let a = track.sightings.iter().rev().find(|s| s.frame <= before)?;
    let b = track.sightings.iter().find(|s| s.frame > after)?;
    let frames = (b.frame - a.frame) as f32;
    let t = (0.5 * (before + 1 + after) as f32 - a.frame as f32) / frames;
    (b.frame - a.frame <= 3 * CADENCE).then(|| interpolated(&a.face, &b.face, t).rect)
}

fn growth(missed: u32, most: f32) -> f32 {
    GROWTH.powi(missed.min(64) as i32).min(most)
}

impl Tracker {
    /// Nobody yet.
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self {
            size,
            tracks: Vec::new(),
            next: 1,
            scene: 0,
            looks: VecDeque::new(),
            assign: Assign::default(),
            bound: Vec::new(),
            live: Vec::new(),
        }
    }

    /// The tracks, by index.
    #[must_use]
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// One of them.
    pub fn track_mut(&mut self, index: usize) -> Option<&mut Track> {
        self.tracks.get_mut(index)
    }

    /// A scene begins with this frame: all tracks end with the one before.
    pub fn cut(&mut self, frame: u64) {
        self.scene = frame;
        self.looks.clear();
        for track in self.tracks.iter_mut().filter(|t| t.until.is_none()) {
            track.until = Some(frame);
        }
    }

    /// Regions in which faces are known to be in a frame, and may do what they like.
    pub fn known(&self, frame: u64) -> impl Iterator<Item = Rect> {
        self.tracks.iter().filter(|t| t.is_live()).filter_map(move |t| {
            let last = t.last()?.face.rect;
            Some(hull(&t.expected(frame), &last).scaled(AROUND))
        })
    }

    /// True when the next frame must be looked at: a face is lost, or a look failed, or a face was
    /// born at the last one.
    #[must_use]
    pub fn doubts(&self) -> bool {
        let Some(last) = self.looks.back() else { return true };
        let lost = |t: &Track| t.is_live() && t.missed > 0 && !self.leaves(t, last.frame);
        let born = |t: &Track| {
            t.is_live()
                && t.sure
                && t.sightings.len() == 1
                && t.last().is_some_and(|s| s.frame == last.frame)
        };
        !last.worked || self.tracks.iter().any(|t| lost(t) || born(t))
    }

    fn leaves(&self, track: &Track, frame: u64) -> bool {
        let rect = track.expected(frame);
        let (w, h) = (self.size.width as f32, self.size.height as f32);
        let inside = Rect::new(
            rect.x0.clamp(0.0, w),
            rect.y0.clamp(0.0, h),
            rect.x1.clamp(0.0, w),
            rect.y1.clamp(0.0, h),
        );
        inside.area() < VISIBLE * rect.area()
    }

    /// What the detector found in a frame. `likeness` gives the cosine of a track (by index) and a
    /// face (by index).
    pub fn look(
        &mut self,
        frame: u64,
        faces: &[Face],
        mut likeness: impl FnMut(&Track, usize) -> Option<f32>,
    ) {
        self.note(frame, true);
        self.live.clear();
        let live = |(i, t): (usize, &Track)| t.is_live().then_some(i);
        self.live.extend(self.tracks.iter().enumerate().filter_map(live));
        let (tracks, live) = (&self.tracks, &self.live);
        let expected = live.iter().map(|&i| {
            let slack = 1.0 + 0.15 * tracks[i].missed.min(8) as f32;
            (tracks[i].expected(frame), slack)
        });
        let likeness = |track: usize, face: usize| likeness(&tracks[live[track]], face);
        self.assign.run(expected, faces, likeness, &mut self.bound);
        for &i in &self.live {
            self.tracks[i].missed += 1;
        }
        for (face, bound) in faces.iter().zip(&self.bound) {
            let Some(bound) = bound else { continue };
            let track = &mut self.tracks[self.live[*bound]];
            track.sure |= face.score >= BELIEVED || !track.sightings.is_empty();
            track.missed = 0;
            track.motion.see(frame, &face.rect);
            track.sightings.push_back(Sighting { frame, face: *face });
        }
        for (i, face) in faces.iter().enumerate() {
            if self.bound[i].is_none() {
                self.bear(frame, face);
            }
        }
    }

    fn bear(&mut self, frame: u64, face: &Face) {
        let mut track = Track::new(frame, face);
        (track.id, track.scene) = (self.next, self.scene);
        self.next += 1;
        self.tracks.push(track);
    }

    /// The index of the track that took a face of the last look.
    #[must_use]
    pub fn taken_by(&self, frame: u64, face: &Face) -> Option<usize> {
        let is_it = |t: &Track| t.last().is_some_and(|s| s.frame == frame && s.face == *face);
        self.tracks.iter().position(is_it)
    }

    /// The detector failed on a frame.
    pub fn fail(&mut self, frame: u64) {
        self.note(frame, false);
        for track in self.tracks.iter_mut().filter(|t| t.is_live()) {
            track.missed += 1;
        }
    }

    /// Nothing stirred since the last look: what was found then stands in this frame.
    pub fn stand(&mut self, frame: u64) {
        self.note(frame, true);
        for track in self.tracks.iter_mut().filter(|t| t.is_live() && t.missed == 0) {
            if let Some(last) = track.sightings.back().copied() {
                track.motion.see(frame, &last.face.rect);
                track.sightings.push_back(Sighting { frame, ..last });
            }
        }
    }

    fn note(&mut self, frame: u64, worked: bool) {
        self.looks.push_back(Look { frame, worked });
    }

    /// Frames since the nearest look that worked, before and after a frame of the running scene.
    #[must_use]
    pub fn unseen(&self, frame: u64) -> Option<u64> {
        let worked = self.looks.iter().filter(|l| l.worked);
        worked.map(|l| l.frame.abs_diff(frame)).min()
    }

    /// Looks in `after..=upto` that missed what was seen at its ends.
    fn missed(&self, after: u64, upto: u64) -> u32 {
        let within = |l: &&Look| l.frame > after && l.frame <= upto;
        self.looks.iter().filter(within).count() as u32
    }

    /// Every face of a frame.
    pub fn presences(&self, frame: u64, out: &mut Vec<Presence>) {
        out.clear();
        for (index, track) in self.tracks.iter().enumerate() {
            let within = frame >= track.scene && track.until.is_none_or(|u| frame < u);
            out.extend(within.then(|| self.presence(index, track, frame)).flatten());
        }
    }

    fn presence(&self, index: usize, track: &Track, frame: u64) -> Option<Presence> {
        let prev = track.sightings.iter().rev().find(|s| s.frame <= frame);
        let next = track.sightings.iter().find(|s| s.frame > frame);
        let made = |face: Face, rect: Rect, basis, missed, grown: f32| {
            let cover = rect.scaled(MARGIN * grown);
            Some(Presence { index, track: track.id, face, cover, basis, missed })
        };
        match (prev, next) {
            (Some(at), _) if at.frame == frame => {
                // A box that came out too small is made good by those around it.
                let rect = frame.checked_sub(1).and_then(|f| around(track, f, frame));
                let rect = rect.unwrap_or(at.face.rect);
                made(at.face, hull(&at.face.rect, &rect), Basis::Seen, 0, 1.0)
            }
            (Some(a), Some(b)) => {
                let t = (frame - a.frame) as f32 / (b.frame - a.frame) as f32;
                let face = interpolated(&a.face, &b.face, t);
                let missed = self.missed(a.frame, frame).min(self.missed(frame, b.frame - 1));
                let ends = hull(&a.face.rect, &b.face.rect);
                let outer = a.frame.checked_sub(1).and_then(|f| around(track, f, b.frame));
                let rect = outer.map_or(ends, |r| hull(&ends, &r));
                made(face, rect, Basis::Between, missed, growth(missed, GROWTH_BETWEEN))
            }
            (Some(a), None) => {
                let missed = self.missed(a.frame, frame);
                let expected = track.motion.at(frame);
                let hold = match (track.sure, self.leaves(track, frame)) {
                    (false, _) => 0,
                    (true, true) => HOLD_LEFT,
                    (true, false) => HOLD,
                };
                if missed > hold {
                    return None;
                }
                let rect = hull(&a.face.rect, &expected);
                let face = moved(&a.face, expected);
                made(face, rect, Basis::Ahead, missed, growth(missed, GROWTH_MOST))
            }
            (None, Some(b)) => {
                let missed = self.missed(frame.saturating_sub(1), b.frame - 1);
                let frames = b.frame - frame;
                if frames > BACK || (!track.sure && missed > 0) {
                    return None;
                }
                let v = track.velocity_back();
                let (dx, dy) = (v.x * frames as f32, v.y * frames as f32);
                let r = &b.face.rect;
                let expected = Rect::new(r.x0 - dx, r.y0 - dy, r.x1 - dx, r.y1 - dy);
                let rect = hull(r, &expected);
                let face = moved(&b.face, expected);
                made(face, rect, Basis::Behind, missed, growth(missed, GROWTH_BETWEEN))
            }
            (None, None) => None,
        }
    }

    /// Lets go of what frames from `first` on no longer need.
    pub fn forget(&mut self, first: u64) {
        while self.looks.len() > 1 && self.looks[1].frame + 2 * u64::from(HOLD) + CADENCE < first {
            self.looks.pop_front();
        }
        for track in &mut self.tracks {
            while track.sightings.get(2).is_some_and(|s| s.frame <= first) {
                track.sightings.pop_front();
            }
            track.following.forget(first);
        }
        let mut i = 0;
        while i < self.tracks.len() {
            let track = &self.tracks[i];
            let ended = track.until.is_some_and(|u| u <= first);
            let lost = !track.is_live()
                && track.last().is_none_or(|s| s.frame < first)
                && self.presence(i, track, first).is_none();
            if ended || lost {
                self.tracks.remove(i);
            } else {
                i += 1;
            }
        }
        if self.tracks.len() > TRACKS {
            self.tracks.retain(|t| t.sure);
        }
    }
}
