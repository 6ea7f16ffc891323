//! Where the watermark lives: a grid of blocks stretched over the whole picture, whatever its size.
//!
//! The grid always has a whole number of blocks on both sides, so a picture that is resized keeps
//! the same blocks: nothing has to be searched but which grid it was. A tile is 256 blocks, as
//! many as one copy of the code needs, and runs over the whole shorter side.

use crate::geometry::Size;

/// Cosines that carry a bit: (along the shorter side, along the longer side).
pub(super) const FREQUENCIES: [(usize, usize); 6] =
    [(1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (2, 2)];
/// The square of each one's distance from zero, as an index and a value.
pub(super) const RADII: [f32; 4] = [2.0, 4.0, 5.0, 8.0];
pub(super) const RADIUS: [usize; 6] = [0, 1, 1, 2, 2, 3];
/// Blocks in a tile.
pub(super) const TILE: u32 = 256;
/// Coefficients in a tile.
pub(super) const CELLS: usize = TILE as usize * FREQUENCIES.len();

/// Shorter side from which a picture carries several tiles, in pixels.
const LARGE: u32 = 256;
/// Least shorter side of a picture that is marked, in pixels.
pub(super) const LEAST: u32 = 128;
/// Least shorter side of a picture that is read (a marked one may have been halved), in pixels.
const LEAST_READ: u32 = 64;
/// Most tiles: longer pictures have longer blocks.
const TILES: u32 = 64;

/// A grid of blocks: `short` of them along the shorter side, `long` along the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    short: u32,
    long: u32,
    /// The shorter side runs down (rows); otherwise across.
    lying: bool,
}

impl Grid {
    fn new(short: u32, long: u32, lying: bool) -> Self {
        let step = TILE / short;
        let long = (long + step / 2) / step * step;
        Self { short, long: long.clamp(short, step * TILES), lying }
    }

    fn stretched(short: u32, size: Size, lying: bool) -> Self {
        let (w, h) = (u64::from(size.width), u64::from(size.height));
        let (across, down) = if lying { (w, h) } else { (h, w) };
        let long = (u64::from(short) * across + down / 2) / down;
        Self::new(short, u32::try_from(long).unwrap_or(u32::MAX / 2).min(1 << 20), lying)
    }

    /// The grid with which a picture is marked; `None` when it is too small.
    pub(super) fn of(size: Size) -> Option<Self> {
        let short = match size.short_side() {
            LARGE.. => 32,
            LEAST..LARGE => 16,
            _ => return None,
        };
        Some(Self::stretched(short, size, size.width >= size.height))
    }

    /// Every grid that a picture of this size may have been marked with, most likely first.
    pub(super) fn candidates(size: Size) -> Vec<Self> {
        if size.short_side() < LEAST_READ {
            return Vec::new();
        }
        let lying = size.width >= size.height;
        let square =
            u64::from(size.width.abs_diff(size.height)) * 10 <= u64::from(size.short_side());
        let mut grids: Vec<Self> = Self::of(size).into_iter().collect();
        for short in [32, 16] {
            for lying in [lying, !lying] {
                let middle = Self::stretched(short, size, lying);
                let step = TILE / short;
                let near = [middle.long, middle.long + step, middle.long.saturating_sub(step)];
                for long in near {
                    let grid = Self::new(short, long, lying);
                    if (lying == (size.width >= size.height) || square) && !grids.contains(&grid) {
                        grids.push(grid);
                    }
                }
            }
        }
        grids
    }

    /// Blocks across and down.
    pub(super) fn blocks(self) -> Size {
        if self.lying { Size::new(self.long, self.short) } else { Size::new(self.short, self.long) }
    }

    pub(super) fn tiles(self) -> u32 {
        self.long / (TILE / self.short)
    }

    /// Number of coefficients of the whole picture.
    #[cfg(test)]
    pub(super) fn coefficients(self) -> usize {
        (self.short * self.long) as usize * FREQUENCIES.len()
    }

