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

/// What each sound packet holds and when it is heard.
pub fn sound(path: &Path) -> Vec<String> {
    let count = probe(path, "a", "stream=codec_type").matches("audio").count();
    (0..count)
        .map(|track| {
            let map = format!("0:a:{track}");
            let path = path.to_str().unwrap();
            let args = ["-v", "error", "-copyts", "-i", path, "-map", &map, "-c", "copy"];
            let text =
                run("ffmpeg", &[&args[..], &["-f", "framehash", "-hash", "md5", "-"]].concat());
            // Without durations: for fragments ffmpeg states the codec's, not the file's.
            let fields = |line: &str| {
                let f: Vec<_> = line.split(',').map(str::trim).collect();
                format!("{},{},{},{}", f[1], f[2], f[4], f[5])
            };
            let packets = text.lines().filter(|line| !line.starts_with('#')).map(fields);
            let stream = probe(path.as_ref(), &format!("a:{track}"), "stream=codec_name,start_pts");
            packets.fold(stream, |all, line| all + &line + "\n")
        })
        .collect()
}

/// Size, aspect, colour and rotation.
pub fn side(path: &Path) -> String {
    probe(
        path,
        "v:0",
        "stream=width,height,sample_aspect_ratio,color_range,color_space:stream_side_data=rotation",
    )
    .replace("N/A", "1:1")
}

const SOURCE: &str = "-f lavfi -i testsrc2=s=352x288:r=30:d=2";
const NOISE: &str = "-vf noise=alls=6:allf=t";
const TONE: &str = "-f lavfi -i sine=f=440:d=2";
const TONE2: &str = "-f lavfi -i sine=f=880:r=22050:d=2";
const X264: &str = "-pix_fmt yuv420p -c:v libx264 -preset fast";

/// Name, how it is made. `@` is the clip before it.
fn clips() -> Vec<(&'static str, String)> {
    let x = |extra: &str| format!("{SOURCE} {NOISE} {X264} {extra}");
    let y = |extra: &str| format!("{SOURCE} {TONE} {NOISE} {X264} -c:a aac {extra}");
    vec![
        ("baseline", x("-profile:v baseline")),
        ("main, B-frames", x("-profile:v main -bf 3")),
        ("high, B-pyramid, 8 references", x("-profile:v high -bf 8 -refs 8 -g 250")),
        ("high, no B-frames", x("-bf 0")),
        ("open GOP", x("-g 20 -x264-params open-gop=1")),
        ("temporal direct", x("-bf 3 -x264-params direct=temporal")),
        ("interlace-free PAFF off, 4 slices", x("-x264-params slices=4")),
        ("all intra, no stss", x("-g 1")),
        ("faststart, sound", y("-movflags +faststart")),
        ("index at the end, sound", y("")),
        ("fragments", y("-movflags frag_keyframe+empty_moov+default_base_moof -g 15")),
        ("fragments of old", y("-movflags frag_keyframe -g 15")),
        ("a fragment a frame", x("-bf 0 -movflags frag_every_frame+empty_moov")),
        ("ctts of version 1", y("-movflags negative_cts_offsets -bf 2")),
        ("no edit list", y("-use_editlist 0 -bf 2")),
        ("QuickTime, PCM", format!("{SOURCE} {TONE} {NOISE} {X264} -c:a pcm_s16le -f mov")),
        ("QuickTime, ALAC", format!("{SOURCE} {TONE} {NOISE} {X264} -c:a alac -f mov")),
        ("two sound tracks", format!(
            "{SOURCE} {TONE} {TONE2} -map 0 -map 1 -map 2 {NOISE} {X264} -c:a:0 aac -c:a:1 ac3 -ar:a:1 48000"
        )),
        ("no sound", x("-an")),
        ("size 202x178", "-f lavfi -i testsrc2=s=202x178:r=25:d=1 -pix_fmt yuv420p -c:v libx264".into()),
        ("size 1920x1080", "-f lavfi -i testsrc2=s=1920x1080:r=25:d=0.4 -pix_fmt yuv420p -c:v libx264 -preset ultrafast".into()),
        ("size 16x16", "-f lavfi -i testsrc2=s=16x16:r=25:d=1 -pix_fmt yuv420p -c:v libx264".into()),
        ("30000/1001 a second", "-f lavfi -i testsrc2=s=176x144:r=30000/1001:d=3 -pix_fmt yuv420p -c:v libx264".into()),
        ("variable rate", format!("{SOURCE} -vf setpts=(N*N/9+N)/(30*TB) -vsync vfr {X264} -video_track_timescale 90000")),
        ("variable rate, no B-frames, sound", format!("{SOURCE} {TONE} -vf setpts=(N*N/9+N)/(30*TB) -vsync vfr {X264} -bf 0 -c:a aac -video_track_timescale 90000")),
        ("video half a second late", format!("{TONE} -itsoffset 0.5 {SOURCE} -map 1:v -map 0:a {NOISE} {X264} -c:a aac")),
        ("sound half a second late", format!("{SOURCE} -itsoffset 0.5 {TONE} -map 0:v -map 1:a {NOISE} {X264} -c:a aac")),
        ("sample aspect 4:3", x("-aspect 16:9")),
        ("BT.709, full range", x("-colorspace bt709 -color_primaries bt709 -color_trc bt709 -color_range pc -movflags write_colr")),
        ("1 frame", "-f lavfi -i testsrc2=s=64x64:r=25 -frames:v 1 -pix_fmt yuv420p -c:v libx264".into()),
        ("1 hour of black", "-f lavfi -i color=black:s=64x64:r=1:d=3600 -pix_fmt yuv420p -c:v libx264 -g 600".into()),
    ]
}

