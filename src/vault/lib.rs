//! Models, identities and consent as goods: got, checked, stored.
//!
//! Files only; nothing here looks at a pixel. Read downwards: each module uses only those above it.

#![forbid(unsafe_code)]

pub mod errors;
pub mod digest;
mod files;
pub mod home;
pub mod catalog;
pub mod memfd;
pub mod models;
mod tool;
pub mod fetch;
pub mod consent;
pub mod store;

pub use errors::{Error, Result};
pub use home::Home;
pub use models::{ModelSource, ModelStore};
pub use store::{FileStore, SourceStore, StoredSource};
