//! Runs the stages over one picture; any doubt covers the face or withholds the picture.

use std::sync::Arc;

use mien_base::clock::Clock;
use mien_base::id::IdentityId;
use mien_base::model::Role;
use mien_base::recipe::{Action, Anonymise, Detect, Mark, MaskKind};
use mien_base::report::{FaceReport, PictureReport};
use mien_engine::backend::{Backend, Cover};
use mien_pixels::geometry::{Rect, Size};
use mien_pixels::view::{Grey, Rgb};

use crate::anonymise::{self, Overlay};
use crate::decision::{self, Decision, Deed, Who};
use crate::gallery::{self, Gallery, Match};
use crate::gate::Passed;
use crate::mark::{self, Altered, Marked};
use crate::mask::Region;
use crate::meter::Meter;
use crate::models::Models;
use crate::policy::Policy;
use crate::recipe::{self, Checked};
use crate::segment::PersonMap;
use crate::select;
use crate::subject::{Face, Mesh};
use crate::swap;
use crate::swap::generator::Wish;
use crate::{Error, Result};

/// Least score of a face that `detect` lists, where none is given.
const SCORE_LISTED: f32 = 0.5;
/// Width of a drawn box in pixels, and its colour.
const LINE: f32 = 3.0;
const LINE_COLOUR: [u8; 3] = [255, 64, 64];

/// A face on its way through the stages.
struct Subject {
    face: Face,
    in_zones: bool,
    /// The mesh, once it was looked for, or why there is none.
    mesh: Option<std::result::Result<Mesh, String>>,
    who: Who,
}

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

    let zones = select::in_zones(&faces, &recipe.recipe().select.zones, size);
    let subject = |(face, in_zones)| Subject { face, in_zones, mesh: None, who: Who::Unasked };
    let mut subjects: Vec<Subject> = faces.into_iter().zip(zones).map(subject).collect();
    if recipe.recognises() {
        for subject in subjects.iter_mut().filter(|s| s.in_zones) {
            recognise(models, &backend, passed.get(), subject, &gallery, &mut meter)?;
        }
    }
    let decisions = decide(recipe, policy, &subjects, size, clock);
    let mut work = Work {
        models,
        backend: &backend,
        recipe,
        overlay,
        subjects: &mut subjects,
        decisions: &decisions,
        outcomes: Vec::new(),
        person: None,
    };
    let altered = work.carry_out(&mut passed, &mut meter)?;
    let outcomes = work.outcomes;
    let faces = subjects.iter().zip(outcomes).map(|(s, outcome)| s.report(outcome)).collect();

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
fn ready<B: Backend>(
    models: &Models<B>,
    policy: &Policy<B>,
    recipe: &Checked,
    has_overlay: bool,
) -> Result<Gallery> {
    let asked = recipe.recipe();
    let needs = |role: Role, needed: bool| {
        if needed && !models.has(role) { Err(Error::NoModel { role }) } else { Ok(()) }
    };
    let meshed = asked.mask.kinds.contains(&MaskKind::Area)
        || recipe
            .actions()
            .any(|a| matches!(a, Action::Swap(_) | Action::Anonymise(Anonymise::Synthetic { .. })));
    needs(Role::Gate, true)?;
    needs(Role::Embedder, recipe.recognises())?;
    needs(Role::Landmarks, meshed)?;
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

/// Splits what concerns one face (it gets covered, with the reason) from what puts the whole
/// picture in doubt.
fn of_face<T>(result: Result<T>) -> Result<std::result::Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.is_of_face() => Ok(Err(error.reason())),
        Err(error) => Err(error),
    }
}

