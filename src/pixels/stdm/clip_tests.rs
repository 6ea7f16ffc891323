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

#[test]
fn what_moves_takes_only_its_own_bits() {
    let size = Size::new(640, 360);
    let mut residual = Residual::new(size, LIMITED);
    let still = scene(size, 5, (0.0, 0.0));
    residual.compute(still.view(), PAYLOAD);
    for part in [0.2, 0.4] {
        let mut reader = Reader::new(size, LIMITED);
        let other = scene(size, 99, (13.0, 70.0));
        let mut luma = still.clone();
        let from = (f64::from(size.width) * (1.0 - part)) as usize;
        for y in 0..size.height {
            let other = &other.view().row(y)[from..];
            luma.view_mut().row_mut(y)[from..].copy_from_slice(other);
        }
        residual.add(&mut luma.view_mut());
        reader.push(luma.view());
        assert_eq!(reader.finish().map(|r| r.payload), Some(PAYLOAD), "{part}");
    }
}

#[test]
fn a_still_picture_keeps_its_residual() {
    let size = Size::new(400, 300);
    let mut residual = Residual::new(size, LIMITED);
    residual.compute(scene(size, 5, (0.0, 0.0)).view(), PAYLOAD);
    let before = residual.values.clone();
    let mut noisy = scene(size, 5, (0.0, 0.0));
    for (i, v) in noisy.bytes_all_mut().iter_mut().enumerate() {
        *v = v.wrapping_add((i * 7 % 3) as u8);
    }
    residual.compute(noisy.view(), PAYLOAD);
    let far = |a: &Grey, b: &Grey| {
        let apart = a.bytes_all().iter().zip(b.bytes_all()).map(|(a, b)| u32::from(a.abs_diff(*b)));
        f64::from(apart.sum::<u32>()) / a.bytes_all().len() as f64
    };
    let near = far(&residual.values, &before);
    assert!(near < 0.15, "{near}");
    let mut fresh = Residual::new(size, LIMITED);
    fresh.compute(noisy.view(), PAYLOAD + 1);
    let other = far(&fresh.values, &before);
    assert!(other > 3.0 * near, "another payload is another residual: {other} {near}");
}

#[test]
fn frames_without_a_mark_are_not_read() {
    for seed in 0..60 {
        let size = Size::new(180 + 7 * seed as u32, 140 + 3 * seed as u32);
        let mut reader = Reader::new(size, LIMITED);
        for frame in 0..5 {
            let moved = if seed % 2 == 0 { 0.0 } else { frame as f32 };
            reader.push(scene(size, seed, (moved, moved / 2.0)).view());
        }
        assert_eq!(reader.finish(), None, "{seed}");
    }
}

#[test]
fn a_frame_too_small_stays_as_it_is() {
    let size = Size::new(300, 127);
    let mut residual = Residual::new(size, LIMITED);
    let mut luma = scene(size, 1, (0.0, 0.0));
    let before = luma.clone();
    assert!(residual.compute(luma.view(), PAYLOAD).is_infinite());
    residual.add(&mut luma.view_mut());
    assert_eq!((luma.view().to_image(), residual.read(before.view())), (before.clone(), None));
}
