//! MP4 and QuickTime: reading phones' files, writing segments, joining them.

pub(crate) mod boxes;
pub(crate) mod table;
pub(crate) mod movie;
pub(crate) mod fragment;
pub(crate) mod index;
pub(crate) mod picture;
mod reader;
pub(crate) mod write;
mod aigc;
mod segment;
mod sound;
mod join;

pub use aigc::aigc;
pub use join::{Finish, join};
pub use reader::{Reader, is_one};
pub use segment::Writer;

#[cfg(test)]
mod tests;
