//! Who is known, who agreed, whose face may be used: held by the worker under one revision.

use std::collections::BTreeMap;

use mien_base::clock::Clock;
use mien_base::consent::{ConsentRecord, Scope, SourceRecord};
use mien_base::id::{IdentityId, ModelId};
use mien_base::limits;
use mien_engine::backend::Backend;
use mien_pixels::geometry::{Point, Rect};
use mien_pixels::view::Rgb;

use crate::consent::{self, Consent};
use crate::gallery::Gallery;
use crate::subject::{Embedding, Mesh};
use crate::swap::texture::Texture;
use crate::{Error, Result};

/// An enrolled face, checked, with its skin where the backend keeps pictures. What can be put on
/// others is handed out only against a consent of this very source.
pub struct Source<B: Backend> {
    record: SourceRecord,
    texture: Option<Texture<B>>,
    embedding: Option<Embedding>,
}

impl<B: Backend> std::fmt::Debug for Source<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({})", self.record.identity)
    }
}

impl<B: Backend> Source<B> {
    /// Checks a record against its portrait and takes the skin out of it, once.
    ///
    /// # Errors
    /// `Source` when a point lies far outside, a mesh is no face's, an embedding no direction;
    /// `Engine`.
    pub fn new(backend: &B, record: SourceRecord, portrait: Rgb) -> Result<Self> {
        let broken = |detail: &str| Error::Source {
            identity: record.identity.clone(),
            detail: detail.to_owned(),
        };
        let size = portrait.size();
        if size.pixels() == 0 || size.pixels() > limits::PICTURE_PIXELS {
            return Err(broken("its portrait has no usable size"));
        }
        let (width, height) = (size.width as f32, size.height as f32);
        let near = Rect::new(-width, -height, 2.0 * width, 2.0 * height);
        let is_near = |x: f32, y: f32| x >= near.x0 && x <= near.x1 && y >= near.y0 && y <= near.y1;
        let points = record.landmarks.map(|[x, y]| Point::new(x, y));
        if !points.iter().all(|p| is_near(p.x, p.y)) {
            return Err(broken("its landmarks lie outside the portrait"));
        }
        let mesh = match record.mesh.len() {
            0 => None,
            _ if record.mesh.iter().all(|p| is_near(p[0], p[1])) => {
                let mesh = Mesh::new(record.mesh.clone());
                Some(mesh.ok_or_else(|| broken("its mesh is not 468 finite points"))?)
            }
            _ => return Err(broken("its mesh lies outside the portrait")),
        };
        let embedding = match (&record.embedder, record.embedding.len()) {
            (None, _) | (_, 0) => None,
            (Some(_), _) => Some(
                Embedding::new(record.embedding.clone())
                    .ok_or_else(|| broken("its embedding is no direction"))?,
            ),
        };
        let portrait = backend.adopt(portrait).map_err(Error::engine("portrait"))?;
        let texture = match mesh.map(|mesh| Texture::bake(backend, &portrait, &mesh)).transpose() {
            Err(Error::Face { detail }) => return Err(broken(&detail)),
            other => other?,
        };
        Ok(Self { record, texture, embedding })
    }

    /// Whose face it is.
    #[must_use]
    pub const fn identity(&self) -> &IdentityId {
        &self.record.identity
    }

    /// The record as it is stored.
    #[must_use]
    pub const fn record(&self) -> &SourceRecord {
        &self.record
    }

    /// The skin that may be put on another face.
    ///
    /// # Errors
    /// `NoConsent` when the consent is somebody else's or to something else; `Face` when the source
    /// was enrolled without a mesh.
    pub fn texture(&self, consent: &Consent) -> Result<&Texture<B>> {
        self.permit(consent)?;
        self.texture.as_ref().ok_or_else(|| Error::Face {
            detail: format!("source `{}` was enrolled without landmarks", self.record.identity),
        })
    }

    /// The embedding that may be put on another face by a generator.
    ///
    /// # Errors
    /// As `texture`; `Face` when the source was enrolled without an embedder.
    pub fn embedding(&self, consent: &Consent) -> Result<&Embedding> {
        self.permit(consent)?;
        self.embedding.as_ref().ok_or_else(|| Error::Face {
            detail: format!("source `{}` was enrolled without an embedder", self.record.identity),
        })
    }

