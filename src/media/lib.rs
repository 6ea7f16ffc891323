//! Clips: containers, H.264 and raw frames, read from hostile bytes and written to survive a crash.
//!
//! Read downwards: each module uses only those above it.

#![forbid(unsafe_code)]

pub mod errors;
pub mod clip;
mod bits;
pub mod h264;
pub mod y4m;
pub mod mp4;
pub mod open;
