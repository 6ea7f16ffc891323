//! INT8 models as goods: made by `models/quantise`, held to their bounds by the device that takes them.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::fs;
use std::process::Command;

use serde_json::Value;
use support::{Bench, picture};

/// A model of the catalogue, and how far its INT8 version may be from it whatever its own bounds say.
struct Model {
    name: &'static str,
    role: &'static str,
    family: &'static str,
    least: &'static [(&'static str, f64)],
    most: &'static [(&'static str, f64)],
}

const MODELS: [Model; 3] = [
    Model {
        name: "centerface",
        role: "detector",
        family: "centerface",
        least: &[("box_iou", 0.85)],
        most: &[("landmark_drift", 0.04)],
    },
    Model {
        name: "facemesh468",
        role: "landmarks",
        family: "facemesh",
        least: &[],
        most: &[("landmark_drift", 0.015)],
    },
    Model {
        name: "mobilefacenet192",
        role: "embedder",
        family: "arcface",
        least: &[("cosine", 0.85)],
        most: &[],
    },
];

/// Runs the authoring tool: its report.
fn quantised(bench: &Bench, model: &Model, version: &str, spoil: bool) -> Value {
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/models/quantise/quantise.py");
    let python = std::env::var_os("MIEN_QUANTISE").expect("MIEN_QUANTISE; tests/run sets it");
    let name = format!("{}-{version}.onnx", model.name);
    let mut command = Command::new(python);
    command.arg(tool).arg(format!("{}.onnx", model.name)).args(["-o", &name]);
    command.args(["--mien", env!("CARGO_BIN_EXE_mien"), "--version", version]);
    if spoil {
        command.arg("--spoil");
    }
    // Made by some pictures, measured by others.
    for (option, names) in [
        (None, &["sample1.jpg", "sample2.jpg", "sample3.jpg", "astronaut.png"][..]),
        (Some("--accept"), &["sample4.jpg", "sample5.jpg", "hopper.jpg"][..]),
    ] {
        command.args(option).args(names.iter().map(|name| picture(name)));
    }
    let made = command.current_dir(&bench.at).env("MIEN_HOME", bench.home()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let report = fs::read(bench.path(&name).with_extension("json")).unwrap();
    serde_json::from_slice(&report).unwrap()
}

/// Packs and installs a model file.
fn installed(bench: &Bench, file: &str) {
    let package = file.replace(".onnx", ".mienpkg");
    let ran = bench.run(&["model", "pack", file, "-o", &package]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = bench.run(&["model", "install", &package]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

/// The version that serves.
fn serves(bench: &Bench, model: &Model) -> Option<String> {
    let rows = bench.run(&["model", "list", "--json"]).json();
    let row = rows.as_array().unwrap().iter().find(|row| row["model"] == model.name).unwrap();
    row["active"].as_str().map(str::to_owned)
}

#[test]
#[ignore = "needs the models and ONNX Runtime: tests/run has both"]
fn int8_detector_landmarks_and_embedder_are_accepted_by_the_device_and_bad_ones_refused() {
    let bench = Bench::new("int8");
    assert_eq!(bench.run(&["key", "new", "--file"]).code, 0);
    // What this device measures by is its own.
    let frames = bench.home().join("frames");
    fs::create_dir(&frames).unwrap();
    for name in ["sample4.jpg", "sample5.jpg", "hopper.jpg"] {
        fs::copy(picture(name), frames.join(name)).unwrap();
    }
    for model in &MODELS {
        let plain = bench.home().join(format!("models/{}.onnx", model.name));
        fs::copy(plain, bench.path(&format!("{}.onnx", model.name))).unwrap();
        let text = format!(
            "id = \"{}\"\nrole = \"{}\"\nfamily = \"{}\"\nversion = \"1.0.0\"\n\
             licence = \"as the catalogue says\"\ncommercial = true\norigin = \"the catalogue\"\n",
            model.name, model.role, model.family
        );
        fs::write(bench.path(&format!("{}.toml", model.name)), text).unwrap();

        installed(&bench, &format!("{}.onnx", model.name));
        assert_eq!(serves(&bench, model).as_deref(), Some("1.0.0"));

        let report = quantised(&bench, model, "1.1.0", false);
        println!("{report}");
        let size = |name: &str| report[name].as_u64().unwrap();
        assert!(size("int8_bytes") < size("fp32_bytes") * 2 / 3, "{report}");
        assert_eq!(report["distance"]["missed"], 0, "{report}");
        for (name, bound) in model.least {
            assert!(report["distance"][name].as_f64().unwrap() >= *bound, "{name}: {report}");
        }
        for (name, bound) in model.most {
            assert!(report["distance"][name].as_f64().unwrap() <= *bound, "{name}: {report}");
        }
        installed(&bench, &format!("{}-1.1.0.onnx", model.name));
        let before = serves(&bench, model);
        assert_eq!(before.as_deref(), Some("1.0.0"), "it serves before it was measured");
        let ran = bench.run(&["model", "activate", model.name]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(serves(&bench, model).as_deref(), Some("1.1.0"));

        // The bad one promises what a good one holds; the device finds out by itself.
        let report = quantised(&bench, model, "1.2.0", true);
        installed(&bench, &format!("{}-1.2.0.onnx", model.name));
        let ran = bench.run(&["model", "activate", model.name, "--version", "1.2.0"]);
        assert!(ran.code == 6 && ran.err.contains("BoundsBroken"), "{} {report}", ran.err);
        assert_eq!(serves(&bench, model).as_deref(), Some("1.1.0"));
    }
    let refused = bench.run(&["audit", "query", "--kind", "refused", "--json"]).json();
    let codes: Vec<_> =
        refused.as_array().unwrap().iter().map(|row| row["body"]["reason"].as_str()).collect();
    assert_eq!(codes, [Some("BoundsBroken"); 3]);
    // What was accepted works: the three find and know a face.
    let ran = bench.run(&["detect", picture("astronaut.png").to_str().unwrap(), "--json"]);
    assert_eq!(ran.json()["faces"].as_array().unwrap().len(), 1, "{}", ran.err);
    bench.enrol("ada", &picture("astronaut.png"));
}
