//! The mark in clips: one residual, held from one IDR to the next, and read from all frames between.
//!
//! It is computed for the frame of the IDR and added to each frame until the next one: what does
//! not change costs an encoder next to nothing. Where the picture stands still, the next one is the
//! same. A bit's coefficients stand beside each other, elsewhere in each tile, so that what moves
//! takes few bits along. Frames later on may have moved away under it, and
//! lossy codecs keep some frames better than others; so bits are summed over the frames, each
//! weighed by how clearly it shows the pilots. A pilot never weighs itself, and sums are judged by
//! how far they spread, not by how many frames there are: frames of one scene are alike, marked or
//! not.

use super::code::{self, BITS, CODED, PILOTS};
use super::grid::{Grid, RADII, Turn};
use super::plan::Plan;
use super::{Channel, Held, PILOT_SURE, Projections, Reading, Scheme, WHOLE_FLOOR, quantise};
use crate::convert::Range;
use crate::geometry::Size;
use crate::simd::stdm as loops;
use crate::view::{Grey, View, ViewMut};

/// The least correlation with the pilots that does when the whole code agrees: bits that moved away
/// say nothing.
const PILOT_FLOOR: f32 = 2.0;

/// Levels of a plane that one level of full range is.
const fn levels(range: Range) -> f32 {
    match range {
        Range::Limited => 219.0 / 255.0,
        Range::Full => 1.0,
    }
}

/// What is added to the luma of every frame of a GOP.
pub struct Residual {
    plan: Option<Plan<1>>,
    size: Size,
    levels: f32,
    /// 128 is nothing.
    values: Grey,
    coefficients: Vec<f32>,
    room: Vec<f32>,
    held: Vec<Held>,
    seen: Projections,
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
        let plan = Grid::of(size).map(|grid| Plan::new(grid, size, [1.0 / levels], levels));
        let values = Grey::filled(size, [128]);
        Self {
            plan,
            size,
            levels,
            values,
            coefficients: Vec::new(),
            room: Vec::new(),
            held: Vec::new(),
            seen: Projections::default(),
        }
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
        self.room.resize(self.coefficients.len(), 1.0);
        self.held.resize(plan.grid().tiles() as usize * BITS, Held::NOWHERE);
        let bits = code::encode(payload);
        let laid = (plan.grid(), Scheme::CLIP);
        let (coefficients, room) = (&mut self.coefficients, &self.room);
        quantise(laid, coefficients, room, &bits, 0.0, &mut self.held);
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
}

impl Residual {
    /// The payload of one frame that it was added to, read back.
    ///
    /// # Panics
    /// When the frame has another size.
    pub fn read(&mut self, luma: View<'_, 1>) -> Option<u64> {
        assert!(luma.size() == self.size, "all frames have one size");
        let plan = self.plan.as_mut()?;
        plan.analyse(luma, &mut self.coefficients);
        self.seen.fill((plan.grid(), Scheme::CLIP), Turn::default(), &self.coefficients);
        self.seen.decode().map(|reading| reading.payload)
    }
}

/// Reads one payload from several frames.
pub struct Reader {
    size: Size,
    plans: Vec<Plan<1>>,
    /// Of every frame, by plan.
    frames: Vec<Vec<Vec<f32>>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let frames = self.frames.first().map_or(0, Vec::len);
        f.debug_struct("Reader").field("size", &self.size).field("frames", &frames).finish()
    }
}

impl Reader {
    /// A reader of frames of one size.
    #[must_use]
    pub fn new(size: Size, range: Range) -> Self {
        let plan = |grid| Plan::new(grid, size, [1.0 / levels(range)], 1.0);
        let plans: Vec<Plan<1>> = Grid::candidates(size).into_iter().map(plan).collect();
        Self { size, frames: plans.iter().map(|_| Vec::new()).collect(), plans }
    }

    /// Takes one more frame.
    ///
    /// # Panics
    /// When the frame has another size.
    pub fn push(&mut self, luma: View<'_, 1>) {
        assert!(luma.size() == self.size, "all frames have one size");
        for (plan, frames) in self.plans.iter_mut().zip(&mut self.frames) {
            let mut coefficients = Vec::new();
            plan.analyse(luma, &mut coefficients);
            frames.push(coefficients);
        }
    }

