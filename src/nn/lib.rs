//! Runs neural networks on the CPU: a graph is compiled once into a flat plan with packed weights
//! and planned buffers, and runs without allocating.
//!
//! Read downwards: each module uses only those above it.

#[path = "errors.rs"]
mod errors;
pub mod protobuf;
pub mod element;
pub mod simd;
mod constant;
mod graph;
mod patterns;
mod ops;
mod lower;
mod fuse;
mod layout;
mod pointwise;
mod spatial;
mod shapes;
mod plan;
mod run;
mod network;
#[cfg(test)]
mod levels;

pub use errors::{Error, Result};
pub use network::{Input, Memory, Network, Output};
pub use simd::Level;
pub use simd::team::Team;
