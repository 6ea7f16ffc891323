//! The sample table of a track (`stbl`), kept as runs: sound may have a sample every 20 µs.

use mien_base::limits;

use super::boxes::{Boxes, Fields, SPLIT};
use crate::errors::{Error, Result, bounded};

/// Equal values in a row: how many, and which.
pub(crate) type Runs<T> = Vec<(u32, T)>;

/// Appends to the last run where it can.
pub(crate) fn extend<T: PartialEq>(runs: &mut Runs<T>, count: u32, value: T) {
    match runs.last_mut() {
        _ if count == 0 => {}
        Some((n, last)) if *last == value && n.checked_add(count).is_some() => *n += count,
        _ => runs.push((count, value)),
    }
}

/// Values one by one.
pub(crate) fn each<T: Copy>(runs: &[(u32, T)]) -> impl Iterator<Item = T> {
    runs.iter().flat_map(|(count, value)| std::iter::repeat_n(*value, *count as usize))
}

/// Values in all.
pub(crate) fn total<T>(runs: &[(u32, T)]) -> u64 {
    runs.iter().map(|(count, _)| u64::from(*count)).sum()
}

/// A chunk: samples that follow one another in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) offset: u64,
    pub(crate) samples: u32,
    /// Sample description, from 1.
    pub(crate) description: u32,
}

/// A table that `stbl` or fragments fill.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Decoding time of the first sample.
    pub(crate) start: u64,
    /// Ticks to the next sample.
    pub(crate) times: Runs<u32>,
    /// From decoding to showing; empty: none.
    pub(crate) shifts: Runs<i32>,
    pub(crate) sizes: Runs<u32>,
    pub(crate) chunks: Vec<Chunk>,
    /// Numbers, from 1, of the samples that can be decoded by themselves; `None`: all.
    pub(crate) sync: Option<Vec<u32>>,
    /// Sample groups: descriptions as they stand (`sgpd`), members (`sbgp`) as runs.
    pub(crate) groups: Vec<Vec<u8>>,
    pub(crate) members: Vec<(Vec<u8>, Runs<u32>)>,
}

impl Table {
    /// Reads `stbl`.
    pub(crate) fn parse(stbl: &[u8]) -> Result<Self> {
        let mut table = Self::default();
        let (mut spread, mut offsets) = (Vec::new(), Vec::new());
        for inner in Boxes::new(*b"stbl", stbl) {
            let (kind, body) = inner?;
            let mut fields = Fields::new(kind, body);
            match &kind {
                b"stts" => table.times = runs(&mut fields, Fields::u32)?,
                b"ctts" => table.shifts = runs(&mut fields, Fields::i32)?,
                b"stsz" => table.sizes = sizes(&mut fields)?,
                b"stz2" => table.sizes = small_sizes(&mut fields)?,
                b"stsc" => spread = list(&mut fields, 12, |f| Ok((f.u32()?, f.u32()?, f.u32()?)))?,
                b"stco" => offsets = list(&mut fields, 4, |f| f.u32().map(u64::from))?,
                b"co64" => offsets = list(&mut fields, 8, Fields::u64)?,
                b"stss" => table.sync = Some(list(&mut fields, 4, Fields::u32)?),
                b"sgpd" => table.groups.push(body.to_vec()),
                b"sbgp" => table.members.push(members(&mut fields)?),
                _ => {}
            }
        }
        table.chunks = chunks(&spread, &offsets, total(&table.sizes))?;
        table.settle()?;
        Ok(table)
    }

    pub(crate) fn samples(&self) -> u64 {
        total(&self.sizes)
    }

    /// Makes times and shifts as long as there are samples: the last run is held.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let samples = self.samples();
        fit(&mut self.times, samples);
        if total(&self.times) < samples {
            return Err(Error::mp4("it has frames and no times for them (stts)"));
        }
        if !self.shifts.is_empty() {
            fit(&mut self.shifts, samples);
        }
        Ok(())
    }
}

fn fit<T>(runs: &mut Runs<T>, samples: u64) {
    let mut left = samples;
    runs.retain_mut(|(count, _)| {
        *count = u64::from(*count).min(left) as u32;
        left -= u64::from(*count);
        *count > 0
    });
    if let Some((count, _)) = runs.last_mut() {
        *count = (u64::from(*count) + left).min(u64::from(u32::MAX)) as u32;
    }
}

fn list<'a, T>(
    fields: &mut Fields<'a>,
    bytes: usize,
    entry: impl Fn(&mut Fields<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    fields.full()?;
    let count = fields.count(bytes)?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(entry(fields)?);
    }
    Ok(all)
}

