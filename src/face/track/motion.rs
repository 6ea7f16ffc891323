//! Where a face will be: a Kalman filter of constant velocity for each side of its box.

use mien_pixels::geometry::{Point, Rect};
use serde::{Deserialize, Serialize};

/// Deviation of a detector's box, and of how much velocity changes from one frame to the next, as
/// shares of the face's size.
const MEASURED: f32 = 0.04;
const HURRIED: f32 = 0.01;
/// Deviation of the velocity of a face that was seen once, as a share of its size a frame.
const UNKNOWN: f32 = 0.06;
/// Frames after which a velocity is no longer believed.
const BELIEVED: f32 = 12.0;

/// Place and velocity of one coordinate, with their covariance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Axis {
    x: f32,
    v: f32,
    xx: f32,
    xv: f32,
    vv: f32,
}

impl Axis {
    fn new(x: f32, size: f32) -> Self {
        let (r, q) = (MEASURED * size, UNKNOWN * size);
        Self { x, v: 0.0, xx: r * r, xv: 0.0, vv: q * q }
    }

    fn ahead(self, frames: f32, size: f32) -> Self {
        let q = (HURRIED * size).powi(2) * frames;
        let seen = frames.clamp(-BELIEVED, BELIEVED);
        Self {
            x: self.x + self.v * seen,
            v: self.v,
            xx: self.xx + 2.0 * frames * self.xv + frames * frames * self.vv + q,
            xv: self.xv + frames * self.vv,
            vv: self.vv + q,
        }
    }

    fn corrected(self, z: f32, size: f32) -> Self {
        let r = (MEASURED * size).powi(2);
        let sum = self.xx + r;
        if !(sum.is_finite() && sum > 1e-9) {
            return Self::new(z, size);
        }
        let (kx, kv) = (self.xx / sum, self.xv / sum);
        let off = z - self.x;
        Self {
            x: self.x + kx * off,
            v: self.v + kv * off,
            xx: (1.0 - kx) * self.xx,
            xv: (1.0 - kx) * self.xv,
            vv: self.vv - kv * self.xv,
        }
    }
}

/// What a track's boxes say of its motion. Time is counted in frames.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Motion {
    /// Centre, width, height.
    axes: [Axis; 4],
    frame: u64,
}

fn parts(rect: &Rect) -> [f32; 4] {
    let c = rect.centre();
    [c.x, c.y, rect.width(), rect.height()]
}

fn size(rect: &Rect) -> f32 {
    rect.width().max(rect.height()).max(1.0)
}

impl Motion {
    /// A face that was seen for the first time.
    #[must_use]
    pub fn new(frame: u64, rect: &Rect) -> Self {
        Self { axes: parts(rect).map(|x| Axis::new(x, size(rect))), frame }
    }

    /// The frame of the last sighting.
    #[must_use]
    pub const fn frame(&self) -> u64 {
        self.frame
    }

    fn side(&self) -> f32 {
        self.axes[2].x.max(self.axes[3].x).max(1.0)
    }

    /// The box in a later frame, or an earlier one. Its size changes by half at most.
    #[must_use]
    pub fn at(&self, frame: u64) -> Rect {
        let frames = frame as f32 - self.frame as f32;
        let there = self.axes.map(|a| a.ahead(frames, self.side()));
        let sized = |i: usize| {
            let now = self.axes[i].x.max(1.0);
            there[i].x.clamp(now / 1.5, now * 1.5) / 2.0
        };
        let (w, h) = (sized(2), sized(3));
        let (x, y) = (there[0].x, there[1].x);
        Rect::new(x - w, y - h, x + w, y + h)
    }

    /// Takes a sighting in.
    pub fn see(&mut self, frame: u64, rect: &Rect) {
        let frames = frame as f32 - self.frame as f32;
        let side = size(rect);
        for (axis, z) in self.axes.iter_mut().zip(parts(rect)) {
            *axis = axis.ahead(frames, side).corrected(z, side);
        }
        self.frame = frame;
    }

    /// Pixels a frame.
    #[must_use]
    pub fn velocity(&self) -> Point {
        Point::new(self.axes[0].v, self.axes[1].v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: f32) -> Rect {
        Rect::new(x, 50.0, x + 40.0, 100.0)
    }

    #[test]
    fn a_steady_motion_is_followed_ahead_and_back() {
        let mut motion = Motion::new(0, &at(0.0));
        for frame in 1..=6_u16 {
            motion.see(u64::from(frame) * 8, &at(f32::from(frame) * 16.0));
        }
        assert!((motion.velocity().x - 2.0).abs() < 0.1, "{:?}", motion.velocity());
        assert!((motion.at(52).x0 - 104.0).abs() < 1.5, "{:?}", motion.at(52));
        assert!((motion.at(44).x0 - 88.0).abs() < 1.5, "{:?}", motion.at(44));
    }

    #[test]
    fn a_face_seen_once_is_expected_where_it_was() {
        assert_eq!(Motion::new(3, &at(10.0)).at(20), at(10.0));
    }

    #[test]
    fn no_velocity_carries_a_face_away_for_ever() {
        let mut motion = Motion::new(0, &at(0.0));
        motion.see(1, &at(10.0));
        let far = motion.at(10_000);
        assert!(far.x0 < 10.0 + 10.0 * BELIEVED && far.x0.is_finite());
        assert!((20.0..=80.0).contains(&far.width()));
    }
}
