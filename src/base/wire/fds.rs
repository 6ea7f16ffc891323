//! Packets with file descriptors.
