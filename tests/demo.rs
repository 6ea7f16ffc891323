//! What `mien demo` promises: a clip of three moving faces, each recipe on it, marked and judged.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Bench, picture};

/// Copies what `mien model fetch` keeps, so that the demo fetches nothing.
fn stocked(bench: &Bench) {
    let cache = PathBuf::from(std::env::var_os("MIEN_HOME").expect("tests/run sets MIEN_HOME"));
    for folder in ["packages", "keys"] {
        copy(&cache.join(folder), &bench.home().join(folder));
    }
    let pictures = bench.home().join("pictures");
    fs::create_dir_all(&pictures).unwrap();
    for name in ["astronaut.png", "hopper.jpg", "carphone.png", "carphone.mp4"] {
        fs::copy(picture(name), pictures.join(name)).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn kinds(clip: &Value) -> Vec<&str> {
    let mut done: Vec<&str> =
        clip["judged"].as_array().unwrap().iter().map(|j| j["done"].as_str().unwrap()).collect();
    done.sort_unstable();
    done.dedup();
    done
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_HOME and MIEN_PICTURES"]
fn the_demo_hides_swaps_and_goes_by_rules_on_a_clip_of_three_faces() {
    let bench = Bench::bare("demo");
    stocked(&bench);
    let ran = bench.run(&["demo", "-o", "shown", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report = ran.json();
    assert_eq!(report["left_out"], serde_json::json!([]), "{}", report["left_out"]);
    assert_eq!(report["pictures"].as_array().unwrap().len(), 7);

    let clips = report["clips"].as_array().unwrap();
    let recipes: Vec<&str> = clips.iter().map(|clip| clip["recipe"].as_str().unwrap()).collect();
    assert_eq!(recipes, ["anonymise", "swap", "rules"]);
    for clip in clips {
        let recipe = &clip["recipe"];
        let of = |key: &str| clip["report"][key].as_u64().unwrap();
        assert_eq!(of("faces"), 3 * of("frames"), "{recipe}: three faces in every frame");
        assert_eq!((of("frames"), of("covered")), (60, 0), "{recipe}");
        assert_eq!(clip["report"]["reasons"], serde_json::json!([]), "{recipe}: all as asked");
        assert_eq!(clip["marks"]["whole"], true, "{recipe}: {}", clip["marks"]);
        assert_eq!(clip["marks"]["altered"], true, "{recipe}");
        let judged = clip["judged"].as_array().unwrap();
        assert_eq!(judged.len(), 18, "{recipe}: three faces in six frames");
        // Of who is swapped the demo judges over all looks: it ends 0.
        let mut hidden = judged.iter().filter(|j| j["to_source"].is_null());
        assert!(hidden.all(|j| j["holds"] == true), "{recipe}: {judged:?}");
        let file = clip["output"].as_str().unwrap();
        assert_eq!(bench.run(&["verify", file]).code, 0, "{file}");
    }
    assert_eq!(kinds(&clips[0]), ["blur:0.25"]);
    assert_eq!(kinds(&clips[1]), ["swap:demo-hopper"]);
    assert_eq!(kinds(&clips[2]), ["blur:0.25", "pass", "swap:demo-hopper"]);
    let who = clips[2]["report"]["identities"].to_string();
    assert!(who.contains(r#"["demo-astronaut",60]"#) && who.contains(r#"["demo-hopper",60]"#));

    let made = bench.run(&["verify", "shown/faces.y4m", "--json"]).json();
    assert_eq!(made["altered"], false, "the made clip says it is as made: {made}");
    assert!(bench.path("shown/contact.jpg").exists());
    let table = fs::read_to_string(bench.path("shown/report.txt")).unwrap();
    for clip in ["faces-anonymised.mp4", "faces-swapped.mp4", "faces-rules.mp4"] {
        assert!(table.contains(clip), "{table}");
    }
}
