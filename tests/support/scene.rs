//! A made scene whose truth is known: faces of noise with a marker, and a made detector and gate that
//! stand for the models. What leaves is judged against the frames that went in.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Shared by tests; not each uses all.

use std::fs;
use std::path::Path;

use mien_base::model::{Family, Manifest, Role};
use mien_engine::made::{Attribute, Model};
use mien_pixels::convert::Colour;
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;
use mien_pixels::view::Rgb;

pub const SIZE: Size = Size::new(320, 240);
/// Frames after which the scene begins anew, without a leap.
pub const PERIOD: u32 = 240;
/// Side of a face.
const SIDE: u32 = 64;
/// Side of the marker in its middle, which the made detector knows.
const MARKER: u32 = 16;
/// The number of a frame stands at the top, in squares of this side.
const SQUARE: u32 = 16;
const BITS: u32 = 12;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Middles of the faces of a frame: two that wander, one that comes and goes.
pub fn faces(frame: u32) -> Vec<(u32, u32)> {
    let turn = f64::from(frame % PERIOD) / f64::from(PERIOD) * std::f64::consts::TAU;
    let at = |x: f64, y: f64| (x.round() as u32, y.round() as u32);
    let mut all = vec![
        at(80.0 + 35.0 * turn.sin(), 95.0 + 30.0 * (2.0 * turn).cos()),
        at(240.0 + 35.0 * (2.0 * turn).cos(), 120.0 + 40.0 * turn.sin()),
    ];
    if (90..150).contains(&(frame % PERIOD)) {
        all.push(at(160.0, 150.0 + 8.0 * (3.0 * turn).sin()));
    }
    all
}

/// One frame.
pub fn frame(number: u32) -> Rgb {
    let mut rgb = Rgb::filled(SIZE, [0; 3]);
    let width = SIZE.width as usize;
    let mut state = 7;
    for (i, pixel) in rgb.bytes_all_mut().chunks_exact_mut(3).enumerate() {
        let (x, y) = (i % width, i / width);
        let brick = (x / 20 + y / 12) % 2 * 12;
        let grain = (random(&mut state) % 7) as usize;
        pixel.copy_from_slice(&[(95 + brick + grain) as u8, 112, 104]);
    }
    for (n, &(cx, cy)) in faces(number).iter().enumerate() {
        // A face keeps its own noise wherever it is: squares, so that the codec keeps them apart.
        let mut state = 1000 + n as u64;
        let cells: Vec<u8> = (0..256).map(|_| (60 + random(&mut state) % 160) as u8).collect();
        for dy in 0..SIDE {
            for dx in 0..SIDE {
                let (x, y) = (cx + dx - SIDE / 2, cy + dy - SIDE / 2);
                let middle = |d: u32| (SIDE / 2 - MARKER / 2..SIDE / 2 + MARKER / 2).contains(&d);
                let colour = if middle(dx) && middle(dy) {
                    [250, 10, 250]
                } else {
                    let v = cells[(dy / 4 * 16 + dx / 4) as usize];
                    [v, v, v - 40]
                };
                let at = ((y * SIZE.width + x) * 3) as usize;
                rgb.bytes_all_mut()[at..at + 3].copy_from_slice(&colour);
            }
        }
    }
    // Two squares that are always the same, the number, its parity.
    let parity = (number % PERIOD).count_ones() % 2;
    let bits = [1, 0].into_iter().chain((0..BITS).map(|b| (number % PERIOD) >> b & 1));
    for (n, bit) in bits.chain([parity, 1 - parity]).enumerate() {
        let value = if bit == 1 { 225 } else { 30 };
        for y in 0..SQUARE {
            for x in 0..SQUARE {
                let at = ((y * SIZE.width + n as u32 * SQUARE + x) * 3) as usize;
                rgb.bytes_all_mut()[at..at + 3].copy_from_slice(&[value; 3]);
            }
        }
    }
    rgb
}

