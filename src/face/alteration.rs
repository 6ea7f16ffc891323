//! Changes the pixels of each face as decided; what can't be done ends in a cover.

use std::sync::Arc;

use mien_base::id::IdentityId;
use mien_base::model::Role;
use mien_base::recipe::{Action, Anonymise, MaskKind};
use mien_base::report::FaceReport;
use mien_engine::backend::Backend;
use mien_pixels::geometry::Rect;

use crate::anonymise::{self, Overlay};
use crate::decision::{Decision, Deed, Who};
use crate::gallery::Match;
use crate::gate::Passed;
use crate::mark::Altered;
use crate::mask::Region;
use crate::meter::Meter;
use crate::models::Models;
use crate::recipe::Checked;
use crate::segment::PersonMap;
use crate::subject::{Face, Mesh};
use crate::swap;
use crate::swap::generator::Wish;
use crate::{Error, Result};

/// A face on its way through the stages.
pub(crate) struct Subject {
    pub(crate) face: Face,
    /// What is covered when anything else fails.
    pub(crate) cover: Rect,
    pub(crate) in_zones: bool,
    /// The mesh, once it was looked for, or why there is none.
    pub(crate) mesh: Option<std::result::Result<Mesh, String>>,
    pub(crate) who: Who,
    /// Chooses the noise of a mosaic.
    pub(crate) number: u32,
}

/// Splits what concerns one face (it gets covered, with the reason) from what puts the whole
/// picture in doubt.
pub(crate) fn of_face<T>(result: Result<T>) -> Result<std::result::Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.is_of_face() => Ok(Err(error.reason())),
        Err(error) => Err(error),
    }
}

