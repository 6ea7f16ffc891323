//! What the frames of a clip say: each GOP alone, and the weak ones beside the others.

use std::collections::BTreeSet;
use std::ops::Range;

use super::lay::{self, Place, STEP};
use super::levels;
use crate::convert;
use crate::geometry::Size;
use crate::stdm::code::{self, BITS, CODED};
use crate::stdm::grid::{Basis, Grid, Turn};
use crate::stdm::plan::Plan;
use crate::stdm::{LUMA, PILOT_SURE, Reading, WHOLE_FLOOR};
use crate::view::View;

/// The least correlation with the pilots that does when the whole code agrees: bits that moved away
/// say nothing.
const PILOT_FLOOR: f32 = 2.0;
/// How far the bits of a GOP must agree with a payload that was read from others, in deviations of
/// what chance gives, to carry it too.
const CONFIRMED: f32 = 6.0;
/// How far from its first frame a place may be, in steps, to be the same still.
const STAYS: f32 = 0.25;
/// GOPs that may wait for a payload that they are compared with.
const WAITING: usize = 64;

/// How places are weighed that stay for some frames only.
#[derive(Debug, Clone, Copy)]
pub(super) enum Weigh {
    /// As much as others: right when the first frame is the clearest, as where a codec begins anew.
    Alike,
    /// More when they stay longer: right when frames differ, and what is moved away says nothing.
    ByStay,
}

impl Weigh {
    const ALL: [Self; 2] = [Self::Alike, Self::ByStay];
}

/// What is tried: contrast may have been changed.
fn gains() -> impl Iterator<Item = f32> {
    std::iter::once(1.0).chain((0..=35).map(|i| 0.6 + 0.02 * i as f32))
}

/// Reads the payloads of a clip, one a GOP.
pub struct Reader {
    size: Size,
    plans: Vec<Plan<1>>,
    /// Of every frame, by plan.
    frames: Vec<Vec<Vec<f32>>>,
    known: BTreeSet<u64>,
    found: Vec<Option<u64>>,
    /// GOPs without a payload by their number, with their sums by plan.
    waiting: Vec<(usize, Vec<Both>)>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gops = self.found.len();
        f.debug_struct("Reader").field("size", &self.size).field("gops", &gops).finish()
    }
}

