//! 468 points of one face, in two passes: from the detector's box, then from the first mesh.

use mien_base::model::{Family, Manifest, Role};
use mien_engine::backend::{Backend, Layout, Normalise};
use mien_engine::contract::{Contract, Dim, Port};
use mien_pixels::geometry::{Affine2, Point, Rect, Size};

use crate::meter::Meter;
use crate::subject::{Face, MESH, Mesh};
use crate::{Error, Result};

/// A mesh counts when the model is at least this sure that it saw a face.
pub const PRESENCE: f32 = 0.5;

const SIDE: u32 = 192;
/// The region is this much larger than the box.
const MARGIN: f32 = 1.5;
const NORMALISE: Normalise =
    Normalise { mean: [0.0; 3], scale: [1.0 / 255.0; 3], bgr: false, layout: Layout::Nchw };

/// The mesh model.
pub struct Landmarker<B: Backend> {
    manifest: Manifest,
    session: B::Session,
}

impl<B: Backend> std::fmt::Debug for Landmarker<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Landmarker({})", self.manifest.id)
    }
}

/// A square of the picture, turned with the face.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Region {
    centre: Point,
    side: f32,
    /// Radians, clockwise.
    angle: f32,
}

impl Region {
    fn around(rect: &Rect, left_eye: Point, right_eye: Point) -> Self {
        Self {
            centre: rect.centre(),
            side: rect.width().max(rect.height()) * MARGIN,
            angle: (right_eye.y - left_eye.y).atan2(right_eye.x - left_eye.x),
        }
    }

    /// Crop pixels to picture pixels.
    fn map(&self) -> Affine2 {
        let (scale, half) = (f64::from(self.side) / f64::from(SIDE), f64::from(SIDE) / 2.0);
        Affine2::translate(-half, -half)
            .then(&Affine2::scale(scale, scale))
            .then(&Affine2::rotate(f64::from(self.angle)))
            .then(&Affine2::translate(f64::from(self.centre.x), f64::from(self.centre.y)))
    }

    /// False when it is not finite, or too small or too large for the picture.
    fn is_plausible(&self, picture: Size) -> bool {
        let most = 4.0 * picture.width.max(picture.height) as f32;
        self.centre.x.is_finite()
            && self.centre.y.is_finite()
            && self.angle.is_finite()
            && (2.0..=most).contains(&self.side)
            && self.centre.x.abs() <= 2.0 * most
            && self.centre.y.abs() <= 2.0 * most
    }
}

impl<B: Backend> Landmarker<B> {
    /// Loads the mesh model.
    ///
    /// # Errors
    /// `Slot` for another family, `Engine` when the model can't be loaded.
    pub fn load(backend: &B, manifest: Manifest, bytes: &[u8]) -> Result<Self> {
        if (manifest.role, manifest.family) != (Role::Landmarks, Family::FaceMesh) {
            let detail = "landmarks take the family facemesh".to_owned();
            return Err(Error::Slot { model: manifest.id, detail });
        }
        let side = Dim::Fixed(SIDE as usize);
        let port = |shape| Port { name: String::new(), shape };
        let contract = Contract {
            inputs: vec![port(vec![Dim::Any, Dim::Fixed(3), side, side])],
            outputs: vec![port(Vec::new()); 2],
        };
        let session =
            backend.load(&manifest, &contract, bytes).map_err(Error::engine("landmarks"))?;
        Ok(Self { manifest, session })
    }

    /// The mesh of a face.
    ///
    /// # Errors
    /// `Face` when the model does not see a face there or the mesh is implausible; `Engine` and
    /// `Output` when the model fails.
    pub fn find(
        &mut self,
        backend: &B,
        picture: &B::Picture,
        face: &Face,
        meter: &mut Meter<'_>,
    ) -> Result<Mesh> {
        let [left, right, ..] = *face.landmarks.points();
        let first = Region::around(&face.rect, left, right);
        let (mesh, _) = self.pass(backend, picture, &first, meter)?;
        let second = Region::around(&mesh.rect(), mesh.at(33), mesh.at(263));
        let (mesh, presence) = self.pass(backend, picture, &second, meter)?;
        if presence < PRESENCE {
            return Err(Error::Face { detail: "no landmarks are to be seen".to_owned() });
        }
        check(&mesh, face)?;
        Ok(mesh)
    }

    /// The mesh of a face whose mesh a moment ago is known, in one pass.
    ///
    /// # Errors
    /// As `find`.
    pub fn follow(
        &mut self,
        backend: &B,
        picture: &B::Picture,
        before: &Mesh,
        face: &Face,
        meter: &mut Meter<'_>,
    ) -> Result<Mesh> {
        let rect = before.rect();
        let region = Region::around(&rect, before.at(33), before.at(263));
        let (mesh, presence) = self.pass(backend, picture, &region, meter)?;
        if presence < PRESENCE {
            return Err(Error::Face { detail: "no landmarks are to be seen".to_owned() });
        }
        check(&mesh, face)?;
        Ok(mesh)
    }

