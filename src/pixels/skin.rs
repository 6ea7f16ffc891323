//! Tells skin from what lies on it by colour, and fills what was taken away.

use crate::geometry::Size;
use crate::mesh::reset;
use crate::raster::smooth;
use crate::tone::{Gauss, gaussian, lab};
use crate::view::{Grey, Image, Rgb, View};

/// Most pixels that a sample is judged by; more are thinned out evenly.
const SAMPLES: usize = 4096;
/// Least robust deviations of L, a and b, so that a flat sample does not call all else unlike.
const LEAST: [f32; 3] = [3.5, 2.0, 2.5];

/// What counts as like a sample: distances from its median, in robust deviations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Likeness {
    /// Alpha is 255 up to here,
    pub near: f32,
    /// and 0 from here on.
    pub far: f32,
    /// Pixels by which the unlike part grows, and lone pixels of it vanish; 0 for neither.
    pub grow: f32,
    /// Share of unlike surroundings, beyond a twentieth, within which a grown part sets in: a
    /// larger one keeps its edge from shimmering where the picture moves.
    pub soft: f32,
}

/// Where `picture` has the colours that it has where `sample` is above one half: 255 where it is
/// like them, 0 where it is not. Light that falls off evenly over the region is allowed for. All
/// 255 when the sample is too small to say (under 16 pixels).
///
/// # Panics
/// When the sizes differ.
#[must_use]
pub fn likeness(picture: View<'_, 3>, sample: &Grey, like: &Likeness) -> Grey {
    let size = picture.size();
    assert_eq!(size, sample.size());
    let mut out = Grey::filled(size, [255]);
    let Some(model) = Model::of(picture, sample) else { return out };
    let (w, h) = (size.width as usize, size.height as usize);
    let span = (like.far - like.near).max(1e-3);
    let mut unlike = vec![[0.0f32; 1]; w * h];
    for (y, row) in picture.rows().enumerate() {
        for (x, p) in row.chunks_exact(3).enumerate() {
            let d = model.distance(lab([p[0], p[1], p[2]]), x as f32, y as f32);
            unlike[y * w + x][0] = smooth((d - like.near) / span);
        }
    }
    if like.grow >= 0.5 {
        // Blurred and amplified: what was unlike grows by about `grow`, lone pixels vanish.
        gaussian(&mut unlike, w, h, like.grow.min(w.max(h) as f32), &mut Gauss::default());
    }
    for (a, u) in out.bytes_all_mut().iter_mut().zip(&unlike) {
        let u = if like.grow >= 0.5 { smooth((u[0] - 0.05) / like.soft.max(1e-3)) } else { u[0] };
        *a = ((1.0 - u) * 255.0 + 0.5) as u8;
    }
    out
}

/// A pixel of the sample: where it stands, and its colour.
type Seen = (f32, f32, [f32; 3]);

/// Median colour, its spread, and a plane of light.
struct Model {
    median: [f32; 3],
    spread: [f32; 3],
    centre: (f32, f32),
    slope: (f32, f32),
}

impl Model {
    fn of(picture: View<'_, 3>, sample: &Grey) -> Option<Self> {
        let mut found = Vec::new();
        let count = sample.bytes_all().iter().filter(|a| **a > 127).count();
        let step = count.div_ceil(SAMPLES).max(1);
        let mut seen = 0;
        for (y, (row, alpha)) in picture.rows().zip(sample.view().rows()).enumerate() {
            for (x, (p, _)) in
                row.chunks_exact(3).zip(alpha).enumerate().filter(|(_, (_, a))| **a > 127)
            {
                seen += 1;
                if seen % step == 0 {
                    found.push((x as f32, y as f32, lab([p[0], p[1], p[2]])));
                }
            }
        }
        if found.len() < 16 {
            return None;
        }
        let mut column = Vec::with_capacity(found.len());
        let mut middle = |value: &dyn Fn(&Seen) -> f32| {
            column.clear();
            column.extend(found.iter().map(value));
            let at = column.len() / 2;
            *column.select_nth_unstable_by(at, f32::total_cmp).1
        };
        let centre = (middle(&|f| f.0), middle(&|f| f.1));
        let light = middle(&|f| f.2[0]);
        let slope = plane(&found, centre, light);
        let lift = |f: &Seen| f.2[0] - slope.0 * (f.0 - centre.0) - slope.1 * (f.1 - centre.1);
        let median = [middle(&lift), middle(&|f| f.2[1]), middle(&|f| f.2[2])];
        let spread = [
            middle(&|f| (lift(f) - median[0]).abs()),
            middle(&|f| (f.2[1] - median[1]).abs()),
            middle(&|f| (f.2[2] - median[2]).abs()),
        ];
        let spread = std::array::from_fn(|c| (1.4826 * spread[c]).max(LEAST[c]));
        Some(Self { median, spread, centre, slope })
    }

