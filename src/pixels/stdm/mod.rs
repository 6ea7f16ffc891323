//! The invisible mark: spread-transform dither modulation of six low cosines of the luma.
//!
//! Each of a tile's 192 bits moves the projection of eight coefficients, keyed in place and sign,
//! to the nearest point of one of two interleaved lattices of step `STEP`; what that changes is
//! added to R, G and B alike. Reading needs nothing but the picture: the blocks follow from its
//! proportions, so any resizing is read (also mirrored or turned by quarters, also brightness
//! between 0.6 and 1.3). **A cropped, padded or turned (by other angles) picture is not read.**
//! Least size: 128 pixels on the shorter side; smaller pictures are left as they are.

mod code;
mod grid;
mod plan;
pub mod clip;

use crate::geometry::Size;
use crate::view::{View, ViewMut};
use code::{BITS, CODED, PILOTS};
use grid::{CELLS, FREQUENCIES, Grid, RADII, RADIUS, Turn};
use plan::Plan;

/// Distance of two lattice points of one bit value, in units of a coefficient.
const STEP: f32 = 24.0;
/// Coefficients that carry one bit.
const SPREAD: usize = 8;
/// Coefficients of a square of four blocks.
const SQUARE: usize = 4 * FREQUENCIES.len();
/// Where the keyed choices begin: `mien` and a version. Not a secret: reading is open to all.
const KEY: u64 = 0x6d69_656e_0000_0001;
/// Correlation with the pilots that suffices, in deviations of what chance gives.
const PILOT_SURE: f32 = 5.0;
/// The least that does when the whole code agrees by `WHOLE_FLOOR`, which the best of all words
/// reaches on noise less than once in a thousand times (it gives 9.3 ± 1).
const PILOT_FLOOR: f32 = 3.5;
const WHOLE_FLOOR: f32 = 12.5;
/// How far a projection may change, in steps, so that a bit is moved to the same point again.
const HOLD: f32 = 0.25;
/// Share of a change that a flat block takes, of what a textured one takes; and how strong the
/// cosines of a textured one are.
const FLAT: f32 = 0.35;
const TEXTURED: f32 = 30.0;
/// Weights of R, G, B in luma (BT.601).
const LUMA: [f32; 3] = [0.299, 0.587, 0.114];
/// What was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    pub payload: u64,
    /// Correlation with the pilots in deviations of chance.
    pub pilots: f32,
    /// How the picture's contrast was changed since, 1.0 when not.
    pub gain: f32,
    /// How it was blurred (above 0) or sharpened since, 0 when not.
    pub blur: f32,
    /// Share of the code's bits that had to be corrected.
    pub corrected: f32,
}

/// Adds the mark in place and gives the PSNR of luma in dB (of the changed channels, where colours
/// stop at 0 or 255: then luma's is higher). Infinite when the picture is too small: unchanged.
pub fn add(rgb: &mut ViewMut<'_, 3>, payload: u64) -> f32 {
    let Some(grid) = Grid::of(rgb.size()) else {
        return f32::INFINITY;
    };
    let mut plan = Plan::new(grid, rgb.size(), LUMA, 1.0);
    let mut coefficients = Vec::new();
    plan.analyse(rgb.as_view(), &mut coefficients);
    let room: Vec<f32> = rooms(&coefficients).collect();
    let bits = code::encode(payload);
    let laid = (grid, Scheme::STILL);
    quantise(laid, &mut coefficients, &room, &bits, slack(rgb.size()), &mut []);
    let squares = plan.synthesise(&coefficients, rgb);
    let mse = squares as f64 / (rgb.size().pixels() * 3) as f64;
    (10.0 * (255.0 * 255.0 / mse).log10()) as f32
}

/// Shorter side from which on a picture carries the mark, in pixels.
pub const LEAST: u32 = grid::LEAST;

/// Whether a picture of this size carries the mark.
#[must_use]
pub fn fits(size: Size) -> bool {
    Grid::of(size).is_some()
}

/// Reads the payload back, `None` when there is none.
#[must_use]
pub fn read(rgb: View<'_, 3>) -> Option<u64> {
    examine(rgb).map(|reading| reading.payload)
}

/// Reads the payload back and says how well it was found.
#[must_use]
pub fn examine(rgb: View<'_, 3>) -> Option<Reading> {
    Grid::candidates(rgb.size()).into_iter().find_map(|grid| {
        let mut coefficients = Vec::new();
        Plan::new(grid, rgb.size(), LUMA, 1.0).analyse(rgb, &mut coefficients);
        // A picture may have been taken out of a clip.
        [Scheme::STILL, Scheme::CLIP].into_iter().find_map(|scheme| {
            let of = |turn| Projections::of((grid, scheme), turn, &coefficients);
            Turn::ALL.into_iter().find_map(|turn| of(turn).decode())
        })
    })
}