    /// The cosines of coefficient k as (across, down).
    pub(super) fn frequency(self, k: usize) -> (usize, usize) {
        let (short, long) = FREQUENCIES[k];
        if self.lying { (long, short) } else { (short, long) }
    }

    /// The cell of a tile that is the one `cell` of its square of four blocks `square`.
    pub(super) fn cell_of_square(self, square: usize, cell: usize) -> usize {
        let (short, across) = (self.short as usize, self.short as usize / 2);
        let (s, l) = (square % across * 2, square / across * 2);
        let (block, k) = (cell / FREQUENCIES.len(), cell % FREQUENCIES.len());
        ((l + block / 2) * short + s + block % 2) * FREQUENCIES.len() + k
    }

    /// Where cell `cell` of tile `tile` stands in the picture's coefficients (block by block, rows
    /// first, six a block), and the sign that it has there when the picture was turned over.
    pub(super) fn place(self, tile: u32, cell: usize, turn: Turn) -> (usize, f32) {
        let (block, k) = ((cell / FREQUENCIES.len()) as u32, cell % FREQUENCIES.len());
        let (mut s, mut l) = (block % self.short, tile * (TILE / self.short) + block / self.short);
        let (fs, fl) = FREQUENCIES[k];
        let mut sign = 1.0;
        if turn.short {
            s = self.short - 1 - s;
            sign *= if fs % 2 == 1 { -1.0 } else { 1.0 };
        }
        if turn.long {
            l = self.long - 1 - l;
            sign *= if fl % 2 == 1 { -1.0 } else { 1.0 };
        }
        let index = if self.lying { s * self.long + l } else { l * self.short + s };
        (index as usize * FREQUENCIES.len() + k, sign)
    }
}

/// Which sides of the picture were mirrored after marking. With the two ways a picture can lie
/// these are all quarter turns and reflections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Turn {
    pub(super) short: bool,
    pub(super) long: bool,
}

impl Turn {
    pub(super) const ALL: [Self; 4] = [
        Self { short: false, long: false },
        Self { short: true, long: true },
        Self { short: false, long: true },
        Self { short: true, long: false },
    ];
}

/// Blocks along one axis of a picture, and the three cosines at each of its pixels.
#[derive(Debug)]
pub(super) struct Axis {
    pub(super) spans: Vec<Span>,
}

/// The pixels that one block touches; the first and the last may belong to two blocks.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    /// Per pixel: the weights that make the coefficients 0, 1, 2 (of an orthonormal transform of
    /// eight samples a block). What sampling by whole pixels takes from a cosine is given back, so
    /// that a picture has the same coefficients at every size.
    pub(super) analysis: Vec<[f32; 3]>,
    /// Per pixel: the mean of what coefficients 0, 1, 2 of one draw there.
    pub(super) synthesis: Vec<[f32; 3]>,
}

impl Axis {
    /// `pixels` divided into `blocks` of one length, which need not be whole.
    pub(super) fn new(pixels: u32, blocks: u32) -> Self {
        let length = f64::from(pixels) / f64::from(blocks);
        let spans = (0..blocks).map(|b| Span::new(f64::from(b) * length, length, pixels)).collect();
        Self { spans }
    }
}

