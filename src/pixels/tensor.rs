//! Between RGB bytes and floats: scaled per channel, planar or interleaved; and the polyphase split.

use crate::geometry::Size;
use crate::simd::{self, Level};
use crate::view::{View, ViewMut};

/// Order of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All of the first channel, then all of the second.
    Planar,
    /// The channels of a pixel side by side.
    Interleaved,
}

/// How bytes become values: (x - mean) * scale, in the order of the values' channels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packing {
    pub mean: [f32; 3],
    pub scale: [f32; 3],
    /// Blue first.
    pub bgr: bool,
    pub layout: Layout,
}

/// How values become bytes: x * scale + offset, in the order of the values' channels, rounded
/// and cut to 0..=255; 0 when it is not a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unpacking {
    pub scale: [f32; 3],
    pub offset: [f32; 3],
    /// Blue first.
    pub bgr: bool,
    pub layout: Layout,
}

fn order(bgr: bool) -> [usize; 3] {
    if bgr { [2, 1, 0] } else { [0, 1, 2] }
}

/// Packs a picture into the top left of a canvas; the rest of the canvas is what 0 becomes.
///
/// # Panics
/// When the picture is larger than the canvas, or `out` is not three values a pixel of it.
pub fn pack(src: View<'_, 3>, canvas: Size, packing: &Packing, out: &mut [f32]) {
    let (size, area) = (src.size(), canvas.width as usize * canvas.height as usize);
    assert!(size.width <= canvas.width && size.height <= canvas.height, "it fits the canvas");
    assert!(out.len() == 3 * area, "three values a pixel");
    let (width, used) = (canvas.width as usize, size.width as usize);
    let Packing { mean, scale, .. } = *packing;
    let from = order(packing.bgr);
    let empty: [f32; 3] = std::array::from_fn(|c| -mean[c] * scale[c]);
    let level = Level::current();
    match packing.layout {
        Layout::Planar => {
            let (first, rest) = out.split_at_mut(area);
            let (second, third) = rest.split_at_mut(area);
            let mut planes = [first, second, third];
            for y in 0..size.height {
                let (row, start) = (src.row(y), y as usize * width);
                let mut parts = planes.each_mut().map(|p| &mut p[start..start + width]);
                let done = {
                    let parts = parts.each_mut().map(|p| &mut p[..used]);
                    simd::rgb::to_planes(level, row, (&mean, &scale), packing.bgr, parts)
                };
                for (c, part) in parts.iter_mut().enumerate() {
                    let (filled, rest) = part.split_at_mut(used);
                    for (o, p) in filled.iter_mut().zip(row.chunks_exact(3)).skip(done) {
                        *o = (f32::from(p[from[c]]) - mean[c]) * scale[c];
                    }
                    rest.fill(empty[c]);
                }
            }
            for (plane, empty) in planes.into_iter().zip(empty) {
                plane[size.height as usize * width..].fill(empty);
            }
        }
        Layout::Interleaved => {
            for (y, row) in out.chunks_exact_mut(3 * width.max(1)).enumerate() {
                let used = if y < size.height as usize { used } else { 0 };
                let (filled, rest) = row.split_at_mut(3 * used);
                if used > 0 {
                    let src = src.row(y as u32);
                    let factors = (&mean, &scale);
                    let done = simd::rgb::to_pixels(level, src, factors, packing.bgr, filled);
                    let pixels = src.chunks_exact(3);
                    for (o, p) in filled.chunks_exact_mut(3).zip(pixels).skip(done) {
                        for c in 0..3 {
                            o[c] = (f32::from(p[from[c]]) - mean[c]) * scale[c];
                        }
                    }
                }
                rest.chunks_exact_mut(3).for_each(|o| o.copy_from_slice(&empty));
            }
        }
    }
}

