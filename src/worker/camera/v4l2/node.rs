//! A device node: the calls themselves, and the buffers that the driver maps.

#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::raw::{self, pix, planes, text};
use super::{Card, ControlInfo, Driver, Failed, Format, Intervals, Io, Kind, PLANES, Sizes, Slot};

/// A plane that the driver shares with us.
#[derive(Debug)]
struct Mapping {
    at: *mut core::ffi::c_void,
    length: usize,
}

// SAFETY: a mapping is memory that belongs to one `Node`; no thread holds on to it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: &OwnedFd, length: u32, offset: u64) -> Result<Self, Errno> {
        let length = length as usize;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the address is of the kernel's choice, so that no memory of ours is replaced;
        // what is mapped is read only through `bytes`, while the mapping lives.
        let at = unsafe { mmap(std::ptr::null_mut(), length, prot, flags, fd, offset)? };
        Ok(Self { at, length })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `at` was mapped for reading with this length and is unmapped by `drop` alone.
        // The driver writes into a buffer only between QBUF and DQBUF; a buffer is read between
        // DQBUF and QBUF. A driver that breaks this gives wrong pixels: bytes are all values.
        unsafe { std::slice::from_raw_parts(self.at.cast::<u8>(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no slice outlives `self`.
        let _ = unsafe { munmap(self.at, self.length) };
    }
}

/// An opened device node.
#[derive(Debug)]
pub struct Node {
    fd: OwnedFd,
    kind: Kind,
    buffers: Vec<Vec<Mapping>>,
}

impl Node {
    /// Takes a node that the root program opened; from here on no call of it blocks.
    ///
    /// # Errors
    /// `Failed`.
    pub fn new(fd: OwnedFd) -> Io<Self> {
        let failed = |errno| Failed { call: "F_SETFL", errno };
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(failed)?;
        if !flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK).map_err(failed)?;
        }
        Ok(Self { fd, kind: Kind::Capture, buffers: Vec::new() })
    }

    /// Gives the descriptor up, for `write`.
    #[must_use]
    pub fn into_fd(mut self) -> OwnedFd {
        self.buffers.clear();
        self.fd
    }

    fn update<const CALL: Opcode, T>(&self, call: &'static str, value: &mut T) -> Io<()> {
        loop {
            // SAFETY: each constant of `raw` is made of the number of its call and of the size of
            // the very structure that is passed with it, which is as the kernel lays it out.
            match unsafe { ioctl(&self.fd, Updater::<CALL, T>::new(value)) } {
                Err(Errno::INTR) => {}
                other => return other.map_err(|errno| Failed { call, errno }),
            }
        }
    }

    /// As `update`; what an enumeration says at its end is `None`.
    fn list<const CALL: Opcode, T>(&self, call: &'static str, mut value: T) -> Io<Option<T>> {
        match self.update::<CALL, T>(call, &mut value) {
            Ok(()) => Ok(Some(value)),
            Err(Failed { errno: Errno::INVAL | Errno::NOTTY | Errno::NODATA, .. }) => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    fn buffer(&self, index: u32, with: &mut [raw::Plane; PLANES], count: usize) -> raw::Buffer {
        let mut buffer = raw::Buffer {
            index,
            kind: self.kind.number(),
            memory: raw::MEMORY_MMAP,
            ..raw::Buffer::default()
        };
        if self.kind.planes() {
            buffer.place = with.as_mut_ptr() as u64;
            buffer.length = count.min(PLANES) as u32;
        }
        buffer
    }

    fn map(&mut self, index: u32, count: usize) -> Io<Vec<Mapping>> {
        let mut list = [raw::Plane::default(); PLANES];
        let mut buffer = self.buffer(index, &mut list, count);
        self.update::<{ raw::QUERYBUF }, _>("VIDIOC_QUERYBUF", &mut buffer)?;
        let mut places = vec![(buffer.length, buffer.place & 0xffff_ffff)];
        if self.kind.planes() {
            places = list.iter().take(count).map(|p| (p.length, p.place & 0xffff_ffff)).collect();
        }
        let mapped = places.into_iter().map(|(length, at)| Mapping::new(&self.fd, length, at));
        mapped.collect::<Result<_, _>>().map_err(|errno| Failed { call: "mmap", errno })
    }
}

fn words(format: &Format) -> raw::Format {
    let mut out = raw::Format { kind: format.kind.number(), ..raw::Format::default() };
    let body = &mut out.body.0;
    (body[pix::WIDTH], body[pix::HEIGHT]) = (format.width, format.height);
    (body[pix::FOURCC], body[pix::FIELD]) = (format.fourcc, format.field);
    if format.kind.planes() {
        body[planes::COUNT] = format.count as u32;
    }
    out
}

fn read(kind: Kind, from: &raw::Format) -> Format {
    let body = &from.body.0;
    let mut format = Format::wanted(kind, body[pix::FOURCC], body[pix::WIDTH], body[pix::HEIGHT]);
    format.field = body[pix::FIELD];
    if kind.planes() {
        let [count, _, encoding, quantisation] = body[planes::COUNT].to_le_bytes();
        format.count = usize::from(count);
        (format.encoding, format.quantisation) = (encoding.into(), quantisation.into());
        format.colour_space = body[planes::COLOUR_SPACE];
        for (i, plane) in format.planes.iter_mut().enumerate().take(usize::from(count)) {
            let at = planes::FIRST + i * planes::EACH;
            *plane = (body[at + 1], body[at]);
        }
    } else {
        format.planes[0] = (body[pix::STRIDE], body[pix::BYTES]);
        format.colour_space = body[pix::COLOUR_SPACE];
        (format.encoding, format.quantisation) = (body[pix::ENCODING], body[pix::QUANTISATION]);
    }
    format
}

/// The damage flag of a buffer, and that its time is of the monotonic clock.
const DAMAGED: u32 = 0x40;
const MONOTONIC: u32 = 0x2000;
const CLOCKS: u32 = 0xe000;
/// A control that can't be used now.
const DISABLED: u32 = 0x1;
/// No power, no signal, no sync.
const SILENT: u32 = 0x1 | 0x2 | 0x100;

impl Driver for Node {
    fn card(&mut self) -> Io<Card> {
        let failed = |errno| Failed { call: "VIDIOC_QUERYCAP", errno };
        // SAFETY: as in `update`; the kernel fills the whole structure.
        let call = unsafe { ioctl(&self.fd, Getter::<{ raw::QUERYCAP }, raw::Capability>::new()) };
        let found = call.map_err(failed)?;
        let caps = if found.all & raw::OF_NODE != 0 { found.node } else { found.all };
        let [driver, card, bus] = [&found.driver[..], &found.card, &found.bus].map(text);
        Ok(Card { driver, card, bus, caps })
    }

    fn format_at(&mut self, kind: Kind, index: u32) -> Io<Option<u32>> {
        let asked = raw::FormatDescription {
            index,
            kind: kind.number(),
            ..raw::FormatDescription::default()
        };
        let found = self.list::<{ raw::ENUM_FMT }, _>("VIDIOC_ENUM_FMT", asked)?;
        Ok(found.map(|f| f.fourcc))
    }

    fn size_at(&mut self, fourcc: u32, index: u32) -> Io<Option<Sizes>> {
        let asked = raw::FrameSize { index, fourcc, ..raw::FrameSize::default() };
        let found = self.list::<{ raw::ENUM_FRAMESIZES }, _>("VIDIOC_ENUM_FRAMESIZES", asked)?;
        Ok(found.map(|f| match (f.kind, f.values) {
            (1, [w, h, ..]) => Sizes::One(w, h),
            (_, [w0, w1, dw, h0, h1, dh]) => {
                Sizes::Range { least: (w0, h0), most: (w1, h1), step: (dw, dh) }
            }
        }))
    }

    fn interval_at(&mut self, fourcc: u32, size: (u32, u32), index: u32) -> Io<Option<Intervals>> {
        let (width, height) = size;
        let asked =
            raw::FrameInterval { index, fourcc, width, height, ..raw::FrameInterval::default() };
        let found =
            self.list::<{ raw::ENUM_FRAMEINTERVALS }, _>("VIDIOC_ENUM_FRAMEINTERVALS", asked)?;
        Ok(found.map(|f| match (f.kind, f.values) {
            (1, [n, d, ..]) => Intervals::One(n, d),
            (_, [n0, d0, n1, d1, ..]) => Intervals::Range { least: (n0, d0), most: (n1, d1) },
        }))
    }

    fn format(&mut self, kind: Kind) -> Io<Format> {
        let mut value = raw::Format { kind: kind.number(), ..raw::Format::default() };
        self.update::<{ raw::G_FMT }, _>("VIDIOC_G_FMT", &mut value)?;
        Ok(read(kind, &value))
    }

    fn set_format(&mut self, wanted: &Format) -> Io<Format> {
        let mut value = words(wanted);
        self.update::<{ raw::S_FMT }, _>("VIDIOC_S_FMT", &mut value)?;
        Ok(read(wanted.kind, &value))
    }

    fn interval(&mut self, kind: Kind) -> Io<Option<(u32, u32)>> {
        let asked = raw::Parameters { kind: kind.number(), body: [0; 50] };
        let found = self.list::<{ raw::G_PARM }, _>("VIDIOC_G_PARM", asked)?;
        Ok(found.map(|p| (p.body[2], p.body[3])).filter(|(n, d)| *n > 0 && *d > 0))
    }

    fn set_interval(&mut self, kind: Kind, (n, d): (u32, u32)) -> Io<()> {
        let mut asked = raw::Parameters { kind: kind.number(), body: [0; 50] };
        (asked.body[2], asked.body[3]) = (n, d);
        // Drivers that know no rate say ENOTTY: what comes is measured anyway.
        self.list::<{ raw::S_PARM }, _>("VIDIOC_S_PARM", asked).map(drop)
    }

    fn control_after(&mut self, id: u32) -> Io<Option<ControlInfo>> {
        let asked =
            raw::QueryControl { id: id | raw::NEXT_CONTROL, ..raw::QueryControl::default() };
        let found = self.list::<{ raw::QUERYCTRL }, _>("VIDIOC_QUERYCTRL", asked)?;
        Ok(found.map(|c| ControlInfo {
            id: c.id,
            name: text(&c.name),
            kind: c.kind,
            least: c.least,
            most: c.most,
            default: c.default,
            disabled: c.flags & DISABLED != 0,
        }))
    }

    fn control(&mut self, id: u32) -> Io<i32> {
        let mut control = raw::Control { id, value: 0 };
        self.update::<{ raw::G_CTRL }, _>("VIDIOC_G_CTRL", &mut control)?;
        Ok(control.value)
    }

    fn set_control(&mut self, id: u32, value: i32) -> Io<()> {
        self.update::<{ raw::S_CTRL }, _>("VIDIOC_S_CTRL", &mut raw::Control { id, value })
    }

    fn has_signal(&mut self) -> Io<bool> {
        // SAFETY: as in `update`; the kernel writes one integer.
        let index = unsafe { ioctl(&self.fd, Getter::<{ raw::G_INPUT }, i32>::new()) };
        let Ok(Ok(index)) = index.map(u32::try_from) else { return Ok(true) };
        let asked = raw::Input { index, ..raw::Input::default() };
        let found = self.list::<{ raw::ENUMINPUT }, _>("VIDIOC_ENUMINPUT", asked)?;
        Ok(found.is_none_or(|input| input.status & SILENT == 0))
    }

    fn buffers(&mut self, format: &Format, count: u32) -> Io<u32> {
        self.kind = format.kind;
        self.buffers.clear();
        let mut asked = raw::RequestBuffers {
            count,
            kind: format.kind.number(),
            memory: raw::MEMORY_MMAP,
            ..raw::RequestBuffers::default()
        };
        self.update::<{ raw::REQBUFS }, _>("VIDIOC_REQBUFS", &mut asked)?;
        let planes = if format.kind.planes() { format.count } else { 1 };
        for index in 0..asked.count.min(32) {
            let mapped = self.map(index, planes)?;
            self.buffers.push(mapped);
        }
        Ok(self.buffers.len() as u32)
    }

    fn queue(&mut self, index: u32) -> Io<()> {
        let mut list = [raw::Plane::default(); PLANES];
        let count = self.buffers.get(index as usize).map_or(1, Vec::len);
        let mut buffer = self.buffer(index, &mut list, count);
        self.update::<{ raw::QBUF }, _>("VIDIOC_QBUF", &mut buffer)
    }

    fn wait(&mut self, most: Duration) -> Io<bool> {
        let span = Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&span)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(Failed { call: "poll", errno }),
        }
    }

    fn dequeue(&mut self) -> Io<Slot> {
        let mut list = [raw::Plane::default(); PLANES];
        let count = self.buffers.first().map_or(1, Vec::len);
        let mut buffer = self.buffer(0, &mut list, count);
        self.update::<{ raw::DQBUF }, _>("VIDIOC_DQBUF", &mut buffer)?;
        let mut slot = Slot {
            index: buffer.index,
            damaged: buffer.flags & DAMAGED != 0,
            sequence: buffer.sequence,
            ..Slot::default()
        };
        if buffer.flags & CLOCKS == MONOTONIC {
            let seconds = u64::try_from(buffer.time.seconds).unwrap_or(0);
            let micros = u64::try_from(buffer.time.micros).unwrap_or(0);
            slot.at = Some(Duration::from_secs(seconds) + Duration::from_micros(micros));
        }
        if self.kind.planes() {
            for (i, plane) in list.iter().enumerate() {
                (slot.used[i], slot.offset[i]) = (plane.used, plane.offset);
            }
        } else {
            slot.used[0] = buffer.used;
        }
        Ok(slot)
    }

    fn plane(&self, index: u32, plane: usize) -> &[u8] {
        let buffer = self.buffers.get(index as usize);
        buffer.and_then(|planes| planes.get(plane)).map_or(&[], Mapping::bytes)
    }

    fn stream(&mut self, kind: Kind, on: bool) -> Io<()> {
        let number = kind.number() as i32;
        let (call, done) = if on {
            // SAFETY: as in `update`; the kernel reads one integer.
            let done = unsafe { ioctl(&self.fd, Setter::<{ raw::STREAMON }, i32>::new(number)) };
            ("VIDIOC_STREAMON", done)
        } else {
            // SAFETY: as in `update`; the kernel reads one integer.
            let done = unsafe { ioctl(&self.fd, Setter::<{ raw::STREAMOFF }, i32>::new(number)) };
            ("VIDIOC_STREAMOFF", done)
        };
        done.map_err(|errno| Failed { call, errno })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_planes_and_of_one_plane_are_read_as_the_kernel_writes_them() {
        let mut single = raw::Format::default();
        // width, height, fourcc, field, stride, bytes, colour space, private, flags, encoding,
        // quantisation: the order of `v4l2_pix_format`.
        single.body.0[..11].copy_from_slice(&[640, 480, 7, 1, 1280, 614_400, 8, 0, 0, 1, 2]);
        let format = read(Kind::Capture, &single);
        assert_eq!((format.width, format.height, format.fourcc), (640, 480, 7));
        assert_eq!(format.planes[0], (1280, 614_400));
        assert_eq!((format.colour_space, format.encoding, format.quantisation), (8, 1, 2));

        let mut many = raw::Format::default();
        many.body.0[..5].copy_from_slice(&[640, 480, 9, 1, 8]);
        // Two planes: bytes, stride; 12 bytes reserved behind each.
        many.body.0[5..7].copy_from_slice(&[307_200, 640]);
        many.body.0[10..12].copy_from_slice(&[153_600, 640]);
        many.body.0[45] = u32::from_le_bytes([2, 0, 1, 2]);
        let format = read(Kind::CapturePlanes, &many);
        assert_eq!((format.count, format.colour_space, format.quantisation), (2, 8, 2));
        assert_eq!(format.planes[..2], [(640, 307_200), (640, 153_600)]);
        assert_eq!(read(Kind::CapturePlanes, &words(&format)).count, 2);
    }

    #[test]
    fn what_is_no_camera_says_so() {
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        let failed = Node::new(pipe).unwrap().card().unwrap_err();
        assert_eq!(failed, Failed { call: "VIDIOC_QUERYCAP", errno: Errno::NOTTY });
    }
}
