//! Who is who: cosine against the enrolled, and a stranger below the threshold.

use mien_base::id::IdentityId;

use crate::subject::Embedding;

/// Least cosine at which a face is somebody.
pub const SAME: f32 = 0.5;
/// What is added to it for a face too small to be told from others: strangers 60 pixels high reach
/// 0.7 among each other.
const SMALL: f32 = 0.3;
/// From this height a face is no longer small, and at this one it is as small as counts, in pixels.
const SIZES: (f32, f32) = (100.0, 50.0);

/// Least cosine at which a face of `side` pixels is somebody.
#[must_use]
pub fn least(side: f32) -> f32 {
    let small = ((SIZES.0 - side) / (SIZES.0 - SIZES.1)).clamp(0.0, 1.0);
    SAME + SMALL * small
}
/// The best match must lead that of any other identity by this much.
pub const LEAD: f32 = 0.05;

/// What recognition says of a face.
#[derive(Debug, Clone, PartialEq)]
pub enum Match {
    /// It is this one, with this cosine.
    Known(IdentityId, f32),
    /// It could be more than one.
    Ambiguous(IdentityId, IdentityId),
    /// Nobody who is enrolled.
    Stranger,
}

impl Match {
    /// The identity, when it is certain.
    #[must_use]
    pub const fn known(&self) -> Option<&IdentityId> {
        match self {
            Self::Known(identity, _) => Some(identity),
            Self::Ambiguous(..) | Self::Stranger => None,
        }
    }
}

/// The enrolled embeddings, all of one embedder.
#[derive(Debug, Clone, Default)]
pub struct Gallery {
    entries: Vec<(IdentityId, Embedding)>,
}

impl Gallery {
    /// Adds an embedding; an identity may have several.
    pub fn add(&mut self, identity: IdentityId, embedding: Embedding) {
        self.entries.push((identity, embedding));
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True when the identity can be recognised.
    #[must_use]
    pub fn holds(&self, identity: &IdentityId) -> bool {
        self.entries.iter().any(|(i, _)| i == identity)
    }

    /// Who a face is, from a cosine of `least` on. Entries of another width are passed over.
    #[must_use]
    pub fn recognise(&self, face: &Embedding, least: f32) -> Match {
        let mut best: Option<(&IdentityId, f32)> = None;
        let mut second: Option<(&IdentityId, f32)> = None;
        for (identity, entry) in &self.entries {
            let Some(cosine) = face.cosine(entry) else { continue };
            match best {
                Some((held, most)) if cosine <= most => {
                    if held != identity && second.is_none_or(|(_, s)| cosine > s) {
                        second = Some((identity, cosine));
                    }
                }
                _ => {
                    if best.is_some_and(|(held, _)| held != identity) {
                        second = best;
                    }
                    best = Some((identity, cosine));
                }
            }
        }
        match (best, second) {
            (None, _) => Match::Stranger,
            (Some((_, cosine)), _) if cosine.is_nan() || cosine < least => Match::Stranger,
            (Some((a, x)), Some((b, y))) if x - y < LEAD => Match::Ambiguous(a.clone(), b.clone()),
            (Some((identity, cosine)), _) => Match::Known(identity.clone(), cosine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction(degrees: f32) -> Embedding {
        let (sin, cos) = degrees.to_radians().sin_cos();
        Embedding::new(vec![cos, sin]).unwrap()
    }

    fn gallery(entries: &[(&str, f32)]) -> Gallery {
        let mut gallery = Gallery::default();
        for (name, degrees) in entries {
            gallery.add(name.parse().unwrap(), direction(*degrees));
        }
        gallery
    }

    #[test]
    fn a_face_is_known_from_the_threshold_on() {
        // cos 60 degrees is one half.
        let gallery = gallery(&[("ada", 0.0), ("bob", 180.0)]);
        assert_eq!(gallery.recognise(&direction(59.0), SAME).known().unwrap().as_str(), "ada");
        assert_eq!(gallery.recognise(&direction(61.0), SAME), Match::Stranger);
        assert_eq!(gallery.recognise(&direction(175.0), SAME).known().unwrap().as_str(), "bob");
    }

    #[test]
    fn a_small_face_must_match_better() {
        assert_eq!((least(200.0), least(100.0), least(75.0)), (0.5, 0.5, 0.65));
        assert_eq!((least(50.0), least(0.0)), (0.8, 0.8));
        let gallery = gallery(&[("ada", 0.0)]);
        assert_eq!(gallery.recognise(&direction(50.0), least(60.0)), Match::Stranger);
    }

    #[test]
    fn a_face_between_two_identities_is_neither() {
        let gallery = gallery(&[("ada", 0.0), ("bob", 40.0)]);
        assert!(matches!(gallery.recognise(&direction(20.0), SAME), Match::Ambiguous(..)));
        assert_eq!(gallery.recognise(&direction(3.0), SAME).known().unwrap().as_str(), "ada");
    }

    #[test]
    fn several_entries_of_one_identity_do_not_compete() {
        for entries in [
            [("ada", 0.0), ("ada", 40.0), ("bob", 180.0)],
            [("bob", 180.0), ("ada", 40.0), ("ada", 0.0)],
        ] {
            let found = gallery(&entries).recognise(&direction(20.0), SAME);
            assert_eq!(found.known().unwrap().as_str(), "ada");
        }
    }

    #[test]
    fn a_second_identity_is_found_wherever_it_stands() {
        for entries in [
            [("ada", 0.0), ("ada", 3.0), ("bob", 10.0)],
            [("bob", 10.0), ("ada", 0.0), ("ada", 3.0)],
            [("ada", 3.0), ("bob", 10.0), ("ada", 0.0)],
        ] {
            let found = gallery(&entries).recognise(&direction(4.0), SAME);
            assert!(matches!(found, Match::Ambiguous(..)), "{entries:?}");
        }
    }

    #[test]
    fn entries_of_another_embedder_are_nobody() {
        let mut gallery = Gallery::default();
        gallery.add("ada".parse().unwrap(), Embedding::new(vec![1.0, 0.0, 0.0]).unwrap());
        assert_eq!(gallery.recognise(&direction(0.0), SAME), Match::Stranger);
    }
}
