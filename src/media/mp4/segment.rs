//! Segments: each a self-standing fragmented MP4 that begins with an IDR, one after another in one
//! file. A crash costs the one that is being written; `join` makes the clip of them.
//!
//! ```text
//! ftyp moov moof [free] mdat | ftyp moov moof [free] mdat | …
//!           room is kept ^
//! ```
//! The encoder is made anew for each, so its bytes depend on its frames alone.

use std::io::{Seek, SeekFrom, Write};

use mien_base::limits;
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;

use super::aigc;
use super::write::{boxed, full, half, handler, here, long, word};
use crate::clip::{ClipInfo, ColourTags, FrameSink, Summary, Timing};
use crate::errors::{Error, Result};
use crate::h264::encode::{Encoder, Rate, Sample, Shape};
use crate::h264::units::Config;

/// What the description of the pictures says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Look {
    pub(crate) size: Size,
    pub(crate) aspect: (u32, u32),
    pub(crate) tags: ColourTags,
}

impl Look {
    pub(crate) const fn of(info: &ClipInfo) -> Self {
        Self { size: info.size, aspect: info.sample_aspect, tags: info.tags }
    }

    /// `stsd` without its box.
    pub(crate) fn describe(&self, config: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        word(&mut out, 0);
        word(&mut out, 1);
        boxed(&mut out, *b"avc1", |out| {
            out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
            out.extend_from_slice(&[0; 16]);
            half(out, self.size.width as u16);
            half(out, self.size.height as u16);
            word(out, 72 << 16);
            word(out, 72 << 16);
            word(out, 0);
            half(out, 1);
            out.extend_from_slice(&[0; 32]);
            half(out, 24);
            half(out, 0xffff);
            boxed(out, *b"avcC", |out| out.extend_from_slice(config));
            let ColourTags { primaries, transfer, matrix, full } = self.tags;
            if self.tags != ColourTags::default() {
                boxed(out, *b"colr", |out| {
                    out.extend_from_slice(b"nclx");
                    [primaries, transfer, matrix].iter().for_each(|c| half(out, u16::from(*c)));
                    out.push(u8::from(full) << 7);
                });
            }
            if self.aspect != (1, 1) {
                boxed(out, *b"pasp", |out| {
                    word(out, self.aspect.0);
                    word(out, self.aspect.1);
                });
            }
        });
        out
    }

    /// Width and height in which it is shown, 16.16.
    pub(crate) fn shown(&self) -> (u32, u32) {
        let width = (u64::from(self.size.width) * u64::from(self.aspect.0)) << 16;
        let width = width / u64::from(self.aspect.1.max(1));
        (u32::try_from(width).unwrap_or(u32::MAX), self.size.height << 16)
    }
}

/// A sample that can be decoded by itself, and one that can't.
const FREE: u32 = 0x0200_0000;
const DEPENDS: u32 = 0x0101_0000;
/// Bytes of `moof` around its samples, and of each sample.
const FRAME_HEAD: usize = 8 + 16 + 8 + 16 + 20 + 20;
const FRAME_EACH: usize = 12;

/// Most frames of a segment.
const FRAMES: usize = limits::CLIP_SEGMENT as usize;

/// The segment that is being written.
#[derive(Debug, Default)]
struct Open {
    /// Where `moof` and `mdat` stand.
    moof: u64,
    mdat: u64,
    first: i64,
    last: i64,
    /// Ticks, bytes and flags of each sample; the last one's ticks are its own.
    samples: Vec<[u32; 3]>,
}

/// Encodes frames into segments.
pub struct Writer<W> {
    to: W,
    shape: Shape,
    look: Look,
    timescale: u32,
    encoder: Option<Encoder>,
    sample: Sample,
    open: Open,
    /// Header of a segment, kept.
    head: Vec<u8>,
    at: u64,
    summary: Summary,
    /// Most frames of a segment.
    most: usize,
    /// The `AIGC` record that each segment carries by itself.
    record: Option<String>,
}

impl<W> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl<W: Write + Seek + Send> Writer<W> {
    /// Writes from where `to` stands: behind the whole segments of an interrupted clip, or at the
    /// beginning.
    ///
    /// # Errors
    /// When frames of this size can't be encoded.
    pub fn new(mut to: W, info: &ClipInfo, rate: Rate) -> Result<Self> {
        let at = to.stream_position().map_err(Error::written)?;
        // More than a frame takes at any quantiser but the finest.
        let room = info.size.pixels().min(limits::CLIP_UNIT as u64) as usize;
        Ok(Self {
            to,
            shape: Shape::of(info, rate)?,
            look: Look::of(info),
            timescale: info.timescale,
            encoder: None,
            sample: Sample { bytes: Vec::with_capacity(room), ..Sample::default() },
            open: Open { samples: Vec::with_capacity(FRAMES), ..Open::default() },
            head: Vec::new(),
            at,
            summary: Summary::default(),
            most: FRAMES,
            record: None,
        })
    }

