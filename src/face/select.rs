//! Which of the found faces are meant: modes, orders, zones.

use std::cmp::Ordering;

use mien_base::id::IdentityId;
use mien_base::recipe::{Order, Select, SelectMode, Zone};
use mien_pixels::geometry::Size;

use crate::subject::Face;

/// True when the selector does not mean a face of so many. `face` and `who` give each face and who
/// it was recognised as, where it was.
pub fn leaves_out<'w>(
    at: usize,
    count: usize,
    face: impl Fn(usize) -> Face,
    who: impl Fn(usize) -> Option<&'w IdentityId>,
    select: &Select,
    picture: Size,
) -> bool {
    let inside = |i: usize| is_in_zones(&face(i), &select.zones, picture);
    if !inside(at) {
        return true;
    }
    match select.mode {
        SelectMode::Many => false,
        SelectMode::One => {
            let own = face(at);
            // Equal ones keep the detector's order (best first).
            let before = |i: usize| {
                let side = compare(&face(i), &own, select.order);
                side.is_lt() || (side.is_eq() && i < at)
            };
            let first = (0..count).filter(|&i| i != at && inside(i) && before(i)).count();
            first != select.position as usize
        }
        SelectMode::Reference => {
            let named = who(at);
            named.is_none() || named != select.reference.as_ref()
        }
    }
}

/// Which of two faces comes first.
fn compare(a: &Face, b: &Face, order: Order) -> Ordering {
    let x = |f: &Face| f.rect.centre().x;
    let y = |f: &Face| f.rect.centre().y;
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
}

/// True when the centre of a face lies in one of the zones; everywhere when there are none.
#[must_use]
pub fn is_in_zones(face: &Face, zones: &[Zone], picture: Size) -> bool {
    let centre = face.rect.centre();
    let at = (centre.x / picture.width as f32, centre.y / picture.height as f32);
    zones.is_empty() || zones.iter().any(|z| is_inside(at, &z.points))
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
        let faces = faces();
        let out = |i: &usize| leaves_out(*i, 3, |i| faces[i], |i| who[i], select, PICTURE);
        (0..3).filter(|i| !out(i)).collect()
    }

    #[test]
    fn each_order_is_what_it_says() {
        for (wanted, expected) in [
            (Order::LeftRight, [0, 1, 2]),
            (Order::RightLeft, [2, 1, 0]),
            (Order::TopBottom, [1, 2, 0]),
            (Order::BottomTop, [0, 2, 1]),
            (Order::SmallLarge, [2, 0, 1]),
            (Order::LargeSmall, [1, 0, 2]),
            (Order::BestWorst, [0, 2, 1]),
            (Order::WorstBest, [1, 2, 0]),
        ] {
            for (position, at) in (0..).zip(expected) {
                let select = Select { order: wanted, position, ..select(SelectMode::One) };
                assert_eq!(meant(&select, &[None; 3]), [at], "{wanted:?}");
            }
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
    fn of_two_that_are_alike_the_first_comes_first() {
        let twins = [face(5.0, 5.0, 10.0, 0.5), face(5.0, 5.0, 10.0, 0.5)];
        for (position, meant) in [(0, 0), (1, 1)] {
            let select = Select { position, ..select(SelectMode::One) };
            let out = |i: &usize| leaves_out(*i, 2, |i| twins[i], |_| None, &select, PICTURE);
            assert_eq!((0..2).filter(|i| !out(i)).collect::<Vec<_>>(), [meant]);
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
