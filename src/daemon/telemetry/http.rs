//! `/metrics` and `/healthz` on this machine's own address, when the configuration says where.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Health;
use crate::{Error, Result};

/// Longest head of a request that is read, in bytes.
const HEAD: usize = 4 << 10;
/// How long one who asks may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is served: written by the main loop, read by whoever asks.
#[derive(Debug, Default)]
struct Pages {
    metrics: String,
    health: Option<Health>,
}

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    pages: Arc<Mutex<Pages>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Listens.
    ///
    /// # Errors
    /// `Listen`.
    pub fn start(address: SocketAddr) -> Result<Self> {
        let failed = |source| Error::Listen { place: address.to_string(), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let pages: Arc<Mutex<Pages>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (shown, ended) = (pages.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                // One after the other: who asks slowly is cut off.
                for stream in listener.incoming() {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Ok(stream) = stream {
                        // Who goes away early is not answered.
                        let _ = answer(stream, &shown);
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self { address, pages, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is told from now on.
    pub fn tell(&self, metrics: String, health: Health) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        (pages.metrics, pages.health) = (metrics, Some(health));
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread from its wait.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, pages: &Mutex<Pages>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = [0; HEAD];
    let mut len = 0;
    let whole = loop {
        let n = match head.get_mut(len..) {
            Some(rest) if !rest.is_empty() => stream.read(rest)?,
            _ => break false,
        };
        len += n;
        let read = head.get(..len).unwrap_or_default();
        if read.windows(4).any(|four| four == b"\r\n\r\n") {
            break true;
        }
        if n == 0 {
            break false;
        }
    };
    let line = head.get(..len).unwrap_or_default().split(|b| *b == b'\r').next();
    let mut words = line.unwrap_or_default().split(|b| *b == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, kind, body) = {
        let pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
        match (whole, method, path) {
            (false, ..) => ("400 Bad Request", "text/plain", "no request\n".to_owned()),
            (_, b"GET", b"/metrics") => {
                ("200 OK", "text/plain; version=0.0.4", pages.metrics.clone())
            }
            (_, b"GET", b"/healthz") => match &pages.health {
                Some(health) if health.healthy => ("200 OK", "text/plain", "healthy\n".to_owned()),
                Some(health) => {
                    ("503 Service Unavailable", "text/plain", health.reasons.join("\n") + "\n")
                }
                None => ("503 Service Unavailable", "text/plain", "starting\n".to_owned()),
            },
            (_, b"GET", _) => ("404 Not Found", "text/plain", "/metrics or /healthz\n".to_owned()),
            _ => ("405 Method Not Allowed", "text/plain", "GET\n".to_owned()),
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn two_pages_are_served_and_nothing_else() {
        let metrics = Metrics::start("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = metrics.address();
        assert!(ask(at, b"GET /healthz HTTP/1.1\r\n\r\n").contains("503"));
        let why = vec!["pipeline door has failed".to_owned()];
        metrics.tell("mien_healthy 0\n".to_owned(), Health { healthy: false, reasons: why });
        assert!(ask(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("mien_healthy 0\n"));
        assert!(ask(at, b"GET /healthz HTTP/1.1\r\n\r\n").contains("pipeline door has failed"));
        assert!(ask(at, b"GET /etc/passwd HTTP/1.1\r\n\r\n").contains("404"));
        assert!(ask(at, b"POST /metrics HTTP/1.1\r\n\r\n").contains("405"));
        assert!(ask(at, &[b'x'; 3 * HEAD]).len() < 400);
        assert!(ask(at, b"").contains("400"));
        drop(metrics);
        assert!(TcpStream::connect(at).is_err(), "it still listens");
    }
}
