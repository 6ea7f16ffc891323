//! Sound tracks as they travel on: samples untouched, tables whole or cut to a part.

use super::movie::{Edit, Movie, Track, Window, rescale};
use super::reader::check_sound;
use super::table::{Chunk, Runs, Table, extend};
use crate::errors::{Error, Result};

/// A sound track of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SoundTrack {
    pub(crate) track: Track,
    /// Bytes of each chunk.
    pub(crate) bytes: Vec<u64>,
    /// Ticks of all samples.
    pub(crate) ticks: u64,
}

/// A part of the clip, in ticks of `timescale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: i64,
    pub(crate) end: Option<i64>,
    pub(crate) timescale: u32,
}

impl SoundTrack {
    /// Takes a track over; its edits are in ticks of `scale` then. `None` when no sound of it is
    /// in the part. `length`: of the input file.
    pub(crate) fn take(
        mut track: Track,
        movie: &Movie,
        part: Option<Part>,
        scale: u32,
        length: u64,
    ) -> Result<Option<Self>> {
        check_sound(&track)?;
        if track.table.samples() == 0 {
            return Ok(None);
        }
        if let Some(part) = part {
            if !cut(&mut track, movie, part, scale)? {
                return Ok(None);
            }
        } else {
            for edit in &mut track.edits {
                edit.duration = rescale(edit.duration, scale, movie.timescale)? as u64;
            }
        }
        if track.table.start > 0 {
            // Fragments that begin late: sound begins late.
            let delay = rescale(track.table.start, scale, track.timescale)? as u64;
            let whole = Edit { duration: 0, media: 0, speed: 1 << 16 };
            if track.edits.is_empty() {
                track.edits.push(whole);
            }
            track.edits.insert(0, Edit { duration: delay, media: -1, speed: 1 << 16 });
            track.table.start = 0;
        }
        let ticks = ticks(&track.table.times);
        let whole = rescale(ticks, scale, track.timescale)? as u64;
        for edit in track.edits.iter_mut().filter(|edit| edit.media >= 0 && edit.duration == 0) {
            let before = rescale(edit.media as u64, scale, track.timescale)? as u64;
            edit.duration = whole.saturating_sub(before);
        }
        let bytes = chunk_bytes(&track.table);
        for (chunk, bytes) in track.table.chunks.iter().zip(&bytes) {
            if chunk.offset.checked_add(*bytes).is_none_or(|end| end > length) {
                return Err(Error::Truncated {
                    format: "MP4",
                    what: "some of its sound reaches beyond it".to_owned(),
                });
            }
        }
        // Samples that overlap would make the output larger than the input without end.
        if bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)) > length {
            return Err(Error::mp4("some of its sound stands on other sound"));
        }
        Ok(Some(Self { track, bytes, ticks }))
    }
}

fn ticks(times: &Runs<u32>) -> u64 {
    times.iter().fold(0, |sum: u64, (n, t)| sum.saturating_add(u64::from(*n) * u64::from(*t)))
}

/// Bytes of each chunk.
fn chunk_bytes(table: &Table) -> Vec<u64> {
    let mut sizes = Cursor::new(&table.sizes);
    table.chunks.iter().map(|chunk| sizes.sum(chunk.samples)).collect()
}

/// Goes along runs of values.
struct Cursor<'a> {
    runs: std::slice::Iter<'a, (u32, u32)>,
    now: (u32, u32),
}

impl<'a> Cursor<'a> {
    fn new(runs: &'a [(u32, u32)]) -> Self {
        Self { runs: runs.iter(), now: (0, 0) }
    }

    /// Sum of the next `count` values.
    fn sum(&mut self, mut count: u32) -> u64 {
        let mut sum = 0_u64;
        while count > 0 {
            if self.now.0 == 0 {
                let Some(next) = self.runs.next() else { break };
                self.now = *next;
                continue;
            }
            let taken = count.min(self.now.0);
            sum = sum.saturating_add(u64::from(taken) * u64::from(self.now.1));
            self.now.0 -= taken;
            count -= taken;
        }
        sum
    }
}

/// Cuts a track to a part. False when nothing is left.
fn cut(track: &mut Track, movie: &Movie, part: Part, scale: u32) -> Result<bool> {
    let window = Window::of(track, movie)?;
    let of_track = |ticks: i64| rescale(ticks.max(0) as u64, track.timescale, part.timescale);
    let all = i64::try_from(ticks(&track.table.times)).unwrap_or(i64::MAX);
    let begin = i64::try_from(track.table.start).unwrap_or(i64::MAX);
    let stop = window.until.unwrap_or(i64::MAX).min(begin.saturating_add(all));
    // Where the part begins and ends in the track's own time.
    let own = |shown: i64| shown.saturating_sub(window.delay).saturating_add(window.from);
    let start = own(of_track(part.start)?);
    let end = part.end.map(of_track).transpose()?.map_or(stop, |end| own(end).min(stop));
    let from = start.max(window.from).max(begin);
    if from >= end {
        return Ok(false);
    }
    let (first, at) = sample_at(&track.table.times, (from - begin) as u64);
    let (last, _) = sample_at(&track.table.times, (end - begin - 1) as u64);
    track.table = part_of(&track.table, first, last + 1);
    let ticks = |ticks: i64| rescale(ticks as u64, scale, track.timescale).map(|t| t as u64);
    let media = from - begin - at as i64;
    let mut edits = Vec::new();
    if from > start {
        edits.push(Edit { duration: ticks(from - start)?, media: -1, speed: 1 << 16 });
    }
    edits.push(Edit { duration: ticks(end - from)?, media, speed: 1 << 16 });
    track.edits = edits;
    Ok(true)
}

