//! Where a person stands in a picture.
