//! One face: box, five landmarks, mesh, embedding. Each value is checked by its maker.

use mien_base::limits;
use mien_pixels::geometry::{Affine2, Point, Rect};

/// Number of points of a face mesh.
pub const MESH: usize = 468;

/// Image-left eye, image-right eye, nose, image-left and image-right mouth corner of an upright
/// face (the subject's right eye first), in picture pixels. All finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Landmarks5([Point; 5]);

impl Landmarks5 {
    /// Five points; `None` when one is not finite.
    #[must_use]
    pub fn new(points: [Point; 5]) -> Option<Self> {
        points.iter().all(|p| p.x.is_finite() && p.y.is_finite()).then_some(Self(points))
    }

    /// The points in their order.
    #[must_use]
    pub const fn points(&self) -> &[Point; 5] {
        &self.0
    }

    /// Distance between the eyes in pixels.
    #[must_use]
    pub fn eye_distance(&self) -> f32 {
        self.0[0].distance(self.0[1])
    }

    /// Angle of the eye line in radians; 0 when the face is upright, positive clockwise.
    #[must_use]
    pub fn roll(&self) -> f32 {
        (self.0[1].y - self.0[0].y).atan2(self.0[1].x - self.0[0].x)
    }

    /// The points elsewhere; `None` when one leaves the finite numbers.
    #[must_use]
    pub fn mapped(&self, map: &Affine2) -> Option<Self> {
        Self::new(self.0.map(|p| map.apply(p)))
    }

    /// The points as a report shows them.
    #[must_use]
    pub fn to_report(&self) -> [[f32; 2]; 5] {
        self.0.map(|p| [p.x, p.y])
    }
}

/// 468 points x, y, z of MediaPipe's topology: x and y in picture pixels, z in the same unit
/// (towards the camera is negative). All finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Mesh(Vec<[f32; 3]>);

impl Mesh {
    /// Points of a mesh; `None` when they are not 468 or one is not finite.
    #[must_use]
    pub fn new(points: Vec<[f32; 3]>) -> Option<Self> {
        let fine = points.len() == MESH && points.iter().flatten().all(|v| v.is_finite());
        fine.then_some(Self(points))
    }

    /// All points.
    #[must_use]
    pub fn points(&self) -> &[[f32; 3]] {
        &self.0
    }

    /// Point `index` in the picture.
    ///
    /// # Panics
    /// When the index is not below 468.
    #[must_use]
    pub fn at(&self, index: usize) -> Point {
        Point::new(self.0[index][0], self.0[index][1])
    }

    /// All points in the picture.
    #[must_use]
    pub fn flat(&self) -> Vec<Point> {
        self.0.iter().map(|p| Point::new(p[0], p[1])).collect()
    }

    /// The smallest rectangle around the mesh.
    #[must_use]
    pub fn rect(&self) -> Rect {
        Rect::around(&self.flat()).expect("a mesh has points")
    }

    /// Distance between the outer corners of the eyes in pixels.
    #[must_use]
    pub fn eye_distance(&self) -> f32 {
        self.at(33).distance(self.at(263))
    }

    /// Degrees away from frontal, right and down positive: yaw from the outer corners of the eyes,
    /// pitch from forehead and chin.
    #[must_use]
    pub fn pose(&self) -> (f32, f32) {
        let along = |a: usize, b: usize| {
            let (p, q) = (self.0[a], self.0[b]);
            let flat = (q[0] - p[0]).hypot(q[1] - p[1]);
            (q[2] - p[2]).atan2(flat).to_degrees()
        };
        // In the mean shape the chin lies nearer to the back than the forehead by about this.
        const REST: f32 = 10.0;
        (along(33, 263), along(10, 152) - REST)
    }

    /// The five points of `ArcFace`: centres of the eyes, nose tip, corners of the mouth.
    #[must_use]
    pub fn five(&self) -> Landmarks5 {
        let mean = |ids: [usize; 4]| {
            let sum =
                ids.iter().map(|&i| self.at(i)).fold((0.0, 0.0), |s, p| (s.0 + p.x, s.1 + p.y));
            Point::new(sum.0 / 4.0, sum.1 / 4.0)
        };
        Landmarks5([
            mean([33, 133, 159, 145]),
            mean([362, 263, 386, 374]),
            self.at(1),
            self.at(61),
            self.at(291),
        ])
    }
}

/// An identity as a direction: finite, of length 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding(Vec<f32>);

impl Embedding {
    /// Normalises; `None` when the values are none, too many, not finite, or all nearly zero.
    #[must_use]
    pub fn new(mut raw: Vec<f32>) -> Option<Self> {
        if raw.is_empty() || raw.len() > limits::EMBEDDING {
            return None;
        }
        let norm = raw.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
        if !norm.is_finite() || norm < 1e-6 {
            return None;
        }
        raw.iter_mut().for_each(|v| *v = (f64::from(*v) / norm) as f32);
        Some(Self(raw))
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.0
    }

    /// Cosine of the angle between two; `None` when they are of different widths, so of
    /// different embedders.
    #[must_use]
    pub fn cosine(&self, other: &Self) -> Option<f32> {
        let dot = || self.0.iter().zip(&other.0).map(|(a, b)| a * b).sum();
        (self.0.len() == other.0.len()).then(dot)
    }
}

/// A face as a detector finds it, in pixels of the upright picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Face {
    pub rect: Rect,
    /// 0..=1.
    pub score: f32,
    pub landmarks: Landmarks5,
}

impl Face {
    /// Side of the square that is taken as its size: the longer of width and height.
    #[must_use]
    pub fn side(&self) -> f32 {
        self.rect.width().max(self.rect.height())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_embedding_has_length_one_or_is_none() {
        let e = Embedding::new(vec![3.0, 4.0]).unwrap();
        assert_eq!(e.values(), [0.6, 0.8]);
        assert_eq!(e.cosine(&Embedding::new(vec![-4.0, 3.0]).unwrap()), Some(0.0));
        assert_eq!(e.cosine(&Embedding::new(vec![1.0]).unwrap()), None);
        for bad in [vec![], vec![0.0; 4], vec![1.0, f32::NAN], vec![f32::INFINITY], vec![1.0; 1025]]
        {
            assert!(Embedding::new(bad).is_none());
        }
    }

    #[test]
    fn a_mesh_is_468_finite_points() {
        assert!(Mesh::new(vec![[0.0; 3]; 467]).is_none());
        let mut points = vec![[1.0; 3]; 468];
        points[33] = [10.0, 20.0, 0.0];
        points[263] = [13.0, 24.0, 0.0];
        assert_eq!(Mesh::new(points.clone()).unwrap().eye_distance(), 5.0);
        points[7][2] = f32::NAN;
        assert!(Mesh::new(points).is_none());
    }

    #[test]
    fn roll_grows_clockwise_on_screen() {
        let at = |x, y| Point::new(x, y);
        let points = [at(0.0, 0.0), at(10.0, 10.0), at(0.0, 10.0), at(-5.0, 15.0), at(5.0, 20.0)];
        let roll = Landmarks5::new(points).unwrap().roll();
        assert!((roll - std::f32::consts::FRAC_PI_4).abs() < 1e-6);
    }
}
