//! What a hostile clip makes its reader allocate: counted, on 20,000 mutants of good files.

#![allow(unsafe_code)] // A global allocator can't be counted without.
#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};

use mien_media::clip::{FrameSink, FrameSource, Timing};
use mien_media::h264::encode::Rate;
use mien_media::mp4::{self, Finish};
use mien_media::{open, y4m};
use mien_pixels::i420::I420;

/// Bytes that are held, and the most that ever were since it was last set back.
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counted;

fn more(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it is; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// The most that was held while something ran, beyond what was held before.
fn most(run: impl FnOnce()) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    run();
    MOST.load(Ordering::Relaxed).saturating_sub(before)
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
