//! Raw frames (YUV4MPEG2): for pipes, in and out.

use std::io::{BufRead, BufReader, Read, Write};

use mien_base::limits;
use mien_pixels::convert::{Matrix, Range};
use mien_pixels::geometry::Size;
use mien_pixels::i420::I420;

use crate::clip::{
    ClipInfo, ColourTags, Format, FrameSink, FrameSource, Rotation, Summary, Timing, check_size,
};
use crate::errors::{CONVERT, DEINTERLACE, Error, Result};

/// First bytes of a stream.
pub const MAGIC: &[u8] = b"YUV4MPEG2";
/// The matrix that keeps frames as they are.
pub(crate) const UPRIGHT: [i32; 9] = [1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30];

fn damaged(what: &str) -> Error {
    Error::Malformed { format: "Y4M", what: what.into() }
}

/// Reads frames of a stream; it never needs to seek.
pub struct Reader<R> {
    from: BufReader<R>,
    info: ClipInfo,
    line: Vec<u8>,
    frame: u64,
    wanted: i64,
    /// An error ends the stream.
    over: bool,
}

impl<R> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("info", &self.info).finish_non_exhaustive()
    }
}

impl<R: Read + Send> Reader<R> {
    /// Reads the stream's header.
    ///
    /// # Errors
    /// When it is damaged, or holds what is not read.
    pub fn new(from: R) -> Result<Self> {
        let mut from = BufReader::with_capacity(1 << 16, from);
        let mut line = Vec::with_capacity(limits::Y4M_LINE);
        if !read_line(&mut from, &mut line)? || !line.starts_with(MAGIC) {
            return Err(damaged("it does not begin with its header"));
        }
        let info = parse(&line)?;
        Ok(Self { from, info, line, frame: 0, wanted: 0, over: false })
    }

    fn read(&mut self, into: &mut I420) -> Result<Option<Timing>> {
        loop {
            if !read_line(&mut self.from, &mut self.line)? {
                return Ok(None);
            }
            if !(self.line == b"FRAME" || self.line.starts_with(b"FRAME ")) {
                return Err(damaged(&format!("frame {} does not begin as one", self.frame)));
            }
            into.reset(self.info.size, self.info.colour);
            for plane in into.planes_mut() {
                self.fill(plane)?;
            }
            let ticks = u64::from(self.info.rate.1);
            let pts = self.frame.checked_mul(ticks).and_then(|pts| i64::try_from(pts).ok());
            let pts = pts.ok_or_else(|| damaged("it never ends"))?;
            self.frame += 1;
            if pts >= self.wanted {
                return Ok(Some(Timing { pts, duration: self.info.rate.1 }));
            }
        }
    }

    fn fill(&mut self, mut plane: mien_pixels::view::ViewMut<'_, 1>) -> Result<()> {
        for y in 0..plane.size().height {
            self.from.read_exact(plane.row_mut(y)).map_err(|e| match e.kind() {
                std::io::ErrorKind::UnexpectedEof => Error::Truncated {
                    format: "Y4M",
                    what: format!("frame {} is not whole", self.frame),
                },
                _ => Error::read(e),
            })?;
        }
        Ok(())
    }
}

impl<R: Read + Send> FrameSource for Reader<R> {
    fn info(&self) -> &ClipInfo {
        &self.info
    }

    fn next(&mut self, into: &mut I420) -> Result<Option<Timing>> {
        if self.over {
            return Ok(None);
        }
        let read = self.read(into);
        self.over = !matches!(read, Ok(Some(_)));
        read
    }

    fn seek(&mut self, pts: i64) -> Result<()> {
        let next = self.frame as i64 * i64::from(self.info.rate.1);
        if pts < next {
            return Err(Error::Order { what: "a stream of raw frames does not go back".into() });
        }
        self.wanted = pts;
        Ok(())
    }
}

/// One line without its end; false at the end of the stream.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool> {
    line.clear();
    let most = limits::Y4M_LINE as u64;
    from.take(most).read_until(b'\n', line).map_err(Error::read)?;
    match line.pop() {
        None => Ok(false),
        Some(b'\n') => Ok(true),
        Some(_) if line.len() as u64 + 1 == most => Err(damaged("a header is too long")),
        Some(_) => {
            Err(Error::Truncated { format: "Y4M", what: "a header is not whole".to_owned() })
        }
    }
}

