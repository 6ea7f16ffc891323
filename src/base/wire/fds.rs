//! Packets with file descriptors, over one seqpacket socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{self, Malformed};
use crate::limits;

/// What can go wrong on the socket.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("The control socket failed: {0}")]
    Socket(Errno),
    /// The other side is gone.
    #[error("The other process closed the control socket")]
    Closed,
    /// Nothing could be sent or received in the time given.
    #[error("The control socket is not ready")]
    NotReady,
    /// Cut, too many descriptors, or none where one is due.
    #[error("A packet was cut or came with the wrong number of descriptors")]
    Packet,
    #[error(transparent)]
    Message(#[from] Malformed),
}

/// One end of the control socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// One message and what came with it.
#[derive(Debug)]
pub struct Received<T> {
    pub message: T,
    pub fds: Vec<OwnedFd>,
}

impl Socket {
    /// Two connected ends.
    ///
    /// # Errors
    /// `Socket`.
    pub fn pair() -> Result<(Self, Self), WireError> {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(WireError::Socket)?;
        Ok((Self::from_fd(a), Self::from_fd(b)))
    }

    /// Takes a descriptor that is one end.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd, buffer: Vec::new() }
    }

    /// Gives the descriptor up.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Sends one message if the socket takes it at once.
    ///
    /// # Errors
    /// `NotReady` when the other side does not read, `Closed`, `Socket`, `Message`.
    pub fn send<T: Serialize>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> Result<(), WireError> {
        let bytes = codec::encode(message)?;
        if fds.len() > limits::WIRE_FDS || bytes.is_empty() {
            return Err(WireError::Packet);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(limits::WIRE_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(WireError::Packet);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(&self.fd, &[IoSlice::new(&bytes)], &mut control, flags) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(_) => return Err(WireError::Packet),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(WireError::NotReady),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(WireError::Closed),
                Err(errno) => return Err(WireError::Socket(errno)),
            }
        }
    }

    /// Receives one message if there is one. Descriptors that come along are closed on exec.
    ///
    /// # Errors
    /// `NotReady` when nothing waits, `Closed`, `Packet`, `Message`, `Socket`.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<Received<T>, WireError> {
        // One byte more than the longest message, so that a longer one is seen to be cut.
        self.buffer.resize(limits::WIRE_MESSAGE + 1, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(limits::WIRE_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = loop {
            let mut parts = [IoSliceMut::new(&mut self.buffer)];
            match recvmsg(&self.fd, &mut parts, &mut control, flags) {
                Ok(got) => break got,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(WireError::NotReady),
                Err(Errno::CONNRESET) => return Err(WireError::Closed),
                Err(errno) => return Err(WireError::Socket(errno)),
            }
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(WireError::Packet);
        }
        if got.bytes == 0 {
            return Err(WireError::Closed);
        }
        let bytes = self.buffer.get(..got.bytes).ok_or(WireError::Packet)?;
        Ok(Received { message: codec::decode(bytes)?, fds })
    }

    /// Waits until a message can be received or the other side is gone; false when time is up.
    ///
    /// # Errors
    /// `Socket`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, WireError> {
        wait(&mut [PollFd::new(&self.fd, PollFlags::IN)], timeout)
    }

    /// Waits until a message can be sent, or the other side is gone; false when time is up.
    ///
    /// # Errors
    /// `Socket`.
    pub fn wait_to_send(&self, timeout: Duration) -> Result<bool, WireError> {
        wait(&mut [PollFd::new(&self.fd, PollFlags::OUT)], Some(timeout))
    }

    /// Waits for a message here or for `other` to become readable.
    ///
    /// # Errors
    /// `Socket`.
    pub fn wait_or(
        &self,
        other: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<bool, WireError> {
        let mut fds =
            [PollFd::new(&self.fd, PollFlags::IN), PollFd::from_borrowed_fd(other, PollFlags::IN)];
        wait(&mut fds, timeout)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<bool, WireError> {
    let timeout = timeout.map(|t| Timespec {
        tv_sec: t.as_secs().min(1 << 30).try_into().unwrap_or(1 << 30),
        tv_nsec: t.subsec_nanos().into(),
    });
    match poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        // A signal: the caller looks at its flags and comes back.
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(WireError::Socket(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::{FdFlags, fcntl_getfd};

    fn file() -> OwnedFd {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, b"hello").unwrap();
        fd
    }

    #[test]
    fn a_message_arrives_with_its_descriptors_closed_on_exec() {
        let (a, mut b) = Socket::pair().unwrap();
        let fd = file();
        a.send(&42u32, &[fd.as_fd(), fd.as_fd()]).unwrap();
        assert!(b.wait(Some(Duration::ZERO)).unwrap());
        let got = b.receive::<u32>().unwrap();
        assert_eq!((got.message, got.fds.len()), (42, 2));
        let mut text = [0; 5];
        assert_eq!(rustix::io::pread(&got.fds[1], &mut text, 0).unwrap(), 5);
        assert_eq!(&text, b"hello");
        assert!(fcntl_getfd(&got.fds[0]).unwrap().contains(FdFlags::CLOEXEC));
    }

    #[test]
    fn a_full_load_of_descriptors_fits_and_one_more_is_refused() {
        let (a, mut b) = Socket::pair().unwrap();
        let fd = file();
        let all = vec![fd.as_fd(); limits::WIRE_FDS];
        a.send(&(), &all).unwrap_err();
        a.send(&1u8, &all).unwrap();
        assert_eq!(b.receive::<u8>().unwrap().fds.len(), limits::WIRE_FDS);
        let more = vec![fd.as_fd(); limits::WIRE_FDS + 1];
        assert!(matches!(a.send(&1u8, &more), Err(WireError::Packet)));
    }

    #[test]
    fn descriptors_beyond_the_bound_from_a_hostile_sender_are_refused() {
        let (a, mut b) = Socket::pair().unwrap();
        let fd = file();
        let more = vec![fd.as_fd(); limits::WIRE_FDS + 5];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(limits::WIRE_FDS + 5))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&more)));
        sendmsg(&a.fd, &[IoSlice::new(&[1])], &mut control, SendFlags::empty()).unwrap();
        assert!(matches!(b.receive::<u8>(), Err(WireError::Packet)));
    }

    #[test]
    fn a_packet_longer_than_a_message_is_refused_and_the_next_is_read() {
        let (a, mut b) = Socket::pair().unwrap();
        rustix::io::write(&a.fd, &vec![1; limits::WIRE_MESSAGE + 10]).unwrap();
        a.send(&7u8, &[]).unwrap();
        assert!(matches!(b.receive::<u8>(), Err(WireError::Packet | WireError::Message(_))));
        assert_eq!(b.receive::<u8>().unwrap().message, 7);
    }

    #[test]
    fn the_longest_message_passes() {
        let (a, mut b) = Socket::pair().unwrap();
        let long = vec![1u8; limits::WIRE_MESSAGE - 3];
        a.send(&long, &[]).unwrap();
        assert_eq!(b.receive::<Vec<u8>>().unwrap().message, long);
    }

    #[test]
    fn the_end_of_the_other_side_is_seen() {
        let (a, mut b) = Socket::pair().unwrap();
        assert!(matches!(b.receive::<u8>(), Err(WireError::NotReady)));
        drop(a);
        assert!(b.wait(None).unwrap());
        assert!(matches!(b.receive::<u8>(), Err(WireError::Closed)));
        assert!(matches!(b.send(&1u8, &[]), Err(WireError::Closed)));
    }

    #[test]
    fn a_reader_that_sleeps_does_not_hold_the_sender() {
        let (a, _b) = Socket::pair().unwrap();
        let long = vec![1u8; limits::WIRE_MESSAGE - 3];
        let full = (0..100).find_map(|_| a.send(&long, &[]).err());
        assert!(matches!(full, Some(WireError::NotReady)));
    }
}
