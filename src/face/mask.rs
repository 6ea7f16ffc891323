//! Which part of a face is altered: where it stands, and the shapes for the backend to draw.

use mien_base::recipe::{Mask, MaskKind};
use mien_engine::backend::{Backend, Feather, Shape};
use mien_pixels::geometry::{Affine2, Point, Rect, Roi, Size};

use crate::segment::PersonMap;
use crate::subject::{Face, Mesh};
use crate::{Error, Result};

/// Least share of its own size by which a cover reaches over a face, whatever the recipe says.
const COVER_LEAST: f32 = 1.2;
/// Softest edge of a cover, as a share of half the face; it lies outside the face.
const COVER_FEATHER: f32 = 0.35;

/// Where a face stands: an upright oval of half-axes `half` about `centre`, turned by `roll`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    pub centre: Point,
    /// Half the width and half the height, in pixels, from ear to ear and from hair to chin.
    pub half: (f32, f32),
    /// Radians, positive clockwise.
    pub roll: f32,
}

impl Place {
    /// The place of a found face. The box says how large it is, the landmarks how it is turned,
    /// and they may only make it larger.
    ///
    /// # Errors
    /// `Face` when the box is no box, or so large or so far off that it can't be a face.
    pub fn of(face: &Face, picture: Size) -> Result<Self> {
        let rect = &face.rect;
        let (w, h) = (rect.width(), rect.height());
        let longest = picture.width.max(picture.height) as f32;
        let near = |v: f32| v.is_finite() && (-4.0 * longest..=5.0 * longest).contains(&v);
        let corners = [rect.x0, rect.y0, rect.x1, rect.y1];
        if !(corners.into_iter().all(near) && w >= 1.0 && h >= 1.0) {
            let detail = format!("its box {corners:?} can't be");
            return Err(Error::Face { detail });
        }
        let [left, right, _, mouth_left, mouth_right] = *face.landmarks.points();
        let middle = |a: Point, b: Point| Point::new((a.x + b.x) / 2.0, (a.y + b.y) / 2.0);
        let (eyes, mouth) = (middle(left, right), middle(mouth_left, mouth_right));
        let (apart, down) = (left.distance(right), eyes.distance(mouth));
        let long = w.max(h);
        // Landmarks that do not fit the box say nothing.
        let grown = rect.scaled(1.5);
        let inside =
            |p: Point| p.x > grown.x0 && p.x < grown.x1 && p.y > grown.y0 && p.y < grown.y1;
        let fits =
            inside(eyes) && inside(mouth) && down > 0.1 * long && down < long && apart < long;
        if !fits {
            return Ok(Self { centre: rect.centre(), half: (long / 2.0, long / 2.0), roll: 0.0 });
        }
        // From the eyes down to the mouth, which a face seen from the side shows as well.
        let roll = (mouth.y - eyes.y).atan2(mouth.x - eyes.x) - std::f32::consts::FRAC_PI_2;
        let half_h = (long / 2.0).max(1.45 * down);
        let half_w = (w.min(h) / 2.0).max(1.1 * apart).max(0.74 * half_h);
        // The detector's box ends at the brow of some: lean up by what is missing.
        let lean = (half_h - long / 2.0).max(0.0) * 0.3;
        let (sin, cos) = roll.sin_cos();
        let c = rect.centre();
        let centre = Point::new(c.x + sin * lean, c.y - cos * lean);
        Ok(Self { centre, half: (half_w, half_h), roll })
    }

    /// Width of the face in pixels; strengths are relative to it.
    #[must_use]
    pub fn width(&self) -> f32 {
        2.0 * self.half.0
    }

    /// Takes the unit circle to the face grown by `scale` and by `add` pixels.
    #[must_use]
    pub fn oval(&self, scale: f32, add: f32) -> Affine2 {
        let axis = |half: f32| f64::from(half * scale + add);
        Affine2::scale(axis(self.half.0), axis(self.half.1))
            .then(&Affine2::rotate(f64::from(self.roll)))
            .then(&Affine2::translate(f64::from(self.centre.x), f64::from(self.centre.y)))
    }

