//! Makes a face unrecognisable, as strongly as its size asks for.

use mien_base::recipe::Anonymise;
use mien_engine::backend::{Backend, Cover, Feather, Shape};
use mien_engine::tensor::Tensor;
use mien_pixels::geometry::{Affine2, Point, Rect, Roi, Size};
use mien_pixels::view::{Grey, Rgb};

use crate::mask::{Place, Region};
use crate::subject::Face;
use crate::synthetic;
use crate::{Error, Result};

/// Most cells across a face (ALGORITHMS.md §6).
pub const MOSAIC_MOST: u32 = 6;
/// Least deviation of a blur as a share of the face's width.
pub const BLUR_LEAST: f32 = 0.15;
/// The deviation that is taken where nobody asks for another.
pub const BLUR: f32 = 0.25;
/// Deviation of a mosaic's noise in levels.
const NOISE: f32 = 20.0;
/// How much a face's box grows where it is covered because something failed.
const FAILED: f32 = 1.3;
const GREY: [u8; 3] = [127; 3];

/// A picture that is laid over faces.
pub struct Overlay<B: Backend> {
    picture: B::Picture,
    alpha: Option<B::Tensor>,
    size: Size,
}

impl<B: Backend> std::fmt::Debug for Overlay<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Overlay({}x{})", self.size.width, self.size.height)
    }
}

impl<B: Backend> Overlay<B> {
    /// Takes a decoded picture and its alpha.
    ///
    /// # Errors
    /// `Face` when it is empty or its alpha has another size; `Engine`.
    pub fn new(backend: &B, picture: Rgb, alpha: Option<Grey>) -> Result<Self> {
        let size = picture.size();
        if size.pixels() == 0 || alpha.as_ref().is_some_and(|a| a.size() != size) {
            let detail = "the picture that is laid over it has no pixels or no such alpha";
            return Err(Error::Face { detail: detail.to_owned() });
        }
        let alpha = alpha
            .map(|a| {
                let shape = vec![1, 1, size.height as usize, size.width as usize];
                let data = a.bytes_all().iter().map(|v| f32::from(*v) / 255.0).collect();
                backend.upload(Tensor { shape, data })
            })
            .transpose()
            .map_err(Error::engine("overlay"))?;
        let picture = backend.adopt(picture).map_err(Error::engine("overlay"))?;
        Ok(Self { picture, alpha, size })
    }

    /// Takes overlay pixels to picture pixels: as large as it must be to hide the whole face.
    fn to_picture(&self, place: &Place, scale: f32) -> Affine2 {
        let (w, h) = (f64::from(self.size.width), f64::from(self.size.height));
        let (half_w, half_h) = (f64::from(place.half.0), f64::from(place.half.1));
        let factor = f64::from(scale) * (2.0 * half_w / w).max(2.0 * half_h / h);
        Affine2::translate(0.5 - w / 2.0, 0.5 - h / 2.0)
            .then(&Affine2::scale(factor, factor))
            .then(&Affine2::rotate(f64::from(place.roll)))
            .then(&Affine2::translate(f64::from(place.centre.x), f64::from(place.centre.y)))
    }

    fn corners(&self, map: &Affine2) -> [Point; 4] {
        let (w, h) = (self.size.width as f32 - 0.5, self.size.height as f32 - 0.5);
        [(-0.5, -0.5), (w, -0.5), (w, h), (-0.5, h)].map(|(x, y)| map.apply(Point::new(x, y)))
    }

