//! `mien run` with a broker: real jobs ordered over MQTT with TLS and access lists, and at the socket.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

#[path = "support/clips.rs"]
mod clips;
#[path = "fleet/support/mod.rs"]
mod fleet;
mod support;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use fleet::Mosquitto;
use serde_json::{Value, json};
use support::{Bench, Ran, small_face};

/// A daemon that is killed when the test ends before it does.
struct Daemon(Child);

impl Daemon {
    fn start(bench: &Bench) -> Self {
        let notify = bench.path("notify");
        let _ = fs::remove_file(&notify);
        let heard = UnixDatagram::bind(&notify).unwrap();
        heard.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let log = fs::File::create(bench.path("log")).unwrap();
        let mut command = bench.mien(&["run", "--config", "mien.toml"]);
        let child = command.env("NOTIFY_SOCKET", &notify).stderr(log).spawn().unwrap();
        let daemon = Self(child);
        let mut buffer = [0; 1024];
        loop {
            let n = heard.recv(&mut buffer).unwrap();
            if String::from_utf8_lossy(&buffer[..n]).contains("READY=1") {
                return daemon;
            }
        }
    }

    fn stop(mut self) -> i32 {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        self.0.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A device with its broker, and an operator whose key it trusts.
struct Site {
    device: Bench,
    operator: Bench,
    broker: Mosquitto,
}

impl Site {
    fn new(device: Bench, more: &str) -> Self {
        let operator = Bench::bare("operator");
        let broker = Mosquitto::start(&operator.at);
        let tls = broker.certificate("dev-1");
        broker.certificate("operator");
        fs::create_dir_all(device.path("in")).unwrap();
        fs::create_dir_all(device.path("out")).unwrap();
        let made = operator.run(&["key", "new", "ops", "--role", "operate"]);
        assert_eq!(made.code, 0, "{}", made.err);
        let public = made.out.lines().find_map(|line| line.strip_prefix("public: ")).unwrap();
        let trust = ["key", "trust", public.trim(), "--name", "ops", "--role", "operate"];
        assert_eq!(device.run(&trust).code, 0);
        let config = format!(
            "[telemetry]\nlog = \"plain\"\n[jobs]\ninputs = [\"in\"]\noutputs = [\"out\"]\n\
             [fleet]\nbroker = \"mqtts://127.0.0.1:{}\"\nca = \"{}\"\ncertificate = \"{}\"\n\
             key = \"{}\"\ndevice = \"dev-1\"\n{more}",
            broker.port,
            tls.ca.display(),
            tls.certificate.display(),
            tls.key.display(),
        );
        fs::write(device.path("mien.toml"), config).unwrap();
        Self { device, operator, broker }
    }

    /// What the operator's `mien fleet …` says.
    fn fleet(&self, args: &[&str]) -> Ran {
        let files = self.broker.files("operator");
        let text = |path: &Path| path.display().to_string();
        let (url, ca) = (format!("mqtts://127.0.0.1:{}", self.broker.port), text(&files.ca));
        let (certificate, key) = (text(&files.certificate), text(&files.key));
        let reach = [
            "--broker",
            url.as_str(),
            "--ca",
            &ca,
            "--certificate",
            &certificate,
            "--tls-key",
            &key,
            "--json",
        ];
        self.operator.run(&[&["fleet"], args, &reach[..]].concat())
    }

    /// Waits until the device is at the broker.
    fn connected(&self) {
        for _ in 0..300 {
            let status = self.device.run(&["status", "--json"]).json();
            if status["parts"]["jobs"]["fleet"]["connected"] == true {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{}", fs::read_to_string(self.device.path("log")).unwrap());
    }
}

/// The states of a job, as an operator saw them.
fn states(ran: &Ran) -> Vec<String> {
    let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut states: Vec<String> =
        lines.map(|line| line["job"]["state"].as_str().unwrap().to_owned()).collect();
    states.dedup();
    states
}

fn picture(site: &Site, name: &str) -> Value {
    let path = site.device.path("in").join(name);
    support::save(&path, &small_face(200));
    let bytes = fs::read(&path).unwrap();
    let sha256 = mien_vault::digest::of(&bytes);
    json!({ "uri": format!("file:{}", path.display()), "sha256": sha256, "size": bytes.len() })
}

#[test]
#[ignore = "needs mosquitto and models: tests/run installs and fetches them"]
fn a_signed_job_is_done_once_and_watched_to_its_end() {
    let site = Site::new(Bench::new("fleet-run"), "");
    let daemon = Daemon::start(&site.device);
    site.connected();
    let output = site.device.path("out/covered.png");
    let params = json!({
        "input": picture(&site, "face.png"),
        "output": { "uri": format!("file:{}", output.display()) },
        "rules": [{ "who": "anyone", "then": { "do": "anonymise", "how": "solid" } }],
    })
    .to_string();
    let order = ["submit", "dev-1", "image.process", "--id", "picture-1", "--as", "ops"];
    let ran = site.fleet(&[&order[..], &["--params", &params]].concat());
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let seen = states(&ran);
    assert_eq!(seen.last().unwrap(), "succeeded", "{seen:?}");
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    let told = &last["job"]["result"]["output"];
    let bytes = fs::read(&output).unwrap();
    assert_eq!(told["sha256"], mien_vault::digest::of(&bytes));
    assert_eq!(told["size"], bytes.len());
    assert_eq!(last["job"]["result"]["faces"], 1);
    assert_eq!(site.device.run(&["verify", output.to_str().unwrap()]).code, 0);

    // The same id with another body is a replay, and changes nothing.
    let ran = site.fleet(&[&order[..], &["--params", &params, "--priority", "9"]].concat());
    assert!(ran.code != 0 && ran.err.contains("Replayed"), "{} {}", ran.out, ran.err);
    let events = site.device.run(&["audit", "query", "--kind", "refused", "--json"]).out;
    assert!(events.contains("Replayed"), "{events}");

    // At the machine itself the job is seen, and others are ordered.
    let shown = site.device.run(&["job", "show", "picture-1"]).json();
    assert_eq!(shown["job"]["state"], "succeeded");
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1);
    let input = site.device.path("in/face.png");
    let outside = site.device.path("elsewhere.png");
    let (input, outside) = (input.to_str().unwrap(), outside.to_str().unwrap());
    let refused =
        site.device.run(&["job", "submit", "image.process", "--input", input, "--output", outside]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("Unauthorized"), "{}", refused.err);
    let inside = site.device.path("out/local.png");
    let inside = inside.to_str().unwrap();
    let local =
        site.device.run(&["job", "submit", "image.process", "--input", input, "--output", inside]);
    assert_eq!(local.code, 0, "{}", local.err);
    assert!(Path::new(inside).exists());
    let listed = site.device.run(&["job", "list", "--json"]).json();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 3);

    // What is outside the kinds of this device is refused by a code that an operator sees.
    let ran = site.fleet(&[
        "submit",
        "dev-1",
        "power.mode",
        "--as",
        "ops",
        "--params",
        r#"{"mode":"low"}"#,
    ]);
    assert_eq!(states(&ran), ["rejected"], "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("Unavailable"), "{}", ran.out);

    let watched = site.fleet(&["watch", "--for", "2"]);
    assert!(watched.out.contains("online"), "{} {}", watched.out, watched.err);
    assert_eq!(daemon.stop(), 0);
    let watched = site.fleet(&["watch", "--for", "2"]);
    assert!(watched.out.contains("offline"), "{} {}", watched.out, watched.err);
    assert_eq!(site.device.run(&["audit", "verify"]).code, 0);
    let done = site.device.run(&["audit", "query", "--kind", "job", "--json"]).out;
    let effects = done.matches(&mien_vault::digest::of(&bytes)).count();
    assert!(effects >= 1, "{done}");
}

#[test]
#[ignore = "needs mosquitto and models: tests/run installs and fetches them"]
fn a_clip_is_paused_goes_on_and_ends_after_its_daemon_was_killed() {
    let site = Site::new(Bench::new("fleet-clip"), "");
    let daemon = Daemon::start(&site.device);
    let clip = site.device.path("in/clip.y4m");
    fs::write(&clip, clips::wandering(600)).unwrap();
    let (input, output) = (clip.display().to_string(), site.device.path("out/clip.mp4"));
    let output = output.display().to_string();
    let order = ["job", "submit", "clip.process", "--id", "the-clip-1", "--input", &input];
    let ran = site.device.run(&[&order[..], &["--output", &output, "--no-wait"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let state = || site.device.run(&["job", "show", "the-clip-1"]).json()["job"].clone();
    let until = |wanted: &dyn Fn(&Value) -> bool| {
        for _ in 0..1200 {
            if wanted(&state()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{} {}", state(), fs::read_to_string(site.device.path("log")).unwrap());
    };
    until(&|job| job["state"] == "running" && job["progress"]["step"] == "processing");
    assert_eq!(site.device.run(&["job", "pause", "the-clip-1"]).code, 0);
    until(&|job| job["state"] == "paused");
    assert!(!Path::new(&output).exists());
    assert_eq!(site.device.run(&["job", "resume", "the-clip-1"]).code, 0);
    until(&|job| job["state"] == "running");
    drop(daemon);
    let _daemon = Daemon::start(&site.device);
    let ran = site.device.run(&["job", "watch", "the-clip-1", "--json"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let job = ran.json();
    assert_eq!(job["result"]["frames"], 600, "{job}");
    assert_eq!(
        job["result"]["output"]["sha256"],
        mien_vault::digest::of(&fs::read(&output).unwrap())
    );
    assert!(job["attempt"].as_u64().unwrap() >= 2, "{job}");
}
