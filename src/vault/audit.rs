//! What this crate does that must be provable later, said to whoever keeps the record.

use std::io;

use serde_json::Value;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    ModelInstall,
    /// A version came into use: activated, or rolled back to.
    ModelActivate,
    ModelRemove,
    /// A key was made, rotated, revoked or trusted.
    Key,
    /// A package was refused; the body has the reason's code.
    Refused,
}

/// Keeps the record.
pub trait AuditSink {
    /// Adds an entry; when this returns, it is durable.
    ///
    /// # Errors
    /// When it can't be kept: then the deed must not take effect.
    fn append(&mut self, deed: Deed, body: Value) -> io::Result<()>;
}

/// Keeps the record in memory, for tests.
impl AuditSink for Vec<(Deed, Value)> {
    fn append(&mut self, deed: Deed, body: Value) -> io::Result<()> {
        self.push((deed, body));
        Ok(())
    }
}
