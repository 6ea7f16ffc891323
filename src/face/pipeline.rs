//! Runs the stages over one picture; any doubt covers the face or withholds the picture.

use std::sync::Arc;

use mien_base::clock::Clock;
use mien_base::model::Role;
use mien_base::recipe::{Action, Anonymise, Detect, Mark};
use mien_base::report::PictureReport;
use mien_engine::backend::{Backend, Cover};
use mien_pixels::geometry::{Rect, Size};
use mien_pixels::view::{Grey, Rgb};

use crate::alteration::{Notes, Subject, Work, find_mesh, list, of_face};
use crate::anonymise::Overlay;
use crate::decision::{self, Decision, Who};
use crate::gallery::{self, Gallery};
use crate::gate::Passed;
use crate::mark::{self, Altered, Marked};
use crate::meter::Meter;
use crate::models::Models;
use crate::policy::Policy;
use crate::recipe::{self, Checked};
use crate::select;
use crate::subject::Face;
use crate::{Error, Result};

/// Least score of a face that `detect` lists, where none is given.
const SCORE_LISTED: f32 = 0.5;
/// Width of a drawn box in pixels, and its colour.
const LINE: f32 = 3.0;
const LINE_COLOUR: [u8; 3] = [255, 64, 64];

/// Alters one picture as the recipe asks and the policy permits, and marks it.
///
/// A face that can't be altered as decided is covered, with the reason in the report.
///
/// # Errors
/// When the gate refuses, a model that is needed is missing, the detector fails, or the backend
/// fails in the middle of a change: the picture is withheld.
pub fn process<B: Backend>(
    models: &mut Models<B>,
    policy: &Policy<B>,
    recipe: &Checked,
    picture: Rgb,
    overlay: Option<&Overlay<B>>,
    clock: &dyn Clock,
) -> Result<(Marked<B>, PictureReport)> {
    let backend = Arc::clone(models.backend());
    let mut meter = Meter::new(clock);
    let gallery = ready(models, policy, recipe, overlay.is_some())?;
    let (mut passed, size) = admit(models, &backend, picture, &mut meter)?;
    let options = recipe.options();
    let detector = models.detector(&recipe.recipe().detect.model)?;
    let faces = meter.stage("detect", |m| detector.detect(&backend, passed.get(), &options, m))?;

    let zones = &recipe.recipe().select.zones;
    let subject = |(number, face): (usize, Face)| {
        let in_zones = select::is_in_zones(&face, zones, size);
        let (cover, number) = (face.rect, number as u32);
        Subject { face, cover, in_zones, mesh: None, who: Who::Unasked, number }
    };
    let mut subjects: Vec<Subject> = faces.into_iter().enumerate().map(subject).collect();
    if recipe.recognises() {
        for subject in subjects.iter_mut().filter(|s| s.in_zones) {
            recognise(models, &backend, passed.get(), subject, &gallery, &mut meter)?;
        }
    }
    let decisions = decide(recipe, policy, &subjects, size, clock);
    let mut notes = Notes::default();
    let mut work = Work {
        models,
        backend: &backend,
        recipe,
        overlay,
        subjects: &mut subjects,
        decisions: &decisions,
        notes: &mut notes,
        person: None,
    };
    let altered = work.carry_out(&mut passed, &mut meter)?;
    let faces = subjects.iter().zip(&notes.outcomes).map(|(s, o)| s.report(o)).collect();

    let mark = &recipe.recipe().mark;
    let marked = meter
        .stage("mark", |_| mark::apply(&*backend, passed.into_inner(), altered, mark, clock))?;
    let report = PictureReport {
        width: size.width,
        height: size.height,
        format: String::new(),
        faces,
        marks: Some(marked.report().clone()),
        stages: meter.into_stages(),
    };
    Ok((marked, report))
}

/// Finds faces and alters nothing. With a `draw`, the picture comes back with the boxes drawn in,
/// through the gate and marked like any other that leaves.
///
/// # Errors
/// As `process`.
pub fn detect<B: Backend>(
    models: &mut Models<B>,
    how: &Detect,
    picture: Rgb,
    draw: Option<&Mark>,
    clock: &dyn Clock,
) -> Result<(Option<Marked<B>>, PictureReport)> {
    recipe::check_detect(how)?;
    let backend = Arc::clone(models.backend());
    let mut meter = Meter::new(clock);
    let (mut passed, size) = admit(models, &backend, picture, &mut meter)?;
    let options = recipe::options(how, SCORE_LISTED);
    let detector = models.detector(&how.model)?;
    let faces = meter.stage("detect", |m| detector.detect(&backend, passed.get(), &options, m))?;
    let listed = faces.iter().map(|f| list(f, None, "none".to_owned(), None)).collect();
    let marked = match draw {
        None => None,
        Some(mark) => {
            for face in &faces {
                frame(&*backend, passed.get_mut(), &face.rect, size)?;
            }
            let picture = passed.into_inner();
            Some(meter.stage("mark", |_| {
                mark::apply(&*backend, picture, Altered::Nothing, mark, clock)
            })?)
        }
    };
    let report = PictureReport {
        width: size.width,
        height: size.height,
        format: String::new(),
        faces: listed,
        marks: marked.as_ref().map(|m| m.report().clone()),
        stages: meter.into_stages(),
    };
    Ok((marked, report))
}

