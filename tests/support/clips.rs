//! Clips made in memory: raw frames with a real face that moves, and the program that works on them.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Shared by tests; not each uses all.

use std::fs;
use std::path::{Path, PathBuf};

use mien_pixels::convert::Colour;
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::i420::I420;
use mien_pixels::view::Rgb;

use crate::support::{load, picture};

pub const WIDE: u32 = 160;
pub const HIGH: u32 = 128;

/// Frames of raw video: the astronaut's face wanders over a wall.
pub fn wandering(frames: u32) -> Vec<u8> {
    let face = {
        let whole = load(&picture("astronaut.png"));
        let crop = whole.view().crop(Roi { x: 160, y: 40, width: 150, height: 150 });
        let mut small = Rgb::filled(Size::new(72, 72), [0; 3]);
        mien_pixels::resize::resize(crop, &mut small.view_mut());
        small
    };
    let mut out = header();
    for n in 0..frames {
        // To and fro, so that it never leaps.
        let sway =
            |n: u32, far: u32| if (n / far).is_multiple_of(2) { n % far } else { far - n % far };
        let (x, y) = (10 + sway(n, 60), 20 + sway(n / 2, 24));
        let mut frame = wall();
        for row in 0..72 {
            let to = &mut frame.view_mut();
            let to = &mut to.row_mut(y + row)[3 * x as usize..3 * (x + 72) as usize];
            to.copy_from_slice(face.view().row(row));
        }
        push(&mut out, &frame);
    }
    out
}

/// Frames of raw video in which nothing moves and nobody is.
pub fn empty(frames: u32) -> Vec<u8> {
    let (mut out, frame) = (header(), wall());
    (0..frames).for_each(|_| push(&mut out, &frame));
    out
}

fn header() -> Vec<u8> {
    format!("YUV4MPEG2 W{WIDE} H{HIGH} F30:1 Ip A1:1 C420jpeg\n").into_bytes()
}

fn wall() -> Rgb {
    let size = Size::new(WIDE, HIGH);
    let brick = |x: u32, y: u32| (90 + (x * 5 + y * 3) % 40 + (x / 16 + y / 8) % 2 * 20) as u8;
    let pixels = (0..HIGH).flat_map(|y| (0..WIDE).flat_map(move |x| [brick(x, y), 120, 110]));
    Rgb::from_vec(size, pixels.collect()).unwrap()
}

fn push(out: &mut Vec<u8>, rgb: &Rgb) {
    let mut frame = I420::new(rgb.size(), Colour::BT601_LIMITED);
    frame.fill_from(rgb.view());
    out.extend_from_slice(b"FRAME\n");
    for plane in frame.view().planes() {
        plane.rows().for_each(|row| out.extend_from_slice(row));
    }
}

pub fn write(path: &Path, bytes: &[u8]) -> PathBuf {
    fs::write(path, bytes).unwrap();
    path.to_owned()
}
