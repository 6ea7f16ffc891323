//! Segments, joins, seeking and hostile files, on clips that this crate makes itself.

use std::io::{Cursor, Seek, SeekFrom};

use mien_base::limits;
use mien_pixels::convert::Colour;
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;

use super::index::Index;
use super::movie::{Edit, Media, Movie, Track, Window};
use super::table::{Chunk, Table};
use super::{Finish, Reader, Writer, aigc, join};
use crate::clip::{ClipInfo, ColourTags, Format, FrameSink, FrameSource, Rotation, Timing};
use crate::errors::{Error, Result};
use crate::h264::encode::Rate;
use crate::y4m::UPRIGHT;

const SIZE: Size = Size::new(64, 48);

fn info() -> ClipInfo {
    ClipInfo {
        format: Format::Mp4,
        size: SIZE,
        rotation: Rotation::Right,
        matrix: [0, 1 << 16, 0, -(1 << 16), 0, 0, 48 << 16, 0, 1 << 30],
        timescale: 90_000,
        frames: None,
        duration: None,
        rate: (30, 1),
        colour: Colour::BT709_LIMITED,
        tags: ColourTags { primaries: 1, transfer: 1, matrix: 1, full: false },
        sample_aspect: (4, 3),
        sound: Vec::new(),
        dropped: 0,
        quantiser: None,
    }
}

/// A square that wanders over a slope; which frame it is can be told from a block's brightness.
fn paint(frame: &mut I420, number: u32) {
    frame.reset(SIZE, info().colour);
    for (plane, mut view) in frame.planes_mut().into_iter().enumerate() {
        let size = view.size();
        for y in 0..size.height {
            let row = view.row_mut(y);
            for (x, value) in (0..).zip(row.iter_mut()) {
                let inside = (x + size.width - number * 3 % size.width) % size.width < 12;
                *value =
                    if plane > 0 { 128 } else { (16 + x * 2 + y + 60 * u32::from(inside)) as u8 };
                if plane == 0 && x < 16 && y < 16 {
                    *value = 30 + (number % 30 * 6) as u8;
                }
            }
        }
    }
}

fn timing(number: u32) -> Timing {
    // Every third frame lasts longer.
    let at = |n: u32| i64::from(n) * 3000 + i64::from(n / 3) * 500;
    Timing { pts: 700 + at(number), duration: (at(number + 1) - at(number)) as u32 }
}

/// Frames `from..to` with a GOP of 10 and segments of 20, appended to `file`.
fn write(file: &mut Cursor<Vec<u8>>, from: u32, to: u32) -> Vec<u64> {
    let mut ends = Vec::new();
    let mut writer = Writer::new(&mut *file, &info(), Rate::Quantiser(20)).unwrap();
    let mut frame = I420::default();
    for number in from..to {
        paint(&mut frame, number);
        writer.push(&frame, timing(number), number % 10 == 0).unwrap();
        if number % 20 == 19 {
            ends.push(writer.end_segment().unwrap());
        }
    }
    Box::new(writer).finish().unwrap();
    ends
}

fn segments(frames: u32) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    write(&mut file, 0, frames);
    file.into_inner()
}

fn joined(segments: &[u8], finish: &Finish<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut from = Cursor::new(segments);
    join(&mut from, segments.len() as u64, &info(), None, finish, &mut out)?;
    Ok(out)
}

fn finish() -> Finish<'static> {
    Finish { created: 1_000_000, aigc: Some("{\"Label\":\"1\"}"), range: None }
}

fn open(bytes: &[u8]) -> Result<Reader> {
    Reader::new(Box::new(Cursor::new(bytes.to_vec())))
}

/// Which frame this is, by its block.
fn number_of(frame: &I420) -> u32 {
    let y = frame.y();
    let sum: u32 = (4..12).flat_map(|r| &y.row(r)[4..12]).map(|v| u32::from(*v)).sum();
    (sum / 64 + 3 - 30) / 6
}

