//! One camera that streams: what is agreed with the driver, its buffers, its frames.
//!
//! ```text
//!   closed ── agree, buffers, stream ──▶ streaming ── frame ──▶ streaming
//!      ▲                                    │ error of a call, silence
//!      └──────────── reopen ◀───────────────┘
//! ```

use std::time::Duration;

use mien_base::limits;
use mien_base::wire::live::{Control, Delivers, Mode, Pixel};
use mien_pixels::codec::{self, Bounds};
use mien_pixels::convert::{Colour, Matrix, Range};
use mien_pixels::geometry::Size;
use mien_pixels::i420::{I420, chroma_size};
use mien_pixels::view::View;
use rustix::io::Errno;

use super::{Driver, Failed, Format, JPEG, Kind, MJPG, NM12, NV12, Slot, YUYV, name, probe, raw};
use crate::camera::{Damage, Fault, FrameSource, Sequence, Shot, now};

/// Frames after which the input is asked whether it has a signal.
const ASKED: u64 = 16;
/// Zero bytes that a driver may leave after the end of a JPEG.
const PADDING: usize = 4096;

/// A camera by V4L2.
#[derive(Debug)]
pub struct Capture<D> {
    driver: D,
    mode: Mode,
    controls: Vec<Control>,
    format: Format,
    delivers: Delivers,
    sequence: Sequence,
    taken: u64,
    signal: bool,
    streams: bool,
}

fn gone(failed: Failed) -> Fault {
    match failed.errno {
        Errno::NODEV | Errno::NXIO => Fault::Gone,
        _ => Fault::Driver(failed),
    }
}

impl<D: Driver> Capture<D> {
    /// Agrees with a driver and begins to stream.
    ///
    /// # Errors
    /// `Fault`.
    pub fn open(driver: D, mode: Mode, controls: Vec<Control>) -> Result<Self, Fault> {
        let mut capture = Self {
            driver,
            mode,
            controls,
            format: Format::wanted(Kind::Capture, 0, 0, 0),
            delivers: Delivers { size: (0, 0), pixel: String::new(), millihertz: 0 },
            sequence: Sequence::default(),
            taken: 0,
            signal: true,
            streams: false,
        };
        capture.start()?;
        Ok(capture)
    }

    /// The driver, for tests and tools.
    pub const fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The format that was agreed on.
    pub const fn format(&self) -> &Format {
        &self.format
    }

    fn start(&mut self) -> Result<(), Fault> {
        let card = self.driver.card().map_err(gone)?;
        let kind = card.captures().ok_or_else(|| Fault::Unusable {
            detail: format!("`{}` is no camera that streams", card.card),
        })?;
        self.agree(kind)?;
        for control in &self.controls {
            self.driver.set_control(control.id, control.value).map_err(gone)?;
        }
        let count = self.driver.buffers(&self.format, limits::CAMERA_BUFFERS).map_err(gone)?;
        if count < 2 {
            return Err(Fault::Unusable { detail: format!("the driver gives {count} buffers") });
        }
        (0..count).try_for_each(|index| self.driver.queue(index)).map_err(gone)?;
        self.driver.stream(kind, true).map_err(gone)?;
        self.streams = true;
        self.signal = self.driver.has_signal().unwrap_or(true);
        Ok(())
    }