/// The whole scene as raw video of so many frames a second.
pub fn clip(fps: u32) -> Vec<u8> {
    let (w, h) = (SIZE.width, SIZE.height);
    let mut out = format!("YUV4MPEG2 W{w} H{h} F{fps}:1 Ip A1:1 C420jpeg\n").into_bytes();
    for number in 0..PERIOD {
        let raw = planes(number);
        out.extend_from_slice(b"FRAME\n");
        for plane in raw.view().planes() {
            plane.rows().for_each(|row| out.extend_from_slice(row));
        }
    }
    out
}

/// A frame as the camera gives it.
pub fn planes(number: u32) -> I420 {
    let mut raw = I420::new(SIZE, Colour::BT601_LIMITED);
    raw.fill_from(frame(number).view());
    raw
}

/// Which frame it was; `None` of one that is covered whole.
pub fn number(image: &I420) -> Option<u32> {
    let square = |n: u32| {
        let y = image.y();
        let mut sum = 0;
        for dy in 4..SQUARE - 4 {
            for dx in 4..SQUARE - 4 {
                sum += u32::from(y.pixel(n * SQUARE + dx, dy)[0]);
            }
        }
        sum / (SQUARE - 8).pow(2)
    };
    let bit = |n: u32| match square(n) {
        160.. => Some(1),
        ..=90 => Some(0),
        _ => None,
    };
    if bit(0)? != 1 || bit(1)? != 0 {
        return None;
    }
    let mut number: u32 = 0;
    for b in 0..BITS {
        number |= bit(2 + b)? << b;
    }
    let parity = number.count_ones() % 2;
    (bit(2 + BITS)? == parity && bit(3 + BITS)? == 1 - parity && number < PERIOD).then_some(number)
}

/// What a frame that left shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// Nothing of the scene.
    Covered,
    /// Everything but its faces.
    Masked(u32),
    /// Part of a face can be known again: frame, face, likeness.
    Exposed(u32, usize, f64),
}

/// Likeness of the luma of two frames over a square, -1 to 1; 0 where one of them is flat.
fn likeness(a: &I420, b: &I420, x0: u32, y0: u32, side: u32) -> f64 {
    let (mut n, mut sa, mut sb, mut saa, mut sbb, mut sab) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for y in y0..y0 + side {
        for x in x0..x0 + side {
            let (p, q) = (f64::from(a.y().pixel(x, y)[0]), f64::from(b.y().pixel(x, y)[0]));
            (n, sa, sb) = (n + 1.0, sa + p, sb + q);
            (saa, sbb, sab) = (saa + p * p, sbb + q * q, sab + p * q);
        }
    }
    let (va, vb) = (saa - sa * sa / n, sbb - sb * sb / n);
    if va / n < 16.0 || vb / n < 16.0 { 0.0 } else { (sab - sa * sb / n) / (va * vb).sqrt() }
}

/// Judges a frame that left against the truth: each quarter of the middle of each face.
pub fn judge(image: &I420) -> Shown {
    assert_eq!(image.size(), SIZE);
    let Some(number) = number(image) else {
        return Shown::Covered;
    };
    let truth = planes(number);
    for (n, &(cx, cy)) in faces(number).iter().enumerate() {
        for (x, y) in [(cx - 20, cy - 20), (cx, cy - 20), (cx - 20, cy), (cx, cy)] {
            let like = likeness(&truth, image, x, y, 20);
            if like > 0.5 {
                return Shown::Exposed(number, n, like);
            }
        }
    }
    Shown::Masked(number)
}

