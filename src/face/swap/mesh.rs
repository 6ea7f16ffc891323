//! The swap that needs no model: the source's skin on the target's mesh, in the target's light.

use mien_engine::backend::{Backend, Cover, Feather, Likeness, MeshWarp, Shape, Tone};
use mien_pixels::geometry::{Point, Rect, Roi};

use super::shape;
use super::texture::{Texture, check};
use super::topology as t;
use super::zone;
use crate::mask::{Place, Region};
use crate::subject::{Face, Mesh};
use crate::{Error, Result};

/// How far the forehead's outline is drawn down towards the brows.
const FOREHEAD: f32 = 0.22;
/// Softness of the outline, of the lids and of the lips, in eye distances.
const EDGE: f32 = 0.1;
const LIDS: f32 = 0.02;
const LIPS: f32 = 0.02;
/// A point of the target counts where it faces the camera between these cosines.
const FACING: (f32, f32) = (-0.05, 0.12);
/// Least share of points that must face the camera.
const SEEN: f32 = 0.72;

/// How much of the source, and how much of the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Manner {
    /// Share of the source's shape that the target takes.
    share: f32,
    /// Light that comes from the target.
    relight: f32,
    /// The same at the outline.
    rim: f32,
    /// Coarseness of that light in eye distances.
    sigma: f32,
    /// How far the forehead's outline is drawn down.
    forehead: f32,
    /// The target's eyes and open mouth stay.
    openings: bool,
    /// Deviation, as a share of the face's width, by which the whole face is blurred beneath.
    under: Option<f32>,
}

impl Manner {
    /// A person's face: gaze and mouth are the target's.
    pub(crate) const SWAP: Self = Self {
        share: 0.8,
        relight: 0.45,
        rim: 1.0,
        sigma: 0.35,
        forehead: FOREHEAD,
        openings: true,
        under: None,
    };
    /// A made face: nothing of the target but pose and coarse light.
    pub(crate) const MADE: Self = Self {
        share: 1.0,
        relight: 0.5,
        rim: 0.5,
        sigma: 0.8,
        forehead: 0.0,
        openings: false,
        under: Some(0.2),
    };
}

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
    let place = Place::of(face, backend.size(picture))?;
    lay(backend, picture, &place, mesh, source, region, &Manner::SWAP)
}

/// As `apply`, in a manner.
pub(crate) fn lay<B: Backend>(
    backend: &B,
    picture: &mut B::Picture,
    place: &Place,
    mesh: &Mesh,
    source: &Texture<B>,
    region: &Region<'_, B>,
    manner: &Manner,
) -> Result<()> {
    let size = backend.size(picture);
    check(mesh.points(), size)?;
    let fit = shape::fitted(&source.shape, mesh.points())
        .ok_or_else(|| Error::Face { detail: "its mesh fits no source".to_owned() })?;
    let facing: Vec<f32> = shape::facing(mesh.points())
        .iter()
        .map(|f| ((f - FACING.0) / (FACING.1 - FACING.0)).clamp(0.0, 1.0))
        .collect();
    if facing.iter().sum::<f32>() < SEEN * facing.len() as f32 {
        return Err(Error::Face { detail: "it is turned too far away to be swapped".to_owned() });
    }
    let shown: Vec<f32> = facing.iter().zip(&source.trust).map(|(f, t)| f.min(*t)).collect();
    let target = mesh.flat();
    let there = shape::destination(mesh.points(), &fit, manner.share, manner.openings);
    let swap = Swap { backend, target: &target, there: &there, eyes: eye_distance(mesh), manner };
    let Some(roi) = Rect::around(&there).and_then(|r| r.pixels(size)) else { return Ok(()) };

    let engine = Error::engine;
    let triangles = whole();
    let warp = MeshWarp { from: &source.layout, to: &there, triangles: &triangles, roi };
    let (mut layer, covered) = backend.warp_mesh(&source.picture, &warp).map_err(engine("swap"))?;
    let mut alpha = swap.alpha(picture, &shown, roi).map_err(engine("swap"))?;
    // Where a triangle folded there is nothing to lay on.
    backend.meet(&mut alpha, &covered).map_err(engine("swap"))?;
    region.narrow(backend, place, roi, &mut alpha)?;
    let tone = Tone {
        ratio: (0.7, 1.3),
        relight: manner.relight,
        rim: manner.rim,
        sigma: manner.sigma * swap.eyes,
    };
    backend.match_tone(&mut layer, picture, roi, &alpha, &tone).map_err(engine("swap"))?;
    if manner.openings {
        swap.openings(picture, &mut layer, roi).map_err(engine("swap"))?;
    }
    if let Some(share) = manner.under {
        blur(backend, picture, place, share).map_err(engine("swap"))?;
    }
    backend.paste(picture, &layer, roi, &alpha).map_err(engine("swap"))
}