pub(crate) fn find_mesh<B: Backend>(
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

impl Subject {
    pub(crate) fn identity(&self) -> Option<&IdentityId> {
        match &self.who {
            Who::Seen(found) => found.known(),
            Who::Unasked | Who::Failed(_) => None,
        }
    }

    pub(crate) fn report(&self, outcome: &Outcome) -> FaceReport {
        let identity = match &self.who {
            Who::Seen(Match::Known(identity, cosine)) => Some((identity.clone(), *cosine)),
            _ => None,
        };
        let (done, reason) = (outcome.done.to_string(), outcome.reason.as_deref());
        let mut report = list(&self.face, identity, done, reason.map(str::to_owned));
        if let Some(Ok(mesh)) = &self.mesh {
            report.landmarks = mesh.five().to_report();
        }
        report
    }
}

pub(crate) fn list(
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

/// What became of one face.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// As `grammar` writes an action.
    pub(crate) done: Arc<str>,
    /// Why, when it is not what was asked for.
    pub(crate) reason: Option<Arc<str>>,
}

/// What is noted of the faces of one picture; kept from frame to frame, so that a frame like the
/// last allocates nothing.
#[derive(Debug)]
pub(crate) struct Notes {
    /// One for each face.
    pub(crate) outcomes: Vec<Outcome>,
    order: Vec<usize>,
    covers: Vec<usize>,
    names: Names,
}

/// How what was done is called, each name made once.
#[derive(Debug)]
struct Names {
    pass: Arc<str>,
    solid: Arc<str>,
    anonymised: Vec<(Anonymise, Arc<str>)>,
    swapped: Vec<(IdentityId, Arc<str>)>,
}

impl Default for Notes {
    fn default() -> Self {
        let names = Names {
            pass: "pass".into(),
            solid: "solid".into(),
            anonymised: Vec::new(),
            swapped: Vec::new(),
        };
        Self { outcomes: Vec::new(), order: Vec::new(), covers: Vec::new(), names }
    }
}

impl Notes {
    fn begin<B: Backend>(&mut self, decisions: &[Decision<'_, B>]) {
        let Self { outcomes, order, covers, names } = self;
        order.clear();
        covers.clear();
        outcomes.clear();
        outcomes.extend(decisions.iter().map(|d| Outcome {
            done: Arc::clone(&names.pass),
            reason: d.reason.as_deref().map(Into::into),
        }));
    }
}

impl Names {
    fn anonymised(&mut self, how: &Anonymise) -> Arc<str> {
        if let Some((_, name)) = self.anonymised.iter().find(|(known, _)| known == how) {
            return Arc::clone(name);
        }
        let name: Arc<str> = Action::Anonymise(how.clone()).to_string().into();
        self.anonymised.push((how.clone(), Arc::clone(&name)));
        name
    }

    fn swapped(&mut self, source: &IdentityId) -> Arc<str> {
        if let Some((_, name)) = self.swapped.iter().find(|(known, _)| known == source) {
            return Arc::clone(name);
        }
        let name: Arc<str> = format!("swap:{source}").into();
        self.swapped.push((source.clone(), Arc::clone(&name)));
        name
    }
}

/// The part that changes pixels.
pub(crate) struct Work<'w, 'a, B: Backend> {
    pub(crate) models: &'w mut Models<B>,
    pub(crate) backend: &'w B,
    pub(crate) recipe: &'w Checked,
    pub(crate) overlay: Option<&'w Overlay<B>>,
    pub(crate) subjects: &'w mut [Subject],
    pub(crate) decisions: &'w [Decision<'a, B>],
    pub(crate) notes: &'w mut Notes,
    pub(crate) person: Option<PersonMap<B::Tensor>>,
}

impl<B: Backend> Work<'_, '_, B> {
    /// Made faces first, the largest first; then what hides faces, so that nothing that is hidden
    /// can be painted over; covers for what failed come last.
    pub(crate) fn carry_out(
        &mut self,
        passed: &mut Passed<B::Picture>,
        meter: &mut Meter<'_>,
    ) -> Result<Altered> {
        let mut altered = Altered::Nothing;
        self.notes.begin(self.decisions);
        let mut person_failed = None;
        let touches = self.decisions.iter().any(|d| !matches!(d.deed, Deed::Pass));
        if touches && self.recipe.wants_person() {
            match self.find_person(passed.get(), meter)? {
                Ok(map) => self.person = Some(map),
                Err(why) => person_failed = Some(why),
            }
        }
        let made = |i: usize| makes_a_face(&self.decisions[i].deed);
        let area = |i: usize| self.subjects[i].face.rect.area();
        let before = |&a: &usize, &b: &usize| {
            made(b).cmp(&made(a)).then(area(b).total_cmp(&area(a))).then(a.cmp(&b))
        };
        self.notes.order.extend(0..self.subjects.len());
        self.notes.order.sort_unstable_by(before);
        for at in 0..self.notes.order.len() {
            let i = self.notes.order[at];
            let done = match &self.decisions[i].deed {
                Deed::Pass => continue,
                Deed::Cover => {
                    self.notes.covers.push(i);
                    continue;
                }
                deed => match &person_failed {
                    Some(why) => Err(why.clone()),
                    None => self.act(i, deed, passed, meter)?,
                },
            };
            match done {
                Ok((done, kind)) => {
                    self.notes.outcomes[i].done = done;
                    altered = altered.max(kind);
                }
                Err(why) => {
                    self.notes.outcomes[i].reason = Some(why.into());
                    self.notes.covers.push(i);
                }
            }
        }
        for &i in &self.notes.covers {
            let rect = self.subjects[i].cover;
            meter
                .stage("cover", |_| anonymise::cover_box(self.backend, passed.get_mut(), &rect))?;
            self.notes.outcomes[i].done = Arc::clone(&self.notes.names.solid);
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
    ) -> Result<std::result::Result<(Arc<str>, Altered), String>> {
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
                let seed = u64::from(asked.mark.counter) << 16 | u64::from(self.subjects[i].number);
                let overlay = self.overlay;
                let result = meter.stage("anonymise", |_| {
                    anonymise::apply(backend, passed.get_mut(), face, how, &region, overlay, seed)
                });
                let kind = match how {
                    Anonymise::Synthetic { .. } => Altered::Generated,
                    _ => Altered::Masked,
                };
                Ok(of_face(result)?.map(|()| (self.notes.names.anonymised(how), kind)))
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
                let done = |()| (self.notes.names.swapped(&swap.source), Altered::Generated);
                Ok(of_face(result)?.map(done))
            }
            Deed::Pass | Deed::Cover => Ok(Err("nothing was decided".to_owned())),
        }
    }
}

pub(crate) fn makes_a_face<B: Backend>(deed: &Deed<'_, B>) -> bool {
    matches!(deed, Deed::Swap { .. } | Deed::Anonymise(Anonymise::Synthetic { .. }))
}