#[test]
fn a_clip_keeps_its_times_its_shape_and_its_record() {
    let clip = joined(&segments(27), &finish()).unwrap();
    let mut reader = open(&clip).unwrap();
    let got = reader.info().clone();
    let want = info();
    assert_eq!((got.size, got.rotation, got.matrix), (want.size, want.rotation, want.matrix));
    assert_eq!(
        (got.tags, got.sample_aspect, got.timescale),
        (want.tags, want.sample_aspect, want.timescale)
    );
    assert_eq!(got.frames, Some(27));
    let end = timing(26).pts + i64::from(timing(26).duration);
    assert_eq!(got.duration, Some((end - 700) as u64));
    assert_eq!(got.quantiser, Some(20));
    let (mut frame, mut paint_of) = (I420::default(), I420::default());
    for number in 0..27 {
        assert_eq!(reader.next(&mut frame).unwrap(), Some(timing(number)), "frame {number}");
        paint(&mut paint_of, number);
        let rows = frame.y().rows().zip(paint_of.y().rows());
        let off: u64 =
            rows.flat_map(|(a, b)| a.iter().zip(b)).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        assert!(off < SIZE.pixels() * 2, "frame {number} is off by {off}");
    }
    assert_eq!(reader.next(&mut frame).unwrap(), None);
    let record = aigc(&mut Cursor::new(&clip)).unwrap();
    assert_eq!(record.as_deref(), Some("{\"Label\":\"1\"}"));
}

#[test]
fn the_same_frames_give_the_same_bytes_whatever_interrupted_them() {
    let whole = segments(60);
    assert_eq!(segments(60), whole);
    // Killed in the middle of the second segment; what does not count is overwritten.
    let mut file = Cursor::new(Vec::new());
    let ends = write(&mut file, 0, 33);
    file.get_mut().truncate(ends[0] as usize);
    file.seek(SeekFrom::Start(ends[0])).unwrap();
    write(&mut file, 20, 60);
    assert!(file.into_inner() == whole, "the resumed clip equals the uninterrupted one");
}

#[test]
fn each_segment_can_be_read_by_itself() {
    let mut file = Cursor::new(Vec::new());
    let ends = write(&mut file, 0, 60);
    let bytes = file.into_inner();
    let mut frame = I420::default();
    for (number, start) in [0].iter().chain(&ends).take(3).enumerate() {
        let end = ends[number] as usize;
        let mut reader = open(&bytes[*start as usize..end]).unwrap();
        for at in 0..20 {
            let number = number as u32 * 20 + at;
            assert_eq!(reader.next(&mut frame).unwrap(), Some(timing(number)));
            assert_eq!(number_of(&frame), number % 30);
        }
        assert_eq!(reader.next(&mut frame).unwrap(), None);
    }
}

#[test]
fn seeking_is_exact_to_the_frame_forwards_and_back() {
    let clip = joined(&segments(60), &finish()).unwrap();
    let mut reader = open(&clip).unwrap();
    let mut frame = I420::default();
    for number in [0, 5, 6, 19, 20, 21, 7, 59, 33, 32, 34, 0, 58] {
        for pts in [timing(number).pts, timing(number).pts - 2000] {
            reader.seek(pts).unwrap();
            for then in number..60.min(number + 3) {
                let got = reader.next(&mut frame).unwrap();
                assert_eq!(got, Some(timing(then)), "seek to {number}");
                assert_eq!(number_of(&frame), then % 30, "seek to {number}");
            }
        }
    }
    reader.seek(1 << 40).unwrap();
    assert_eq!(reader.next(&mut frame).unwrap(), None);
    reader.seek(0).unwrap();
    assert_eq!(reader.next(&mut frame).unwrap(), Some(timing(0)));
}

#[test]
fn a_range_begins_at_its_start() {
    let mut file = Cursor::new(Vec::new());
    write(&mut file, 20, 40);
    let start = timing(20).pts - 100;
    let finish = Finish { range: Some((start, None)), ..finish() };
    let clip = joined(&file.into_inner(), &finish).unwrap();
    let mut reader = open(&clip).unwrap();
    let mut frame = I420::default();
    let first = reader.next(&mut frame).unwrap().unwrap();
    assert_eq!(first, Timing { pts: 100, ..timing(20) });
    assert_eq!(reader.info().frames, Some(20));
}

