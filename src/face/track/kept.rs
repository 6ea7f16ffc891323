//! What a tracker knows at the end of a segment, small enough to be kept beside it.

use serde::{Deserialize, Serialize};

use mien_pixels::geometry::{Point, Rect};

use super::motion::Motion;
use super::smooth::KeptMesh;
use super::votes::Votes;
use super::{Sighting, Track, Tracker};
use crate::subject::{Face, Landmarks5};

/// Bytes of a track beside its votes and its mesh, about.
const PLAIN: usize = 176;
const TRACKS: usize = 512;

/// All tracks that live on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    next: u32,
    scene: u64,
    tracks: Vec<KeptTrack>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct KeptTrack {
    id: u32,
    scene: u64,
    motion: Motion,
    frame: u64,
    rect: [f32; 4],
    score: f32,
    points: [[f32; 2]; 5],
    sure: bool,
    missed: u32,
    votes: Votes,
    mesh: Option<KeptMesh>,
}

impl KeptTrack {
    fn of(track: &Track) -> Option<Self> {
        let Sighting { frame, face } = *track.last()?;
        let r = face.rect;
        Some(Self {
            id: track.id,
            scene: track.scene,
            motion: track.motion,
            frame,
            rect: [r.x0, r.y0, r.x1, r.y1],
            score: face.score,
            points: face.landmarks.to_report(),
            sure: track.sure,
            missed: track.missed,
            votes: track.votes.clone(),
            mesh: track.following.kept(),
        })
    }

    fn track(self) -> Option<Track> {
        let points = self.points.map(|[x, y]| Point::new(x, y));
        let [x0, y0, x1, y1] = self.rect;
        if !self.rect.iter().all(|v| v.is_finite()) {
            return None;
        }
        let face = Face {
            rect: Rect::new(x0, y0, x1, y1),
            score: self.score,
            landmarks: Landmarks5::new(points)?,
        };
        let mut track = Track::new(self.frame, &face);
        (track.id, track.scene, track.motion) = (self.id, self.scene, self.motion);
        (track.sure, track.missed, track.votes) = (self.sure, self.missed, self.votes);
        track.following.keep(self.mesh);
        Some(track)
    }
}

impl Tracker {
    /// A segment has left. What does not fit into `room` bytes of a state is let go of, so that it
    /// makes no difference whether the clip goes on or is resumed: meshes first, then votes, of the
    /// smallest faces first.
    pub fn rest(&mut self, room: usize) {
        self.looks.clear();
        self.tracks.retain(Track::is_live);
        self.tracks.sort_by(|a, b| {
            let area = |t: &Track| t.last().map_or(0.0, |s| s.face.rect.area());
            area(b).total_cmp(&area(a)).then(a.id.cmp(&b.id))
        });
        self.tracks.truncate(TRACKS);
        let mut left = room.saturating_sub(self.tracks.len() * PLAIN);
        for track in &mut self.tracks {
            let votes = track.votes.weight();
            if votes <= left {
                left -= votes;
            } else {
                track.votes = Votes::default();
            }
        }
        for track in &mut self.tracks {
            let kept = track.following.kept().filter(|k| k.weight() <= left);
            left -= kept.as_ref().map_or(0, KeptMesh::weight);
            track.following.keep(kept);
            let last = track.sightings.len().saturating_sub(1);
            track.sightings.drain(..last);
        }
        self.tracks.sort_by_key(|t| t.id);
    }

    /// What `rest` has left.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let tracks = self.tracks.iter().filter_map(KeptTrack::of).collect();
        Kept { next: self.next, scene: self.scene, tracks }
    }

    /// Goes on from `kept`; false when it can't be.
    #[must_use]
    pub fn keep(&mut self, kept: Kept) -> bool {
        let count = kept.tracks.len();
        let tracks: Vec<Track> = kept.tracks.into_iter().filter_map(KeptTrack::track).collect();
        if tracks.len() != count || count > TRACKS {
            return false;
        }
        (self.next, self.scene, self.tracks) = (kept.next, kept.scene, tracks);
        self.looks.clear();
        true
    }
}
