//! Control protocol between daemon and worker, over one seqpacket socket.

pub mod codec;
pub mod fds;

/// Version of the protocol; both sides say it in their first message.
pub const PROTOCOL: u16 = 1;