    /// Sets format and rate, and takes over what the driver makes of them.
    fn agree(&mut self, kind: Kind) -> Result<(), Fault> {
        let offers = probe::offers(&mut self.driver, kind, &self.mode)?;
        let now = self.driver.format(kind).map_err(gone)?;
        let best = probe::choose(&offers, &self.mode);
        let wanted = match best {
            Some(best) => Format::wanted(kind, best.fourcc, best.size.0, best.size.1),
            // A driver that lists nothing streams what it is fed (a loopback).
            None if offers.is_empty() => {
                let (width, height) = self.mode.size.unwrap_or((now.width, now.height));
                let fourcc = match self.mode.pixel {
                    Some(Pixel::Mjpg) => MJPG,
                    Some(Pixel::Yuyv) => YUYV,
                    Some(Pixel::Nv12) => NV12,
                    None => now.fourcc,
                };
                Format::wanted(kind, fourcc, width, height)
            }
            None => return Err(Fault::Unusable { detail: unmet(&offers, &self.mode) }),
        };
        let format = self.driver.set_format(&wanted).map_err(gone)?;
        check(&format)?;
        if let Some(best) = best.filter(|best| best.interval.0 > 0) {
            self.driver.set_interval(kind, best.interval).map_err(gone)?;
        } else if let Some(rate) = self.mode.millihertz {
            self.driver.set_interval(kind, (1000, rate.max(1))).map_err(gone)?;
        }
        let interval = self.driver.interval(kind).map_err(gone)?;
        self.format = format;
        self.delivers = Delivers {
            size: (format.width, format.height),
            pixel: name(format.fourcc),
            millihertz: interval.map_or(0, probe::millihertz),
        };
        Ok(())
    }

    /// Converts a buffer's frame.
    fn convert(&self, slot: &Slot, into: &mut I420) -> Result<(), Damage> {
        let format = &self.format;
        let size = Size::new(format.width, format.height);
        let half = chroma_size(size);
        let colour = colour(format);
        let plane = |at: usize| -> &[u8] {
            let bytes = self.driver.plane(slot.index, at);
            let from = slot.offset[at] as usize;
            let to = (slot.used[at] as usize).min(bytes.len());
            bytes.get(from..to).unwrap_or_default()
        };
        let stride = format.planes[0].0 as usize;
        match format.fourcc {
            YUYV => {
                let stride = stride.max(4 * half.width as usize);
                let bytes = plane(0);
                let pairs = View::<4>::new(bytes, Size::new(half.width, size.height), stride);
                into.reset(size, colour);
                into.fill_yuyv(pairs.ok_or(Damage::Short)?);
            }
            NV12 | NM12 => {
                let stride = stride.max(size.width as usize);
                let bytes = plane(0);
                let (luma, chroma) = if format.fourcc == NM12 {
                    (bytes, plane(1))
                } else {
                    bytes.split_at_checked(stride * size.height as usize).ok_or(Damage::Short)?
                };
                let luma = View::<1>::new(luma, size, stride).ok_or(Damage::Short)?;
                let chroma = View::<2>::new(chroma, half, stride).ok_or(Damage::Short)?;
                into.reset(size, colour);
                into.fill_nv12(luma, chroma);
            }
            _ => {
                let bytes = whole_jpeg(plane(0)).ok_or(Damage::Torn)?;
                let decoded = codec::decode(bytes, &Bounds::default());
                let rgb = decoded.map_err(|_| Damage::Undecodable)?.rgb;
                if rgb.size() != size {
                    return Err(Damage::Resized);
                }
                into.reset(size, colour);
                into.fill_from(rgb.view());
            }
        }
        Ok(())
    }
}

/// What the offers lack.
fn unmet(offers: &[probe::Offer], mode: &Mode) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("the camera does not offer");
    if let Some(pixel) = mode.pixel {
        let _ = write!(text, " {}", pixel.name());
    }
    if let Some((w, h)) = mode.size {
        let _ = write!(text, " {w}x{h}");
    }
    if mode.pixel.is_none() && mode.size.is_none() {
        text.push_str(" MJPG, YUYV or NV12");
    }
    text.push_str("; it offers");
    for (i, offer) in offers.iter().take(12).enumerate() {
        let (w, h) = offer.size;
        let _ = write!(text, "{} {} {w}x{h}", if i == 0 { "" } else { "," }, name(offer.fourcc));
    }
    text
}

