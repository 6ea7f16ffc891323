//! Frames of an MP4 file, in the order they are shown.

use std::io::{Seek, SeekFrom};

use mien_base::limits;
use mien_pixels::i420::I420;

use super::boxes::name;
use super::index::{Index, Sample};
use super::movie::{Media, Movie, Track, Window};
use super::picture::{self, Picture};
use crate::clip::{ClipInfo, Format, FrameSource, ReadSeek, Rotation, Sound, Timing};
use crate::errors::{CONVERT, Error, Result};
use crate::h264::decode::{Decoded, Decoder};
use crate::h264::sps;
use crate::h264::units::{self, Units};

/// Sync samples whose quantiser is looked at.
const LOOKED_AT: usize = 8;

/// Decodes the pictures of a file.
pub struct Reader {
    file: Box<dyn ReadSeek + Send>,
    info: ClipInfo,
    index: Index,
    decoder: Decoder,
    /// Bytes of the length in front of each unit.
    length: usize,
    /// Next sample to decode, next place among those that are shown.
    sample: usize,
    place: usize,
    /// Frames before this time are decoded and not kept.
    wanted: i64,
    held: Vec<(u32, I420)>,
    free: Vec<I420>,
    buffer: Vec<u8>,
    over: bool,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("info", &self.info).finish_non_exhaustive()
    }
}

/// The track whose pictures are read: the first that is enabled, else the first.
pub(crate) fn pictures(movie: &Movie) -> Result<&Track> {
    let of = |track: &&Track| track.media == Media::Video && track.table.samples() > 0;
    let mut tracks = movie.tracks.iter().filter(of);
    let enabled = tracks.clone().find(|track| track.flags & 1 == 1);
    enabled.or_else(|| tracks.next()).ok_or_else(|| Error::foreign("MP4 without pictures"))
}

pub(crate) fn length_of<R: Seek + ?Sized>(file: &mut R) -> Result<u64> {
    let length = file.seek(SeekFrom::End(0)).map_err(Error::read)?;
    crate::errors::bounded("Size of the clip", length, limits::CLIP_FILE, super::boxes::SPLIT)?;
    Ok(length)
}

impl Reader {
    /// Reads the index.
    ///
    /// # Errors
    /// When it is damaged, or holds what is not read.
    pub fn new(mut file: Box<dyn ReadSeek + Send>) -> Result<Self> {
        let length = length_of(&mut *file)?;
        let movie = Movie::read(&mut *file, 0, length)?;
        let track = pictures(&movie)?;
        let window = Window::of(track, &movie)?;
        let index = Index::of(track, window, length)?;
        if index.shown.is_empty() {
            return Err(Error::foreign("MP4 none of whose pictures is shown"));
        }
        let mut buffer = Vec::new();
        let first = index.samples[0];
        let picture = picture::read(track, || {
            load(&mut *file, first, &mut buffer)?;
            Ok(buffer.clone())
        })?;
        let info = info(&movie, track, &picture, &index);
        let length = picture.config.length;
        // Room for the largest frame, so that none asks for more on the way.
        let most = index.samples.iter().map(|s| s.size).max().unwrap_or(0) as usize;
        let most = most.min(limits::CLIP_UNIT);
        buffer.reserve(most.saturating_sub(buffer.len()));
        let decoder = Decoder::new(picture.config.clone(), picture.size, info.colour, most)?;
        let (held, free, over) = (Vec::new(), Vec::new(), false);
        let (sample, place, wanted) = (0, 0, i64::MIN);
        let mut reader = Self {
            file,
            info,
            index,
            decoder,
            length,
            sample,
            place,
            wanted,
            held,
            free,
            buffer,
            over,
        };
        // The decoder takes nothing before an IDR. Clips that were cut without one have none.
        let begin = reader.index.samples.iter().position(|sample| sample.size > 0).unwrap_or(0);
        if !reader.is_idr(begin)? {
            return Err(Error::foreign("H.264 that does not begin with an IDR picture"));
        }
        reader.info.quantiser = reader.quantiser(&picture);
        Ok(reader)
    }

