//! The finished clip: whole segments and the input's sound in one MP4 file, index first.

use std::io::{SeekFrom, Write};

use mien_base::limits;

use super::aigc;
use super::boxes::{Walk, name};
use super::fragment::move_to;
use super::movie::{Edit, Media, Movie, Track, rescale};
use super::reader::length_of;
use super::segment::{Look, TrackHead, UNKNOWN, media_head, movie_head, track_head};
use super::sound::{Part, SoundTrack};
use super::table::{Chunk, Table, each, extend};
use super::write::{boxed, full, handler, here, long, sample_table, word};
use crate::clip::{ClipInfo, ReadSeek, Summary};
use crate::errors::{Error, Result};
use crate::h264::units::Config;

/// Seconds from 1904, where MP4 begins to count, to 1970.
const EPOCH: u64 = 2_082_844_800;
/// Bytes that are copied at once.
const BLOCK: usize = 256 << 10;

/// What the finished clip says beside its frames.
#[derive(Debug, Clone, Copy, Default)]
pub struct Finish<'a> {
    /// Seconds since 1970. There is no other clock in the file.
    pub created: u64,
    /// The `AIGC` record.
    pub aigc: Option<&'a str>,
    /// Frames begin in `start..end` only, in ticks of the clip, and so does the sound.
    pub range: Option<(i64, Option<i64>)>,
}

/// One track of the output.
struct Out<'a> {
    head: TrackHead,
    timescale: u32,
    language: u16,
    ticks: u64,
    edits: Vec<Edit>,
    descriptions: &'a [u8],
    table: &'a Table,
    bytes: &'a [u64],
    video: bool,
}

/// Joins the segments in the first `bytes` of a file, and the sound of `input` where there is
/// one, into `to`.
///
/// # Errors
/// When a segment is not whole or not of this clip, the input's sound is damaged, or a file fails.
pub fn join(
    segments: &mut dyn ReadSeek,
    bytes: u64,
    info: &ClipInfo,
    mut input: Option<&mut dyn ReadSeek>,
    finish: &Finish<'_>,
    to: &mut dyn Write,
) -> Result<Summary> {
    let mut pictures = read_segments(segments, bytes)?;
    let shift = finish.range.map_or(0, |(start, _)| start.max(0) as u64);
    let delay = pictures.table.start.checked_sub(shift);
    let delay = delay.ok_or_else(|| order("a frame stands before the range"))?;
    pictures.table.start = 0;
    let (scale, sound) = match &mut input {
        Some(input) => read_sound(*input, info, finish)?,
        None => (info.timescale, Vec::new()),
    };
    let in_movie = |ticks: u64, of: u32| rescale(ticks, scale, of).map(|ticks| ticks as u64);
    let look = Look::of(info);
    let descriptions = look.describe(&pictures.config);
    let lasts = in_movie(pictures.ticks, info.timescale)?;
    let mut edits = Vec::new();
    if delay > 0 {
        let duration = in_movie(delay, info.timescale)?;
        edits.push(Edit { duration, media: -1, speed: 1 << 16 });
        edits.push(Edit { duration: lasts, media: 0, speed: 1 << 16 });
    }
    let (width, height) = look.shown();
    let created = finish.created.saturating_add(EPOCH);
    let head = TrackHead {
        flags: 3,
        created,
        id: 1,
        duration: edits.iter().map(|edit| edit.duration).sum::<u64>().max(lasts),
        matrix: info.matrix,
        width,
        height,
        ..TrackHead::default()
    };
    let mut tracks = vec![Out {
        head,
        timescale: info.timescale,
        language: UNKNOWN,
        ticks: pictures.ticks,
        edits,
        descriptions: &descriptions,
        table: &pictures.table,
        bytes: &pictures.bytes,
        video: true,
    }];
    for (id, sound) in (2..).zip(&sound) {
        let Track { flags, alternate, volume, matrix, ref edits, .. } = sound.track;
        let lasts = in_movie(sound.ticks, sound.track.timescale)?;
        let edited = edits.iter().fold(0, |sum: u64, edit| sum.saturating_add(edit.duration));
        let duration = if edits.is_empty() { lasts } else { edited };
        let head = TrackHead {
            flags,
            created,
            id,
            duration,
            alternate,
            volume,
            matrix,
            width: 0,
            height: 0,
        };
        tracks.push(Out {
            head,
            timescale: sound.track.timescale,
            language: sound.track.language,
            ticks: sound.ticks,
            edits: edits.clone(),
            descriptions: &sound.track.descriptions,
            table: &sound.track.table,
            bytes: &sound.bytes,
            video: false,
        });
    }
    let pieces = interleave(&tracks);
    let data = pieces.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.bytes));
    let brand: &[u8] = if sound.iter().any(|sound| is_quicktime(&sound.track)) {
        b"qt  \0\0\x02\0qt  "
    } else {
        b"isom\0\0\x02\0isomiso2avc1mp41"
    };
    let mut file = Vec::new();
    boxed(&mut file, *b"ftyp", |out| out.extend_from_slice(brand));
    let head = file.len();
    // The index is written twice: its size says where the data begins.
    let mut wide = false;
    let data_head = 16;
    let start = loop {
        file.truncate(head);
        index(&mut file, &tracks, &pieces, 0, wide, scale, created, finish.aigc);
        let start = file.len() as u64 + data_head;
        if wide || start + data <= u64::from(u32::MAX) {
            break start;
        }
        wide = true;
    };
    file.truncate(head);
    index(&mut file, &tracks, &pieces, start, wide, scale, created, finish.aigc);
    word(&mut file, 1);
    file.extend_from_slice(b"mdat");
    long(&mut file, data + data_head);
    to.write_all(&file).map_err(Error::written)?;
    let written = file.len() as u64;
    let mut buffer = file;
    buffer.resize(BLOCK, 0);
    for piece in &pieces {
        let from: &mut dyn ReadSeek = match (&mut input, piece.track) {
            (_, 0) => &mut *segments,
            (Some(input), _) => *input,
            (None, _) => return Err(order("sound without a file")),
        };
        copy(from, piece.from, piece.bytes, to, &mut buffer)?;
    }
    to.flush().map_err(Error::written)?;
    Ok(Summary { frames: pictures.table.samples(), bytes: written + data })
}

