//! A made identity, chosen by a seed: a painted face, no person's, on the target's mesh.
//!
//! Nothing of it comes from a picture, so there is nobody whom it could show. What the target lends
//! is its pose, its coarse light and how far lips and lids are open.

use mien_engine::backend::{Backend, Cover, Feather, Shape};
use mien_pixels::geometry::{Affine2, Point, Rect, Roi, Size};
use mien_pixels::view::Rgb;

use crate::mask::{Place, Region};
use crate::subject::Face;
use crate::swap::mesh::{self, Manner};
use crate::swap::texture::{self, Texture};
use crate::swap::topology as t;
use crate::{Error, Result};

const SIZE: Size = Size::new(320, 272);

/// SplitMix64.
struct Random(u64);

impl Random {
    /// 0..1.
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32
    }

    fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[((self.unit() * of.len() as f32) as usize).min(of.len() - 1)]
    }
}

/// Puts a made face over a face, in place.
///
/// # Errors
/// `Face` when there are no landmarks, or they can't be a face's: the caller covers the face.
/// `Engine`.
pub fn apply<B: Backend>(
    backend: &B,
    picture: &mut B::Picture,
    face: &Face,
    seed: u64,
    region: &Region<'_, B>,
) -> Result<()> {
    let mesh =
        region.mesh.ok_or_else(|| Error::Face { detail: "it has no landmarks".to_owned() })?;
    let size = backend.size(picture);
    texture::check(mesh.points(), size)?;
    let place = Place::of(face, size)?;
    let trust = vec![1.0; t::LAYOUT.len()];
    let (picture_of, shape) = make(backend, seed).map_err(Error::engine("synthetic"))?;
    let made = Texture { picture: picture_of, layout: texture::layout(SIZE), shape, trust };
    mesh::lay(backend, picture, &place, mesh, &made, region, &Manner::MADE)
}

/// Paints the skin in the layout, and makes a shape.
fn make<B: Backend>(backend: &B, seed: u64) -> mien_engine::Result<(B::Picture, Vec<[f32; 3]>)> {
    let mut random = Random(seed);
    let shape = shape(&mut random);
    let skin = random.pick(&[[222, 178, 154], [204, 158, 132], [176, 128, 102], [231, 190, 170]]);
    let mut painter = Painter {
        backend,
        picture: backend.adopt(Rgb::filled(SIZE, skin))?,
        points: texture::layout(SIZE),
        skin,
    };
    painter.relief()?;
    painter.mouth(&mut random)?;
    for (ring, brow) in [(&t::EYE_LEFT, &t::BROW_LEFT), (&t::EYE_RIGHT, &t::BROW_RIGHT)] {
        // Both eyes of a face are of one make.
        let mut same = Random(seed ^ 0x5eed);
        painter.eye(ring, &mut same)?;
        painter.brow(brow, &mut same)?;
    }
    painter.grain(seed)?;
    Ok((painter.picture, shape))
}

