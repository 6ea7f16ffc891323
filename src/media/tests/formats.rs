//! Made clips of many kinds through decode, encode and join: what comes out is what went in.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

use mien_media::{mp4, open};
use mien_pixels::i420::I420;
use support::{Folder, ffmpeg, probe, remake, run, times};

/// What each sound packet holds and when it is heard.
fn sound(path: &Path) -> Vec<String> {
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

fn side(path: &Path) -> String {
    probe(
        path,
        "v:0",
        "stream=width,height,sample_aspect_ratio,color_range,color_space:stream_side_data=rotation",
    )
    .replace("N/A", "1:1")
}

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
    for (name, made) in clips() {
        let input = folder.file(if made.ends_with("-f mov") { "in.mov" } else { "in.mp4" });
        ffmpeg(&made, &input);
        same(name, &input, &folder, &mut table);
    }
    for turn in ["90", "180", "270"] {
        let (flat, input) = (folder.file("flat.mp4"), folder.file("turned.mp4"));
        ffmpeg(&format!("{SOURCE} {NOISE} {X264}"), &flat);
        ffmpeg(&format!("-i {} -c copy -metadata:s:v rotate={turn}", flat.display()), &input);
        same(&format!("turned by {turn}"), &input, &folder, &mut table);
    }
    let flat = folder.file("long.mp4");
    ffmpeg(&format!("{SOURCE} {TONE} {NOISE} {X264} -g 20 -c:a aac"), &flat);
    let input = folder.file("cut.mp4");
    ffmpeg(&format!("-ss 0.5 -i {} -c copy", flat.display()), &input);
    same("edit list with an offset", &input, &folder, &mut table);
    println!("{table}");
}