fn blur<B: Backend>(
    backend: &B,
    picture: &mut B::Picture,
    place: &Place,
    share: f32,
) -> mien_engine::Result<()> {
    let soft = 0.25 * place.half.0;
    let Some(roi) = place.roi(1.0, soft, backend.size(picture)) else { return Ok(()) };
    let feather = Feather { width: soft };
    let oval = Shape::Ellipse { to_picture: place.oval(1.0, soft), feather };
    let alpha = backend.mask(&[oval], roi)?;
    backend.cover(picture, roi, &alpha, &Cover::Blur { sigma: share * place.width() })
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
    manner: &'a Manner,
}

impl<B: Backend> Swap<'_, B> {
    fn ring(points: &[Point], ring: &[u16]) -> Vec<Point> {
        ring.iter().map(|i| points[usize::from(*i)]).collect()
    }

    /// The oval, its forehead drawn down towards the brows.
    fn oval(&self, points: &[Point]) -> Vec<Point> {
        let down = {
            let (a, b) = (points[168], points[152]);
            let length = a.distance(b).max(1e-3);
            ((b.x - a.x) / length, (b.y - a.y) / length)
        };
        let brows = [70, 63, 105, 66, 107, 336, 296, 334, 293, 300].map(|i: usize| points[i]);
        let height = |p: Point| p.x * down.0 + p.y * down.1;
        let brow = brows.iter().map(|p| height(*p)).sum::<f32>() / brows.len() as f32;
        let draw = |p: Point| {
            let above = (brow - height(p)).max(0.0) * self.manner.forehead;
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
        shown: &[f32],
        roi: Roi,
    ) -> mien_engine::Result<B::Alpha> {
        let feather = Feather { width: EDGE * self.eyes };
        let oval = |points: &[Point]| Shape::Polygon { points: self.oval(points), feather };
        let mut alpha = self.backend.mask(&[oval(self.there), oval(self.target)], roi)?;
        let front = self.vertices(shown, roi)?;
        self.backend.meet(&mut alpha, &front)?;
        if !self.manner.openings {
            return Ok(alpha);
        }
        let sample = self.vertices(&zone::SAMPLE, roi)?;
        let like = Likeness { near: 4.0, far: 9.0, grow: 0.035 * self.eyes, soft: 0.4 };
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

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::recipe::Mask;
    use mien_engine::cpu::Cpu;
    use mien_pixels::geometry::Size;
    use mien_pixels::view::{Image, Rgb};

    const SIZE: Size = Size::new(200, 220);
    const SKIN: [u8; 3] = [200, 160, 140];

    /// The mean face in the middle of a picture, turned about its vertical axis.
    fn mesh(yaw: f32) -> Mesh {
        let (sin, cos) = yaw.sin_cos();
        let place = |[x, y, z]: [f32; 3]| {
            [80.0 * (x * cos + z * sin) + 100.0, 80.0 * y + 110.0, 80.0 * (z * cos - x * sin)]
        };
        Mesh::new(shape::mean().into_iter().map(place).collect()).unwrap()
    }

    fn face(mesh: &Mesh) -> Face {
        Face { rect: mesh.rect(), score: 0.9, landmarks: mesh.five() }
    }

    /// Skin with stripes of some strength.
    fn picture(stripes: u8) -> Rgb {
        let pixel =
            |x: u32, _| SKIN.map(|v| if (x / 4).is_multiple_of(2) { v - stripes } else { v });
        let data = (0..SIZE.height).flat_map(|y| (0..SIZE.width).flat_map(move |x| pixel(x, y)));
        Image::from_vec(SIZE, data.collect()).unwrap()
    }

    fn swap(source: &Rgb, from: &Mesh, target: &Rgb, onto: &Mesh) -> Result<Rgb> {
        let backend = Cpu::new(1);
        let portrait = backend.adopt(source.clone()).unwrap();
        let texture = Texture::bake(&backend, &portrait, from)?;
        let mut picture = backend.adopt(target.clone()).unwrap();
        let mask = Mask { kinds: Vec::new(), scale: 1.3, padding: [0.0; 4], blur: 0.3 };
        let region = Region { mask: &mask, mesh: Some(onto), person: None };
        apply(&backend, &mut picture, &face(onto), onto, &texture, &region)?;
        Ok(backend.release(picture).unwrap())
    }

    fn spread(image: &Rgb, y: u32, x: std::ops::Range<u32>) -> u8 {
        let row = x.map(|x| image.view().pixel(x, y)[1]);
        row.clone().max().unwrap() - row.min().unwrap()
    }

    #[test]
    fn the_sources_skin_arrives_and_nothing_outside_the_oval_changes() {
        let (source, target, onto) = (picture(60), picture(0), mesh(0.0));
        let out = swap(&source, &mesh(0.0), &target, &onto).unwrap();
        // Both cheeks show stripes now.
        assert!(spread(&out, 130, 62..80) > 10 && spread(&out, 130, 120..138) > 10);
        let mut alpha = mien_pixels::view::Grey::filled(SIZE, [255]);
        let oval: Vec<_> = t::OVAL.iter().map(|i| onto.at(usize::from(*i))).collect();
        mien_pixels::raster::polygon(&oval, 1.0, Roi::whole(SIZE), &mut alpha);
        let pixels = out.bytes_all().chunks(3).zip(target.bytes_all().chunks(3));
        for ((new, old), inside) in pixels.zip(alpha.bytes_all()) {
            assert!(*inside > 0 || new == old);
        }
    }

    #[test]
    fn gaze_stays_the_targets() {
        let onto = mesh(0.0);
        let (source, mut target) = (picture(0), picture(0));
        for (up, low) in [(159, 145), (386, 374)] {
            let (a, b) = (onto.at(up), onto.at(low));
            for y in a.y as u32..=b.y as u32 {
                for x in a.x as usize - 3..=a.x as usize + 3 {
                    target.view_mut().row_mut(y)[x * 3..x * 3 + 3].copy_from_slice(&[10, 200, 40]);
                }
            }
        }
        let out = swap(&source, &mesh(0.0), &target, &onto).unwrap();
        for (up, low) in [(159, 145), (386, 374)] {
            let (a, b) = (onto.at(up), onto.at(low));
            let got = out.view().pixel(a.x as u32, ((a.y + b.y) / 2.0) as u32);
            assert!(got[1] > 150 && got[0] < 80, "{got:?}");
        }
    }

    #[test]
    fn a_source_that_looks_aside_fills_its_hidden_cheek() {
        let target = picture(0);
        for yaw in [-0.7, 0.7] {
            let out = swap(&picture(60), &mesh(yaw), &target, &mesh(0.0)).unwrap();
            for x in [62..80, 120..138] {
                for pixel in x.map(|x| out.view().pixel(x, 130)) {
                    assert!(pixel[0].abs_diff(SKIN[0]) < 70, "{pixel:?}");
                }
            }
        }
    }

    #[test]
    fn a_mesh_that_can_not_be_is_refused() {
        let picture = picture(0);
        let good = mesh(0.0);
        let moved = |f: &dyn Fn([f32; 3]) -> [f32; 3]| {
            Mesh::new(good.points().iter().map(|p| f(*p)).collect()).unwrap()
        };
        let bad = [
            moved(&|[x, y, z]| [x + 5e3, y, z]),
            moved(&|[x, y, z]| [x * 1e6, y * 1e6, z]),
            moved(&|_| [50.0, 50.0, 0.0]),
            moved(&|[x, y, _]| [x, y, f32::MAX]),
            moved(&|[x, _, z]| [x, 60.0, z]),
            mesh(2.4),
        ];
        for (i, bad) in bad.iter().enumerate() {
            let onto = swap(&picture, &good, &picture, bad);
            assert!(matches!(onto, Err(Error::Face { .. })), "{i}");
        }
        for (i, bad) in bad[..5].iter().enumerate() {
            assert!(matches!(swap(&picture, bad, &picture, &good), Err(Error::Face { .. })), "{i}");
        }
    }
}