/// The mean face, its jaw, cheeks, nose, mouth and eyes moved a little; symmetric.
fn shape(random: &mut Random) -> Vec<[f32; 3]> {
    let mut points = crate::swap::mean();
    let at = |p: &[[f32; 3]], i: usize| p[i];
    let (chin, eyes, mouth, nose) =
        (at(&points, 152)[1], at(&points, 33)[1], at(&points, 13)[1], at(&points, 4));
    let brows = at(&points, 105)[1];
    // Away from the mean, to one side or the other: a face near it would be near many.
    let mut off = |most: f32| {
        let side = if random.unit() < 0.5 { -1.0 } else { 1.0 };
        side * random.between(0.55, 1.0) * most
    };
    let [jaw, cheek, long] = [off(0.16), off(0.08), off(0.12)];
    let [wide_mouth, wide_nose, nose_long] = [off(0.2), off(0.26), off(0.2)];
    let [eyes_apart, eyes_high, brows_high] = [off(0.1), off(0.05), off(0.045)];
    let bell = |d: f32, width: f32| (-(d / width).powi(2)).exp();
    for p in &mut points {
        let [x, y, _] = *p;
        let inner = bell(x, 0.35);
        let dx = jaw * bell(y - chin, 0.6)
            + cheek * bell(y - nose[1], 0.4)
            + wide_mouth * bell(y - mouth, 0.16) * inner
            + wide_nose * bell(y - nose[1], 0.2) * bell(x, 0.2)
            + eyes_apart * bell(y - eyes, 0.25) * bell(x.abs() - 0.33, 0.3);
        let dy = long * (y - eyes) * f32::from(u8::from(y > eyes))
            + 0.3 * nose_long * bell(y - nose[1], 0.2) * bell(x, 0.2)
            + eyes_high * bell(y - eyes, 0.2)
            + brows_high * bell(y - brows, 0.12);
        *p = [x * (1.0 + dx), y + dy, p[2]];
    }
    points
}

struct Painter<'a, B: Backend> {
    backend: &'a B,
    picture: B::Picture,
    points: Vec<Point>,
    skin: [u8; 3],
}

/// Pixels of the layout per unit of the mean face, across and down.
const ACROSS: f32 = 66.0;
const DOWN: f32 = 84.0;