/// A made detector of the CenterFace family: it knows the marker in the middle of each face. `bias`
/// tells two of them apart that see the same.
pub fn detector(bias: f32) -> Vec<u8> {
    let around = [
        Attribute::Ints("kernel_shape", &[4, 4]),
        Attribute::Ints("strides", &[4, 4]),
        Attribute::Ints("dilations", &[1, 1]),
        Attribute::Ints("pads", &[0, 0, 0, 0]),
    ];
    let taps: Vec<f32> = [0.5, -1.0, 0.5].iter().flat_map(|c| [c / 16.0; 16]).collect();
    let none = |n: usize| vec![0.0; n * 48];
    let size = (SIDE as f32 / 4.0).ln();
    let points = [0.4, 0.3, 0.4, 0.7, 0.55, 0.5, 0.75, 0.35, 0.75, 0.65];
    Model::new()
        .input("x", &[0, 3, 0, 0])
        .weight("wh", &[1, 3, 4, 4], &taps.iter().map(|w| w * 0.1).collect::<Vec<_>>())
        .weight("bh", &[1], &[-15.0 + bias])
        .node("Conv", &["x", "wh", "bh"], &["m"], &around)
        .node("Sigmoid", &["m"], &["heat"], &[])
        .weight("ws", &[2, 3, 4, 4], &none(2))
        .weight("bs", &[2], &[size, size])
        .node("Conv", &["x", "ws", "bs"], &["scale"], &around)
        .weight("bo", &[2], &[0.0, 0.0])
        .node("Conv", &["x", "ws", "bo"], &["offset"], &around)
        .weight("wl", &[10, 3, 4, 4], &none(10))
        .weight("bl", &[10], &points)
        .node("Conv", &["x", "wl", "bl"], &["points"], &around)
        .output("heat", &[0, 1, 0, 0])
        .output("scale", &[0, 2, 0, 0])
        .output("offset", &[0, 2, 0, 0])
        .output("points", &[0, 10, 0, 0])
        .bytes()
}

/// A made gate that lets everything pass.
pub fn gate() -> Vec<u8> {
    let shape: (&str, &[usize]) = ("x", &[1, 224, 224, 3]);
    Model::answering(&[shape], &[("y", &[1, 2], &[0.99, 0.01])]).bytes()
}

fn install(home: &Path, id: &str, role: Role, family: Family, bytes: &[u8]) {
    let folder = home.join("models");
    fs::create_dir_all(&folder).unwrap();
    let manifest = Manifest {
        id: id.parse().unwrap(),
        role,
        family,
        sha256: mien_vault::digest::of(bytes),
        bytes: bytes.len() as u64,
        licence: "MIT".to_owned(),
        commercial: true,
    };
    let write = |name: &str, bytes: &[u8]| {
        let (part, whole) = (folder.join(format!("{name}.part")), folder.join(name));
        fs::write(&part, bytes).unwrap();
        fs::rename(part, whole).unwrap();
    };
    write(&format!("{id}.onnx"), bytes);
    write(&format!("{id}.toml"), toml::to_string(&manifest).unwrap().as_bytes());
}

/// Puts the made detector into a home, in place of the one there.
pub fn install_detector(home: &Path, bias: f32) {
    install(home, "made", Role::Detector, Family::CenterFace, &detector(bias));
}

/// A home with the made models.
pub fn install_models(home: &Path) {
    install_detector(home, 0.0);
    install(home, "made-gate", Role::Gate, Family::OpenNsfw, &gate());
}

/// The frames of a recording, in order.
pub fn frames(path: &Path) -> Vec<I420> {
    let file = Box::new(fs::File::open(path).unwrap());
    let mut clip = mien_media::open::open(file).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let mut all = Vec::new();
    loop {
        let mut frame = I420::default();
        if clip.next(&mut frame).unwrap_or_else(|e| panic!("{path:?}: {e}")).is_none() {
            return all;
        }
        all.push(frame);
    }
}

/// Files of a folder whose names end so, sorted.
pub fn files(folder: &Path, ending: &str) -> Vec<std::path::PathBuf> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    all.retain(|path: &std::path::PathBuf| path.to_string_lossy().ends_with(ending));
    all.sort();
    all
}