/// Everything that the recipe needs is there, before a pixel is looked at.
pub(crate) fn ready<B: Backend>(
    models: &Models<B>,
    policy: &Policy<B>,
    recipe: &Checked,
    has_overlay: bool,
) -> Result<Gallery> {
    let asked = recipe.recipe();
    let needs = |role: Role, needed: bool| {
        if needed && !models.has(role) { Err(Error::NoModel { role }) } else { Ok(()) }
    };
    needs(Role::Gate, true)?;
    needs(Role::Embedder, recipe.recognises())?;
    needs(Role::Landmarks, recipe.wants_meshes())?;
    needs(Role::Segmenter, recipe.wants_person())?;
    let has_image = recipe.actions().any(|a| matches!(a, Action::Anonymise(Anonymise::Image)));
    if has_image && !has_overlay {
        let fault = "`image` needs the picture that is laid over faces".to_owned();
        return Err(Error::Recipe { faults: vec![fault] });
    }
    for action in recipe.actions() {
        if let Action::Swap(swap) = action
            && let Some(model) = &swap.model
        {
            models.has_generator(model)?;
        }
    }
    // A rule about somebody who can't be recognised would never hold, and so protect nobody.
    let Some(embedder) = models.embedder.as_ref().filter(|_| recipe.recognises()) else {
        return Ok(Gallery::default());
    };
    let gallery = policy.gallery(&embedder.space());
    let named = asked.rules.iter().map(|r| &r.who).chain(&asked.select.reference);
    for identity in named {
        if !gallery.holds(identity) {
            let detail = match policy.source(identity) {
                Some(_) => "it was enrolled with another embedder, or with none".to_owned(),
                None => "enrol it with `mien source enrol`".to_owned(),
            };
            return Err(Error::Unknown { identity: identity.clone(), detail });
        }
    }
    Ok(gallery)
}

/// Takes the picture and shows it to the gate.
fn admit<B: Backend>(
    models: &mut Models<B>,
    backend: &B,
    picture: Rgb,
    meter: &mut Meter<'_>,
) -> Result<(Passed<B::Picture>, Size)> {
    let size = picture.size();
    if size.pixels() == 0 {
        return Err(Error::Empty);
    }
    let gate = models.gate.as_mut().ok_or(Error::NoModel { role: Role::Gate })?;
    let picture = backend.adopt(picture).map_err(Error::engine("adopt"))?;
    let passed = meter.stage("gate", |m| gate.inspect(backend, picture, m))?;
    Ok((passed, size))
}

fn recognise<B: Backend>(
    models: &mut Models<B>,
    backend: &B,
    picture: &B::Picture,
    subject: &mut Subject,
    gallery: &Gallery,
    meter: &mut Meter<'_>,
) -> Result<()> {
    let five = if models.landmarks.is_some() {
        find_mesh(models, backend, picture, subject, meter)?;
        match &subject.mesh {
            Some(Ok(mesh)) => mesh.five(),
            Some(Err(why)) => {
                subject.who = Who::Failed(why.clone());
                return Ok(());
            }
            None => subject.face.landmarks,
        }
    } else {
        subject.face.landmarks
    };
    let embedder = models.embedder.as_mut().ok_or(Error::NoModel { role: Role::Embedder })?;
    let found = meter.stage("embed", |m| embedder.embed(backend, picture, &five, m));
    subject.who = match of_face(found)? {
        Ok(embedding) => {
            Who::Seen(gallery.recognise(&embedding, gallery::least(subject.face.side())))
        }
        Err(why) => Who::Failed(why),
    };
    Ok(())
}

fn decide<'a, B: Backend>(
    recipe: &'a Checked,
    policy: &'a Policy<B>,
    subjects: &[Subject],
    size: Size,
    clock: &dyn Clock,
) -> Vec<Decision<'a, B>> {
    let mut decisions = Vec::new();
    let upright = |s: &Subject| s.face;
    decide_for(recipe, policy, subjects, (upright, size), clock, &mut decisions);
    decisions
}

/// What becomes of each face, into a list. `upright` gives a face in the upright picture, of this
/// size.
pub(crate) fn decide_for<'a, B: Backend>(
    recipe: &'a Checked,
    policy: &'a Policy<B>,
    subjects: &[Subject],
    (upright, size): (impl Fn(&Subject) -> Face, Size),
    clock: &dyn Clock,
    decisions: &mut Vec<Decision<'a, B>>,
) {
    let select = &recipe.recipe().select;
    let (face, who) = (|i: usize| upright(&subjects[i]), |i: usize| subjects[i].identity());
    let decide = |(i, s): (usize, &Subject)| {
        let left_out = select::leaves_out(i, subjects.len(), face, who, select, size);
        decision::decide(recipe, policy, &s.who, s.in_zones, left_out, clock)
    };
    decisions.extend(subjects.iter().enumerate().map(decide));
}

/// Draws a box.
fn frame<B: Backend>(backend: &B, picture: &mut B::Picture, rect: &Rect, size: Size) -> Result<()> {
    let (Rect { x0, y0, x1, y1 }, w) = (*rect, LINE);
    let edges = [
        Rect::new(x0, y0, x1, y0 + w),
        Rect::new(x0, y1 - w, x1, y1),
        Rect::new(x0, y0, x0 + w, y1),
        Rect::new(x1 - w, y0, x1, y1),
    ];
    for roi in edges.iter().filter_map(|e| e.pixels(size)) {
        let alpha =
            backend.adopt_alpha(Grey::filled(roi.size(), [255])).map_err(Error::engine("draw"))?;
        backend
            .cover(picture, roi, &alpha, &Cover::Solid { colour: LINE_COLOUR })
            .map_err(Error::engine("draw"))?;
    }
    Ok(())
}
