//! What clips make their readers and writers allocate, counted: on hostile files, and a frame.

#![allow(unsafe_code)] // A global allocator can't be counted without.
#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Cursor;

use mien_media::clip::{FrameSink, FrameSource, Timing};
use mien_media::h264::encode::Rate;
use mien_media::mp4::{self, Finish};
use mien_media::{open, y4m};
use mien_pixels::i420::I420;

thread_local! {
    /// Bytes that are held, and the most that ever were since it was last set back.
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
    /// Allocations of this thread.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

struct Counted;

fn more(bytes: usize) {
    CALLS.with(|calls| calls.set(calls.get() + 1));
    HELD.with(|held| {
        held.set(held.get().wrapping_add(bytes));
        MOST.with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system's allocator as it is; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.with(|held| held.set(held.get().wrapping_sub(layout.size())));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// The most that was held while something ran, beyond what was held before.
fn most(run: impl FnOnce()) -> usize {
    let before = HELD.get();
    MOST.set(before);
    run();
    MOST.get().saturating_sub(before)
}

fn header() -> &'static [u8] {
    b"YUV4MPEG2 W64 H48 F30:1 Ip A1:1 C420jpeg\n"
}

fn frame(number: u32) -> I420 {
    let mut bytes = header().to_vec();
    bytes.extend_from_slice(b"FRAME\n");
    bytes.extend((0..64 * 48 * 3 / 2).map(|at: u32| (at.wrapping_mul(7 + number) >> 3) as u8));
    let mut frame = I420::default();
    y4m::Reader::new(&bytes[..]).unwrap().next(&mut frame).unwrap().unwrap();
    frame
}

/// Segments of 24 frames, and the clip that they make.
fn made() -> (Vec<u8>, Vec<u8>) {
    let info = y4m::Reader::new(header()).unwrap().info().clone();
    let mut file = Cursor::new(Vec::new());
    let mut writer = mp4::Writer::new(&mut file, &info, Rate::Quantiser(30)).unwrap();
    for number in 0..24 {
        let timing = Timing { pts: i64::from(number), duration: 1 };
        writer.push(&frame(number), timing, number % 8 == 0).unwrap();
    }
    Box::new(writer).finish().unwrap();
    let segments = file.into_inner();
    let mut clip = Vec::new();
    let mut from = Cursor::new(&segments[..]);
    let finish = Finish { aigc: Some("{}"), ..Finish::default() };
    mp4::join(&mut from, segments.len() as u64, &info, None, &finish, &mut clip).unwrap();
    (segments, clip)
}

#[test]
fn a_hostile_index_allocates_no_more_than_its_file_allows() {
    let (segments, clip) = made();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut roll = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let words = [0_u32, 1, 8, 0x7fff_ffff, 0xffff_ffff, 0x00ff_ffff, 0x001f_ffff, 1 << 24];
    let (mut worst, mut opened) = (0, 0);
    for round in 0..20_000 {
        let good = if round % 2 == 0 { &clip } else { &segments };
        let mut bytes = good.clone();
        for _ in 0..=roll(3) {
            // The index stands in the first bytes of both.
            let at = roll(1800.min(bytes.len() - 4));
            if roll(2) == 0 {
                bytes[at] = roll(256) as u8;
            } else {
                bytes[at..at + 4].copy_from_slice(&words[roll(words.len())].to_be_bytes());
            }
        }
        let length = bytes.len();
        let file = bytes.clone();
        let used = most(|| {
            opened += usize::from(open::open(Box::new(Cursor::new(file))).is_ok());
            let _ = mp4::aigc(&mut Cursor::new(&bytes));
        });
        worst = worst.max(used);
        // A fragment's run may state frames of no bytes: numbers of the sync ones are kept until
        // the file is found too short for them, 4 bytes each, twice while their list grows.
        let bound = 16 * length + 12 * mien_base::limits::CLIP_SAMPLES;
        assert!(used <= bound, "round {round}: {used} bytes for a file of {length}");
    }
    assert!(opened > 2000, "mutants are not all refused at once: {opened}");
    println!("worst: {worst} bytes, files of {} and {}", segments.len(), clip.len());
}

#[test]
fn frames_in_the_middle_of_a_segment_allocate_nothing() {
    let (_, clip) = made();
    let mut source = open::open(Box::new(Cursor::new(clip))).unwrap();
    let info = source.info().clone();
    let room = Cursor::new(Vec::with_capacity(1 << 20));
    let mut writer = mp4::Writer::new(room, &info, Rate::Quantiser(30)).unwrap();
    let mut image = I420::default();
    let mut counted = 0;
    for number in 0..24 {
        let before = CALLS.get();
        let timing = source.next(&mut image).unwrap().unwrap();
        // An IDR in the middle of a segment is a frame like another.
        writer.push(&image, timing, number % 8 == 0).unwrap();
        let calls = CALLS.get() - before;
        assert!(number < 4 || calls == 0, "frame {number}: {calls} allocations");
        counted += u32::from(number >= 4);
    }
    assert_eq!(counted, 20);
    assert!(CALLS.get() > 0, "allocations are counted");
}
