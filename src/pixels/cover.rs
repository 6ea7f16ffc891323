//! Makes a region unrecognisable, in place, weighed by alpha. Nothing changes where alpha is 0.

use crate::blend;
use crate::geometry::Size;
use crate::simd::{Level, float, mask};
use crate::tone::{Gauss, gaussian};
use crate::view::{Grey, View, ViewMut};

/// Pixels of a row that are worked on at once.
const STRIP: usize = 64;

/// What covers work in, kept for the next.
#[derive(Debug, Default)]
pub struct Work {
    grid: Vec<[f32; 4]>,
    sums: Vec<u32>,
    columns: Vec<(u32, u32, f32)>,
    line: Vec<[f32; 4]>,
    colours: Vec<[u8; 3]>,
    gauss: Gauss<4>,
}

/// One colour.
///
/// # Panics
/// When the sizes differ.
pub fn solid(dst: &mut ViewMut<'_, 3>, alpha: &Grey, colour: [u8; 3]) {
    lay(dst, alpha, |_, _| colour);
}

/// Square cells of `cell` pixels, counted from the region's corner: the mean of the cell's own
/// pixels and noise of `noise` levels (deviation, of each channel), the same for the same seed.
/// The mean takes what alpha leaves out as well, so that a cell at the edge has no sharp rest.
///
/// # Panics
/// When the sizes differ.
pub fn mosaic(
    dst: &mut ViewMut<'_, 3>,
    alpha: &Grey,
    (cell, noise): (u32, f32),
    seed: u64,
    work: &mut Work,
) {
    let cell = cell.max(1) as usize;
    let gw = cells(dst.as_view(), cell, work);
    let noise = if noise.is_finite() { noise.clamp(0.0, 128.0) } else { 0.0 };
    let mut random = Random(seed);
    let Work { grid, colours, .. } = work;
    colours.clear();
    colours.extend(grid.iter().map(|s| -> [u8; 3] {
        std::array::from_fn(|c| {
            (s[c] / s[3] + noise * random.normal() + 0.5).clamp(0.0, 255.0) as u8
        })
    }));
    lay(dst, alpha, |x, y| colours[y / cell * gw + x / cell]);
}

/// Gaussian of `sigma` pixels; the region's border is repeated, nothing outside it is read.
/// Where sigma is above 3 it works on cells of sigma / 3, which keeps the error under 3 levels.
///
/// # Panics
/// When the sizes differ.
pub fn blur(dst: &mut ViewMut<'_, 3>, alpha: &Grey, sigma: f32, work: &mut Work) {
    let size = dst.size();
    let longest = size.width.max(size.height) as f32;
    let sigma = if sigma.is_finite() { sigma.clamp(0.3, longest.max(0.3)) } else { longest };
    let cell = (sigma / 3.0).floor().max(1.0) as usize;
    let gw = cells(dst.as_view(), cell, work);
    let Work { grid, columns, line, gauss, .. } = work;
    if grid.is_empty() {
        return;
    }
    let gh = grid.len() / gw;
    for g in &mut *grid {
        *g = [g[0] / g[3], g[1] / g[3], g[2] / g[3], 1.0];
    }
    // Averaging into cells and reading between them widens as well.
    let own = if cell > 1 { 1.0 / 12.0 + 1.0 / 6.0 } else { 0.0 };
    gaussian(grid, gw, gh, ((sigma / cell as f32).powi(2) - own).sqrt(), gauss);
    for g in &mut *grid {
        *g = g.map(|v| v / g[3].max(1e-6));
    }
    let place = |v: usize, n: usize| {
        let at = ((v as f32 + 0.5) / cell as f32 - 0.5).clamp(0.0, (n - 1) as f32);
        (at as u32, (at as u32 + 1).min(n as u32 - 1), at - at.floor())
    };
    columns.clear();
    columns.extend((0..size.width as usize).map(|x| place(x, gw)));
    let level = Level::current();
    line.clear();
    line.resize(gw, [0.0; 4]);
    let (mut values, mut bytes) = ([0.0; 3 * STRIP + 4], [0; 3 * STRIP]);
    for y in 0..size.height {
        let (above, below, share) = place(y as usize, gh);
        let rows = [above, below].map(|row| &grid[row as usize * gw..][..gw]);
        for (to, (a, b)) in line.iter_mut().zip(rows[0].iter().zip(rows[1])) {
            *to = std::array::from_fn(|c| a[c] * (1.0 - share) + b[c] * share);
        }
        let strips = dst.row_mut(y).chunks_mut(3 * STRIP).zip(alpha.view().row(y).chunks(STRIP));
        for ((strip, alpha), columns) in strips.zip(columns.chunks(STRIP)) {
            if alpha.iter().all(|a| *a == 0) {
                continue;
            }
            let bytes = &mut bytes[..strip.len()];
            mask::between(level, line, columns, &mut values[..strip.len() + 1]);
            float::to_bytes(level, &values, bytes);
            blend::paste_row(level, strip, bytes, alpha);
        }
    }
}