fn find_mesh<B: Backend>(
    models: &mut Models<B>,
    backend: &B,
    picture: &B::Picture,
    subject: &mut Subject,
    meter: &mut Meter<'_>,
) -> Result<()> {
    if subject.mesh.is_none() {
        let landmarks =
            models.landmarks.as_mut().ok_or(Error::NoModel { role: Role::Landmarks })?;
        let found =
            meter.stage("landmarks", |m| landmarks.find(backend, picture, &subject.face, m));
        subject.mesh = Some(of_face(found)?);
    }
    Ok(())
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
    let faces: Vec<Face> = subjects.iter().map(|s| s.face).collect();
    let who: Vec<Option<&IdentityId>> = subjects.iter().map(Subject::identity).collect();
    let left_out = select::left_out(&faces, &who, &recipe.recipe().select, size);
    subjects
        .iter()
        .zip(left_out)
        .map(|(s, out)| decision::decide(recipe, policy, &s.who, s.in_zones, out.is_some(), clock))
        .collect()
}

impl Subject {
    fn identity(&self) -> Option<&IdentityId> {
        match &self.who {
            Who::Seen(found) => found.known(),
            Who::Unasked | Who::Failed(_) => None,
        }
    }

    fn report(&self, (done, reason): (String, Option<String>)) -> FaceReport {
        let identity = match &self.who {
            Who::Seen(Match::Known(identity, cosine)) => Some((identity.clone(), *cosine)),
            _ => None,
        };
        let mut report = list(&self.face, identity, done, reason);
        if let Some(Ok(mesh)) = &self.mesh {
            report.landmarks = mesh.five().to_report();
        }
        report
    }
}

fn list(
    face: &Face,
    identity: Option<(IdentityId, f32)>,
    done: String,
    reason: Option<String>,
) -> FaceReport {
    let r = face.rect;
    FaceReport {
        rect: [r.x0, r.y0, r.x1, r.y1],
        score: face.score,
        landmarks: face.landmarks.to_report(),
        identity,
        done,
        reason,
    }
}

/// The part that changes pixels.
struct Work<'w, 'a, B: Backend> {
    models: &'w mut Models<B>,
    backend: &'w B,
    recipe: &'w Checked,
    overlay: Option<&'w Overlay<B>>,
    subjects: &'w mut [Subject],
    decisions: &'w [Decision<'a, B>],
    /// What was done to each face, and why when it is not what was asked for.
    outcomes: Vec<(String, Option<String>)>,
    person: Option<PersonMap<B::Tensor>>,
}

impl<B: Backend> Work<'_, '_, B> {
    /// Made faces first, the largest first; then what hides faces, so that nothing that is hidden
    /// can be painted over; covers for what failed come last.
    fn carry_out(
        &mut self,
        passed: &mut Passed<B::Picture>,
        meter: &mut Meter<'_>,
    ) -> Result<Altered> {
        let mut altered = Altered::Nothing;
        self.outcomes =
            self.decisions.iter().map(|d| ("pass".to_owned(), d.reason.clone())).collect();
        let mut person_failed = None;
        let touches = self.decisions.iter().any(|d| !matches!(d.deed, Deed::Pass));
        if touches && self.recipe.wants_person() {
            match self.find_person(passed.get(), meter)? {
                Ok(map) => self.person = Some(map),
                Err(why) => person_failed = Some(why),
            }
        }
        let mut order: Vec<usize> = (0..self.subjects.len()).collect();
        let area = |i: &usize| self.subjects[*i].face.rect.area();
        order.sort_by(|a, b| area(b).total_cmp(&area(a)));
        let (made, rest): (Vec<usize>, Vec<usize>) =
            order.into_iter().partition(|&i| makes_a_face(&self.decisions[i].deed));
        let mut covers = Vec::new();
        for i in made.into_iter().chain(rest) {
            let done = match &self.decisions[i].deed {
                Deed::Pass => continue,
                Deed::Cover => {
                    covers.push(i);
                    continue;
                }
                deed => match &person_failed {
                    Some(why) => Err(why.clone()),
                    None => self.act(i, deed, passed, meter)?,
                },
            };
            match done {
                Ok((done, kind)) => {
                    self.outcomes[i].0 = done;
                    altered = altered.max(kind);
                }
                Err(why) => {
                    self.outcomes[i].1 = Some(why);
                    covers.push(i);
                }
            }
        }
        for i in covers {
            let rect = self.subjects[i].face.rect;
            meter
                .stage("cover", |_| anonymise::cover_box(self.backend, passed.get_mut(), &rect))?;
            self.outcomes[i].0 = "solid".to_owned();
            altered = altered.max(Altered::Masked);
        }
        Ok(altered)
    }