#[test]
fn frames_that_cannot_be_are_refused() {
    let mut frame = I420::default();
    paint(&mut frame, 0);
    let writer = |size| {
        let info = ClipInfo { size, ..info() };
        Writer::new(Cursor::new(Vec::new()), &info, Rate::Quantiser(20))
    };
    let mut first = writer(SIZE).unwrap();
    assert!(matches!(first.push(&frame, timing(0), false), Err(Error::Order { .. })));
    first.push(&frame, timing(3), true).unwrap();
    assert!(
        matches!(first.push(&frame, timing(2), false), Err(Error::Order { .. })),
        "back in time"
    );
    let mut other = writer(Size::new(32, 32)).unwrap();
    assert!(other.push(&frame, timing(0), true).is_err(), "another size");
    for (size, word) in
        [(Size::new(65, 48), "odd"), (Size::new(4096, 2304), "3840x2160"), (Size::new(8, 48), "16")]
    {
        let error = writer(size).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.kind(), mien_base::error::ErrorKind::Usage);
    }
}

#[test]
fn a_bitrate_is_kept_without_losing_a_frame() {
    let mut sizes = Vec::new();
    for bits in [15_000, 600_000] {
        let mut file = Cursor::new(Vec::new());
        let mut writer = Writer::new(&mut file, &info(), Rate::Bitrate(bits)).unwrap();
        let mut frame = I420::default();
        for number in 0..60 {
            paint(&mut frame, number * 17);
            writer.push(&frame, timing(number), number == 0).unwrap();
        }
        let summary = Box::new(writer).finish().unwrap();
        assert_eq!(summary.frames, 60);
        sizes.push(summary.bytes);
        assert_eq!(open(&file.into_inner()).unwrap().info().frames, Some(60));
    }
    assert!(sizes[0] * 2 < sizes[1], "{sizes:?}");
}

#[test]
fn the_largest_frame_is_encoded_and_comes_back() {
    let size = Size::new(3840, 2160);
    let info = ClipInfo { size, ..info() };
    let mut file = Cursor::new(Vec::new());
    let mut writer = Writer::new(&mut file, &info, Rate::Quantiser(30)).unwrap();
    let frame = I420::new(size, info.colour);
    writer.push(&frame, timing(0), true).unwrap();
    Box::new(writer).finish().unwrap();
    let mut back = I420::default();
    open(&file.into_inner()).unwrap().next(&mut back).unwrap().unwrap();
    assert_eq!(back.size(), size);
}

#[test]
fn a_cut_file_says_where_it_ends() {
    let clip = joined(&segments(30), &finish()).unwrap();
    let index = clip.windows(4).position(|w| w == b"mdat").unwrap();
    for (cut, word) in [
        (clip.len() - 1, "frame 29 of 30"),
        (index + 200, "of 30"),
        (index - 400, "moov"),
        (20, "ftyp"),
    ] {
        let error = open(&clip[..cut]).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "cut at {cut}: {error}");
        assert!(error.to_string().contains(word), "cut at {cut}: {error}");
    }
    let segments = segments(30);
    let error = joined(&segments[..segments.len() - 1], &finish()).unwrap_err();
    assert!(matches!(error, Error::Order { .. } | Error::Truncated { .. }), "{error}");
}

/// Ten frames of 100 ticks in two chunks, in a movie of 10 ticks a second.
fn track(edits: &[(u64, i64, i32)]) -> (Track, Movie) {
    let chunk = |offset| Chunk { offset, samples: 5, description: 1 };
    let table = Table {
        times: vec![(10, 100)],
        sizes: vec![(10, 7)],
        chunks: vec![chunk(0), chunk(35)],
        ..Table::default()
    };
    let edits = edits.iter();
    let track = Track {
        id: 1,
        media: Media::Video,
        flags: 1,
        alternate: 0,
        volume: 0,
        matrix: UPRIGHT,
        timescale: 1000,
        language: 0,
        edits: edits.map(|&(duration, media, speed)| Edit { duration, media, speed }).collect(),
        descriptions: b"\0\0\0\0\0\0\0\x02\0\0\0\x08avc1\0\0\0\x08avc1".to_vec(),
        table,
    };
    let movie = Movie { timescale: 10, fragmented: false, tracks: Vec::new(), others: 0 };
    (track, movie)
}

