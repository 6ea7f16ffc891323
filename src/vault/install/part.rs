//! A package on its way in: a file that grows, and goes on where an earlier try stopped.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::errors::Result;
use crate::files;
use crate::seal::CHUNK;

/// Brings `to` to the `size` bytes of `from`: goes on where an earlier try stopped, or `again`.
pub(super) fn grow(from: &Path, to: &Path, size: u64, again: bool) -> Result<()> {
    let mut source = files::open_regular(from)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(again).mode(0o600);
    let mut part = options.open(to).map_err(files::io("create", to))?;
    let there = part.metadata().map_err(files::io("read", to))?.len().min(size);
    source.seek(SeekFrom::Start(there)).map_err(files::io("read", from))?;
    part.set_len(there).map_err(files::io("write", to))?;
    part.seek(SeekFrom::Start(there)).map_err(files::io("write", to))?;
    let mut source = source.take(size - there);
    let mut chunk = vec![0; CHUNK];
    loop {
        let n = source.read(&mut chunk).map_err(files::io("read", from))?;
        let Some(bytes) = chunk.get(..n).filter(|bytes| !bytes.is_empty()) else { break };
        part.write_all(bytes).map_err(files::io("write", to))?;
    }
    part.sync_all().map_err(files::io("write", to))
}
