//! What is found out about a frame when it comes: scene, gate, faces, who they are, their meshes.

use std::sync::Arc;
use std::time::Duration;

use mien_engine::backend::{Backend, Layout, Normalise};
use mien_pixels::geometry::{Roi, Size};

use super::{ClipRun, Frame, Slot, Tools};
use crate::alteration::of_face;
use crate::detect::{Detector, Options};
use crate::gallery::Gallery;
use crate::gate::Passed;
use crate::meter::Meter;
use crate::models::Models;
use crate::recipe::Checked;
use crate::subject::{Embedding, Face, Mesh};
use crate::track::smooth::{self, PATCH, Pose};
use crate::track::votes::{ENOUGH, Votes};
use crate::track::{Asks, Presence, Track};
use crate::{Error, Result};

/// Time after which the gate looks again.
const GATE: Duration = Duration::from_secs(1);
/// Frames after which a face votes again.
const VOTE: u64 = 30;
/// Frames after which an empty scene is looked at from all sides again.
const TURNED: u64 = 32;
/// How much of a face's surroundings its crops may read.
pub(super) const READ: f32 = 2.6;
/// A mesh is followed where it lies within this share of the face's size from the face.
const FOLLOWED: f32 = 0.15;
const PLAIN: Normalise =
    Normalise { mean: [0.0; 3], scale: [1.0; 3], bgr: false, layout: Layout::Nchw };
const QUARTERS: [u16; 4] = [0, 90, 180, 270];

/// How the detector looks, and what the gate said.
#[derive(Debug)]
pub(super) struct Sight {
    options: Options,
    /// The recipe says how often and from where; otherwise we do.
    fixed: bool,
    /// Frame of the last look from all sides.
    turned: Option<u64>,
    pub(super) gate: Option<Verdict>,
}

/// What the gate said and when.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) passed: Passed<()>,
    pub(super) at: Duration,
}

impl Sight {
    pub(super) fn new(recipe: &Checked, rotation: u16) -> Self {
        let mut options = recipe.options();
        let fixed = !options.angles.is_empty();
        if fixed {
            options.angles.iter_mut().for_each(|a| *a = (*a + rotation) % 360);
        } else {
            options.angles.push(rotation);
        }
        Self { options, fixed, turned: None, gate: None }
    }

    /// The angle from which faces were found last.
    pub(super) fn angle(&self) -> u16 {
        self.options.angles.first().copied().unwrap_or(0)
    }

    /// Goes on from another run's angle.
    pub(super) fn rest(&mut self, angle: u16) {
        if !self.fixed {
            self.options.angles.clear();
            self.options.angles.push(angle % 360);
        }
        self.turned = None;
        self.gate = None;
    }

    pub(super) fn proof<T>(&self, inner: T) -> Option<Passed<T>> {
        self.gate.as_ref().map(|v| v.passed.of_scene(inner))
    }

