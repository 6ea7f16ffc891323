//! Letters of our own, drawn as strokes: what a label needs, on a plate that reads on any ground.
//!
//! Lengths are in heights of a capital letter: its top edge is 0, its base line 1, y points down.
//! A stroke has round ends; its coordinates are those of its middle line.

use crate::geometry::{Point, Size};
use crate::view::{Grey, Image, Rgb, View};

/// A stroke's middle line.
#[derive(Debug, Clone, Copy)]
enum Stroke {
    /// Through points.
    Line(&'static [(f32, f32)]),
    /// Part of an ellipse: centre, half-axes, from and to in degrees (clockwise, 0 is right).
    Arc { centre: (f32, f32), axes: (f32, f32), from: f32, to: f32 },
}
use Stroke::{Arc, Line};

/// One sign: how far it advances, how thick its strokes are, and the strokes.
#[derive(Debug)]
struct Glyph {
    sign: char,
    advance: f32,
    weight: f32,
    strokes: &'static [Stroke],
}

const BOLD: f32 = 0.15;
/// The two Chinese signs are denser, so thinner; they stand a little above and below capitals.
const FINE: f32 = 0.105;
/// Space between signs and between words.
const TRACKING: f32 = 0.17;
const WORD: f32 = 0.40;
/// Space between lines, around the text, and the radius of the plate's corners.
const LEADING: f32 = 0.55;
const PADDING: (f32, f32) = (0.62, 0.52);
const RADIUS: f32 = 0.5;
/// Colour and opacity of the plate, of its rim, and of the text.
const PLATE: ([f32; 3], f32) = ([16.0, 18.0, 24.0], 0.74);
const RIM: ([f32; 3], f32) = ([255.0, 255.0, 255.0], 0.30);
const TEXT: [f32; 3] = [255.0, 255.0, 255.0];

#[rustfmt::skip]
static GLYPHS: [Glyph; 15] = [
    Glyph { sign: 'A', advance: 0.88, weight: BOLD, strokes: &[
        Line(&[(0.075, 0.925), (0.44, 0.075), (0.805, 0.925)]),
        Line(&[(0.20, 0.65), (0.68, 0.65)]),
    ] },
    Glyph { sign: 'D', advance: 0.82, weight: BOLD, strokes: &[
        Line(&[(0.32, 0.075), (0.075, 0.075), (0.075, 0.925), (0.32, 0.925)]),
        Arc { centre: (0.32, 0.5), axes: (0.425, 0.425), from: -90.0, to: 90.0 },
    ] },
    Glyph { sign: 'E', advance: 0.69, weight: BOLD, strokes: &[
        Line(&[(0.615, 0.075), (0.075, 0.075), (0.075, 0.925), (0.615, 0.925)]),
        Line(&[(0.075, 0.49), (0.55, 0.49)]),
    ] },
    Glyph { sign: 'G', advance: 0.94, weight: BOLD, strokes: &[
        Arc { centre: (0.47, 0.5), axes: (0.395, 0.425), from: -43.0, to: -360.0 },
        Line(&[(0.865, 0.5), (0.53, 0.5)]),
    ] },
    Glyph { sign: 'I', advance: 0.15, weight: BOLD, strokes: &[Line(&[(0.075, 0.075), (0.075, 0.925)])] },
    Glyph { sign: 'M', advance: 0.98, weight: BOLD, strokes: &[
        Line(&[(0.075, 0.925), (0.075, 0.075), (0.49, 0.68), (0.905, 0.075), (0.905, 0.925)]),
    ] },
    Glyph { sign: 'N', advance: 0.80, weight: BOLD, strokes: &[
        Line(&[(0.075, 0.925), (0.075, 0.075), (0.725, 0.925), (0.725, 0.075)]),
    ] },
    Glyph { sign: 'O', advance: 0.96, weight: BOLD, strokes: &[
        Arc { centre: (0.48, 0.5), axes: (0.405, 0.425), from: 0.0, to: 360.0 },
    ] },
    Glyph { sign: 'R', advance: 0.74, weight: BOLD, strokes: &[
        Line(&[(0.075, 0.925), (0.075, 0.075), (0.41, 0.075)]),
        Arc { centre: (0.41, 0.315), axes: (0.24, 0.24), from: -90.0, to: 90.0 },
        Line(&[(0.41, 0.555), (0.075, 0.555)]),
        Line(&[(0.40, 0.555), (0.665, 0.925)]),
    ] },
    Glyph { sign: 'S', advance: 0.70, weight: BOLD, strokes: &[
        Arc { centre: (0.35, 0.285), axes: (0.255, 0.21), from: -22.0, to: -270.0 },
        Arc { centre: (0.35, 0.71), axes: (0.275, 0.215), from: -90.0, to: 158.0 },
    ] },
    Glyph { sign: 'T', advance: 0.79, weight: BOLD, strokes: &[
        Line(&[(0.075, 0.075), (0.715, 0.075)]),
        Line(&[(0.395, 0.075), (0.395, 0.925)]),
    ] },
    Glyph { sign: 'Y', advance: 0.83, weight: BOLD, strokes: &[
        Line(&[(0.075, 0.075), (0.415, 0.53), (0.755, 0.075)]),
        Line(&[(0.415, 0.53), (0.415, 0.925)]),
    ] },
    Glyph { sign: '·', advance: 0.20, weight: 0.20, strokes: &[Line(&[(0.10, 0.5), (0.10, 0.5)])] },
    Glyph { sign: '生', advance: 1.17, weight: FINE, strokes: &[
        Line(&[(0.36, 0.0), (0.315, 0.16), (0.25, 0.30), (0.16, 0.43)]),
        Line(&[(0.295, 0.225), (1.04, 0.225)]),
        Line(&[(0.23, 0.575), (0.99, 0.575)]),
        Line(&[(0.635, -0.045), (0.635, 0.985)]),
        Line(&[(0.12, 0.985), (1.12, 0.985)]),
    ] },
    Glyph { sign: '成', advance: 1.14, weight: FINE, strokes: &[
        Line(&[(0.19, 0.21), (1.05, 0.21)]),
        Line(&[(0.19, 0.21), (0.19, 0.52), (0.165, 0.70), (0.125, 0.86), (0.06, 1.0)]),
        Line(&[(0.20, 0.48), (0.475, 0.48), (0.465, 0.70), (0.44, 0.79), (0.395, 0.815), (0.30, 0.795)]),
        Line(&[(0.60, -0.04), (0.61, 0.20), (0.645, 0.44), (0.71, 0.66), (0.80, 0.84), (0.90, 0.955),
               (0.985, 0.985), (1.03, 0.93), (1.065, 0.76)]),
        Line(&[(0.955, 0.36), (0.89, 0.53), (0.78, 0.70), (0.64, 0.85), (0.53, 0.935)]),
        Line(&[(0.765, -0.01), (0.84, 0.03), (0.905, 0.09)]),
    ] },
];

/// A label as a layer and where it covers, of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plate {
    pub layer: Rgb,
    pub alpha: Grey,
}