    /// Its segments stand alone: each is a clip by itself, of at most so many frames.
    #[must_use]
    pub fn alone(mut self, most: usize, record: Option<&str>) -> Self {
        self.most = most.max(1);
        self.open.samples.reserve_exact(self.most);
        self.record = record.map(str::to_owned);
        self
    }

    /// Bytes that were written so far.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.at
    }

    /// Makes the segment whole; the next frame begins another. Gives the bytes of the file that
    /// count from now on; they are the caller's to make durable.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn end_segment(&mut self) -> Result<u64> {
        if self.open.samples.is_empty() {
            return Ok(self.at);
        }
        self.encoder = None;
        self.head.clear();
        fragment(&mut self.head, &self.open);
        let room = (self.open.mdat - self.open.moof) as usize;
        if let Some(rest) = room.checked_sub(self.head.len()).filter(|rest| *rest > 0) {
            boxed(&mut self.head, *b"free", |out| out.resize(out.len() + rest - 8, 0));
        }
        let size = u32::try_from(self.at - self.open.mdat)
            .map_err(|_| Error::Encode { what: "a segment is longer than 4 GB".into() })?;
        word(&mut self.head, size);
        self.to.seek(SeekFrom::Start(self.open.moof)).map_err(Error::written)?;
        self.to.write_all(&self.head).map_err(Error::written)?;
        self.to.seek(SeekFrom::Start(self.at)).map_err(Error::written)?;
        self.to.flush().map_err(Error::written)?;
        self.open.samples.clear();
        Ok(self.at)
    }

    /// Frames of the open segment.
    #[must_use]
    pub fn in_segment(&self) -> usize {
        self.open.samples.len()
    }

    fn begin(&mut self, timing: Timing) -> Result<()> {
        let config = Config::write(&self.sample.sps, &self.sample.pps)?;
        self.head.clear();
        boxed(&mut self.head, *b"ftyp", |out| {
            out.extend_from_slice(b"iso6\0\0\x02\0iso6isommp41");
        });
        let descriptions = self.look.describe(&config);
        movie(&mut self.head, &self.look, &descriptions, self.timescale, self.record.as_deref());
        self.open.moof = self.at + self.head.len() as u64;
        let room = FRAME_HEAD + FRAME_EACH * self.most;
        // Until the segment is whole this is a free box that reaches to the end of what counts.
        boxed(&mut self.head, *b"free", |out| out.resize(out.len() + room - 8, 0));
        self.open.mdat = self.at + self.head.len() as u64;
        self.head.extend_from_slice(b"\0\0\0\x08mdat");
        self.open.first = timing.pts;
        self.open.last = timing.pts;
        self.to.write_all(&self.head).map_err(Error::written)?;
        self.at += self.head.len() as u64;
        Ok(())
    }
}

impl<W: Write + Seek + Send> FrameSink for Writer<W> {
    fn push(&mut self, frame: &I420, timing: Timing, idr: bool) -> Result<()> {
        let order = |what: &str| Error::Order { what: what.to_owned() };
        let first = self.open.samples.is_empty();
        if first && !idr {
            return Err(order("a segment begins with an IDR"));
        }
        if self.open.samples.len() >= self.most {
            return Err(order("a segment is full"));
        }
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(Encoder::new(self.shape)?),
        };
        encoder.encode(frame, idr, &mut self.sample)?;
        if first {
            if timing.pts < 0 {
                return Err(order("a frame is shown before the clip begins"));
            }
            self.begin(timing)?;
        } else if let Some(last) = self.open.samples.last_mut() {
            let ticks = timing.pts.checked_sub(self.open.last);
            let ticks = ticks.and_then(|ticks| u32::try_from(ticks).ok());
            last[0] = ticks.ok_or_else(|| order("a frame is shown before the one before it"))?;
        }
        self.open.last = timing.pts;
        let bytes = self.sample.bytes.len();
        self.open.samples.push([timing.duration, bytes as u32, if idr { FREE } else { DEPENDS }]);
        self.to.write_all(&self.sample.bytes).map_err(Error::written)?;
        self.at += bytes as u64;
        self.summary.frames += 1;
        self.summary.bytes = self.at;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Summary> {
        self.end_segment()?;
        Ok(Summary { bytes: self.at, ..self.summary })
    }
}

