//! Which of the found faces are meant.