/// Refuses what is not read.
fn check(format: &Format) -> Result<(), Fault> {
    let unusable = |detail: String| Err(Fault::Unusable { detail });
    let (w, h) = (format.width, format.height);
    if probe::pixel(format.fourcc).is_none() {
        return unusable(format!("the driver insists on {}", name(format.fourcc)));
    }
    if !matches!(format.field, 0 | raw::FIELD_NONE) {
        return unusable("its frames are interlaced".to_owned());
    }
    if w.min(h) < 16
        || w.max(h) > limits::CLIP_SIDE
        || u64::from(w) * u64::from(h) > limits::CLIP_PIXELS
    {
        return unusable(format!("frames of {w}x{h} are beyond what is worked on"));
    }
    if format.kind.planes() && format.count != if format.fourcc == NM12 { 2 } else { 1 } {
        return unusable(format!("{} in {} planes", name(format.fourcc), format.count));
    }
    Ok(())
}

/// What the values mean.
fn colour(format: &Format) -> Colour {
    let jpeg = matches!(format.fourcc, MJPG | JPEG);
    // Encoding 0 goes by the colour space, of which 3 is BT.709.
    let matrix = match (format.encoding, format.colour_space) {
        (2, _) | (0, 3) if !jpeg => Matrix::Bt709,
        _ => Matrix::Bt601,
    };
    let range = if format.quantisation == 1 && !jpeg { Range::Full } else { Range::Limited };
    Colour { matrix, range }
}

/// A JPEG from its beginning to its end, without what a driver left behind it.
fn whole_jpeg(bytes: &[u8]) -> Option<&[u8]> {
    if !bytes.starts_with(&[0xff, 0xd8]) {
        return None;
    }
    let tail = bytes.len().saturating_sub(PADDING);
    let last = bytes.iter().rposition(|b| *b != 0).filter(|at| *at >= tail)?;
    bytes.get(..=last).filter(|whole| whole.ends_with(&[0xff, 0xd9]))
}

impl<D: Driver> FrameSource for Capture<D> {
    fn delivers(&self) -> &Delivers {
        &self.delivers
    }

    fn next(&mut self, into: &mut I420, most: Duration) -> Result<Shot, Fault> {
        if !self.streams {
            return Err(Fault::Gone);
        }
        if !self.driver.wait(most).map_err(gone)? {
            let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
            return Err(Fault::Silent { millis });
        }
        let slot = self.driver.dequeue().map_err(gone)?;
        let fetched = now();
        let sequence = self.sequence.next(slot.sequence);
        let converted = if slot.damaged { Err(Damage::Marked) } else { self.convert(&slot, into) };
        // The buffer goes back also when its frame is not used.
        self.driver.queue(slot.index).map_err(gone)?;
        self.taken += 1;
        if !self.signal || self.taken.is_multiple_of(ASKED) {
            self.signal = self.driver.has_signal().unwrap_or(true);
        }
        converted.map_err(Fault::Damaged)?;
        if !self.signal {
            return Err(Fault::NoSignal);
        }
        Ok(Shot { sequence, at: slot.at, fetched })
    }