    fn find_person(
        &mut self,
        picture: &B::Picture,
        meter: &mut Meter<'_>,
    ) -> Result<std::result::Result<PersonMap<B::Tensor>, String>> {
        let segmenter =
            self.models.segmenter.as_mut().ok_or(Error::NoModel { role: Role::Segmenter })?;
        let backend = self.backend;
        of_face(meter.stage("segment", |m| segmenter.find(backend, picture, m)))
    }

    /// One face; the inner error is a reason to cover it.
    fn act(
        &mut self,
        i: usize,
        deed: &Deed<'_, B>,
        passed: &mut Passed<B::Picture>,
        meter: &mut Meter<'_>,
    ) -> Result<std::result::Result<(String, Altered), String>> {
        let asked = self.recipe.recipe();
        let area = asked.mask.kinds.contains(&MaskKind::Area);
        let backend = self.backend;
        if area || makes_a_face(deed) {
            find_mesh(self.models, backend, passed.get(), &mut self.subjects[i], meter)?;
        }
        let subject = &self.subjects[i];
        let mesh = match &subject.mesh {
            Some(Err(why)) if area || makes_a_face(deed) => return Ok(Err(why.clone())),
            Some(Ok(mesh)) => Some(mesh),
            _ => None,
        };
        let region = Region { mask: &asked.mask, mesh, person: self.person.as_ref() };
        let face = &subject.face;
        match deed {
            Deed::Anonymise(how) => {
                let seed = u64::from(asked.mark.counter) << 16 | i as u64;
                let overlay = self.overlay;
                let result = meter.stage("anonymise", |_| {
                    anonymise::apply(backend, passed.get_mut(), face, how, &region, overlay, seed)
                });
                let kind = match how {
                    Anonymise::Synthetic { .. } => Altered::Generated,
                    _ => Altered::Masked,
                };
                let done = Action::Anonymise((*how).clone()).to_string();
                Ok(of_face(result)?.map(|()| (done, kind)))
            }
            Deed::Swap { swap, source, consent } => {
                let Some(mesh) = mesh else { return Ok(Err("it has no landmarks".to_owned())) };
                let models = &mut *self.models;
                let result = meter.stage("swap", |m| match &swap.model {
                    None => {
                        let texture = source.texture(consent)?;
                        swap::mesh::apply(backend, passed.get_mut(), face, mesh, texture, &region)
                    }
                    Some(model) => {
                        let five = mesh.five();
                        let picture = passed.get_mut();
                        let target = match models.embedder.as_mut().filter(|_| swap.weight != 0.5) {
                            Some(embedder) => Some(embedder.embed(backend, picture, &five, m)?),
                            None => None,
                        };
                        let wish = Wish {
                            consent,
                            embedding: source.embedding(consent)?,
                            target: target.as_ref(),
                            weight: swap.weight,
                            boost: swap.boost,
                        };
                        let (generator, beside) = models.generator(model)?;
                        generator.apply(backend, picture, face, &five, &wish, beside, &region, m)
                    }
                });
                Ok(of_face(result)?.map(|()| (format!("swap:{}", swap.source), Altered::Generated)))
            }
            Deed::Pass | Deed::Cover => Ok(Err("nothing was decided".to_owned())),
        }
    }
}

fn makes_a_face<B: Backend>(deed: &Deed<'_, B>) -> bool {
    matches!(deed, Deed::Swap { .. } | Deed::Anonymise(Anonymise::Synthetic { .. }))
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