/// A random number of one thing: splitmix64 of the key and the thing's number.
const fn keyed(number: u64) -> u64 {
    let mut z = KEY.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The cells of a tile in keyed order: eight a bit.
static CELL_ORDER: [u16; CELLS] = {
    let mut order = [0_u16; CELLS];
    let mut i = 0;
    while i < CELLS {
        order[i] = i as u16;
        i += 1;
    }
    while i > 1 {
        let j = (keyed(i as u64) % i as u64) as usize;
        i -= 1;
        (order[i], order[j]) = (order[j], order[i]);
    }
    order
};

/// Where a bit was, and to which point it was moved.
#[derive(Debug, Clone, Copy)]
struct Held {
    projection: f32,
    point: f32,
}

impl Held {
    const NOWHERE: Self = Self { projection: f32::INFINITY, point: 0.0 };
}

/// How a mark lies in a picture.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scheme {
    /// Distance of two lattice points of one bit value, in units of a coefficient.
    step: f32,
    /// The cells of a bit stand beside each other, elsewhere in each tile; otherwise they are
    /// scattered over the tile, the same in each.
    local: bool,
}

impl Scheme {
    /// Of pictures.
    const STILL: Self = Self { step: STEP, local: false };
    /// Of clips: what moves takes only the bits that stand there. Codecs of clips swallow more.
    const CLIP: Self = Self { step: 1.5 * STEP, local: true };

    /// The cells of bit `bit`, each with its sign over the root of eight.
    fn cells(
        self,
        grid: Grid,
        tile: u32,
        bit: usize,
    ) -> impl Iterator<Item = (usize, f32)> + Clone {
        let signs = keyed(1 << 32 | bit as u64);
        let weight = 1.0 / (SPREAD as f32).sqrt();
        // One of three parts of a square of four blocks.
        let place = (bit * 77 + (keyed(4 << 32 | u64::from(tile)) % BITS as u64) as usize) % BITS;
        let (square, part) = (place / 3, place % 3);
        (0..SPREAD).map(move |l| {
            let sign = if signs >> l & 1 == 1 { weight } else { -weight };
            let cell = if self.local {
                grid.cell_of_square(square, SQUARE_ORDER[square][part * SPREAD + l].into())
            } else {
                usize::from(CELL_ORDER[bit * SPREAD + l])
            };
            (cell, sign)
        })
    }
}

/// The cells of each square of four blocks in keyed order.
static SQUARE_ORDER: [[u8; SQUARE]; CELLS / SQUARE] = {
    let mut order = [[0_u8; SQUARE]; CELLS / SQUARE];
    let mut square = 0;
    while square < order.len() {
        let mut i = 0;
        while i < SQUARE {
            order[square][i] = i as u8;
            i += 1;
        }
        while i > 1 {
            let number = 3 << 32 | (square as u64) << 8 | i as u64;
            let j = (keyed(number) % i as u64) as usize;
            i -= 1;
            (order[square][i], order[square][j]) = (order[square][j], order[square][i]);
        }
        square += 1;
    }
    order
};

/// Where a bit's lattice begins in a tile, 0..1 of a step: differs everywhere, so that no plain
/// picture looks marked.
fn shift(tile: u32, bit: usize) -> f32 {
    (keyed(2 << 32 | u64::from(tile) << 16 | bit as u64) >> 40) as f32 / (1 << 24) as f32
}

/// How far from its lattice point a projection may stay, in coefficients. Large pictures have more
/// pixels a block, and so less noise: they need less.
fn slack(size: Size) -> f32 {
    match size.short_side() {
        768.. => STEP / 12.0,
        256..768 => STEP / 24.0,
        _ => 0.0,
    }
}

/// How much of a change each block takes, relative to others.
fn rooms(coefficients: &[f32]) -> impl Iterator<Item = f32> {
    coefficients.chunks_exact(FREQUENCIES.len()).map(room)
}

/// Replaces coefficients by what must be added to them, as each block has `room` for it. A bit
/// that hardly changed since it was `held` is moved to the same point again.
fn quantise(
    (grid, scheme): (Grid, Scheme),
    coefficients: &mut [f32],
    room: &[f32],
    bits: &[bool; BITS],
    slack: f32,
    held: &mut [Held],
) {
    let step = scheme.step;
    for tile in 0..grid.tiles() {
        for (bit, one) in bits.iter().enumerate() {
            let cells = scheme.cells(grid, tile, bit);
            let places = cells.map(|(cell, w)| (grid.place(tile, cell, Turn::default()).0, w));
            let (mut projection, mut all) = (0.0, 0.0);
            for (at, w) in places.clone() {
                projection += coefficients[at] * w;
                all += w * w * room[at / FREQUENCIES.len()];
            }
            let origin = (shift(tile, bit) + if *one { 0.5 } else { 0.0 }) * step;
            let nearest = |projection: f32| {
                // Rounded by hand: this runs on machines without an instruction for it.
                let steps = ((projection - origin) / step + 12_582_912.0) - 12_582_912.0;
                steps * step + origin
            };
            let mut away = nearest(projection) - projection;
            let held = held.get_mut(tile as usize * BITS + bit);
            if let Some(Held { projection: before, point }) = held.as_deref().copied() {
                let is_same_bit = (nearest(point) - point).abs() < step / 8.0;
                if is_same_bit && (projection - before).abs() < HOLD * step {
                    away = point - projection;
                }
            }
            if let Some(held) = held {
                *held = Held { projection, point: projection + away };
            }
            let by = away - away.clamp(-slack, slack);
            for (at, w) in places {
                coefficients[at] = by / all * w * room[at / FREQUENCIES.len()];
            }
        }
    }
}

