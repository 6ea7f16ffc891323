//! Non-maximum suppression: of boxes that overlap, the best.

use mien_base::limits;

use super::Candidate;
use crate::subject::Face;

/// Keeps candidates (best first) that overlap no better one by more than `overlap` (IoU); stops
/// when `limits::FACES` is passed, which the caller refuses.
#[must_use]
pub fn suppress(found: Vec<Candidate>, overlap: f32) -> Vec<Candidate> {
    let mut kept: Vec<Candidate> = Vec::new();
    for candidate in found {
        if kept.len() > limits::FACES {
            break;
        }
        if kept.iter().all(|k| k.rect.iou(&candidate.rect) <= overlap) {
            kept.push(candidate);
        }
    }
    kept
}

/// Joins the faces of several passes, best first. Between passes the bound is stricter the more
/// there are (ALGORITHMS.md §1.1); within a pass each detector's own has been applied, so that a
/// second pass never loses the neighbour of a face that one pass told apart.
pub(super) fn pool(passes: Vec<Vec<Face>>) -> Vec<Face> {
    let overlap = match passes.iter().filter(|p| !p.is_empty()).count() {
        0 | 1 => 1.0,
        2 => 0.3,
        3 => 0.2,
        _ => 0.1,
    };
    let number = |(i, pass): (usize, Vec<Face>)| pass.into_iter().map(move |f| (i, f));
    let mut all: Vec<(usize, Face)> = passes.into_iter().enumerate().flat_map(number).collect();
    all.sort_by(|a, b| b.1.score.total_cmp(&a.1.score));
    let mut kept: Vec<(usize, Face)> = Vec::new();
    for (pass, face) in all {
        if kept.len() > limits::FACES {
            break;
        }
        if kept.iter().all(|(p, k)| *p == pass || k.rect.iou(&face.rect) <= overlap) {
            kept.push((pass, face));
        }
    }
    kept.into_iter().map(|(_, face)| face).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Landmarks5;
    use mien_pixels::geometry::{Point, Rect};

    fn candidate(x: f32, score: f32) -> Candidate {
        let rect = Rect::new(x, 0.0, x + 10.0, 10.0);
        Candidate { rect, score, points: [Point::default(); 5] }
    }

    #[test]
    fn the_best_of_overlapping_boxes_stays() {
        // IoU of boxes 10 wide: shifted by 5 it is 1/3, by 6 it is 1/4.
        let found = vec![candidate(0.0, 0.9), candidate(5.0, 0.8), candidate(6.0, 0.7)];
        let kept: Vec<f32> = suppress(found, 0.3).iter().map(|c| c.score).collect();
        assert_eq!(kept, [0.9, 0.7]);
    }

    #[test]
    fn a_flood_of_boxes_is_cut_just_past_the_bound() {
        let found = (0..5000).map(|i| candidate(20.0 * i as f32, 0.5)).collect();
        assert_eq!(suppress(found, 0.3).len(), limits::FACES + 1);
    }

    #[test]
    fn passes_drop_what_another_pass_saw_better_but_keep_their_own_neighbours() {
        let landmarks = Landmarks5::new([Point::default(); 5]).unwrap();
        let face = |x: f32, score| Face { rect: candidate(x, score).rect, score, landmarks };
        let first = vec![face(0.0, 0.9), face(6.0, 0.6)];
        let second = vec![face(1.0, 0.8), face(40.0, 0.7)];
        let scores: Vec<f32> = pool(vec![first, second]).iter().map(|f| f.score).collect();
        assert_eq!(scores, [0.9, 0.7, 0.6]);
    }
}
