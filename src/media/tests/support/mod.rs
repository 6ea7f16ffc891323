//! Clips made by ffmpeg, and the whole way from one file to another.

#![allow(dead_code, unreachable_pub, missing_debug_implementations)] // Each test takes what it needs.
#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use mien_base::limits;
use mien_media::clip::{ClipInfo, FrameSink, ReadSeek, Timing};
use mien_media::errors::Result;
use mien_media::h264::encode::Rate;
use mien_media::mp4::{self, Finish};
use mien_media::open;
use mien_pixels::i420::I420;

/// A folder that goes away.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mien-media-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{program} {args:?}: {error}");
    String::from_utf8(out.stdout).unwrap_or_default()
}

pub fn ffmpeg(args: &str, out: &Path) {
    let mut all: Vec<&str> = "-v error -nostdin -y".split(' ').collect();
    all.extend(args.split(' ').filter(|arg| !arg.is_empty()));
    all.push(out.to_str().unwrap());
    run("ffmpeg", &all);
}

pub fn probe(path: &Path, stream: &str, show: &str) -> String {
    let args = ["-v", "error", "-select_streams", stream, "-show_entries", show, "-of", "csv=p=0"];
    run("ffprobe", &[&args[..], &[path.to_str().unwrap()]].concat())
}

/// Times and durations of the frames that ffmpeg shows.
pub fn times(path: &Path) -> Vec<(i64, i64)> {
    let text = probe(path, "v:0", "frame=pts,pkt_duration");
    let mut all: Vec<(i64, i64)> = text
        .lines()
        .map(|line| line.trim_end_matches(',').split(','))
        .filter_map(|mut f| Some((f.next()?.parse().ok()?, f.next()?.parse().unwrap_or(0))))
        .collect();
    // A reordered stream's packet durations are those of decoding; what counts is the next frame.
    for at in 1..all.len() {
        all[at - 1].1 = all[at].0 - all[at - 1].0;
    }
    all
}

pub struct Made {
    pub info: ClipInfo,
    pub times: Vec<Timing>,
    pub frames: u64,
}

/// An empty file to write and read.
pub fn scratch(path: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

/// The whole way, as the worker goes it: segments, then the join.
pub fn remake(input: &Path, folder: &Folder, out: &Path) -> Result<Made> {
    let mut source = open::open(Box::new(File::open(input).unwrap()))?;
    let info = source.info().clone();
    let path = folder.file("segments");
    let segments = scratch(&path);
    let rate = Rate::like(&info);
    let mut writer = mp4::Writer::new(segments.try_clone().unwrap(), &info, rate)?;
    let (mut frame, mut times) = (I420::default(), Vec::new());
    while let Some(timing) = source.next(&mut frame)? {
        if writer.in_segment() as u64 == limits::CLIP_SEGMENT {
            writer.end_segment()?;
        }
        let idr = (writer.in_segment() as u64).is_multiple_of(limits::CLIP_GOP);
        writer.push(&frame, timing, idr)?;
        times.push(timing);
    }
    let bytes = Box::new(writer).finish()?.bytes;
    let mut input = File::open(input).unwrap();
    let sound: Option<&mut dyn ReadSeek> =
        if info.sound.is_empty() { None } else { Some(&mut input) };
    let finish = Finish { created: 1_700_000_000, aigc: Some("{\"Label\":\"1\"}"), range: None };
    let mut to = File::create(out).unwrap();
    let mut from = segments;
    let summary = mp4::join(&mut from, bytes, &info, sound, &finish, &mut to)?;
    assert_eq!(summary.bytes, fs::metadata(out).unwrap().len());
    Ok(Made { info, times, frames: summary.frames })
}