    fn distance(&self, lab: [f32; 3], x: f32, y: f32) -> f32 {
        let light = self.slope.0 * (x - self.centre.0) + self.slope.1 * (y - self.centre.1);
        let l = (lab[0] - light - self.median[0]) / self.spread[0];
        // A gleam on skin is still skin.
        let l = if l > 0.0 { l * 0.5 } else { l };
        let a = (lab[1] - self.median[1]) / self.spread[1];
        let b = (lab[2] - self.median[2]) / self.spread[2];
        (l * l + 0.5 * (a * a + b * b)).sqrt()
    }
}

/// Slope of L by least squares over the half that is nearest to the median light.
fn plane(found: &[Seen], centre: (f32, f32), light: f32) -> (f32, f32) {
    let (mut xx, mut xy, mut yy, mut xl, mut yl) = (1e-3f32, 0.0f32, 1e-3f32, 0.0f32, 0.0f32);
    for (x, y, lab) in found.iter().filter(|f| (f.2[0] - light).abs() < 25.0) {
        let (x, y, l) = (x - centre.0, y - centre.1, lab[0] - light);
        xx += x * x;
        xy += x * y;
        yy += y * y;
        xl += x * l;
        yl += y * l;
    }
    let det = xx * yy - xy * xy;
    if det <= 1e-3 {
        return (0.0, 0.0);
    }
    ((xl * yy - yl * xy) / det, (yl * xx - xl * xy) / det)
}

/// Replaces what `keep` leaves out by what stands around it, smoothly: a mean of ever wider
/// surroundings (pull and push). Unchanged when `keep` is empty.
///
/// # Panics
/// When the sizes differ.
pub fn fill(picture: &mut Rgb, keep: &Grey) {
    assert_eq!(picture.size(), keep.size());
    let size = picture.size();
    let base: Vec<[f32; 4]> = picture
        .bytes_all()
        .chunks_exact(3)
        .zip(keep.bytes_all())
        .map(|(p, a)| {
            // Half-kept pixels are tinged by what they border on.
            let w = smooth(f32::from(*a) / 127.0 - 1.0);
            [f32::from(p[0]) * w, f32::from(p[1]) * w, f32::from(p[2]) * w, w]
        })
        .collect();
    let mut levels = vec![(base, size.width as usize, size.height as usize)];
    while let Some((last, w, h)) = levels.last().filter(|(_, w, h)| *w > 1 || *h > 1) {
        let (hw, hh) = (w.div_ceil(2), h.div_ceil(2));
        let mut half = vec![[0.0f32; 4]; hw * hh];
        for y in 0..*h {
            for x in 0..*w {
                let (from, to) = (&last[y * w + x], &mut half[y / 2 * hw + x / 2]);
                (0..4).for_each(|c| to[c] += from[c]);
            }
        }
        levels.push((half, hw, hh));
    }
    if !levels.last().is_some_and(|(v, ..)| v.first().is_some_and(|v| v[3] > 0.0)) {
        return;
    }
    let mut filled: Option<(Vec<[f32; 3]>, usize, usize)> = None;
    for (sums, w, h) in levels.into_iter().rev() {
        let mut out = vec![[0.0f32; 3]; w * h];
        for y in 0..h {
            for x in 0..w {
                let s = sums[y * w + x];
                let trust = s[3].min(1.0);
                let own: [f32; 3] = std::array::from_fn(|c| s[c] / s[3].max(1e-6));
                let under = filled.as_ref().map_or(own, |(f, fw, fh)| between(f, *fw, *fh, x, y));
                out[y * w + x] = std::array::from_fn(|c| own[c] * trust + under[c] * (1.0 - trust));
            }
        }
        filled = Some((out, w, h));
    }
    let Some((filled, ..)) = filled else { return };
    let pixels = picture.bytes_all_mut().chunks_exact_mut(3);
    for ((p, a), f) in pixels.zip(keep.bytes_all()).zip(&filled) {
        let a = f32::from(*a) / 255.0;
        for c in 0..3 {
            p[c] = (f32::from(p[c]) * a + f[c] * (1.0 - a) + 0.5) as u8;
        }
    }
}

/// A level half as large, read at a pixel of the larger one, bilinear.
fn between(grid: &[[f32; 3]], w: usize, h: usize, x: usize, y: usize) -> [f32; 3] {
    let place = |v: usize, n: usize| {
        let at = ((v as f32 + 0.5) / 2.0 - 0.5).clamp(0.0, (n - 1) as f32);
        (at as usize, (at as usize + 1).min(n - 1), at - at.floor())
    };
    let ((x0, x1, fx), (y0, y1, fy)) = (place(x, w), place(y, h));
    std::array::from_fn(|c| {
        let top = grid[y0 * w + x0][c] * (1.0 - fx) + grid[y0 * w + x1][c] * fx;
        let bottom = grid[y1 * w + x0][c] * (1.0 - fx) + grid[y1 * w + x1][c] * fx;
        top * (1.0 - fy) + bottom * fy
    })
}

