//! The swap that needs no model: the source's skin on the target's mesh, in the target's light.

use mien_engine::backend::{Backend, Feather, Likeness, MeshWarp, Shape, Tone};
use mien_pixels::geometry::{Point, Rect, Roi};

use super::shape;
use super::texture::{Texture, check};
use super::topology as t;
use super::zone;
use crate::mask::{Place, Region};
use crate::subject::{Face, Mesh};
use crate::{Error, Result};

/// Share of the source's shape that the target takes.
const SHARE: f32 = 0.5;
/// How far the forehead's outline is drawn down towards the brows.
const FOREHEAD: f32 = 0.22;
/// Softness of the outline, of the lids and of the lips, in eye distances.
const EDGE: f32 = 0.13;
const LIDS: f32 = 0.02;
const LIPS: f32 = 0.02;
/// A point of the target counts where it faces the camera between these cosines.
const FACING: (f32, f32) = (0.0, 0.3);
/// Least share of points that must face the camera.
const SEEN: f32 = 0.4;

/// Puts the skin of `source` on a face, in place. Nothing outside the face's oval changes.
///
/// # Errors
/// `Face` when the mesh is no face's, or turned too far away: the caller covers the face.
/// `Engine`.
pub fn apply<B: Backend>(
    backend: &B,
    picture: &mut B::Picture,
    face: &Face,
    mesh: &Mesh,
    source: &Texture<B>,
    region: &Region<'_, B>,
) -> Result<()> {
    let size = backend.size(picture);
    check(mesh.points(), size)?;
    let place = Place::of(face, size)?;
    let fit = shape::fitted(&source.shape, mesh.points())
        .ok_or_else(|| Error::Face { detail: "its mesh fits no source".to_owned() })?;
    let facing: Vec<f32> = shape::facing(mesh.points())
        .iter()
        .map(|f| ((f - FACING.0) / (FACING.1 - FACING.0)).clamp(0.0, 1.0))
        .collect();
    if facing.iter().sum::<f32>() < SEEN * facing.len() as f32 {
        return Err(Error::Face { detail: "it is turned too far away to be swapped".to_owned() });
    }
    let target = mesh.flat();
    let there = shape::destination(mesh.points(), &fit, SHARE);
    let swap = Swap { backend, target: &target, there: &there, eyes: eye_distance(mesh) };
    let Some(roi) = Rect::around(&there).and_then(|r| r.pixels(size)) else { return Ok(()) };

    let engine = Error::engine;
    let triangles = whole();
    let warp = MeshWarp { from: &source.layout, to: &there, triangles: &triangles, roi };
    let (mut layer, _) = backend.warp_mesh(&source.picture, &warp).map_err(engine("swap"))?;
    let mut alpha = swap.alpha(picture, &facing, roi).map_err(engine("swap"))?;
    region.narrow(backend, &place, roi, &mut alpha)?;
    let tone = Tone { ratio: (0.7, 1.3), relight: 0.45, rim: 1.0, sigma: 0.35 * swap.eyes };
    backend.match_tone(&mut layer, picture, roi, &alpha, &tone).map_err(engine("swap"))?;
    swap.openings(picture, &mut layer, roi).map_err(engine("swap"))?;
    backend.paste(picture, &layer, roi, &alpha).map_err(engine("swap"))
}

/// Skin, eyes and mouth.
fn whole() -> Vec<[u16; 3]> {
    t::SKIN.iter().chain(&t::EYES).chain(&t::MOUTH).copied().collect()
}

/// In space, so that a turned face keeps its size.
fn eye_distance(mesh: &Mesh) -> f32 {
    let (a, b) = (mesh.points()[33], mesh.points()[263]);
    (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f32>().sqrt()
}

struct Swap<'a, B: Backend> {
    backend: &'a B,
    target: &'a [Point],
    there: &'a [Point],
    eyes: f32,
}

impl<B: Backend> Swap<'_, B> {
    fn ring(points: &[Point], ring: &[u16]) -> Vec<Point> {
        ring.iter().map(|i| points[usize::from(*i)]).collect()
    }

    /// The oval, its forehead drawn down towards the brows.
    fn oval(points: &[Point]) -> Vec<Point> {
        let down = {
            let (a, b) = (points[168], points[152]);
            let length = a.distance(b).max(1e-3);
            ((b.x - a.x) / length, (b.y - a.y) / length)
        };
        let brows = [70, 63, 105, 66, 107, 336, 296, 334, 293, 300].map(|i: usize| points[i]);
        let height = |p: Point| p.x * down.0 + p.y * down.1;
        let brow = brows.iter().map(|p| height(*p)).sum::<f32>() / brows.len() as f32;
        let draw = |p: Point| {
            let above = (brow - height(p)).max(0.0) * FOREHEAD;
            Point::new(p.x + down.0 * above, p.y + down.1 * above)
        };
        Self::ring(points, &t::OVAL).into_iter().map(draw).collect()
    }

    fn vertices(&self, values: &[f32], roi: Roi) -> mien_engine::Result<B::Alpha> {
        let (points, values) = (self.there.to_vec(), values.to_vec());
        let shape = Shape::Vertices { points, triangles: whole(), values };
        self.backend.mask(&[shape], roi)
    }

    /// Inside the oval of both faces, where the target faces the camera and no hair hangs.
    fn alpha(
        &self,
        picture: &B::Picture,
        facing: &[f32],
        roi: Roi,
    ) -> mien_engine::Result<B::Alpha> {
        let feather = Feather { width: EDGE * self.eyes };
        let oval = |points: &[Point]| Shape::Polygon { points: Self::oval(points), feather };
        let mut alpha = self.backend.mask(&[oval(self.there), oval(self.target)], roi)?;
        let front = self.vertices(facing, roi)?;
        self.backend.meet(&mut alpha, &front)?;
        let sample = self.vertices(&zone::SAMPLE, roi)?;
        let like = Likeness { near: 3.5, far: 5.5, grow: 0.02 * self.eyes };
        let mut keep = self.backend.likeness(picture, roi, &sample, &like)?;
        let mut elsewhere = self.vertices(&zone::FOREHEAD, roi)?;
        self.backend.invert(&mut elsewhere)?;
        self.backend.join(&mut keep, &elsewhere)?;
        self.backend.meet(&mut alpha, &keep)?;
        Ok(alpha)
    }

    /// Eyes and the open mouth stay the target's: its gaze, its lids, its teeth.
    fn openings(
        &self,
        picture: &B::Picture,
        layer: &mut B::Picture,
        roi: Roi,
    ) -> mien_engine::Result<()> {
        let mut triangles = t::EYES.to_vec();
        triangles.extend(t::MOUTH);
        let warp = MeshWarp { from: self.target, to: self.there, triangles: &triangles, roi };
        let (own, seen) = self.backend.warp_mesh(picture, &warp)?;
        let whole = Roi { x: 0, y: 0, ..roi };
        for (ring, width) in
            [(&t::EYE_LEFT[..], LIDS), (&t::EYE_RIGHT, LIDS), (&t::MOUTH_INNER, LIPS)]
        {
            let feather = Feather { width: width * self.eyes };
            let shape = Shape::Polygon { points: Self::ring(self.there, ring), feather };
            let mut alpha = self.backend.mask(&[shape], roi)?;
            self.backend.meet(&mut alpha, &seen)?;
            self.backend.paste(layer, &own, whole, &alpha)?;
        }
        Ok(())
    }
}
