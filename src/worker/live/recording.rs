//! Outputs that are files: MP4 recordings, and JPEG pictures in shared memory.

use std::collections::VecDeque;
use std::io::BufWriter;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::Wall;
use mien_base::id::JobId;
use mien_base::limits;
use mien_base::wire::Event;
use mien_base::wire::live::Whole;
use mien_face::mark::metadata;
use mien_media::clip::{ClipInfo, ColourTags, Format, FrameSink as _, Rotation, Timing};
use mien_media::h264::encode::Rate;
use mien_media::mp4;
use mien_pixels::codec::{self, FileFormat, Metadata};
use mien_pixels::convert::{Colour, Matrix, Range};
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::view::Rgb;
use rustix::io::Errno;

use super::sink::{Deliver, Hand, Left};
use crate::clip::FileOut;
use crate::link::Outbox;

/// Ticks a second of a recording.
const TICKS: u32 = 90_000;
/// Bytes that are written at once.
const BUFFER: usize = 256 << 10;
/// Files that may wait to be written.
const FILES: usize = 4;
/// The matrix that keeps frames as they are.
const UPRIGHT: [i32; 9] = [1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30];

/// What an output speaks for.
#[derive(Debug, Clone)]
pub(super) struct Voice {
    pub(super) outbox: Outbox,
    pub(super) job: JobId,
    pub(super) output: u8,
}

/// How a recording is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) size: Size,
    pub(super) millihertz: u32,
    /// A file is closed at the next frame with which one may begin, after so much time or so many
    /// bytes.
    pub(super) millis: u32,
    pub(super) bytes: u64,
    pub(super) quality: u8,
    /// Frames from one with which a file may begin to the next.
    pub(super) gop: u32,
}

/// MP4 files, one after the other.
pub(super) struct Recording {
    voice: Voice,
    shape: Shape,
    record: Option<String>,
    files: VecDeque<OwnedFd>,
    open: Option<Open>,
}

/// The file that is being written.
struct Open {
    writer: mp4::Writer<BufWriter<FileOut>>,
    first: Duration,
    last: Duration,
    frames: u32,
}

impl Shape {
    /// Frames that one file holds at most: as many as come in its time, and some more.
    fn frames(&self) -> u32 {
        let rate = u64::from(self.millihertz.max(1000));
        let frames = u64::from(self.millis) * rate / 800_000 + u64::from(self.gop);
        u32::try_from(frames).unwrap_or(u32::MAX).min(limits::LIVE_SEGMENT)
    }
}

fn ticks(span: Duration) -> i64 {
    i64::try_from(span.as_nanos() * u128::from(TICKS) / 1_000_000_000).unwrap_or(i64::MAX)
}

fn info(shape: &Shape, colour: Colour) -> ClipInfo {
    let matrix = if colour.matrix == Matrix::Bt709 { 1 } else { 6 };
    let full = colour.range == Range::Full;
    let tags = ColourTags { primaries: matrix, transfer: matrix, matrix, full };
    ClipInfo {
        format: Format::Mp4,
        size: shape.size,
        rotation: Rotation::None,
        matrix: UPRIGHT,
        timescale: TICKS,
        frames: None,
        duration: None,
        rate: (shape.millihertz.max(1000), 1000),
        colour,
        tags,
        sample_aspect: (1, 1),
        sound: Vec::new(),
        dropped: 0,
        quantiser: None,
    }
}

impl Recording {
    pub(super) fn new(
        voice: Voice,
        shape: Shape,
        record: Option<String>,
        files: [OwnedFd; 2],
    ) -> Self {
        let mut waiting = VecDeque::with_capacity(FILES);
        waiting.extend(files);
        Self { voice, shape, record, files: waiting, open: None }
    }

    fn begin(&mut self, left: &Left) -> Result<(), &'static str> {
        let file = self.files.pop_front().ok_or("the recording has no file")?;
        let file = BufWriter::with_capacity(BUFFER, FileOut::new(Arc::new(file), 0));
        let info = info(&self.shape, left.frame.image().colour());
        let writer = mp4::Writer::new(file, &info, Rate::quality(self.shape.quality));
        let writer = writer.map_err(|_| "the recording can't be encoded")?;
        let most = self.shape.frames() + self.shape.gop;
        let writer = writer.alone(most as usize, self.record.as_deref());
        self.open = Some(Open { writer, first: left.at, last: left.at, frames: 0 });
        Ok(())
    }

    /// Makes the file whole and says so; what can't be made whole has no bytes.
    fn close(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        let bytes = open.writer.end_segment().unwrap_or(0);
        let span = open.last.saturating_sub(open.first);
        self.tell(bytes, open.frames, span);
    }

    fn tell(&self, bytes: u64, frames: u32, span: Duration) {
        let Voice { outbox, job, output } = &self.voice;
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let whole = Whole { output: *output, bytes, frames, millis };
        outbox.send(Event::LiveWhole { job: *job, whole });
    }
}

