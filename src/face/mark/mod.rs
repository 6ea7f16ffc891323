//! What says that a picture was altered.
