//! The invisible mark of clips: what re-encoding leaves of it, and what it costs.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // Figures are told beside the verdict.

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mien_base::id::DeviceId;
use mien_base::limits;
use mien_base::recipe::{Action, Mark, Recipe};
use mien_base::report::Verdict;
use mien_face::mark::clip::Clip;
use mien_face::mark::{Altered, ClipCheck};
use mien_face::recipe;
use mien_media::clip::FrameSink as _;
use mien_media::h264::encode::Rate;
use mien_media::{mp4, open};
use mien_pixels::convert::Colour;
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::i420::I420;
use mien_pixels::made;
use mien_pixels::stamp::Turn;
use mien_pixels::view::Rgb;
use support::{Bench, load, picture};

const FRAMES: u32 = 120;
/// What raw frames are encoded with.
const RATE: Rate = Rate::Quantiser(22);
const SIZES: [Size; 2] = [Size::new(960, 540), Size::new(1920, 1080)];
/// What others do to a clip.
const ATTACKS: [(&str, &str); 3] = [
    ("as it is", ""),
    ("crf 33", "-c:v libx264 -crf 33"),
    ("crf 28, half", "-vf scale=iw/2:ih/2 -c:v libx264 -crf 28"),
];
const MOST_GROWTH: f64 = 10.0;