    fn lay(&self, backend: &B, onto: &mut B::Picture, place: &Place, scale: f32) -> Result<()> {
        let size = backend.size(onto);
        let map = self.to_picture(place, scale);
        let corners = self.corners(&map);
        let Some(roi) = Rect::around(&corners).and_then(|r| r.pixels(size)) else {
            return Ok(());
        };
        let engine = Error::engine;
        let back = map.inverse().ok_or_else(|| Error::Face { detail: "it is flat".to_owned() })?;
        let sample = Affine2::translate(f64::from(roi.x), f64::from(roi.y)).then(&back);
        let layer = backend.crop(&self.picture, &sample, roi.size()).map_err(engine("overlay"))?;
        let mut shapes =
            vec![Shape::Polygon { points: corners.to_vec(), feather: Feather { width: 1.0 } }];
        if let Some(tensor) = &self.alpha {
            shapes.push(Shape::Map { tensor, to_picture: map });
        }
        let alpha = backend.mask(&shapes, roi).map_err(engine("overlay"))?;
        backend.paste(onto, &layer, roi, &alpha).map_err(engine("overlay"))
    }
}

/// Makes one face unrecognisable, in place. `seed` chooses the noise of a mosaic.
///
/// # Errors
/// `Face` when the face has no place, or the way asked for needs an overlay or landmarks that are
/// not there: the caller covers the box (`cover_box`). `Engine` when the backend fails.
pub fn apply<B: Backend>(
    backend: &B,
    picture: &mut B::Picture,
    face: &Face,
    how: &Anonymise,
    region: &Region<'_, B>,
    overlay: Option<&Overlay<B>>,
    seed: u64,
) -> Result<()> {
    let size = backend.size(picture);
    let place = Place::of(face, size)?;
    let width = place.width();
    let (scale, soft) = region.cover_reach(&place);
    let (cover, feather) = match how {
        Anonymise::Solid { colour } => (Cover::Solid { colour: *colour }, (soft * 0.3).max(1.0)),
        Anonymise::Mosaic { cells } => {
            let cell = (width / (*cells).clamp(1, MOSAIC_MOST) as f32).ceil().max(1.0) as u32;
            (Cover::Mosaic { cell, noise: NOISE, seed }, (soft * 0.3).max(1.0))
        }
        Anonymise::Blur { sigma } => (Cover::Blur { sigma: blur(*sigma) * width }, soft),
        Anonymise::Image => (Cover::Blur { sigma: BLUR * width }, soft),
        Anonymise::Synthetic { seed } => {
            return synthetic::apply(backend, picture, face, *seed, region);
        }
    };
    if matches!(how, Anonymise::Image) && overlay.is_none() {
        return Err(Error::Face { detail: "no picture travels with the job".to_owned() });
    }
    let Some(roi) = reach(region, &place, scale, feather, size) else { return Ok(()) };
    let alpha = region.cover(backend, &place, feather, roi)?;
    backend.cover(picture, roi, &alpha, &cover).map_err(Error::engine("anonymise"))?;
    backend.spare(alpha);
    match (how, overlay) {
        (Anonymise::Image, Some(overlay)) => overlay.lay(backend, picture, &place, scale),
        _ => Ok(()),
    }
}

fn blur(sigma: f32) -> f32 {
    if sigma.is_finite() { sigma.clamp(BLUR_LEAST, 2.0) } else { BLUR }
}

/// Pixels that a cover may touch: those of the place, and of the hull of the mesh.
pub(crate) fn reach<B: Backend>(
    region: &Region<'_, B>,
    place: &Place,
    scale: f32,
    feather: f32,
    picture: Size,
) -> Option<Roi> {
    let corners = place.corners(scale, feather);
    let Some(mesh) = region.mesh else { return Rect::around(&corners)?.pixels(picture) };
    let rect = mesh.rect().scaled(scale);
    let grown = [
        Point::new(rect.x0 - feather, rect.y0 - feather),
        Point::new(rect.x1 + feather, rect.y1 + feather),
    ];
    let [a, b, c, d] = corners;
    Rect::around(&[a, b, c, d, grown[0], grown[1]])?.pixels(picture)
}

