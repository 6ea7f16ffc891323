//! Models, identities and consent as goods: got, checked, stored.
//!
//! Files only; nothing here looks at a pixel. Read downwards: each module uses only those above it.

pub mod refusal;
pub mod errors;
pub mod digest;
pub mod text;
mod files;
pub mod home;
pub mod random;
pub mod audit;
pub mod sign;
pub mod trust;
pub mod keyslot;
pub mod catalog;
pub mod memfd;
pub mod manifest;
pub mod seal;
pub mod package;
pub mod models;
mod tool;
pub mod fetch;
pub mod consent;
pub mod store;

pub use errors::{Error, Result};
pub use home::Home;
pub use models::{ModelSource, ModelStore};
pub use store::{OldStore, SourceStore, StoredSource};