    fn pass(
        &mut self,
        backend: &B,
        picture: &B::Picture,
        region: &Region,
        meter: &mut Meter<'_>,
    ) -> Result<(Mesh, f32)> {
        if !region.is_plausible(backend.size(picture)) {
            return Err(Error::Face { detail: "its landmarks lie nowhere".to_owned() });
        }
        let map = region.map();
        let input = backend
            .crop_batch(picture, &[map], Size::new(SIDE, SIDE), &NORMALISE)
            .map_err(Error::engine("landmarks"))?;
        let outputs = meter.infer(backend, &mut self.session, &input, "landmarks")?;
        let outputs: Vec<Vec<f32>> = outputs.into_iter().map(|t| t.data).collect();
        read(&outputs, &map).ok_or_else(|| Error::Output {
            model: self.manifest.id.clone(),
            family: "face mesh",
            detail: "its outputs are not 468 finite points and a presence".to_owned(),
        })
    }
}

/// The model saw a face, but it must be this one.
fn check(mesh: &Mesh, face: &Face) -> Result<()> {
    let (a, b) = (mesh.rect(), face.rect);
    let (near, size) = (a.centre().distance(b.centre()), b.width().max(b.height()));
    let grown = a.width().max(a.height()) / size;
    if near <= 0.75 * size && (0.3..=3.0).contains(&grown) {
        return Ok(());
    }
    Err(Error::Face { detail: "its landmarks lie beside it".to_owned() })
}

/// The mesh in the picture and its presence, from the output of 1404 values and that of one.
fn read(outputs: &[Vec<f32>], map: &Affine2) -> Option<(Mesh, f32)> {
    let points = outputs.iter().find(|o| o.len() == 3 * MESH)?;
    let &[logit] = outputs.iter().find(|o| o.len() == 1)?.as_slice() else { return None };
    let scale = map.mean_scale() as f32;
    let place = |p: &[f32]| {
        let q = map.apply(Point::new(p[0], p[1]));
        [q.x, q.y, p[2] * scale]
    };
    let mesh = Mesh::new(points.chunks_exact(3).map(place).collect())?;
    let presence = 1.0 / (1.0 + (-logit).exp());
    presence.is_finite().then_some((mesh, presence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_maps_its_crop_onto_the_turned_face() {
        // Eyes on a line that falls by 90 degrees: the face lies on its side.
        let rect = Rect::new(10.0, 20.0, 42.0, 52.0);
        let region = Region::around(&rect, Point::new(30.0, 30.0), Point::new(30.0, 40.0));
        let map = region.map();
        let middle = map.apply(Point::new(96.0, 96.0));
        assert!((middle.x - 26.0).abs() < 1e-4 && (middle.y - 36.0).abs() < 1e-4);
        // The crop's right is the picture's down; 192 crop pixels are 48 of the picture.
        let right = map.apply(Point::new(192.0, 96.0));
        assert!((right.x - 26.0).abs() < 1e-4 && (right.y - 60.0).abs() < 1e-4);
    }

    #[test]
    fn implausible_regions_are_refused() {
        let picture = Size::new(100, 100);
        let fine = Region { centre: Point::new(50.0, 50.0), side: 40.0, angle: 0.0 };
        assert!(fine.is_plausible(picture));
        for bad in [
            Region { side: f32::NAN, ..fine },
            Region { side: 1.0, ..fine },
            Region { side: 500.0, ..fine },
            Region { angle: f32::INFINITY, ..fine },
            Region { centre: Point::new(1e6, 0.0), ..fine },
            Region { centre: Point::new(f32::NAN, 0.0), ..fine },
        ] {
            assert!(!bad.is_plausible(picture), "{bad:?}");
        }
    }

    #[test]
    fn outputs_are_read_in_any_order_or_not_at_all() {
        let points = vec![1.0; 1404];
        let map = Affine2::scale(2.0, 2.0);
        for outputs in [vec![points.clone(), vec![0.0]], vec![vec![0.0], points.clone()]] {
            let (mesh, presence) = read(&outputs, &map).unwrap();
            assert_eq!((mesh.points()[467], presence), ([2.0; 3], 0.5));
        }
        assert!(read(std::slice::from_ref(&points), &map).is_none());
        assert!(read(&[points.clone(), vec![f32::NAN]], &map).is_none());
        assert!(read(&[vec![f32::NAN; 1404], vec![0.0]], &map).is_none());
        assert!(read(&[vec![0.0; 1403], vec![0.0]], &map).is_none());
    }
}