fn ffmpeg(args: &str, from: &Path, to: &Path) {
    let out = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-y", "-i"])
        .arg(from)
        .args(args.split(' ').filter(|arg| !arg.is_empty()))
        .args(["-an", "-pix_fmt", "yuv420p"])
        .arg(to)
        .output()
        .unwrap();
    assert!(out.status.success(), "{args}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The real clip in another size.
fn carphone(bench: &Bench, size: Size) -> PathBuf {
    let (path, Size { width, height }) = (bench.path("carphone.mp4"), size);
    let scale = format!("-vf scale={width}:{height}:flags=bicubic,setsar=1");
    let coded = "-c:v libx264 -preset ultrafast -qp 8 -bf 0";
    ffmpeg(&format!("{scale} {coded} -frames:v {FRAMES}"), &picture("carphone.mp4"), &path);
    path
}

/// The clip of the demo, in another size, and without marks.
fn faces(bench: &Bench, size: Size) -> PathBuf {
    let cut = |name: &str, at: usize| load(&picture(name)).view().crop(made::CUTS[at]).to_image();
    let cuts = [cut("astronaut.png", 0), cut("hopper.jpg", 1)];
    let third = frames(&picture("carphone.mp4"));
    let (ground, mut planes) = (made::ground(made::SIZE, 3), I420::new(made::SIZE, COLOUR));
    let mut raw = b"YUV4MPEG2 W960 H540 F30:1 Ip A1:1 C420jpeg\n".to_vec();
    for (number, face) in (0..FRAMES).zip(third.iter().cycle()) {
        let [a, b, c] = made::paths(number);
        let (mut frame, mut shown) = (ground.clone(), Rgb::filled(face.size(), [0; 3]));
        face.view().to_rgb(Roi::whole(face.size()), &mut shown.view_mut());
        let laid = [(cuts[0].view(), a), (cuts[1].view(), b), (shown.view(), c)];
        made::lay(&mut frame, &laid);
        planes.fill_from(frame.view());
        raw.extend_from_slice(b"FRAME\n");
        let rows = planes.view().planes().into_iter().flat_map(|plane| plane.rows());
        rows.for_each(|row| raw.extend_from_slice(row));
    }
    let (whole, path) = (bench.path("faces.y4m"), bench.path("faces.mp4"));
    fs::write(&whole, raw).unwrap();
    let Size { width, height } = size;
    let scale = format!("-vf scale={width}:{height}:flags=bicubic,setsar=1");
    ffmpeg(&format!("{scale} -c:v libx264 -preset ultrafast -qp 8 -bf 0"), &whole, &path);
    fs::remove_file(whole).unwrap();
    path
}

const COLOUR: Colour = Colour::BT601_LIMITED;

fn frames(path: &Path) -> Vec<I420> {
    let mut source = open::open(Box::new(File::open(path).unwrap())).unwrap();
    let (mut frame, mut all) = (I420::default(), Vec::new());
    while source.next(&mut frame).unwrap().is_some() {
        let mut kept = I420::default();
        kept.copy_from(frame.view());
        all.push(kept);
    }
    all
}

/// Encodes a clip as the program does, with the mark or without it. Gives the payload and the bytes
/// of the frames.
fn encode(from: &Path, to: &Path, marked: bool) -> (String, u64) {
    let mut source = open::open(Box::new(File::open(from).unwrap())).unwrap();
    let info = source.info().clone();
    let device = DeviceId::new(9).unwrap();
    let mark = Mark { device, counter: 41, ..Recipe::default().mark };
    let asked = Recipe { action: Action::Pass, others: Action::Pass, mark, ..Recipe::default() };
    let mut clip =
        Clip::new(&recipe::check(&asked).unwrap(), info.size, Turn::default(), info.colour);
    let segments = to.with_extension("segments");
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(&segments).unwrap();
    let mut writer = mp4::Writer::new(file.try_clone().unwrap(), &info, RATE).unwrap();
    let (mut frame, mut number) = (I420::default(), 0_u64);
    while let Some(timing) = source.next(&mut frame).unwrap() {
        if writer.in_segment() as u64 == limits::CLIP_SEGMENT {
            writer.end_segment().unwrap();
            clip.rest();
        }
        let idr = number.is_multiple_of(limits::CLIP_GOP);
        if marked {
            let at = Duration::from_millis(number * 33);
            frame = clip.apply(frame, Altered::Nothing, at, idr).unwrap().into_image();
        }
        writer.push(&frame, timing, idr).unwrap();
        number += 1;
    }
    assert_eq!(number, u64::from(FRAMES));
    let bytes = Box::new(writer).finish().unwrap().bytes;
    let finish = mp4::Finish { created: 1_700_000_000, aigc: None, range: None };
    let (mut segments, mut to) = (file, File::create(to).unwrap());
    mp4::join(&mut segments, bytes, &info, None, &finish, &mut to).unwrap();
    (clip.marks().payload.clone(), bytes)
}

fn verify(path: &Path) -> Verdict {
    let mut source = open::open(Box::new(File::open(path).unwrap())).unwrap();
    let info = source.info().clone();
    let mut check = ClipCheck::new(info.size, Turn::default(), info.colour.range);
    let mut frame = I420::default();
    while source.next(&mut frame).unwrap().is_some() {
        check.push(&frame);
    }
    check.finish(None)
}

#[test]
#[ignore = "needs pictures: tests/run sets MIEN_PICTURES; half a minute in release"]
fn every_gop_is_read_after_other_encoders_and_the_mark_costs_little() {
    let bench = Bench::bare("clip-marks");
    let mut faults = Vec::new();
    type Make = fn(&Bench, Size) -> PathBuf;
    let clips: [(&str, Make); 2] = [("carphone", carphone), ("faces", faces)];
    for (name, make) in clips {
        for size in SIZES {
            let from = make(&bench, size);
            let (plain, marked) = (bench.path("plain.mp4"), bench.path("marked.mp4"));
            let (_, before) = encode(&from, &plain, false);
            let (payload, after) = encode(&from, &marked, true);
            let growth = (after as f64 / before as f64 - 1.0) * 100.0;
            let case = format!("{name} {}x{}", size.width, size.height);
            eprintln!("{case}: {before} bytes, {growth:.1} % more with the mark");
            if growth > MOST_GROWTH {
                faults.push(format!("{case}: {growth:.1} % growth"));
            }
            for (attack, args) in ATTACKS {
                let attacked = bench.path("attacked.mp4");
                if args.is_empty() {
                    fs::copy(&marked, &attacked).unwrap();
                } else {
                    ffmpeg(args, &marked, &attacked);
                }
                let says = verify(&attacked);
                let found = says.clip.clone().unwrap();
                eprintln!("  {attack}: {} of {} GOPs", found.marked, found.gops);
                let whole = says.payload.as_ref() == Some(&payload) && found.gops == 2;
                if !whole || found.marked != found.gops || found.others > 0 {
                    faults.push(format!("{case}, {attack}: {found:?} {:?}", says.payload));
                }
            }
            let says = verify(&plain);
            assert_eq!(says.payload, None, "{case}: without a mark none is read");
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS and MIEN_PICTURES"]
fn the_report_claims_what_verify_reads() {
    let bench = Bench::new("clip-marks-small");
    for (width, height) in [(176, 144), (160, 120), (320, 240)] {
        let from = carphone(&bench, Size::new(width, height));
        let args = ["--detector-size", "96", "--quality", "75", "--json"];
        let from = from.to_str().unwrap();
        let ran = bench.run(&[&["process", from, "-o", "out.mp4"], &args[..]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let report = ran.json()["clips"][0]["report"]["marks"].clone();
        fs::remove_file(from).unwrap();
        let says = bench.run(&["verify", "out.mp4", "--json"]).json();
        let read = says["clip"]["marked"].as_u64();
        assert_eq!(report["marked"].as_u64(), read, "{width}x{height}: {report} {says}");
        let least = u64::from(mien_pixels::stdm::LEAST);
        let expected = if u64::from(height) < least { 0 } else { 2 };
        assert_eq!(read, Some(expected), "{width}x{height}: {says}");
        let named = report["reasons"].to_string().contains("no invisible mark");
        assert_eq!(named, expected == 0, "{report}");
    }
}
