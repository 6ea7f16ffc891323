//! The watermark's words: 64 payload bits, CRC-16, a rate-1/2 convolutional code, and pilots.

/// Bits of the payload, of its check, and of the code's tail.
const PAYLOAD: usize = 64;
const CHECK: usize = 16;
const TAIL: usize = 6;
/// Bits after coding.
pub(super) const CODED: usize = 2 * (PAYLOAD + CHECK + TAIL);
/// Bits that are known before reading.
pub(super) const PILOTS: usize = 20;
/// Bits that a tile carries, pilots last.
pub(super) const BITS: usize = CODED + PILOTS;

/// Generators of the code, constraint length 7.
const GENERATORS: [u8; 2] = [0o171, 0o133];
const STATES: usize = 64;
/// The first 16 bits of the golden ratio's fraction.
const PILOT_WORD: u32 = 0x9e37;

/// Pilot bit i as +1 or -1.
pub(super) const fn pilot(i: usize) -> f32 {
    // The word, lowest bit first, then the inverse of its lowest four.
    let bit = if i < 16 { PILOT_WORD >> i & 1 } else { !(PILOT_WORD >> (i - 16)) & 1 };
    if bit == 1 { 1.0 } else { -1.0 }
}

/// CRC-16/CCITT-FALSE over the payload's bytes, first byte first.
pub(super) fn crc16(payload: u64) -> u16 {
    payload.to_be_bytes().iter().fold(0xffff_u16, |start, byte| {
        (0..8).fold(start ^ (u16::from(*byte) << 8), |r, _| {
            if r & 0x8000 == 0 { r << 1 } else { (r << 1) ^ 0x1021 }
        })
    })
}

fn parity(register: u8, generator: u8) -> bool {
    (register & generator).count_ones() & 1 == 1
}

/// A tile's bits.
pub(super) fn encode(payload: u64) -> [bool; BITS] {
    let word = (u128::from(payload) << 16 | u128::from(crc16(payload))) << TAIL;
    let (mut register, mut bits) = (0_u8, [false; BITS]);
    for (i, pair) in bits[..CODED].chunks_exact_mut(2).enumerate() {
        let bit = (word >> (PAYLOAD + CHECK + TAIL - 1 - i) & 1) as u8;
        register = (register << 1 | bit) & 0x7f;
        pair[0] = parity(register, GENERATORS[0]);
        pair[1] = parity(register, GENERATORS[1]);
    }
    (0..PILOTS).for_each(|i| bits[CODED + i] = pilot(i) > 0.0);
    bits
}

/// The most likely payload of soft bits (above 0: a one), when its check holds.
pub(super) fn decode(soft: &[f32]) -> Option<u64> {
    const STEPS: usize = CODED / 2;
    let mut metric = [f32::NEG_INFINITY; STATES];
    metric[0] = 0.0;
    // Bit s of a step: state s was best reached from the predecessor with its top bit set.
    let mut choices = [0_u64; STEPS];
    for (pair, choice) in soft.get(..CODED)?.chunks_exact(2).zip(&mut choices) {
        let mut next = [f32::NEG_INFINITY; STATES];
        for (state, best) in next.iter_mut().enumerate() {
            let branch = |register: usize| {
                let sign = |g| if parity(register as u8, g) { 1.0 } else { -1.0 };
                metric[register >> 1]
                    + sign(GENERATORS[0]) * pair[0]
                    + sign(GENERATORS[1]) * pair[1]
            };
            let (low, high) = (branch(state), branch(state + STATES));
            *best = low.max(high);
            if high > low {
                *choice |= 1 << state;
            }
        }
        metric = next;
    }
    let (mut state, mut word) = (0_usize, 0_u128);
    for (i, choice) in choices.iter().rev().enumerate() {
        word |= ((state & 1) as u128) << i;
        let top = (choice >> state & 1) as usize;
        state = (state + STATES * top) >> 1;
    }
    let payload = (word >> (CHECK + TAIL)) as u64;
    (crc16(payload) == (word >> TAIL) as u16).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soft(payload: u64) -> Vec<f32> {
        encode(payload).iter().map(|b| if *b { 1.0 } else { -1.0 }).collect()
    }

    #[test]
    fn check_is_the_published_one() {
        // "12345678" under CRC-16/CCITT-FALSE.
        assert_eq!(crc16(u64::from_be_bytes(*b"12345678")), 0xa12b);
    }

    #[test]
    fn any_payload_comes_back_through_wrong_and_lost_bits() {
        for payload in [0, u64::MAX, 0x1234_5678_9abc_def0, 1, 1 << 63] {
            let mut bits = soft(payload);
            assert_eq!(decode(&bits), Some(payload));
            (0..CODED).step_by(13).for_each(|i| bits[i] = -bits[i] * 0.9);
            (5..CODED).step_by(9).for_each(|i| bits[i] = 0.0);
            assert_eq!(decode(&bits), Some(payload));
        }
    }

    #[test]
    fn noise_is_refused() {
        let mut seed = 7_u64;
        let wrong = (0..2_000).filter(|_| {
            let noise: Vec<f32> = (0..CODED)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 40) as f32 / (1 << 23) as f32 - 1.0
                })
                .collect();
            decode(&noise).is_some()
        });
        assert!(wrong.count() <= 1, "the check alone lets one of 65,536 through");
        assert_eq!(decode(&[0.0; 3]), None);
    }

    #[test]
    fn pilots_are_balanced() {
        let sum: f32 = (0..PILOTS).map(pilot).sum();
        assert!(sum.abs() <= 4.0, "{sum}");
    }
}
