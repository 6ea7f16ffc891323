//! What is done to one frame: geometry, policy and order over an engine.
//!
//! Generic over the backend: stages hold no loop over pixels. Read downwards: each module uses
//! only those above it.

#![forbid(unsafe_code)]

#[path = "errors.rs"]
mod errors;
pub mod meter;
pub mod subject;
pub mod consent;
pub mod gate;
pub mod detect;
pub mod align;
pub mod landmarks;
pub mod embed;
pub mod gallery;
pub mod segment;
pub mod select;
pub mod recipe;
pub mod mask;
pub mod paste;
pub mod swap;
pub mod policy;
pub mod synthetic;
pub mod anonymise;
pub mod mark;
pub mod judge;
pub mod models;
pub mod enrol;
pub mod measure;
pub mod decision;
mod alteration;
pub mod pipeline;
pub mod track;
pub mod clip;

pub use errors::{Error, Result};