fn parse(line: &[u8]) -> Result<ClipInfo> {
    let text = std::str::from_utf8(line).map_err(|_| damaged("its header is no text"))?;
    let (mut width, mut height) = (0, 0);
    let (mut rate, mut aspect) = ((25, 1), (1, 1));
    let mut full = false;
    for field in text.split(' ').skip(1).filter(|field| !field.is_empty()) {
        let (key, value) = field.split_at(field.chars().next().map_or(0, char::len_utf8));
        let number = || value.parse().map_err(|_| damaged("a size is no number"));
        match key {
            "W" => width = number()?,
            "H" => height = number()?,
            "F" => rate = ratio(value).ok_or_else(|| damaged("its frame rate is no ratio"))?,
            "A" => aspect = ratio(value).unwrap_or((1, 1)),
            "I" if !matches!(value, "p" | "?") => {
                let what = "Interlaced Y4M".to_owned();
                return Err(Error::Foreign { what, done: "read", advice: DEINTERLACE });
            }
            "C" if !matches!(value, "420" | "420jpeg" | "420mpeg2" | "420paldv") => {
                let what = format!("Y4M in {}", value.get(..value.len().min(16)).unwrap_or("?"));
                return Err(Error::Foreign { what, done: "read", advice: CONVERT });
            }
            "X" => full |= value == "COLORRANGE=FULL",
            _ => {}
        }
    }
    let size = Size::new(width, height);
    if size.pixels() == 0 {
        return Err(damaged("its header states no size"));
    }
    check_size(size)?;
    let tags = ColourTags { full, ..ColourTags::default() };
    Ok(ClipInfo {
        format: Format::Y4m,
        size,
        rotation: Rotation::None,
        matrix: UPRIGHT,
        timescale: rate.0,
        frames: None,
        duration: None,
        rate,
        colour: tags.colour(size),
        tags,
        sample_aspect: aspect,
        sound: Vec::new(),
        dropped: 0,
        quantiser: None,
    })
}

fn ratio(text: &str) -> Option<(u32, u32)> {
    let (a, b) = text.split_once(':')?;
    let (a, b): (u32, u32) = (a.parse().ok()?, b.parse().ok()?);
    (a > 0 && b > 0).then_some((a, b))
}

/// Writes frames of a stream. Frames are equally far apart there, so times that are not are lost.
pub struct Writer<W> {
    to: W,
    size: Size,
    summary: Summary,
}

impl<W> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl<W: Write + Send> Writer<W> {
    /// Writes the stream's header. Frames are as large as those that are pushed: `size` may be the
    /// upright one.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn new(mut to: W, info: &ClipInfo, size: Size) -> Result<Self> {
        let aspect = if size == info.size {
            info.sample_aspect
        } else {
            (info.sample_aspect.1, info.sample_aspect.0)
        };
        let range = if info.colour.range == Range::Full { "FULL" } else { "LIMITED" };
        // Players take small frames as BT.601 and large ones as BT.709; another is named.
        let usual = ColourTags::default().colour(size).matrix;
        let matrix = match info.colour.matrix {
            matrix if matrix == usual => "",
            Matrix::Bt601 => " XMATRIX=BT601",
            Matrix::Bt709 => " XMATRIX=BT709",
        };
        let header = format!(
            "YUV4MPEG2 W{} H{} F{}:{} Ip A{}:{} C420jpeg XCOLORRANGE={range}{matrix}\n",
            size.width, size.height, info.rate.0, info.rate.1, aspect.0, aspect.1
        );
        to.write_all(header.as_bytes()).map_err(Error::written)?;
        Ok(Self { to, size, summary: Summary { frames: 0, bytes: header.len() as u64 } })
    }
}

