//! Models, identities and consent as goods: got, checked, stored.
//!
//! Nothing here looks at a pixel or inside a model. Read downwards: each module uses only those above it.

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
pub mod consent;
pub mod manifest;
pub mod draft;
pub mod seal;
pub mod settings;
pub mod package;
pub mod slots;
pub mod accept;
pub mod install;
pub mod keyring;
pub mod models;
mod tool;
pub mod fetch;
pub mod store;

pub use errors::{Error, Result};
pub use home::Home;
pub use models::{ModelSource, ModelStore};
pub use store::{OldStore, SourceStore, StoredSource};
