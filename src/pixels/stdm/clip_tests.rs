//! Tests of the mark in clips: held residuals, reading over a GOP, and what re-encoding leaves.

use super::*;
use crate::view::Image;

const PAYLOAD: u64 = 0x7123_4567_89ab_cdef;
const LIMITED: Range = Range::Limited;

/// A plane that looks like a picture, moved by (dx, dy) pixels: waves, edges and grain.
fn scene(size: Size, seed: u64, (dx, dy): (f32, f32)) -> Grey {
    let s = seed as f32;
    let mut plane = Image::filled(size, [0]);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (i, value) in plane.bytes_all_mut().iter_mut().enumerate() {
        let x = (i % size.width as usize) as f32 + dx;
        let y = (i / size.width as usize) as f32 + dy;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let waves = (x / 61.0 + s).sin() * 34.0 + (y / 37.0 - s).cos() * 22.0;
        let texture = ((x * 0.31 + y * 0.17 + s).sin() + (x * 0.11 - y * 0.23).sin()) * 9.0;
        let edge = if (x / 90.0 + s).sin() > (y / 70.0).cos() { 24.0 } else { -10.0 };
        let grain = (state >> 40) as f32 / (1 << 24) as f32 * 6.0;
        *value = (118.0 + waves + texture + edge + grain).clamp(16.0, 235.0) as u8;
    }
    plane
}

#[test]
fn a_gop_is_read_back_although_the_picture_moves() {
    for (w, h) in [(640, 360), (352, 288), (200, 150), (1280, 720)] {
        let size = Size::new(w, h);
        let (mut residual, mut reader) = (Residual::new(size, LIMITED), Reader::new(size, LIMITED));
        for gop in 0..2_u64 {
            for frame in 0..12 {
                let mut luma = scene(size, 3 + gop, (frame as f32 * 0.8, frame as f32 * 0.3));
                if frame == 0 {
                    let psnr = residual.compute(luma.view(), PAYLOAD + gop);
                    assert!(psnr > 45.0, "{w}x{h} {psnr}");
                }
                residual.add(&mut luma.view_mut());
                reader.push(luma.view());
            }
            assert_eq!(reader.finish().map(|r| r.payload), Some(PAYLOAD + gop), "{w}x{h}");
            assert_eq!(reader.finish(), None, "nothing is left of the last GOP");
        }
    }
}
