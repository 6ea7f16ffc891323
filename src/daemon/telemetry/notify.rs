//! Tells systemd how the daemon stands: ready, status, watchdog, over its datagram socket.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The socket of whoever started the daemon, when it gave one.
#[derive(Debug)]
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    period: Option<Duration>,
}

impl Notify {
    /// By the environment: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    #[must_use]
    pub fn from_env() -> Self {
        Self::of(|name| std::env::var(name).ok(), std::process::id())
    }

    pub(crate) fn of(var: impl Fn(&str) -> Option<String>, pid: u32) -> Self {
        let address = var("NOTIFY_SOCKET").and_then(|path| match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => path.starts_with('/').then(|| SocketAddr::from_pathname(path).ok()).flatten(),
        });
        let to = address.and_then(|address| {
            let socket = UnixDatagram::unbound().ok()?;
            // A full socket is no reason to stand still.
            socket.set_nonblocking(true).ok()?;
            Some((socket, address))
        });
        let ours = var("WATCHDOG_PID").is_none_or(|text| text.parse() == Ok(pid));
        let micros = var("WATCHDOG_USEC").and_then(|text| text.parse().ok()).filter(|_| ours);
        Self { to, period: micros.map(Duration::from_micros) }
    }

    /// How often systemd wants to hear of progress; half of what it waits for.
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        self.period.map(|period| period / 2)
    }

    /// True when somebody listens.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.to.is_some()
    }

    /// Everything that was asked for is started.
    pub fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// How it stands, in a line.
    pub fn status(&self, status: &str) {
        self.say(&format!("STATUS={}", one_line(status)));
    }

    /// The configuration is read anew; `ready` follows.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// There was progress.
    pub fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    fn say(&self, text: &str) {
        if let Some((socket, address)) = &self.to {
            // Who started us has gone, or is busy: the next word may be heard.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(240).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_arrives_and_nobody_listening_is_no_fault() {
        let name = format!("mien-notify-{}", std::process::id());
        let socket =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let var = |key: &str| match key {
            "NOTIFY_SOCKET" => Some(format!("@{name}")),
            "WATCHDOG_USEC" => Some("2000000".to_owned()),
            "WATCHDOG_PID" => Some("7".to_owned()),
            _ => None,
        };
        let notify = Notify::of(var, 7);
        assert_eq!(notify.period(), Some(Duration::from_secs(1)));
        assert_eq!(Notify::of(var, 8).period(), None, "meant for another process");
        let mut buffer = [0; 256];
        let mut heard = || {
            let n = socket.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..n].to_vec()).unwrap()
        };
        notify.ready("2 pipelines\nrun");
        assert_eq!(heard(), "READY=1\nSTATUS=2 pipelines run");
        notify.alive();
        assert_eq!(heard(), "WATCHDOG=1");
        notify.reloading();
        assert!(heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        drop(socket);
        notify.stopping();
        assert!(!Notify::of(|_| None, 7).is_heard());
    }
}
