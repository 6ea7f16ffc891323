//! The index of a file (`moov`): tracks, edit lists.

use mien_base::limits;

use super::boxes::{Boxes, Fields, Kind, REMUX_INDEX, name};
use super::table::Table;
use crate::errors::{CONVERT, Error, REMUX, Result, bounded};

/// What a track carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Video,
    Sound,
}

/// One entry of an edit list, as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edit {
    /// In ticks of the movie.
    pub(crate) duration: u64,
    /// In ticks of the track; -1: nothing is shown.
    pub(crate) media: i64,
    /// Speed, 16.16.
    pub(crate) speed: i32,
}

/// One track of pictures or sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) id: u32,
    pub(crate) media: Media,
    /// `tkhd` flags: 1 enabled, 2 in the movie, 4 in the preview.
    pub(crate) flags: u32,
    pub(crate) alternate: u16,
    pub(crate) volume: u16,
    pub(crate) matrix: [i32; 9],
    pub(crate) timescale: u32,
    pub(crate) language: u16,
    pub(crate) edits: Vec<Edit>,
    /// `stsd` as it stands, without its box.
    pub(crate) descriptions: Vec<u8>,
    pub(crate) table: Table,
}

/// What `moov` says, and what fragments add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Movie {
    pub(crate) timescale: u32,
    pub(crate) fragmented: bool,
    pub(crate) tracks: Vec<Track>,
    /// Tracks that are neither pictures nor sound.
    pub(crate) others: u32,
}

impl Movie {
    /// Reads `moov`.
    pub(crate) fn parse(moov: &[u8]) -> Result<Self> {
        let (mut tracks, mut others, mut all) = (Vec::new(), 0, 0);
        let mut head = Fields::new(*b"mvhd", Boxes::new(*b"moov", moov).need(*b"mvhd")?);
        let (version, _) = head.full()?;
        head.skip(if version == 0 { 8 } else { 16 })?;
        let timescale = scale(&mut head)?;
        for inner in Boxes::new(*b"moov", moov) {
            let (kind, body) = inner?;
            match &kind {
                b"trak" => {
                    all += 1;
                    bounded("Number of tracks", all, limits::CLIP_TRACKS as u64, REMUX_INDEX)?;
                    match Track::parse(body)? {
                        Some(track) => tracks.push(track),
                        None => others += 1,
                    }
                }
                b"cmov" => return Err(Error::foreign("QuickTime with a compressed index")),
                _ => {}
            }
        }
        let fragmented = Boxes::new(*b"moov", moov).find(*b"mvex")?.is_some();
        Ok(Self { timescale, fragmented, tracks, others })
    }
}

fn scale(fields: &mut Fields<'_>) -> Result<u32> {
    match fields.u32()? {
        0 => Err(fields.bad("states no time scale")),
        scale => Ok(scale),
    }
}

impl Track {
    /// `None` for what is neither pictures nor sound.
    fn parse(trak: &[u8]) -> Result<Option<Self>> {
        let inside = Boxes::new(*b"trak", trak);
        let mdia = inside.clone().need(*b"mdia")?;
        let mdia = Boxes::new(*b"mdia", mdia);
        let mut handler = Fields::new(*b"hdlr", mdia.clone().need(*b"hdlr")?);
        handler.full()?;
        handler.skip(4)?;
        let media = match &handler.u32()?.to_be_bytes() {
            b"vide" => Media::Video,
            b"soun" => Media::Sound,
            _ => return Ok(None),
        };
        let mut f = Fields::new(*b"tkhd", inside.clone().need(*b"tkhd")?);
        let (version, flags) = f.full()?;
        f.wide(version)?;
        f.wide(version)?;
        let id = f.u32()?;
        f.u32()?;
        f.wide(version)?;
        f.skip(10)?;
        let (alternate, volume, _) = (f.u16()?, f.u16()?, f.u16()?);
        let mut matrix = [0; 9];
        for value in &mut matrix {
            *value = f.i32()?;
        }
        let mut f = Fields::new(*b"mdhd", mdia.clone().need(*b"mdhd")?);
        let (version, _) = f.full()?;
        f.wide(version)?;
        f.wide(version)?;
        let timescale = scale(&mut f)?;
        f.wide(version)?;
        let language = f.u16()?;
        let minf = Boxes::new(*b"minf", mdia.need(*b"minf")?);
        check_place(minf.clone())?;
        let stbl = minf.need(*b"stbl")?;
        let descriptions = Boxes::new(*b"stbl", stbl).need(*b"stsd")?.to_vec();
        let table = Table::parse(stbl)?;
        let edits = match inside.find(*b"edts")? {
            Some(edts) => match Boxes::new(*b"edts", edts).find(*b"elst")? {
                Some(elst) => edit_list(elst)?,
                None => Vec::new(),
            },
            None => Vec::new(),
        };
        Ok(Some(Self {
            id,
            media,
            flags,
            alternate,
            volume,
            matrix,
            timescale,
            language,
            edits,
            descriptions,
            table,
        }))
    }

