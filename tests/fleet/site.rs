//! A device that runs `mien run`, its broker, and an operator whose keys it trusts.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Shared by tests; not each uses all.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::fleet::Mosquitto;
use crate::support::{Bench, Ran, small_face};
use serde_json::{Value, json};

/// A daemon that is killed when the test ends before it does.
pub struct Daemon(pub Child);

impl Daemon {
    pub fn start(bench: &Bench) -> Self {
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

    pub fn stop(mut self) -> i32 {
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
pub struct Site {
    pub device: Bench,
    pub operator: Bench,
    pub broker: Mosquitto,
}

impl Site {
    pub fn new(device: Bench, more: &str) -> Self {
        let operator = Bench::bare("operator");
        let broker = Mosquitto::start(&operator.at);
        let tls = broker.certificate("dev-1");
        broker.certificate("operator");
        fs::create_dir_all(device.path("in")).unwrap();
        fs::create_dir_all(device.path("out")).unwrap();
        for (name, role) in
            [("ops", "operate"), ("shop", "models"), ("desk", "consent"), ("maker", "update")]
        {
            let made = operator.run(&["key", "new", name, "--role", role]);
            assert_eq!(made.code, 0, "{}", made.err);
            let public = made.out.lines().find_map(|line| line.strip_prefix("public: ")).unwrap();
            let trust = ["key", "trust", public.trim(), "--name", name, "--role", role];
            assert_eq!(device.run(&trust).code, 0);
        }
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
    pub fn fleet(&self, args: &[&str]) -> Ran {
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
    pub fn connected(&self) {
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
pub fn states(ran: &Ran) -> Vec<String> {
    let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut states: Vec<String> =
        lines.map(|line| line["job"]["state"].as_str().unwrap().to_owned()).collect();
    states.dedup();
    states
}

pub fn picture(site: &Site, name: &str) -> Value {
    let path = site.device.path("in").join(name);
    crate::support::save(&path, &small_face(200));
    let bytes = fs::read(&path).unwrap();
    let sha256 = mien_vault::digest::of(&bytes);
    json!({ "uri": format!("file:{}", path.display()), "sha256": sha256, "size": bytes.len() })
}