/// What clips are made of that are refused.
pub const SHORT: &str = "-f lavfi -i testsrc2=s=176x144:r=25:d=1";

/// How it is made, its file, and what it is called when it is refused.
pub fn refused() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        ("-c:v libx265 -x265-params log-level=none", "hevc.mp4", "HEVC (H.265)"),
        ("-c:v libx265 -x265-params log-level=none -tag:v hvc1", "hevc.mov", "HEVC (H.265)"),
        ("-c:v libaom-av1 -cpu-used 8 -frames:v 3", "av1.mp4", "AV1"),
        ("-c:v libvpx-vp9 -deadline realtime -frames:v 5", "vp9.mp4", "VP9"),
        ("-c:v mpeg4", "mpeg4.mp4", "MPEG-4 part 2"),
        ("-c:v prores_ks", "prores.mov", "ProRes"),
        ("-c:v mjpeg", "mjpeg.mov", "Motion JPEG"),
        ("-c:v libx264 -pix_fmt yuv420p10le", "ten.mp4", "10 bits a sample"),
        ("-c:v libx264 -pix_fmt yuv422p", "422.mp4", "4:2:2"),
        ("-c:v libx264 -pix_fmt yuv444p", "444.mp4", "4:4:4"),
        ("-c:v libx264 -pix_fmt gray", "grey.mp4", "4:0:0"),
        ("-c:v libx264 -pix_fmt yuv420p -flags +ildct+ilme", "fields.mp4", "Interlaced H.264"),
        ("-c:v libx264 -pix_fmt yuv420p", "clip.mkv", "Matroska or WebM"),
        ("-c:v libx264 -pix_fmt yuv420p", "clip.avi", "AVI"),
        ("-c:v libx264 -pix_fmt yuv420p", "clip.ts", "MPEG transport stream"),
        ("-c:v libx264 -pix_fmt yuv420p", "clip.h264", "without a container"),
    ]
}

/// Makes each clip in turn.
pub fn every(folder: &Folder, mut each: impl FnMut(&str, &Path)) {
    for (name, made) in clips() {
        let input = folder.file(if made.ends_with("-f mov") { "in.mov" } else { "in.mp4" });
        ffmpeg(&made, &input);
        each(name, &input);
    }
    for turn in ["90", "180", "270"] {
        let (flat, input) = (folder.file("flat.mp4"), folder.file("turned.mp4"));
        ffmpeg(&format!("{SOURCE} {NOISE} {X264}"), &flat);
        ffmpeg(&format!("-i {} -c copy -metadata:s:v rotate={turn}", flat.display()), &input);
        each(&format!("turned by {turn}"), &input);
    }
    let flat = folder.file("long.mp4");
    ffmpeg(&format!("{SOURCE} {TONE} {NOISE} {X264} -g 20 -c:a aac"), &flat);
    let input = folder.file("cut.mp4");
    ffmpeg(&format!("-ss 0.5 -i {} -c copy", flat.display()), &input);
    each("edit list with an offset", &input);
}