    /// Corners of the turned box around that oval: top-left, top-right, bottom-right, bottom-left
    /// as the face sees them.
    #[must_use]
    pub fn corners(&self, scale: f32, add: f32) -> [Point; 4] {
        let map = self.oval(scale, add);
        [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]
            .map(|(x, y)| map.apply(Point::new(x, y)))
    }

    /// The pixels of that turned box; `None` when none lies in the picture.
    #[must_use]
    pub fn roi(&self, scale: f32, add: f32, picture: Size) -> Option<Roi> {
        Rect::around(&self.corners(scale, add))?.pixels(picture)
    }
}

/// What limits a face's alteration, beside the alteration's own shape.
pub struct Region<'a, B: Backend> {
    pub mask: &'a Mask,
    pub mesh: Option<&'a Mesh>,
    pub person: Option<&'a PersonMap<B::Tensor>>,
}

impl<B: Backend> std::fmt::Debug for Region<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({:?})", self.mask.kinds)
    }
}

impl<B: Backend> Region<'_, B> {
    fn scale(&self) -> f32 {
        if self.mask.scale.is_finite() { self.mask.scale.clamp(0.1, 4.0) } else { 1.3 }
    }

    fn softness(&self) -> f32 {
        if self.mask.blur.is_finite() { self.mask.blur.clamp(0.0, 1.0) } else { 0.3 }
    }

    /// Side by side with the oval: the turned box, less the padding, grown by `add`.
    fn boxed(&self, place: &Place, scale: f32, add: f32) -> Vec<Point> {
        let pad = self
            .mask
            .padding
            .map(|p| 2.0 * if p.is_finite() { p.clamp(0.0, 50.0) / 100.0 } else { 0.0 });
        let map = place.oval(scale, add);
        let (top, right, bottom, left) = (-1.0 + pad[0], 1.0 - pad[1], 1.0 - pad[2], -1.0 + pad[3]);
        [(left, top), (right, top), (right, bottom), (left, bottom)]
            .map(|(x, y)| map.apply(Point::new(x, y)))
            .to_vec()
    }

    fn shape<'t>(
        &'t self,
        kind: MaskKind,
        place: &Place,
        scale: f32,
        add: f32,
        feather: Feather,
    ) -> Result<Shape<&'t B::Tensor>> {
        Ok(match kind {
            MaskKind::Box => Shape::Polygon { points: self.boxed(place, scale, add), feather },
            MaskKind::Ellipse => Shape::Ellipse { to_picture: place.oval(scale, add), feather },
            MaskKind::Area => {
                let mesh = self.mesh.ok_or_else(|| lacks("landmarks"))?;
                Shape::Polygon { points: grown(&hull(&mesh.flat()), scale, add), feather }
            }
            MaskKind::Person => {
                let person = self.person.ok_or_else(|| lacks("a person map"))?;
                Shape::Map { tensor: &person.tensor, to_picture: person.to_picture }
            }
        })
    }

    /// The mask of a cover over `roi`: the minimum of the recipe's kinds (an ellipse when there
    /// are none), but never less than the face itself, so that no mask uncovers a face. `feather`
    /// pixels of softness lie outside.
    ///
    /// # Errors
    /// `Face` when a kind needs what is not there; `Engine`.
    pub fn cover(&self, backend: &B, place: &Place, feather: f32, roi: Roi) -> Result<B::Alpha> {
        let edge = Feather { width: feather.max(1.0) };
        let scale = self.scale().max(1.0);
        let oval =
            |scale| Shape::Ellipse { to_picture: place.oval(scale, edge.width), feather: edge };
        let kinds = &self.mask.kinds;
        if kinds.is_empty() || kinds[..] == [MaskKind::Ellipse] {
            let shapes = [oval(scale.max(COVER_LEAST))];
            return backend.mask(&shapes, roi).map_err(Error::engine("mask"));
        }
        let shapes = kinds
            .iter()
            .map(|kind| self.shape(*kind, place, scale, edge.width, edge))
            .collect::<Result<Vec<_>>>()?;
        let mut alpha = backend.mask(&shapes, roi).map_err(Error::engine("mask"))?;
        let core = backend.mask(&[oval(COVER_LEAST)], roi).map_err(Error::engine("mask"))?;
        backend.join(&mut alpha, &core).map_err(Error::engine("mask"))?;
        backend.spare(core);
        Ok(alpha)
    }

    /// Softness of a cover in pixels, and how far it reaches: scale and pixels to add.
    #[must_use]
    pub fn cover_reach(&self, place: &Place) -> (f32, f32) {
        let feather = (self.softness() * COVER_FEATHER * place.half.0).max(1.0);
        (self.scale().max(COVER_LEAST), feather)
    }

    /// Narrows a swap's own mask to the recipe's kinds; nothing changes when there are none.
    ///
    /// # Errors
    /// `Face` when a kind needs what is not there; `Engine`.
    pub fn narrow(&self, backend: &B, place: &Place, roi: Roi, alpha: &mut B::Alpha) -> Result<()> {
        if self.mask.kinds.is_empty() {
            return Ok(());
        }
        let feather = Feather { width: (self.softness() * place.half.0 * 0.5).max(1.0) };
        let shapes = self
            .mask
            .kinds
            .iter()
            .map(|kind| self.shape(*kind, place, self.scale(), 0.0, feather))
            .collect::<Result<Vec<_>>>()?;
        let limit = backend.mask(&shapes, roi).map_err(Error::engine("mask"))?;
        backend.meet(alpha, &limit).map_err(Error::engine("mask"))
    }
}