    /// Faces of a frame. When none is found where some were, the frame is turned.
    pub(super) fn faces<B: Backend>(
        &mut self,
        detector: &mut Detector<B>,
        backend: &B,
        picture: &B::Picture,
        frame: u64,
        fell: bool,
        meter: &mut Meter<'_>,
    ) -> Result<Vec<Face>> {
        let faces = detector.detect(backend, picture, &self.options, meter)?;
        let due = self.turned.is_none_or(|t| fell || frame >= t + TURNED);
        if self.fixed || !faces.is_empty() || !due {
            return Ok(faces);
        }
        self.turned = Some(frame);
        let first = self.angle();
        let mut found = Vec::new();
        for angle in QUARTERS.into_iter().filter(|a| *a != first) {
            self.options.angles[0] = angle;
            found = detector.detect(backend, picture, &self.options, meter)?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        self.options.angles[0] = first;
        Ok(found)
    }
}

/// The embedding of a face; the inner error is of this face alone.
fn describe<B: Backend>(
    models: &mut Models<B>,
    backend: &B,
    picture: &B::Picture,
    face: &Face,
    meter: &mut Meter<'_>,
) -> Result<std::result::Result<Embedding, String>> {
    let mut five = face.landmarks;
    if let Some(landmarks) = models.landmarks.as_mut() {
        match of_face(meter.stage("landmarks", |m| landmarks.find(backend, picture, face, m)))? {
            Ok(mesh) => five = mesh.five(),
            Err(why) => return Ok(Err(why)),
        }
    }
    let Some(embedder) = models.embedder.as_mut() else {
        return Ok(Err("there is no embedder".to_owned()));
    };
    of_face(meter.stage("embed", |m| embedder.embed(backend, picture, &five, m)))
}

/// True when a track that was seen in this frame should say who it is.
fn votes_now(votes: &Votes, frame: u64, again: bool) -> bool {
    let since = frame.saturating_sub(votes.last());
    votes.count() < ENOUGH || again || since >= VOTE * u64::from(1 + votes.count() / 6)
}

impl<B: Backend> ClipRun<B> {
    /// Takes a frame in and finds out what must be known of it at once.
    pub(super) fn see(
        &mut self,
        tools: &mut Tools<'_, B>,
        frame: Frame,
        last: bool,
        meter: &mut Meter<'_>,
    ) -> Result<Slot> {
        let number = frame.number;
        let asks = Asks { doubt: self.tracker.doubts(), last };
        let known = self.tracker.known(number);
        let glance = self.watch.glance(number, frame.image.y(), known, asks);
        if glance.scene {
            self.tracker.cut(number);
            self.sight.turned = None;
        }
        let scene = glance.scene;
        let mut slot = Slot { frame, detected: false, scene, ungated: None, unseen: None };
        let fresh = |v: &Verdict| slot.frame.at < v.at.saturating_add(GATE) && !glance.scene;
        if !self.sight.gate.as_ref().is_some_and(fresh) {
            self.inspect(tools, &mut slot, meter)?;
        }
        if glance.look {
            self.look(tools, &mut slot, meter)?;
        } else if glance.still {
            self.tracker.stand(number);
        }
        Ok(slot)
    }

    /// Shows the frame to the gate. Without a verdict the frame is covered whole, and the next is
    /// shown.
    fn inspect(
        &mut self,
        tools: &mut Tools<'_, B>,
        slot: &mut Slot,
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        self.sight.gate = None;
        let backend = Arc::clone(tools.models.backend());
        let gate = tools.models.gate.as_mut();
        let gate = gate.ok_or(Error::NoModel { role: mien_base::model::Role::Gate })?;
        let whole = [Roi::whole(self.shape.size)];
        let picture = self.canvas.lay(&backend, &slot.frame.image, whole.into_iter())?;
        match meter.stage("gate", |m| gate.inspect(&*backend, picture, m)) {
            Ok(passed) => {
                let (picture, passed) = passed.into_parts();
                self.canvas.put(picture);
                self.sight.gate = Some(Verdict { passed, at: slot.frame.at });
                Ok(())
            }
            Err(error @ Error::Refused { .. }) => Err(error),
            Err(error) => {
                slot.ungated =
                    Some(format!("the content gate gave no verdict: {}", error.reason()).into());
                Ok(())
            }
        }
    }

    /// Looks for faces, binds them to tracks, and lets them say who they are.
    pub(super) fn look(
        &mut self,
        tools: &mut Tools<'_, B>,
        slot: &mut Slot,
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        let number = slot.frame.number;
        let backend = Arc::clone(tools.models.backend());
        let whole = [Roi::whole(self.shape.size)];
        let picture = self.canvas.lay(&backend, &slot.frame.image, whole.into_iter())?;
        let detector = tools.models.detector(&self.recipe.recipe().detect.model)?;
        let fell = self.tracker.known(number).next().is_some();
        let sight = &mut self.sight;
        let found =
            meter.stage("detect", |m| sight.faces(detector, &backend, &picture, number, fell, m));
        slot.detected = true;
        match found {
            Ok(faces) => {
                self.watch.looked(number);
                self.bind(tools, &backend, &picture, number, &faces, meter)?;
            }
            Err(error) => {
                self.tracker.fail(number);
                if self.tracker.unseen(number).is_none() {
                    slot.unseen = Some(format!("the detector failed: {}", error.reason()).into());
                }
            }
        }
        self.canvas.put(picture);
        Ok(())
    }

