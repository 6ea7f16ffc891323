//! Leads a layer's colours and light to those of the picture it is laid on.

use std::sync::LazyLock;

use crate::geometry::Size;
use crate::view::{Grey, Rgb, View};

/// Steps of the tables between linear light and what Lab makes of it.
const STEPS: usize = 4096;

struct Tables {
    linear: [f32; 256],
    /// Lab's f over linear light 0..=1.
    f: Vec<f32>,
    /// sRGB value over linear light 0..=1, in square-root steps (dense where the curve is steep).
    srgb: Vec<f32>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let linear = std::array::from_fn(|i| {
        let v = i as f32 / 255.0;
        if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
    });
    let f = |i: usize| {
        let t = i as f32 / STEPS as f32;
        if t > 0.008_856_452 { t.cbrt() } else { 7.787_037 * t + 16.0 / 116.0 }
    };
    let srgb = |i: usize| {
        let v = (i as f32 / STEPS as f32).powi(2);
        255.0 * if v <= 0.003_130_8 { 12.92 * v } else { 1.055 * v.powf(1.0 / 2.4) - 0.055 }
    };
    Tables {
        linear,
        f: (0..=STEPS + 1).map(f).collect(),
        srgb: (0..=STEPS + 1).map(srgb).collect(),
    }
});

fn look_up(table: &[f32], t: f32) -> f32 {
    let at = t.clamp(0.0, 1.0) * STEPS as f32;
    let i = at as usize;
    table[i] + (table[i + 1] - table[i]) * (at - i as f32)
}

/// CIE L*a*b* (D65) of an sRGB pixel: L 0..=100, a and b about -110..=110.
#[must_use]
pub fn lab(rgb: [u8; 3]) -> [f32; 3] {
    let t = &*TABLES;
    let [r, g, b] = rgb.map(|v| t.linear[usize::from(v)]);
    let x = look_up(&t.f, 0.433_95 * r + 0.376_22 * g + 0.189_83 * b);
    let y = look_up(&t.f, 0.212_67 * r + 0.715_16 * g + 0.072_17 * b);
    let z = look_up(&t.f, 0.017_76 * r + 0.109_47 * g + 0.872_77 * b);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// The sRGB pixel of CIE L*a*b* (D65), clipped to what can be shown.
#[must_use]
pub fn rgb(lab: [f32; 3]) -> [u8; 3] {
    let t = &*TABLES;
    let y = (lab[0] + 16.0) / 116.0;
    let back = |f: f32| if f > 0.206_896_55 { f * f * f } else { (f - 16.0 / 116.0) / 7.787_037 };
    let (x, y, z) = (back(y + lab[1] / 500.0), back(y), back(y - lab[2] / 200.0));
    let (x, z) = (x * 0.950_456, z * 1.088_754);
    [
        3.240_479 * x - 1.537_15 * y - 0.498_535 * z,
        -0.969_256 * x + 1.875_992 * y + 0.041_556 * z,
        0.055_648 * x - 0.204_043 * y + 1.057_311 * z,
    ]
    .map(|v| (look_up(&t.srgb, v.clamp(0.0, 1.0).sqrt()) + 0.5) as u8)
}

/// Weighted mean and deviation per channel.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Statistics {
    mean: [f32; 3],
    deviation: [f32; 3],
}

impl Statistics {
    fn of(values: &[[f32; 3]], alpha: &[u8]) -> Option<Self> {
        let (mut weight, mut sum, mut square) = (0.0f64, [0.0f64; 3], [0.0f64; 3]);
        for (v, a) in values.iter().zip(alpha).filter(|(_, a)| **a > 0) {
            let w = f64::from(*a);
            weight += w;
            for c in 0..3 {
                sum[c] += w * f64::from(v[c]);
                square[c] += w * f64::from(v[c]) * f64::from(v[c]);
            }
        }
        (weight > 0.0).then(|| {
            let mean = sum.map(|s| s / weight);
            let deviation = std::array::from_fn(|c| {
                (square[c] / weight - mean[c] * mean[c]).max(0.0).sqrt() as f32
            });
            Self { mean: mean.map(|m| m as f32), deviation }
        })
    }
}

/// How `match_tone` works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match {
    /// Bounds of the ratio of deviations in Lab, for example (0.7, 1.4).
    pub ratio: (f32, f32),
    /// Share of the low-frequency light that is taken from the picture where alpha is 255, 0..=1.
    pub relight: f32,
    /// The same where alpha is near 0: what hides the seam.
    pub rim: f32,
    /// Deviation of that low-pass in pixels.
    pub sigma: f32,
}

