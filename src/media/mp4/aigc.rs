//! The `AIGC` key in an MP4 file's metadata (`udta/meta`, keys of `mdta`), as ffmpeg writes it
//! with `use_metadata_tags`.

use std::io::{Read, Seek};

use mien_base::limits;

use super::boxes::{Boxes, Fields, Kind, Walk, load};
use super::reader::length_of;
use super::write::{boxed, full, handler, word};
use crate::errors::{Error, Result};

const KEY: &[u8] = b"AIGC";
/// Type of a value: UTF-8.
const TEXT: u32 = 1;

/// Appends `udta` with the record.
pub(crate) fn write(out: &mut Vec<u8>, record: &str) {
    boxed(out, *b"udta", |out| {
        full(out, *b"meta", 0, 0, |out| {
            handler(out, *b"mdta", b"");
            full(out, *b"keys", 0, 0, |out| {
                word(out, 1);
                boxed(out, *b"mdta", |out| out.extend_from_slice(KEY));
            });
            boxed(out, *b"ilst", |out| {
                boxed(out, 1_u32.to_be_bytes(), |out| {
                    boxed(out, *b"data", |out| {
                        word(out, TEXT);
                        word(out, 0);
                        out.extend_from_slice(record.as_bytes());
                    });
                });
            });
        });
    });
}

/// Reads the record of a file; `None` when it has none.
///
/// # Errors
/// When the file is damaged, or the record is no text or too long.
pub fn aigc<R: Read + Seek + ?Sized>(file: &mut R) -> Result<Option<String>> {
    let length = length_of(file)?;
    let mut walk = Walk::new(0, length);
    while let Some(top) = walk.next(file)? {
        if &top.kind == b"moov" {
            return find(&load(file, top)?);
        }
    }
    Ok(None)
}

fn find(moov: &[u8]) -> Result<Option<String>> {
    let mut places = Vec::new();
    for inner in Boxes::new(*b"moov", moov) {
        match inner? {
            (kind, body) if &kind == b"meta" => places.push(body),
            (kind, body) if &kind == b"udta" => {
                places.extend(Boxes::new(kind, body).find(*b"meta")?);
            }
            _ => {}
        }
    }
    for meta in places {
        // QuickTime's has no version.
        let body =
            if meta.get(4..8) == Some(b"hdlr") { meta } else { meta.get(4..).unwrap_or_default() };
        let inside = Boxes::new(*b"meta", body);
        let (Some(keys), Some(list)) = (inside.clone().find(*b"keys")?, inside.find(*b"ilst")?)
        else {
            continue;
        };
        let record = key(keys)?.map(|number| value(list, number.to_be_bytes())).transpose()?;
        if let Some(record) = record.flatten() {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// Number of the key, from 1.
fn key(keys: &[u8]) -> Result<Option<u32>> {
    let mut f = Fields::new(*b"keys", keys);
    f.full()?;
    f.count(8)?;
    for (number, inner) in (1_u32..).zip(Boxes::new(*b"keys", f.rest())) {
        let (space, name) = inner?;
        if &space == b"mdta" && name == KEY {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

fn value(list: &[u8], number: Kind) -> Result<Option<String>> {
    let Some(item) = Boxes::new(*b"ilst", list).find(number)? else { return Ok(None) };
    let Some(data) = Boxes::new(*b"ilst", item).find(*b"data")? else { return Ok(None) };
    let mut f = Fields::new(*b"data", data);
    let kind = f.u32()?;
    f.u32()?;
    let text = f.rest();
    if text.len() > limits::AIGC {
        return Err(Error::mp4("its AIGC record is too long"));
    }
    let text = std::str::from_utf8(text).ok().filter(|_| kind == TEXT);
    text.map(|text| Some(text.to_owned())).ok_or_else(|| Error::mp4("its AIGC record is no text"))
}
