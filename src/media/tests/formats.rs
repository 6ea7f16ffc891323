//! Made clips of many kinds through decode, encode and join: what comes out is what went in.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

use mien_media::{mp4, open};
use mien_pixels::i420::I420;
use support::{Folder, every, ffmpeg, probe, remake, run, side, sound, times};

/// Mean difference of luma from what ffmpeg decodes.
fn difference(path: &Path, folder: &Folder) -> f64 {
    let raw = folder.file("raw.yuv");
    ffmpeg(
        &format!("-noautorotate -i {} -map 0:v:0 -vsync passthrough -f rawvideo", path.display()),
        &raw,
    );
    let raw = fs::read(raw).unwrap();
    let mut source = open::open(Box::new(File::open(path).unwrap())).unwrap();
    let (mut frame, mut at, mut sum, mut count) = (I420::default(), 0, 0_u64, 0_u64);
    while source.next(&mut frame).unwrap().is_some() {
        for plane in frame.view().planes() {
            for row in plane.rows() {
                let other = &raw[at..at + row.len()];
                sum += row.iter().zip(other).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
                count += row.len() as u64;
                at += row.len();
            }
        }
    }
    assert_eq!(at, raw.len(), "{}: frames", path.display());
    sum as f64 / count as f64
}

fn same(name: &str, input: &Path, folder: &Folder, table: &mut String) {
    let out = folder.file("out.mp4");
    let made = remake(input, folder, &out).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (before, after) = (times(input), times(&out));
    assert!(
        before == after,
        "{name}: times {:?} {:?}",
        &before[..4.min(before.len())],
        &after[..4.min(after.len())]
    );
    let ours: Vec<_> = made.times.iter().map(|t| (t.pts, i64::from(t.duration))).collect();
    assert_eq!(ours, before, "{name}: times as they are decoded");
    assert_eq!(made.frames, before.len() as u64, "{name}: frames");
    assert_eq!(made.info.frames, Some(made.frames), "{name}: frames foretold");
    assert_eq!(side(input), side(&out), "{name}: size, aspect, colour, rotation");
    let base = |path| probe(path, "v:0", "stream=time_base");
    assert_eq!(base(input), base(&out), "{name}: time base");
    assert!(sound(input) == sound(&out), "{name}: sound");
    let tags = run(
        "ffprobe",
        &[
            "-v",
            "error",
            "-show_entries",
            "format_tags=AIGC",
            "-of",
            "csv=p=0",
            out.to_str().unwrap(),
        ],
    );
    assert!(tags.contains("Label"), "{name}: {tags}");
    let record = mp4::aigc(&mut File::open(&out).unwrap()).unwrap();
    assert_eq!(record.as_deref(), Some("{\"Label\":\"1\"}"), "{name}");
    let off = difference(input, folder);
    assert!(off < 0.2, "{name}: {off} levels from ffmpeg's frames");
    let lost = difference(&out, folder);
    assert!(lost < 0.01, "{name}: our own stream decodes {lost} levels apart");
    let sizes = (fs::metadata(input).unwrap().len(), fs::metadata(&out).unwrap().len());
    let size = made.info.size;
    writeln!(
        table,
        "{name:36} {:>9} {:>5} frames, {} sound, {:>3}°  times equal, {:>8} -> {:>8} bytes, decode off by {off:.4}",
        format!("{}x{}", size.width, size.height),
        made.frames,
        made.info.sound.len(),
        made.info.rotation.degrees(),
        sizes.0,
        sizes.1,
    )
    .unwrap();
}

#[test]
#[ignore = "needs ffmpeg: tests/run installs it"]
fn clips_of_every_kind_come_out_with_the_times_and_the_sound_they_had() {
    let folder = Folder::new("table");
    let mut table = String::new();
    every(&folder, |name, input| same(name, input, &folder, &mut table));
    println!("{table}");
}
