//! Makes a face unrecognisable.