fn order(what: &str) -> Error {
    Error::Order { what: what.to_owned() }
}

fn copy(
    from: &mut dyn ReadSeek,
    at: u64,
    bytes: u64,
    to: &mut dyn Write,
    buffer: &mut [u8],
) -> Result<()> {
    from.seek(SeekFrom::Start(at)).map_err(Error::read)?;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(BLOCK as u64) as usize;
        from.read_exact(&mut buffer[..part]).map_err(Error::read)?;
        to.write_all(&buffer[..part]).map_err(Error::written)?;
        left -= part as u64;
    }
    Ok(())
}

/// All segments as one track.
struct Pictures {
    table: Table,
    bytes: Vec<u64>,
    ticks: u64,
    config: Vec<u8>,
}

fn read_segments(file: &mut dyn ReadSeek, bytes: u64) -> Result<Pictures> {
    let mut starts = Vec::new();
    let mut walk = Walk::new(0, bytes);
    while let Some(top) = walk.next(file)? {
        if &top.kind == b"ftyp" {
            starts.push(top.start);
        }
    }
    let first = starts.first().filter(|start| **start == 0);
    first.ok_or_else(|| order("there is no segment"))?;
    let mut table = Table { sync: Some(Vec::new()), ..Table::default() };
    let mut config: Option<Vec<u8>> = None;
    let (mut sizes, mut end) = (Vec::new(), 0);
    for (at, start) in starts.iter().enumerate() {
        let stop = starts.get(at + 1).copied().unwrap_or(bytes);
        let mut movie = Movie::read(file, *start, stop)?;
        let track = movie.tracks.pop().filter(|track| track.table.samples() > 0);
        let track = track.ok_or_else(|| order("a segment has no frames"))?;
        let own = configuration(&track)?;
        if config.as_ref().is_some_and(|config| *config != own) {
            return Err(order("segments were written by different encoders"));
        }
        config = Some(own);
        let part = track.table;
        move_to(&mut table, end, part.start)?;
        let count = table.samples() as u32;
        let syncs = part.sync.iter().flatten().map(|number| number + count);
        if let Some(all) = &mut table.sync {
            all.extend(syncs);
        }
        super::table::check_count(u64::from(count) + part.samples(), bytes)?;
        end = part.start;
        for (count, ticks) in &part.times {
            extend(&mut table.times, *count, *ticks);
            end = end.saturating_add(u64::from(*count) * u64::from(*ticks));
        }
        part.sizes.iter().for_each(|(count, size)| extend(&mut table.sizes, *count, *size));
        for chunk in &part.chunks {
            split(chunk, &part, &mut table.chunks, &mut sizes);
        }
    }
    let last =
        table.chunks.iter().zip(&sizes).map(|(c, bytes)| c.offset.saturating_add(*bytes)).max();
    let all = sizes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    if last.is_none_or(|last| last > bytes || all > bytes) {
        return Err(order("a segment is not whole"));
    }
    let ticks = end.saturating_sub(table.start);
    Ok(Pictures { table, bytes: sizes, ticks, config: config.unwrap_or_default() })
}

/// Cuts a segment's run into chunks, so that sound can stand between them.
fn split(whole: &Chunk, part: &Table, chunks: &mut Vec<Chunk>, bytes: &mut Vec<u64>) {
    /// Frames of a chunk.
    const FRAMES: usize = limits::CLIP_GOP as usize / 4;
    let sizes: Vec<u64> = each(&part.sizes).map(u64::from).collect();
    let mut offset = whole.offset;
    for run in sizes.chunks(FRAMES) {
        chunks.push(Chunk { offset, samples: run.len() as u32, description: 1 });
        bytes.push(run.iter().sum());
        offset = offset.saturating_add(run.iter().sum());
    }
}

