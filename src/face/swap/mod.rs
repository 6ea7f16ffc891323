//! Puts a consented source's face on another.
