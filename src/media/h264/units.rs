//! NAL units as MP4 carries them, each behind its length, and the decoder configuration (`avcC`).

use mien_base::limits;

use crate::errors::{Error, Result, bounded};

pub(crate) const SLICE: u8 = 1;
pub(crate) const PARTITION: std::ops::RangeInclusive<u8> = 2..=4;
pub(crate) const IDR: u8 = 5;
pub(crate) const SPS: u8 = 7;
pub(crate) const PPS: u8 = 8;

/// Type of a unit, from its first byte.
pub(crate) fn kind(unit: &[u8]) -> u8 {
    unit.first().map_or(0, |byte| byte & 31)
}

/// The units of one sample.
#[derive(Debug, Clone)]
pub(crate) struct Units<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Units<'a> {
    /// `length`: bytes of the length in front of each unit, 1 to 4.
    pub(crate) const fn new(sample: &'a [u8], length: usize) -> Self {
        Self { rest: sample, length }
    }
}

impl<'a> Iterator for Units<'a> {
    type Item = Result<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let unit = self.rest.split_at_checked(self.length).and_then(|(length, rest)| {
            let length = length.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
            rest.split_at_checked(length)
        });
        let Some((unit, rest)) = unit else {
            self.rest = &[];
            return Some(Err(Error::h264("a unit reaches beyond its frame")));
        };
        self.rest = rest;
        Some(Ok(unit))
    }
}

/// Takes the bytes out that keep start codes from appearing inside a unit.
pub(crate) fn unescape(unit: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(unit.len());
    let mut zeros = 0;
    for byte in unit {
        if zeros >= 2 && *byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        out.push(*byte);
    }
    out
}

/// The reverse of `unescape`.
pub(crate) fn escape(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + 8);
    let mut zeros = 0;
    for byte in raw {
        if zeros >= 2 && *byte <= 3 {
            out.push(3);
            zeros = 0;
        }
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        out.push(*byte);
    }
    out
}

/// Appends a unit behind a start code.
pub(crate) fn push(stream: &mut Vec<u8>, unit: &[u8]) {
    stream.extend_from_slice(&[0, 0, 0, 1]);
    stream.extend_from_slice(unit);
}

/// What `avcC` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Bytes of the length in front of each unit.
    pub(crate) length: usize,
    pub(crate) sps: Vec<Vec<u8>>,
    pub(crate) pps: Vec<Vec<u8>>,
}

impl Config {
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        Self::read(body).ok_or_else(|| Error::mp4("the decoder configuration (avcC) is cut"))
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (head, rest) = body.split_at_checked(6)?;
        if head[0] != 1 {
            return None;
        }
        let (sps, rest) = sets(rest, usize::from(head[5] & 31))?;
        let (count, rest) = rest.split_first()?;
        let (pps, _) = sets(rest, usize::from(*count))?;
        Some(Self { length: usize::from(head[4] & 3) + 1, sps, pps })
    }

    /// `avcC` of a stream with one parameter set of each kind and lengths of 4 bytes.
    pub(crate) fn write(sps: &[u8], pps: &[u8]) -> Result<Vec<u8>> {
        let (Some(head), true) = (sps.get(1..4), pps.len() < 1 << 16 && sps.len() < 1 << 16) else {
            return Err(Error::Encode { what: "the encoder's parameter sets are cut".into() });
        };
        let mut out = vec![1, head[0], head[1], head[2], 0xff, 0xe1];
        for (between, set) in [(None, sps), (Some(1), pps)] {
            out.extend(between);
            out.extend_from_slice(&(set.len() as u16).to_be_bytes());
            out.extend_from_slice(set);
        }
        Ok(out)
    }
}

fn sets(mut rest: &[u8], count: usize) -> Option<(Vec<Vec<u8>>, &[u8])> {
    let mut sets = Vec::new();
    for _ in 0..count {
        let (length, tail) = rest.split_first_chunk::<2>()?;
        let (set, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        sets.push(set.to_vec());
        rest = tail;
    }
    Some((sets, rest))
}

/// Refuses a sample that no decoder takes.
pub(crate) fn check_size(bytes: usize) -> Result<()> {
    let (bytes, limit) = (bytes as u64, limits::CLIP_UNIT as u64);
    bounded("Size of a coded frame", bytes, limit, crate::errors::CONVERT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_bytes_hold_no_start_code_and_come_back() {
        let raw = [0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 3, 7, 0, 0];
        let escaped = escape(&raw);
        let code = |w: &[u8]| w[0] == 0 && w[1] == 0 && w[2] < 3;
        assert!(!escaped.windows(3).any(code), "{escaped:?}");
        assert_eq!(unescape(&escaped), raw);
    }

    #[test]
    fn a_unit_beyond_its_sample_is_an_error_and_the_last() {
        let mut units = Units::new(&[0, 1, 9, 0, 2, 9], 2);
        assert_eq!(units.next().unwrap().unwrap(), [9]);
        assert!(units.next().unwrap().is_err());
        assert!(units.next().is_none());
    }

    #[test]
    fn a_configuration_comes_back_and_a_cut_one_is_refused() {
        let body = Config::write(&[0x67, 66, 0, 30, 5], &[0x68, 9]).unwrap();
        let config = Config::parse(&body).unwrap();
        assert_eq!(config.length, 4);
        assert_eq!(
            (&config.sps[0][..], &config.pps[0][..]),
            (&[0x67, 66, 0, 30, 5][..], &[0x68, 9][..])
        );
        for cut in 0..body.len() {
            assert!(Config::parse(&body[..cut]).is_err(), "cut at {cut}");
        }
    }
}
