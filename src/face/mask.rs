//! Which part of a face is altered: shapes for the backend to draw.
