//! Words that both processes share: ids, time, errors, bounds, recipes, reports, the wire.
//!
//! No I/O beyond `wire::fds`, no threads. Read downwards: each module uses only those above it.

pub mod limits;
pub mod error;
pub mod id;
pub mod clock;
pub mod model;
pub mod consent;
pub mod recipe;
pub mod grammar;
pub mod report;
pub mod wire;
