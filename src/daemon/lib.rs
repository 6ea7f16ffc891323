//! The process that holds jobs, files and policy, and never touches a pixel.
//!
//! Read downwards: each module uses only those above it.

#![forbid(unsafe_code)]

pub mod config;
pub mod audit;
#[path = "errors.rs"]
mod errors;
pub mod contract;
pub mod store;
pub mod kind;
pub mod stream;
pub mod files;
pub mod segments;
pub mod supervise;
pub mod live;
pub mod telemetry;
pub mod service;
#[cfg(feature = "c2pa")]
pub mod provenance;
pub mod jobs;
pub mod mqtt;
pub mod fleet;

pub use errors::{Error, Result};
