//! A drawn plate made ready for the frames of a clip: laid out once, blended into each without
//! allocating.

use crate::blend;
use crate::convert::{self, Colour};
use crate::geometry::{Roi, Size};
use crate::i420::{self, I420, I420View, chroma_size};
use crate::view::{Grey, Rgb};

/// How far a frame must be turned clockwise to stand upright.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Turn {
    #[default]
    None,
    Right,
    Half,
    Left,
}

impl Turn {
    /// From degrees clockwise.
    #[must_use]
    pub const fn from_degrees(degrees: u32) -> Option<Self> {
        match degrees {
            0 => Some(Self::None),
            90 => Some(Self::Right),
            180 => Some(Self::Half),
            270 => Some(Self::Left),
            _ => None,
        }
    }

    /// A size as it is after turning.
    #[must_use]
    pub const fn size(self, size: Size) -> Size {
        match self {
            Self::None | Self::Half => size,
            Self::Right | Self::Left => Size::new(size.height, size.width),
        }
    }

    /// A frame as people see it.
    ///
    /// # Panics
    /// When `upright` has not the size that the frame has after turning.
    pub fn upright(self, frame: I420View<'_>, upright: &mut Rgb) {
        let size = frame.size();
        assert!(upright.size() == self.size(size), "the picture has the turned frame's size");
        if self == Self::None {
            frame.to_rgb(Roi::whole(size), &mut upright.view_mut());
            return;
        }
        let mut coded = Rgb::filled(size, [0; 3]);
        frame.to_rgb(Roi::whole(size), &mut coded.view_mut());
        for y in 0..upright.size().height {
            for (x, pixel) in upright.view_mut().row_mut(y).chunks_exact_mut(3).enumerate() {
                let (fx, fy) = self.place((x as u32, y), size);
                pixel.copy_from_slice(&coded.view().pixel(fx, fy));
            }
        }
    }

    /// Where pixel (x, y) of the upright picture stands in a frame of size `frame`.
    ///
    /// # Panics
    /// When it lies outside.
    #[must_use]
    pub fn place(self, (x, y): (u32, u32), frame: Size) -> (u32, u32) {
        let Size { width, height } = frame;
        match self {
            Self::None => (x, y),
            Self::Right => (y, height - 1 - x),
            Self::Half => (width - 1 - x, height - 1 - y),
            Self::Left => (width - 1 - y, x),
        }
    }
}

/// A picture with alpha at one place of a frame.
#[derive(Debug, Clone)]
pub struct Stamp {
    roi: Roi,
    layer: I420,
    alpha: Grey,
    /// Of the chroma samples.
    half: Grey,
}

impl Stamp {
    /// Makes `layer` ready to stand at `at` of the upright picture, in frames of size `frame` that
    /// must be turned.
    ///
    /// # Panics
    /// When it reaches outside, or layer and alpha have other sizes.
    #[must_use]
    pub fn new(
        (layer, alpha): (&Rgb, &Grey),
        at: Roi,
        (frame, turn): (Size, Turn),
        colour: Colour,
    ) -> Self {
        assert!(layer.size() == at.size() && alpha.size() == at.size(), "all have one size");
        assert!(at.lies_in(turn.size(frame)), "The stamp {at:?} reaches outside {frame:?}");
        let last = (at.x + at.width.max(1) - 1, at.y + at.height.max(1) - 1);
        let (a, b) = (turn.place((at.x, at.y), frame), turn.place(last, frame));
        let (x, y) = (a.0.min(b.0), a.1.min(b.1));
        let own = Roi { x, y, width: a.0.abs_diff(b.0) + 1, height: a.1.abs_diff(b.1) + 1 };
        let roi = i420::aligned(own, frame);
        let mut turned = Rgb::filled(roi.size(), [0; 3]);
        let mut opaque = Grey::filled(roi.size(), [0]);
        for (x, y) in (0..at.height).flat_map(|y| (0..at.width).map(move |x| (x, y))) {
            let (fx, fy) = turn.place((at.x + x, at.y + y), frame);
            let to = (fx - roi.x) as usize;
            let pixel = layer.view().pixel(x, y);
            turned.view_mut().row_mut(fy - roi.y)[3 * to..3 * to + 3].copy_from_slice(&pixel);
            opaque.view_mut().row_mut(fy - roi.y)[to] = alpha.view().pixel(x, y)[0];
        }
        let mut planes = I420::new(roi.size(), colour);
        planes.fill_from(turned.view());
        let half = halved(&turned, &opaque, &mut planes, colour);
        Self { roi, layer: planes, alpha: opaque, half }
    }

    /// Where it stands in a frame.
    #[must_use]
    pub const fn roi(&self) -> Roi {
        self.roi
    }

