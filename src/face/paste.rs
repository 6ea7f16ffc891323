//! Lays an altered crop back over its picture.
