//! Steadies what is pasted: a still face has no wobble, a moving one no lag.
//!
//! A mesh is taken apart into pose (place, size, turn) and shape.
//!
//! The shape's numbers go through a One-Euro filter: the slower one moves, the more it is smoothed.
//! It runs from both sides, over all frames before and over the few that the window knows after,
//! and the two meet in their mean: what one lags the other leads.
//!
//! The pose of a face moves all the time, and a One-Euro filter would let its jitter pass with the
//! motion. But how a face moved from one frame to the next is seen in its pixels (`pixels::flow`),
//! far more exactly than a mesh says. So what is smoothed is how the poses differ from the path
//! that the pixels took: a parabola is laid through it around a frame. Where the two differ too
//! suddenly, the pose counts as it was found.

use std::collections::VecDeque;

use mien_pixels::flow::{Shift, shift};
use mien_pixels::geometry::{Affine2, Point};
use serde::{Deserialize, Serialize};

use crate::subject::{MESH, Mesh};
use crate::swap;

/// Numbers of a pose, and of a mesh with its pose.
const POSE: usize = 4;
const ALL: usize = POSE + 3 * MESH;
/// Most frames between two meshes that are filtered as neighbours.
const GAP: u64 = 3;

/// How a One-Euro filter is set; time in frames, speeds in faces a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// Cut-off of what stands still, in cycles a frame.
    pub still: f32,
    /// What speed adds to it.
    pub speed: f32,
    /// Cut-off of the speed itself.
    pub slope: f32,
}

const OF_SHAPE: Tuning = Tuning { still: 0.02, speed: 3.0, slope: 0.1 };
/// Poses on each side of a frame through which a parabola is laid.
const REACH: u64 = 6;
/// How far a pose may lie from its parabola as jitter, and from where on it is motion, in faces
/// (distances between the eyes).
const JITTER: (f32, f32) = (0.06, 0.12);

/// Place, size and turn of one frame's mesh: x, y, the logarithm of the scale, radians.
pub type Pose = [f32; POSE];

/// A frame's pose, and the path that the pixels took up to it from an arbitrary start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Posed {
    frame: u64,
    pose: Pose,
    path: Pose,
}

/// Side of the patch of a face in which its movement is seen, and what it spans in faces.
pub const PATCH: u32 = 64;
const SPAN: f64 = 2.2;

/// Takes the pixels of a patch to those of the picture.
#[must_use]
pub fn patch(pose: &Pose) -> Affine2 {
    let half = f64::from(PATCH - 1) / 2.0;
    let scale = f64::from(pose[2].exp()) * SPAN / f64::from(PATCH);
    Affine2::translate(-half, -half)
        .then(&Affine2::scale(scale, scale))
        .then(&Affine2::rotate(f64::from(pose[3])))
        .then(&Affine2::translate(f64::from(pose[0]), f64::from(pose[1])))
}

/// How a face whose pose was `before` moved, as the patches of both frames, both taken by that
/// pose, say; `now` is where its mesh is.
fn flow(before: &Pose, now: &Pose, patches: [&[f32]; 2]) -> Option<Pose> {
    let map = Affine2 { c: 0.0, f: 0.0, ..patch(before) };
    let (to, back) = (map, map.inverse()?);
    let away = back.apply(Point::new(now[0] - before[0], now[1] - before[1]));
    let guess =
        Shift { x: away.x, y: away.y, grown: now[2] - before[2], turned: now[3] - before[3] };
    let found = shift(patches[0], patches[1], PATCH as usize, guess)?;
    let moved = to.apply(Point::new(found.x, found.y));
    Some([moved.x, moved.y, found.grown, found.turned])
}