    /// Blends it into a frame of the size that it was made for.
    ///
    /// # Panics
    /// When it reaches outside.
    pub fn lay(&self, frame: &mut I420) {
        let Roi { x, y, width, height } = self.roi;
        let size = chroma_size(Size::new(width, height));
        let half = Roi { x: x / 2, y: y / 2, width: size.width, height: size.height };
        let ([to_y, to_u, to_v], [from_y, from_u, from_v]) =
            (frame.planes_mut(), self.layer.view().planes());
        blend::paste_plane(&mut to_y.crop(self.roi), from_y, self.alpha.view());
        blend::paste_plane(&mut to_u.crop(half), from_u, self.half.view());
        blend::paste_plane(&mut to_v.crop(half), from_v, self.half.view());
    }
}

/// Alpha of the chroma samples; chroma is that of the pixels, weighed by their alpha.
fn halved(rgb: &Rgb, alpha: &Grey, planes: &mut I420, colour: Colour) -> Grey {
    let size = chroma_size(rgb.size());
    let mut half = Grey::filled(size, [0]);
    for (cx, cy) in (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y))) {
        let (mut sum, mut all, mut count) = ([0_u32; 3], 0_u32, 0_u32);
        for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let (x, y) = (2 * cx + dx, 2 * cy + dy);
            if x < rgb.size().width && y < rgb.size().height {
                let a = u32::from(alpha.view().pixel(x, y)[0]);
                let pixel = rgb.view().pixel(x, y);
                sum.iter_mut().zip(pixel).for_each(|(s, v)| *s += u32::from(v) * a);
                (all, count) = (all + a, count + 1);
            }
        }
        half.view_mut().row_mut(cy)[cx as usize] = ((all + count / 2) / count) as u8;
        if all > 0 {
            let [u, v] = convert::chroma(colour, sum.map(|s| ((s + all / 2) / all) as u8));
            let [_, mut to_u, mut to_v] = planes.planes_mut();
            to_u.row_mut(cy)[cx as usize] = u;
            to_v.row_mut(cy)[cx as usize] = v;
        }
    }
    half
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::tests::noise;

    const COLOUR: Colour = Colour::BT709_LIMITED;

    fn upright(frame: &I420, turn: Turn) -> Rgb {
        let mut rgb = Rgb::filled(frame.size(), [0; 3]);
        frame.view().to_rgb(Roi::whole(frame.size()), &mut rgb.view_mut());
        let size = turn.size(frame.size());
        let pixels = (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y)));
        let data = pixels.flat_map(|at| {
            let (x, y) = turn.place(at, frame.size());
            rgb.view().pixel(x, y)
        });
        Rgb::from_vec(size, data.collect()).unwrap()
    }

    #[test]
    fn a_stamp_stands_where_the_upright_picture_has_it() {
        for turn in [Turn::None, Turn::Right, Turn::Half, Turn::Left] {
            for (w, h) in [(40, 30), (41, 31)] {
                let size = Size::new(w, h);
                let at = Roi { x: 3, y: 20, width: 11, height: 5 };
                let mut layer = Rgb::filled(at.size(), [200, 40, 60]);
                layer.view_mut().row_mut(0).fill(255);
                let alpha = Grey::filled(at.size(), [255]);
                let stamp = Stamp::new((&layer, &alpha), at, (size, turn), COLOUR);
                let mut frame = I420::new(size, COLOUR);
                stamp.lay(&mut frame);
                let seen = upright(&frame, turn);
                for (x, y) in (0..seen.size().height)
                    .flat_map(|y| (0..seen.size().width).map(move |x| (x, y)))
                {
                    let inside = (at.x..at.x + 11).contains(&x) && (at.y..at.y + 5).contains(&y);
                    let luma = |p: [u8; 3]| p.iter().map(|v| u32::from(*v)).sum::<u32>();
                    let lit = luma(seen.view().pixel(x, y));
                    assert_eq!(inside, lit > 200, "{turn:?} {w}x{h} {x} {y} {lit}");
                    let white = inside && y == at.y;
                    assert_eq!(white, lit > 560, "{turn:?} {x} {y} {lit}");
                }
            }
        }
    }

    #[test]
    fn what_lies_under_shines_through_as_alpha_says() {
        let size = Size::new(16, 16);
        let at = Roi { x: 4, y: 4, width: 8, height: 8 };
        let layer = Rgb::filled(at.size(), [255; 3]);
        let alpha = Grey::filled(at.size(), [128]);
        let stamp = Stamp::new((&layer, &alpha), at, (size, Turn::None), COLOUR);
        let mut frame = I420::new(size, COLOUR);
        let before = frame.clone();
        stamp.lay(&mut frame);
        assert_eq!(stamp.roi(), at);
        assert!(frame.y().pixel(6, 6)[0].abs_diff(126) <= 1);
        assert_eq!(frame.y().pixel(3, 6), before.y().pixel(3, 6));
        let clear = Grey::filled(at.size(), [0]);
        let mut other = I420::new(size, COLOUR);
        other.copy_from(frame.view());
        Stamp::new((&noise(at.size(), 3), &clear), at, (size, Turn::None), COLOUR).lay(&mut other);
        assert_eq!(other, frame);
    }
}