fn glyph(sign: char) -> Option<&'static Glyph> {
    GLYPHS.iter().find(|g| g.sign == sign)
}

/// Width of one line in heights of a capital. Signs without a glyph take no room.
fn line_width(line: &str) -> f32 {
    let (mut width, mut signs) = (0.0, 0_u32);
    for sign in line.chars() {
        if sign == ' ' {
            width += WORD;
        } else if let Some(glyph) = glyph(sign) {
            width += glyph.advance;
            signs += 1;
        }
    }
    width + TRACKING * signs.saturating_sub(1) as f32
}

/// Size in pixels of the plate for some lines with capitals of `height` pixels.
#[must_use]
pub fn plate_size(lines: &[&str], height: f32) -> Size {
    let widest = lines.iter().map(|line| line_width(line)).fold(0.0, f32::max);
    let count = lines.len() as f32;
    let side = |v: f32| (v * height).ceil().clamp(1.0, 65_535.0) as u32;
    Size::new(
        side(widest + 2.0 * PADDING.0),
        side(count + LEADING * (count - 1.0) + 2.0 * PADDING.1),
    )
}

/// Draws lines with capitals of `height` pixels on a rounded plate, anti-aliased, flush left.
#[must_use]
pub fn plate(lines: &[&str], height: f32) -> Plate {
    let size = plate_size(lines, height);
    let ink = ink(lines, height, size);
    let mut layer = Image::filled(size, [0; 3]);
    let mut alpha = Image::filled(size, [0; 1]);
    let radius = (RADIUS * height).min(size.short_side() as f32 / 2.0);
    let rim = (height / 24.0).max(0.6);
    let pixels = layer.bytes_all_mut().chunks_exact_mut(3).zip(alpha.bytes_all_mut());
    for (i, ((colour, opaque), ink)) in pixels.zip(ink).enumerate() {
        let (x, y) = (i as u32 % size.width, i as u32 / size.width);
        let inside = depth(x, y, size, radius);
        let cover = (inside + 0.5).clamp(0.0, 1.0);
        let edge = cover * (rim - inside + 0.5).clamp(0.0, 1.0);
        let ground = over((PLATE.0, PLATE.1 * cover), (RIM.0, RIM.1 * edge));
        let (mixed, a) = over(ground, (TEXT, ink));
        colour.copy_from_slice(&mixed.map(|c| (c + 0.5) as u8));
        *opaque = (a * 255.0 + 0.5) as u8;
    }
    Plate { layer, alpha }
}