/// The pose of `frame` on the parabola (with few poses the line, with fewer their mean) through
/// those around it, weighed by nearness.
fn fitted(poses: &VecDeque<Posed>, frame: u64) -> Option<Pose> {
    let at = poses.iter().find(|p| p.frame == frame)?;
    let own = at.pose;
    let off = |p: &Posed| -> (u64, Pose) {
        (p.frame, std::array::from_fn(|i| p.pose[i] - (p.path[i] - at.path[i])))
    };
    let near = || poses.iter().filter(|p| p.frame.abs_diff(frame) <= REACH).map(off);
    let sides =
        [near().filter(|(f, _)| *f < frame).count(), near().filter(|(f, _)| *f > frame).count()];
    let degree = match sides[0].min(sides[1]) {
        3.. => 2,
        _ if sides[0] + sides[1] >= 3 => 1,
        _ => return Some(own),
    };
    // Moments of time, and of each number with time.
    let (mut time, mut sums) = ([0.0f64; 5], [[0.0f64; 3]; POSE]);
    for (f, pose) in near() {
        let t = (f as f64 - frame as f64) / REACH as f64;
        let weight = (1.0 - (t * REACH as f64 / (REACH as f64 + 1.0)).abs().powi(3)).powi(3);
        let mut power = weight;
        for k in 0..5 {
            time[k] += power;
            if k < 3 {
                for (sum, v) in sums.iter_mut().zip(pose) {
                    sum[k] += power * f64::from(v);
                }
            }
            power *= t;
        }
    }
    let at = |[a, b, c]: [f64; 3]| -> Option<f32> {
        let [s0, s1, s2, s3, s4] = time;
        let value = if degree == 1 {
            (a * s2 - b * s1) / (s0 * s2 - s1 * s1)
        } else {
            let det =
                s0 * (s2 * s4 - s3 * s3) - s1 * (s1 * s4 - s3 * s2) + s2 * (s1 * s3 - s2 * s2);
            let top = a * (s2 * s4 - s3 * s3) - s1 * (b * s4 - s3 * c) + s2 * (b * s3 - s2 * c);
            top / det
        };
        value.is_finite().then_some(value as f32)
    };
    let mut fit = own;
    for (fit, sum) in fit.iter_mut().zip(sums) {
        *fit = at(sum)?;
    }
    let unit = own[2].exp().max(1e-3);
    let away = ((own[0] - fit[0]).hypot(own[1] - fit[1]) / unit)
        .max((own[2] - fit[2]).abs())
        .max((own[3] - fit[3]).abs());
    let share = ((away - JITTER.0) / (JITTER.1 - JITTER.0)).clamp(0.0, 1.0);
    Some(std::array::from_fn(|i| fit[i] + share * (own[i] - fit[i])))
}

fn share(cutoff: f32, frames: f32) -> f32 {
    let t = std::f32::consts::TAU * cutoff * frames;
    t / (t + 1.0)
}

/// One number.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct OneEuro {
    value: f32,
    slope: f32,
}

impl OneEuro {
    /// A filter that has seen one value.
    #[must_use]
    pub const fn at(value: f32) -> Self {
        Self { value, slope: 0.0 }
    }

    /// The next value, `frames` later; `unit` is the length of a face in what the value counts.
    pub fn step(&mut self, value: f32, frames: f32, unit: f32, how: &Tuning) -> f32 {
        let slope = (value - self.value) / frames;
        self.slope += share(how.slope, frames) * (slope - self.slope);
        let cutoff = how.still + how.speed * (self.slope / unit).abs();
        self.value += share(cutoff, frames) * (value - self.value);
        self.value
    }
}

/// A mesh taken apart.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    frame: u64,
    raw: Vec<f32>,
    forward: Vec<f32>,
}

/// The meshes of one track, the newest last.
#[derive(Debug, Default)]
pub struct Following {
    samples: VecDeque<Sample>,
    /// Poses of these frames and of some before.
    poses: VecDeque<Posed>,
    /// The newest frame's patch, taken by its own pose.
    patch: Vec<f32>,
    filter: Vec<OneEuro>,
    /// Frame of the newest that went through the filter.
    newest: Option<u64>,
    spare: Vec<Sample>,
    back: Vec<OneEuro>,
}

fn apart(mesh: &Mesh, near: Option<f32>, out: &mut Vec<f32>) -> Option<()> {
    let (mean, flat) = (swap::mean(), mesh.flat());
    let rest: Vec<Point> = mean.iter().map(|p| Point::new(p[0], p[1])).collect();
    let map = Affine2::similarity(&rest, &flat)?;
    let back = map.inverse()?;
    let scale = map.mean_scale() as f32;
    let mut turn = map.d.atan2(map.a) as f32;
    // The turn nearest to the one before, so that no filter sees a leap from one side to the other.
    if let Some(near) = near {
        turn += std::f32::consts::TAU * ((near - turn) / std::f32::consts::TAU).round();
    }
    out.clear();
    out.extend([map.c as f32, map.f as f32, scale.ln(), turn]);
    for p in mesh.points() {
        let q = back.apply(Point::new(p[0], p[1]));
        out.extend([q.x, q.y, p[2] / scale]);
    }
    out.iter().all(|v| v.is_finite()).then_some(())
}