impl<B: Backend> Painter<'_, B> {
    fn ring(&self, ring: &[u16]) -> Vec<Point> {
        ring.iter().map(|i| self.points[usize::from(*i)]).collect()
    }

    fn at(&self, i: usize) -> Point {
        self.points[i]
    }

    /// The skin's colour, each channel times something.
    fn tinted(&self, by: [f32; 3]) -> [u8; 3] {
        std::array::from_fn(|c| (f32::from(self.skin[c]) * by[c]).clamp(0.0, 255.0) as u8)
    }

    /// Paints where all shapes meet, within `around`.
    fn paint(
        &mut self,
        shapes: &[Shape<&B::Tensor>],
        around: &[Point],
        colour: [u8; 3],
        amount: f32,
    ) -> mien_engine::Result<()> {
        let Some(roi) = Rect::around(around).and_then(|r| r.pixels(SIZE)) else { return Ok(()) };
        let mut shapes = shapes.to_vec();
        if amount < 1.0 {
            // An even veil over all.
            let (w, h) = (SIZE.width as f32, SIZE.height as f32);
            let p = Point::new;
            shapes.push(Shape::Vertices {
                points: vec![p(-1.0, -1.0), p(w, -1.0), p(w, h), p(-1.0, h)],
                triangles: vec![[0, 1, 2], [0, 2, 3]],
                values: vec![amount; 4],
            });
        }
        let alpha = self.backend.mask(&shapes, roi)?;
        self.backend.cover(&mut self.picture, roi, &alpha, &Cover::Solid { colour })
    }

    /// A filled ring, soft by `width` pixels.
    fn area(
        &mut self,
        points: Vec<Point>,
        width: f32,
        colour: [u8; 3],
        amount: f32,
    ) -> mien_engine::Result<()> {
        let around = points.clone();
        let shape = Shape::Polygon { points, feather: Feather { width } };
        self.paint(&[shape], &around, colour, amount)
    }

    /// An oval blotch; half-axes in units of the mean face.
    fn blotch(
        &mut self,
        at: Point,
        half: (f32, f32),
        colour: [u8; 3],
        amount: f32,
    ) -> mien_engine::Result<()> {
        let to_picture = Affine2::scale(f64::from(half.0 * ACROSS), f64::from(half.1 * DOWN))
            .then(&Affine2::translate(f64::from(at.x), f64::from(at.y)));
        let width = half.0.min(half.1) * ACROSS;
        let (dx, dy) = (half.0 * ACROSS, half.1 * DOWN);
        let around = [Point::new(at.x - dx, at.y - dy), Point::new(at.x + dx, at.y + dy)];
        let shape = Shape::Ellipse { to_picture, feather: Feather { width } };
        self.paint(&[shape], &around, colour, amount)
    }

    /// A line of some width along points, soft.
    fn stroke(
        &mut self,
        line: &[Point],
        width: f32,
        colour: [u8; 3],
        amount: f32,
    ) -> mien_engine::Result<()> {
        let n = line.len();
        let side = |sign: f32| {
            (0..n).map(move |i| {
                let (a, b) = (line[i.saturating_sub(1)], line[(i + 1).min(n - 1)]);
                let length = a.distance(b).max(1e-3);
                // Thinner towards both ends.
                let taper = 1.0 - (2.0 * i as f32 / (n - 1) as f32 - 1.0).powi(4);
                let w = sign * width * 0.5 * taper.max(0.15) / length;
                Point::new(line[i].x + (b.y - a.y) * w, line[i].y - (b.x - a.x) * w)
            })
        };
        let mut points: Vec<Point> = side(1.0).collect();
        points.extend(side(-1.0).collect::<Vec<_>>().into_iter().rev());
        self.area(points, width * 0.5, colour, amount)
    }

    /// Light and shade of a face that is lit from above.
    fn relief(&mut self) -> mien_engine::Result<()> {
        let shade = self.tinted([0.72, 0.66, 0.64]);
        let deep = self.tinted([0.55, 0.45, 0.43]);
        let gleam = self.tinted([1.1, 1.12, 1.13]);
        let blush = self.tinted([1.04, 0.86, 0.84]);
        let p = |s: &Self, i: usize| s.at(i);
        let middle = |a: Point, b: Point| Point::new((a.x + b.x) / 2.0, (a.y + b.y) / 2.0);
        self.blotch(p(self, 151), (0.75, 0.3), gleam, 0.35)?;
        for (cheek, under, socket, wing, side, temple, jaw) in
            [(50, 230, 224, 129, 126, 127, 172), (280, 450, 444, 358, 355, 356, 397)]
        {
            self.blotch(p(self, cheek), (0.42, 0.3), blush, 0.55)?;
            self.blotch(p(self, under), (0.3, 0.1), gleam, 0.3)?;
            self.blotch(p(self, socket), (0.36, 0.16), shade, 0.5)?;
            self.blotch(p(self, side), (0.1, 0.3), shade, 0.35)?;
            self.blotch(p(self, wing), (0.07, 0.09), deep, 0.55)?;
            self.blotch(p(self, temple), (0.5, 0.7), shade, 0.5)?;
            self.blotch(p(self, jaw), (0.5, 0.5), shade, 0.45)?;
        }
        let (bridge, tip) = (p(self, 6), p(self, 4));
        self.stroke(&[bridge, middle(bridge, tip), tip], 0.16 * ACROSS, gleam, 0.6)?;
        self.blotch(tip, (0.14, 0.1), gleam, 0.6)?;
        for nostril in [98, 327] {
            let at = middle(p(self, nostril), p(self, 2));
            self.blotch(at, (0.085, 0.045), self.tinted([0.3, 0.2, 0.2]), 0.8)?;
        }
        self.blotch(p(self, 2), (0.22, 0.06), deep, 0.4)?;
        self.blotch(p(self, 164), (0.05, 0.1), shade, 0.4)?;
        self.blotch(p(self, 18), (0.3, 0.06), deep, 0.4)?;
        self.blotch(p(self, 199), (0.2, 0.14), gleam, 0.4)?;
        for (wing, corner) in [(203, 61), (423, 291)] {
            let line = [p(self, wing), middle(p(self, wing), p(self, corner)), p(self, corner)];
            self.stroke(&line, 0.1 * ACROSS, shade, 0.35)?;
        }
        Ok(())
    }

    fn mouth(&mut self, random: &mut Random) -> mien_engine::Result<()> {
        let red = random.between(0.5, 0.66);
        let lips = self.tinted([0.84, red, red * 1.02]);
        self.area(self.ring(&t::MOUTH_OUTER), 0.05 * ACROSS, lips, 0.85)?;
        let upper = self.ring(&[61, 40, 37, 0, 267, 270, 291]);
        self.stroke(&upper, 0.09 * ACROSS, self.tinted([0.74, red * 0.86, red * 0.86]), 0.4)?;
        self.blotch(self.at(15), (0.16, 0.03), self.tinted([1.0, red * 1.3, red * 1.3]), 0.5)?;
        self.area(self.ring(&t::MOUTH_INNER), 1.5, self.tinted([0.34, 0.16, 0.16]), 1.0)
    }

    fn eye(&mut self, ring: &[u16; 16], random: &mut Random) -> mien_engine::Result<()> {
        let iris = random.pick(&[[96, 66, 42], [70, 96, 120], [84, 104, 70], [58, 42, 34]]);
        let lids = self.ring(ring);
        let (outer, inner) = (lids[0], lids[8]);
        let polygon = || Shape::Polygon { points: lids.clone(), feather: Feather { width: 1.5 } };
        self.area(lids.clone(), 1.5, [226, 219, 213], 1.0)?;
        let wide = outer.distance(inner);
        // Rests a little under the upper lid.
        let x = (lids[4].x + lids[12].x) / 2.0;
        let y = (lids[4].y * 0.52 + lids[12].y * 0.48) - 0.01 * DOWN;
        let disc = |radius: f32, dx: f32, dy: f32| Shape::Ellipse {
            to_picture: Affine2::scale(
                f64::from(radius * wide),
                f64::from(radius * wide * DOWN / ACROSS),
            )
            .then(&Affine2::translate(f64::from(x + dx * wide), f64::from(y + dy * wide))),
            feather: Feather { width: 1.5 },
        };
        let dark = iris.map(|v: u8| v / 2);
        self.paint(&[polygon(), disc(0.25, 0.0, 0.0)], &lids, dark, 1.0)?;
        self.paint(&[polygon(), disc(0.215, 0.0, 0.0)], &lids, iris, 1.0)?;
        self.paint(&[polygon(), disc(0.11, 0.0, 0.0)], &lids, [14, 12, 12], 1.0)?;
        self.paint(&[polygon(), disc(0.06, -0.07, -0.1)], &lids, [245, 245, 245], 0.9)?;
        let upper: Vec<Point> = lids[..=8].to_vec();
        let lash = self.tinted([0.22, 0.16, 0.14]);
        let below: Vec<Point> = upper.iter().map(|p| Point::new(p.x, p.y + 1.5)).collect();
        self.stroke(&below, 0.1 * ACROSS, self.tinted([0.5, 0.42, 0.4]), 0.5)?;
        self.stroke(&upper, 0.07 * ACROSS, lash, 0.95)?;
        let crease: Vec<Point> = upper.iter().map(|p| Point::new(p.x, p.y - 0.1 * DOWN)).collect();
        self.stroke(&crease, 0.045 * ACROSS, self.tinted([0.6, 0.5, 0.47]), 0.6)?;
        let lower: Vec<Point> = lids[8..].iter().copied().chain([outer]).collect();
        self.stroke(&lower, 0.035 * ACROSS, self.tinted([0.55, 0.42, 0.4]), 0.6)
    }

    fn brow(&mut self, ring: &[u16; 10], random: &mut Random) -> mien_engine::Result<()> {
        let hair = random.pick(&[[0.34, 0.26, 0.22], [0.46, 0.36, 0.28], [0.24, 0.2, 0.2]]);
        let thick = random.between(0.11, 0.19);
        let (upper, lower) = (self.ring(&ring[..5]), self.ring(&ring[5..]));
        // Along the middle between the edges; the lower edge runs back.
        let line: Vec<Point> = upper
            .iter()
            .zip(lower.iter().rev())
            .map(|(a, b)| Point::new((a.x + b.x) / 2.0, (a.y + b.y) / 2.0))
            .collect();
        self.stroke(&line, thick * 1.5 * ACROSS, self.tinted(hair), 0.45)?;
        self.stroke(&line, thick * ACROSS, self.tinted(hair), 0.75)
    }

    /// Pores: fine noise, softened.
    fn grain(&mut self, seed: u64) -> mien_engine::Result<()> {
        let roi = Roi::whole(SIZE);
        let alpha = self.backend.mask(&[], roi)?;
        self.backend.cover(&mut self.picture, roi, &alpha, &Cover::Blur { sigma: 0.8 })?;
        let noise = Cover::Mosaic { cell: 1, noise: 5.0, seed };
        self.backend.cover(&mut self.picture, roi, &alpha, &noise)?;
        self.backend.cover(&mut self.picture, roi, &alpha, &Cover::Blur { sigma: 0.6 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Mesh;
    use mien_base::recipe::Mask;
    use mien_engine::cpu::Cpu;

    fn mesh() -> Mesh {
        let place = |[x, y, z]: [f32; 3]| [80.0 * x + 100.0, 80.0 * y + 110.0, 80.0 * z];
        Mesh::new(crate::swap::mean().into_iter().map(place).collect()).unwrap()
    }

    fn run(seed: u64, mesh: Option<&Mesh>) -> Result<Rgb> {
        let backend = Cpu::new(1);
        let size = Size::new(200, 220);
        let mut picture = backend.adopt(Rgb::filled(size, [190, 150, 130])).unwrap();
        let mask = Mask { kinds: Vec::new(), scale: 1.3, padding: [0.0; 4], blur: 0.3 };
        let region = Region { mask: &mask, mesh, person: None };
        let own = self::mesh();
        let face = Face { rect: own.rect(), score: 0.9, landmarks: own.five() };
        apply(&backend, &mut picture, &face, seed, &region)?;
        Ok(backend.release(picture).unwrap())
    }

    fn difference(a: &Rgb, b: &Rgb) -> f32 {
        let pairs = a.bytes_all().iter().zip(b.bytes_all());
        pairs.map(|(a, b)| f32::from(a.abs_diff(*b))).sum::<f32>() / a.bytes_all().len() as f32
    }

    #[test]
    fn the_same_seed_makes_the_same_face_and_another_seed_another() {
        let mesh = mesh();
        let faces: Vec<_> = (0..4).map(|seed| run(seed, Some(&mesh)).unwrap()).collect();
        assert_eq!(faces[0], run(0, Some(&mesh)).unwrap());
        for i in 0..4 {
            for j in 0..i {
                assert!(difference(&faces[i], &faces[j]) > 0.3, "{i} and {j}");
            }
        }
    }

    #[test]
    fn a_made_face_has_eyes_and_a_mouth_about_where_the_target_has_them() {
        let mesh = mesh();
        let out = run(3, Some(&mesh)).unwrap();
        let around = |i: usize, pick: fn(i32, i32) -> i32, start: i32| {
            let p = mesh.at(i);
            let square = (0..17).flat_map(|y| (0..17).map(move |x| (x, y)));
            square.fold(start, |best, (x, y)| {
                let (x, y) = (p.x as u32 + x - 8, p.y as u32 + y - 8);
                pick(best, i32::from(out.view().pixel(x, y)[1]))
            })
        };
        // Lashes and lips are darker than the cheeks.
        for (dark, cheek) in [(159, 50), (386, 280), (13, 50)] {
            let (dark, cheek) = (around(dark, i32::min, 255), around(cheek, i32::max, 0));
            assert!(dark + 50 < cheek, "{dark} {cheek}");
        }
    }

    #[test]
    fn without_landmarks_nothing_is_made() {
        assert!(matches!(run(1, None), Err(Error::Face { .. })));
    }
}
