//! Encoding with bounds.