    /// Mean quantiser of some IDR pictures; what can't be read is left out.
    fn quantiser(&mut self, picture: &Picture) -> Option<u8> {
        let pps = sps::parse_pps(picture.config.pps.first()?)?;
        let sync: Vec<usize> =
            (0..self.index.samples.len()).filter(|at| self.index.samples[*at].sync).collect();
        let (mut sum, mut count) = (0, 0);
        for part in 0..LOOKED_AT.min(sync.len()) {
            let at = sync[part * sync.len() / LOOKED_AT.min(sync.len())];
            load(&mut *self.file, self.index.samples[at], &mut self.buffer).ok()?;
            let found = Units::new(&self.buffer, self.length)
                .filter_map(Result::ok)
                .find_map(|unit| sps::idr_quantiser(unit, &picture.sps, pps));
            if let Some(found) = found {
                sum += u32::from(found);
                count += 1;
            }
        }
        (count > 0).then(|| ((sum + count / 2) / count) as u8)
    }

    fn read(&mut self, into: &mut I420) -> Result<Option<Timing>> {
        let Some(wanted) = self.index.shown.get(self.place).copied() else { return Ok(None) };
        let Sample { pts, duration, .. } = self.index.samples[wanted as usize];
        self.place += 1;
        let timing = Some(Timing { pts, duration });
        if let Some(at) = self.held.iter().position(|(number, _)| *number == wanted) {
            let (_, mut frame) = self.held.swap_remove(at);
            std::mem::swap(&mut frame, into);
            self.free.push(frame);
            return Ok(timing);
        }
        while let Some(sample) = self.index.samples.get(self.sample).copied() {
            let number = self.sample as u32;
            self.sample += 1;
            if sample.size == 0 {
                continue;
            }
            load(&mut *self.file, sample, &mut self.buffer)?;
            let keep = sample.shown && sample.pts >= self.wanted;
            if number == wanted {
                self.decode(number, Some(into))?;
                return Ok(timing);
            } else if keep {
                if self.held.len() == limits::CLIP_HELD {
                    return Err(Error::h264("more frames wait to be shown than it allows"));
                }
                let mut frame = self.free.pop().unwrap_or_default();
                self.decode(number, Some(&mut frame))?;
                self.held.push((number, frame));
            } else if let Err(e) = self.decode(number, None) {
                // What is never shown may lean on frames that were cut off.
                if !matches!(e, Error::Decode { .. }) || sample.shown {
                    return Err(e);
                }
            }
        }
        Err(Error::Decode { frame: u64::from(wanted), what: "it is not where it should be".into() })
    }

    fn decode(&mut self, number: u32, into: Option<&mut I420>) -> Result<()> {
        match self.decoder.decode(&self.buffer, u64::from(number), into)? {
            Decoded::Picture => Ok(()),
            Decoded::Nothing => {
                Err(Error::Decode { frame: u64::from(number), what: "it holds no picture".into() })
            }
        }
    }

    fn is_idr(&mut self, at: usize) -> Result<bool> {
        load(&mut *self.file, self.index.samples[at], &mut self.buffer)?;
        for unit in Units::new(&self.buffer, self.length) {
            match units::kind(unit?) {
                units::IDR => return Ok(true),
                units::SLICE => return Ok(false),
                _ => {}
            }
        }
        Ok(false)
    }
}

impl FrameSource for Reader {
    fn info(&self) -> &ClipInfo {
        &self.info
    }

    fn next(&mut self, into: &mut I420) -> Result<Option<Timing>> {
        if self.over {
            return Ok(None);
        }
        let read = self.read(into);
        self.over = read.is_err();
        read
    }

