//! A whole file: `moov`, and fragments (`moof`), each of which adds samples to its tracks.

use std::io::{Read, Seek};

use mien_base::limits;

use super::boxes::{Boxes, Fields, Walk, load};
use super::movie::{Media, Movie, Track};
use super::table::{Chunk, Table, check_count, extend, total};
use crate::errors::{Error, Result, bounded};

/// What a sample is where its fragment does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Defaults {
    description: u32,
    duration: u32,
    size: u32,
    flags: u32,
}

/// What is carried from fragment to fragment.
#[derive(Debug, Default)]
struct State {
    defaults: Vec<(u32, Defaults)>,
    /// Decoding time after the last sample, by track.
    ends: Vec<(u32, u64)>,
}

impl State {
    fn end(&mut self, track: &Track) -> &mut u64 {
        let at = self.ends.iter().position(|(id, _)| *id == track.id).unwrap_or_else(|| {
            let table = &track.table;
            let times = table.times.iter().map(|(n, t)| u64::from(*n) * u64::from(*t));
            let end = times.fold(table.start, u64::saturating_add);
            self.ends.push((track.id, end));
            self.ends.len() - 1
        });
        &mut self.ends[at].1
    }
}

/// A sample that can't be decoded by itself.
const DEPENDS: u32 = 0x1_0000;

impl Movie {
    /// Reads a part of a file.
    pub(crate) fn read<R: Read + Seek + ?Sized>(
        file: &mut R,
        start: u64,
        end: u64,
    ) -> Result<Self> {
        let mut walk = Walk::new(start, end);
        let mut movie = None;
        let mut fragments = State::default();
        let mut data = false;
        while let Some(top) = walk.next(file)? {
            match &top.kind {
                b"moov" if movie.is_none() => {
                    let body = load(file, top)?;
                    fragments.defaults = defaults(&body)?;
                    movie = Some(Self::parse(&body)?);
                }
                b"moof" => {
                    let body = load(file, top)?;
                    let movie = movie.as_mut().ok_or_else(|| {
                        Error::mp4("a fragment (moof) stands before the index (moov)")
                    })?;
                    movie.fragmented = true;
                    add(&mut movie.tracks, &mut fragments, &body, top.start)?;
                }
                b"mdat" => data = true,
                _ => {}
            }
        }
        let mut movie = movie.ok_or_else(|| missing(data))?;
        movie.tracks.iter_mut().try_for_each(|track| {
            if track.table.samples() == 0 { Ok(()) } else { track.table.settle() }
        })?;
        Ok(movie)
    }
}

fn missing(data: bool) -> Error {
    let what = if data {
        "it has frames and no index (moov), as when a recording was not finished"
    } else {
        "it has no index (moov)"
    };
    Error::Truncated { format: "MP4", what: what.to_owned() }
}

/// What fragments take from `mvex`, by track.
fn defaults(moov: &[u8]) -> Result<Vec<(u32, Defaults)>> {
    let mut all = Vec::new();
    let Some(mvex) = Boxes::new(*b"moov", moov).find(*b"mvex")? else { return Ok(all) };
    for inner in Boxes::new(*b"mvex", mvex) {
        let (kind, body) = inner?;
        if &kind == b"trex" && all.len() < limits::CLIP_TRACKS {
            let mut f = Fields::new(kind, body);
            f.full()?;
            let id = f.u32()?;
            let (description, duration, size, flags) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
            all.push((id, Defaults { description, duration, size, flags }));
        }
    }
    Ok(all)
}

/// Adds one fragment. `start`: where it stands in the file.
fn add(tracks: &mut [Track], state: &mut State, moof: &[u8], start: u64) -> Result<()> {
    let mut before = start;
    for inner in Boxes::new(*b"moof", moof) {
        let (kind, traf) = inner?;
        if &kind != b"traf" {
            continue;
        }
        let traf = Boxes::new(kind, traf);
        let mut f = Fields::new(*b"tfhd", traf.clone().need(*b"tfhd")?);
        let (_, flags) = f.full()?;
        let id = f.u32()?;
        let Some(track) = tracks.iter_mut().find(|track| track.id == id) else { continue };
        let found = state.defaults.iter().find(|(of, _)| *of == id);
        let mut defaults = found.map(|(_, defaults)| *defaults).unwrap_or_default();
        let mut at = if flags & 0x1 != 0 {
            f.u64()?
        } else if flags & 0x2_0000 != 0 {
            start
        } else {
            before
        };
        let base = at;
        for (flag, value) in [
            (0x2, &mut defaults.description),
            (0x8, &mut defaults.duration),
            (0x10, &mut defaults.size),
            (0x20, &mut defaults.flags),
        ] {
            if flags & flag != 0 {
                *value = f.u32()?;
            }
        }
        defaults.description = defaults.description.max(1);
        let end = state.end(track);
        if let Some(tfdt) = traf.clone().find(*b"tfdt")? {
            let mut f = Fields::new(*b"tfdt", tfdt);
            let (version, _) = f.full()?;
            let time = f.wide(version)?;
            move_to(&mut track.table, *end, time)?;
            *end = time;
        }
        for inner in traf {
            let (kind, body) = inner?;
            if &kind == b"trun" {
                let run = Run { base, at, defaults };
                let (next, ticks) = run.add(track, body)?;
                at = next;
                *end = end.saturating_add(ticks);
            }
        }
        before = at;
    }
    Ok(())
}

