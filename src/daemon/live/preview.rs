//! A preview over HTTP, on this machine only and with a token: `/` streams, `/picture` is one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mien_base::limits;

use crate::config::{Listen, Mjpeg};
use crate::errors::file;
use crate::{Error, Result};

/// Longest time for a request, and for a picture on its way.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often somebody who waits looks whether it is over.
const LOOK: Duration = Duration::from_millis(250);
/// Largest request, in bytes.
const HEAD: usize = 4096;
/// Those who may look at once.
const VIEWERS: u32 = 4;
/// Least length of a token, in bytes.
const TOKEN: usize = 16;
const BOUNDARY: &str = "mien";

#[derive(Debug, Default)]
struct Newest {
    /// Counts pictures, so that each is sent once.
    number: u64,
    picture: Option<Arc<Vec<u8>>>,
}

/// What connections share.
#[derive(Debug)]
struct Shared {
    newest: Mutex<Newest>,
    changed: Condvar,
    viewers: AtomicU32,
    stop: AtomicBool,
    token: Vec<u8>,
}

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct Preview {
    listen: Listen,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Either kind of connection.
trait Stream: Read + Write + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// The token of a file, without the space around it.
///
/// # Errors
/// `File` when it can't be read, or is too short to be a secret.
pub(super) fn token(path: &PathBuf) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let opened = std::fs::File::open(path).map_err(file("read the token", path))?;
    let most = limits::TEXT_FILE;
    opened.take(most).read_to_end(&mut text).map_err(file("read the token", path))?;
    let token = text.trim_ascii().to_vec();
    let plain = token.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if token.len() < TOKEN || !plain {
        let why = format!("a token has at least {TOKEN} of a-z, A-Z, 0-9, `-`, `_`, `.`");
        let broken = std::io::Error::new(std::io::ErrorKind::InvalidData, why);
        return Err(file("use the token", path)(broken));
    }
    Ok(token)
}

impl Preview {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// `Listen`; of the token's file.
    pub(super) fn start(of: &Mjpeg) -> Result<Self> {
        let token = token(&of.token)?;
        let place = match &of.listen {
            Listen::Loopback(address) => address.to_string(),
            Listen::Unix(path) => path.display().to_string(),
        };
        let failed = |source| Error::Listen { place: place.clone(), source };
        let listener = match &of.listen {
            Listen::Loopback(address) => Listener::Tcp(TcpListener::bind(address).map_err(failed)?),
            Listen::Unix(path) => {
                remove_socket(path);
                let listener = UnixListener::bind(path).map_err(failed)?;
                let mode = std::fs::Permissions::from_mode(0o600);
                std::fs::set_permissions(path, mode).map_err(failed)?;
                Listener::Unix(listener)
            }
        };
        let shared = Arc::new(Shared {
            newest: Mutex::default(),
            changed: Condvar::new(),
            viewers: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            token,
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("preview".to_owned())
            .spawn(move || serve(&listener, &of_thread))
            .map_err(failed)?;
        Ok(Self { listen: of.listen.clone(), shared, thread: Some(thread) })
    }

    /// Who looks just now.
    pub(super) fn viewers(&self) -> u32 {
        self.shared.viewers.load(Ordering::Relaxed)
    }

    /// The picture that is shown from now on.
    pub(super) fn show(&self, picture: Vec<u8>) {
        let mut newest = self.shared.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.number += 1;
        newest.picture = Some(Arc::new(picture));
        drop(newest);
        self.shared.changed.notify_all();
    }
}

fn remove_socket(path: &PathBuf) {
    use std::os::unix::fs::FileTypeExt as _;
    if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        let _ = std::fs::remove_file(path);
    }
}

impl Drop for Preview {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        // Wakes the thread from its wait.
        match &self.listen {
            Listen::Loopback(address) => {
                let _ = TcpStream::connect_timeout(address, PATIENCE);
            }
            Listen::Unix(path) => {
                let _ = UnixStream::connect(path);
            }
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Listen::Unix(path) = &self.listen {
            remove_socket(path);
        }
    }
}

/// A viewer, for as long as it looks.
struct Viewer(Arc<Shared>);

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(listener: &Listener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut stream) = accepted else {
            // Out of descriptors: whoever asked comes again.
            std::thread::sleep(LOOK);
            continue;
        };
        if shared.viewers.fetch_add(1, Ordering::Relaxed) >= VIEWERS {
            shared.viewers.fetch_sub(1, Ordering::Relaxed);
            let _ = refuse(stream.as_mut(), "503 Service Unavailable", "too many look\n");
            continue;
        }
        let viewer = Viewer(Arc::clone(shared));
        // Whoever can't be served comes again.
        let _ = std::thread::Builder::new().name("viewer".to_owned()).spawn(move || {
            let _ = answer(stream.as_mut(), &viewer.0);
        });
    }
}

fn refuse(stream: &mut dyn Stream, status: &str, why: &str) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{why}",
        why.len()
    )
}

/// True when both are the same; it takes as long wherever they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differs = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differs == 0
}

/// Path and token of a request.
fn parse(head: &[u8]) -> Option<(&str, Option<&str>)> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    if method != "GET" {
        return None;
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let in_query = query.split('&').find_map(|part| part.strip_prefix("token="));
    let in_head = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let bearer = name.eq_ignore_ascii_case("authorization").then_some(value.trim())?;
        bearer.strip_prefix("Bearer ")
    });
    Some((path, in_head.or(in_query)))
}