    fn reopen(&mut self) -> Result<(), Fault> {
        self.streams = false;
        // Of a stream that is broken anyway nothing more is wanted.
        let _ = self.driver.stream(self.format.kind, false);
        let _ = self.driver.buffers(&self.format, 0);
        self.sequence.restart();
        self.start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::v4l2::fake::{Fake, Next, Script, webcam};
    use mien_pixels::codec::{FileFormat, Metadata};
    use mien_pixels::view::Rgb;

    const MOST: Duration = Duration::from_millis(10);

    fn open(script: Script) -> Result<Capture<Fake>, Fault> {
        let mode = Mode { size: Some((640, 480)), ..Mode::default() };
        Capture::open(Fake::new(script), mode, vec![Control { id: 0x98_0918, value: 1 }])
    }

    fn scripted(next: impl IntoIterator<Item = Next>) -> Script {
        Script { next: next.into_iter().collect(), ..webcam() }
    }

    #[test]
    fn frames_come_converted_and_every_buffer_goes_back() {
        let mut capture = open(scripted((0..40).map(Next::Frame))).unwrap();
        assert_eq!(capture.delivers().pixel, "YUYV");
        assert_eq!(capture.delivers().millihertz, 30_000);
        let mut frame = I420::default();
        for n in 0..40 {
            let shot = capture.next(&mut frame, MOST).unwrap();
            assert_eq!((shot.sequence, shot.at), (n, Some(Duration::from_millis(7))));
            assert_eq!(capture.driver().missing(), 0);
            // Buffers are filled with their number.
            assert_eq!(frame.y().pixel(639, 479), [(n % 4) as u8 + 1]);
        }
        assert_eq!(frame.size(), Size::new(640, 480));
    }

    #[test]
    fn damaged_and_short_frames_are_left_out_and_their_buffers_go_back() {
        let next = [Next::Frame(0), Next::Damaged(1), Next::Short(2, 640 * 480), Next::Frame(3)];
        let mut capture = open(scripted(next)).unwrap();
        let mut frame = I420::default();
        let mut take = || capture.next(&mut frame, MOST).map(|shot| shot.sequence);
        assert_eq!(take(), Ok(0));
        assert_eq!(take(), Err(Fault::Damaged(Damage::Marked)));
        assert_eq!(take(), Err(Fault::Damaged(Damage::Short)));
        assert_eq!(take(), Ok(3));
        assert_eq!(capture.driver().missing(), 0);
    }

    #[test]
    fn after_a_silence_the_stream_goes_on() {
        let next = [Next::Frame(0), Next::Silence];
        let mut capture = open(scripted(next)).unwrap();
        let mut frame = I420::default();
        capture.next(&mut frame, MOST).unwrap();
        let silent = capture.next(&mut frame, MOST).unwrap_err();
        assert_eq!(silent, Fault::Silent { millis: 10 });
        capture.driver().script.next = [Next::Frame(1)].into();
        assert_eq!(capture.next(&mut frame, MOST).unwrap().sequence, 1);
    }

    #[test]
    fn an_unplugged_camera_is_gone_and_not_merely_broken() {
        let mut capture = open(scripted([Next::Errno(Errno::NODEV)])).unwrap();
        assert_eq!(capture.next(&mut I420::default(), MOST), Err(Fault::Gone));
    }

    #[test]
    fn a_stream_that_broke_goes_on_once_it_is_opened_anew() {
        let mut capture = open(scripted([Next::Frame(5), Next::Errno(Errno::IO)])).unwrap();
        let mut frame = I420::default();
        capture.next(&mut frame, MOST).unwrap();
        let failed = capture.next(&mut frame, MOST).unwrap_err();
        assert!(
            matches!(failed, Fault::Driver(Failed { errno: Errno::IO, .. })) && !failed.passes()
        );
        capture.driver().script.next = [Next::Frame(0), Next::Frame(1)].into();
        capture.reopen().unwrap();
        let calls = capture.driver().calls.clone();
        let tail: Vec<_> = calls.iter().rev().take_while(|c| **c != "VIDIOC_DQBUF").collect();
        assert!(tail.contains(&&"VIDIOC_STREAMOFF") && tail.contains(&&"VIDIOC_S_FMT"));
        // Time goes on although the driver counts from 0 again.
        let numbers = [(); 2].map(|()| capture.next(&mut frame, MOST).unwrap().sequence);
        assert_eq!(numbers, [1, 2]);
    }

    #[test]
    fn an_error_of_any_call_is_told_by_its_name_and_the_next_try_works() {
        for call in [
            "VIDIOC_QUERYCAP",
            "VIDIOC_ENUM_FMT",
            "VIDIOC_ENUM_FRAMESIZES",
            "VIDIOC_ENUM_FRAMEINTERVALS",
            "VIDIOC_G_FMT",
            "VIDIOC_S_FMT",
            "VIDIOC_S_PARM",
            "VIDIOC_G_PARM",
            "VIDIOC_S_CTRL",
            "VIDIOC_REQBUFS",
            "VIDIOC_QBUF",
            "VIDIOC_STREAMON",
        ] {
            let fault = open(Script { fail: vec![(call, Errno::IO)], ..webcam() }).unwrap_err();
            assert_eq!(fault, Fault::Driver(Failed { call, errno: Errno::IO }));
            let mut capture = open(scripted([Next::Frame(0)])).unwrap();
            // The first of REQBUFS gives back the buffers of what is over anyway.
            let times = if call == "VIDIOC_REQBUFS" { 2 } else { 1 };
            capture.driver().script.fail = vec![(call, Errno::INVAL); times];
            let first = capture.reopen();
            assert!(matches!(first, Err(Fault::Driver(Failed { call: c, .. })) if c == call));
            // A camera that could not be opened gives no frame.
            assert_eq!(capture.next(&mut I420::default(), MOST), Err(Fault::Gone));
            capture.reopen().unwrap();
            capture.next(&mut I420::default(), MOST).unwrap();
        }
        for call in ["poll", "VIDIOC_DQBUF", "VIDIOC_QBUF"] {
            let mut capture = open(scripted([Next::Frame(0)])).unwrap();
            capture.driver().script.fail = vec![(call, Errno::IO)];
            let fault = capture.next(&mut I420::default(), MOST).unwrap_err();
            assert_eq!(fault, Fault::Driver(Failed { call, errno: Errno::IO }));
        }
    }

    #[test]
    fn frames_without_a_signal_are_left_out_until_it_comes_back() {
        let mut capture = open(scripted((0..4).map(Next::Frame))).unwrap();
        let mut frame = I420::default();
        capture.driver().script.signal = false;
        capture.reopen().unwrap();
        assert_eq!(capture.next(&mut frame, MOST), Err(Fault::NoSignal));
        assert!(Fault::NoSignal.passes());
        capture.driver().script.signal = true;
        capture.next(&mut frame, MOST).unwrap();
    }

    #[test]
    fn what_no_camera_of_ours_can_deliver_is_refused_with_what_it_offers() {
        let mode = Mode { size: Some((800, 600)), ..Mode::default() };
        let fault = Capture::open(Fake::new(webcam()), mode, Vec::new()).unwrap_err();
        assert!(fault.to_string().contains("800x600; it offers YUYV 640x480"), "{fault}");
        let interlaced = open(Script { field: 4, ..webcam() }).unwrap_err();
        assert!(interlaced.to_string().contains("interlaced"));
        let output = open(Script { caps: raw::OUTPUT | raw::STREAMING, ..webcam() }).unwrap_err();
        assert!(output.to_string().contains("no camera"));
    }

    #[test]
    fn a_jpeg_that_is_torn_padded_or_of_another_size_is_told_apart() {
        let rgb = Rgb::filled(Size::new(640, 480), [90, 120, 30]);
        let encode = |rgb: &Rgb| {
            codec::encode(rgb.view(), None, FileFormat::Jpeg, 90, &Metadata::default()).unwrap()
        };
        let jpeg = encode(&rgb);
        let padded = [jpeg.as_slice(), &[0; 100]].concat();
        let torn = jpeg[..jpeg.len() / 2].to_vec();
        let other = encode(&Rgb::filled(Size::new(320, 240), [9, 9, 9]));
        let mut broken = jpeg.clone();
        let at = broken.windows(2).position(|w| w == [0xff, 0xda]).unwrap();
        broken[at + 1] = 0xd9;
        let mut script = scripted(
            [padded, torn, other, broken]
                .into_iter()
                .enumerate()
                .map(|(n, b)| Next::Bytes(n as u32, b)),
        );
        script.formats.remove(0);
        let mut capture = open(script).unwrap();
        assert_eq!(capture.delivers().pixel, "MJPG");
        let mut frame = I420::default();
        capture.next(&mut frame, MOST).unwrap();
        let mut seen = Rgb::filled(frame.size(), [0; 3]);
        frame.view().to_rgb(mien_pixels::geometry::Roi::whole(frame.size()), &mut seen.view_mut());
        for (a, b) in seen.view().pixel(300, 200).iter().zip([90_u8, 120, 30]) {
            assert!(a.abs_diff(b) < 4);
        }
        for damage in [Damage::Torn, Damage::Resized, Damage::Undecodable] {
            assert_eq!(capture.next(&mut frame, MOST), Err(Fault::Damaged(damage)));
        }
    }
}
