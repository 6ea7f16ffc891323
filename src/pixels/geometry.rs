//! Points, rectangles and affine maps. Pixel centres stand at whole coordinates, y points down.

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

impl Size {
    /// A size from width and height.
    #[must_use]
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Number of pixels.
    #[must_use]
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// The shorter side.
    #[must_use]
    pub fn short_side(self) -> u32 {
        self.width.min(self.height)
    }
}

/// A point in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    pub x: f32,
    pub y: f32,
}

impl Point {
    /// A point from its coordinates.
    #[must_use]
    pub const fn new(x: f32, y: f32) -> Self {
        Self { x, y }
    }

    /// Euclidean distance.
    #[must_use]
    pub fn distance(self, other: Self) -> f32 {
        (self.x - other.x).hypot(self.y - other.y)
    }
}

/// A rectangle with real corners: x0 <= x1, y0 <= y1 where it is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rect {
    pub x0: f32,
    pub y0: f32,
    pub x1: f32,
    pub y1: f32,
}

impl Rect {
    /// A rectangle from its corners.
    #[must_use]
    pub const fn new(x0: f32, y0: f32, x1: f32, y1: f32) -> Self {
        Self { x0, y0, x1, y1 }
    }

    /// The smallest rectangle around points; `None` when there are none.
    #[must_use]
    pub fn around(points: &[Point]) -> Option<Self> {
        let first = points.first()?;
        let start = Self::new(first.x, first.y, first.x, first.y);
        Some(points.iter().fold(start, |r, p| {
            Self::new(r.x0.min(p.x), r.y0.min(p.y), r.x1.max(p.x), r.y1.max(p.y))
        }))
    }

    #[must_use]
    pub fn width(&self) -> f32 {
        self.x1 - self.x0
    }

    #[must_use]
    pub fn height(&self) -> f32 {
        self.y1 - self.y0
    }

    #[must_use]
    pub fn area(&self) -> f32 {
        self.width().max(0.0) * self.height().max(0.0)
    }

    #[must_use]
    pub fn centre(&self) -> Point {
        Point::new((self.x0 + self.x1) / 2.0, (self.y0 + self.y1) / 2.0)
    }

    /// Grown about its centre by a factor: 1.3 is 30 % wider and higher.
    #[must_use]
    pub fn scaled(&self, factor: f32) -> Self {
        let (c, w, h) = (self.centre(), self.width() * factor / 2.0, self.height() * factor / 2.0);
        Self::new(c.x - w, c.y - h, c.x + w, c.y + h)
    }

    /// Intersection over union, 0 when either is empty.
    #[must_use]
    pub fn iou(&self, other: &Self) -> f32 {
        let width = (self.x1.min(other.x1) - self.x0.max(other.x0)).max(0.0);
        let height = (self.y1.min(other.y1) - self.y0.max(other.y0)).max(0.0);
        let (meet, join) = (width * height, self.area() + other.area() - width * height);
        if join > 0.0 { meet / join } else { 0.0 }
    }

    /// The whole pixels it touches, cut to a picture; `None` when none is left.
    #[must_use]
    pub fn pixels(&self, size: Size) -> Option<Roi> {
        let cut = |v: f32, max: u32| v.clamp(0.0, max as f32) as u32;
        let (x0, y0) = (cut(self.x0.floor(), size.width), cut(self.y0.floor(), size.height));
        let (x1, y1) =
            (cut(self.x1.ceil() + 1.0, size.width), cut(self.y1.ceil() + 1.0, size.height));
        (x1 > x0 && y1 > y0).then(|| Roi { x: x0, y: y0, width: x1 - x0, height: y1 - y0 })
    }
}

/// A region of whole pixels inside a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roi {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

impl Roi {
    /// All of a picture.
    #[must_use]
    pub const fn whole(size: Size) -> Self {
        Self { x: 0, y: 0, width: size.width, height: size.height }
    }

    #[must_use]
    pub const fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }

    /// True when no part of it is outside a picture.
    #[must_use]
    pub const fn lies_in(&self, size: Size) -> bool {
        self.x as u64 + self.width as u64 <= size.width as u64
            && self.y as u64 + self.height as u64 <= size.height as u64
    }
}

/// x' = a x + b y + c, y' = d x + e y + f.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine2 {
    pub a: f64,
    pub b: f64,
    pub c: f64,
    pub d: f64,
    pub e: f64,
    pub f: f64,
}

impl Affine2 {
    /// Leaves every point where it is.
    pub const IDENTITY: Self = Self { a: 1.0, b: 0.0, c: 0.0, d: 0.0, e: 1.0, f: 0.0 };