/// Sum of each cell's pixels and their number into the grid, and how many cells stand in a row.
fn cells(view: View<'_, 3>, cell: usize, work: &mut Work) -> usize {
    let Size { width, height } = view.size();
    let gw = (width as usize).div_ceil(cell);
    let Work { grid, sums, .. } = work;
    grid.clear();
    grid.resize(gw * (height as usize).div_ceil(cell), [0.0; 4]);
    if gw == 0 {
        return gw;
    }
    let level = Level::current();
    sums.resize(width as usize * 3, 0);
    for (row, top) in grid.chunks_exact_mut(gw).zip((0..height).step_by(cell)) {
        let bottom = height.min(top.saturating_add(u32::try_from(cell).unwrap_or(u32::MAX)));
        sums.fill(0);
        (top..bottom).for_each(|y| mask::gather(level, view.row(y), sums));
        for (g, columns) in row.iter_mut().zip(sums.chunks(cell * 3)) {
            let mut sum = [0u64; 3];
            for p in columns.chunks_exact(3) {
                (0..3).for_each(|c| sum[c] += u64::from(p[c]));
            }
            let area = (columns.len() / 3) as f32 * (bottom - top) as f32;
            *g = [sum[0] as f32, sum[1] as f32, sum[2] as f32, area];
        }
    }
    gw
}

/// Blends a colour per pixel, exactly rounded.
fn lay(dst: &mut ViewMut<'_, 3>, alpha: &Grey, colour: impl Fn(usize, usize) -> [u8; 3]) {
    assert_eq!(dst.size(), alpha.size());
    let alpha = alpha.view();
    for y in 0..dst.size().height {
        let row = dst.row_mut(y).chunks_exact_mut(3);
        for (x, (pixel, a)) in row.zip(alpha.row(y)).enumerate() {
            if *a == 0 {
                continue;
            }
            let (new, a) = (colour(x, y as usize), u32::from(*a));
            for (old, new) in pixel.iter_mut().zip(new) {
                *old = ((u32::from(*old) * (255 - a) + u32::from(new) * a + 127) / 255) as u8;
            }
        }
    }
}

