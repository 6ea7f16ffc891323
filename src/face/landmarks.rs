//! 468 points of one face, in two passes.
