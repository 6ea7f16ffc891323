//! The command line where no model is needed: help, refusals, exit codes.

#![allow(clippy::unwrap_used)]

mod support;

use support::Bench;

#[test]
fn every_command_has_help_and_completions_know_them() {
    let bench = Bench::bare("help");
    let script = bench.run(&["completions", "bash"]);
    for command in ["demo", "process", "verify", "detect", "source", "model", "bench", "check"] {
        assert_eq!(bench.run(&[command, "--help"]).code, 0);
        assert!(script.out.contains(command), "{command}");
    }
    for shell in ["zsh", "fish"] {
        assert!(bench.run(&["completions", shell]).out.len() > 1000);
    }
}

#[test]
fn bad_arguments_name_the_option_and_what_it_takes() {
    let bench = Bench::bare("bad");
    std::fs::write(bench.path("a.png"), b"x").unwrap();
    for (args, word) in [
        (&["--anonymise", "eyes"][..], "recognisable"),
        (&["--anonymise", "mosaic:20px"], "recognisable"),
        (&["--anonymise", "blur:0.01"], "0.15"),
        (&["--anonymise", "pass"], "--others pass"),
        (&["--zone", "1,2,3"], "--zone"),
        (&["--detector-size", "641"], "multiple of 32"),
        (&["--score", "2"], "0 to 1"),
        (&["--angles", "45"], "0, 90, 180, 270"),
        (&["--label-height", "0.01"], "0.05"),
        (&["--producer", "a b"], "printable"),
        (&["--mask-padding", "60"], "0 to 50"),
        (&["--swap", "nobody"], "mien source list"),
        (&["--rules", "absent.toml"], "absent.toml"),
        (&["--job", "xyz"], "32 hex"),
    ] {
        let mut all = vec!["process", "a.png", "-o", "out.png"];
        all.extend(args);
        let ran = bench.run(&all);
        assert!(ran.code == 2 || ran.code == 3, "{args:?}: {} {}", ran.code, ran.err);
        assert!(ran.err.contains(word), "{args:?}: {}", ran.err);
    }
    assert_eq!(bench.files(), ["a.png"]);
}

#[test]
fn without_models_the_error_says_how_to_get_them() {
    let bench = Bench::bare("none");
    support::save(
        &bench.path("a.png"),
        &mien_pixels::view::Rgb::filled(mien_pixels::geometry::Size::new(64, 64), [9; 3]),
    );
    let ran = bench.run(&["process", "a.png", "-o", "out.png"]);
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert!(ran.err.contains("mien model fetch"), "{}", ran.err);
    assert_eq!(bench.files(), ["a.png"]);
}

#[test]
fn check_shows_the_sandbox_and_that_it_holds() {
    let bench = Bench::bare("check");
    let ran = bench.run(&["check"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("seccomp") && ran.out.contains("refused"), "{}", ran.out);
}