fn together(values: &[f32]) -> Option<Mesh> {
    let (&[x, y, log, turn], local) = values.split_first_chunk::<POSE>()?;
    let scale = f64::from(log.exp());
    let map = Affine2::scale(scale, scale)
        .then(&Affine2::rotate(f64::from(turn)))
        .then(&Affine2::translate(f64::from(x), f64::from(y)));
    let place = |p: &[f32]| {
        let q = map.apply(Point::new(p[0], p[1]));
        [q.x, q.y, p[2] * scale as f32]
    };
    Mesh::new(local.chunks_exact(3).map(place).collect())
}

fn pass(filter: &mut Vec<OneEuro>, values: &[f32], frames: Option<f32>, out: &mut Vec<f32>) {
    out.clear();
    match frames.filter(|_| filter.len() == values.len()) {
        Some(frames) => {
            for (i, (filter, value)) in filter.iter_mut().zip(values).enumerate() {
                out.push(match i {
                    0..POSE => *value,
                    _ => filter.step(*value, frames, 1.0, &OF_SHAPE),
                });
            }
        }
        None => {
            filter.clear();
            filter.extend(values.iter().map(|v| OneEuro::at(*v)));
            out.extend_from_slice(values);
        }
    }
}

impl Following {
    /// Where the patch of the frame before this one was taken, when it is known.
    #[must_use]
    pub fn view(&self, frame: u64) -> Option<Pose> {
        let last = self.poses.back()?;
        (last.frame + 1 == frame && !self.patch.is_empty()).then_some(last.pose)
    }

    /// The pose of the newest mesh.
    #[must_use]
    pub fn pose(&self) -> Option<Pose> {
        self.poses.back().map(|p| p.pose)
    }

    /// Keeps the patch of the newest frame, taken by its pose.
    pub fn show(&mut self, values: &[f32]) {
        self.patch.clear();
        if values.len() == (PATCH * PATCH) as usize {
            self.patch.extend_from_slice(values);
        }
    }

    /// Takes the mesh of a later frame in. `seen` is that frame's patch, taken where `view` said.
    pub fn add(&mut self, frame: u64, mesh: &Mesh, seen: Option<&[f32]>) {
        let mut sample = self.spare.pop().unwrap_or_else(|| Sample {
            frame,
            raw: Vec::with_capacity(ALL),
            forward: Vec::with_capacity(ALL),
        });
        sample.frame = frame;
        let near = self.poses.back().map(|p| p.pose[3]);
        if apart(mesh, near, &mut sample.raw).is_none() {
            self.spare.push(sample);
            return;
        }
        let frames = self.newest.and_then(|n| near_by(n, frame));
        if frames.is_none() {
            self.poses.clear();
        }
        let pose: Pose = std::array::from_fn(|i| sample.raw[i]);
        let path = match (self.poses.back(), seen) {
            (Some(last), Some(seen)) if seen.len() == self.patch.len() => {
                let moved = flow(&last.pose, &pose, [&self.patch, seen]);
                // Where the pixels say nothing, the mesh does.
                let moved = moved.unwrap_or(std::array::from_fn(|i| pose[i] - last.pose[i]));
                std::array::from_fn(|i| last.path[i] + moved[i])
            }
            (Some(last), _) => std::array::from_fn(|i| last.path[i] + pose[i] - last.pose[i]),
            (None, _) => pose,
        };
        self.poses.push_back(Posed { frame, pose, path });
        self.patch.clear();
        pass(&mut self.filter, &sample.raw, frames, &mut sample.forward);
        self.newest = Some(frame);
        self.samples.push_back(sample);
    }

    /// The newest mesh as it was seen, where it is of this frame or a neighbour's.
    #[must_use]
    pub fn before(&self, frame: u64) -> Option<Mesh> {
        let last = self.samples.back()?;
        near_by(last.frame, frame)?;
        together(&last.raw)
    }

    /// True when the mesh of a frame is there.
    #[must_use]
    pub fn has(&self, frame: u64) -> bool {
        self.samples.iter().any(|s| s.frame == frame)
    }

