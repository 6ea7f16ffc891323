//! The CPU backend: the embedded default, and the reference for every other.
