//! Bits of an H.264 parameter set, most significant first, without emulation prevention.

/// Reads bits; `None` past the end.
#[derive(Debug, Clone)]
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bits that were read.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit == 1)
    }

    /// Up to 32 bits.
    pub(crate) fn bits(&mut self, count: u32) -> Option<u32> {
        let mut value = 0_u32;
        for _ in 0..count {
            value = value << 1 | u32::from(self.flag()?);
        }
        Some(value)
    }

    /// Exp-Golomb, unsigned.
    pub(crate) fn ue(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        Some(((1_u64 << zeros) - 1) as u32 + self.bits(zeros)?)
    }

    /// Exp-Golomb, signed.
    pub(crate) fn se(&mut self) -> Option<i32> {
        let code = i64::from(self.ue()?);
        let size = (code + 1) / 2;
        i32::try_from(if code % 2 == 1 { size } else { -size }).ok()
    }
}

/// Writes bits.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    filled: usize,
}

impl BitWriter {
    pub(crate) fn flag(&mut self, bit: bool) {
        if self.filled.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (7 - self.filled % 8);
        }
        self.filled += 1;
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_golomb_codes_are_those_of_the_standard() {
        let mut r = BitReader::new(&[0b1010_0110, 0b0100_0010, 0b1000_0000]);
        assert_eq!((r.ue(), r.ue(), r.ue()), (Some(0), Some(1), Some(2)));
        assert_eq!((r.se(), r.se()), (Some(2), Some(-2)));
        assert_eq!(r.position(), 17);
    }

    #[test]
    fn reading_past_the_end_gives_nothing() {
        let mut r = BitReader::new(&[0]);
        assert_eq!(r.ue(), None);
        assert_eq!(BitReader::new(&[0; 5]).ue(), None, "32 zeros are no code");
        assert_eq!(BitReader::new(&[1]).bits(9), None);
    }

    #[test]
    fn bits_come_back_as_they_were_written() {
        let mut w = BitWriter::default();
        let bits = [true, false, false, true, true, false, true, false, true, true];
        bits.iter().for_each(|bit| w.flag(*bit));
        let bytes = w.into_bytes();
        let mut r = BitReader::new(&bytes);
        assert!(bits.iter().all(|bit| r.flag() == Some(*bit)));
        assert_eq!(bytes.len(), 2);
    }
}