    /// Kind and body of each sample description.
    pub(crate) fn entries(&self) -> Result<Vec<(Kind, &[u8])>> {
        let mut f = Fields::new(*b"stsd", &self.descriptions);
        f.full()?;
        let count = f.count(8)?;
        let entries: Result<Vec<_>> = Boxes::new(*b"stsd", f.rest()).take(count).collect();
        entries.and_then(|entries| {
            if entries.is_empty() { Err(f.bad("describes nothing")) } else { Ok(entries) }
        })
    }

    /// Kind of the first sample description, for reports.
    pub(crate) fn codec(&self) -> String {
        self.entries()
            .ok()
            .and_then(|all| all.first().map(|(kind, _)| name(*kind)))
            .unwrap_or_default()
    }
}

/// Refuses tracks whose samples stand in another file.
fn check_place(minf: Boxes<'_>) -> Result<()> {
    let Some(dinf) = minf.find(*b"dinf")? else { return Ok(()) };
    let Some(dref) = Boxes::new(*b"dinf", dinf).find(*b"dref")? else { return Ok(()) };
    let mut f = Fields::new(*b"dref", dref);
    f.full()?;
    f.count(8)?;
    for inner in Boxes::new(*b"dref", f.rest()) {
        let (kind, body) = inner?;
        let (_, flags) = Fields::new(kind, body).full()?;
        if flags & 1 == 0 {
            let what = "MP4 whose frames stand in another file".to_owned();
            return Err(Error::Foreign { what, done: "read", advice: REMUX });
        }
    }
    Ok(())
}

fn edit_list(elst: &[u8]) -> Result<Vec<Edit>> {
    let mut f = Fields::new(*b"elst", elst);
    let (version, _) = f.full()?;
    let count = f.count(if version == 0 { 12 } else { 20 })?;
    let mut edits = Vec::with_capacity(count);
    for _ in 0..count {
        let duration = f.wide(version)?;
        let media = if version == 0 { i64::from(f.i32()?) } else { f.u64()? as i64 };
        edits.push(Edit { duration, media, speed: f.i32()? });
    }
    Ok(edits)
}

/// The part of a track that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Window {
    /// When it begins, in ticks of the track.
    pub(crate) delay: i64,
    /// Its first tick.
    pub(crate) from: i64,
    /// The tick after its last.
    pub(crate) until: Option<i64>,
    /// How far `until` may be off: edits are in ticks of the movie.
    pub(crate) slack: i64,
}

impl Window {
    /// Of one edit with what stands before it; other lists are refused.
    pub(crate) fn of(track: &Track, movie: &Movie) -> Result<Self> {
        let refused = |what: &str| {
            Err(Error::Foreign { what: format!("MP4 {what}"), done: "read", advice: CONVERT })
        };
        let ticks = |movie_ticks: u64| rescale(movie_ticks, track.timescale, movie.timescale);
        let mut window = Self { slack: ticks(1)?.saturating_add(1), ..Self::default() };
        let mut shown: Option<(i64, u64)> = None;
        for edit in &track.edits {
            match (edit.media, shown) {
                (-1, None) => {
                    window.delay = window.delay.saturating_add(ticks(edit.duration)?);
                }
                (-1, Some(_)) => return refused("that stands still between two parts"),
                (media, _) if media < 0 => {
                    return Err(Error::mp4("an edit begins before the clip"));
                }
                _ if edit.speed != 1 << 16 => return refused("that is shown at another speed"),
                (media, None) => shown = Some((media, edit.duration)),
                (media, Some((from, duration))) => {
                    let next = from.saturating_add(ticks(duration)?);
                    if media.abs_diff(next) > window.slack as u64 || duration == 0 {
                        return refused("that is cut together from several parts by an edit list");
                    }
                    shown = Some((from, duration.saturating_add(edit.duration)));
                }
            }
        }
        if let Some((from, duration)) = shown {
            window.from = from;
            // Fragments come after the list was written, so its duration says nothing there.
            if duration > 0 && !movie.fragmented {
                window.until = Some(from.saturating_add(ticks(duration)?));
            }
        }
        Ok(window)
    }

    /// A time of the track as it is shown; `None` outside.
    pub(crate) fn place(&self, time: i64) -> Option<i64> {
        let inside = time >= self.from && self.until.is_none_or(|until| time < until);
        if inside { time.checked_sub(self.from)?.checked_add(self.delay) } else { None }
    }
}

/// Ticks of one scale in another, to the nearest.
pub(crate) fn rescale(ticks: u64, to: u32, from: u32) -> Result<i64> {
    let (to, from) = (u128::from(to), u128::from(from.max(1)));
    let scaled = (u128::from(ticks) * to + from / 2) / from;
    i64::try_from(scaled).map_err(|_| Error::mp4("a time is out of range"))
}
