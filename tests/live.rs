//! `mien run` on cameras that are clips: what it records, shows and tells, whatever happens to it.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;
#[path = "support/daemon.rs"]
mod daemon;
#[path = "support/scene.rs"]
mod scene;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use daemon::Daemon;
use scene::Shown;
use serde_json::Value;
use support::Bench;

const TOKEN: &str = "a-token-of-a-viewer";

fn bench(name: &str) -> Bench {
    let bench = Bench::bare(name);
    scene::install_models(&bench.home());
    fs::write(bench.path("clip.y4m"), scene::clip(25)).unwrap();
    fs::write(bench.path("token"), TOKEN).unwrap();
    bench
}

/// A pipeline on the clip that records; `how` is what it does to faces.
fn config(how: &str, more: &str) -> String {
    format!(
        "[telemetry]\nlog = \"plain\"\n\
         [[camera]]\nname = \"clip\"\ndevice = \"file:clip.y4m\"\n\
         [[output]]\nname = \"rec\"\nkind = \"segments\"\ndir = \"rec\"\nlength = \"1 s\"\n\
         keep_free = \"1 MiB\"\n\
         [[pipeline]]\nname = \"door\"\ncamera = \"clip\"\ndetector = \"made\"\n\
         detector_size = 320\nanonymise = \"{how}\"\n{more}"
    )
}