    /// Moves.
    #[must_use]
    pub const fn translate(x: f64, y: f64) -> Self {
        Self { c: x, f: y, ..Self::IDENTITY }
    }

    /// Scales about the origin.
    #[must_use]
    pub const fn scale(x: f64, y: f64) -> Self {
        Self { a: x, e: y, ..Self::IDENTITY }
    }

    /// Rotates about the origin; positive turns x towards y (clockwise on screen). Radians.
    #[must_use]
    pub fn rotate(angle: f64) -> Self {
        let (sin, cos) = angle.sin_cos();
        Self { a: cos, b: -sin, c: 0.0, d: sin, e: cos, f: 0.0 }
    }

    /// This map first, then `next`.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        Self {
            a: next.a * self.a + next.b * self.d,
            b: next.a * self.b + next.b * self.e,
            c: next.a * self.c + next.b * self.f + next.c,
            d: next.d * self.a + next.e * self.d,
            e: next.d * self.b + next.e * self.e,
            f: next.d * self.c + next.e * self.f + next.f,
        }
    }

    /// The map back; `None` when it is singular or not finite.
    #[must_use]
    pub fn inverse(&self) -> Option<Self> {
        let det = self.a * self.e - self.b * self.d;
        if !det.is_finite() || det.abs() < 1e-12 {
            return None;
        }
        let (a, b, d, e) = (self.e / det, -self.b / det, -self.d / det, self.a / det);
        Some(Self { a, b, c: -(a * self.c + b * self.f), d, e, f: -(d * self.c + e * self.f) })
    }

    /// Where a point goes.
    #[must_use]
    pub fn apply(&self, p: Point) -> Point {
        let (x, y) = (f64::from(p.x), f64::from(p.y));
        Point::new(
            (self.a * x + self.b * y + self.c) as f32,
            (self.d * x + self.e * y + self.f) as f32,
        )
    }

    /// Square root of the area factor.
    #[must_use]
    pub fn mean_scale(&self) -> f64 {
        (self.a * self.e - self.b * self.d).abs().sqrt()
    }

    /// Closed-form least-squares similarity (no reflection) that takes `from` to `to`.
    /// `None` when the points coincide, are not finite, or are fewer than two.
    /// ALGORITHMS.md §1.4: a = Σ(s·d)/Σ|s|², b = Σ(s×d)/Σ|s|².
    #[must_use]
    pub fn similarity(from: &[Point], to: &[Point]) -> Option<Self> {
        if from.len() != to.len() || from.len() < 2 {
            return None;
        }
        let n = from.len() as f64;
        let mean = |points: &[Point]| {
            let sum =
                points.iter().fold((0.0, 0.0), |m, p| (m.0 + f64::from(p.x), m.1 + f64::from(p.y)));
            (sum.0 / n, sum.1 / n)
        };
        let (mf, mt) = (mean(from), mean(to));
        let (mut dot, mut cross, mut norm) = (0.0, 0.0, 0.0);
        for (p, q) in from.iter().zip(to) {
            let (sx, sy) = (f64::from(p.x) - mf.0, f64::from(p.y) - mf.1);
            let (dx, dy) = (f64::from(q.x) - mt.0, f64::from(q.y) - mt.1);
            dot += sx * dx + sy * dy;
            cross += sx * dy - sy * dx;
            norm += sx * sx + sy * sy;
        }
        let (a, b) = (dot / norm, cross / norm);
        if !(norm > 1e-9 && a.is_finite() && b.is_finite()) {
            return None;
        }
        let c = mt.0 - a * mf.0 + b * mf.1;
        let f = mt.1 - b * mf.0 - a * mf.1;
        Some(Self { a, b: -b, c, d: b, e: a, f })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Eyes, nose and mouth corners of an upright face.
    const FACE: [Point; 5] = [
        Point::new(46.3, 51.7),
        Point::new(81.5, 51.5),
        Point::new(64.0, 71.7),
        Point::new(49.5, 92.4),
        Point::new(78.7, 92.2),
    ];

    fn close(p: Point, q: Point) -> bool {
        p.distance(q) < 1e-3 * (1.0 + q.x.abs() + q.y.abs())
    }

    #[test]
    fn rotation_turns_x_towards_y() {
        let quarter = Affine2::rotate(std::f64::consts::FRAC_PI_2);
        assert!(close(quarter.apply(Point::new(2.0, 0.0)), Point::new(0.0, 2.0)));
    }

    #[test]
    fn then_applies_the_receiver_first() {
        let map = Affine2::translate(1.0, 2.0).then(&Affine2::scale(3.0, 5.0));
        assert_eq!(map.apply(Point::new(1.0, 1.0)), Point::new(6.0, 15.0));
    }

    #[test]
    fn singular_and_endless_maps_have_no_inverse() {
        assert_eq!(Affine2::scale(0.0, 1.0).inverse(), None);
        let flat = Affine2 { a: 1.0, b: 2.0, d: 2.0, e: 4.0, ..Affine2::IDENTITY };
        assert_eq!(flat.inverse(), None);
        assert_eq!(Affine2 { a: f64::NAN, ..Affine2::IDENTITY }.inverse(), None);
        assert_eq!(Affine2::scale(f64::INFINITY, 1.0).inverse(), None);
    }

    #[test]
    fn similarity_refuses_points_that_say_nothing() {
        let same = [Point::new(3.0, 4.0); 5];
        assert_eq!(Affine2::similarity(&same, &FACE), None);
        assert_eq!(Affine2::similarity(&FACE[..1], &FACE[..1]), None);
        assert_eq!(Affine2::similarity(&FACE, &FACE[..4]), None);
        let mut holed = FACE;
        holed[2].x = f32::NAN;
        assert_eq!(Affine2::similarity(&holed, &FACE), None);
        assert_eq!(Affine2::similarity(&FACE, &holed), None);
    }

    #[test]
    fn mirrored_labels_shrink_the_similarity() {
        // Left and right named the wrong way round: no turn fits, and the scale tells.
        let mirrored = [FACE[1], FACE[0], FACE[2], FACE[4], FACE[3]];
        let map = Affine2::similarity(&mirrored, &FACE).unwrap();
        assert!(map.mean_scale() < 0.4, "{}", map.mean_scale());
    }

    #[test]
    fn overlap_of_rectangles() {
        let a = Rect::new(0.0, 0.0, 4.0, 4.0);
        assert_eq!(a.iou(&a), 1.0);
        assert_eq!(a.iou(&Rect::new(2.0, 0.0, 6.0, 4.0)), 8.0 / 24.0);
        assert_eq!(a.iou(&Rect::new(4.0, 4.0, 5.0, 5.0)), 0.0);
        assert_eq!(Rect::default().iou(&Rect::default()), 0.0);
    }

    #[test]
    fn pixels_of_a_rectangle_stay_in_the_picture() {
        let size = Size::new(10, 8);
        let roi = Rect::new(-3.0, 1.2, 2.5, 90.0).pixels(size).unwrap();
        assert_eq!(roi, Roi { x: 0, y: 1, width: 4, height: 7 });
        assert_eq!(Rect::new(12.0, 0.0, 15.0, 3.0).pixels(size), None);
        assert_eq!(Rect::new(-9.0, 0.0, -5.0, 3.0).pixels(size), None);
        assert_eq!(Rect::new(f32::NAN, f32::NAN, f32::NAN, f32::NAN).pixels(size), None);
        let all = Rect::new(f32::NEG_INFINITY, -1e30, f32::INFINITY, 1e30).pixels(size);
        assert_eq!(all, Some(Roi::whole(size)));
    }

    proptest! {
        #[test]
        fn inverse_leads_back(
            angle in -7.0_f64..7.0,
            scale in 0.01_f64..100.0,
            stretch in 0.5_f64..2.0,
            (dx, dy) in (-2e3_f64..2e3, -2e3_f64..2e3),
            (x, y) in (-2e3_f32..2e3, -2e3_f32..2e3),
        ) {
            let map = Affine2::rotate(angle)
                .then(&Affine2::scale(scale, scale * stretch))
                .then(&Affine2::translate(dx, dy));
            let round = map.then(&map.inverse().unwrap());
            prop_assert!(close(round.apply(Point::new(x, y)), Point::new(x, y)));
        }

        #[test]
        fn similarity_finds_the_map_that_was_applied(
            angle in -3.1_f64..3.1,
            scale in 0.05_f64..20.0,
            (dx, dy) in (-2e3_f64..2e3, -2e3_f64..2e3),
        ) {
            let map = Affine2::rotate(angle)
                .then(&Affine2::scale(scale, scale))
                .then(&Affine2::translate(dx, dy));
            let found = Affine2::similarity(&FACE, &FACE.map(|p| map.apply(p))).unwrap();
            prop_assert!((found.mean_scale() - scale).abs() < 1e-3 * scale);
            for p in FACE {
                prop_assert!(close(found.apply(p), map.apply(p)));
            }
        }
    }
}