impl Reader {
    /// A reader of frames of one size.
    #[must_use]
    pub fn new(size: Size, range: convert::Range) -> Self {
        let plan = |grid| Plan::new(grid, size, [1.0 / levels(range)], 1.0);
        let grids = Grid::candidates(size, Basis::Sines);
        let plans: Vec<Plan<1>> = grids.into_iter().map(plan).collect();
        let frames = plans.iter().map(|_| Vec::new()).collect();
        let (known, found, waiting) = (BTreeSet::new(), Vec::new(), Vec::new());
        Self { size, plans, frames, known, found, waiting }
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

    /// Ends a GOP: what its frames say, alone or by agreeing with what was read before. Once a
    /// payload was found, only its way of dividing frames is looked for.
    pub fn finish(&mut self) -> Option<u64> {
        let alone = self.alone();
        let sums = |(plan, frames): (&Plan<1>, &Vec<Vec<f32>>)| {
            let places = lay::places(plan.grid(), Turn::default());
            let seen = projected(&places, frames);
            Weigh::ALL.map(|weigh| Sums::of(&places, &seen, (1.0, weigh)))
        };
        let mut sums: Vec<Both> = self.plans.iter().zip(&self.frames).map(sums).collect();
        self.frames.iter_mut().for_each(Vec::clear);
        let number = self.found.len();
        if let Some((at, payload)) = alone {
            self.keep(at);
            self.found.push(Some(payload));
            if self.known.insert(payload) {
                self.confirm();
            }
        } else {
            let agrees = |payload: &u64| agree(&sums, *payload);
            self.found.push(self.known.iter().copied().find(agrees));
            if self.found[number].is_none() && self.waiting.len() < WAITING {
                self.waiting.push((number, std::mem::take(&mut sums)));
            }
        }
        self.found[number]
    }

    /// What each GOP says, those that say nothing alone compared with what all say.
    pub fn all(&mut self) -> &[Option<u64>] {
        if self.known.is_empty() && self.waiting.len() > 1 {
            let together = (0..self.plans.len()).find_map(|at| {
                (0..Weigh::ALL.len()).find_map(|way| {
                    let each = self.waiting.iter().map(|(_, sums)| &sums[at][way]);
                    Sums::together(each).decode().map(|reading| (at, reading.payload))
                })
            });
            if let Some((at, payload)) = together {
                self.keep(at);
                self.known.insert(payload);
                self.confirm();
            }
        }
        &self.found
    }

    /// What the frames of the GOP say, and the plan by which they say it.
    fn alone(&self) -> Option<(usize, u64)> {
        self.plans.iter().zip(&self.frames).enumerate().find_map(|(at, (plan, frames))| {
            let reading = Turn::ALL.into_iter().find_map(|turn| {
                let places = lay::places(plan.grid(), turn);
                decode(&places, &projected(&places, frames))
            });
            reading.map(|reading| (at, reading.payload))
        })
    }

    fn keep(&mut self, plan: usize) {
        self.plans.swap(0, plan);
        self.plans.truncate(1);
        self.frames.truncate(1);
        for (_, sums) in &mut self.waiting {
            sums.swap(0, plan);
            sums.truncate(1);
        }
    }

    /// Compares the GOPs that wait with the payloads that are known.
    fn confirm(&mut self) {
        let Self { known, found, waiting, .. } = self;
        waiting.retain(|(number, sums)| {
            let agrees = |payload: &u64| agree(sums, *payload);
            found[*number] = known.iter().copied().find(agrees);
            found[*number].is_none()
        });
    }
}

/// The mark of a clip in one picture.
pub(in crate::stdm) fn examine(rgb: View<'_, 3>) -> Option<Reading> {
    let mut coefficients = Vec::new();
    Grid::candidates(rgb.size(), Basis::Sines).into_iter().find_map(|grid| {
        Plan::new(grid, rgb.size(), LUMA, 1.0).analyse(rgb, &mut coefficients);
        let frame = std::slice::from_ref(&coefficients);
        Turn::ALL.into_iter().find_map(|turn| {
            let places = lay::places(grid, turn);
            decode(&places, &projected(&places, frame))
        })
    })
}

/// What one GOP says, weighed in both ways.
type Both = [Sums; 2];

fn agree(plans: &[Both], payload: u64) -> bool {
    plans.iter().flatten().any(|sums| sums.agrees(payload))
}

fn projected(places: &[Place], frames: &[Vec<f32>]) -> Vec<Vec<f32>> {
    frames.iter().map(|frame| lay::projections(places, frame).collect()).collect()
}

/// What frames say together, `None` when it is nothing certain.
fn decode(places: &[Place], frames: &[Vec<f32>]) -> Option<Reading> {
    let ways = |gain| Weigh::ALL.map(|weigh| (gain, weigh));
    gains().flat_map(ways).find_map(|way| {
        let pilots = |(i, _): &(usize, &Place)| i % BITS >= CODED;
        let each = places.iter().enumerate().filter(pilots);
        let mut all = Agreement::default();
        each.for_each(|(i, place)| {
            all.add(place.seen(i, frames, way), code::pilot(i % BITS - CODED));
        });
        (all.deviations() > PILOT_FLOOR).then_some(())?;
        Sums::of(places, frames, way).decode()
    })
}

/// What several frames say of a place.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Above 0: it rather carries a one.
    soft: f32,
    /// The most that `soft` can be, either way.
    most: f32,
}

