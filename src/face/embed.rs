//! Aligned crop to embedding.
