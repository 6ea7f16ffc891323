//! Puts a consented source's face on another: by mesh (no model), or by a generator.
//!
//! Read downwards: each module uses only those above it.

pub(crate) mod topology;
mod shape;
mod zone;
pub mod texture;
pub mod mesh;
pub mod generator;

pub use shape::mean;
