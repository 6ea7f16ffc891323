//! Samples one by one, in decoding order, and the order in which they are shown.

use super::movie::{Track, Window};
use super::table::{check_count, each};
use crate::errors::{Error, Result};

/// One coded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) sync: bool,
    /// Whether it is ever shown.
    pub(crate) shown: bool,
    pub(crate) pts: i64,
    /// To the next frame that is shown.
    pub(crate) duration: u32,
}

/// All coded frames of a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) samples: Vec<Sample>,
    /// Numbers of samples, from 0, as they are shown.
    pub(crate) shown: Vec<u32>,
}

impl Index {
    /// `length`: of the file; every sample lies in it.
    pub(crate) fn of(track: &Track, window: Window, length: u64) -> Result<Self> {
        let table = &track.table;
        let count = table.samples();
        check_count(count, length)?;
        let mut samples: Vec<Sample> = Vec::with_capacity(count as usize);
        let mut sizes = each(&table.sizes);
        let mut times = each(&table.times);
        let mut shifts = each(&table.shifts);
        let range = || Error::mp4("a time is out of range");
        let mut time = i64::try_from(table.start).map_err(|_| range())?;
        for chunk in &table.chunks {
            let mut offset = chunk.offset;
            for _ in 0..chunk.samples {
                let (Some(size), Some(duration)) = (sizes.next(), times.next()) else { break };
                let end = offset.checked_add(u64::from(size)).filter(|end| *end <= length);
                let end = end.ok_or_else(|| Error::Truncated {
                    format: "MP4",
                    what: format!("frame {} of {count} reaches beyond it", samples.len()),
                })?;
                let shown = time.checked_add(i64::from(shifts.next().unwrap_or(0)));
                let shown = shown.ok_or_else(range)?;
                let place = window.place(shown).filter(|_| size > 0);
                let mut lasts = duration;
                if let Some(until) = window.until {
                    // Only a cut that the rounding of the edit can't explain is one.
                    let over = shown.saturating_add(i64::from(duration)).saturating_sub(until);
                    if over > window.slack {
                        lasts = u32::try_from(until.saturating_sub(shown)).unwrap_or(duration);
                    }
                }
                samples.push(Sample {
                    offset,
                    size,
                    sync: table.sync.is_none(),
                    shown: place.is_some(),
                    pts: place.unwrap_or(i64::MIN),
                    duration: lasts.min(duration),
                });
                offset = end;
                time = time.checked_add(i64::from(duration)).ok_or_else(range)?;
            }
        }
        for number in table.sync.iter().flatten() {
            if let Some(sample) = samples.get_mut((*number as usize).wrapping_sub(1)) {
                sample.sync = true;
            }
        }
        let numbers = (0_u32..).zip(&samples).filter(|(_, sample)| sample.shown);
        let mut shown: Vec<u32> = numbers.map(|(number, _)| number).collect();
        shown.sort_by_key(|number| (samples[*number as usize].pts, *number));
        for pair in shown.windows(2) {
            let next = samples[pair[1] as usize].pts;
            let sample = &mut samples[pair[0] as usize];
            sample.duration = u32::try_from(next - sample.pts).map_err(|_| range())?;
        }
        Ok(Self { samples, shown })
    }

    /// Ticks from the first frame's begin to the last one's end.
    pub(crate) fn duration(&self) -> u64 {
        let sample = |number: Option<&u32>| number.map(|number| self.samples[*number as usize]);
        let (first, last) = (sample(self.shown.first()), sample(self.shown.last()));
        first
            .zip(last)
            .map_or(0, |(first, last)| (last.pts - first.pts) as u64 + u64::from(last.duration))
    }
}