/// Asks until the answer is as wanted.
fn until(bench: &Bench, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for _ in 0..600 {
        let ran = bench.run(&["status", "--json"]);
        if ran.code == 0 {
            last = ran.json();
            if is(&last["pipelines"][0]) {
                return last["pipelines"][0].clone();
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("never {what}: {last:#}");
}

fn recorded(n: u64) -> impl Fn(&Value) -> bool {
    move |pipeline| pipeline["outputs"][0]["delivered"].as_u64().unwrap() >= n
}

/// Another program plays it to its end.
fn plays(path: &Path) {
    let ran = Command::new("ffprobe")
        .args(["-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames"])
        .arg(path)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{path:?}: {}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.stderr.is_empty(), "{path:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Every frame of every recording is judged; how many showed the scene.
fn judge(bench: &Bench) -> u32 {
    let mut shown = 0;
    let files = scene::files(&bench.path("rec"), ".mp4");
    for path in &files {
        let mut last = None;
        for (n, image) in scene::frames(path).iter().enumerate() {
            match scene::judge(image) {
                Shown::Covered => {}
                Shown::Masked(number) => {
                    shown += 1;
                    // They come in their order, over and over.
                    if let Some(last) = last {
                        let step = (number + scene::PERIOD - last) % scene::PERIOD;
                        assert!((1..100).contains(&step), "{path:?}: {last} before {number}");
                    }
                    last = Some(number);
                }
                exposed @ Shown::Exposed(..) => panic!("{path:?}, frame {n}: {exposed:?}"),
            }
        }
    }
    shown
}

/// What a viewer gets for a request.
fn view(bench: &Bench, request: &str) -> Vec<u8> {
    let mut stream = UnixStream::connect(bench.path("preview.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn a_clip_as_a_camera_is_recorded_shown_and_told_of_and_no_face_is_seen() {
    let bench = bench("live");
    // A second camera, large enough for the invisible mark: the scene is too small for its motion.
    let outputs = "outputs = [\"rec\"]\n\
         [[camera]]\nname = \"pattern\"\ndevice = \"pattern\"\nsize = \"640x480\"\n\
         [[pipeline]]\nname = \"hall\"\ncamera = \"pattern\"\ndetector = \"made\"\n\
         detector_size = 320\noutputs = [\"wide\", \"stills\", \"preview\"]\n\
         [[output]]\nname = \"wide\"\nkind = \"segments\"\ndir = \"wide\"\nlength = \"2 s\"\n\
         keep_free = \"1 MiB\"\n\
         [[output]]\nname = \"stills\"\nkind = \"snapshots\"\ndir = \"stills\"\nevery = \"1 s\"\n\
         keep_free = \"1 MiB\"\n\
         [[output]]\nname = \"preview\"\nkind = \"mjpeg\"\nlisten = \"unix:preview.sock\"\n\
         token = \"token\"\nfps = 10\n";
    let daemon = Daemon::start(&bench, &config("solid", outputs));
    let pipeline = until(&bench, "recorded", recorded(3));
    assert_eq!(pipeline["state"], "running");
    assert_eq!(pipeline["delivers"]["size"], serde_json::json!([320, 240]));
    assert_eq!(pipeline["worker"]["held"], true);
    assert!(pipeline["stats"]["looks"].as_u64().unwrap() > 20, "{pipeline:#}");
    let health = bench.run(&["health"]);
    assert_eq!(health.code, 0, "{}", health.out);
    let shown = bench.run(&["status"]);
    assert!(shown.out.contains("door") && shown.out.contains("preview"), "{}", shown.out);

    let refused = view(&bench, "GET /picture HTTP/1.1\r\n\r\n");
    assert!(refused.starts_with(b"HTTP/1.1 401"));
    let picture = view(&bench, &format!("GET /picture?token={TOKEN} HTTP/1.1\r\n\r\n"));
    let at = picture.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    fs::write(bench.path("picture.jpg"), &picture[at..]).unwrap();
    let verified = bench.run(&["verify", "picture.jpg"]);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
    assert_eq!(daemon.listens(), Vec::<String>::new());

    // Another cover from here on, without another worker.
    let worker = pipeline["worker"]["pid"].clone();
    fs::write(bench.path("mien.toml"), config("solid:#c04020", outputs)).unwrap();
    let reloaded = bench.run(&["reload"]);
    assert!(reloaded.code == 0 && reloaded.out.contains("applied door"), "{reloaded:?}");
    let before = pipeline["outputs"][0]["delivered"].as_u64().unwrap();
    let after = until(&bench, "recorded anew", recorded(before + 3));
    assert_eq!((&after["worker"]["pid"], &after["workers_lost"]), (&worker, &0.into()));

    daemon.signal("TERM");
    let (code, said) = daemon.end();
    assert_eq!(code, 0, "{said}");
    let files = scene::files(&bench.path("rec"), ".mp4");
    assert!(files.len() >= 6, "{files:?}");
    files.iter().for_each(|path| plays(path));
    let wide = scene::files(&bench.path("wide"), ".mp4");
    assert!(wide.len() >= 3, "{wide:?}");
    for path in &wide {
        plays(path);
        let verified = bench.run(&["verify", path.to_str().unwrap()]);
        assert_eq!(verified.code, 0, "{path:?}: {}{}", verified.out, verified.err);
    }
    assert!(judge(&bench) > 60);
    let stills = scene::files(&bench.path("stills"), ".jpg");
    assert!(stills.len() >= 3, "{stills:?}");
    let verified = bench.run(&["verify", stills[1].to_str().unwrap()]);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
    let rows = bench.run(&["audit", "tail", "--json"]).out;
    assert!(rows.contains("\"recording\"") && rows.contains("\"snapshot\""), "{rows}");
    assert_eq!(bench.run(&["audit", "verify"]).code, 0);
    let left: Vec<String> = bench.files().into_iter().filter(|f| f.contains(".part")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_worker_that_dies_is_replaced_and_nothing_leaves_meanwhile() {
    let bench = bench("live-kill");
    let daemon = Daemon::start(&bench, &config("solid", "outputs = [\"rec\"]\n"));
    let mut delivered = 0;
    for lost in 1..=3_u64 {
        let pipeline = until(&bench, "recorded", recorded(delivered + 1));
        delivered = pipeline["outputs"][0]["delivered"].as_u64().unwrap();
        let pid = pipeline["worker"]["pid"].to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        until(&bench, "recovered", |p| {
            p["recoveries_ms"].as_array().unwrap().len() as u64 >= lost && p["state"] == "running"
        });
    }
    let pipeline = until(&bench, "recorded", recorded(delivered + 1));
    assert_eq!(pipeline["workers_lost"], 3);
    let recoveries = pipeline["recoveries_ms"].as_array().unwrap();
    println!("recovered after {recoveries:?} ms");
    assert!(recoveries.iter().all(|ms| ms.as_u64().unwrap() < 20_000), "{recoveries:?}");
    daemon.signal("TERM");
    assert_eq!(daemon.end().0, 0);
    assert!(judge(&bench) > 20);
    scene::files(&bench.path("rec"), ".mp4").iter().for_each(|path| plays(path));
    assert!(bench.run(&["audit", "tail", "--json"]).out.contains("worker-lost"));
}

#[test]
fn what_is_missing_is_told_and_taken_up_once_it_is_there() {
    let bench = bench("live-away");
    let text =
        config("solid", "outputs = [\"rec\"]\n").replace("file:clip.y4m", "/dev/video-nobody");
    let daemon = Daemon::start(&bench, &text);
    let away = until(&bench, "away", |p| p["state"] == "camera-lost");
    assert!(away["why"].as_str().unwrap().contains("/dev/video-nobody"), "{away:#}");
    let health = bench.run(&["health"]);
    assert_eq!(health.code, 1);
    assert!(health.out.contains("has lost its camera"), "{}", health.out);

    // A detector that is not there: the reload is taken, and the reason is told.
    let text = config("solid", "outputs = [\"rec\"]\n").replace("\"made\"", "\"nobody\"");
    fs::write(bench.path("mien.toml"), text).unwrap();
    assert_eq!(bench.run(&["reload"]).code, 0);
    let failed = until(&bench, "failed", |p| p["state"] == "failed");
    assert!(failed["why"].as_str().unwrap().contains("nobody"), "{failed:#}");
    assert!(scene::files(&bench.path("rec"), ".mp4").is_empty());

    // A clip that is not there is refused at once: what is goes on.
    let text = config("solid", "outputs = [\"rec\"]\n").replace("clip.y4m", "none.y4m");
    fs::write(bench.path("mien.toml"), text).unwrap();
    let refused = bench.run(&["reload"]);
    assert!(refused.code != 0 && refused.err.contains("none.y4m"), "{}", refused.err);

    fs::write(bench.path("mien.toml"), config("solid", "outputs = [\"rec\"]\n")).unwrap();
    assert_eq!(bench.run(&["reload"]).code, 0);
    until(&bench, "recorded", recorded(1));
    assert_eq!(bench.run(&["health"]).code, 0);
    daemon.signal("TERM");
    assert_eq!(daemon.end().0, 0);
    judge(&bench);
}

#[test]
fn a_scene_that_is_not_covered_is_seen_by_the_judge() {
    // The judge must be able to fail: the same scene, encoded as the recordings are, uncovered.
    let bench = bench("live-judge");
    let ran = Command::new("ffmpeg")
        .args(["-v", "error", "-i", "clip.y4m", "-frames:v", "40", "-c:v", "libx264", "raw.mp4"])
        .current_dir(&bench.at)
        .status()
        .unwrap();
    assert!(ran.success());
    let frames = scene::frames(&bench.path("raw.mp4"));
    assert_eq!(frames.len(), 40);
    for image in &frames {
        assert!(matches!(scene::judge(image), Shown::Exposed(..)), "{:?}", scene::judge(image));
    }
}

#[test]
fn cameras_are_listed_probed_and_watched() {
    let bench = bench("camera");
    let listed = bench.run(&["camera", "list"]);
    if listed.code == 0 {
        assert!(listed.out.contains("/dev/video"), "{}", listed.out);
    } else {
        assert_eq!(listed.code, 10, "{}", listed.err);
        assert!(listed.err.contains("No camera is there"), "{}", listed.err);
    }
    let probed = bench.run(&["camera", "probe", "file:clip.y4m", "--json"]);
    assert_eq!(probed.code, 0, "{}", probed.err);
    let probed = probed.json();
    assert_eq!(probed["delivers"]["size"], serde_json::json!([320, 240]));
    let fps = probed["measured"]["fps"].as_f64().unwrap();
    assert!((20.0..30.0).contains(&fps), "{probed:#}");
    let watched = bench.run(&[
        "camera",
        "watch",
        "pattern",
        "--size",
        "64x64",
        "--fps",
        "20",
        "--seconds",
        "2",
    ]);
    assert_eq!(watched.code, 0, "{}", watched.err);
    assert!(watched.out.contains("64x64") && watched.out.contains("of 20.0"), "{}", watched.out);
    assert!(watched.out.lines().count() >= 2, "{}", watched.out);
    let away = bench.run(&["camera", "probe", "/dev/video-nobody"]);
    assert_eq!(away.code, 10, "{}", away.err);
    let wrong = bench.run(&["camera", "probe", "webcam"]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    fs::write(bench.path("noise"), [7; 4096]).unwrap();
    let noise = bench.run(&["camera", "watch", "file:noise", "--seconds", "1"]);
    assert_eq!(noise.code, 4, "{}", noise.err);
}

#[test]
fn nothing_is_opened_for_writing_but_outputs_and_home() {
    let bench = bench("live-strace");
    fs::write(bench.path("mien.toml"), config("solid", "outputs = [\"rec\"]\n")).unwrap();
    let trace = bench.path("trace");
    let mut daemon = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=open,openat,openat2,creat", "-o"])
        .arg(&trace)
        .args([env!("CARGO_BIN_EXE_mien"), "run", "--config", "mien.toml"])
        .current_dir(&bench.at)
        .env("MIEN_HOME", bench.home())
        .spawn()
        .unwrap();
    let pipeline = until(&bench, "recorded", recorded(2));
    assert_eq!(pipeline["state"], "running");
    let pid = bench.run(&["status", "--json"]).json()["machine"]["pid"].to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    let text = fs::read_to_string(&trace).unwrap();
    let (rec, home) = (bench.path("rec"), bench.home());
    let (mut writes, mut recordings) = (0, 0);
    for line in text.lines().filter(|line| !line.contains("= -1 ")) {
        let modes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TMPFILE", "O_APPEND", "creat("];
        if !modes.iter().any(|mode| line.contains(mode)) {
            continue;
        }
        let name = line.split('"').nth(1).unwrap_or_default();
        // A nameless file of a folder that is open: only the outputs' are.
        let is_nameless = name == "." && line.contains("O_TMPFILE");
        let path = bench.at.join(name);
        let is_ours = path.starts_with(&rec) || path.starts_with(&home);
        assert!(is_nameless || is_ours || name == "/dev/null", "{line}");
        writes += 1;
        recordings += u32::from(is_nameless);
    }
    assert!(writes > 4 && recordings >= 2, "{text}");
}