/// Unpacks values into a picture.
///
/// # Panics
/// When `values` is not three values a pixel.
pub fn unpack(values: &[f32], unpacking: &Unpacking, dst: &mut ViewMut<'_, 3>) {
    let Size { width, height } = dst.size();
    let (width, area) = (width as usize, width as usize * height as usize);
    assert!(values.len() == 3 * area, "three values a pixel");
    let Unpacking { scale, offset, .. } = *unpacking;
    let to = order(unpacking.bgr);
    let level = Level::current();
    for y in 0..height {
        let (start, row) = (y as usize * width, dst.row_mut(y));
        let done = match unpacking.layout {
            Layout::Planar => {
                let planes = [0, 1, 2].map(|c| &values[c * area + start..c * area + start + width]);
                simd::rgb::from_planes(level, planes, (&scale, &offset), unpacking.bgr, row)
            }
            Layout::Interleaved => 0,
        };
        for (x, out) in row.chunks_exact_mut(3).enumerate().skip(done) {
            for c in 0..3 {
                let at = match unpacking.layout {
                    Layout::Planar => c * area + start + x,
                    Layout::Interleaved => 3 * (start + x) + c,
                };
                out[to[c]] = (values[at] * scale[c] + offset[c] + 0.5) as u8;
            }
        }
    }
}

/// `[channels, k·height, k·width]` to `[k², channels, height, width]`: part r·k + c takes the
/// value at (y·k + r, x·k + c). `part` is the size of one part.
///
/// # Panics
/// When a slice has another length.
pub fn polyphase_split(values: &[f32], channels: usize, part: Size, k: usize, out: &mut [f32]) {
    each_phase(channels, part, k, values.len(), out.len(), |whole, start, row| {
        let out = &mut out[start..start + row];
        out.iter_mut().zip(values[whole..].iter().step_by(k)).for_each(|(o, v)| *o = *v);
    });
}

/// The inverse of [`polyphase_split`].
///
/// # Panics
/// When a slice has another length.
pub fn polyphase_join(values: &[f32], channels: usize, part: Size, k: usize, out: &mut [f32]) {
    each_phase(channels, part, k, out.len(), values.len(), |whole, start, row| {
        let values = &values[start..start + row];
        out[whole..].iter_mut().step_by(k).zip(values).for_each(|(o, v)| *o = *v);
    });
}