/// Leads `layer` to `onto` where alpha is above 0: mean and deviation in Lab, then the light.
/// All three are of one size. Pixels where alpha is 0 are left as they are.
///
/// # Panics
/// When the sizes differ.
pub fn match_tone(layer: &mut Rgb, onto: View<'_, 3>, alpha: &Grey, how: &Match) {
    let size = layer.size();
    assert!(size == onto.size() && size == alpha.size());
    let alpha = alpha.bytes_all();
    let of =
        |pixel: &[u8], a: u8| if a > 0 { lab([pixel[0], pixel[1], pixel[2]]) } else { [0.0; 3] };
    let mut ours: Vec<_> =
        layer.bytes_all().chunks_exact(3).zip(alpha).map(|(p, a)| of(p, *a)).collect();
    let theirs: Vec<_> = onto
        .rows()
        .flat_map(|row| row.chunks_exact(3))
        .zip(alpha)
        .map(|(p, a)| of(p, *a))
        .collect();
    let stats = Statistics::of(&ours, alpha).zip(Statistics::of(&theirs, alpha));
    let Some((from, to)) = stats else { return };
    let (low, high) = how.ratio;
    let ratio: [f32; 3] = std::array::from_fn(|c| {
        let r = (to.deviation[c] + 1e-3) / (from.deviation[c] + 1e-3);
        r.max(low).min(high.max(low))
    });
    for v in &mut ours {
        for c in 0..3 {
            v[c] = (v[c] - from.mean[c]) * ratio[c] + to.mean[c];
        }
    }
    let light = (how.relight > 0.0 || how.rim > 0.0)
        .then(|| Light::between(&ours, &theirs, alpha, size, how.sigma));
    let width = size.width as usize;
    for (i, pixel) in layer.bytes_all_mut().chunks_exact_mut(3).enumerate() {
        if alpha[i] == 0 {
            continue;
        }
        let mut v = ours[i];
        if let Some(light) = &light {
            let share = how.rim + (how.relight - how.rim) * f32::from(alpha[i]) / 255.0;
            let add = light.at((i % width) as f32, (i / width) as f32);
            (0..3).for_each(|c| v[c] += share * add[c]);
        }
        pixel.copy_from_slice(&rgb(v));
    }
}

/// Low-frequency difference between two pictures under a mask, on a coarse grid.
struct Light {
    cell: f32,
    width: usize,
    height: usize,
    values: Vec<[f32; 3]>,
}

impl Light {
    /// Normalised convolution of `to - from` with a Gaussian of `sigma` pixels.
    fn between(from: &[[f32; 3]], to: &[[f32; 3]], alpha: &[u8], size: Size, sigma: f32) -> Self {
        let longest = size.width.max(size.height) as f32;
        let sigma = if sigma.is_finite() { sigma.clamp(0.5, longest) } else { longest };
        let cell = (sigma / 3.0).floor().max(1.0) as usize;
        let (w, h) = (size.width as usize, size.height as usize);
        let (gw, gh) = (w.div_ceil(cell), h.div_ceil(cell));
        let mut grid = vec![[0.0f32; 4]; gw * gh];
        for (y, row) in alpha.chunks_exact(w.max(1)).enumerate() {
            for (x, a) in row.iter().enumerate().filter(|(_, a)| **a > 0) {
                let (i, weight) = (y * w + x, f32::from(*a) / 255.0);
                let g = &mut grid[y / cell * gw + x / cell];
                (0..3).for_each(|c| g[c] += weight * (to[i][c] - from[i][c]));
                g[3] += weight;
            }
        }
        gaussian(&mut grid, gw, gh, sigma / cell as f32, &mut Gauss::default());
        let values = grid.iter().map(|g| std::array::from_fn(|c| g[c] / g[3].max(1e-6))).collect();
        Self { cell: cell as f32, width: gw, height: gh, values }
    }

    fn at(&self, x: f32, y: f32) -> [f32; 3] {
        let place = |v: f32, n: usize| ((v + 0.5) / self.cell - 0.5).clamp(0.0, (n - 1) as f32);
        let (u, v) = (place(x, self.width), place(y, self.height));
        let (x0, y0) = (u as usize, v as usize);
        let (x1, y1) = ((x0 + 1).min(self.width - 1), (y0 + 1).min(self.height - 1));
        let (fx, fy) = (u - x0 as f32, v - y0 as f32);
        let [a, b, c, d] =
            [(x0, y0), (x1, y0), (x0, y1), (x1, y1)].map(|(x, y)| &self.values[y * self.width + x]);
        std::array::from_fn(|i| {
            (a[i] * (1.0 - fx) + b[i] * fx) * (1.0 - fy) + (c[i] * (1.0 - fx) + d[i] * fx) * fy
        })
    }
}

