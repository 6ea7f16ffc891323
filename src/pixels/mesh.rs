//! Warps a picture by triangles: each destination pixel is looked up in the source.

use crate::geometry::{Point, Roi, Size};
use crate::resize::resize;
use crate::view::{Grey, Image, Rgb, View};

/// The most that a source is made smaller before it is sampled, so that a small copy does not alias.
const REDUCED: f64 = 64.0;

/// Warps `src` so that each triangle of `from` lands on the same triangle of `to`.
///
/// `layer` and `coverage` become as large as `roi`, whose pixel (0, 0) is the picture's
/// (roi.x, roi.y). Coverage is 255 inside the mesh and 0 outside, where the layer is black.
/// A triangle that turns over on its way, that has no area, that names no vertex or whose
/// vertices are not finite is not drawn: a hole is seen by its coverage.
pub fn warp(
    src: View<'_, 3>,
    from: &[Point],
    to: &[Point],
    triangles: &[[u16; 3]],
    roi: Roi,
    layer: &mut Rgb,
    coverage: &mut Grey,
) {
    reset(layer, roi.size());
    reset(coverage, roi.size());
    if src.size().pixels() == 0 || roi.size().pixels() == 0 {
        return;
    }
    let (area_from, area_to) = areas(from, to, triangles);
    let reduced = reduce(src, (area_from / area_to.max(1e-6)).sqrt());
    let (view, scale) = match &reduced {
        Some(r) => (r.image.view(), r.scale),
        None => (src, (1.0, 1.0)),
    };
    // Pixel centres stand half a pixel in, in both.
    let at = |v: f32, scale: f64| (f64::from(v) + 0.5) * scale - 0.5;
    let place = |p: Point| (at(p.x, scale.0), at(p.y, scale.1));
    let width = roi.width as usize;
    for t in triangles {
        let Some((f, d)) = corners(from, t).zip(corners(to, t)) else { continue };
        let Some(map) = Map::new(d, f, [place(f[0]), place(f[1]), place(f[2])]) else { continue };
        for y in map.rows(roi) {
            let Some((x0, x1)) = map.span(roi, y) else { continue };
            let (mut u, mut v) = map.source(f64::from(roi.x + x0), f64::from(roi.y + y));
            let start = y as usize * width;
            let (a, b) = (start + x0 as usize, start + x1 as usize + 1);
            coverage.bytes_all_mut()[a..b].fill(255);
            for pixel in layer.bytes_all_mut()[a * 3..b * 3].chunks_exact_mut(3) {
                pixel.copy_from_slice(&sample(view, u as f32, v as f32));
                u += map.du;
                v += map.dv;
            }
        }
    }
}

/// Rasterises one value per vertex, 0..=1, as an alpha of the size of `roi`: linear in each
/// triangle, 0 outside the mesh. A triangle that runs counterclockwise on screen has turned over
/// and is not drawn; where others overlap the last one holds.
pub fn values(points: &[Point], triangles: &[[u16; 3]], values: &[f32], roi: Roi, out: &mut Grey) {
    reset(out, roi.size());
    let width = roi.width as usize;
    for t in triangles {
        let Some(d) = corners(points, t).filter(|d| cross(*d) > 0.0) else { continue };
        let Some(v) = each(t, |i| values.get(i).copied().filter(|v| v.is_finite())) else {
            continue;
        };
        let shade = [(f64::from(v[0]), 0.0), (f64::from(v[1]), 0.0), (f64::from(v[2]), 0.0)];
        let Some(map) = Map::new(d, d, shade) else { continue };
        for y in map.rows(roi) {
            let Some((x0, x1)) = map.span(roi, y) else { continue };
            let (mut value, _) = map.source(f64::from(roi.x + x0), f64::from(roi.y + y));
            let start = y as usize * width;
            for a in &mut out.bytes_all_mut()[start + x0 as usize..=start + x1 as usize] {
                *a = (value * 255.0 + 0.5).clamp(0.0, 255.0) as u8;
                value += map.du;
            }
        }
    }
}

/// Makes an image of this size and all zero, keeping its buffer.
pub(crate) fn reset<const C: usize>(image: &mut Image<C>, size: Size) {
    let mut data = std::mem::replace(image, Image::filled(Size::new(0, 0), [0; C])).into_vec();
    data.clear();
    data.resize(size.width as usize * size.height as usize * C, 0);
    *image = Image::from_vec(size, data).expect("made to fit");
}

