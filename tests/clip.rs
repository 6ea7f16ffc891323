//! Clips through `mien process`: whole and marked or not there, the same twice, from where they stopped.

#![allow(clippy::unwrap_used)]

mod support;
#[path = "support/clips.rs"]
mod clips;

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use support::{Bench, Ran, picture};

const QUICK: [&str; 4] = ["--detector-size", "96", "--clock", "1796000000"];
const JOB: [&str; 2] = ["--job", "00112233445566778899aabbccddeeff"];

fn run(bench: &Bench, args: &[&str]) -> Ran {
    bench.run(&[args, &QUICK].concat())
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn the_same_clip_twice_gives_the_same_marked_bytes() {
    let bench = Bench::new("clip-twice");
    clips::write(&bench.path("in.y4m"), &clips::wandering(150));
    for out in ["a.mp4", "b.mp4"] {
        let ran = run(&bench, &[&["process", "in.y4m", "-o", out, "--json"], &JOB[..]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let clip = &ran.json()["clips"][0]["report"];
        assert_eq!((clip["frames"].as_u64(), clip["tracks"].as_u64()), (Some(150), Some(1)));
        assert_eq!(clip["faces"].as_u64(), Some(150), "{clip}");
        assert_eq!(clip["marks"]["marked"], clip["marks"]["gops"]);
        assert_eq!(clip["marks"]["gops"].as_u64(), Some(3));
        assert_eq!(clip["marks"]["visible"], true);
    }
    let bytes = fs::read(bench.path("a.mp4")).unwrap();
    assert!(bytes == fs::read(bench.path("b.mp4")).unwrap());
    assert_eq!(bench.files(), ["a.mp4", "b.mp4", "in.y4m"]);
    // As it goes through a pipe.
    let ran =
        run(&bench, &[&["process", "a.mp4", "-o", "-", "--format", "y4m"], &JOB[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.bytes.windows(6).filter(|w| w == b"FRAME\n").count(), 150);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_clip_in_which_nobody_is_says_that_its_marks_say_more() {
    let bench = Bench::new("clip-nobody");
    clips::write(&bench.path("in.y4m"), &clips::empty(70));
    bench.enrol("astronaut", &picture("astronaut.png"));
    for how in [["--swap", "astronaut"], ["--anonymise", "blur"]] {
        let args = [&["process", "in.y4m", "-o", "out.mp4", "--json"], &how[..]].concat();
        let ran = run(&bench, &args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let clip = &ran.json()["clips"][0]["report"];
        assert_eq!((clip["faces"].as_u64(), clip["frames"].as_u64()), (Some(0), Some(70)));
        let reasons = clip["marks"]["reasons"].to_string();
        assert!(reasons.contains("no face was altered"), "{reasons}");
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn raw_frames_go_through_pipes_as_they_go_through_files() {
    let bench = Bench::new("clip-pipe");
    let raw = clips::wandering(20);
    clips::write(&bench.path("in.y4m"), &raw);
    let file = run(&bench, &[&["process", "in.y4m", "-o", "out.y4m"], &JOB[..]].concat());
    assert_eq!(file.code, 0, "{}", file.err);
    let args = [&["process", "-", "-o", "-"], &JOB[..], &QUICK[..]].concat();
    let mut child = bench
        .mien(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let feeder = std::thread::Builder::new().spawn(move || {
        // Slowly, and in odd pieces: who waits for a pipe is not hung.
        for part in raw.chunks(100_001) {
            pipe.write_all(part).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let piped: Ran = child.wait_with_output().unwrap().into();
    feeder.unwrap().join().unwrap();
    assert_eq!(piped.code, 0, "{}", piped.err);
    assert!(piped.bytes == fs::read(bench.path("out.y4m")).unwrap());
    // Into a container: only frames can come through a pipe, but they can become a file.
    let mut child = bench
        .mien(&[&["process", "-", "-o", "out.mp4"], &QUICK[..]].concat())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&clips::empty(5)).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(bench.files(), ["in.y4m", "out.mp4", "out.y4m"]);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn pictures_and_clips_are_taken_mixed_and_a_range_holds_for_clips() {
    let bench = Bench::new("clip-mixed");
    fs::create_dir(bench.path("in")).unwrap();
    clips::write(&bench.path("in/a.y4m"), &clips::wandering(40));
    fs::copy(picture("hopper.jpg"), bench.path("in/b.jpg")).unwrap();
    fs::write(bench.path("in/c.mp4"), b"\0\0\0\x18ftypisom\0\0\0\0isomiso2").unwrap();
    let ran = run(&bench, &["process", "in", "-o", "out", "--json", "--range", "0.5-1.0"]);
    assert_eq!(ran.code, 4, "the broken one: {}", ran.err);
    let json = ran.json();
    assert_eq!(json["pictures"].as_array().unwrap().len(), 1);
    let (whole, broken) = (&json["clips"][0], &json["clips"][1]);
    assert_eq!(whole["report"]["frames"].as_u64(), Some(15), "{whole}");
    assert_eq!(broken["error"]["kind"], "BadInput", "{broken}");
    assert_eq!(bench.files(), ["in/a.y4m", "in/b.jpg", "in/c.mp4", "out/a.y4m", "out/b.jpg"]);
    let none = run(&bench, &["process", "in/a.y4m", "-o", "none.mp4", "--range", "99-100"]);
    assert_eq!(none.code, 4);
    assert!(none.err.contains("no frame in the given range"), "{}", none.err);
    let wrong = run(&bench, &["process", "in/a.y4m", "-o", "out.jpg"]);
    assert!(wrong.code == 2 && wrong.err.contains(".mp4 or .y4m"), "{}", wrong.err);
    let other = run(&bench, &["process", "in/b.jpg", "-o", "out.mp4"]);
    assert!(other.code == 2 && other.err.contains(".jpg or .png"), "{}", other.err);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_detection_prints_one_line_a_frame() {
    let bench = Bench::new("clip-detect");
    clips::write(&bench.path("in.y4m"), &clips::wandering(12));
    let ran = run(&bench, &["detect", "in.y4m"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 12);
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(line["frame"].as_u64(), Some(n as u64));
        assert!((line["seconds"].as_f64().unwrap() - n as f64 / 30.0).abs() < 1e-3);
        let face = &line["faces"][0];
        assert_eq!(face["track"].as_u64(), Some(1), "{line}");
        let middle = face["box"][0].as_f64().unwrap() + face["box"][2].as_f64().unwrap();
        assert!((middle / 2.0 - (46.0 + n as f64)).abs() < 16.0, "{line}");
    }
    assert_eq!(bench.files(), ["in.y4m"]);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn what_is_no_clip_that_we_read_is_refused_with_the_command_that_converts() {
    let bench = Bench::new("clip-foreign");
    for (name, bytes) in [
        ("a.mkv", &b"\x1aE\xdf\xa3\x01\0\0\0\0\0\0\x23B\x86\x81\x01"[..]),
        ("b.avi", b"RIFF\0\0\0\0AVI LIST\0\0\0\0hdrlavih"),
        ("c.y4m", b"YUV4MPEG2 W16 H16 F30:1 C422\nFRAME\n"),
        ("d.y4m", b"YUV4MPEG2 W16 H16 F30:1 It\nFRAME\n"),
    ] {
        fs::write(bench.path(name), bytes).unwrap();
        let ran = run(&bench, &["process", name, "-o", "out.mp4"]);
        assert_eq!(ran.code, 4, "{name}: {}", ran.err);
        assert!(ran.err.contains("ffmpeg"), "{name}: {}", ran.err);
    }
    assert_eq!(bench.files(), ["a.mkv", "b.avi", "c.y4m", "d.y4m"]);
}
