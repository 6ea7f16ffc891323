//! Sequence parameter sets: what is refused by name, size, aspect, colour, and the form in which
//! openh264 hands every picture out at once.
//!
//! openh264 holds pictures back to bring them in order, one for each that comes in, which loses
//! the tie to the sample that a picture came from. It does not where the profile is 83 (scalable
//! baseline): there a picture leaves with its access unit. The container knows the order anyway,
//! so the decoder is given the same set with that profile, and frames are ordered by their time.

use mien_pixels::geometry::Size;

use super::units::{self, escape, unescape};
use crate::bits::{BitReader, BitWriter};
use crate::clip::{ColourTags, check_size};
use crate::errors::{DEINTERLACE, Error, Result};

const BASELINE: u32 = 66;
const MAIN: u32 = 77;
const SCALABLE_BASELINE: u8 = 83;
/// Profiles whose sets speak of chroma format, bit depth and scaling lists.
const HIGH: [u32; 12] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134];
/// Largest set that is looked at, in bytes; real ones have 30.
const LONGEST: usize = 4096;
/// Sample aspect ratios by their code in the standard.
const ASPECTS: [(u32, u32); 16] = [
    (1, 1),
    (12, 11),
    (10, 11),
    (16, 11),
    (40, 33),
    (24, 11),
    (20, 11),
    (32, 11),
    (80, 33),
    (18, 11),
    (15, 11),
    (64, 33),
    (160, 99),
    (4, 3),
    (3, 2),
    (2, 1),
];

/// What a set says of the pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sps {
    /// After cropping.
    pub(crate) size: Size,
    pub(crate) aspect: Option<(u32, u32)>,
    pub(crate) tags: Option<ColourTags>,
    /// Needed to read slices.
    pub(crate) log2_frame_num: u32,
    /// Bits of the order in each slice; `None` where it is coded by steps.
    pub(crate) order_bits: Option<u32>,
    /// Where the fields that only high profiles have would stand, in bits.
    after_id: usize,
    high: bool,
}

/// Reads a set; what is not decoded is refused by name.
pub(crate) fn parse(unit: &[u8]) -> Result<Sps> {
    if unit.len() > LONGEST {
        return Err(Error::h264("its parameter set is too long"));
    }
    let raw = unescape(unit);
    let profile = u32::from(*raw.get(1).unwrap_or(&0));
    let mut bits = BitReader::new(&raw);
    let cut = || Error::h264("its parameter set is cut");
    bits.bits(32).ok_or_else(cut)?;
    bits.ue().ok_or_else(cut)?;
    let after_id = bits.position();
    let high = HIGH.contains(&profile);
    if high {
        check_format(&mut bits, profile).ok_or_else(cut)??;
    } else if profile != BASELINE && profile != MAIN {
        return Err(Error::foreign(format!("H.264 of profile {profile}")));
    }
    let shape = shape(&mut bits).ok_or_else(cut)??;
    let (aspect, tags) = usability(&mut bits).unwrap_or((None, None));
    Ok(Sps { aspect, tags, after_id, high, ..shape })
}

/// Chroma format, bit depth, scaling lists.
fn check_format(bits: &mut BitReader<'_>, profile: u32) -> Option<Result<()>> {
    let chroma = bits.ue()?;
    if chroma != 1 {
        let name = ["4:0:0 (grey)", "4:2:0", "4:2:2", "4:4:4"].get(chroma as usize);
        let name = name.unwrap_or(&"unknown chroma");
        return Some(Err(Error::foreign(format!("H.264 in {name}"))));
    }
    let (luma, chroma) = (bits.ue()?, bits.ue()?);
    if luma != 0 || chroma != 0 {
        let depth = luma.max(chroma).saturating_add(8);
        return Some(Err(Error::foreign(format!("H.264 with {depth} bits a sample"))));
    }
    if bits.flag()? || profile == 244 {
        return Some(Err(Error::foreign("Lossless H.264")));
    }
    if bits.flag()? {
        for list in 0..8 {
            if bits.flag()? {
                skip_scaling(bits, if list < 6 { 16 } else { 64 })?;
            }
        }
    }
    Some(Ok(()))
}

fn skip_scaling(bits: &mut BitReader<'_>, size: u32) -> Option<()> {
    let (mut last, mut next) = (8_i32, 8_i32);
    for _ in 0..size {
        if next != 0 {
            next = (last.wrapping_add(bits.se()?)).rem_euclid(256);
        }
        if next != 0 {
            last = next;
        }
    }
    Some(())
}