fn each<T>(t: &[u16; 3], get: impl Fn(usize) -> Option<T>) -> Option<[T; 3]> {
    Some([get(usize::from(t[0]))?, get(usize::from(t[1]))?, get(usize::from(t[2]))?])
}

/// Coordinates beyond this can't belong to a picture and would lose their fraction.
fn plausible(p: Point) -> bool {
    p.x.abs() < 1e6 && p.y.abs() < 1e6
}

fn corners(points: &[Point], t: &[u16; 3]) -> Option<[Point; 3]> {
    each(t, |i| points.get(i).copied().filter(|p| plausible(*p)))
}

fn cross(p: [Point; 3]) -> f64 {
    let side = |q: Point| (f64::from(q.x - p[0].x), f64::from(q.y - p[0].y));
    let (a, b) = (side(p[1]), side(p[2]));
    a.0 * b.1 - b.0 * a.1
}

fn areas(from: &[Point], to: &[Point], triangles: &[[u16; 3]]) -> (f64, f64) {
    triangles.iter().fold((0.0, 0.0), |sum, t| match corners(from, t).zip(corners(to, t)) {
        Some((f, d)) => (sum.0 + cross(f).abs(), sum.1 + cross(d).abs()),
        None => sum,
    })
}

/// A triangle of the destination and where its pixels come from.
struct Map {
    corners: [(f64, f64); 3],
    origin: (f64, f64),
    du: f64,
    dv: f64,
    du_dy: f64,
    dv_dy: f64,
}

impl Map {
    /// `None` when the triangle turns over or has no area.
    fn new(to: [Point; 3], from: [Point; 3], source: [(f64, f64); 3]) -> Option<Self> {
        let (det, det_from) = (cross(to), cross(from));
        if det.abs() < 1e-6 || det_from.abs() < 1e-9 || (det > 0.0) != (det_from > 0.0) {
            return None;
        }
        let corners = to.map(|p| (f64::from(p.x), f64::from(p.y)));
        let [o, p, q] = corners;
        let (ax, ay, bx, by) = (p.0 - o.0, p.1 - o.1, q.0 - o.0, q.1 - o.1);
        let slope = |s: [f64; 3]| {
            let (a, b) = (s[1] - s[0], s[2] - s[0]);
            ((a * by - b * ay) / det, (b * ax - a * bx) / det)
        };
        let (du, du_dy) = slope(source.map(|s| s.0));
        let (dv, dv_dy) = slope(source.map(|s| s.1));
        let origin = (
            source[0].0 - du * o.0 - du_dy * o.1, //
            source[0].1 - dv * o.0 - dv_dy * o.1,
        );
        Some(Self { corners, origin, du, dv, du_dy, dv_dy })
    }

    fn source(&self, x: f64, y: f64) -> (f64, f64) {
        (self.origin.0 + self.du * x + self.du_dy * y, self.origin.1 + self.dv * x + self.dv_dy * y)
    }

    /// Rows of the region that the triangle touches.
    fn rows(&self, roi: Roi) -> std::ops::Range<u32> {
        let ys = self.corners.map(|c| c.1 - f64::from(roi.y));
        let low = ys.into_iter().fold(f64::MAX, f64::min).ceil().max(0.0);
        let high = ys.into_iter().fold(f64::MIN, f64::max).floor() + 1.0;
        low as u32..high.clamp(0.0, f64::from(roi.height)) as u32
    }

    /// First and last pixel of a row inside the triangle, a hair wide so that no seam opens
    /// between neighbours.
    fn span(&self, roi: Roi, y: u32) -> Option<(u32, u32)> {
        let line = f64::from(roi.y + y);
        let (mut left, mut right) = (f64::MAX, f64::MIN);
        for i in 0..3 {
            let (a, b) = (self.corners[i], self.corners[(i + 1) % 3]);
            if (a.1 - line) * (b.1 - line) > 0.0 {
                continue;
            }
            let (low, high) = if (a.1 - b.1).abs() < 1e-12 {
                (a.0.min(b.0), a.0.max(b.0))
            } else {
                let x = a.0 + (line - a.1) / (b.1 - a.1) * (b.0 - a.0);
                (x, x)
            };
            (left, right) = (left.min(low), right.max(high));
        }
        let x0 = (left - f64::from(roi.x) - 1e-3).ceil().max(0.0);
        let x1 = (right - f64::from(roi.x) + 1e-3).floor().min(f64::from(roi.width) - 1.0);
        (x0 <= x1).then_some((x0 as u32, x1 as u32))
    }
}

