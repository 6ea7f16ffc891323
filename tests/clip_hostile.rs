//! Damaged clips through `mien process`: every one is refused or whole, and nothing is left of it.

#![allow(clippy::unwrap_used)]

mod support;
#[path = "support/clips.rs"]
mod clips;

use std::fs;

use support::Bench;

/// Damaged clips of each container.
const FILES: u32 = 60;

/// The file cut short, or with a few bytes changed, ever further in.
fn damaged(whole: &[u8], n: u32) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let mut state = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut below = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % most
    };
    if n.is_multiple_of(4) {
        bytes.truncate(below(whole.len()));
        return bytes;
    }
    // Half of them in the first kilobyte, where headers and the index stand.
    let reach = if n.is_multiple_of(2) { whole.len() } else { whole.len().min(1024) };
    for _ in 0..1 + below(6) {
        let at = below(reach);
        bytes[at] = match below(3) {
            0 => 0xff,
            1 => 0,
            _ => below(256) as u8,
        };
    }
    bytes
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn damaged_clips_leave_the_root_alive_and_no_file() {
    let bench = Bench::new("clip-hostile");
    let raw = clips::wandering(4);
    clips::write(&bench.path("in.y4m"), &raw);
    let made = bench.run(&["process", "in.y4m", "-o", "in.mp4", "--detector-size", "96"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let coded = fs::read(bench.path("in.mp4")).unwrap();
    fs::create_dir(bench.path("in")).unwrap();
    for n in 0..FILES {
        fs::write(bench.path(&format!("in/{n:03}.mp4")), damaged(&coded, n)).unwrap();
        fs::write(bench.path(&format!("in/{n:03}.y4m")), damaged(&raw, n)).unwrap();
    }
    let args = ["process", "in", "-o", "out", "--format", "mp4", "--json"];
    let ran = bench.run(&[&args[..], &["--detector-size", "96"]].concat());
    // Both endings become one: they are run apart.
    assert_eq!(ran.code, 2, "{}", ran.err);
    let ran = bench.run(&["process", "in", "-o", "out", "--json", "--detector-size", "96"]);
    assert!([0, 4, 5, 13].contains(&ran.code), "{}: {}", ran.code, ran.err);
    let json = ran.json();
    let mut outcomes = json["clips"].as_array().unwrap().clone();
    // What lost its first bytes may be taken for a picture, and is refused as one.
    outcomes.extend(json["pictures"].as_array().unwrap().clone());
    assert_eq!(outcomes.len() as u32, 2 * FILES, "the root program went through all of them");
    let (mut refused, mut killers) = (0, 0);
    for outcome in &outcomes {
        let output = bench.path(outcome["output"].as_str().unwrap());
        if outcome["error"].is_null() {
            assert!(outcome["report"]["frames"].as_u64().unwrap() > 0, "{outcome}");
            assert!(fs::metadata(&output).unwrap().len() > 100, "{outcome}");
            continue;
        }
        refused += 1;
        assert!(!output.exists(), "{outcome} left a file");
        let kind = outcome["error"]["kind"].as_str().unwrap();
        killers += u32::from(kind == "Quarantined");
        assert!(["BadInput", "TooLarge", "Usage", "Quarantined"].contains(&kind), "{outcome}");
    }
    println!("{refused} refused, {killers} of them killed two workers");
    assert!(refused >= FILES / 2, "{refused}");
    let left = |name: &String| name.contains(".part") || name.contains(".mien");
    assert!(!bench.files().iter().any(left), "{:?}", bench.files());
}