    /// The steadied mesh of a frame.
    pub fn at(&mut self, frame: u64) -> Option<Mesh> {
        let at = self.samples.iter().position(|s| s.frame == frame)?;
        let mut end = at + 1;
        while end < self.samples.len()
            && near_by(self.samples[end - 1].frame, self.samples[end].frame).is_some()
        {
            end += 1;
        }
        let mut out = self.spare.pop().unwrap_or_else(|| Sample {
            frame,
            raw: Vec::with_capacity(ALL),
            forward: Vec::with_capacity(ALL),
        });
        let mut later: Option<u64> = None;
        for sample in self.samples.range(at..end).rev() {
            let frames = later.map(|l| (l - sample.frame) as f32);
            if later.is_none() {
                self.back.clear();
            }
            pass(&mut self.back, &sample.raw, frames, &mut out.raw);
            later = Some(sample.frame);
        }
        out.raw.iter_mut().zip(&self.samples[at].forward).for_each(|(b, f)| *b = (*b + f) / 2.0);
        if let Some(pose) = fitted(&self.poses, frame) {
            out.raw[..POSE].copy_from_slice(&pose);
        }
        let mesh = together(&out.raw);
        self.spare.push(out);
        mesh
    }

    /// Lets go of frames before this one.
    pub fn forget(&mut self, before: u64) {
        while self.samples.front().is_some_and(|s| s.frame < before) {
            self.spare.extend(self.samples.pop_front());
        }
        while self.poses.front().is_some_and(|p| p.frame + REACH < before) {
            self.poses.pop_front();
        }
    }

    /// What it has come to, for a state; `keep` takes it up again.
    #[must_use]
    pub fn kept(&self) -> Option<KeptMesh> {
        let newest = self.newest?;
        let shape = self.filter.iter().skip(POSE).map(|f| f.value).collect();
        Some(KeptMesh { newest, shape, poses: self.poses.iter().copied().collect() })
    }

    /// Goes on from `kept`: speeds begin at 0.
    pub fn keep(&mut self, kept: Option<KeptMesh>) {
        self.samples.clear();
        self.filter.clear();
        self.poses.clear();
        self.patch.clear();
        self.newest = None;
        let most = 2 * REACH as usize + 2;
        if let Some(kept) = kept.filter(|k| k.shape.len() == ALL - POSE && k.poses.len() <= most) {
            self.newest = Some(kept.newest);
            let none = std::iter::repeat_n(OneEuro::at(0.0), POSE);
            self.filter.extend(none.chain(kept.shape.into_iter().map(OneEuro::at)));
            self.poses.extend(kept.poses);
        }
    }
}

/// What is left of a track's meshes at the end of a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptMesh {
    newest: u64,
    shape: Vec<f32>,
    poses: Vec<Posed>,
}

impl KeptMesh {
    /// Bytes that it takes in a state, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        32 + 4 * self.shape.len() + 48 * self.poses.len()
    }
}