    fn seek(&mut self, pts: i64) -> Result<()> {
        let Index { samples, shown } = &self.index;
        let place = shown.partition_point(|number| samples[*number as usize].pts < pts);
        let target =
            shown.get(place).map(|number| (*number as usize, samples[*number as usize].pts));
        self.over = false;
        let Some((target, pts)) = target else {
            self.place = place;
            return Ok(());
        };
        let mut start = 0;
        for at in (0..=target).rev() {
            let Sample { sync, shown, pts: own, size, .. } = self.index.samples[at];
            // Pictures after an IDR never lean on those before it, nor are shown before it.
            if sync && size > 0 && (!shown || own <= pts) && self.is_idr(at)? {
                start = at;
                break;
            }
        }
        // Forwards within what comes anyway there is no need to start again.
        if place < self.place || start >= self.sample {
            self.decoder.restart()?;
            self.sample = start;
            self.free.extend(self.held.drain(..).map(|(_, frame)| frame));
        }
        self.place = place;
        self.wanted = pts;
        let samples = &self.index.samples;
        while let Some(at) =
            self.held.iter().position(|(number, _)| samples[*number as usize].pts < pts)
        {
            let (_, frame) = self.held.swap_remove(at);
            self.free.push(frame);
        }
        Ok(())
    }
}

fn load(file: &mut (dyn ReadSeek + Send), sample: Sample, buffer: &mut Vec<u8>) -> Result<()> {
    units::check_size(sample.size as usize)?;
    file.seek(SeekFrom::Start(sample.offset)).map_err(Error::read)?;
    buffer.resize(sample.size as usize, 0);
    file.read_exact(buffer).map_err(Error::read)
}

fn info(movie: &Movie, track: &Track, picture: &Picture, index: &Index) -> ClipInfo {
    let frames = index.shown.len() as u64;
    let duration = index.duration();
    let [a, b, ..] = track.matrix;
    let rotation = match (a.unsigned_abs() >= b.unsigned_abs(), a < 0, b < 0) {
        (true, true, _) => Rotation::Half,
        (true, false, _) => Rotation::None,
        (false, _, false) => Rotation::Right,
        (false, _, true) => Rotation::Left,
    };
    let sound = movie.tracks.iter().filter(|track| track.media == Media::Sound);
    let sound: Vec<_> = sound
        .map(|track| Sound {
            codec: track.codec(),
            timescale: track.timescale,
            samples: track.table.samples(),
        })
        .collect();
    let other = movie.tracks.len() - sound.len() - 1;
    ClipInfo {
        format: Format::Mp4,
        size: picture.size,
        rotation,
        matrix: track.matrix,
        timescale: track.timescale,
        frames: Some(frames),
        duration: Some(duration),
        rate: rate(frames, track.timescale, duration),
        colour: picture.tags.colour(picture.size),
        tags: picture.tags,
        sample_aspect: picture.aspect,
        sound,
        dropped: movie.others + other as u32,
        quantiser: None,
    }
}

/// Frames a second, reduced.
fn rate(frames: u64, timescale: u32, duration: u64) -> (u32, u32) {
    let (mut a, mut b) = (u128::from(frames) * u128::from(timescale), u128::from(duration.max(1)));
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a, b) = (a / x.max(1), b / x.max(1));
    while a > u128::from(u32::MAX) || b > u128::from(u32::MAX) {
        (a, b) = (a >> 1, (b >> 1).max(1));
    }
    (a.max(1) as u32, b as u32)
}

/// Whether first bytes are those of an MP4 or QuickTime file.
#[must_use]
pub fn is_one(head: &[u8]) -> bool {
    let kind = head.get(4..8).unwrap_or_default();
    [b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot", b"moof", b"styp"]
        .iter()
        .any(|known| kind == *known)
}

/// Refuses sound that can't travel on.
pub(crate) fn check_sound(track: &Track) -> Result<()> {
    for (kind, _) in track.entries()? {
        if &kind == b"enca" || &kind == b"drms" {
            let what = format!("Encrypted sound ({})", name(kind));
            return Err(Error::Foreign { what, done: "read", advice: CONVERT });
        }
    }
    Ok(())
}