/// SplitMix64: the same sequence on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// About normal, deviation 1: the sum of twelve less six.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;
    use crate::view::{Image, Rgb};
    use proptest::prelude::*;

    fn noise(size: Size) -> Rgb {
        let mut random = Random(5);
        let data = (0..size.pixels() * 3).map(|_| random.next() as u8).collect();
        Image::from_vec(size, data).unwrap()
    }

    fn half(size: Size) -> Grey {
        let mut alpha = Grey::filled(size, [0]);
        for y in 0..size.height {
            let w = size.width as usize;
            alpha.view_mut().row_mut(y)[w / 2..].fill(255);
        }
        alpha
    }

    #[test]
    fn every_cover_leaves_what_alpha_leaves_out() {
        let size = Size::new(32, 20);
        let alpha = half(size);
        for kind in 0..3 {
            let before = noise(size);
            let mut image = before.clone();
            let mut dst = image.view_mut();
            match kind {
                0 => solid(&mut dst, &alpha, [127; 3]),
                1 => mosaic(&mut dst, &alpha, (7, 12.0), 3, &mut Work::default()),
                _ => blur(&mut dst, &alpha, 5.0, &mut Work::default()),
            }
            for y in 0..20 {
                for x in 0..32 {
                    let same = image.view().pixel(x, y) == before.view().pixel(x, y);
                    assert!(same == (x < 16) || x >= 16, "kind {kind} at {x},{y}");
                }
            }
            assert_ne!(image, before);
        }
    }

    #[test]
    fn solid_leaves_one_colour() {
        let mut image = noise(Size::new(9, 9));
        solid(&mut image.view_mut(), &Grey::filled(Size::new(9, 9), [255]), [1, 2, 3]);
        assert!(image.bytes_all().chunks(3).all(|p| p == [1, 2, 3]));
    }

    #[test]
    fn half_alpha_blends_exactly() {
        let mut image = Rgb::filled(Size::new(1, 1), [10, 200, 0]);
        solid(&mut image.view_mut(), &Grey::filled(Size::new(1, 1), [100]), [250, 0, 255]);
        // (10 * 155 + 250 * 100 + 127) / 255, and so on.
        assert_eq!(image.bytes_all(), [104, 122, 100]);
    }

    #[test]
    fn a_mosaic_holds_one_colour_a_cell() {
        let size = Size::new(30, 30);
        let mut image = noise(size);
        let mut again = image.clone();
        let mut other = image.clone();
        let alpha = Grey::filled(size, [255]);
        mosaic(&mut image.view_mut(), &alpha, (10, 12.0), 1, &mut Work::default());
        for y in 0..30 {
            for x in 0..30 {
                let first = image.view().pixel(x / 10 * 10, y / 10 * 10);
                assert_eq!(image.view().pixel(x, y), first);
            }
        }
        mosaic(&mut again.view_mut(), &alpha, (10, 12.0), 1, &mut Work::default());
        assert_eq!(image, again);
        mosaic(&mut other.view_mut(), &alpha, (10, 12.0), 2, &mut Work::default());
        assert_ne!(image, other);
    }

    #[test]
    fn the_noise_of_a_mosaic_is_as_strong_as_asked() {
        let size = Size::new(400, 400);
        let mut image = Rgb::filled(size, [128; 3]);
        mosaic(
            &mut image.view_mut(),
            &Grey::filled(size, [255]),
            (4, 12.0),
            1,
            &mut Work::default(),
        );
        let n = size.pixels() as f32 * 3.0;
        let mean = image.bytes_all().iter().map(|v| f32::from(*v)).sum::<f32>() / n;
        let square = image.bytes_all().iter().map(|v| (f32::from(*v) - mean).powi(2)).sum::<f32>();
        let deviation = (square / n).sqrt();
        assert!((mean - 128.0).abs() < 1.0 && (deviation - 12.0).abs() < 0.6, "{mean} {deviation}");
    }

    #[test]
    fn a_blur_is_the_gaussian_it_says() {
        for sigma in [1.5f32, 4.0, 10.0, 25.0] {
            let size = Size::new(256, 16);
            let mut image = Rgb::filled(size, [0; 3]);
            for y in 0..16 {
                image.view_mut().row_mut(y)[128 * 3..].fill(255);
            }
            blur(&mut image.view_mut(), &Grey::filled(size, [255]), sigma, &mut Work::default());
            for x in 60..196u32 {
                // A step blurred by a Gaussian, by a sum of its values.
                let at = x as f32 - 127.5;
                let steps = || (-2000..2000).map(|i| (i as f32 + 0.5) / 10.0);
                let total: f32 = steps().map(|v| density(v, sigma)).sum();
                let below: f32 = steps().filter(|v| *v < at).map(|v| density(v, sigma)).sum();
                let got = f32::from(image.view().pixel(x, 8)[1]);
                assert!((got - 255.0 * below / total).abs() < 3.0, "sigma {sigma} at {x}: {got}");
            }
        }
    }

    fn density(x: f32, sigma: f32) -> f32 {
        (-0.5 * (x / sigma).powi(2)).exp()
    }

    #[test]
    fn a_flat_region_stays_flat_to_its_border_when_blurred() {
        for sigma in [0.5, 3.0, 40.0, f32::NAN, f32::INFINITY] {
            let size = Size::new(50, 33);
            let mut image = Rgb::filled(size, [10, 120, 250]);
            blur(&mut image.view_mut(), &Grey::filled(size, [255]), sigma, &mut Work::default());
            assert!(image.bytes_all().chunks(3).all(|p| p == [10, 120, 250]), "{sigma}");
        }
    }

    proptest! {
        #[test]
        fn every_level_blurs_alike(
            (w, h) in (1u32..300, 1u32..40), sigma in 0.3f32..60.0, seed in any::<u32>(),
        ) {
            let size = Size::new(w, h);
            let alpha = simd::tests::noise::<1>(size, seed);
            simd::tests::same_at_every_level::<3>(size, |dst| blur(dst, &alpha, sigma, &mut Work::default()));
        }

        #[test]
        fn what_was_covered_before_leaves_no_trace(
            (w, h) in (1u32..200, 1u32..40), cell in 1u32..40, sigma in 0.3f32..60.0,
        ) {
            let (size, mut work) = (Size::new(w, h), Work::default());
            for size in [Size::new(33, 17), size, Size::new(4, 90), size] {
                let alpha = Grey::filled(size, [200]);
                let (mut kept, mut fresh) = (noise(size), noise(size));
                blur(&mut kept.view_mut(), &alpha, sigma, &mut work);
                blur(&mut fresh.view_mut(), &alpha, sigma, &mut Work::default());
                prop_assert!(kept == fresh);
                mosaic(&mut kept.view_mut(), &alpha, (cell, 9.0), 1, &mut work);
                mosaic(&mut fresh.view_mut(), &alpha, (cell, 9.0), 1, &mut Work::default());
                prop_assert!(kept == fresh);
            }
        }

        #[test]
        fn no_size_panics(w in 0u32..20, h in 0u32..20, cell in 0u32..40, sigma in -1f32..90.0) {
            let size = Size::new(w, h);
            let mut image = noise(size);
            let alpha = Grey::filled(size, [200]);
            mosaic(&mut image.view_mut(), &alpha, (cell, 5.0), 1, &mut Work::default());
            blur(&mut image.view_mut(), &alpha, sigma, &mut Work::default());
            solid(&mut image.view_mut(), &alpha, [0; 3]);
        }
    }
}