/// What a Gaussian works in, kept for the next.
#[derive(Debug, Default)]
pub(crate) struct Gauss<const N: usize> {
    kernel: Vec<f32>,
    line: Vec<[f32; N]>,
    above: Vec<[f32; N]>,
}

/// Gaussian of a small grid, in place, 0 beyond its border.
pub(crate) fn gaussian<const N: usize>(
    grid: &mut [[f32; N]],
    width: usize,
    height: usize,
    sigma: f32,
    work: &mut Gauss<N>,
) {
    let Gauss { kernel, line, above } = work;
    let reach = (sigma * 3.0).ceil().clamp(0.0, width.max(height) as f32) as usize;
    kernel.clear();
    kernel.extend((0..=reach).map(|i| (-0.5 * (i as f32 / sigma.max(1e-3)).powi(2)).exp()));
    let sum = 2.0 * kernel.iter().sum::<f32>() - kernel[0];
    kernel.iter_mut().for_each(|k| *k /= sum);
    if width == 0 || height == 0 {
        return;
    }
    line.clear();
    line.resize(width, [0.0f32; N]);
    for row in grid.chunks_exact_mut(width) {
        for (i, to) in line.iter_mut().enumerate() {
            *to = [0.0; N];
            for j in i.saturating_sub(reach)..=(i + reach).min(width - 1) {
                let k = kernel[i.abs_diff(j)];
                (0..N).for_each(|c| to[c] += k * row[j][c]);
            }
        }
        row.copy_from_slice(line);
    }
    // Rows above are kept as they were for as long as they are needed.
    above.clear();
    above.resize((reach + 1) * width, [0.0f32; N]);
    for y in 0..height {
        line.fill([0.0; N]);
        let kept = y % (reach + 1);
        above[kept * width..][..width].copy_from_slice(&grid[y * width..][..width]);
        for j in y.saturating_sub(reach)..=(y + reach).min(height - 1) {
            let from = if j <= y {
                &above[j % (reach + 1) * width..][..width]
            } else {
                &grid[j * width..][..width]
            };
            let k = kernel[y.abs_diff(j)];
            for (to, v) in line.iter_mut().zip(from) {
                (0..N).for_each(|c| to[c] += k * v[c]);
            }
        }
        grid[y * width..][..width].copy_from_slice(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Image;

    const SIZE: Size = Size::new(40, 30);
    const PLAIN: Match = Match { ratio: (0.5, 2.0), relight: 0.0, rim: 0.0, sigma: 8.0 };

    fn picture(pixel: impl Fn(u32, u32) -> [u8; 3]) -> Rgb {
        let pixel = &pixel;
        let data =
            (0..SIZE.height).flat_map(|y| (0..SIZE.width).flat_map(move |x| pixel(x, y))).collect();
        Image::from_vec(SIZE, data).unwrap()
    }

    fn mean(image: &Rgb) -> [f32; 3] {
        let n = image.size().pixels() as f32;
        let sum = image
            .bytes_all()
            .chunks_exact(3)
            .fold([0.0; 3], |s: [f32; 3], p| std::array::from_fn(|c| s[c] + f32::from(p[c])));
        sum.map(|s| s / n)
    }

    #[test]
    fn known_colours_have_their_known_lab() {
        let known = [
            ([255, 255, 255], [100.0, 0.0, 0.0]),
            ([0, 0, 0], [0.0, 0.0, 0.0]),
            ([255, 0, 0], [53.24, 80.09, 67.2]),
            ([0, 0, 255], [32.3, 79.19, -107.86]),
            ([119, 119, 119], [50.03, 0.0, 0.0]),
        ];
        for (pixel, expected) in known {
            let got = lab(pixel);
            for c in 0..3 {
                assert!((got[c] - expected[c]).abs() < 0.25, "{pixel:?}: {got:?}");
            }
        }
    }

    #[test]
    fn there_and_back_is_within_a_level() {
        for r in (0..=255u8).step_by(15) {
            for g in (0..=255u8).step_by(15) {
                for b in (0..=255u8).step_by(15) {
                    let back = rgb(lab([r, g, b]));
                    for (x, y) in [r, g, b].into_iter().zip(back) {
                        assert!(x.abs_diff(y) <= 1, "{:?} became {back:?}", [r, g, b]);
                    }
                }
            }
        }
    }

    #[test]
    fn the_mean_becomes_that_of_the_picture() {
        let mut layer = picture(|x, y| [(x * 3) as u8 + 40, (y * 4) as u8 + 60, 90]);
        let onto = picture(|x, y| [170 + (y % 7) as u8, 120 + (x % 5) as u8, 100]);
        let alpha = Grey::filled(SIZE, [255]);
        match_tone(&mut layer, onto.view(), &alpha, &PLAIN);
        for (a, b) in mean(&layer).into_iter().zip(mean(&onto)) {
            assert!((a - b).abs() < 3.0, "{a} against {b}");
        }
    }

    #[test]
    fn the_contrast_changes_no_more_than_allowed() {
        let mut layer = picture(|x, _| [100 + (x % 2) as u8 * 40; 3]);
        let onto = picture(|_, _| [120; 3]);
        let alpha = Grey::filled(SIZE, [255]);
        match_tone(&mut layer, onto.view(), &alpha, &Match { ratio: (0.7, 1.4), ..PLAIN });
        let (a, b) = (layer.view().pixel(0, 0)[0], layer.view().pixel(1, 0)[0]);
        assert!((24..=32).contains(&(b - a)), "{a} {b}");
    }

    #[test]
    fn light_from_one_side_is_taken_over() {
        let flat = picture(|_, _| [128; 3]);
        let onto = picture(|x, _| [90 + (x * 2) as u8; 3]);
        let alpha = Grey::filled(SIZE, [255]);
        let mut lit = flat.clone();
        match_tone(&mut lit, onto.view(), &alpha, &Match { relight: 1.0, rim: 1.0, ..PLAIN });
        let left = f32::from(lit.view().pixel(8, 15)[0]);
        let right = f32::from(lit.view().pixel(31, 15)[0]);
        assert!((36.0..=50.0).contains(&(right - left)), "{left} {right}");
    }

    #[test]
    fn nothing_changes_where_alpha_is_zero() {
        let mut layer = picture(|x, y| [(x * 5) as u8, (y * 7) as u8, 3]);
        let before = layer.clone();
        let onto = picture(|_, _| [200, 20, 90]);
        let mut alpha = Grey::filled(SIZE, [0]);
        match_tone(&mut layer, onto.view(), &alpha, &Match { relight: 1.0, ..PLAIN });
        assert_eq!(layer, before);
        alpha.bytes_all_mut()[15 * 40 + 7] = 255;
        match_tone(&mut layer, onto.view(), &alpha, &Match { relight: 1.0, ..PLAIN });
        let changed = layer.bytes_all().chunks(3).zip(before.bytes_all().chunks(3));
        assert_eq!(changed.filter(|(a, b)| a != b).count(), 1);
    }

    #[test]
    fn a_gaussian_spreads_one_point_alike_in_all_directions() {
        let (w, h) = (31, 25);
        for sigma in [0.7f32, 2.0, 3.3] {
            let mut grid = vec![[0.0f32; 2]; w * h];
            grid[12 * w + 15] = [1.0, 3.0];
            gaussian(&mut grid, w, h, sigma, &mut Gauss::default());
            let at = |x: usize, y: usize| grid[y * w + x];
            let sum = grid.iter().fold([0.0; 2], |s: [f32; 2], g| [s[0] + g[0], s[1] + g[1]]);
            assert!((sum[0] - 1.0).abs() < 2e-3 && (sum[1] - 3.0).abs() < 6e-3, "{sum:?}");
            for d in 0..5 {
                let expected = (-0.5 * (d as f32 / sigma).powi(2)).exp() * at(15, 12)[0];
                for got in [at(15 + d, 12), at(15 - d, 12), at(15, 12 + d), at(15, 12 - d)] {
                    assert!((got[0] - expected).abs() < 1e-5, "{sigma} at {d}");
                }
            }
        }
    }

    #[test]
    fn a_low_pass_without_end_does_not_panic() {
        let mut layer = picture(|x, _| [x as u8; 3]);
        let onto = picture(|_, y| [y as u8; 3]);
        let alpha = Grey::filled(SIZE, [255]);
        for sigma in [0.0, f32::NAN, f32::INFINITY, 1e30, -4.0] {
            match_tone(&mut layer, onto.view(), &alpha, &Match { relight: 0.5, sigma, ..PLAIN });
        }
        let mut none = Rgb::filled(Size::new(0, 0), [0; 3]);
        let nothing = Rgb::filled(Size::new(0, 0), [0; 3]);
        let alpha = Grey::filled(Size::new(0, 0), [0]);
        match_tone(&mut none, nothing.view(), &alpha, &Match { relight: 0.5, ..PLAIN });
    }
}
