//! Pictures in memory: views, geometry, and every loop over pixels.
//!
//! Read downwards: each module uses only those above it.

pub mod geometry;
pub mod view;