/// How far a pixel lies inside a rounded rectangle, in pixels; below 0 outside.
fn depth(x: u32, y: u32, size: Size, radius: f32) -> f32 {
    let reach = |v: u32, side: u32| {
        let half = side as f32 / 2.0;
        (v as f32 + 0.5 - half).abs() - (half - radius)
    };
    let (dx, dy) = (reach(x, size.width), reach(y, size.height));
    radius - dx.max(0.0).hypot(dy.max(0.0)) - dx.max(dy).min(0.0)
}

/// One colour with opacity laid over another.
fn over(below: ([f32; 3], f32), above: ([f32; 3], f32)) -> ([f32; 3], f32) {
    let alpha = above.1 + below.1 * (1.0 - above.1);
    if alpha <= 0.0 {
        return (below.0, 0.0);
    }
    let share = above.1 / alpha;
    let mix = |i: usize| below.0[i] + (above.0[i] - below.0[i]) * share;
    ([mix(0), mix(1), mix(2)], alpha)
}

/// How much of each pixel the text covers, 0..=1.
fn ink(lines: &[&str], height: f32, size: Size) -> Vec<f32> {
    let mut ink = vec![0.0_f32; size.pixels() as usize];
    for (i, line) in lines.iter().enumerate() {
        let mut x = PADDING.0;
        let y = PADDING.1 + i as f32 * (1.0 + LEADING);
        for sign in line.chars() {
            if sign == ' ' {
                x += WORD;
            }
            let Some(glyph) = glyph(sign) else { continue };
            let place = |(px, py): (f32, f32)| Point::new((x + px) * height, (y + py) * height);
            for stroke in glyph.strokes {
                let points: Vec<Point> = stroke.points().into_iter().map(place).collect();
                // Below a pixel and a bit a stroke would fade.
                let half = (glyph.weight * height).max(1.2) / 2.0;
                points.windows(2).for_each(|ends| draw(&mut ink, size, ends[0], ends[1], half));
            }
            x += glyph.advance + TRACKING;
        }
    }
    ink
}

impl Stroke {
    fn points(&self) -> Vec<(f32, f32)> {
        match *self {
            Line(points) => points.to_vec(),
            Arc { centre, axes, from, to } => {
                const STEPS: u32 = 28;
                let point = |i: u32| {
                    let angle = (from + (to - from) * i as f32 / STEPS as f32).to_radians();
                    (centre.0 + axes.0 * angle.cos(), centre.1 + axes.1 * angle.sin())
                };
                (0..=STEPS).map(point).collect()
            }
        }
    }
}

/// Draws one straight piece with round ends.
fn draw(ink: &mut [f32], size: Size, a: Point, b: Point, half: f32) {
    let cut = |v: f32, side: u32| v.clamp(0.0, side as f32) as u32;
    let reach = half + 1.0;
    let (x0, x1) = (cut(a.x.min(b.x) - reach, size.width), cut(a.x.max(b.x) + reach, size.width));
    let (y0, y1) = (cut(a.y.min(b.y) - reach, size.height), cut(a.y.max(b.y) + reach, size.height));
    let (dx, dy) = (b.x - a.x, b.y - a.y);
    let length = dx * dx + dy * dy;
    for y in y0..y1 {
        for x in x0..x1 {
            let (px, py) = (x as f32 + 0.5 - a.x, y as f32 + 0.5 - a.y);
            let t = if length > 0.0 { ((px * dx + py * dy) / length).clamp(0.0, 1.0) } else { 0.0 };
            let away = (px - t * dx).hypot(py - t * dy);
            let pixel = &mut ink[(y * size.width + x) as usize];
            *pixel = pixel.max((half - away + 0.5).clamp(0.0, 1.0));
        }
    }
}