/// Covers a face's box, grown, in grey: what is done when anything else failed. A box that can't
/// be is read as the whole picture.
///
/// # Errors
/// `Engine`: then the picture must be withheld.
pub fn cover_box<B: Backend>(backend: &B, picture: &mut B::Picture, rect: &Rect) -> Result<()> {
    let Some(roi) = covered(rect, backend.size(picture)) else { return Ok(()) };
    let alpha = backend.mask(&[], roi).map_err(Error::engine("cover"))?;
    backend
        .cover(picture, roi, &alpha, &Cover::Solid { colour: GREY })
        .map_err(Error::engine("cover"))?;
    backend.spare(alpha);
    Ok(())
}

/// Pixels that `cover_box` covers.
pub(crate) fn covered(rect: &Rect, size: Size) -> Option<Roi> {
    let finite = [rect.x0, rect.y0, rect.x1, rect.y1].into_iter().all(f32::is_finite);
    if finite && rect.x1 >= rect.x0 && rect.y1 >= rect.y0 {
        rect.scaled(FAILED).pixels(size)
    } else {
        Some(Roi::whole(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Landmarks5;
    use mien_base::recipe::{Mask, MaskKind};
    use mien_engine::cpu::Cpu;
    use mien_pixels::view::Image;

    const SIZE: Size = Size::new(200, 160);

    /// A checkerboard of fine detail: whatever is left of it shows.
    fn picture() -> Rgb {
        let data = (0..SIZE.height)
            .flat_map(|y| {
                (0..SIZE.width).flat_map(move |x| [if (x + y) % 2 == 0 { 255 } else { 0 }; 3])
            })
            .collect();
        Image::from_vec(SIZE, data).unwrap()
    }

    fn face(turn: f64) -> Face {
        let map = Affine2::rotate(turn).then(&Affine2::translate(100.0, 80.0));
        let at = |x: f32, y: f32| map.apply(Point::new(x, y));
        let landmarks =
            [at(-11.0, -8.0), at(11.0, -8.0), at(0.0, 4.0), at(-10.0, 13.0), at(10.0, 13.0)];
        let corners = [at(-22.0, -30.0), at(22.0, -30.0), at(22.0, 30.0), at(-22.0, 30.0)];
        let rect = Rect::around(&corners).unwrap();
        Face { rect, score: 0.9, landmarks: Landmarks5::new(landmarks).unwrap() }
    }

    fn mask(kinds: &[MaskKind]) -> Mask {
        Mask { kinds: kinds.to_vec(), scale: 1.3, padding: [0.0; 4], blur: 0.3 }
    }

    fn run(how: &Anonymise, mask: &Mask, face: &Face, overlay: Option<Rgb>) -> Result<Rgb> {
        let backend = Cpu::new(1);
        let mut picture = backend.adopt(picture()).unwrap();
        let overlay = overlay.map(|o| Overlay::new(&backend, o, None).unwrap());
        let region = Region { mask, mesh: None, person: None };
        apply(&backend, &mut picture, face, how, &region, overlay.as_ref(), 7)?;
        Ok(backend.release(picture).unwrap())
    }

    /// Largest difference between neighbours: 255 where the checkerboard shows.
    fn detail(image: &Rgb, x: u32, y: u32) -> u8 {
        image.view().pixel(x, y)[0].abs_diff(image.view().pixel(x + 1, y)[0])
    }

    fn modes() -> Vec<Anonymise> {
        vec![
            Anonymise::Solid { colour: [10, 20, 30] },
            Anonymise::Mosaic { cells: 6 },
            Anonymise::Blur { sigma: 0.2 },
            Anonymise::Image,
        ]
    }

    #[test]
    fn no_mode_leaves_detail_in_the_face_or_touches_what_is_far() {
        for turn in [0.0, 0.6, -1.5] {
            let face = face(turn);
            let back = Affine2::translate(-100.0, -80.0).then(&Affine2::rotate(-turn));
            for how in modes() {
                let overlay = Rgb::filled(Size::new(8, 8), [200, 10, 10]);
                let out = run(&how, &mask(&[]), &face, Some(overlay)).unwrap();
                let before = picture();
                for y in 0..SIZE.height {
                    for x in 0..SIZE.width - 1 {
                        let p = back.apply(Point::new(x as f32, y as f32));
                        let (u, v) = (p.x / 22.0, p.y / 30.0);
                        if u * u + v * v < 1.0 {
                            assert!(detail(&out, x, y) < 120, "{how:?} at {x},{y}, turn {turn}");
                        }
                        if p.x.abs() > 55.0 || p.y.abs() > 60.0 {
                            assert_eq!(out.view().pixel(x, y), before.view().pixel(x, y));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_mask_can_not_uncover_the_face() {
        let tight = Mask { scale: 0.1, padding: [50.0; 4], ..mask(&[MaskKind::Box]) };
        let out = run(&Anonymise::Solid { colour: [1, 2, 3] }, &tight, &face(0.0), None).unwrap();
        for (x, y) in [(100, 80), (100, 52), (100, 108), (80, 80), (120, 80)] {
            assert_eq!(out.view().pixel(x, y), [1, 2, 3], "{x},{y}");
        }
    }

    #[test]
    fn a_weak_strength_is_raised() {
        let weak = run(&Anonymise::Blur { sigma: 0.01 }, &mask(&[]), &face(0.0), None).unwrap();
        let least = run(&Anonymise::Blur { sigma: BLUR_LEAST }, &mask(&[]), &face(0.0), None);
        assert_eq!(weak, least.unwrap());
        let fine = run(&Anonymise::Mosaic { cells: 400 }, &mask(&[]), &face(0.0), None).unwrap();
        let most = run(&Anonymise::Mosaic { cells: MOSAIC_MOST }, &mask(&[]), &face(0.0), None);
        assert_eq!(fine, most.unwrap());
    }

    #[test]
    fn what_a_way_needs_and_lacks_is_an_error() {
        for (how, kinds) in [
            (Anonymise::Image, vec![]),
            (Anonymise::Solid { colour: GREY }, vec![MaskKind::Area]),
            (Anonymise::Solid { colour: GREY }, vec![MaskKind::Person]),
        ] {
            let out = run(&how, &mask(&kinds), &face(0.0), None);
            assert!(matches!(out, Err(Error::Face { .. })), "{how:?}");
        }
    }

    #[test]
    fn a_transparent_overlay_still_hides_the_face() {
        let backend = Cpu::new(1);
        let mut image = backend.adopt(picture()).unwrap();
        let size = Size::new(16, 16);
        let clear = Some(Grey::filled(size, [0]));
        let overlay = Overlay::new(&backend, Rgb::filled(size, [255, 0, 0]), clear).unwrap();
        let mask = mask(&[]);
        let region = Region { mask: &mask, mesh: None, person: None };
        let how = Anonymise::Image;
        apply(&backend, &mut image, &face(0.0), &how, &region, Some(&overlay), 7).unwrap();
        let out = backend.release(image).unwrap();
        assert!(detail(&out, 100, 80) < 20);
        assert!(out.view().pixel(100, 80)[1] > 60);
    }

    #[test]
    fn a_failed_face_is_covered_wherever_it_lies() {
        let backend = Cpu::new(1);
        let boxes = [
            (Rect::new(50.0, 50.0, 90.0, 90.0), 52 * 52, 54 * 54),
            (Rect::new(-20.0, -20.0, 10.0, 10.0), 14 * 14, 17 * 17),
            (Rect::new(f32::NAN, 0.0, 1.0, 1.0), 200 * 160, 200 * 160),
            (Rect::new(9.0, 9.0, 3.0, 3.0), 200 * 160, 200 * 160),
            (Rect::new(900.0, 900.0, 950.0, 950.0), 0, 0),
        ];
        for (rect, least, most) in boxes {
            let mut image = backend.adopt(picture()).unwrap();
            cover_box(&backend, &mut image, &rect).unwrap();
            let out = backend.release(image).unwrap();
            let grey = out.bytes_all().chunks(3).filter(|p| *p == GREY).count();
            assert!((least..=most).contains(&grey), "{rect:?}: {grey}");
        }
    }
}
