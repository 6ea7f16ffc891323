//! Takes a source's face from a picture, or says why not.