impl Deliver for Recording {
    fn take(&mut self, left: &Left) -> Result<(), &'static str> {
        let length = Duration::from_millis(self.shape.millis.into());
        let full = |open: &Open| {
            left.at.saturating_sub(open.first) >= length
                || open.frames >= self.shape.frames()
                || open.writer.written() >= self.shape.bytes
        };
        if left.idr && self.open.as_ref().is_some_and(full) {
            self.close();
        }
        if self.open.is_none() {
            if !left.idr {
                return Err("the recording waits for its next beginning");
            }
            self.begin(left)?;
        }
        let Some(open) = self.open.as_mut() else { return Err("the recording has no file") };
        let pts = ticks(left.at.saturating_sub(open.first));
        let timing = Timing { pts, duration: TICKS * 1000 / self.shape.millihertz.max(1000) };
        let idr = open.frames == 0 || left.idr;
        if open.writer.push(left.frame.image(), timing, idr).is_err() {
            // A full disk, or a bound: the file is given up, the next one may do.
            self.open = None;
            self.tell(0, 0, Duration::ZERO);
            return Err("the recording can't be written");
        }
        (open.frames, open.last) = (open.frames + 1, left.at);
        Ok(())
    }

    fn hand(&mut self, hand: Hand) {
        if let Hand::File { fd, .. } = hand
            && self.files.len() < FILES
        {
            self.files.push_back(fd);
        }
    }

    fn end(&mut self) {
        self.close();
    }
}

/// JPEG pictures in the slots of shared memory.
pub(super) struct Pictures {
    voice: Voice,
    memory: OwnedFd,
    slot: u32,
    quality: u8,
    every: Duration,
    wall: Wall,
    producer: Option<String>,
    free: [bool; limits::LIVE_SLOTS as usize],
    last: Option<Duration>,
    rgb: Rgb,
}

impl Pictures {
    pub(super) fn new(
        voice: Voice,
        memory: OwnedFd,
        (slot, quality, every_ms): (u32, u8, u32),
        wall: Wall,
        record: Option<String>,
    ) -> Self {
        Self {
            voice,
            memory,
            slot,
            quality,
            every: Duration::from_millis(every_ms.into()),
            wall,
            producer: record,
            free: [true; limits::LIVE_SLOTS as usize],
            last: None,
            rgb: Rgb::filled(Size::new(0, 0), [0; 3]),
        }
    }

    fn write(&self, bytes: &[u8], slot: usize) -> Result<(), Errno> {
        let (mut rest, mut at) = (bytes, slot as u64 * u64::from(self.slot));
        while !rest.is_empty() {
            match rustix::io::pwrite(&self.memory, rest, at) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(n) => {
                    rest = rest.get(n..).unwrap_or_default();
                    at += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

impl Deliver for Pictures {
    fn take(&mut self, left: &Left) -> Result<(), &'static str> {
        // A little early is in time: frames do not come to the millisecond.
        let due = self.last.is_none_or(|last| left.at + self.every / 8 >= last + self.every);
        // Without a slot nobody looks: that is no fault.
        let Some(slot) = self.free.iter().position(|free| *free).filter(|_| due) else {
            return Ok(());
        };
        let image = left.frame.image();
        self.rgb.reset(image.size());
        image.view().to_rgb(Roi::whole(image.size()), &mut self.rgb.view_mut());
        let made = Wall(self.wall.0.saturating_add(left.at.as_secs()));
        let record = self.producer.clone();
        let xmp = metadata::xmp(left.altered, record.as_deref(), made);
        let meta = Metadata { xmp, aigc: record, ..Metadata::default() };
        let bytes = codec::encode(self.rgb.view(), None, FileFormat::Jpeg, self.quality, &meta)
            .map_err(|_| "a picture can't be encoded")?;
        if bytes.len() > self.slot as usize {
            return Err("a picture is larger than its slot");
        }
        self.write(&bytes, slot).map_err(|_| "a picture can't be written")?;
        self.last = Some(left.at);
        if let Some(free) = self.free.get_mut(slot) {
            *free = false;
        }
        let Voice { outbox, job, output } = &self.voice;
        let (slot, bytes) = (slot as u8, bytes.len() as u32);
        outbox.send(Event::LiveJpeg { job: *job, output: *output, slot, bytes });
        Ok(())
    }

    fn hand(&mut self, hand: Hand) {
        if let Hand::Taken { slot, .. } = hand
            && let Some(free) = self.free.get_mut(usize::from(slot))
        {
            *free = true;
        }
    }
}