fn fragment(out: &mut Vec<u8>, open: &Open) {
    let start = out.len();
    let count = open.samples.len();
    let data = open.mdat - open.moof + 8;
    boxed(out, *b"moof", |out| {
        full(out, *b"mfhd", 0, 0, |out| word(out, 1));
        boxed(out, *b"traf", |out| {
            full(out, *b"tfhd", 0, 0x2_0000, |out| word(out, 1));
            full(out, *b"tfdt", 1, 0, |out| long(out, open.first as u64));
            full(out, *b"trun", 0, 0x701, |out| {
                word(out, count as u32);
                word(out, data as u32);
                open.samples.iter().flatten().for_each(|value| word(out, *value));
            });
        });
    });
    debug_assert_eq!(out.len() - start, FRAME_HEAD + FRAME_EACH * count);
}

/// `moov` of a segment: one track without samples.
fn movie(
    out: &mut Vec<u8>,
    look: &Look,
    descriptions: &[u8],
    timescale: u32,
    record: Option<&str>,
) {
    let (width, height) = look.shown();
    boxed(out, *b"moov", |out| {
        movie_head(out, timescale, 0, 0, 2);
        boxed(out, *b"trak", |out| {
            let matrix = crate::y4m::UPRIGHT;
            track_head(
                out,
                &TrackHead { flags: 3, id: 1, matrix, width, height, ..TrackHead::default() },
            );
            boxed(out, *b"mdia", |out| {
                media_head(out, 0, timescale, 0, UNKNOWN);
                handler(out, *b"vide", b"VideoHandler");
                boxed(out, *b"minf", |out| {
                    full(out, *b"vmhd", 0, 1, |out| out.extend_from_slice(&[0; 8]));
                    here(out);
                    boxed(out, *b"stbl", |out| {
                        boxed(out, *b"stsd", |out| out.extend_from_slice(descriptions));
                        for kind in [*b"stts", *b"stsc", *b"stco"] {
                            full(out, kind, 0, 0, |out| word(out, 0));
                        }
                        full(out, *b"stsz", 0, 0, |out| long(out, 0));
                    });
                });
            });
        });
        boxed(out, *b"mvex", |out| {
            full(out, *b"trex", 0, 0, |out| {
                [1, 1, 0, 0, 0].iter().for_each(|value| word(out, *value));
            });
        });
        if let Some(record) = record {
            aigc::write(out, record);
        }
    });
}

/// Language "und".
pub(crate) const UNKNOWN: u16 = 0x55c4;

/// Appends `mvhd`. Times are seconds since 1904.
pub(crate) fn movie_head(
    out: &mut Vec<u8>,
    timescale: u32,
    created: u64,
    duration: u64,
    next: u32,
) {
    full(out, *b"mvhd", 1, 0, |out| {
        long(out, created);
        long(out, created);
        word(out, timescale);
        long(out, duration);
        word(out, 1 << 16);
        half(out, 1 << 8);
        out.extend_from_slice(&[0; 10]);
        crate::y4m::UPRIGHT.iter().for_each(|value| word(out, *value as u32));
        out.extend_from_slice(&[0; 24]);
        word(out, next);
    });
}

/// What `tkhd` says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TrackHead {
    pub(crate) flags: u32,
    pub(crate) created: u64,
    pub(crate) id: u32,
    pub(crate) duration: u64,
    pub(crate) alternate: u16,
    pub(crate) volume: u16,
    pub(crate) matrix: [i32; 9],
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// Appends `tkhd`.
pub(crate) fn track_head(out: &mut Vec<u8>, head: &TrackHead) {
    full(out, *b"tkhd", 1, head.flags, |out| {
        long(out, head.created);
        long(out, head.created);
        word(out, head.id);
        word(out, 0);
        long(out, head.duration);
        long(out, 0);
        half(out, 0);
        half(out, head.alternate);
        half(out, head.volume);
        half(out, 0);
        head.matrix.iter().for_each(|value| word(out, *value as u32));
        word(out, head.width);
        word(out, head.height);
    });
}

/// Appends `mdhd`.
pub(crate) fn media_head(
    out: &mut Vec<u8>,
    created: u64,
    timescale: u32,
    duration: u64,
    language: u16,
) {
    full(out, *b"mdhd", 1, 0, |out| {
        long(out, created);
        long(out, created);
        word(out, timescale);
        long(out, duration);
        half(out, language);
        half(out, 0);
    });
}