    /// What the frames since the last call say together. Once a payload was found, only its way of
    /// dividing frames is looked for.
    pub fn finish(&mut self) -> Option<Reading> {
        let read = |(plan, frames): (&Plan<1>, &Vec<Vec<f32>>)| {
            Turn::ALL.into_iter().find_map(|turn| {
                let of =
                    |frame: &Vec<f32>| Projections::of((plan.grid(), Scheme::CLIP), turn, frame);
                decode(&frames.iter().map(of).collect::<Vec<_>>())
            })
        };
        let every = self.plans.iter().zip(&self.frames).map(read).enumerate();
        let found = every.into_iter().find_map(|(at, reading)| reading.map(|r| (at, r)));
        if let Some((at, _)) = found {
            self.plans.swap(0, at);
            self.plans.truncate(1);
        }
        self.frames.truncate(self.plans.len());
        self.frames.iter_mut().for_each(Vec::clear);
        found.map(|(_, reading)| reading)
    }
}

/// What frames say together; `None` when it is nothing certain.
fn decode(frames: &[Projections]) -> Option<Reading> {
    let tiles = frames.first()?.tiles;
    Channel::of_clips().find_map(|channel| {
        let undo = channel.undo();
        let seen: Vec<Pilots> = frames.iter().map(|frame| Pilots::of(frame, undo)).collect();
        let pilots = agreement(&seen);
        (pilots > PILOT_FLOOR).then_some(())?;

        let weights: Vec<f32> = seen.iter().map(|p| p.z.max(0.0).powi(2)).collect();
        let (mut soft, mut spread) = ([0.0; CODED], 0.0);
        for (bit, soft) in soft.iter_mut().enumerate() {
            for tile in 0..tiles {
                let each = frames.iter().zip(&weights);
                let sum: f32 = each.map(|(frame, w)| frame.soft_in(tile, bit, undo) * w).sum();
                *soft += sum;
                spread += sum * sum;
            }
        }
        let payload = code::decode(&soft)?;
        let bits = code::encode(payload);
        let agree: f32 = soft.iter().zip(bits).map(|(s, one)| if one { *s } else { -s }).sum();
        let chance = weights.iter().sum::<f32>().powi(2) * (CODED as u32 * tiles) as f32 / 2.0;
        let whole = agree / spread.min(chance).sqrt();
        (pilots > PILOT_SURE || whole > WHOLE_FLOOR).then_some(())?;
        let wrong = soft.iter().zip(bits).filter(|(s, one)| (**s > 0.0) != *one).count();
        let corrected = wrong as f32 / CODED as f32;
        Some(Reading { payload, pilots, gain: channel.gain, blur: channel.blur, corrected })
    })
}

/// The pilots of one frame.
struct Pilots {
    /// Of every tile and pilot, above 0 where it is as it must be.
    each: Vec<f32>,
    /// Their sum in deviations of what chance gives.
    z: f32,
}

impl Pilots {
    fn of(frame: &Projections, undo: [f32; RADII.len()]) -> Self {
        let one = |tile, i| frame.soft_in(tile, CODED + i, undo) * code::pilot(i);
        let each: Vec<f32> =
            (0..frame.tiles).flat_map(|tile| (0..PILOTS).map(move |i| one(tile, i))).collect();
        let z = each.iter().sum::<f32>() / deviation(each.len());
        Self { each, z }
    }
}

/// Of the sum of so many cosines of random angles.
fn deviation(count: usize) -> f32 {
    (count as f32 / 2.0).sqrt()
}

/// How the pilots of all frames agree, in deviations of what chance gives at most. Each is weighed
/// by what the others of its frame say. Chance is what the sums themselves show, or, where that is
/// less, what frames that are all alike would give.
fn agreement(frames: &[Pilots]) -> f32 {
    let count = frames.first().map_or(0, |frame| frame.each.len());
    let (mut sum, mut spread, mut alike) = (0.0_f32, 0.0_f32, 0.0_f32);
    for i in 0..count {
        let (mut one, mut weights) = (0.0, 0.0);
        for frame in frames {
            let weight = (frame.z - frame.each[i] / deviation(count)).max(0.0).powi(2);
            one += weight * frame.each[i];
            weights += weight;
        }
        sum += one;
        spread += one * one;
        alike += weights * weights / 2.0;
    }
    let chance = spread.min(alike);
    if chance > 0.0 { sum / chance.sqrt() } else { 0.0 }
}

#[cfg(test)]
#[path = "clip_tests.rs"]
mod tests;
