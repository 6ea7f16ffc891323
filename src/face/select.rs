//! Which of the found faces are meant: modes, orders, zones.

use std::cmp::Ordering;

use mien_base::id::IdentityId;
use mien_base::recipe::{Order, Select, SelectMode, Zone};
use mien_pixels::geometry::Size;

use crate::subject::Face;

/// Why a face is not meant; `None` for those that are. `who` gives the recognised identity of each
/// face, where there is one.
#[must_use]
pub fn left_out(
    faces: &[Face],
    who: &[Option<&IdentityId>],
    select: &Select,
    picture: Size,
) -> Vec<Option<&'static str>> {
    let mut out: Vec<Option<&'static str>> = in_zones(faces, &select.zones, picture)
        .into_iter()
        .map(|inside| (!inside).then_some("outside the zones"))
        .collect();
    let inside: Vec<usize> = (0..faces.len()).filter(|&i| out[i].is_none()).collect();
    match select.mode {
        SelectMode::Many => {}
        SelectMode::One => {
            let ordered = ordered(faces, inside.clone(), select.order);
            let meant = ordered.get(select.position as usize).copied();
            for i in inside.into_iter().filter(|&i| Some(i) != meant) {
                out[i] = Some("not the selected position");
            }
        }
        SelectMode::Reference => {
            for i in inside {
                let named = who.get(i).copied().flatten();
                if named.is_none() || named != select.reference.as_ref() {
                    out[i] = Some("not the reference");
                }
            }
        }
    }
    out
}

/// Indices of faces in an order; equal ones keep the detector's (best first).
#[must_use]
pub fn ordered(faces: &[Face], mut indices: Vec<usize>, order: Order) -> Vec<usize> {
    let x = |f: &Face| f.rect.centre().x;
    let y = |f: &Face| f.rect.centre().y;
    let by = |a: &Face, b: &Face| -> Ordering {
        match order {
            Order::LeftRight => x(a).total_cmp(&x(b)),
            Order::RightLeft => x(b).total_cmp(&x(a)),
            Order::TopBottom => y(a).total_cmp(&y(b)),
            Order::BottomTop => y(b).total_cmp(&y(a)),
            Order::SmallLarge => a.rect.area().total_cmp(&b.rect.area()),
            Order::LargeSmall => b.rect.area().total_cmp(&a.rect.area()),
            Order::BestWorst => b.score.total_cmp(&a.score),
            Order::WorstBest => a.score.total_cmp(&b.score),
        }
    };
    indices.sort_by(|&a, &b| by(&faces[a], &faces[b]));
    indices
}

/// For each face whether its centre lies in one of the zones; everywhere when there are none.
#[must_use]
pub fn in_zones(faces: &[Face], zones: &[Zone], picture: Size) -> Vec<bool> {
    let inside = |face: &Face| {
        let centre = face.rect.centre();
        let at = (centre.x / picture.width as f32, centre.y / picture.height as f32);
        zones.is_empty() || zones.iter().any(|z| is_inside(at, &z.points))
    };
    faces.iter().map(inside).collect()
}

/// Even-odd rule.
fn is_inside((x, y): (f32, f32), polygon: &[(f32, f32)]) -> bool {
    let mut inside = false;
    for (i, &(ax, ay)) in polygon.iter().enumerate() {
        let (bx, by) = polygon[(i + 1) % polygon.len()];
        if (ay > y) != (by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax {
            inside = !inside;
        }
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Landmarks5;
    use mien_pixels::geometry::{Point, Rect};

    const PICTURE: Size = Size::new(100, 100);

    fn face(x: f32, y: f32, side: f32, score: f32) -> Face {
        let rect = Rect::new(x, y, x + side, y + side);
        Face { rect, score, landmarks: Landmarks5::new([Point::default(); 5]).unwrap() }
    }

    fn faces() -> Vec<Face> {
        vec![face(10.0, 60.0, 20.0, 0.9), face(40.0, 10.0, 30.0, 0.7), face(80.0, 40.0, 10.0, 0.8)]
    }

    fn select(mode: SelectMode) -> Select {
        Select { mode, order: Order::LargeSmall, position: 0, reference: None, zones: Vec::new() }
    }

    fn meant(select: &Select, who: &[Option<&IdentityId>]) -> Vec<usize> {
        let out = left_out(&faces(), who, select, PICTURE);
        (0..3).filter(|&i| out[i].is_none()).collect()
    }

    #[test]
    fn each_order_is_what_it_says() {
        for (order, expected) in [
            (Order::LeftRight, [0, 1, 2]),
            (Order::RightLeft, [2, 1, 0]),
            (Order::TopBottom, [1, 2, 0]),
            (Order::BottomTop, [0, 2, 1]),
            (Order::SmallLarge, [2, 0, 1]),
            (Order::LargeSmall, [1, 0, 2]),
            (Order::BestWorst, [0, 2, 1]),
            (Order::WorstBest, [1, 2, 0]),
        ] {
            assert_eq!(ordered(&faces(), vec![0, 1, 2], order), expected, "{order:?}");
        }
    }

    #[test]
    fn one_means_the_face_at_its_position() {
        for (position, expected) in [(0, vec![1]), (1, vec![0]), (2, vec![2]), (3, vec![])] {
            let select = Select { position, ..select(SelectMode::One) };
            assert_eq!(meant(&select, &[None; 3]), expected);
        }
    }

    #[test]
    fn reference_means_every_face_of_that_identity() {
        let (ada, bob): (IdentityId, IdentityId) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        let reference = Select { reference: Some(ada.clone()), ..select(SelectMode::Reference) };
        assert_eq!(meant(&reference, &[Some(&ada), Some(&bob), Some(&ada)]), [0, 2]);
        assert_eq!(meant(&reference, &[None; 3]), [0; 0]);
        // Nobody's face is meant when nobody is named, not everybody's.
        assert_eq!(meant(&select(SelectMode::Reference), &[None; 3]), [0; 0]);
    }

    #[test]
    fn zones_count_before_positions() {
        let half = |x0, x1| Zone { points: vec![(x0, 0.0), (x1, 0.0), (x1, 1.0), (x0, 1.0)] };
        let right = Select { zones: vec![half(0.5, 1.0)], ..select(SelectMode::Many) };
        assert_eq!(meant(&right, &[None; 3]), [1, 2]);
        let both = Select { zones: vec![half(0.0, 0.3), half(0.8, 1.0)], ..right.clone() };
        assert_eq!(meant(&both, &[None; 3]), [0, 2]);
        let second = Select { mode: SelectMode::One, position: 1, ..right };
        assert_eq!(meant(&second, &[None; 3]), [2]);
    }

    #[test]
    fn a_zone_may_have_a_notch() {
        let u =
            [(0., 0.), (1., 0.), (1., 1.), (0.7, 1.), (0.7, 0.3), (0.3, 0.3), (0.3, 1.), (0., 1.)];
        assert!(is_inside((0.1, 0.9), &u) && is_inside((0.9, 0.9), &u));
        assert!(!is_inside((0.5, 0.9), &u) && is_inside((0.5, 0.1), &u));
    }
}
