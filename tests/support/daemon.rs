//! The daemon as a process: it is started, told things, and ends.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Shared by tests; not each uses all.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::Bench;

/// A daemon that is killed when the test ends before it does.
pub struct Daemon {
    pub child: Child,
    heard: UnixDatagram,
}

impl Daemon {
    /// Starts it, and waits until it says that it is ready.
    pub fn start(bench: &Bench, config: &str) -> Self {
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
    pub fn wait(&self, what: &str) -> String {
        let mut buffer = [0; 1024];
        loop {
            let n = self.heard.recv(&mut buffer).unwrap_or_else(|e| panic!("no {what}: {e}"));
            let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
            if text.contains(what) {
                return text;
            }
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Sockets of the process that anybody could reach over a network.
    pub fn listens(&self) -> Vec<String> {
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
    pub fn end(mut self) -> (i32, String) {
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