/// Calls `row` with where a row of a part begins in the whole, in the parts, and its length.
fn each_phase(
    channels: usize,
    part: Size,
    k: usize,
    whole_len: usize,
    parts_len: usize,
    mut row: impl FnMut(usize, usize, usize),
) {
    let (width, height) = (part.width as usize, part.height as usize);
    assert!(k > 0, "at least one phase");
    assert!(whole_len == parts_len && whole_len == channels * width * height * k * k);
    let mut start = 0;
    for phase in 0..k * k {
        let (r, c) = (phase / k, phase % k);
        for channel in 0..channels {
            for y in 0..height {
                let whole = ((channel * height + y) * k + r) * width * k + c;
                row(whole, start, width);
                start += width;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::geometry::Roi;
    use crate::simd::tests::{noise, same_at_every_level};
    use crate::view::Rgb;

    const PLAIN: Packing =
        Packing { mean: [0.0; 3], scale: [1.0; 3], bgr: false, layout: Layout::Planar };

    fn two_pixels() -> Rgb {
        Rgb::from_vec(Size::new(2, 1), vec![1, 2, 3, 4, 5, 6]).unwrap()
    }

    #[test]
    fn planes_follow_each_other() {
        let mut out = [9.0; 6];
        pack(two_pixels().view(), Size::new(2, 1), &PLAIN, &mut out);
        assert_eq!(out, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let bgr = Packing { bgr: true, ..PLAIN };
        pack(two_pixels().view(), Size::new(2, 1), &bgr, &mut out);
        assert_eq!(out, [3.0, 6.0, 2.0, 5.0, 1.0, 4.0]);
    }

    #[test]
    fn mean_and_scale_follow_the_order_of_the_values() {
        let packing = Packing {
            mean: [1.0, 2.0, 3.0],
            scale: [1.0, 0.5, 2.0],
            bgr: true,
            layout: Layout::Interleaved,
        };
        let mut out = [0.0; 6];
        pack(two_pixels().view(), Size::new(2, 1), &packing, &mut out);
        assert_eq!(out, [2.0, 0.0, -4.0, 5.0, 1.5, 2.0]);
    }

    #[test]
    fn the_rest_of_the_canvas_is_what_black_becomes() {
        for layout in [Layout::Planar, Layout::Interleaved] {
            let packing = Packing { mean: [1.0, 2.0, 3.0], layout, ..PLAIN };
            let canvas = Size::new(3, 2);
            let mut out = [f32::NAN; 18];
            pack(two_pixels().view(), canvas, &packing, &mut out);
            let mut framed = Rgb::filled(canvas, [0; 3]);
            framed.bytes_all_mut()[..6].copy_from_slice(two_pixels().bytes_all());
            let mut want = [0.0; 18];
            pack(framed.view(), canvas, &packing, &mut want);
            assert_eq!(out, want);
        }
    }

    #[test]
    fn unpacking_rounds_and_cuts() {
        let unpacking = Unpacking {
            scale: [255.0; 3],
            offset: [0.0; 3],
            bgr: false,
            layout: Layout::Interleaved,
        };
        let mut out = Rgb::filled(Size::new(2, 1), [9; 3]);
        let values = [0.5, -3.0, 7.0, f32::NAN, f32::INFINITY, 0.0999];
        unpack(&values, &unpacking, &mut out.view_mut());
        assert_eq!(out.bytes_all(), [128, 0, 255, 0, 255, 25]);
    }

    #[test]
    fn phases_follow_the_golden_index_rule() {
        // golden.json: tile t = r*k + c, its pixel (y, x) reads crop pixel (y*k + r, x*k + c).
        let (k, n, channels) = (4, 3, 2);
        let side = k * n;
        let values: Vec<f32> = (0..channels * side * side).map(|v| v as f32).collect();
        let mut parts = vec![-1.0; values.len()];
        let part = Size::new(n as u32, n as u32);
        polyphase_split(&values, channels, part, k, &mut parts);
        for t in 0..k * k {
            for channel in 0..channels {
                for (y, x) in (0..n).flat_map(|y| (0..n).map(move |x| (y, x))) {
                    let want = values[(channel * side + y * k + t / k) * side + x * k + t % k];
                    assert_eq!(parts[((t * channels + channel) * n + y) * n + x], want);
                }
            }
        }
        let mut whole = vec![-1.0; values.len()];
        polyphase_join(&parts, channels, part, k, &mut whole);
        assert_eq!(whole, values);
    }

    proptest! {
        #[test]
        fn every_level_gives_the_same_values(
            (w, h) in (1_u32..70, 1_u32..4),
            (more, seed) in (0_u32..3, any::<u32>()),
            bgr in any::<bool>(),
            planar in any::<bool>(),
        ) {
            let layout = if planar { Layout::Planar } else { Layout::Interleaved };
            let (framed, roi) = (Size::new(w + 3, h + 2), Roi { x: 2, y: 1, width: w, height: h });
            let (src, canvas) = (noise::<3>(framed, seed), Size::new(w + more, h + more));
            let packing =
                Packing { mean: [123.7, 116.3, 103.5], scale: [0.017, 0.018, 0.019], bgr, layout };
            let outcome = |level: Level| {
                let mut out = vec![f32::NAN; 3 * canvas.pixels() as usize];
                level.run(|| pack(src.view().crop(roi), canvas, &packing, &mut out));
                out
            };
            let want = outcome(Level::SCALAR);
            prop_assert_eq!(&outcome(Level::BASELINE), &want);
            prop_assert_eq!(&outcome(Level::best()), &want);

            let mut values = want;
            let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30];
            values.iter_mut().step_by(11).zip(odd).for_each(|(v, o)| *v = o);
            let unpacking =
                Unpacking { scale: [60.0; 3], offset: [120.0, 110.0, 100.0], bgr, layout };
            same_at_every_level::<3>(canvas, |dst| unpack(&values, &unpacking, dst));
        }

        #[test]
        fn unpack_undoes_pack(
            (w, h) in (1_u32..20, 1_u32..9),
            bgr in any::<bool>(),
            planar in any::<bool>(),
            seed in any::<u8>(),
        ) {
            let layout = if planar { Layout::Planar } else { Layout::Interleaved };
            let size = Size::new(w, h);
            let data = (0..3 * w * h).map(|i| (i as u8).wrapping_mul(37) ^ seed).collect();
            let src = Rgb::from_vec(size, data).unwrap();
            let (mean, std) = (127.5, 127.5);
            let packing = Packing { mean: [mean; 3], scale: [1.0 / std; 3], bgr, layout };
            let mut values = vec![0.0; 3 * size.pixels() as usize];
            pack(src.view(), size, &packing, &mut values);
            let unpacking = Unpacking { scale: [std; 3], offset: [mean; 3], bgr, layout };
            let mut back = Rgb::filled(size, [0; 3]);
            unpack(&values, &unpacking, &mut back.view_mut());
            prop_assert_eq!(back, src);
        }
    }
}
