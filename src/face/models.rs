//! The loaded models, one slot a role.
