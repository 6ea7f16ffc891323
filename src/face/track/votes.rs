//! Who a track is: votes of its embeddings.

use mien_base::id::IdentityId;
use serde::{Deserialize, Serialize};

use crate::gallery::{self, Gallery, Match};
use crate::subject::Embedding;

/// Votes after which an identity stands, where a track is long enough.
pub const ENOUGH: u32 = 3;

/// The embeddings of one track, summed, and what each by itself said.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Votes {
    sum: Vec<f32>,
    count: u32,
    /// Identities that single embeddings were taken for, and how often.
    named: Vec<(IdentityId, u32)>,
    /// Height of the largest face among them.
    side: f32,
    last: u64,
}

impl Votes {
    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The frame of the last one.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Takes a vote: a face of `side` pixels in a frame.
    pub fn add(&mut self, frame: u64, embedding: &Embedding, side: f32, gallery: &Gallery) {
        let values = embedding.values();
        self.sum.resize(values.len(), 0.0);
        self.sum.iter_mut().zip(values).for_each(|(s, v)| *s += v);
        self.count += 1;
        self.last = frame;
        self.side = self.side.max(side);
        if let Match::Known(identity, _) = gallery.recognise(embedding, gallery::least(side)) {
            match self.named.iter_mut().find(|(n, _)| *n == identity) {
                Some((_, count)) => *count += 1,
                None => self.named.push((identity, 1)),
            }
        }
    }

    /// The mean direction.
    #[must_use]
    pub fn mean(&self) -> Option<Embedding> {
        Embedding::new(self.sum.clone())
    }

    /// Cosine of the mean and a face.
    #[must_use]
    pub fn cosine(&self, face: &Embedding) -> Option<f32> {
        if self.sum.len() != face.values().len() {
            return None;
        }
        let (dot, norm) = self
            .sum
            .iter()
            .zip(face.values())
            .fold((0.0, 0.0), |(d, n): (f32, f32), (s, v)| (d + s * v, n + s * s));
        let cosine = dot / norm.sqrt();
        cosine.is_finite().then_some(cosine)
    }

    /// Who it is: the mean must be somebody's, and more than half of the votes must say the same.
    /// `None` when nobody voted.
    #[must_use]
    pub fn who(&self, gallery: &Gallery) -> Option<Match> {
        let found = gallery.recognise(&self.mean()?, gallery::least(self.side));
        let Match::Known(identity, _) = &found else { return Some(found) };
        let own = self.named.iter().find(|(n, _)| n == identity).map_or(0, |(_, n)| *n);
        if 2 * own > self.count {
            return Some(found);
        }
        let other = self.named.iter().filter(|(n, _)| n != identity).max_by_key(|(_, n)| *n);
        Some(match other {
            Some((other, _)) => Match::Ambiguous(identity.clone(), other.clone()),
            None => Match::Stranger,
        })
    }

    /// Bytes that it takes in a state, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        32 + self.sum.len() * 4 + self.named.len() * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction(degrees: f32) -> Embedding {
        let (sin, cos) = degrees.to_radians().sin_cos();
        Embedding::new(vec![cos, sin]).unwrap()
    }

    fn who(votes: &[f32]) -> Option<Match> {
        let mut gallery = Gallery::default();
        gallery.add("ada".parse().unwrap(), direction(0.0));
        gallery.add("bob".parse().unwrap(), direction(150.0));
        let mut all = Votes::default();
        for (i, vote) in votes.iter().enumerate() {
            all.add(i as u64, &direction(*vote), 200.0, &gallery);
        }
        all.who(&gallery)
    }

    fn known(found: Option<Match>) -> Option<String> {
        found.and_then(|m| m.known().map(ToString::to_string))
    }

    #[test]
    fn one_bad_frame_names_nobody_anew() {
        assert_eq!(known(who(&[5.0, 20.0, 75.0])).as_deref(), Some("ada"));
        assert_eq!(known(who(&[150.0, 140.0, 10.0])).as_deref(), Some("bob"));
    }

    #[test]
    fn without_a_majority_nobody_is_named() {
        // Two of four are ada's, and so is the mean.
        assert_eq!(known(who(&[0.0, 0.0, 70.0, 70.0])), None);
        assert!(matches!(who(&[0.0, 10.0, 150.0, 150.0]), Some(m) if m.known().is_none()));
        assert_eq!(who(&[]), None);
    }

    #[test]
    fn a_face_is_compared_with_the_mean() {
        let mut votes = Votes::default();
        let gallery = Gallery::default();
        votes.add(0, &direction(-10.0), 50.0, &gallery);
        votes.add(1, &direction(10.0), 50.0, &gallery);
        assert!((votes.cosine(&direction(0.0)).unwrap() - 1.0).abs() < 1e-5);
        assert!(votes.cosine(&direction(90.0)).unwrap().abs() < 1e-5);
        assert_eq!(votes.cosine(&Embedding::new(vec![1.0, 0.0, 0.0]).unwrap()), None);
    }
}
