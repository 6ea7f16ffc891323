//! The encode stage: marked frames to segments or a pipe, and at the end the segments to one file.

use std::io::BufWriter;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use mien_base::clock::{Clock as _, Mono, SystemClock, Wall};
use mien_base::id::JobId;
use mien_base::wire::clip::{ClipOutput, ClipWritten, Container, Rate, Resume};
use mien_base::wire::{Event, Stage};
use mien_face::mark::clip::MarkedFrame;
use mien_media::clip::{ClipInfo, Format, FrameSink as _, ReadSeek, Timing};
use mien_media::h264::encode as h264;
use mien_media::{mp4, y4m};
use mien_pixels::i420::I420;
use mien_pixels::turn;
use rustix::fs::FileType;

use super::decode::Ticks;
use super::file::{FileIn, FileOut, Live, PipeOut};
use super::stage::{Cost, Job, guard};
use crate::link::Outbox;
use crate::meter::Pulse;
use crate::{Error, Result};

/// How often progress is told.
const TOLD: Duration = Duration::from_millis(200);
/// Bytes that are written to a file at once.
const BUFFER: usize = 1 << 20;

/// A clip to encode.
pub(super) struct EncodeJob {
    pub(super) job: JobId,
    pub(super) wall: Wall,
    pub(super) info: Box<ClipInfo>,
    pub(super) write: ClipOutput,
    /// The `AIGC` record.
    pub(super) record: Option<String>,
    /// What of the sound travels on.
    pub(super) span: Ticks,
    pub(super) to: To,
    pub(super) out: Arc<OwnedFd>,
    /// Frames that are written already, and of how many where that is known.
    pub(super) written: u64,
    pub(super) of: Option<u64>,
    pub(super) cost: Cost,
    pub(super) machine: SystemClock,
    pub(super) frames: Receiver<ToEncode>,
    /// Where frames that are written go.
    pub(super) empty: SyncSender<I420>,
    pub(super) outbox: Outbox,
    pub(super) done: SyncSender<Result<ClipWritten>>,
}

/// Where frames go.
pub(super) enum To {
    /// Straight to the output.
    Stream,
    Segments(Segments),
}

/// Segments in a file, which are joined with the sound of the input.
pub(super) struct Segments {
    pub(super) file: Arc<OwnedFd>,
    /// Those that are whole, and their bytes.
    pub(super) whole: u64,
    pub(super) bytes: u64,
    pub(super) input: Arc<OwnedFd>,
}

/// What comes in.
pub(super) enum ToEncode {
    Frame {
        frame: MarkedFrame,
        timing: Timing,
        idr: bool,
    },
    /// A segment ends here; a new worker goes on with this.
    Cut(Vec<u8>),
    /// All frames were here. Without it a clip is not finished.
    End,
}

impl Job for EncodeJob {
    fn run(self, pulse: &Arc<Pulse>) {
        let done = self.done.clone();
        let written = guard(|| {
            let sink = Sink::new(&self, pulse)?;
            Encode { told: None, turned: I420::default(), job: self, pulse, sink }.run()
        });
        // Whoever does not listen any more has an error of his own.
        let _ = done.send(written);
    }
}

enum Sink {
    File(y4m::Writer<BufWriter<FileOut>>),
    Pipe(y4m::Writer<PipeOut>),
    Segments(Box<mp4::Writer<BufWriter<FileOut>>>),
}

impl Sink {
    fn new(job: &EncodeJob, pulse: &Arc<Pulse>) -> Result<Self> {
        let info = &job.info;
        if let To::Segments(segments) = &job.to {
            let file = FileOut::new(Arc::clone(&segments.file), segments.bytes);
            let file = BufWriter::with_capacity(BUFFER, file);
            let rate = rate(job.write.rate, info);
            let sink = mp4::Writer::new(file, info, rate).map_err(Error::Media)?;
            return Ok(Self::Segments(Box::new(sink)));
        }
        let stat = rustix::fs::fstat(&job.out).map_err(|errno| io(errno.into()))?;
        let out = Arc::clone(&job.out);
        let size = info.rotation.upright(info.size);
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let file = BufWriter::with_capacity(BUFFER, FileOut::new(out, 0));
            return y4m::Writer::new(file, info, size).map(Self::File).map_err(Error::Media);
        }
        let pipe = PipeOut::new(out, Arc::clone(pulse));
        y4m::Writer::new(pipe, info, size).map(Self::Pipe).map_err(Error::Media)
    }

    fn push(&mut self, frame: &I420, timing: Timing, idr: bool) -> Result<()> {
        match self {
            Self::File(sink) => sink.push(frame, timing, idr),
            Self::Pipe(sink) => sink.push(frame, timing, idr),
            Self::Segments(sink) => sink.push(frame, timing, idr),
        }
        .map_err(Error::Media)
    }
}

