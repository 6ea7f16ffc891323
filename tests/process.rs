//! `mien process`, `detect`, `verify` and `source` as a user runs them, on real models and pictures.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use support::{Bench, difference, load, picture, save, small_face};

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_face_is_hidden_marked_and_the_rest_is_left() {
    let bench = Bench::new("hide");
    let input = picture("astronaut.png");
    let ran = bench.run(&["process", input.to_str().unwrap(), "-o", "out.png", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report = &ran.json()["pictures"][0]["report"];
    assert_eq!(report["faces"].as_array().unwrap().len(), 1);
    assert_eq!(report["faces"][0]["done"], "solid");
    let (before, after) = (load(&input), load(&bench.path("out.png")));
    let rect: [f32; 4] = serde_json::from_value(report["faces"][0]["box"].clone()).unwrap();
    assert!(difference(&before, &after, rect) > 20.0, "the face is covered");
    let far = [300.0, 250.0, 500.0, 400.0];
    assert!(difference(&before, &after, far) < 1.0, "only the faint mark elsewhere");
    assert_eq!(bench.run(&["verify", "out.png"]).code, 0);
    assert_eq!(bench.run(&["verify", input.to_str().unwrap()]).code, 9);
    assert_eq!(bench.files(), ["out.png"]);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_face_that_stands_in_the_alpha_alone_is_hidden_too() {
    use mien_pixels::codec::{self, FileFormat, Metadata};
    use mien_pixels::view::{Grey, Rgb};
    let bench = Bench::new("alpha");
    let face = load(&picture("astronaut.png"));
    let ink = face.bytes_all().chunks_exact(3).map(|p| 255 - p[1]).collect();
    let ink = Grey::from_vec(face.size(), ink).unwrap();
    let black = Rgb::filled(face.size(), [0; 3]);
    let meta = Metadata::default();
    let png = codec::encode(black.view(), Some(ink.view()), FileFormat::Png, 90, &meta).unwrap();
    fs::write(bench.path("ink.png"), png).unwrap();
    for output in ["out.png", "out.jpg"] {
        let ran = bench.run(&["process", "ink.png", "-o", output, "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let faces = ran.json()["pictures"][0]["report"]["faces"].clone();
        assert_eq!(faces.as_array().unwrap().len(), 1, "{output}");
        assert_eq!(bench.run(&["verify", output]).code, 0, "{output} is marked where one looks");
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn an_original_is_never_written_over() {
    let bench = Bench::new("apart");
    fs::copy(picture("astronaut.png"), bench.path("a.png")).unwrap();
    std::os::unix::fs::symlink("a.png", bench.path("link.png")).unwrap();
    for args in [
        &["process", "a.png", "-o", "a.png"][..],
        &["process", "a.png", "-o", "link.png"],
        &["process", "a.png", "-o", "b.png", "--preview", "a.png"],
        &["process", "a.png", "-o", "b.png", "--preview", "b.png"],
        &["process", ".", "-o", "."],
        &["detect", "a.png", "--draw", "./a.png"],
    ] {
        let ran = bench.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
    }
    let now = fs::read(bench.path("a.png")).unwrap();
    assert!(now == fs::read(picture("astronaut.png")).unwrap());
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn same_input_job_and_clock_give_the_same_bytes() {
    let bench = Bench::new("same");
    bench.enrol("hopper", &picture("hopper.jpg"));
    let input = picture("astronaut.png");
    let run = |output: &str, job: &str, action: &[&str]| {
        let mut args = vec!["process", input.to_str().unwrap(), "-o", output, "--job", job];
        args.extend(["--clock", "1796000000"]);
        args.extend(action);
        let ran = bench.run(&args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        fs::read(bench.path(output)).unwrap()
    };
    let (one, other) = ("00000000000000000000000000000001", "ffff0000000000000000000000000002");
    for action in
        [&["--swap", "hopper"][..], &["--anonymise", "mosaic"], &["--anonymise", "synthetic"]]
    {
        let first = run("a.jpg", one, action);
        assert_eq!(first, run("b.jpg", one, action), "{action:?}");
        assert_ne!(first, run("c.jpg", other, action), "the job stands in the mark: {action:?}");
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_swap_without_a_record_that_holds_is_refused() {
    let bench = Bench::new("consent");
    let (astronaut, hopper) = (picture("astronaut.png"), picture("hopper.jpg"));
    let (astronaut, hopper) = (astronaut.to_str().unwrap(), hopper.to_str().unwrap());
    let swap = |source: &str, more: &[&str]| {
        let mut args = vec!["process", astronaut, "-o", "out.jpg", "--swap", source];
        args.extend(more);
        bench.run(&args)
    };
    let ran = swap(hopper, &[]);
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert!(ran.err.contains("--consent"), "{}", ran.err);
    assert_eq!(bench.run(&["source", "enrol", "bare", hopper]).code, 0);
    assert_eq!(swap("bare", &[]).code, 7);
    assert_eq!(swap("nobody", &[]).code, 2);
    let record = |scope: &str, expires: &str| {
        let text = format!(
            "subject = \"s\"\npurpose = \"test\"\nscope = [\"{scope}\"]\ngranted = 2020-01-01\n\
             expires = {expires}\noperator = \"test\"\n"
        );
        fs::write(bench.path("consent.toml"), text).unwrap();
    };
    for (scope, expires, code) in
        [("swap", "2021-01-01", 7), ("reveal", "2099-01-01", 7), ("fly", "2099-01-01", 7)]
    {
        record(scope, expires);
        let ran = swap(hopper, &["--consent", "consent.toml"]);
        assert_eq!(ran.code, code, "{scope} {expires}: {}", ran.err);
        assert!(!bench.path("out.jpg").exists());
    }
    record("swap", "2099-01-01");
    let ran = swap(hopper, &["--consent", "consent.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("swap:"), "{}", ran.out);
    assert_eq!(bench.run(&["verify", "out.jpg"]).code, 0);
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn rules_give_each_identity_its_own_in_one_pass() {
    let bench = Bench::new("rules");
    bench.enrol("astronaut", &picture("astronaut.png"));
    bench.enrol("hopper", &picture("hopper.jpg"));
    let both = {
        let (a, h) = (load(&picture("astronaut.png")), load(&picture("hopper.jpg")));
        let size = mien_pixels::geometry::Size::new(512 + h.size().width, 606);
        let mut both = mien_pixels::view::Rgb::filled(size, [90; 3]);
        for (source, x) in [(&a, 0), (&h, 512)] {
            let roi = mien_pixels::geometry::Roi {
                x,
                y: 0,
                width: source.size().width,
                height: source.size().height,
            };
            let mut part = both.view_mut().crop(roi);
            for y in 0..roi.height {
                part.row_mut(y).copy_from_slice(source.view().row(y));
            }
        }
        both
    };
    save(&bench.path("both.png"), &both);
    let rules = "[[rule]]\nwho = \"astronaut\"\ndo = \"swap:hopper\"\n\n[[rule]]\nwho = \"hopper\"\ndo = \"pass\"\n";
    fs::write(bench.path("rules.toml"), rules).unwrap();
    let ran =
        bench.run(&["process", "both.png", "-o", "out.png", "--rules", "rules.toml", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json = ran.json();
    let faces = json["pictures"][0]["report"]["faces"].as_array().unwrap();
    let done = |name: &str| {
        let face = faces.iter().find(|f| f["identity"][0] == name).unwrap();
        face["done"].as_str().unwrap().to_owned()
    };
    assert_eq!((done("astronaut").as_str(), done("hopper").as_str()), ("swap:hopper", "pass"));
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn streams_folders_and_unicode_names_work() {
    let bench = Bench::new("streams");
    let input = fs::read(picture("hopper.jpg")).unwrap();
    let mut child = bench
        .mien(&["process", "-", "-o", "-", "--anonymise", "blur"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&input).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    assert_eq!(&out.stdout[..2], b"\xff\xd8", "a JPEG in gives a JPEG out");
    fs::create_dir_all(bench.path("in/tief")).unwrap();
    for name in ["in/面.png", "in/tief/naïve ☂.jpg"] {
        save(&bench.path(name), &small_face(160));
    }
    let args = ["process", "in", "-o", "out", "-r", "--preview", "sheet.png", "--json"];
    let ran = bench.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.json()["done"], 2);
    let files = bench.files();
    for name in ["out/面.png", "out/tief/naïve ☂.jpg", "sheet.png"] {
        assert!(files.iter().any(|f| f == name), "{name} in {files:?}");
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_signal_leaves_nothing_half_written() {
    let bench = Bench::new("signal");
    fs::create_dir_all(bench.path("in")).unwrap();
    for n in 0..40 {
        fs::copy(picture("astronaut.png"), bench.path(&format!("in/{n:02}.png"))).unwrap();
    }
    for (wait, signal) in [(150, "INT"), (700, "INT"), (1500, "TERM")] {
        let _ = fs::remove_dir_all(bench.path("out"));
        let mut child = bench
            .mien(&["process", "in", "-o", "out", "-q"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let kill = std::process::Command::new("kill")
            .args([format!("-{signal}"), child.id().to_string()])
            .status()
            .unwrap();
        assert!(kill.success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        for name in bench.files().iter().filter(|f| f.starts_with("out/")) {
            assert!(!name.contains(".part") && !name.contains(".mien"), "{name} is left");
            assert_eq!(bench.run(&["verify", "-q", name]).code, 0, "{name} is whole");
        }
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn odd_pictures_are_right_or_clearly_refused() {
    let bench = Bench::new("odd");
    for (name, width, height) in [("one.png", 1, 1), ("row.png", 301, 1), ("odd.jpg", 33, 77)] {
        let size = mien_pixels::geometry::Size::new(width, height);
        save(&bench.path(name), &mien_pixels::view::Rgb::filled(size, [200, 10, 30]));
        let ran = bench.run(&["process", name, "-o", "out.png"]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.err);
        assert_eq!(load(&bench.path("out.png")).size(), size);
    }
    fs::write(bench.path("text.jpg"), "hello").unwrap();
    fs::write(bench.path("empty.png"), "").unwrap();
    fs::write(bench.path("anim.gif"), b"GIF89a\x01\x00\x01\x00").unwrap();
    for (name, code) in [("text.jpg", 4), ("empty.png", 4), ("anim.gif", 4), ("absent.png", 3)] {
        let ran = bench.run(&["process", name, "-o", "never.png"]);
        assert_eq!(ran.code, code, "{name}: {}", ran.err);
        assert!(ran.err.starts_with("mien: "), "{}", ran.err);
        assert!(!bench.path("never.png").exists());
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn detect_prints_and_draws() {
    let bench = Bench::new("detect");
    let input = picture("sample1.jpg");
    let args = ["detect", input.to_str().unwrap(), "--json", "--draw", "boxes.png"];
    let ran = bench.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.json()["faces"].as_array().unwrap().len(), 3);
    assert_eq!(load(&bench.path("boxes.png")).size(), load(&input).size());
    for detector in ["blazeface_back256", "blazeface_short128"] {
        let face = picture("astronaut.png");
        let args = ["detect", face.to_str().unwrap(), "--detector", detector, "--json"];
        let ran = bench.run(&args);
        assert_eq!(ran.json()["faces"].as_array().unwrap().len(), 1, "{detector}: {}", ran.err);
    }
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn a_source_is_listed_without_its_embedding_and_forgotten_whole() {
    let bench = Bench::new("source");
    bench.enrol("hopper", &picture("hopper.jpg"));
    let listed = bench.run(&["source", "list", "--json"]);
    assert!(listed.out.contains("hopper") && !listed.out.contains("embedding"), "{}", listed.out);
    let many = picture("sample1.jpg");
    let ran = bench.run(&["source", "enrol", "many", many.to_str().unwrap()]);
    assert_eq!(ran.code, 4, "three faces are not one: {}", ran.err);
    assert_eq!(bench.run(&["source", "forget", "hopper"]).code, 0);
    let ran = bench.run(&["source", "list", "--json"]);
    assert_eq!(ran.json().as_array().unwrap().len(), 0, "nothing of it is kept");
    assert_eq!(bench.run(&["source", "forget", "hopper"]).code, 2);
}