/// Lets the last sample last until `time`.
pub(crate) fn move_to(table: &mut Table, end: u64, time: u64) -> Result<()> {
    if total(&table.times) == 0 {
        table.start = time;
        return Ok(());
    }
    if end == time {
        return Ok(());
    }
    let bad = || Error::mp4("its fragments overlap in time (tfdt)");
    let (count, last) = table.times.pop().ok_or_else(bad)?;
    let length = u64::from(last).checked_add(time).and_then(|sum| sum.checked_sub(end));
    let length = length.and_then(|length| u32::try_from(length).ok()).ok_or_else(bad)?;
    extend(&mut table.times, count - 1, last);
    extend(&mut table.times, 1, length);
    Ok(())
}

struct Run {
    base: u64,
    at: u64,
    defaults: Defaults,
}

impl Run {
    /// Adds one `trun`; gives where its data ends, and its ticks.
    fn add(&self, track: &mut Track, body: &[u8]) -> Result<(u64, u64)> {
        let mut f = Fields::new(*b"trun", body);
        let (_, flags) = f.full()?;
        let count = f.u32()?;
        let mut at = self.at;
        if flags & 0x1 != 0 {
            let offset = i64::from(f.i32()?);
            at = self.base.checked_add_signed(offset).ok_or_else(|| f.bad("points nowhere"))?;
        }
        let first = if flags & 0x4 != 0 { Some(f.u32()?) } else { None };
        let fields = [0x100, 0x200, 0x400, 0x800].iter().filter(|bit| flags & **bit != 0).count();
        let table = &mut track.table;
        let samples = table.samples() + u64::from(count);
        let video = track.media == Media::Video;
        if video {
            check_count(samples, u64::MAX)?;
        }
        // Without fields a run is one step, so that a lying count costs nothing.
        let (steps, each) = if fields == 0 && !video { (1, count) } else { (count, 1) };
        if (steps as usize).checked_mul(4 * fields).is_none_or(|n| n > f.rest().len()) {
            return Err(f.bad(&format!("states {count} samples and holds fewer")));
        }
        let chunk = Chunk { offset: at, samples: count, description: self.defaults.description };
        if count > 0 {
            let limit = limits::CLIP_SAMPLES as u64;
            let chunks = table.chunks.len() as u64 + 1;
            bounded("Number of runs of the clip", chunks, limit, super::boxes::SPLIT)?;
            table.chunks.push(chunk);
        }
        let mut ticks = 0_u64;
        let mut number = samples - u64::from(count);
        let shifted = flags & 0x800 != 0 || !table.shifts.is_empty();
        if shifted && table.shifts.is_empty() {
            extend(&mut table.shifts, number as u32, 0);
        }
        for step in 0..steps {
            let mut field = |bit: u32, default: u32| {
                if flags & bit != 0 { f.u32() } else { Ok(default) }
            };
            let duration = field(0x100, self.defaults.duration)?;
            let size = field(0x200, self.defaults.size)?;
            let of_sample = field(0x400, self.defaults.flags)?;
            let shift = field(0x800, 0)? as i32;
            let of_sample = first.filter(|_| step == 0).unwrap_or(of_sample);
            extend(&mut table.times, each, duration);
            extend(&mut table.sizes, each, size);
            if shifted {
                extend(&mut table.shifts, each, shift);
            }
            number += u64::from(each);
            if video {
                let sync = table.sync.get_or_insert_default();
                if of_sample & DEPENDS == 0 {
                    sync.push(number as u32);
                }
            }
            let bytes = u64::from(each) * u64::from(size);
            at = at.checked_add(bytes).ok_or_else(|| f.bad("points nowhere"))?;
            ticks = ticks.saturating_add(u64::from(each) * u64::from(duration));
        }
        Ok((at, ticks))
    }
}