/// How well a part of a picture, of the plate's size, shows the plate: correlation of its luma
/// with the plate's where the plate covers, -1..=1. 0 when one of them is flat there.
#[must_use]
pub fn likeness(part: View<'_, 3>, plate: &Plate) -> f32 {
    if part.size() != plate.layer.size() {
        return 0.0;
    }
    let luma =
        |p: &[u8]| 0.299 * f64::from(p[0]) + 0.587 * f64::from(p[1]) + 0.114 * f64::from(p[2]);
    let mut sums = [0.0_f64; 6];
    for (y, row) in part.rows().enumerate() {
        let (layer, alpha) = (plate.layer.view().row(y as u32), plate.alpha.view().row(y as u32));
        let pixels = row.chunks_exact(3).zip(layer.chunks_exact(3)).zip(alpha);
        for ((p, q), _) in pixels.filter(|(_, a)| **a > 128) {
            let (a, b) = (luma(p), luma(q));
            for (sum, v) in sums.iter_mut().zip([1.0, a, b, a * a, b * b, a * b]) {
                *sum += v;
            }
        }
    }
    let [n, a, b, aa, bb, ab] = sums;
    let spread = ((aa - a * a / n) * (bb - b * b / n)).sqrt();
    let found = (ab - a * b / n) / spread;
    if found.is_finite() { found as f32 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blend;
    use crate::geometry::Roi;

    const LINES: [&str; 1] = ["AI GENERATED · AI生成"];

    #[test]
    fn every_sign_that_labels_use_has_a_glyph_inside_its_advance() {
        for sign in "AI GENERATED · AI生成 ANONYMISED".chars().filter(|c| *c != ' ') {
            let glyph = glyph(sign).unwrap();
            for (x, y) in glyph.strokes.iter().flat_map(Stroke::points) {
                let half = glyph.weight / 2.0;
                assert!(x - half > -0.02 && x + half < glyph.advance + 0.02, "{sign} x {x}");
                assert!(y - half > -0.12 && y + half < 1.12, "{sign} y {y}");
            }
        }
    }

    #[test]
    fn letters_differ_and_capitals_have_the_asked_height() {
        let draw = |sign: char| {
            let text = sign.to_string();
            let size = plate_size(&[&text], 40.0);
            (ink(&[&text], 40.0, size), size)
        };
        let mut seen: Vec<(char, Vec<f32>)> = Vec::new();
        for glyph in &GLYPHS {
            let (ink, size) = draw(glyph.sign);
            let rows: Vec<usize> = (0..size.height as usize)
                .filter(|y| {
                    let row = &ink[y * size.width as usize..(y + 1) * size.width as usize];
                    row.iter().any(|v| *v > 0.5)
                })
                .collect();
            let tall = rows.last().unwrap() - rows.first().unwrap() + 1;
            assert!(glyph.sign == '·' || (39..=49).contains(&tall), "{} {tall}", glyph.sign);
            assert!(seen.iter().all(|(_, other)| *other != ink));
            seen.push((glyph.sign, ink));
        }
    }

    #[test]
    fn text_stands_out_on_any_ground() {
        for ground in [[0; 3], [255; 3], [128; 3], [255, 240, 0], [30, 60, 200]] {
            let plate = plate(&LINES, 24.0);
            let mut picture = Image::filled(plate.layer.size(), ground);
            blend::paste(&mut picture.view_mut(), plate.layer.view(), plate.alpha.view());
            let luma: Vec<u32> = picture
                .bytes_all()
                .chunks_exact(3)
                .zip(plate.alpha.bytes_all())
                .filter(|(_, a)| **a > 128)
                .map(|(p, _)| (u32::from(p[0]) * 3 + u32::from(p[1]) * 6 + u32::from(p[2])) / 10)
                .collect();
            let text = luma.iter().filter(|l| **l > 230).count();
            let plain = luma.iter().filter(|l| **l < 100).count();
            assert!(text * 10 > luma.len(), "{ground:?}: {text} of {}", luma.len());
            assert!((text + plain) * 10 > luma.len() * 7, "{ground:?}: {plain}");
            assert!(likeness(picture.view(), &plate) > 0.95);
        }
    }

    #[test]
    fn another_label_or_none_is_not_like_it() {
        let plate = plate(&LINES, 20.0);
        let size = plate.layer.size();
        assert_eq!(likeness(Image::filled(size, [90; 3]).view(), &plate), 0.0);
        let other = super::plate(&["ANONYMISED"], 20.0);
        let mut picture = Image::filled(size, [90; 3]);
        let roi = Roi { x: 0, y: 0, ..Roi::whole(other.layer.size()) };
        let part = picture.view_mut().crop(roi);
        let (mut part, layer) = (part, other.layer.view());
        blend::paste(&mut part, layer, other.alpha.view());
        assert!(likeness(picture.view(), &plate) < 0.5);
    }

    #[test]
    fn any_height_draws_without_panic() {
        for height in [0.0, 0.3, 1.0, 3.0, 900.0] {
            let plate = plate(&["AI"], height);
            assert_eq!(plate.layer.size(), plate_size(&["AI"], height));
        }
        assert_eq!(plate_size(&[], 10.0).height, 5);
    }
}
