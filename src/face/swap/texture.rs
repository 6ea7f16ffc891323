//! A source's skin, unrolled once: hair and spectacles taken away, hidden parts mirrored in.

use mien_engine::backend::{Backend, Likeness, MeshWarp, Shape, Tone};
use mien_pixels::geometry::{Affine2, Point, Roi, Size};
use mien_pixels::raster;

use super::shape::{self, Points};
use super::topology as t;
use super::zone;
use crate::subject::Mesh;
use crate::{Error, Result};

/// Width of the layout as a multiple of the mesh's width in the portrait, and its bounds.
const DETAIL: f32 = 1.5;
const WIDTH: (f32, f32) = (96.0, 480.0);
/// Height of the layout as a share of its width.
const ASPECT: f32 = 0.85;
/// A point of the source is trusted where it faces the camera between these cosines.
const FACING: (f32, f32) = (0.12, 0.45);

/// How far the target's own brows show where the source's were behind a rim.
const HIDDEN_BROWS: f32 = 0.45;
/// What is not skin where a rim may lie.
const RIM: Likeness = Likeness { near: 2.5, far: 4.0, grow: 0.0, soft: 0.2 };

/// The skin of a source, laid flat; made once, used for each face.
pub struct Texture<B: Backend> {
    pub(crate) picture: B::Picture,
    pub(crate) layout: Vec<Point>,
    pub(crate) shape: Vec<[f32; 3]>,
    /// 0..=1 for each point: how much of it is the source's own skin.
    pub(crate) trust: Vec<f32>,
}

impl<B: Backend> std::fmt::Debug for Texture<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Texture").finish_non_exhaustive()
    }
}

/// Where each point lies in a layout of this size.
pub(crate) fn layout(size: Size) -> Vec<Point> {
    let (w, h) = ((size.width - 1) as f32, (size.height - 1) as f32);
    let place =
        |p: &[u16; 2]| Point::new(f32::from(p[0]) / 10_000.0 * w, f32::from(p[1]) / 10_000.0 * h);
    t::LAYOUT.iter().map(place).collect()
}

impl<B: Backend> Texture<B> {
    /// Takes the skin out of a portrait.
    ///
    /// # Errors
    /// `Face` when the mesh is no face's; `Engine`.
    pub fn bake(backend: &B, portrait: &B::Picture, mesh: &Mesh) -> Result<Self> {
        check(mesh.points(), backend.size(portrait))?;
        let width = (mesh.rect().width() * DETAIL).clamp(WIDTH.0, WIDTH.1).round();
        let size = Size::new(width as u32, (width * ASPECT) as u32);
        let layout = layout(size);
        let bake = Bake { backend, layout: &layout, roi: Roi::whole(size) };
        let (picture, trust) = bake.skin(portrait, mesh).map_err(Error::engine("swap"))?;
        Ok(Self { picture, layout, shape: mesh.points().to_vec(), trust })
    }
}

impl<B: Backend> Texture<B> {
    /// The layout itself, to look at.
    #[must_use]
    pub fn into_picture(self) -> B::Picture {
        self.picture
    }
}

/// Refuses points that can't be a face's: too small, too large, or far outside.
pub(crate) fn check(points: &Points, picture: Size) -> Result<()> {
    let no = |detail: &str| Err(Error::Face { detail: format!("its mesh {detail}") });
    let (w, h) = (picture.width as f32, picture.height as f32);
    let fits = |p: &[f32; 3]| {
        (-w..=2.0 * w).contains(&p[0])
            && (-h..=2.0 * h).contains(&p[1])
            && p[2].abs() <= 2.0 * w.max(h)
    };
    if points.len() != t::LAYOUT.len() || !points.iter().all(fits) {
        return no("lies outside the picture");
    }
    let at = |i: usize| Point::new(points[i][0], points[i][1]);
    let (eyes, tall) = (at(33).distance(at(263)), at(10).distance(at(152)));
    if !(eyes >= 3.0 && tall >= 8.0 && eyes < 4.0 * tall && tall < 12.0 * eyes) {
        return no("is no face's");
    }
    Ok(())
}

struct Bake<'a, B: Backend> {
    backend: &'a B,
    layout: &'a [Point],
    roi: Roi,
}

