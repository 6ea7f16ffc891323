//! `mien run` as a process: it is alone, says how it stands, obeys signals, and nothing listens.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::Bench;

/// A daemon that is killed when the test ends before it does.
struct Daemon {
    child: Child,
    heard: UnixDatagram,
}

impl Daemon {
    /// Starts it, and waits until it says that it is ready.
    fn start(bench: &Bench, config: &str) -> Self {
        fs::write(bench.path("mien.toml"), config).unwrap();
        let heard = UnixDatagram::bind(bench.path("notify")).unwrap();
        heard.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut command = bench.mien(&["run", "--config", "mien.toml"]);
        command.env("NOTIFY_SOCKET", bench.path("notify")).stderr(Stdio::piped());
        let daemon = Self { child: command.spawn().unwrap(), heard };
        daemon.wait("READY=1");
        daemon
    }

    /// Waits until it tells systemd this.
    fn wait(&self, what: &str) -> String {
        let mut buffer = [0; 1024];
        loop {
            let n = self.heard.recv(&mut buffer).unwrap_or_else(|e| panic!("no {what}: {e}"));
            let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
            if text.contains(what) {
                return text;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Sockets of the process that anybody could reach over a network.
    fn listens(&self) -> Vec<String> {
        let mut own = BTreeSet::new();
        for entry in fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap() {
            let Ok(link) = fs::read_link(entry.unwrap().path()) else { continue };
            let link = link.to_string_lossy().into_owned();
            if let Some(inode) = link.strip_prefix("socket:[").and_then(|l| l.strip_suffix(']')) {
                own.insert(inode.to_owned());
            }
        }
        let mut found = Vec::new();
        for table in ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"] {
            let Ok(text) = fs::read_to_string(format!("/proc/net/{table}")) else { continue };
            for line in text.lines().skip(1) {
                let words: Vec<&str> = line.split_whitespace().collect();
                if words.get(9).is_some_and(|inode| own.contains(*inode)) {
                    found.push(format!("{table} {}", words[1]));
                }
            }
        }
        found
    }

    /// Its exit code and what it said.
    fn end(mut self) -> (i32, String) {
        let mut said = String::new();
        let mut err = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut err, &mut said).unwrap();
        (self.child.wait().unwrap().code().unwrap_or(-1), said)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_daemon_says_how_it_stands_obeys_signals_and_leaves_its_record() {
    let bench = Bench::bare("run");
    let daemon = Daemon::start(&bench, "[telemetry]\nlog = \"journald\"\n");
    let status = bench.run(&["status", "--json"]).json();
    assert_eq!(status["health"]["healthy"], true);
    assert_eq!(status["machine"]["pid"], daemon.child.id());
    let shown = bench.run(&["status"]);
    assert!(shown.code == 0 && shown.out.contains("healthy"), "{}", shown.out);
    let health = bench.run(&["health"]);
    assert_eq!((health.code, health.out.as_str()), (0, "healthy\n"));

    let second = bench.run(&["run", "--config", "mien.toml"]);
    assert_eq!(second.code, 2, "{}", second.err);
    assert!(second.err.contains("Another `mien run`"), "{}", second.err);

    fs::write(bench.path("mien.toml"), "[telemetry]\nlog = \"journald\"\nlevel = \"debug\"\n")
        .unwrap();
    assert_eq!(bench.run(&["reload"]).code, 0);
    fs::write(bench.path("mien.toml"), "[telemetry]\nlevle = \"info\"\n").unwrap();
    let refused = bench.run(&["reload"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("mien.toml:2: telemetry.levle"), "{}", refused.err);
    assert!(refused.err.contains("did you mean `level`"), "{}", refused.err);
    daemon.signal("HUP");
    daemon.wait("RELOADING=1");
    daemon.wait("refused");
    assert_eq!(bench.run(&["health"]).code, 0, "it goes on as it was");

    daemon.signal("TERM");
    daemon.wait("STOPPING=1");
    let (code, said) = daemon.end();
    assert_eq!(code, 0, "{said}");
    assert!(said.lines().all(|line| line.starts_with('<')), "{said}");
    assert!(said.contains("<6>stopped"), "{said}");
    assert!(!bench.home().join("control.sock").exists());
    let gone = bench.run(&["health"]);
    assert_eq!(gone.code, 10, "{}", gone.err);
    let rows = bench.run(&["audit", "tail", "--json"]).out;
    for kind in ["\"start\"", "\"config\"", "\"refused\"", "\"stop\""] {
        assert!(rows.contains(kind), "{kind} is not in {rows}");
    }
    assert_eq!(bench.run(&["audit", "verify"]).code, 0);
}

#[test]
fn nothing_listens_unless_it_is_configured() {
    let bench = Bench::bare("listen");
    let daemon = Daemon::start(&bench, "");
    assert_eq!(daemon.listens(), Vec::<String>::new());
    // A port that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let metrics = format!("[telemetry]\nmetrics = \"127.0.0.1:{port}\"\n");
    fs::write(bench.path("mien.toml"), metrics).unwrap();
    let done = bench.run(&["reload"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(daemon.listens(), [format!("tcp 0100007F:{port:04X}")]);
    fs::write(bench.path("mien.toml"), "").unwrap();
    assert_eq!(bench.run(&["reload"]).code, 0);
    assert_eq!(daemon.listens(), Vec::<String>::new());
    daemon.signal("TERM");
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn a_configuration_is_checked_without_starting_anything() {
    let bench = Bench::bare("check");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/mien.toml");
    let good = bench.run(&["check", "--config", example]);
    assert_eq!(good.code, 0, "{}", good.err);
    assert!(good.out.contains("1 camera, 1 output, 1 pipeline"), "{}", good.out);
    fs::write(bench.path("bad.toml"), "[camera]\n[[pipeline]]\nname = \"x\"\nfsp = 3\n").unwrap();
    let bad = bench.run(&["check", "--config", "bad.toml"]);
    assert_eq!(bad.code, 2);
    for told in
        ["bad.toml:1: camera", "bad.toml:2: pipeline.x.camera", "bad.toml:4: pipeline.x.fsp"]
    {
        assert!(bad.err.contains(told), "{told} is not in {}", bad.err);
    }
    assert_eq!(bench.run(&["run", "--config", "bad.toml"]).code, 2);
    assert!(!bench.home().join("mien.db").exists(), "nothing was opened");
}
