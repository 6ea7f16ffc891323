//! What a file is, from its first bytes.

use std::io::{Cursor, Read, Seek, SeekFrom};

use crate::clip::{FrameSource, ReadSeek};
use crate::errors::{Error, Result};
use crate::{mp4, y4m};

/// Opens a file.
///
/// # Errors
/// When it is no clip, damaged, or of a kind that is refused by name.
pub fn open(mut file: Box<dyn ReadSeek + Send>) -> Result<Box<dyn FrameSource>> {
    let mut head = [0; 12];
    let mut known = 0;
    while known < head.len() {
        match file.read(&mut head[known..]).map_err(Error::read)? {
            0 => break,
            more => known += more,
        }
    }
    file.seek(SeekFrom::Start(0)).map_err(Error::read)?;
    let head = &head[..known];
    if head.starts_with(y4m::MAGIC) {
        return Ok(Box::new(y4m::Reader::new(file)?));
    }
    if mp4::is_one(head) {
        return Ok(Box::new(mp4::Reader::new(file)?));
    }
    Err(foreign(head))
}

/// Opens a pipe of which `head` was read already. Only raw frames come through pipes: the index
/// of an MP4 file may stand at its end.
///
/// # Errors
/// As `open`.
pub fn open_pipe(head: Vec<u8>, rest: Box<dyn Read + Send>) -> Result<Box<dyn FrameSource>> {
    if head.starts_with(y4m::MAGIC) {
        return Ok(Box::new(y4m::Reader::new(Cursor::new(head).chain(rest))?));
    }
    if mp4::is_one(&head) {
        return Err(Error::Foreign {
            what: "MP4 from a pipe".to_owned(),
            done: "read",
            advice: "name the file, or pipe raw frames: ffmpeg -i IN -f yuv4mpegpipe -",
        });
    }
    Err(foreign(&head))
}

fn foreign(head: &[u8]) -> Error {
    let at = |from: usize, magic: &[u8]| head.get(from..).is_some_and(|h| h.starts_with(magic));
    let name = if at(0, &[0x1a, 0x45, 0xdf, 0xa3]) {
        "Matroska or WebM"
    } else if at(0, b"RIFF") && at(8, b"AVI ") {
        "AVI"
    } else if at(0, b"FLV") {
        "Flash video"
    } else if at(0, &[0x30, 0x26, 0xb2, 0x75]) {
        "Windows Media"
    } else if at(0, &[0, 0, 1, 0xba]) || at(0, &[0, 0, 1, 0xb3]) {
        "MPEG programme stream"
    } else if at(0, b"G") && !at(0, b"GIF") {
        "MPEG transport stream"
    } else if at(0, &[0, 0, 0, 1]) || at(0, &[0, 0, 1]) {
        "H.264 without a container"
    } else {
        return Error::Unknown;
    };
    Error::foreign(name)
}