/// The picture seen in a mirror: left is right.
pub fn mirror<const C: usize>(from: View<'_, C>, to: &mut Image<C>) {
    let size = from.size();
    reset(to, Size::new(size.width, size.height));
    let row = size.width as usize * C;
    for (y, line) in from.rows().enumerate() {
        let out = &mut to.bytes_all_mut()[y * row..(y + 1) * row];
        for (a, b) in line.chunks_exact(C).zip(out.chunks_exact_mut(C).rev()) {
            b.copy_from_slice(a);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size::new(60, 40);
    const SKIN: [u8; 3] = [205, 160, 140];
    const LIKE: Likeness = Likeness { near: 3.0, far: 5.0, grow: 0.0, soft: 0.2 };

    fn picture(pixel: impl Fn(u32, u32) -> [u8; 3]) -> Rgb {
        let pixel = &pixel;
        let data =
            (0..SIZE.height).flat_map(|y| (0..SIZE.width).flat_map(move |x| pixel(x, y))).collect();
        Image::from_vec(SIZE, data).unwrap()
    }

    /// Skin that gets darker to the right, with a dark lock of hair in the upper left.
    fn face() -> Rgb {
        picture(|x, y| {
            let fringe = (10..20).contains(&x) && y < 12;
            let shade = x as u8 / 2;
            if fringe { [60, 40, 35] } else { SKIN.map(|v| v - shade + ((x + y) % 3) as u8) }
        })
    }

    #[test]
    fn hair_is_unlike_skin_and_shaded_skin_is_like_it() {
        let sample = Grey::filled(SIZE, [255]);
        let like = likeness(face().view(), &sample, &LIKE);
        assert_eq!(like.view().pixel(15, 5), [0]);
        for (x, y) in [(2, 30), (30, 20), (58, 38)] {
            assert_eq!(like.view().pixel(x, y), [255], "{x},{y}");
        }
    }

    #[test]
    fn the_unlike_part_grows_by_what_is_asked() {
        let sample = Grey::filled(SIZE, [255]);
        let like = likeness(face().view(), &sample, &Likeness { grow: 3.0, ..LIKE });
        assert!(like.view().pixel(22, 5)[0] < 128, "{:?}", like.view().pixel(22, 5));
        assert_eq!(like.view().pixel(28, 5), [255]);
    }

    #[test]
    fn without_a_sample_everything_is_like_it() {
        let like = likeness(face().view(), &Grey::filled(SIZE, [0]), &LIKE);
        assert!(like.bytes_all().iter().all(|a| *a == 255));
    }

    #[test]
    fn a_hole_is_filled_from_its_surroundings_and_nothing_else_changes() {
        let mut image = picture(|x, y| {
            if (20..30).contains(&x) && (10..20).contains(&y) { [0, 255, 0] } else { SKIN }
        });
        let mut keep = Grey::filled(SIZE, [255]);
        for y in 10..20 {
            keep.view_mut().row_mut(y)[20..30].fill(0);
        }
        fill(&mut image, &keep);
        for p in image.bytes_all().chunks(3) {
            assert!((0..3).all(|c| p[c].abs_diff(SKIN[c]) <= 1), "{p:?}");
        }
    }

    #[test]
    fn a_fill_goes_smoothly_from_side_to_side() {
        let mut image = picture(|x, _| [if x < 20 { 50 } else { 200 }; 3]);
        let mut keep = Grey::filled(SIZE, [255]);
        for y in 0..40 {
            keep.view_mut().row_mut(y)[10..50].fill(0);
        }
        fill(&mut image, &keep);
        let row: Vec<_> = (0..60).map(|x| i32::from(image.view().pixel(x, 20)[0])).collect();
        assert!(row.windows(2).all(|w| (w[1] - w[0]).abs() <= 25), "{row:?}");
        assert!(row[12] < 90 && row[47] > 160, "{row:?}");
    }

    #[test]
    fn nothing_kept_changes_nothing() {
        let mut image = face();
        fill(&mut image, &Grey::filled(SIZE, [0]));
        assert_eq!(image, face());
        let mut none = Rgb::filled(Size::new(0, 0), [0; 3]);
        fill(&mut none, &Grey::filled(Size::new(0, 0), [0]));
    }

    #[test]
    fn a_mirror_twice_is_the_picture() {
        let mut once = Rgb::filled(Size::new(1, 1), [0; 3]);
        let mut twice = once.clone();
        mirror(face().view(), &mut once);
        mirror(once.view(), &mut twice);
        assert_ne!(once, face());
        assert_eq!(twice, face());
    }
}
