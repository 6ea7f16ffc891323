//! What every backend must do, checked against values that are worked out here in the plainest way.
//!
//! The CPU passes it in its unit tests; a backend on a device passes it where the device is.

use mien_base::model::{Family, Manifest, Role};
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::view::{Grey, Rgb};

use crate::backend::Backend;

mod models;
mod masks;
mod pictures;
mod changes;

/// How far a backend may be from the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Levels of 8-bit pictures and masks.
    pub levels: u8,
    /// Values of tensors, as a share of the largest of them.
    pub values: f32,
}

/// A claim that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub claim: &'static str,
    pub detail: String,
}

type Checked = std::result::Result<(), String>;
type Check<B> = fn(&B, &Tolerance) -> Checked;

/// Runs every check; what does not hold.
pub fn run_all<B: Backend>(backend: &B, tolerance: Tolerance) -> Vec<Failure> {
    let all = models::checks().into_iter().chain(pictures::checks());
    let all = all.chain(masks::checks()).chain(changes::checks());
    let failed = |(claim, check): (&'static str, Check<B>)| {
        check(backend, &tolerance).err().map(|detail| Failure { claim, detail })
    };
    all.filter_map(failed).collect()
}

fn holds(truth: bool, detail: impl FnOnce() -> String) -> Checked {
    if truth { Ok(()) } else { Err(detail()) }
}

/// Turns an error of the crate into the detail of a failure.
fn got<T>(result: crate::Result<T>) -> std::result::Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn manifest() -> std::result::Result<Manifest, String> {
    Ok(Manifest {
        id: "made".parse().map_err(|_| "a bad name")?,
        role: Role::Detector,
        family: Family::CenterFace,
        sha256: "0".repeat(64),
        bytes: 0,
        licence: "CC0-1.0".into(),
        commercial: true,
    })
}

/// A picture from a colour at each place.
fn picture(width: u32, height: u32, at: impl Fn(u32, u32) -> [u8; 3]) -> Rgb {
    let mut rgb = Rgb::filled(Size::new(width, height), [0; 3]);
    for (i, p) in rgb.bytes_all_mut().chunks_exact_mut(3).enumerate() {
        p.copy_from_slice(&at(i as u32 % width, i as u32 / width));
    }
    rgb
}

/// A mask from a value at each place.
fn grey(width: u32, height: u32, at: impl Fn(u32, u32) -> u8) -> Grey {
    let mut grey = Grey::filled(Size::new(width, height), [0]);
    for (i, p) in grey.bytes_all_mut().iter_mut().enumerate() {
        *p = at(i as u32 % width, i as u32 / width);
    }
    grey
}

/// Smooth in large, uneven in small.
fn texture(x: u32, y: u32) -> [u8; 3] {
    let noise =
        (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503)).wrapping_mul(2_246_822_519);
    let wave = |f: f32, shift: f32| 40.0 * (f * (x as f32 + 0.7 * y as f32) + shift).sin();
    let level = |c: u32| {
        128.0 + wave(0.05, c as f32) + wave(0.011, 2.0) + ((noise >> (c * 8 + 3)) & 15) as f32
    };
    [level(0) as u8, level(1) as u8, level(2) as u8]
}

fn roi(x: u32, y: u32, width: u32, height: u32) -> Roi {
    Roi { x, y, width, height }
}

/// The largest difference of two rows of bytes, or an error where their lengths differ.
fn differ(a: &[u8], b: &[u8]) -> std::result::Result<u8, String> {
    if a.len() != b.len() {
        return Err(format!("{} bytes where {} are right", a.len(), b.len()));
    }
    Ok(a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0))
}

/// Two pictures agree within the tolerance.
fn like_bytes(is: &[u8], right: &[u8], tolerance: &Tolerance) -> Checked {
    let worst = differ(is, right)?;
    holds(worst <= tolerance.levels, || format!("{worst} levels off"))
}

/// Two rows of values agree within the tolerance.
fn like_values(is: &[f32], right: &[f32], tolerance: &Tolerance) -> Checked {
    holds(is.len() == right.len(), || {
        format!("{} values where {} are right", is.len(), right.len())
    })?;
    let largest = right.iter().fold(1.0_f32, |m, v| m.max(v.abs()));
    for (i, (a, b)) in is.iter().zip(right).enumerate() {
        holds((a - b).abs() <= tolerance.values * largest, || {
            format!("value {i} is {a} where {b} is right")
        })?;
    }
    Ok(())
}