#[test]
fn an_edit_list_says_which_frames_are_shown_and_when() {
    const ONE: i32 = 1 << 16;
    let shown = |edits: &[(u64, i64, i32)]| -> Result<Vec<(i64, u32)>> {
        let (track, movie) = track(edits);
        let index = Index::of(&track, Window::of(&track, &movie)?, 70)?;
        let sample = |number: &u32| index.samples[*number as usize];
        Ok(index.shown.iter().map(sample).map(|s| (s.pts, s.duration)).collect())
    };
    let all: Vec<_> = (0..10).map(|n| (n * 100, 100)).collect();
    assert_eq!(shown(&[]).unwrap(), all);
    assert_eq!(shown(&[(10, 0, ONE)]).unwrap(), all);
    assert_eq!(shown(&[(0, 0, ONE)]).unwrap(), all, "no duration: to the end");
    let late: Vec<_> = all.iter().map(|(pts, d)| (pts + 300, *d)).collect();
    assert_eq!(shown(&[(2, -1, ONE), (1, -1, ONE), (10, 0, ONE)]).unwrap(), late);
    assert_eq!(shown(&[(3, 200, ONE)]).unwrap(), [(0, 100), (100, 100), (200, 100)]);
    // Begins within a frame, which is not shown then, and ends within one, which is cut.
    assert_eq!(shown(&[(4, 150, ONE)]).unwrap()[..2], [(50, 100), (150, 100)]);
    assert_eq!(shown(&[(2, 0, ONE), (3, 200, ONE)]).unwrap(), all[..5], "parts that touch are one");
    for (edits, word) in [
        (&[(2, 0, ONE), (3, 600, ONE)][..], "several parts"),
        (&[(2, 0, ONE), (3, -1, ONE), (3, 200, ONE)], "stands still"),
        (&[(2, 0, ONE / 2)], "another speed"),
        (&[(2, -7, ONE)], "before the clip"),
    ] {
        let error = shown(edits).unwrap_err().to_string();
        assert!(error.contains(word), "{edits:?}: {error}");
    }
}

#[test]
fn several_descriptions_of_the_pictures_are_refused() {
    let (mut track, _) = track(&[]);
    track.table.chunks[1].description = 2;
    let error = super::picture::read(&track, || Ok(Vec::new())).unwrap_err();
    assert!(error.to_string().contains("several sample descriptions"), "{error}");
    assert!(error.to_string().contains("ffmpeg -i IN"), "{error}");
}

#[test]
fn frames_that_are_shown_out_of_order_are_put_in_order_by_their_time() {
    let (mut track, movie) = track(&[(10, 200, 1 << 16)]);
    // I P B B, each shown when its shift says.
    track.table.shifts = vec![(1, 200), (1, 400), (2, 0), (6, 200)];
    let index = Index::of(&track, Window::of(&track, &movie).unwrap(), 70).unwrap();
    assert_eq!(index.shown[..4], [0, 2, 3, 1], "{:?}", index.samples);
    assert_eq!(index.samples[1].pts, 300);
}

/// Numbers that change little from call to call, without a library.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

const INTERESTING: [u32; 10] =
    [0, 1, 7, 8, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff0, 0x0100_0000, 16];

