//! The mark in clips: one residual, held from one IDR to the next, and read from all frames between.
//!
//! It is computed for the frame of the IDR and added to each frame until the next one: what does
//! not change costs an encoder next to nothing. Where the picture stands still, the next one is the
//! same. What moves is left alone from then on: a pattern that stands still over it costs bits in
//! each frame and says nothing. Codecs of clips swallow whatever is weaker than half a step of
//! theirs, so a bit is one strong pattern in a block, not eight weak ones as in pictures. Bits are
//! summed over the frames in which they stay where they were.

mod lay;
mod motion;
mod read;

pub use read::Reader;
pub(super) use read::examine;

use super::grid::{Basis, FREQUENCIES, Grid, Turn};
use super::nearest;
use super::plan::Plan;
use crate::convert::Range;
use crate::geometry::Size;
use crate::simd::stdm as loops;
use crate::view::{Grey, View, ViewMut};
use lay::{HOLD, Place, STEP};
use motion::Motion;
use read::{Sums, Weigh};

/// How far a pattern is moved where there is no texture, in coefficients.
const FLAT: f32 = 7.0;
/// Under this level less is seen.
const DARK: f32 = 46.0;

/// Levels of a plane that one level of full range is.
const fn levels(range: Range) -> f32 {
    match range {
        Range::Limited => 219.0 / 255.0,
        Range::Full => 1.0,
    }
}

/// How far a pattern may be moved in a block without being seen: texture hides it, darkness does
/// the contrary. `level` is how bright the block is, 0..=255.
fn hidden(coefficients: &[f32], level: Option<f32>) -> f32 {
    // The first product has the brightness in it.
    let texture = coefficients[1..].iter().map(|c| c * c).sum::<f32>();
    let texture = (texture / (FREQUENCIES.len() - 1) as f32).sqrt();
    let light = level.map_or(1.0, |level| (level / DARK).clamp(0.5, 1.0));
    (FLAT + texture).min(STEP / 2.0) * light
}

/// How far towards a point a pattern may go that stands at `from`. What it is weakened by before it
/// is turned over does not count in flat blocks, so that a clip can be marked anew.
fn reach(from: f32, point: f32, most: f32) -> f32 {
    let weakened = |over: bool| if over { from.abs().min(FLAT) } else { 0.0 };
    point.clamp(from - most - weakened(from > 0.0), from + most + weakened(from < 0.0))
}

/// Where a bit was, and to which point it was moved.
#[derive(Debug, Clone, Copy)]
struct Held {
    projection: f32,
    point: f32,
}

impl Held {
    const NOWHERE: Self = Self { projection: f32::INFINITY, point: 0.0 };
}

/// What is added to the luma of every frame of a GOP.
pub struct Residual {
    plan: Option<Plan<1>>,
    size: Size,
    levels: f32,
    /// 128 is nothing.
    values: Grey,
    coefficients: Vec<f32>,
    /// What each place's pattern is moved by.
    moves: Vec<f32>,
    places: Vec<Place>,
    /// By place.
    held: Vec<Held>,
    motion: Motion,
}

impl std::fmt::Debug for Residual {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Residual").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Residual {
    /// One that adds nothing yet, for frames of one size.
    #[must_use]
    pub fn new(size: Size, range: Range) -> Self {
        let levels = levels(range);
        let grid = Grid::of(size, Basis::Sines);
        let plan = grid.map(|grid| Plan::new(grid, size, [1.0 / levels], levels));
        let places = grid.map_or(Vec::new(), |grid| lay::places(grid, Turn::default()));
        let held = vec![Held::NOWHERE; places.len()];
        let motion = Motion::new(size, grid.map_or(Size::new(0, 0), Grid::blocks), levels);
        let values = Grey::filled(size, [128]);
        let (coefficients, moves) = (Vec::new(), Vec::new());
        Self { plan, size, levels, values, coefficients, moves, places, held, motion }
    }

    /// Looks at the next frame as it is before anything is added, and takes the residual away where
    /// it moves. Without it all counts as still.
    ///
    /// # Panics
    /// When the frame has another size.
    pub fn follow(&mut self, luma: View<'_, 1>) {
        assert!(luma.size() == self.size, "all frames have one size");
        let Some(plan) = &self.plan else { return };
        let values = &mut self.values;
        self.motion.look(luma, |block| {
            let mut gone = values.view_mut().crop(plan.area(block));
            for y in 0..gone.size().height {
                gone.row_mut(y).fill(128);
            }
        });
    }

    /// Makes it the residual that marks this frame. Gives the PSNR of luma in dB, infinite when
    /// the frame is too small to be marked: then nothing is added.
    ///
    /// # Panics
    /// When the frame has another size.
    pub fn compute(&mut self, luma: View<'_, 1>, payload: u64) -> f32 {
        assert!(luma.size() == self.size, "all frames have one size");
        let Some(plan) = &mut self.plan else { return f32::INFINITY };
        plan.analyse(luma, &mut self.coefficients);
        self.motion.settle();
        let bits = lay::encode(payload);
        let projections = lay::projections(&self.places, &self.coefficients);
        self.moves.clear();
        for ((place, projection), held) in self.places.iter().zip(projections).zip(&mut self.held) {
            let block = place.at / FREQUENCIES.len();
            if !self.motion.is_still(block) {
                *held = Held::NOWHERE;
                self.moves.push(0.0);
                continue;
            }
            let origin = (place.shift + if bits[place.bit] { 0.5 } else { 0.0 }) * STEP;
            let is_same_bit = (nearest(held.point, origin, STEP) - held.point).abs() < 1.0;
            let held_on = (projection - held.projection).abs() < HOLD * STEP && is_same_bit;
            if !held_on {
                *held = Held { projection, point: nearest(projection, origin, STEP) };
            }
            let coefficients = &self.coefficients[block * FREQUENCIES.len()..];
            let most = hidden(&coefficients[..FREQUENCIES.len()], self.motion.level(block));
            self.moves.push(reach(projection, held.point, most) - projection);
        }
        self.coefficients.fill(0.0);
        for (place, by) in self.places.iter().zip(&self.moves) {
            self.coefficients[place.at] = by * place.sign;
        }
        self.values.bytes_all_mut().fill(128);
        let squares = plan.synthesise(&self.coefficients, &mut self.values.view_mut());
        let peak = f64::from(255.0 * self.levels);
        let mse = squares as f64 / self.size.pixels() as f64;
        (10.0 * (peak * peak / mse).log10()) as f32
    }

    /// Adds it, in place; what goes over black or white stays there.
    ///
    /// # Panics
    /// When the frame has another size.
    pub fn add(&self, luma: &mut ViewMut<'_, 1>) {
        assert!(luma.size() == self.size, "all frames have one size");
        for y in 0..self.size.height {
            loops::shift(luma.row_mut(y), self.values.view().row(y));
        }
    }

    /// The payload of one frame that it was added to, read back.
    ///
    /// # Panics
    /// When the frame has another size.
    pub fn read(&mut self, luma: View<'_, 1>) -> Option<u64> {
        assert!(luma.size() == self.size, "all frames have one size");
        self.plan.as_mut()?.analyse(luma, &mut self.coefficients);
        let frame = lay::projections(&self.places, &self.coefficients).collect();
        Sums::of(&self.places, &[frame], (1.0, Weigh::Alike))
            .decode()
            .map(|reading| reading.payload)
    }
}

#[cfg(test)]
#[path = "../clip_tests.rs"]
mod tests;
