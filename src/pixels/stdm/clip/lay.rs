//! Which block carries which bit of a clip's mark, and as what.

use super::super::code::{self, BITS};
use super::super::grid::{Basis, FREQUENCIES, Grid, Turn};
use super::super::keyed;

/// Distance of two lattice points of one bit value, in units of a coefficient.
pub(super) const STEP: f32 = 48.0;
/// How far a projection may change, in steps, so that a bit is moved to the same point again.
pub(super) const HOLD: f32 = 0.25;
/// The patterns: a sine along one side, and an arch along the other.
const PATTERNS: [usize; 2] = [1, 2];
/// Blocks of a tile: one a bit.
const TILE: u32 = Basis::Sines.tile();
/// Sends the bits of a tile to blocks far apart; prime to `TILE`, so that no two meet.
const STRIDE: u32 = 77;

/// Where one bit of one tile stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Coefficient of the picture.
    pub(super) at: usize,
    /// Of a picture that was turned over.
    pub(super) sign: f32,
    /// Where its lattice begins, in steps: a quarter to either side of nought, so that a place from
    /// which a codec took its pattern says nothing instead of something wrong.
    pub(super) shift: f32,
    pub(super) bit: usize,
}

/// All places of a grid, tile by tile, in the order of the bits.
pub(super) fn places(grid: Grid, turn: Turn) -> Vec<Place> {
    let place = |tile: u32, bit: usize| {
        let start = (keyed(4 << 32 | u64::from(tile)) % u64::from(TILE)) as u32;
        let block = grid.block(tile, (bit as u32 * STRIDE + start) % TILE, turn);
        let lots = keyed(1 << 32 | u64::from(tile) << 16 | bit as u64);
        let pattern = PATTERNS[(lots >> 63) as usize];
        // The sine runs along the side of which its number is not nought; only it is odd.
        let (along_short, _) = FREQUENCIES[pattern];
        let over = if along_short > 0 { turn.short } else { turn.long };
        Place {
            at: block * FREQUENCIES.len() + pattern,
            sign: if over { -1.0 } else { 1.0 },
            shift: if lots >> 62 & 1 == 1 { 0.25 } else { 0.75 },
            bit,
        }
    };
    (0..grid.tiles()).flat_map(|tile| (0..BITS).map(move |bit| place(tile, bit))).collect()
}

/// What stands at each place.
pub(super) fn projections<'a>(
    places: &'a [Place],
    coefficients: &'a [f32],
) -> impl Iterator<Item = f32> + 'a {
    places.iter().map(|place| coefficients[place.at] * place.sign)
}

/// The bits of a tile. Payloads that are nearly alike have words that are not, so that one is never
/// taken for another.
pub(super) fn encode(payload: u64) -> [bool; BITS] {
    code::encode(mix(payload))
}

/// The payload that soft bits say, when its check holds.
pub(super) fn decode(soft: &[f32]) -> Option<u64> {
    code::decode(soft).map(unmix)
}

const FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// One to one: the last steps of splitmix64.
const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(FACTORS[0]);
    let z = (z ^ (z >> 27)).wrapping_mul(FACTORS[1]);
    z ^ (z >> 31)
}

const fn unmix(z: u64) -> u64 {
    let z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(inverse(FACTORS[1]));
    let z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(inverse(FACTORS[0]));
    z ^ (z >> 30) ^ (z >> 60)
}

/// Of an odd number, modulo 2⁶⁴: each step doubles the bits that are right.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Size;

    #[test]
    fn mixing_is_undone_and_near_payloads_have_far_words() {
        for payload in [0, 1, u64::MAX, 0x6123_4567_89ab_cdef, 1 << 63] {
            assert_eq!(unmix(mix(payload)), payload);
            let soft = encode(payload).map(|bit| if bit { 1.0 } else { -1.0 });
            assert_eq!(decode(&soft), Some(payload));
            let (one, other) = (encode(payload), encode(payload ^ 1 << 16));
            let apart = one.iter().zip(other).filter(|(a, b)| **a != *b).count();
            assert!((60..130).contains(&apart), "{apart}");
        }
    }

    #[test]
    fn no_two_bits_share_a_block() {
        for (w, h) in [(960, 540), (200, 150), (300, 900)] {
            let grid = Grid::of(Size::new(w, h), Basis::Sines).unwrap();
            for turn in Turn::ALL {
                let mut blocks: Vec<usize> =
                    places(grid, turn).iter().map(|p| p.at / FREQUENCIES.len()).collect();
                let all = blocks.len();
                blocks.sort_unstable();
                blocks.dedup();
                assert_eq!(blocks.len(), all);
            }
        }
    }
}