/// How much of a change a block takes, relative to others: textured ones hide more.
fn room(block: &[f32]) -> f32 {
    let energy = block.iter().map(|c| c * c).sum::<f32>() / FREQUENCIES.len() as f32;
    (FLAT + energy.sqrt() / TEXTURED).min(1.0)
}

/// What a picture went through: every coefficient was multiplied by `gain` (contrast) and by
/// exp(-`blur` * r²), r its distance from frequency zero (resizing; below 0: sharpening).
#[derive(Debug, Clone, Copy)]
struct Channel {
    gain: f32,
    blur: f32,
}

impl Channel {
    /// What is tried, most likely first.
    fn all() -> impl Iterator<Item = Self> {
        let blurs = [0, 1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3];
        let resized = blurs.into_iter().map(|i| Self { gain: 1.0, blur: i as f32 * 0.004 });
        resized.chain((0..=35).map(|i| Self { gain: 0.6 + 0.02 * i as f32, blur: 0.0 }))
    }

    /// What is tried for clips: codecs take more of what is fine, and resizing comes on top.
    fn of_clips() -> impl Iterator<Item = Self> {
        let blurs = [10, 12, 14, 16, 20, 24, 28, 32, 40];
        Self::all().chain(blurs.into_iter().map(|i| Self { gain: 1.0, blur: i as f32 * 0.004 }))
    }

    /// By which a projection's parts must be multiplied.
    fn undo(self) -> [f32; RADII.len()] {
        RADII.map(|r| (self.blur * r).exp() / self.gain)
    }
}

/// Every bit's projection in every tile, in steps, apart for each radius.
#[derive(Default)]
struct Projections {
    tiles: u32,
    parts: Vec<[f32; RADII.len()]>,
}

impl Projections {
    fn of(laid: (Grid, Scheme), turn: Turn, coefficients: &[f32]) -> Self {
        let mut found = Self::default();
        found.fill(laid, turn, coefficients);
        found
    }

    fn fill(&mut self, (grid, scheme): (Grid, Scheme), turn: Turn, coefficients: &[f32]) {
        let project = |tile, bit| {
            let mut parts = [0.0; RADII.len()];
            for (cell, w) in scheme.cells(grid, tile, bit) {
                let (at, sign) = grid.place(tile, cell, turn);
                parts[RADIUS[cell % FREQUENCIES.len()]] +=
                    coefficients[at] * w * sign / scheme.step;
            }
            parts
        };
        self.tiles = grid.tiles();
        self.parts.clear();
        let bits = |t| (0..BITS).map(move |b| project(t, b));
        self.parts.extend((0..grid.tiles()).flat_map(bits));
    }

    /// Above 0: bit `bit` is rather a one in this tile; at most 1 either way.
    fn soft_in(&self, tile: u32, bit: usize, undo: [f32; RADII.len()]) -> f32 {
        let parts = &self.parts[tile as usize * BITS + bit];
        let projection: f32 = parts.iter().zip(undo).map(|(p, u)| p * u).sum();
        -(std::f32::consts::TAU * (projection - shift(tile, bit))).cos()
    }

    /// The sum over all tiles.
    fn soft(&self, bit: usize, undo: [f32; RADII.len()]) -> f32 {
        (0..self.tiles).map(|tile| self.soft_in(tile, bit, undo)).sum()
    }

    fn decode(&self) -> Option<Reading> {
        Channel::all().find_map(|channel| {
            let undo = channel.undo();
            let sum: f32 = (0..PILOTS).map(|i| self.soft(CODED + i, undo) * code::pilot(i)).sum();
            let pilots = sum / (PILOTS as f32 * self.tiles as f32 / 2.0).sqrt();
            (pilots > PILOT_FLOOR).then_some(())?;
            let soft: [f32; CODED] = std::array::from_fn(|bit| self.soft(bit, undo));
            let payload = code::decode(&soft)?;
            let bits = code::encode(payload);
            let agree: f32 = soft.iter().zip(bits).map(|(s, b)| if b { *s } else { -s }).sum();
            let whole = agree / (CODED as f32 * self.tiles as f32 / 2.0).sqrt();
            (pilots > PILOT_SURE || whole > WHOLE_FLOOR).then_some(())?;
            let wrong = soft.iter().zip(bits).filter(|(s, bit)| (**s > 0.0) != *bit).count();
            let corrected = wrong as f32 / CODED as f32;
            Some(Reading { payload, pilots, gain: channel.gain, blur: channel.blur, corrected })
        })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