/// The sample that is heard at a time, and when it begins.
fn sample_at(times: &Runs<u32>, time: u64) -> (u64, u64) {
    let (mut number, mut at) = (0_u64, 0_u64);
    for (count, ticks) in times {
        let whole = u64::from(*count) * u64::from(*ticks);
        if *ticks > 0 && time < at.saturating_add(whole) {
            let steps = (time - at) / u64::from(*ticks);
            return (number + steps, at + steps * u64::from(*ticks));
        }
        number += u64::from(*count);
        at = at.saturating_add(whole);
    }
    (number.saturating_sub(1), at)
}

/// Samples `from..to` of a table, numbered from 0.
fn part_of(table: &Table, from: u64, to: u64) -> Table {
    let mut chunks = Vec::new();
    let mut sizes = Cursor::new(&table.sizes);
    let mut number = 0_u64;
    for chunk in &table.chunks {
        let next = number + u64::from(chunk.samples);
        let (first, last) = (from.clamp(number, next), to.clamp(number, next));
        let before = sizes.sum((first - number) as u32);
        sizes.sum((next - first) as u32);
        if last > first {
            let samples = (last - first) as u32;
            chunks.push(Chunk { offset: chunk.offset.saturating_add(before), samples, ..*chunk });
        }
        number = next;
    }
    let sync = table.sync.as_ref().map(|sync| {
        let inside = sync.iter().filter(|n| (from + 1..=to).contains(&u64::from(**n)));
        inside.map(|n| n - from as u32).collect()
    });
    let members = table.members.iter();
    Table {
        start: 0,
        times: slice(&table.times, from, to),
        shifts: slice(&table.shifts, from, to),
        sizes: slice(&table.sizes, from, to),
        chunks,
        sync,
        groups: table.groups.clone(),
        members: members.map(|(head, runs)| (head.clone(), slice(runs, from, to))).collect(),
    }
}

fn slice<T: Copy + PartialEq>(runs: &Runs<T>, from: u64, to: u64) -> Runs<T> {
    let mut out = Vec::new();
    let mut number = 0_u64;
    for (count, value) in runs {
        let next = number + u64::from(*count);
        let inside = to.clamp(number, next) - from.clamp(number, next).min(to.clamp(number, next));
        extend(&mut out, inside as u32, *value);
        number = next;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mp4::movie::Media;

    fn track() -> Track {
        Track {
            id: 2,
            media: Media::Sound,
            flags: 1,
            alternate: 0,
            volume: 256,
            matrix: [0; 9],
            timescale: 48_000,
            language: 0,
            edits: vec![Edit { duration: 10_000, media: 1024, speed: 1 << 16 }],
            descriptions: b"\0\0\0\0\0\0\0\x01\0\0\0\x08mp4a".to_vec(),
            table: Table {
                times: vec![(470, 1024)],
                sizes: vec![(100, 3), (370, 5)],
                chunks: (0..47)
                    .map(|n| Chunk { offset: 1000 * n, samples: 10, description: 1 })
                    .collect(),
                ..Table::default()
            },
        }
    }

    fn movie() -> Movie {
        Movie { timescale: 1000, fragmented: false, tracks: Vec::new(), others: 0 }
    }

    #[test]
    fn a_whole_track_keeps_its_table_and_its_edits_in_the_new_scale() {
        let whole = SoundTrack::take(track(), &movie(), None, 30_000, 1 << 20).unwrap().unwrap();
        assert_eq!(whole.track.table, track().table);
        assert_eq!(whole.track.edits, [Edit { duration: 300_000, media: 1024, speed: 1 << 16 }]);
        assert_eq!(whole.bytes[..2], [30, 30]);
        assert_eq!(whole.bytes[10..12], [50, 50]);
        assert!(SoundTrack::take(track(), &movie(), None, 30_000, 46_049).is_err(), "cut file");
    }

    #[test]
    fn a_part_holds_the_samples_that_are_heard_in_it_and_no_others() {
        let part = Part { start: 30, end: Some(60), timescale: 30 };
        let cut = SoundTrack::take(track(), &movie(), Some(part), 30, 1 << 20).unwrap().unwrap();
        // Heard from tick 48,000 on: sample 47 (begins at 48,128 - 1,024 + 1,024 of its own time).
        let start = 48_000 + 1024;
        let first = start / 1024;
        let last = 97_023 / 1024;
        assert_eq!(cut.track.table.samples(), last - first + 1);
        let edit = cut.track.edits[..].first().copied().unwrap();
        assert_eq!(
            edit,
            Edit { duration: 30, media: (start - first * 1024) as i64, speed: 1 << 16 }
        );
        // Sample 47 stands behind seven samples of 3 bytes in the fifth chunk.
        assert_eq!(cut.track.table.chunks[0], Chunk { offset: 4021, samples: 3, description: 1 });
        let nothing = Part { start: 300, end: None, timescale: 30 };
        assert!(SoundTrack::take(track(), &movie(), Some(nothing), 30, 1 << 20).unwrap().is_none());
    }
}
