//! Boxes as they are written.

use super::boxes::Kind;
use super::table::{Chunk, Runs, Table, each, total};

/// Appends one box.
pub(crate) fn boxed(out: &mut Vec<u8>, kind: Kind, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind);
    body(out);
    let size = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

/// Appends one box with version and flags.
pub(crate) fn full(
    out: &mut Vec<u8>,
    kind: Kind,
    version: u8,
    flags: u32,
    body: impl FnOnce(&mut Vec<u8>),
) {
    boxed(out, kind, |out| {
        word(out, u32::from(version) << 24 | flags);
        body(out);
    });
}

pub(crate) fn half(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn word(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn long(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn runs<T: Copy>(out: &mut Vec<u8>, kind: Kind, version: u8, of: &Runs<T>, put: impl Fn(T) -> u32) {
    full(out, kind, version, 0, |out| {
        word(out, of.len() as u32);
        for (count, value) in of {
            word(out, *count);
            word(out, put(*value));
        }
    });
}

/// Appends `stbl` with its descriptions; `offsets` are those of the chunks where they are written.
pub(crate) fn sample_table(
    out: &mut Vec<u8>,
    descriptions: &[u8],
    table: &Table,
    offsets: &[u64],
    wide: bool,
) {
    boxed(out, *b"stbl", |out| {
        boxed(out, *b"stsd", |out| out.extend_from_slice(descriptions));
        runs(out, *b"stts", 0, &table.times, |ticks| ticks);
        if !table.shifts.is_empty() {
            runs(out, *b"ctts", 1, &table.shifts, |ticks| ticks as u32);
        }
        full(out, *b"stsz", 0, 0, |out| match table.sizes[..] {
            [(count, size)] => {
                word(out, size);
                word(out, count);
            }
            _ => {
                word(out, 0);
                word(out, total(&table.sizes) as u32);
                each(&table.sizes).for_each(|size| word(out, size));
            }
        });
        full(out, *b"stsc", 0, 0, |out| spread(out, &table.chunks));
        let kind = if wide { *b"co64" } else { *b"stco" };
        full(out, kind, 0, 0, |out| {
            word(out, offsets.len() as u32);
            for offset in offsets {
                if wide { long(out, *offset) } else { word(out, *offset as u32) }
            }
        });
        if let Some(sync) = &table.sync {
            full(out, *b"stss", 0, 0, |out| {
                word(out, sync.len() as u32);
                sync.iter().for_each(|number| word(out, *number));
            });
        }
        for group in &table.groups {
            boxed(out, *b"sgpd", |out| out.extend_from_slice(group));
        }
        for (head, members) in &table.members {
            boxed(out, *b"sbgp", |out| {
                out.extend_from_slice(head);
                word(out, members.len() as u32);
                for (count, group) in members {
                    word(out, *count);
                    word(out, *group);
                }
            });
        }
    });
}

fn spread(out: &mut Vec<u8>, chunks: &[Chunk]) {
    let mut runs: Vec<(u32, u32, u32)> = Vec::new();
    for (number, chunk) in (1_u32..).zip(chunks) {
        let same = |run: &(u32, u32, u32)| run.1 == chunk.samples && run.2 == chunk.description;
        if !runs.last().is_some_and(same) {
            runs.push((number, chunk.samples, chunk.description));
        }
    }
    word(out, runs.len() as u32);
    for (first, samples, description) in runs {
        word(out, first);
        word(out, samples);
        word(out, description);
    }
}

/// Appends `hdlr`.
pub(crate) fn handler(out: &mut Vec<u8>, kind: Kind, name: &[u8]) {
    full(out, *b"hdlr", 0, 0, |out| {
        word(out, 0);
        out.extend_from_slice(&kind);
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(name);
        out.push(0);
    });
}

/// Appends `dinf`: samples stand in this file.
pub(crate) fn here(out: &mut Vec<u8>) {
    boxed(out, *b"dinf", |out| {
        full(out, *b"dref", 0, 0, |out| {
            word(out, 1);
            full(out, *b"url ", 0, 1, |_| {});
        });
    });
}