fn answer(stream: &mut dyn Stream, shared: &Shared) -> std::io::Result<()> {
    let (mut head, mut len) = ([0; HEAD], 0);
    while !head.get(..len).unwrap_or_default().windows(4).any(|four| four == b"\r\n\r\n") {
        let n = match head.get_mut(len..) {
            Some(rest) if !rest.is_empty() => stream.read(rest)?,
            _ => 0,
        };
        if n == 0 {
            return refuse(stream, "400 Bad Request", "no request\n");
        }
        len += n;
    }
    let Some((path, token)) = parse(head.get(..len).unwrap_or_default()) else {
        return refuse(stream, "405 Method Not Allowed", "GET\n");
    };
    if !token.is_some_and(|token| same(token.as_bytes(), &shared.token)) {
        return refuse(stream, "401 Unauthorized", "the token is missing or wrong\n");
    }
    match path {
        "/" => {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nConnection: close\r\n\
                 Content-Type: multipart/x-mixed-replace; boundary={BOUNDARY}\r\n\r\n"
            )?;
            let mut sent = None;
            while let Some((number, picture)) = next(shared, sent) {
                let bytes = picture.len();
                write!(
                    stream,
                    "--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {bytes}\r\n\r\n"
                )?;
                stream.write_all(&picture)?;
                stream.write_all(b"\r\n")?;
                sent = Some(number);
            }
            Ok(())
        }
        "/picture" => {
            // What was shown before anybody looked is old.
            let now = shared.newest.lock().unwrap_or_else(PoisonError::into_inner).number;
            let Some((_, picture)) = next(shared, Some(now)) else { return Ok(()) };
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nConnection: close\r\n\
                 Content-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n",
                picture.len()
            )?;
            stream.write_all(&picture)
        }
        _ => refuse(stream, "404 Not Found", "/ or /picture\n"),
    }
}

/// The first picture after the one of that number; `None` at the end.
fn next(shared: &Shared, after: Option<u64>) -> Option<(u64, Arc<Vec<u8>>)> {
    let mut newest = shared.newest.lock().unwrap_or_else(PoisonError::into_inner);
    let start = newest.number;
    loop {
        if shared.stop.load(Ordering::Relaxed) {
            return None;
        }
        if newest.number > after.unwrap_or(start)
            && let Some(picture) = &newest.picture
        {
            return Some((newest.number, Arc::clone(picture)));
        }
        let waited = shared.changed.wait_timeout(newest, LOOK);
        newest = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn preview(name: &str) -> (Preview, PathBuf) {
        let at = std::env::temp_dir().join(format!("mien-preview-{name}-{}", std::process::id()));
        let (socket, secret) = (at.with_extension("sock"), at.with_extension("token"));
        std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
        let of = Mjpeg { listen: Listen::Unix(socket.clone()), token: secret, fps: 5, quality: 80 };
        (Preview::start(&of).unwrap(), socket)
    }

    fn ask(socket: &PathBuf, request: &str) -> UnixStream {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn whole(mut stream: UnixStream) -> String {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }

    #[test]
    fn without_the_token_nothing_is_shown() {
        let (preview, socket) = preview("token");
        preview.show(b"PICTURE".to_vec());
        for request in [
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "GET /picture?token=0123456789abcdeX HTTP/1.1\r\n\r\n".to_owned(),
            format!("GET /?token={SECRET}x HTTP/1.1\r\n\r\n"),
            "GET / HTTP/1.1\r\nAuthorization: Bearer \r\n\r\n".to_owned(),
        ] {
            let answer = whole(ask(&socket, &request));
            assert!(answer.starts_with("HTTP/1.1 401") && !answer.contains("PICTURE"), "{answer}");
        }
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(HEAD));
        assert!(whole(ask(&socket, &long)).starts_with("HTTP/1.1 400"));
        assert!(whole(ask(&socket, "POST / HTTP/1.1\r\n\r\n")).starts_with("HTTP/1.1 405"));
    }

    #[test]
    fn pictures_come_as_they_are_made_and_viewers_are_counted() {
        let (preview, socket) = preview("stream");
        preview.show(b"OLD".to_vec());
        let bearer = format!("GET / HTTP/1.1\r\nauthorization: Bearer {SECRET}\r\n\r\n");
        let streams = [ask(&socket, &bearer), ask(&socket, &bearer)];
        while preview.viewers() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        for mut stream in streams {
            let mut seen = String::new();
            let mut part = [0; 1024];
            while !seen.contains("NEW") {
                preview.show(b"NEW".to_vec());
                let n = stream.read(&mut part).unwrap();
                seen.push_str(&String::from_utf8_lossy(&part[..n]));
            }
            assert!(seen.contains("multipart/x-mixed-replace") && !seen.contains("OLD"), "{seen}");
        }
        let mut tries = 0;
        while preview.viewers() > 0 && tries < 1000 {
            preview.show(b"NEW".to_vec());
            std::thread::sleep(Duration::from_millis(10));
            tries += 1;
        }
        assert_eq!(preview.viewers(), 0, "who left is not counted");
        let stream = ask(&socket, &format!("GET /picture?token={SECRET} HTTP/1.1\r\n\r\n"));
        while preview.viewers() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(100));
        preview.show(b"ONE".to_vec());
        assert!(whole(stream).ends_with("\r\n\r\nONE"));
        drop(preview);
        assert!(!socket.exists());
    }

    #[test]
    fn a_token_that_is_no_secret_is_refused() {
        let at = std::env::temp_dir().join(format!("mien-short-{}.token", std::process::id()));
        std::fs::write(&at, "short\n").unwrap();
        assert!(token(&at).unwrap_err().to_string().contains("token"));
        std::fs::remove_file(&at).unwrap();
        assert!(token(&at).is_err());
    }
}