fn shape(bits: &mut BitReader<'_>) -> Option<Result<Sps>> {
    let log2_frame_num = bits.ue()?.saturating_add(4);
    let mut order_bits = None;
    match bits.ue()? {
        0 => order_bits = Some(bits.ue()?.saturating_add(4)),
        1 => {
            bits.flag()?;
            bits.se()?;
            bits.se()?;
            for _ in 0..bits.ue()?.min(256) {
                bits.se()?;
            }
        }
        2 => order_bits = Some(0),
        _ => return None,
    }
    if log2_frame_num > 16 || order_bits.is_some_and(|bits| bits > 16) {
        return None;
    }
    bits.ue()?;
    bits.flag()?;
    let (width, height) = (bits.ue()?.checked_add(1)?, bits.ue()?.checked_add(1)?);
    if !bits.flag()? {
        let what = "Interlaced H.264".to_owned();
        return Some(Err(Error::Foreign { what, done: "read", advice: DEINTERLACE }));
    }
    bits.flag()?;
    let (mut across, mut down) = (0, 0);
    if bits.flag()? {
        across = bits.ue()?.checked_add(bits.ue()?)?.checked_mul(2)?;
        down = bits.ue()?.checked_add(bits.ue()?)?.checked_mul(2)?;
    }
    let cropped = |blocks: u32, crop: u32| blocks.checked_mul(16)?.checked_sub(crop);
    let size = Size::new(cropped(width, across)?, cropped(height, down)?);
    if size.pixels() == 0 {
        return None;
    }
    let (aspect, tags, after_id, high) = (None, None, 0, false);
    let sps = Sps { size, aspect, tags, log2_frame_num, order_bits, after_id, high };
    Some(check_size(size).map(|()| sps))
}

type Usability = (Option<(u32, u32)>, Option<ColourTags>);

fn usability(bits: &mut BitReader<'_>) -> Option<Usability> {
    if !bits.flag()? {
        return Some((None, None));
    }
    let mut aspect = None;
    if bits.flag()? {
        aspect = match bits.bits(8)? {
            255 => Some((bits.bits(16)?, bits.bits(16)?)),
            code => ASPECTS.get((code as usize).wrapping_sub(1)).copied(),
        };
        aspect = aspect.filter(|(x, y)| *x > 0 && *y > 0);
    }
    if bits.flag()? {
        bits.flag()?;
    }
    let mut tags = None;
    if bits.flag()? {
        bits.bits(3)?;
        let mut found = ColourTags { full: bits.flag()?, ..ColourTags::default() };
        if bits.flag()? {
            let mut code = || bits.bits(8).map(|code| code as u8);
            (found.primaries, found.transfer, found.matrix) = (code()?, code()?, code()?);
        }
        tags = Some(found);
    }
    Some((aspect, tags))
}

/// The same set in the form in which openh264 hands each picture out at once.
pub(crate) fn immediate(unit: &[u8], sps: &Sps) -> Vec<u8> {
    let mut raw = unescape(unit);
    if sps.high {
        raw[1] = SCALABLE_BASELINE;
        return escape(&raw);
    }
    if u32::from(raw[1]) == BASELINE {
        return unit.to_vec();
    }
    raw[1] = SCALABLE_BASELINE;
    while raw.last() == Some(&0) {
        raw.pop();
    }
    let mut old = BitReader::new(&raw);
    let mut new = BitWriter::default();
    let end = raw.len() * 8;
    // Chroma format 1, depths of 8 bits, no lossless mode, no scaling lists.
    const HIGH_FIELDS: [bool; 7] = [false, true, false, true, true, false, false];
    for at in 0..end {
        if at == sps.after_id {
            HIGH_FIELDS.iter().for_each(|bit| new.flag(*bit));
        }
        new.flag(old.flag().unwrap_or(false));
    }
    escape(&new.into_bytes())
}

/// The parts of a picture parameter set that its slices are read by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pps {
    order_present: bool,
    redundant: bool,
    quantiser: i32,
}

pub(crate) fn parse_pps(unit: &[u8]) -> Option<Pps> {
    let raw = unescape(unit.get(..unit.len().min(LONGEST))?);
    let mut bits = BitReader::new(&raw);
    bits.bits(8)?;
    bits.ue()?;
    bits.ue()?;
    bits.flag()?;
    let order_present = bits.flag()?;
    if bits.ue()? != 0 {
        return None;
    }
    bits.ue()?;
    bits.ue()?;
    bits.bits(3)?;
    let quantiser = bits.se()?.checked_add(26)?;
    bits.se()?;
    bits.se()?;
    bits.bits(2)?;
    let redundant = bits.flag()?;
    Some(Pps { order_present, redundant, quantiser })
}

/// Quantiser of an IDR picture's slice.
pub(crate) fn idr_quantiser(slice: &[u8], sps: &Sps, pps: Pps) -> Option<u8> {
    if units::kind(slice) != units::IDR {
        return None;
    }
    let raw = unescape(&slice[..slice.len().min(64)]);
    let mut bits = BitReader::new(&raw);
    bits.bits(8)?;
    bits.ue()?;
    let intra = matches!(bits.ue()?, 2 | 7);
    bits.ue()?;
    bits.bits(sps.log2_frame_num)?;
    bits.ue()?;
    let width = sps.order_bits?;
    bits.bits(width)?;
    if width > 0 && pps.order_present {
        bits.se()?;
    }
    if pps.redundant {
        bits.ue()?;
    }
    bits.bits(2)?;
    let quantiser = pps.quantiser.checked_add(bits.se()?)?;
    u8::try_from(quantiser).ok().filter(|q| intra && *q <= 51)
}