    fn permit(&self, consent: &Consent) -> Result<()> {
        if (consent.identity(), consent.scope()) == (&self.record.identity, Scope::Swap) {
            return Ok(());
        }
        let detail = format!("a consent of `{}` is not one", consent.identity());
        Err(Error::NoConsent { identity: self.record.identity.clone(), scope: Scope::Swap, detail })
    }
}

/// All that a picture is held to beside its recipe.
pub struct Policy<B: Backend> {
    revision: u64,
    sources: BTreeMap<IdentityId, Source<B>>,
    consents: Vec<ConsentRecord>,
}

impl<B: Backend> std::fmt::Debug for Policy<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("revision", &self.revision)
            .field("sources", &self.sources.len())
            .field("consents", &self.consents.len())
            .finish()
    }
}

impl<B: Backend> Policy<B> {
    /// Nobody is known and nobody agreed.
    #[must_use]
    pub const fn new(revision: u64) -> Self {
        Self { revision, sources: BTreeMap::new(), consents: Vec::new() }
    }

    /// Its number; a revocation is a new revision.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Adds a source and the records that bind its use.
    ///
    /// # Errors
    /// `Source` when there are too many, or a consent is bound to another identity.
    pub fn add(&mut self, source: Source<B>, consents: Vec<ConsentRecord>) -> Result<()> {
        let identity = source.identity().clone();
        let broken = |detail: String| Error::Source { identity: identity.clone(), detail };
        let is_new = !self.sources.contains_key(&identity);
        if is_new && self.sources.len() >= limits::IDENTITIES {
            return Err(broken(format!("there are {} already", limits::IDENTITIES)));
        }
        if let Some(other) = consents.iter().find(|c| c.identity != identity) {
            return Err(broken(format!("a consent record of `{}` came with it", other.identity)));
        }
        if consents.len() > limits::RULES {
            return Err(broken(format!("it has {} consent records", consents.len())));
        }
        self.consents.retain(|c| c.identity != identity);
        self.consents.extend(consents);
        self.sources.insert(identity, source);
        Ok(())
    }

    /// Puts other records in the place of a source's: none takes all of them back. What comes for
    /// somebody who is not known changes nothing.
    ///
    /// # Errors
    /// `Source` as for `add`; then none of its records holds any more.
    pub fn set_consents(
        &mut self,
        revision: u64,
        identity: &IdentityId,
        consents: Vec<ConsentRecord>,
    ) -> Result<()> {
        self.revision = revision;
        self.consents.retain(|c| c.identity != *identity);
        let broken = |detail: String| Error::Source { identity: identity.clone(), detail };
        if let Some(other) = consents.iter().find(|c| c.identity != *identity) {
            return Err(broken(format!("a consent record of `{}` came with it", other.identity)));
        }
        if consents.len() > limits::RULES {
            return Err(broken(format!("it has {} consent records", consents.len())));
        }
        if self.sources.contains_key(identity) {
            self.consents.extend(consents);
        }
        Ok(())
    }

    /// An enrolled face.
    #[must_use]
    pub fn source(&self, identity: &IdentityId) -> Option<&Source<B>> {
        self.sources.get(identity)
    }

    /// Proof that a person agrees now: any record that holds will do.
    ///
    /// # Errors
    /// `NoConsent` with the reason of the last record, or that there is none.
    pub fn consent(
        &self,
        identity: &IdentityId,
        scope: Scope,
        clock: &dyn Clock,
    ) -> Result<Consent> {
        let detail = "there is no record".to_owned();
        let mut result = Err(Error::NoConsent { identity: identity.clone(), scope, detail });
        for record in self.consents.iter().filter(|c| c.identity == *identity) {
            result = consent::check(record, scope, clock);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// The embeddings that compare with those of an embedder (its name and its file's digest).
    #[must_use]
    pub fn gallery(&self, space: &(ModelId, String)) -> Gallery {
        let mut gallery = Gallery::default();
        for source in self.sources.values().filter(|s| s.record.embedder.as_ref() == Some(space)) {
            if let Some(embedding) = &source.embedding {
                gallery.add(source.identity().clone(), embedding.clone());
            }
        }
        gallery
    }
}