fn runs<'a, T: PartialEq>(
    fields: &mut Fields<'a>,
    value: impl Fn(&mut Fields<'a>) -> Result<T>,
) -> Result<Runs<T>> {
    list(fields, 8, |f| Ok((f.u32()?, value(f)?)))
}

fn sizes(fields: &mut Fields<'_>) -> Result<Runs<u32>> {
    fields.full()?;
    let same = fields.u32()?;
    if same != 0 {
        let count = fields.u32()?;
        return Ok(if count == 0 { Vec::new() } else { vec![(count, same)] });
    }
    let count = fields.count(4)?;
    let mut runs = Vec::new();
    for _ in 0..count {
        extend(&mut runs, 1, fields.u32()?);
    }
    Ok(runs)
}

fn small_sizes(fields: &mut Fields<'_>) -> Result<Runs<u32>> {
    fields.full()?;
    fields.skip(3)?;
    let width = fields.u8()?;
    let mut runs = Vec::new();
    match width {
        8 => {
            for _ in 0..fields.count(1)? {
                extend(&mut runs, 1, u32::from(fields.u8()?));
            }
        }
        16 => {
            for _ in 0..fields.count(2)? {
                extend(&mut runs, 1, u32::from(fields.u16()?));
            }
        }
        _ => return Err(fields.bad("packs sizes in 4 bits, which is not read")),
    }
    Ok(runs)
}

fn members(fields: &mut Fields<'_>) -> Result<(Vec<u8>, Runs<u32>)> {
    let mut head = Fields::new(*b"sbgp", fields.rest());
    let (version, _) = head.full()?;
    let bytes = if version == 0 { 8 } else { 12 };
    let head = fields.take(bytes)?.to_vec();
    let count = fields.count(8)?;
    let mut runs = Vec::with_capacity(count);
    for _ in 0..count {
        runs.push((fields.u32()?, fields.u32()?));
    }
    Ok((head, runs))
}

/// Brings the runs of `stsc` and the offsets of `stco` together.
fn chunks(spread: &[(u32, u32, u32)], offsets: &[u64], samples: u64) -> Result<Vec<Chunk>> {
    let bad = |what: &str| Error::mp4(format!("its chunks {what} (stsc)"));
    let mut all = Vec::with_capacity(offsets.len());
    let mut left = samples;
    let mut runs = spread.iter().peekable();
    let mut now = None;
    for (number, offset) in (1_u32..).zip(offsets) {
        if let Some((_, samples, description)) = runs.next_if(|(first, ..)| *first == number) {
            now = Some((*samples, *description));
        }
        if runs.peek().is_some_and(|(first, ..)| *first <= number) {
            return Err(bad("are out of order"));
        }
        let (samples, description) = now.ok_or_else(|| bad("have no first"))?;
        let samples = u64::from(samples).min(left) as u32;
        left -= u64::from(samples);
        if samples > 0 {
            all.push(Chunk { offset: *offset, samples, description });
        }
    }
    if left > 0 { Err(bad("hold fewer frames than it has")) } else { Ok(all) }
}

/// Refuses more samples than are ever laid out one by one, or than `length` bytes can hold.
pub(crate) fn check_count(samples: u64, length: u64) -> Result<()> {
    if samples > length {
        return Err(Error::mp4(format!("it states {samples} frames and has {length} bytes")));
    }
    bounded("Number of frames of the clip", samples, limits::CLIP_SAMPLES as u64, SPLIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_take_the_samples_that_stsc_gives_them() {
        let found = chunks(&[(1, 2, 1), (3, 1, 2)], &[10, 20, 30, 40], 6).unwrap();
        let counts: Vec<_> = found.iter().map(|c| (c.offset, c.samples, c.description)).collect();
        assert_eq!(counts, [(10, 2, 1), (20, 2, 1), (30, 1, 2), (40, 1, 2)]);
        assert!(chunks(&[(1, 2, 1)], &[10], 3).is_err(), "a sample without a chunk");
        assert!(chunks(&[(2, 2, 1)], &[10, 20], 2).is_err(), "a chunk before the first run");
        assert!(chunks(&[(1, 1, 1), (1, 2, 1)], &[10, 20], 2).is_err(), "runs out of order");
    }

    #[test]
    fn times_are_held_to_the_last_sample_and_cut_after_it() {
        let mut table =
            Table { sizes: vec![(5, 1)], times: vec![(2, 7), (1, 9)], ..Table::default() };
        table.settle().unwrap();
        assert_eq!(each(&table.times).collect::<Vec<_>>(), [7, 7, 9, 9, 9]);
        table.sizes = vec![(1, 1)];
        table.settle().unwrap();
        assert_eq!(table.times, [(1, 7)]);
        table.times.clear();
        assert!(table.settle().is_err());
    }
}
