//! Pictures in memory: views, geometry, and every loop over pixels.
//!
//! Read downwards: each module uses only those above it.

pub mod errors;
pub mod geometry;
pub mod view;
pub mod simd;
pub mod convert;
pub mod i420;
pub mod turn;
pub mod resize;
pub mod warp;
pub mod filter;
pub mod blend;
pub mod camera;
pub mod stamp;
pub mod tensor;
pub mod codec;
pub mod mesh;
pub mod raster;
pub mod tone;
pub mod skin;
pub mod cover;
pub mod stdm;
pub mod glyph;
pub mod made;
pub mod flow;