fn near_by(before: u64, frame: u64) -> Option<f32> {
    let apart = frame.checked_sub(before).filter(|d| (1..=GAP).contains(d))?;
    Some(apart as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of noise, the same each time.
    struct Noise(u32);

    impl Noise {
        fn next(&mut self) -> f32 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.0 >> 8) as f32 / (1 << 23) as f32 - 1.0
        }
    }

    /// The mean face 100 pixels between the eyes, moved, each point and the whole with noise.
    fn mesh(x: f32, noise: f32, random: &mut Noise) -> Mesh {
        let (jx, jy) = (noise * random.next(), noise * random.next());
        let mut place = |p: [f32; 3]| {
            [
                100.0 * p[0] + x + jx + noise * random.next(),
                100.0 * p[1] + 300.0 + jy + noise * random.next(),
                100.0 * p[2],
            ]
        };
        Mesh::new(swap::mean().into_iter().map(&mut place).collect()).unwrap()
    }

    /// The patch of a face of soft structure that has moved by `x`.
    fn seen(pose: &Pose, x: f32) -> Vec<f32> {
        let map = patch(pose);
        let value = |i: u32| {
            let p = map.apply(Point::new((i % PATCH) as f32, (i / PATCH) as f32));
            let (u, v) = (p.x - x, p.y);
            120.0 + 40.0 * (u * 0.09).sin() * (v * 0.07).cos() + 30.0 * (u * 0.04 + v * 0.05).sin()
        };
        (0..PATCH * PATCH).map(value).collect()
    }

    /// The steadied meshes of a path, each as soon as `window` later ones are known.
    fn run(path: &[f32], noise: f32, window: usize) -> (Vec<Mesh>, Vec<Mesh>) {
        let (mut random, mut following) = (Noise(7), Following::default());
        let raw: Vec<Mesh> = path.iter().map(|x| mesh(*x, noise, &mut random)).collect();
        let mut out = Vec::new();
        for n in 0..raw.len() + window {
            if let (Some(mesh), Some(x)) = (raw.get(n), path.get(n)) {
                let before = following.view(n as u64).map(|pose| seen(&pose, *x));
                following.add(n as u64, mesh, before.as_deref());
                let own = seen(&following.pose().unwrap(), *x);
                following.show(&own);
            }
            if n >= window {
                out.push(following.at((n - window) as u64).unwrap());
                following.forget((n - window) as u64);
            }
        }
        (raw, out)
    }

    fn mean_x(mesh: &Mesh) -> f32 {
        mesh.points().iter().map(|p| p[0]).sum::<f32>() / MESH as f32
    }

    fn wobble(meshes: &[Mesh]) -> f32 {
        let second = |w: &[Mesh]| {
            (0..MESH)
                .map(|i| {
                    let [a, b, c] = [0, 1, 2].map(|k| w[k].at(i));
                    (a.x - 2.0 * b.x + c.x).hypot(a.y - 2.0 * b.y + c.y)
                })
                .sum::<f32>()
        };
        meshes.windows(3).map(second).sum::<f32>() / (meshes.len() * MESH) as f32
    }

    #[test]
    fn a_still_face_does_not_wobble() {
        let (raw, out) = run(&[300.0; 40], 1.0, 8);
        assert!(wobble(&out[4..]) < 0.15 * wobble(&raw[4..]), "{}", wobble(&out) / wobble(&raw));
    }

    #[test]
    fn a_moving_face_does_not_lag() {
        // It stands, moves at 5 pixels a frame (a twentieth of the eyes' distance), and stands.
        let path: Vec<f32> = (0..80).map(|n| 300.0 + 5.0 * (n - 20).clamp(0, 40) as f32).collect();
        let (raw, out) = run(&path, 0.3, 8);
        let off: Vec<f32> = raw.iter().zip(&out).map(|(r, o)| mean_x(o) - mean_x(r)).collect();
        // In the middle of the way, and where it starts and stops.
        assert!(off[35..45].iter().all(|d| d.abs() < 0.8), "{:?}", &off[35..45]);
        assert!(off[..72].iter().all(|d| d.abs() < 4.0), "{off:?}");
        let lag = off[30..55].iter().sum::<f32>() / 25.0;
        assert!(lag.abs() < 0.3, "{lag}");
    }

    #[test]
    fn a_mesh_goes_apart_and_together_again() {
        let mesh = mesh(120.0, 2.0, &mut Noise(3));
        let mut values = Vec::new();
        apart(&mesh, None, &mut values).unwrap();
        let back = together(&values).unwrap();
        for (a, b) in mesh.points().iter().zip(back.points()) {
            assert!((0..3).all(|c| (a[c] - b[c]).abs() < 0.02), "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_turn_over_the_top_is_no_leap() {
        let mut values = Vec::new();
        let upside = |by: f32| {
            let (sin, cos) = (std::f32::consts::PI + by).sin_cos();
            let turn = |p: [f32; 3]| {
                [100.0 * (p[0] * cos - p[1] * sin), 100.0 * (p[0] * sin + p[1] * cos), 0.0]
            };
            Mesh::new(swap::mean().into_iter().map(turn).collect()).unwrap()
        };
        apart(&upside(-0.1), None, &mut values).unwrap();
        let before = values[3];
        apart(&upside(0.1), Some(before), &mut values).unwrap();
        assert!((values[3] - before - 0.2).abs() < 0.01, "{before} {}", values[3]);
    }

    #[test]
    fn far_frames_are_no_neighbours() {
        let mut following = Following::default();
        let mut random = Noise(1);
        following.add(0, &mesh(100.0, 0.0, &mut random), None);
        following.add(40, &mesh(300.0, 0.0, &mut random), None);
        assert!((mean_x(&following.at(40).unwrap()) - 300.0).abs() < 5.0);
        assert!(following.before(41).is_some() && following.before(60).is_none());
    }
}
