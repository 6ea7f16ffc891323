//! Which found face belongs to which track.
//!
//! Greedy, the cheapest pair first: what is assigned in one frame are a few faces that hardly ever
//! compete, and where two do, their embeddings are asked, which an optimal sum of overlaps would
//! not replace. It costs no more than a sort, and 512 faces are no reason to stop the clip.

use mien_pixels::geometry::Rect;

use crate::subject::Face;

/// A face that moved by more than this share of its size since the prediction is another one,
const FAR: f32 = 0.9;
/// and so is one that grew or shrank by more than this factor.
const GROWN: f32 = 2.2;
/// Pairs whose costs differ by less compete.
const CLOSE: f32 = 1.0;
/// What a cosine of 1 rather than 0 is worth beside overlap and distance.
const LIKENESS: f32 = 2.0;
/// Faces of one person have at least this cosine, of two persons at most: in between says nothing.
const NEUTRAL: f32 = 0.4;

/// A track and a face that may be one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pair {
    cost: f32,
    track: usize,
    face: usize,
    asked: bool,
}

/// Buffers that are used again.
#[derive(Debug, Default)]
pub struct Assign {
    pairs: Vec<Pair>,
    taken: Vec<bool>,
}

/// 0 for the same box, 1.9 for the last that may be; `None` when they can't be one face.
fn cost(expected: &Rect, found: &Rect, slack: f32) -> Option<f32> {
    let side = |r: &Rect| r.width().max(r.height()).max(1.0);
    let (a, b) = (side(expected), side(found));
    let away = expected.centre().distance(found.centre()) / a.max(b);
    let grown = (a / b).max(b / a);
    let fits = away <= FAR * slack && grown <= GROWN;
    fits.then(|| 1.0 - expected.iou(found) + away / slack)
}

impl Assign {
    /// Gives each face of `faces` the index of its track in `out`. `expected` are the tracks' boxes
    /// in this frame, with 1 for a fresh prediction and more for an old one. `likeness` gives the
    /// cosine of a track and a face, where both are known; it is asked only for those that compete.
    pub fn run(
        &mut self,
        expected: impl ExactSizeIterator<Item = (Rect, f32)>,
        faces: &[Face],
        mut likeness: impl FnMut(usize, usize) -> Option<f32>,
        out: &mut Vec<Option<usize>>,
    ) {
        out.clear();
        out.resize(faces.len(), None);
        self.taken.clear();
        self.taken.resize(expected.len(), false);
        self.pairs.clear();
        for (track, (rect, slack)) in expected.enumerate() {
            for (face, found) in faces.iter().enumerate() {
                if let Some(cost) = cost(&rect, &found.rect, slack) {
                    self.pairs.push(Pair { cost, track, face, asked: false });
                }
            }
        }
        self.sort();
        for i in 0..self.pairs.len() {
            self.pairs[i].asked = self.competes(i);
        }
        for pair in self.pairs.iter_mut().filter(|p| p.asked) {
            if let Some(cosine) = likeness(pair.track, pair.face) {
                pair.cost += LIKENESS * (NEUTRAL - cosine);
            }
        }
        self.sort();
        for pair in &self.pairs {
            if out[pair.face].is_none() && !self.taken[pair.track] {
                out[pair.face] = Some(pair.track);
                self.taken[pair.track] = true;
            }
        }
    }

    fn sort(&mut self) {
        self.pairs.sort_unstable_by(|a, b| {
            a.cost.total_cmp(&b.cost).then(a.track.cmp(&b.track)).then(a.face.cmp(&b.face))
        });
    }

    fn competes(&self, i: usize) -> bool {
        let own = self.pairs[i];
        self.pairs.iter().any(|p| {
            (p.track == own.track) != (p.face == own.face) && (p.cost - own.cost).abs() < CLOSE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Landmarks5;
    use mien_pixels::geometry::Point;

    fn rect(x: f32) -> Rect {
        Rect::new(x, 0.0, x + 40.0, 40.0)
    }

    fn face(x: f32) -> Face {
        Face {
            rect: rect(x),
            score: 0.9,
            landmarks: Landmarks5::new([Point::default(); 5]).unwrap(),
        }
    }

    fn run(
        tracks: &[f32],
        faces: &[f32],
        likeness: impl FnMut(usize, usize) -> Option<f32>,
    ) -> Vec<Option<usize>> {
        let faces: Vec<Face> = faces.iter().map(|x| face(*x)).collect();
        let mut out = Vec::new();
        let expected = tracks.iter().map(|x| (rect(*x), 1.0));
        Assign::default().run(expected, &faces, likeness, &mut out);
        out
    }

    #[test]
    fn each_face_goes_to_the_track_it_overlaps() {
        let nobody = |_, _| panic!("nobody competes");
        assert_eq!(run(&[0.0, 100.0], &[104.0, 3.0], nobody), [Some(1), Some(0)]);
        assert_eq!(run(&[0.0], &[200.0], nobody), [None]);
        assert_eq!(run(&[], &[0.0], nobody), [None]);
    }

    #[test]
    fn a_face_of_another_size_is_another_face() {
        let mut out = Vec::new();
        let big = Face { rect: Rect::new(-40.0, -40.0, 80.0, 80.0), ..face(0.0) };
        Assign::default().run([(rect(0.0), 1.0)].into_iter(), &[big], |_, _| None, &mut out);
        assert_eq!(out, [None]);
    }

    #[test]
    fn where_two_cross_their_likeness_decides() {
        let alike = |t, f| Some(if t == f { 0.9 } else { 0.1 });
        // By place alone each face would go to the other's track.
        assert_eq!(run(&[0.0, 20.0], &[18.0, 2.0], alike), [Some(0), Some(1)]);
        assert_eq!(run(&[0.0, 20.0], &[18.0, 2.0], |_, _| None), [Some(1), Some(0)]);
    }

    #[test]
    fn no_track_gets_two_faces() {
        let out = run(&[0.0], &[2.0, 6.0], |_, _| None);
        assert_eq!(out, [Some(0), None]);
    }
}