/// Bilinear, border replicated.
#[inline]
fn sample(view: View<'_, 3>, x: f32, y: f32) -> [u8; 3] {
    let size = view.size();
    let x = x.clamp(0.0, (size.width - 1) as f32);
    let y = y.clamp(0.0, (size.height - 1) as f32);
    let (x0, y0) = (x as u32, y as u32);
    let (x1, y1) = ((x0 + 1).min(size.width - 1), (y0 + 1).min(size.height - 1));
    let (fx, fy) = (x - x0 as f32, y - y0 as f32);
    let (top, bottom) = (view.row(y0), view.row(y1));
    let (a, b) = (x0 as usize * 3, x1 as usize * 3);
    std::array::from_fn(|c| {
        let over = f32::from(top[a + c]) * (1.0 - fx) + f32::from(top[b + c]) * fx;
        let under = f32::from(bottom[a + c]) * (1.0 - fx) + f32::from(bottom[b + c]) * fx;
        (over * (1.0 - fy) + under * fy + 0.5) as u8
    })
}

/// A smaller source, and what its pixels are of the source's.
struct Reduced {
    image: Rgb,
    scale: (f64, f64),
}

/// The source made smaller until one of its pixels is about one of the destination's: by the exact
/// ratio, so that a face that comes nearer never jumps from one sharpness to the next.
fn reduce(src: View<'_, 3>, scale: f64) -> Option<Reduced> {
    if !scale.is_finite() || scale <= 1.0 {
        return None;
    }
    let size = src.size();
    let less = |n: u32| ((f64::from(n) / scale.min(REDUCED)).round() as u32).max(1);
    let mut image = Rgb::filled(Size::new(less(size.width), less(size.height)), [0; 3]);
    resize(src, &mut image.view_mut());
    let to = image.size();
    let ratio = |to: u32, from: u32| f64::from(to) / f64::from(from);
    Some(Reduced { image, scale: (ratio(to.width, size.width), ratio(to.height, size.height)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const QUAD: [[u16; 3]; 2] = [[0, 1, 2], [0, 2, 3]];

    fn square(x: f32, y: f32, side: f32) -> Vec<Point> {
        let p = Point::new;
        vec![p(x, y), p(x + side, y), p(x + side, y + side), p(x, y + side)]
    }

    fn ramp(width: u32, height: u32) -> Rgb {
        let data = (0..height)
            .flat_map(|y| (0..width).flat_map(move |x| [(x * 4) as u8, (y * 4) as u8, 9]))
            .collect();
        Image::from_vec(Size::new(width, height), data).unwrap()
    }

    fn run(
        src: &Rgb,
        from: &[Point],
        to: &[Point],
        triangles: &[[u16; 3]],
        roi: Roi,
    ) -> (Rgb, Grey) {
        let mut layer = Rgb::filled(Size::new(1, 1), [1; 3]);
        let mut cover = Grey::filled(Size::new(7, 7), [1]);
        warp(src.view(), from, to, triangles, roi, &mut layer, &mut cover);
        (layer, cover)
    }

    #[test]
    fn moving_the_mesh_moves_the_pixels_exactly() {
        let src = ramp(40, 40);
        let roi = Roi { x: 10, y: 0, width: 30, height: 40 };
        let (layer, cover) =
            run(&src, &square(4.0, 4.0, 20.0), &square(14.0, 9.0, 20.0), &QUAD, roi);
        for y in 0..40u32 {
            for x in 0..30u32 {
                let inside = (14..=34).contains(&(x + 10)) && (9..=29).contains(&y);
                assert_eq!(cover.view().pixel(x, y)[0], if inside { 255 } else { 0 }, "{x},{y}");
                let expected = if inside { src.view().pixel(x, y - 5) } else { [0; 3] };
                assert_eq!(layer.view().pixel(x, y), expected, "{x},{y}");
            }
        }
    }

    #[test]
    fn doubling_interpolates_between_pixels() {
        let src = ramp(32, 32);
        let roi = Roi { x: 0, y: 0, width: 60, height: 60 };
        let (layer, _) = run(&src, &square(2.0, 2.0, 20.0), &square(4.0, 4.0, 40.0), &QUAD, roi);
        for (x, y) in [(8u32, 8u32), (9, 12), (21, 33), (40, 17)] {
            let got = layer.view().pixel(x, y);
            assert!((f32::from(got[0]) - x as f32 * 2.0).abs() <= 1.0, "{got:?} at {x},{y}");
            assert!((f32::from(got[1]) - y as f32 * 2.0).abs() <= 1.0, "{got:?} at {x},{y}");
        }
    }

    #[test]
    fn a_much_smaller_copy_is_averaged_not_picked() {
        let size = Size::new(128, 128);
        let data = (0..128u32)
            .flat_map(|y| {
                (0..128u32).flat_map(move |x| [if (x + y) % 2 == 0 { 255 } else { 0 }; 3])
            })
            .collect();
        let src = Image::from_vec(size, data).unwrap();
        let roi = Roi { x: 0, y: 0, width: 16, height: 16 };
        let (layer, cover) =
            run(&src, &square(0.0, 0.0, 127.0), &square(0.0, 0.0, 15.0), &QUAD, roi);
        for y in 0..16 {
            for x in 0..16 {
                assert_eq!(cover.view().pixel(x, y), [255]);
                assert!((126..=129).contains(&layer.view().pixel(x, y)[0]));
            }
        }
    }

    #[test]
    fn a_triangle_that_turns_over_leaves_a_hole() {
        let src = ramp(32, 32);
        let roi = Roi::whole(src.size());
        let mut to = square(4.0, 4.0, 20.0);
        to.swap(1, 3);
        let (_, cover) = run(&src, &square(4.0, 4.0, 20.0), &to, &QUAD, roi);
        assert!(cover.bytes_all().iter().all(|a| *a == 0));
    }

    #[test]
    fn values_are_linear_between_vertices() {
        let roi = Roi { x: 5, y: 5, width: 30, height: 30 };
        let mut out = Grey::filled(Size::new(1, 1), [0]);
        values(&square(10.0, 10.0, 20.0), &QUAD, &[0.0, 1.0, 1.0, 0.0], roi, &mut out);
        assert_eq!(out.view().pixel(5, 8), [0]);
        assert!((127..=128).contains(&out.view().pixel(15, 8)[0]));
        assert_eq!(out.view().pixel(25, 8), [255]);
        assert_eq!(out.view().pixel(26, 8), [0]);
        let turned = QUAD.map(|[a, b, c]| [a, c, b]);
        values(&square(10.0, 10.0, 20.0), &turned, &[1.0; 4], roi, &mut out);
        assert!(out.bytes_all().iter().all(|v| *v == 0));
    }

    #[test]
    fn what_is_no_number_or_no_vertex_draws_nothing() {
        let src = ramp(8, 8);
        let bad = [f32::NAN, f32::INFINITY, -3e38];
        for v in bad {
            let mut to = square(0.0, 0.0, 7.0);
            to[1].x = v;
            let (_, cover) = run(
                &src,
                &square(0.0, 0.0, 7.0),
                &to,
                &[[0, 1, 2], [0, 9, 3]],
                Roi::whole(src.size()),
            );
            assert!(cover.bytes_all().iter().all(|a| *a == 0), "{v}");
        }
    }

    proptest! {
        #[test]
        fn no_mesh_panics_or_leaves_the_region(
            xs in proptest::collection::vec((-1e7f32..1e7, -1e7f32..1e7), 8),
            near in proptest::collection::vec((-50f32..90.0, -50f32..90.0), 8),
            w in 0u32..24, h in 0u32..24,
        ) {
            let src = ramp(20, 20);
            let roi = Roi { x: 3, y: 5, width: w, height: h };
            let p = |v: &[(f32, f32)]| v.iter().map(|p| Point::new(p.0, p.1)).collect::<Vec<_>>();
            for points in [p(&xs), p(&near)] {
                let (layer, cover) = run(&src, &points[..4], &points[4..], &QUAD, roi);
                prop_assert_eq!(layer.size(), roi.size());
                prop_assert_eq!(cover.size(), roi.size());
            }
        }

        #[test]
        fn neighbours_leave_no_seam(
            mid in (3f32..37.0, 3f32..37.0),
        ) {
            let src = ramp(40, 40);
            let mut points = square(1.0, 1.0, 38.0);
            points.push(Point::new(mid.0, mid.1));
            let fan = [[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]];
            let (_, cover) = run(&src, &points, &points, &fan, Roi::whole(src.size()));
            for y in 1..40 { for x in 1..40 {
                prop_assert_eq!(cover.view().pixel(x, y), [255]);
            }}
        }
    }
}