impl<B: Backend> Bake<'_, B> {
    fn values(&self, values: &[f32]) -> mien_engine::Result<B::Alpha> {
        let mut triangles = t::SKIN.to_vec();
        triangles.extend(t::EYES);
        triangles.extend(t::MOUTH);
        let (points, values) = (self.layout.to_vec(), values.to_vec());
        self.backend.mask(&[Shape::Vertices { points, triangles, values }], self.roi)
    }

    fn skin(
        &self,
        portrait: &B::Picture,
        mesh: &Mesh,
    ) -> mien_engine::Result<(B::Picture, Vec<f32>)> {
        let from = mesh.flat();
        let mut triangles = t::SKIN.to_vec();
        triangles.extend(t::EYES);
        let warp = MeshWarp { from: &from, to: self.layout, triangles: &triangles, roi: self.roi };
        let (mut skin, mut seen) = self.backend.warp_mesh(portrait, &warp)?;
        self.backend.fill(&mut skin, &seen)?;
        let spectacles = self.wears_spectacles(&skin)?;
        let clean = self.clean(&skin, spectacles)?;
        let trust = shape::facing(mesh.points())
            .iter()
            .map(|f| ((f - FACING.0) / (FACING.1 - FACING.0)).clamp(0.0, 1.0))
            .collect::<Vec<_>>();
        let own = self.values(&trust)?;
        self.backend.meet(&mut seen, &own)?;
        self.backend.meet(&mut seen, &clean)?;
        self.mirror(&mut skin, &seen, &trust)?;
        // What neither side shows is filled from around it.
        let mut known = self.mirrored_alpha(&trust)?;
        self.backend.join(&mut known, &own)?;
        self.backend.meet(&mut known, &clean)?;
        self.fill(&mut skin, &known, spectacles)?;
        let trust = self.trust(clean, spectacles)?;
        Ok((skin, trust))
    }

    /// What fringe or glasses hid is nobody's: there the target keeps its own.
    fn trust(&self, clean: B::Alpha, spectacles: bool) -> mien_engine::Result<Vec<f32>> {
        let clean = self.backend.release_alpha(clean)?;
        let reach = (self.roi.width / 100).max(1);
        let own = |(i, at): (usize, &Point)| {
            let brow = if spectacles { 1.0 - HIDDEN_BROWS * zone::BROWS[i] } else { 1.0 };
            let bare =
                if zone::FOREHEAD[i] > 0.6 { raster::least(&clean, *at, reach) } else { 1.0 };
            brow.min(bare)
        };
        let trust: Vec<f32> = self.layout.iter().enumerate().map(own).collect();
        Ok(shape::softened(&trust))
    }

    /// Fills what is not known; the dark of eyes and brows is lent to nothing.
    fn fill(
        &self,
        skin: &mut B::Picture,
        known: &B::Alpha,
        spectacles: bool,
    ) -> mien_engine::Result<()> {
        if !spectacles {
            return self.backend.fill(skin, known);
        }
        let before = self.backend.duplicate(skin)?;
        let eyes = self.values(&zone::LIDS)?;
        let mut lenders = self.values(&zone::BROWS)?;
        self.backend.join(&mut lenders, &eyes)?;
        self.backend.invert(&mut lenders)?;
        self.backend.meet(&mut lenders, known)?;
        self.backend.fill(skin, &lenders)?;
        self.backend.paste(skin, &before, self.roi, &eyes)
    }

    /// True when the bridge of the nose and the arcs below the eyes are no skin.
    fn wears_spectacles(&self, skin: &B::Picture) -> mien_engine::Result<bool> {
        let sample = self.values(&zone::SAMPLE)?;
        let like = self.backend.likeness(skin, self.roi, &sample, &RIM)?;
        let like = self.backend.release_alpha(like)?;
        let reach = (self.roi.width / 150).max(1);
        let unlike = |points: &[usize]| {
            let rest = |i: &usize| 1.0 - raster::least(&like, self.layout[*i], reach);
            points.iter().map(rest).sum::<f32>() / points.len() as f32
        };
        Ok(unlike(&zone::BRIDGE) > 0.35 && unlike(&zone::ARCS) > 0.3)
    }

    /// Where the skin is skin: no fringe on the forehead, no spectacles around the eyes.
    fn clean(&self, skin: &B::Picture, spectacles: bool) -> mien_engine::Result<B::Alpha> {
        let width = self.roi.width as f32;
        let sample = self.values(&zone::SAMPLE)?;
        let hair = Likeness { near: 3.2, far: 5.0, grow: 0.014 * width, soft: 0.2 };
        let mut clean = self.keep(skin, &sample, &zone::FOREHEAD, &hair)?;
        if spectacles {
            let rims = Likeness { near: 2.5, far: 4.0, grow: 0.011 * width, soft: 0.2 };
            let sockets = self.keep(skin, &sample, &zone::SOCKETS, &rims)?;
            self.backend.meet(&mut clean, &sockets)?;
        }
        Ok(clean)
    }

    /// Likeness within a zone, and everything outside it.
    fn keep(
        &self,
        skin: &B::Picture,
        sample: &B::Alpha,
        zone: &[f32],
        like: &Likeness,
    ) -> mien_engine::Result<B::Alpha> {
        let mut keep = self.backend.likeness(skin, self.roi, sample, like)?;
        let mut elsewhere = self.values(zone)?;
        self.backend.invert(&mut elsewhere)?;
        self.backend.join(&mut keep, &elsewhere)?;
        Ok(keep)
    }

    fn mirrored_alpha(&self, values: &[f32]) -> mien_engine::Result<B::Alpha> {
        let mirrored: Vec<f32> = t::MIRROR.iter().map(|m| values[usize::from(*m)]).collect();
        self.values(&mirrored)
    }

    /// Lays the better half over what the camera saw edge-on.
    fn mirror(
        &self,
        skin: &mut B::Picture,
        seen: &B::Alpha,
        trust: &[f32],
    ) -> mien_engine::Result<()> {
        let better: Vec<f32> = t::MIRROR
            .iter()
            .zip(trust)
            .map(|(m, own)| (1.6 * (trust[usize::from(*m)] - own)).clamp(0.0, 1.0))
            .collect();
        if better.iter().all(|v| *v < 0.05) {
            return Ok(());
        }
        let flip = Affine2 { a: -1.0, c: f64::from(self.roi.width) - 1.0, ..Affine2::IDENTITY };
        let mut other = self.backend.crop(skin, &flip, self.roi.size())?;
        let tone = Tone {
            ratio: (0.8, 1.25),
            relight: 0.6,
            rim: 0.6,
            sigma: self.roi.width as f32 * 0.12,
        };
        self.backend.match_tone(&mut other, skin, self.roi, seen, &tone)?;
        let alpha = self.values(&better)?;
        self.backend.paste(skin, &other, self.roi, &alpha)
    }
}
