//! Bytes to a broker and back, by TLS 1.3 or in plain, without blocking: one thread waits for all.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::errors::{Error, Result, file};

/// Most bytes that wait to be sent.
const WAITING: usize = 1 << 20;

/// Where a broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    pub host: String,
    pub port: u16,
    /// Files of TLS; without them everything goes in plain.
    pub tls: Option<TlsFiles>,
}

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Whose word counts for the broker's certificate.
    pub ca: PathBuf,
    /// The client's certificate and key.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Broker {
    /// From `mqtts://HOST[:PORT]` or `mqtt://HOST[:PORT]`.
    ///
    /// # Errors
    /// `Broker` when the address is none, or the files don't fit it.
    pub fn parse(url: &str, tls: Option<TlsFiles>) -> Result<Self> {
        let bad = |why: &str| Error::Broker { url: url.to_owned(), why: why.to_owned() };
        let (secure, rest) = match url.split_once("://") {
            Some(("mqtts", rest)) => (true, rest),
            Some(("mqtt", rest)) => (false, rest),
            _ => return Err(bad("must begin with mqtts:// or mqtt://")),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') => {
                (host, port.parse().map_err(|_| bad("has a port that is no number"))?)
            }
            _ => (rest, if secure { 8883 } else { 1883 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-:_".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(bad("names no host"));
        }
        if secure != tls.is_some() {
            let why = "mqtts needs ca, certificate and key, and mqtt takes none";
            return Err(bad(why));
        }
        Ok(Self { host: host.to_owned(), port, tls })
    }
}

impl std::fmt::Display for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls.is_some() { "mqtts" } else { "mqtt" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

fn pem<T>(path: &Path, read: std::result::Result<T, rustls::pki_types::pem::Error>) -> Result<T> {
    read.map_err(|error| match error {
        rustls::pki_types::pem::Error::Io(source) => file("read", path)(source),
        other => Error::Broker { url: path.display().to_string(), why: other.to_string() },
    })
}

/// What TLS works with, read from its files.
///
/// # Errors
/// `File`, `Broker`.
pub fn client_config(files: &TlsFiles) -> Result<Arc<ClientConfig>> {
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>> {
        let all = pem(path, CertificateDer::pem_file_iter(path))?;
        all.map(|one| pem(path, one)).collect()
    };
    let bad = |path: &Path| {
        let url = path.display().to_string();
        move |error: rustls::Error| Error::Broker { url, why: error.to_string() }
    };
    let mut roots = RootCertStore::empty();
    for root in certificates(&files.ca)? {
        roots.add(root).map_err(bad(&files.ca))?;
    }
    let key = pem(&files.key, PrivateKeyDer::from_pem_file(&files.key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(bad(&files.ca))?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(&files.certificate)?, key)
        .map_err(bad(&files.certificate))?;
    // A session that is resumed would skip the look at a certificate that was replaced.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// A connection.
pub(super) struct Stream {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    out: Vec<u8>,
}

impl Stream {
    /// Connects; waits at most `patience` for it.
    pub(super) fn connect(
        broker: &Broker,
        config: Option<&Arc<ClientConfig>>,
        patience: Duration,
    ) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        let mut socket = None;
        for address in (broker.host.as_str(), broker.port).to_socket_addrs()?.take(4) {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(connected) => {
                    socket = Some(connected);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let socket = socket.ok_or(last)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        // A peer that is gone without a word is noticed although nothing is read from it.
        rustix::net::sockopt::set_tcp_user_timeout(&socket, 20_000)?;
        let tls = match config {
            None => None,
            Some(config) => {
                let name = ServerName::try_from(broker.host.clone()).map_err(io::Error::other)?;
                let connection =
                    ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                Some(Box::new(connection))
            }
        };
        Ok(Self { socket, tls, out: Vec::new() })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Something waits to be sent.
    pub(super) fn wants_write(&self) -> bool {
        !self.out.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Bytes that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Puts bytes in line.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.out.len() + bytes.len() > WAITING {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the broker takes nothing"));
        }
        self.out.extend_from_slice(bytes);
        self.flush()
    }

    /// Sends what can be sent now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => {
                while !self.out.is_empty() {
                    match self.socket.write(&self.out) {
                        Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                        Ok(n) => drop(self.out.drain(..n)),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Some(tls) => loop {
                if !self.out.is_empty() {
                    let taken = tls.writer().write(&self.out)?;
                    self.out.drain(..taken);
                }
                if !tls.wants_write() {
                    break;
                }
                match tls.write_tls(&mut self.socket) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            },
        }
        Ok(())
    }

    /// Reads what there is to the end of `to`; true when there is more. An error at the end of the
    /// connection.
    pub(super) fn receive(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let mut more = false;
        let mut part = [0; 8192];
        loop {
            let read = match &mut self.tls {
                None => self.socket.read(&mut part),
                Some(tls) => match tls.reader().read(&mut part) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        match tls.read_tls(&mut self.socket) {
                            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                            Ok(_) => {
                                let processed = tls.process_new_packets();
                                // Why it failed is told to the other side, when that can be.
                                if let Err(error) = processed {
                                    let _ = tls.write_tls(&mut self.socket);
                                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                                }
                                continue;
                            }
                            Err(error) => Err(error),
                        }
                    }
                    read => read,
                },
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => to.extend_from_slice(part.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // What was read is looked at before more is.
            if to.len() > super::packet::LARGEST * 2 {
                more = true;
                break;
            }
        }
        if self.tls.is_some() {
            self.flush()?;
        }
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_bad_ones_say_why() {
        let tls = || {
            let path = |name: &str| PathBuf::from(name);
            Some(TlsFiles { ca: path("ca"), certificate: path("c"), key: path("k") })
        };
        let broker = Broker::parse("mqtts://b.example", tls()).unwrap();
        assert_eq!((broker.host.as_str(), broker.port), ("b.example", 8883));
        assert_eq!(Broker::parse("mqtt://127.0.0.1:77", None).unwrap().port, 77);
        assert_eq!(Broker::parse("mqtt://[::1]:77", None).unwrap().host, "::1");
        for (url, tls) in [
            ("b.example", None),
            ("http://b", None),
            ("mqtt://", None),
            ("mqtt://b:x", None),
            ("mqtt://b/../c", None),
            ("mqtts://b", None),
            ("mqtt://b", tls()),
        ] {
            assert!(Broker::parse(url, tls).is_err(), "{url}");
        }
    }
}