    pub(super) fn bind(
        &mut self,
        tools: &mut Tools<'_, B>,
        backend: &B,
        picture: &B::Picture,
        number: u64,
        faces: &[Face],
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        let recognises = self.recipe.recognises();
        let mut known: Vec<Option<std::result::Result<Embedding, String>>> = Vec::new();
        known.resize_with(faces.len(), || None);
        let mut failed = Ok(());
        let models = &mut *tools.models;
        let likeness = |track: &Track, face: usize| -> Option<f32> {
            if !recognises || track.votes.count() == 0 || failed.is_err() {
                return None;
            }
            if known[face].is_none() {
                match describe(models, backend, picture, &faces[face], meter) {
                    Ok(found) => known[face] = Some(found),
                    Err(error) => failed = Err(error),
                }
            }
            track.votes.cosine(known[face].as_ref()?.as_ref().ok()?)
        };
        self.tracker.look(number, faces, likeness);
        failed?;
        if !recognises {
            return Ok(());
        }
        for (i, face) in faces.iter().enumerate() {
            let Some(index) = self.tracker.taken_by(number, face) else { continue };
            let Some(track) = self.tracker.track_mut(index) else { continue };
            if known[i].is_none() && !votes_now(&track.votes, number, false) {
                continue;
            }
            let found = match known[i].take() {
                Some(found) => found,
                None => describe(tools.models, backend, picture, face, meter)?,
            };
            vote(&mut track.votes, number, found, face, &self.gallery);
        }
        Ok(())
    }

    /// Finds the meshes of a frame in the window.
    pub(super) fn mesh(
        &mut self,
        tools: &mut Tools<'_, B>,
        number: u64,
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        let Some(first) = self.waiting.front().map(|s| s.frame.number) else { return Ok(()) };
        let Some(at) = number.checked_sub(first).map(|n| n as usize) else { return Ok(()) };
        if at >= self.waiting.len() {
            return Ok(());
        }
        let mut present = std::mem::take(&mut self.present);
        self.tracker.presences(number, &mut present);
        present.retain(|p| self.needs_mesh(p));
        let done = self.mesh_all(tools, at, &present, meter);
        self.present = present;
        done
    }

    fn mesh_all(
        &mut self,
        tools: &mut Tools<'_, B>,
        at: usize,
        present: &[Presence],
        meter: &mut Meter<'_>,
    ) -> Result<()> {
        if present.is_empty() {
            return Ok(());
        }
        let backend = Arc::clone(tools.models.backend());
        let size = self.shape.size;
        let Some(slot) = self.waiting.get(at) else { return Ok(()) };
        let number = slot.frame.number;
        let parts = present.iter().filter_map(|p| p.face.rect.scaled(READ).pixels(size));
        let picture = self.canvas.lay(&backend, &slot.frame.image, parts)?;
        for p in present {
            let (Some(landmarks), Some(track)) =
                (tools.models.landmarks.as_mut(), self.tracker.track_mut(p.index))
            else {
                continue;
            };
            let side = p.face.rect.width().max(p.face.rect.height());
            let near =
                |m: &Mesh| m.rect().centre().distance(p.face.rect.centre()) < FOLLOWED * side;
            let before = track.following.before(number).filter(near);
            let found = meter.stage("landmarks", |m| {
                if let Some(before) = &before
                    && let Ok(mesh) = landmarks.follow(&backend, &picture, before, &p.face, m)
                {
                    return Ok(mesh);
                }
                landmarks.find(&backend, &picture, &p.face, m)
            });
            // What failed is tried again, and reported, when the frame is altered.
            let Ok(mesh) = found else { continue };
            let seen = match track.following.view(number) {
                Some(pose) => patch_at(&*backend, &picture, &pose),
                None => Vec::new(),
            };
            track.following.add(number, &mesh, Some(seen.as_slice()).filter(|s| !s.is_empty()));
            if let Some(pose) = track.following.pose() {
                track.following.show(&patch_at(&*backend, &picture, &pose));
            }
        }
        self.canvas.put(picture);
        Ok(())
    }
}

/// The patch of a face, of one channel; empty where a pose lies nowhere.
fn patch_at<B: Backend>(backend: &B, picture: &B::Picture, pose: &Pose) -> Vec<f32> {
    let side = Size::new(PATCH, PATCH);
    let patch = backend
        .crop_batch(picture, &[smooth::patch(pose)], side, &PLAIN)
        .and_then(|t| backend.download(&t));
    let one = (PATCH * PATCH) as usize;
    // Green, of red, green and blue.
    let green = patch.ok().and_then(|t| t.data.get(one..2 * one).map(<[f32]>::to_vec));
    green.unwrap_or_default()
}

fn vote(
    votes: &mut Votes,
    number: u64,
    found: std::result::Result<Embedding, String>,
    face: &Face,
    gallery: &Gallery,
) {
    if let Ok(embedding) = found {
        votes.add(number, &embedding, face.side(), gallery);
    }
}