impl<W: Write + Send> FrameSink for Writer<W> {
    fn push(&mut self, frame: &I420, _: Timing, _: bool) -> Result<()> {
        if frame.size() != self.size {
            return Err(Error::Encode { what: "its size is not the clip's".into() });
        }
        self.to.write_all(b"FRAME\n").map_err(Error::written)?;
        self.summary.bytes += 6;
        for plane in frame.view().planes() {
            for row in plane.rows() {
                self.to.write_all(row).map_err(Error::written)?;
                self.summary.bytes += row.len() as u64;
            }
        }
        self.summary.frames += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Summary> {
        self.to.flush().map_err(Error::written)?;
        Ok(self.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(header: &str, frames: usize, bytes: usize) -> Vec<u8> {
        let mut out = format!("{header}\n").into_bytes();
        for frame in 0..frames {
            out.extend_from_slice(b"FRAME\n");
            out.extend((0..bytes).map(|at| (at * 7 + frame * 31) as u8));
        }
        out
    }

    fn frames(bytes: &[u8]) -> Result<Vec<(I420, Timing)>> {
        let mut reader = Reader::new(bytes)?;
        let mut all = Vec::new();
        let mut frame = I420::default();
        while let Some(timing) = reader.next(&mut frame)? {
            all.push((frame.clone(), timing));
        }
        Ok(all)
    }

    #[test]
    fn frames_of_odd_sizes_come_out_as_they_went_in() {
        let bytes = stream("YUV4MPEG2 W5 H3 F30000:1001 Ip A4:3 C420jpeg", 3, 15 + 2 * 6);
        let read = frames(&bytes).unwrap();
        let times: Vec<_> = read.iter().map(|(_, t)| (t.pts, t.duration)).collect();
        assert_eq!(times, [(0, 1001), (1001, 1001), (2002, 1001)]);
        let mut out = Vec::new();
        let reader = Reader::new(&bytes[..]).unwrap();
        let info = reader.info().clone();
        assert_eq!((info.timescale, info.sample_aspect), (30000, (4, 3)));
        let mut writer = Box::new(Writer::new(&mut out, &info, info.size).unwrap());
        for (frame, timing) in &read {
            writer.push(frame, *timing, false).unwrap();
        }
        let summary = writer.finish().unwrap();
        assert_eq!((summary.frames, summary.bytes), (3, out.len() as u64));
        assert_eq!(frames(&out).unwrap(), read);
    }

    #[test]
    fn seeking_gives_the_first_frame_at_or_after_the_time() {
        let bytes = stream("YUV4MPEG2 W2 H2 F25:1", 9, 6);
        let mut reader = Reader::new(&bytes[..]).unwrap();
        let mut frame = I420::default();
        reader.seek(4).unwrap();
        assert_eq!(reader.next(&mut frame).unwrap().unwrap().pts, 4);
        assert!(reader.seek(2).is_err(), "a stream does not go back");
    }

    #[test]
    fn what_is_not_read_is_refused_by_name() {
        for (header, name) in [
            ("YUV4MPEG2 W2 H2 F25:1 C422", "C 422"),
            ("YUV4MPEG2 W2 H2 F25:1 C420p10", "420p10"),
            ("YUV4MPEG2 W2 H2 F25:1 It", "Interlaced"),
            ("YUV4MPEG2 W0 H2 F25:1", "size"),
            ("YUV4MPEG2 W99999 H2 F25:1", "99999"),
            ("YUV4MPEG2 W2 H2 F25", "rate"),
        ] {
            let error = frames(&stream(header, 1, 6)).unwrap_err().to_string();
            let name = name.trim_start_matches("C ");
            assert!(error.contains(name), "{header}: {error}");
        }
        let whole = stream("YUV4MPEG2 W4 H4 F25:1", 2, 24);
        let error = frames(&whole[..whole.len() - 1]).unwrap_err().to_string();
        assert!(error.contains("frame 1 is not whole"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn no_mutant_of_a_stream_breaks_the_reader(
            at in proptest::collection::vec((0..90_usize, any::<u8>()), 1..8), cut in 0..130_usize,
        ) {
            let mut bytes = stream("YUV4MPEG2 W4 H4 F25:1 Ip A1:1 C420jpeg XCOLORRANGE=FULL", 2, 24);
            for (at, byte) in at {
                bytes[at] = byte;
            }
            bytes.truncate(cut);
            let mut frame = I420::default();
            if let Ok(mut reader) = Reader::new(&bytes[..]) {
                for _ in 0..4 {
                    if !matches!(reader.next(&mut frame), Ok(Some(_))) {
                        break;
                    }
                    prop_assert!(frame.size().pixels() < 200, "a frame larger than the file");
                }
            }
        }
    }
}