/// As good as it is asked for.
fn rate(rate: Rate, info: &ClipInfo) -> h264::Rate {
    match rate {
        Rate::AsInput => h264::Rate::like(info),
        Rate::Quality(quality) => h264::Rate::quality(quality),
        Rate::Bitrate(kbits) => h264::Rate::Bitrate(kbits.saturating_mul(1000)),
    }
}

struct Encode<'a> {
    job: EncodeJob,
    pulse: &'a Arc<Pulse>,
    sink: Sink,
    told: Option<Mono>,
    turned: I420,
}

impl Encode<'_> {
    fn run(mut self) -> Result<ClipWritten> {
        let cost = self.job.cost.clone();
        loop {
            let Ok(next) = self.job.frames.recv() else { return Err(Error::Cancelled) };
            self.pulse.boundary()?;
            let running = cost.begin(self.pulse, Stage::Encode);
            match next {
                ToEncode::Frame { frame, timing, idr } => self.push(frame, timing, idr)?,
                ToEncode::Cut(state) => self.cut(state)?,
                ToEncode::End => {
                    let container = self.job.write.container;
                    return Ok(ClipWritten { bytes: self.finish()?, container });
                }
            }
            drop(running);
            self.tell();
        }
    }

    fn push(&mut self, frame: MarkedFrame, timing: Timing, idr: bool) -> Result<()> {
        let degrees = self.job.info.rotation.degrees();
        // Raw frames can't say how they are turned.
        if self.job.write.container == Container::Y4m && degrees != 0 {
            turn::turn_frame(frame.image().view(), degrees, &mut self.turned);
            self.sink.push(&self.turned, timing, idr)?;
        } else {
            self.sink.push(frame.image(), timing, idr)?;
        }
        self.job.written += 1;
        // The stage before may have ended: then nobody needs it.
        let _ = self.job.empty.send(frame.into_image());
        Ok(())
    }

    /// Says how far it is, from time to time.
    fn tell(&mut self) {
        let now = self.job.machine.mono();
        if self.told.is_none_or(|told| now.since(told) >= TOLD) {
            self.told = Some(now);
            let (job, frame, of) = (self.job.job, self.job.written, self.job.of);
            self.job.outbox.send(Event::Progress { job, frame, of });
        }
    }

    fn cut(&mut self, state: Vec<u8>) -> Result<()> {
        let (To::Segments(segments), Sink::Segments(sink)) = (&mut self.job.to, &mut self.sink)
        else {
            return Ok(());
        };
        segments.bytes = sink.end_segment().map_err(Error::Media)?;
        segments.whole += 1;
        let end = Resume {
            segment: segments.whole,
            frames: self.job.written,
            bytes: segments.bytes,
            state,
        };
        self.job.outbox.send(Event::Segment { job: self.job.job, end });
        Ok(())
    }

    /// The bytes of the output.
    fn finish(self) -> Result<u64> {
        let Self { job, pulse, sink, .. } = self;
        let summary = match (sink, &job.to) {
            (Sink::File(sink), _) => Box::new(sink).finish(),
            (Sink::Pipe(sink), _) => Box::new(sink).finish(),
            (Sink::Segments(_), To::Segments(segments)) => return join(&job, segments, pulse),
            (Sink::Segments(_), To::Stream) => return Err(super::stage::gone()),
        };
        summary.map(|summary| summary.bytes).map_err(Error::Media)
    }
}

fn join(job: &EncodeJob, segments: &Segments, pulse: &Arc<Pulse>) -> Result<u64> {
    let read = |fd: &Arc<OwnedFd>| {
        let part = FileIn::new(Arc::clone(fd)).map_err(io)?;
        Ok::<_, Error>(Live { inner: part, pulse: Arc::clone(pulse) })
    };
    let mut pictures = read(&segments.file)?;
    let has_sound = job.write.audio && job.info.format == Format::Mp4;
    let mut sound = if has_sound { Some(read(&segments.input)?) } else { None };
    let out = FileOut::new(Arc::clone(&job.out), 0);
    let out = Live { inner: out, pulse: Arc::clone(pulse) };
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let finish = mp4::Finish {
        created: job.wall.0,
        aigc: job.record.as_deref(),
        range: job.span.start.or(job.span.end).map(|_| (job.span.start.unwrap_or(0), job.span.end)),
    };
    let sound = sound.as_mut().map(|sound| sound as &mut dyn ReadSeek);
    let summary = mp4::join(&mut pictures, segments.bytes, &job.info, sound, &finish, &mut out);
    Ok(summary.map_err(Error::Media)?.bytes)
}

fn io(source: std::io::Error) -> Error {
    Error::Media(mien_media::errors::Error::Io { done: "written", source })
}