impl Span {
    fn new(from: f64, length: f64, pixels: u32) -> Self {
        let to = from + length;
        let start = (from + 1e-6).floor() as usize;
        let end = ((to - 1e-6).ceil() as usize).clamp(start + 1, pixels as usize);
        let part = |edge: usize| ((edge as f64 - from) / length).clamp(0.0, 1.0);
        // Integrals of 1, cos πt, cos 2πt from the block's start to a pixel's edge.
        let integral = |t: f64| {
            [t, sin_pi(t) / std::f64::consts::PI, sin_pi(2.0 * t) / (2.0 * std::f64::consts::PI)]
        };
        let scale = [1.0, std::f64::consts::SQRT_2, std::f64::consts::SQRT_2];
        let means: Vec<[f64; 3]> = (start..end)
            .map(|x| {
                let (low, high) = (integral(part(x)), integral(part(x + 1)));
                [0, 1, 2].map(|u| (high[u] - low[u]) * scale[u])
            })
            .collect();
        let energy = [0, 1, 2].map(|u| means.iter().map(|m| m[u] * m[u]).sum::<f64>().max(1e-12));
        let root = 8_f64.sqrt();
        let weigh = |m: &[f64; 3]| [0, 1, 2].map(|u| (m[u] * root / (energy[u] * length)) as f32);
        let draw = |m: &[f64; 3]| [0, 1, 2].map(|u| (m[u] * length / root) as f32);
        Self {
            start,
            analysis: means.iter().map(weigh).collect(),
            synthesis: means.iter().map(draw).collect(),
        }
    }
}

/// sin πx for x in 0..=2, the same to the bit on every machine.
fn sin_pi(x: f64) -> f64 {
    // Folded to -1/2..=1/2, where seven terms of the series are exact to 1e-11.
    let y = if x > 1.5 {
        x - 2.0
    } else if x > 0.5 {
        1.0 - x
    } else {
        x
    };
    let t = y * std::f64::consts::PI;
    let (mut term, mut sum) = (t, t);
    for n in 1..9 {
        let n = f64::from(2 * n);
        term *= -t * t / (n * (n + 1.0));
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_whole_tiles_and_survive_resizing() {
        for (w, h) in
            [(1920, 1080), (1080, 1920), (512, 512), (512, 600), (1920, 1367), (4000, 300)]
        {
            let grid = Grid::of(Size::new(w, h)).unwrap();
            assert_eq!(grid.tiles() * TILE, grid.blocks().pixels() as u32, "{grid:?}");
            for (num, den) in [(1, 2), (3, 2), (2, 3), (1, 1), (37, 50)] {
                let size = Size::new(w * num / den, h * num / den);
                assert!(Grid::candidates(size).contains(&grid), "{w}x{h} {num}/{den}");
            }
        }
        assert_eq!(Grid::of(Size::new(5_000, 127)), None);
        assert!(Grid::candidates(Size::new(5_000, 63)).is_empty());
    }

    #[test]
    fn every_coefficient_has_one_cell() {
        for turn in Turn::ALL {
            for size in [Size::new(640, 360), Size::new(150, 220)] {
                let grid = Grid::of(size).unwrap();
                let mut seen = vec![0; grid.coefficients()];
                for tile in 0..grid.tiles() {
                    (0..CELLS).for_each(|cell| seen[grid.place(tile, cell, turn).0] += 1);
                }
                assert!(seen.iter().all(|n| *n == 1));
            }
        }
    }

    #[test]
    fn synthesis_gives_what_analysis_finds() {
        for (pixels, blocks) in [(1080, 32), (256, 32), (301, 32), (300, 16), (1920, 56), (128, 16)]
        {
            let axis = Axis::new(pixels, blocks);
            for span in &axis.spans {
                for u in 0..3 {
                    for v in 0..3 {
                        let dot: f32 = span
                            .analysis
                            .iter()
                            .zip(&span.synthesis)
                            .map(|(a, s)| a[u] * s[v])
                            .sum();
                        let want = if u == v { 1.0 } else { 0.0 };
                        assert!((dot - want).abs() < 0.13, "{pixels}/{blocks}: {u} {v} {dot}");
                    }
                }
            }
        }
    }

    #[test]
    fn sine_is_right() {
        for i in 0..=2_000 {
            let x = f64::from(i) / 1_000.0;
            assert!((sin_pi(x) - (x * std::f64::consts::PI).sin()).abs() < 1e-9, "{x}");
        }
    }
}