/// `avcC` of a segment.
fn configuration(track: &Track) -> Result<Vec<u8>> {
    let picture = super::picture::read(track, || Err(order("a segment has no parameters")))?;
    match (&picture.config.sps[..], &picture.config.pps[..]) {
        ([sps], [pps]) => Config::write(sps, pps),
        _ => Err(order("a segment has several parameters")),
    }
}

/// The scale of the output's movie, in which both the frames' times and the sound's edits are
/// exact where that can be, and the sound tracks.
fn read_sound(
    input: &mut dyn ReadSeek,
    info: &ClipInfo,
    finish: &Finish<'_>,
) -> Result<(u32, Vec<SoundTrack>)> {
    let length = length_of(input)?;
    let mut movie = Movie::read(input, 0, length)?;
    let scale = common(info.timescale, movie.timescale).unwrap_or(info.timescale);
    let part = finish.range.map(|(start, end)| Part { start, end, timescale: info.timescale });
    let tracks = std::mem::take(&mut movie.tracks);
    let mut sound = Vec::new();
    for track in tracks.into_iter().filter(|track| track.media == Media::Sound) {
        sound.extend(SoundTrack::take(track, &movie, part, scale, length)?);
    }
    Ok((scale, sound))
}

/// Least common multiple.
fn common(a: u32, b: u32) -> Option<u32> {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).checked_mul(b)
}

/// Sound descriptions that only QuickTime has.
fn is_quicktime(track: &Track) -> bool {
    let versioned = |body: &[u8]| body.get(8..10).is_some_and(|version| version != [0, 0]);
    track
        .entries()
        .is_ok_and(|all| all.iter().any(|(kind, body)| versioned(body) || !known(&name(*kind))))
}

fn known(kind: &str) -> bool {
    [
        "mp4a", "alac", "ac-3", "ec-3", "ac-4", "Opus", "fLaC", "dtsc", "samr", "sawb", ".mp3",
        "mha1", "mhm1",
    ]
    .contains(&kind)
}

/// One chunk as it is copied.
struct Piece {
    track: usize,
    from: u64,
    bytes: u64,
}

/// Chunks of all tracks in the order of time.
fn interleave(tracks: &[Out<'_>]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (number, track) in tracks.iter().enumerate() {
        let mut times = track.table.times.iter().copied();
        let mut now = (0_u32, 0_u32);
        let mut at = 0_u128;
        for (chunk, bytes) in track.table.chunks.iter().zip(track.bytes) {
            let time = at * 1_000_000 / u128::from(track.timescale.max(1));
            pieces.push((time, Piece { track: number, from: chunk.offset, bytes: *bytes }));
            let mut left = chunk.samples;
            while left > 0 {
                if now.0 == 0 {
                    let Some(next) = times.next() else { break };
                    now = next;
                    continue;
                }
                let taken = left.min(now.0);
                at += u128::from(taken) * u128::from(now.1);
                now.0 -= taken;
                left -= taken;
            }
        }
    }
    pieces.sort_by_key(|(time, piece)| (*time, piece.track));
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

#[expect(clippy::too_many_arguments, reason = "the parts of one index, written twice")]
fn index(
    out: &mut Vec<u8>,
    tracks: &[Out<'_>],
    pieces: &[Piece],
    start: u64,
    wide: bool,
    scale: u32,
    created: u64,
    record: Option<&str>,
) {
    let mut offsets: Vec<Vec<u64>> = tracks.iter().map(|_| Vec::new()).collect();
    let mut at = start;
    for piece in pieces {
        offsets[piece.track].push(at);
        at += piece.bytes;
    }
    let lasts = tracks.iter().map(|track| track.head.duration).max().unwrap_or(0);
    boxed(out, *b"moov", |out| {
        movie_head(out, scale, created, lasts, tracks.len() as u32 + 1);
        for (track, offsets) in tracks.iter().zip(&offsets) {
            write_track(out, track, offsets, wide, created);
        }
        if let Some(record) = record {
            aigc::write(out, record);
        }
    });
}

fn write_track(out: &mut Vec<u8>, track: &Out<'_>, offsets: &[u64], wide: bool, created: u64) {
    boxed(out, *b"trak", |out| {
        track_head(out, &track.head);
        if !track.edits.is_empty() {
            boxed(out, *b"edts", |out| {
                full(out, *b"elst", 1, 0, |out| {
                    word(out, track.edits.len() as u32);
                    for edit in &track.edits {
                        long(out, edit.duration);
                        long(out, edit.media as u64);
                        word(out, edit.speed as u32);
                    }
                });
            });
        }
        boxed(out, *b"mdia", |out| {
            media_head(out, created, track.timescale, track.ticks, track.language);
            if track.video {
                handler(out, *b"vide", b"VideoHandler");
            } else {
                handler(out, *b"soun", b"SoundHandler");
            }
            boxed(out, *b"minf", |out| {
                if track.video {
                    full(out, *b"vmhd", 0, 1, |out| out.extend_from_slice(&[0; 8]));
                } else {
                    full(out, *b"smhd", 0, 0, |out| word(out, 0));
                }
                here(out);
                sample_table(out, track.descriptions, track.table, offsets, wide);
            });
        });
    });
}