impl Place {
    /// Of the frames in which it stays as it was in the first one: what came after is something
    /// else.
    fn seen(&self, number: usize, frames: &[Vec<f32>], (gain, weigh): (f32, Weigh)) -> Seen {
        let step = STEP * gain;
        let (mut sum, mut weights, mut first) = (0.0, 0.0, None);
        for frame in frames {
            let at = frame[number] / step;
            let away = (at - *first.get_or_insert(at)) / STAYS;
            let weight = 1.0 - away * away;
            if weight <= 0.0 {
                break;
            }
            sum -= (std::f32::consts::TAU * (at - self.shift)).cos() * weight;
            weights += weight;
        }
        let share = match weigh {
            Weigh::Alike => weights,
            Weigh::ByStay => weights.sqrt(),
        };
        let share = share.max(f32::MIN_POSITIVE);
        Seen { soft: sum / share, most: weights / share }
    }
}

/// How far places agree with bits that are expected of them.
#[derive(Debug, Clone, Copy, Default)]
struct Agreement {
    sum: f32,
    /// Squares of what is seen.
    spread: f32,
    /// Of what random angles would give.
    random: f32,
}

impl Agreement {
    fn add(&mut self, seen: Seen, sign: f32) {
        self.sum += seen.soft * sign;
        self.spread += seen.soft * seen.soft;
        self.random += seen.most * seen.most / 2.0;
    }

    /// In deviations of what chance gives.
    fn deviations(self) -> f32 {
        self.sum / self.spread.min(self.random).sqrt().max(f32::MIN_POSITIVE)
    }
}

/// The bits of several frames, place by place.
pub(super) struct Sums {
    each: Vec<Seen>,
    gain: f32,
}

impl Sums {
    pub(super) fn of(places: &[Place], frames: &[Vec<f32>], way: (f32, Weigh)) -> Self {
        let seen = |(i, place): (usize, &Place)| place.seen(i, frames, way);
        Self { each: places.iter().enumerate().map(seen).collect(), gain: way.0 }
    }

    /// Several GOPs as if they were one; each counts the same.
    fn together<'a>(gops: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = Self { each: Vec::new(), gain: 1.0 };
        for gop in gops {
            let norm = gop.each.iter().map(|seen| seen.soft * seen.soft).sum::<f32>().sqrt();
            let norm = norm.max(f32::MIN_POSITIVE);
            all.each.resize(gop.each.len(), Seen::default());
            for (sum, seen) in all.each.iter_mut().zip(&gop.each) {
                sum.soft += seen.soft / norm;
                sum.most += seen.most / norm;
            }
        }
        all
    }

    /// How far some bits of all tiles are as `wanted`, which gives a sign.
    fn agreement(&self, bits: Range<usize>, wanted: impl Fn(usize) -> f32) -> Agreement {
        let mut all = Agreement::default();
        for tile in self.each.chunks_exact(BITS) {
            bits.clone().for_each(|bit| all.add(tile[bit], wanted(bit)));
        }
        all
    }

    fn with(&self, payload: u64) -> Agreement {
        let bits = lay::encode(payload);
        self.agreement(0..CODED, |bit| if bits[bit] { 1.0 } else { -1.0 })
    }

    /// Whether the frames carry a payload that is known.
    fn agrees(&self, payload: u64) -> bool {
        let Agreement { sum, spread, .. } = self.with(payload);
        sum / spread.sqrt().max(f32::MIN_POSITIVE) > CONFIRMED
    }

    /// What the frames say, `None` when it is nothing certain.
    pub(super) fn decode(&self) -> Option<Reading> {
        let pilots = self.agreement(CODED..BITS, |bit| code::pilot(bit - CODED)).deviations();
        (pilots > PILOT_FLOOR).then_some(())?;
        let soft: [f32; CODED] = std::array::from_fn(|bit| {
            self.each.iter().skip(bit).step_by(BITS).map(|seen| seen.soft).sum()
        });
        let payload = lay::decode(&soft)?;
        let whole = self.with(payload).deviations();
        (pilots > PILOT_SURE || whole > WHOLE_FLOOR).then_some(())?;
        let bits = lay::encode(payload);
        let wrong = soft.iter().zip(bits).filter(|(s, one)| (**s > 0.0) != *one).count();
        let corrected = wrong as f32 / CODED as f32;
        Some(Reading { payload, pilots, gain: self.gain, blur: 0.0, corrected })
    }
}
