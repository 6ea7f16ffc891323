//! Malformed pictures through `mien process`: every one is refused or whole, and nothing is left.

#![allow(clippy::unwrap_used)]

mod support;
#[path = "support/hostile.rs"]
mod hostile;

use std::fs;
use std::time::{Duration, Instant};

use mien_pixels::codec::{self, FileFormat, Metadata};
use support::{Bench, small_face};

/// Of any picture: less than the worker's deadline for one that hangs, twice.
const LONGEST: Duration = Duration::from_secs(30);

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn hundreds_of_malformed_files_leave_the_root_alive_and_no_file() {
    let bench = Bench::new("hostile");
    let face = small_face(72);
    let encode =
        |format| codec::encode(face.view(), None, format, 90, &Metadata::default()).unwrap();
    let (jpeg, png) = (encode(FileFormat::Jpeg), encode(FileFormat::Png));
    let files = hostile::make(&[("jpeg", &jpeg), ("png", &png)], 7);
    assert!(files.len() >= 200, "{} files", files.len());
    fs::create_dir_all(bench.path("in")).unwrap();
    for (n, file) in files.iter().enumerate() {
        let ending = if file.name.starts_with("png") { "png" } else { "jpg" };
        fs::write(bench.path(&format!("in/{n:03}.{ending}")), &file.bytes).unwrap();
    }
    #[expect(clippy::disallowed_methods, reason = "a test that bounds the whole run")]
    let start = Instant::now();
    let ran = bench.run(&["process", "in", "-o", "out", "--json", "--detector-size", "96"]);
    assert!([0, 4, 5].contains(&ran.code), "{}: {}", ran.code, ran.err);
    let json = ran.json();
    let outcomes = json["pictures"].as_array().unwrap();
    assert_eq!(outcomes.len(), files.len(), "the root program went through all of them");
    assert!(start.elapsed() < LONGEST * 20, "no file held it up: {:?}", start.elapsed());
    let mut refused = 0;
    for (outcome, file) in outcomes.iter().zip(&files) {
        let output = bench.path(outcome["output"].as_str().unwrap());
        if outcome["error"].is_null() {
            assert!(!file.refused, "{} was taken", file.name);
            let written = fs::read(&output).unwrap();
            codec::decode(&written, &codec::Bounds::default()).unwrap();
        } else {
            refused += 1;
            assert!(!output.exists(), "{} left a file", file.name);
            let kind = outcome["error"]["kind"].as_str().unwrap();
            assert!(["BadInput", "TooLarge"].contains(&kind), "{}: {outcome}", file.name);
        }
    }
    assert!(refused * 2 > files.len(), "most are malformed: {refused} of {}", files.len());
    assert!(bench.files().iter().all(|name| !name.contains(".part")), "{:?}", bench.files());
}
