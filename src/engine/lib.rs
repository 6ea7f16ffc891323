//! Runs one model on one device, and the picture operations where the pictures live.
//!
//! Read downwards: each module uses only those above it.

#[path = "errors.rs"]
mod errors;
pub mod tensor;
pub mod contract;
pub mod made;
pub mod onnx;
pub mod backend;
pub mod suite;
pub mod cpu;
pub mod fold;

pub use errors::{Error, Result};