fn lacks(what: &str) -> Error {
    Error::Face { detail: format!("its mask needs {what}, and there is none") }
}

/// The convex hull, clockwise on screen.
#[must_use]
pub fn hull(points: &[Point]) -> Vec<Point> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)));
    let turns =
        |a: Point, b: Point, c: Point| (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
    let mut out: Vec<Point> = Vec::new();
    let mut floor = 0;
    let (there, back) = (sorted.clone(), sorted.into_iter().rev());
    for (i, p) in there.into_iter().chain(back).enumerate() {
        if i == points.len() {
            floor = out.len().saturating_sub(1);
        }
        while out.len() >= floor + 2 && turns(out[out.len() - 2], out[out.len() - 1], p) <= 0.0 {
            out.pop();
        }
        out.push(p);
    }
    out.pop();
    out
}

/// A polygon grown about the middle of its box, and by `add` pixels outwards.
#[must_use]
pub fn grown(points: &[Point], scale: f32, add: f32) -> Vec<Point> {
    let Some(rect) = Rect::around(points) else { return Vec::new() };
    let c = rect.centre();
    let outward = |p: &Point| {
        let (x, y) = (p.x - c.x, p.y - c.y);
        let factor = scale + add / x.hypot(y).max(1e-3);
        Point::new(c.x + x * factor, c.y + y * factor)
    };
    points.iter().map(outward).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Landmarks5;
    use proptest::prelude::*;

    const PICTURE: Size = Size::new(512, 512);

    fn astronaut() -> Face {
        let p = Point::new;
        Face {
            rect: Rect::new(181.5, 58.2, 269.9, 177.8),
            score: 0.93,
            landmarks: Landmarks5::new([
                p(203.2, 101.7),
                p(247.0, 104.5),
                p(223.3, 125.1),
                p(203.4, 142.3),
                p(241.3, 144.4),
            ])
            .unwrap(),
        }
    }

    fn turned(face: &Face, degrees: f64) -> Face {
        let turn = Affine2::translate(-225.0, -118.0)
            .then(&Affine2::rotate(degrees.to_radians()))
            .then(&Affine2::translate(225.0, 118.0));
        let r = &face.rect;
        let corners = [(r.x0, r.y0), (r.x1, r.y0), (r.x1, r.y1), (r.x0, r.y1)]
            .map(|(x, y)| turn.apply(Point::new(x, y)));
        let landmarks = face.landmarks.mapped(&turn).unwrap();
        Face { rect: Rect::around(&corners).unwrap(), score: 0.9, landmarks }
    }

    #[test]
    fn the_oval_turns_with_the_landmarks() {
        let upright = Place::of(&astronaut(), PICTURE).unwrap();
        assert!(upright.roll.abs() < 0.12, "{}", upright.roll);
        for degrees in [-150.0, -90.0, -45.0, 30.0, 90.0, 179.0] {
            let place = Place::of(&turned(&astronaut(), degrees), PICTURE).unwrap();
            let off = f64::from(place.roll - upright.roll) - degrees.to_radians();
            let off = off.sin().atan2(off.cos()).to_degrees();
            assert!(off.abs() < 1.0, "{degrees}: off by {off}");
            assert!(place.half.1 >= 59.0 && place.half.0 >= 44.0, "{place:?}");
        }
    }

    #[test]
    fn the_oval_holds_every_landmark_and_the_box_at_its_middle() {
        let face = astronaut();
        let back = Place::of(&face, PICTURE).unwrap().oval(1.0, 0.0).inverse().unwrap();
        let radius = |p: Point| {
            let q = back.apply(p);
            q.x.hypot(q.y)
        };
        assert!(face.landmarks.points().iter().all(|p| radius(*p) < 0.8));
        let c = face.rect.centre();
        assert!(radius(Point::new(c.x, face.rect.y0)) <= 1.02);
        assert!(radius(Point::new(face.rect.x0, c.y)) <= 1.02);
    }

    #[test]
    fn landmarks_that_do_not_fit_the_box_leave_a_circle_around_it() {
        let mut face = astronaut();
        face.landmarks = Landmarks5::new([Point::new(900.0, 20.0); 5]).unwrap();
        let place = Place::of(&face, PICTURE).unwrap();
        assert_eq!(place.roll, 0.0);
        assert!((place.half.0 - 59.8).abs() < 0.1 && place.half.0 == place.half.1);
    }

    #[test]
    fn a_box_that_can_not_be_is_refused() {
        let face = astronaut();
        for rect in [
            Rect::new(0.0, 0.0, f32::NAN, 9.0),
            Rect::new(0.0, 0.0, f32::INFINITY, 9.0),
            Rect::new(9.0, 9.0, 9.0, 20.0),
            Rect::new(20.0, 9.0, 9.0, 20.0),
            Rect::new(-1e9, -1e9, 1e9, 1e9),
        ] {
            assert!(matches!(Place::of(&Face { rect, ..face }, PICTURE), Err(Error::Face { .. })));
        }
    }

    #[test]
    fn the_hull_of_a_grid_is_its_corners() {
        let points: Vec<_> = (0..25).map(|i| Point::new((i % 5) as f32, (i / 5) as f32)).collect();
        let mut hull = hull(&points);
        hull.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)));
        let p = Point::new;
        assert_eq!(hull, [p(0.0, 0.0), p(0.0, 4.0), p(4.0, 0.0), p(4.0, 4.0)]);
    }

    proptest! {
        #[test]
        fn a_hull_holds_all_its_points(
            points in proptest::collection::vec((-50f32..50.0, -50f32..50.0), 3..60),
        ) {
            let points: Vec<_> = points.iter().map(|p| Point::new(p.0, p.1)).collect();
            let hull = hull(&points);
            for p in &points {
                for i in 0..hull.len() {
                    let (a, b) = (hull[i], hull[(i + 1) % hull.len()]);
                    let side = (b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x);
                    prop_assert!(side >= -0.1, "{side}");
                }
            }
        }

        #[test]
        fn no_finite_face_panics(
            v in proptest::collection::vec(-3e3f32..3e3, 4),
            l in proptest::collection::vec((-3e3f32..3e3, -3e3f32..3e3), 5),
        ) {
            let p: Vec<_> = l.iter().map(|p| Point::new(p.0, p.1)).collect();
            let landmarks = Landmarks5::new(p.try_into().unwrap()).unwrap();
            let face = Face { rect: Rect::new(v[0], v[1], v[2], v[3]), score: 0.5, landmarks };
            if let Ok(place) = Place::of(&face, PICTURE) {
                let _ = place.roi(1.3, 4.0, PICTURE);
                prop_assert!(place.half.0 >= 0.5 && place.half.1 >= 0.5);
            }
        }
    }
}