/// A good file with some bytes or words changed, a part cut out, doubled or cut off.
fn mutant(good: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len());
        match dice.roll(8) {
            0..=2 => bytes[at] = dice.roll(256) as u8,
            3..=5 => {
                let word = INTERESTING[dice.roll(INTERESTING.len())].to_be_bytes();
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            6 => {
                let end = (at + dice.roll(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => bytes.truncate(at.max(8)),
        }
        if bytes.len() < 8 {
            break;
        }
    }
    bytes
}

/// Everything that is read from a file without the decoder.
fn parse(bytes: &[u8]) -> Result<usize> {
    let length = bytes.len() as u64;
    let mut file = Cursor::new(bytes);
    let movie = Movie::read(&mut file, 0, length)?;
    let entries = |table: &super::table::Table| {
        table.times.len()
            + table.sizes.len()
            + table.shifts.len()
            + table.chunks.len()
            + table.sync.as_ref().map_or(0, Vec::len)
    };
    let mut held: usize = movie.tracks.iter().map(|track| entries(&track.table)).sum();
    let track = super::reader::pictures(&movie)?;
    super::picture::read(track, || Ok(Vec::new()))?;
    let index = Index::of(track, Window::of(track, &movie)?, length)?;
    held += index.samples.len();
    Ok(held)
}

#[test]
fn no_mutant_of_a_file_breaks_a_reader_or_makes_it_hold_more_than_the_file() {
    let plain = joined(&segments(24), &finish()).unwrap();
    let start = plain.windows(4).position(|w| w == b"mdat").unwrap();
    let fragments = segments(24);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut read = 0;
    for round in 0..24_000 {
        let bytes = if round % 2 == 0 {
            // Only the index: frames of an ordinary file are not looked at.
            let mut bytes = mutant(&plain[..start + 12], &mut dice);
            bytes.extend_from_slice(&plain[start + 12..]);
            bytes
        } else {
            mutant(&fragments, &mut dice)
        };
        if let Ok(held) = parse(&bytes) {
            read += 1;
            // A sample of no bytes needs none, but a run of them needs 8.
            assert!(held <= bytes.len() + limits::CLIP_SAMPLES, "round {round}: {held} entries");
        }
        let _ = aigc(&mut Cursor::new(&bytes));
        let mut out = Vec::new();
        let mut from = Cursor::new(&bytes[..]);
        let sound: Option<&mut dyn crate::clip::ReadSeek> = None;
        let _ = join(&mut from, bytes.len() as u64, &info(), sound, &finish(), &mut out);
        assert!(out.len() <= bytes.len() * 2 + 100_000, "round {round}");
    }
    assert!(read > 4000, "mutants are not all refused at once: {read}");
}

#[test]
fn mutants_of_frames_are_decoded_or_refused() {
    let clip = joined(&segments(24), &finish()).unwrap();
    let start = clip.windows(4).position(|w| w == b"mdat").unwrap() + 12;
    let mut dice = Dice(7);
    let mut frame = I420::default();
    let mut broken = 0;
    for _ in 0..400 {
        let mut bytes = clip.clone();
        for _ in 0..=dice.roll(6) {
            let at = start + dice.roll(bytes.len() - start);
            bytes[at] = dice.roll(256) as u8;
        }
        let Ok(mut reader) = open(&bytes) else { continue };
        loop {
            match reader.next(&mut frame) {
                Ok(Some(_)) => assert_eq!(frame.size(), SIZE),
                Ok(None) => break,
                Err(_) => {
                    broken += 1;
                    assert!(matches!(reader.next(&mut frame), Ok(None)), "an error is the end");
                    break;
                }
            }
        }
    }
    assert!(broken > 20, "{broken}");
}

#[test]
fn no_mutant_of_parameters_breaks_their_readers() {
    use crate::h264::{sps, units};
    // Sets of x264: main with its order coded, high with 8x8 transform and cropping.
    const SETS: [&[u8]; 2] = [
        &[
            0x67, 0x4d, 0x40, 0x0d, 0xe8, 0x85, 0x86, 0x7e, 0x5f, 0xfc, 0x0b, 0x70, 0x0b, 0x62,
            0x20, 0x00, 0x00, 0x03, 0x00, 0x20, 0x00, 0x00, 0x07, 0x81, 0xe2, 0x85, 0x4d,
        ],
        &[
            0x67, 0x64, 0x00, 0x28, 0xac, 0xd9, 0x40, 0x78, 0x02, 0x27, 0xe5, 0xc0, 0x44, 0x00,
            0x00, 0x03, 0x00, 0x04, 0x00, 0x00, 0x03, 0x00, 0xf0, 0x3c, 0x60, 0xc6, 0x58,
        ],
    ];
    const PICTURE: &[u8] = &[0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0];
    let high = sps::parse(SETS[1]).unwrap();
    assert_eq!(high.size, Size::new(1920, 1080));
    let config = units::Config::write(SETS[1], PICTURE).unwrap();
    let mut dice = Dice(11);
    let mut read = 0;
    for round in 0..20_000 {
        let bytes = mutant(SETS[round % 2], &mut dice);
        if let Ok(set) = sps::parse(&bytes) {
            read += 1;
            let again = sps::parse(&sps::immediate(&bytes, &set));
            assert_eq!(again.map(|again| again.size).ok(), Some(set.size), "round {round}");
        }
        if let Some(pps) = sps::parse_pps(&mutant(PICTURE, &mut dice)) {
            let _ = sps::idr_quantiser(
                &mutant(&[0x65, 0x88, 0x84, 0, 0x33, 0xff, 1, 2], &mut dice),
                &high,
                pps,
            );
        }
        let _ = units::Config::parse(&mutant(&config, &mut dice));
    }
    assert!(read > 2000, "{read}");
}
