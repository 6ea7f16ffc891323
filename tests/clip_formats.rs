//! Made clips of many kinds through `mien process`: times, sound and shape of the output are the input's.

#![allow(clippy::unwrap_used)]

#[path = "../src/media/tests/support/mod.rs"]
mod made;
mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use made::{Folder, SHORT, every, ffmpeg, probe, refused, side, sound, times};
use support::Bench;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, before: &T, after: &T) -> Result<(), String> {
    if before == after { Ok(()) } else { Err(format!("{what}: {before:?} -> {after:?}")) }
}

/// Takes a clip through `mien process`, and gives its line of the table, or what is not as it was.
fn came_out(bench: &Bench, name: &str, input: &Path) -> Result<String, String> {
    let out = bench.path("out.mp4");
    let _ = fs::remove_file(&out);
    let args = ["process", input.to_str().unwrap(), "-o", "out.mp4", "--json"];
    let ran = bench.run(&[&args[..], &["--detector-size", "96"]].concat());
    if ran.code != 0 {
        return Err(format!("exit code {}: {}", ran.code, ran.err));
    }
    let (before, after) = (times(input), times(&out));
    same("times", &before, &after)?;
    same("size, aspect, colour, rotation", &side(input), &side(&out))?;
    let tracks = sound(&out);
    same("sound", &sound(input), &tracks)?;
    let base = |path| probe(path, "v:0", "stream=time_base");
    same("time base", &base(input), &base(&out))?;
    let report = &ran.json()["clips"][0]["report"];
    same("frames", &Some(before.len() as u64), &report["frames"].as_u64())?;
    let tracks = tracks.len();
    Ok(format!(
        "| {name} | {}x{} | {} | {tracks} |",
        report["width"],
        report["height"],
        before.len()
    ))
}

const TABLE: &str = include_str!("../docs/clips.md");

#[test]
#[ignore = "needs the models and ffmpeg: tests/run has both"]
fn clips_of_every_kind_come_out_of_process_with_the_times_and_the_sound_they_had() {
    let bench = Bench::new("clip-formats");
    let folder = Folder::new("process");
    let mut wrong = String::new();
    every(&folder, |name, input| match came_out(&bench, name, input) {
        Ok(line) => {
            println!("{line}");
            if !TABLE.contains(&line) {
                writeln!(wrong, "{name}: docs/clips.md has no such line").unwrap();
            }
        }
        Err(why) => writeln!(wrong, "{name}: {why}").unwrap(),
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
#[ignore = "needs the models and ffmpeg: tests/run has both"]
fn what_is_not_read_is_refused_by_process_with_the_command_that_converts_it() {
    let bench = Bench::new("clip-refused");
    let folder = Folder::new("process-refused");
    for (made, name, words) in refused() {
        let input = folder.file(name);
        ffmpeg(&format!("{SHORT} {made}"), &input);
        let ran = bench.run(&["process", input.to_str().unwrap(), "-o", "out.mp4"]);
        assert_eq!(ran.code, 4, "{name}: {}", ran.err);
        assert!(ran.err.contains(words) && ran.err.contains("ffmpeg -i IN"), "{name}: {}", ran.err);
        assert!(TABLE.contains(words), "docs/clips.md does not name {words}");
    }
    assert!(bench.files().is_empty(), "{:?}", bench.files());
}
