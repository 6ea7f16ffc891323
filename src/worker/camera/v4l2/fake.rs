//! A scripted driver: it behaves as drivers were seen to, faults and all.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::io::Errno;

use super::{
    Card, ControlInfo, Driver, Failed, Format, Intervals, Io, Kind, MJPG, Sizes, Slot, YUYV, raw,
};

/// What comes out of DQBUF next.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    /// A frame with this number.
    Frame(u32),
    Damaged(u32),
    /// A frame of which only so many bytes came.
    Short(u32, u32),
    /// Other bytes in the buffer.
    Bytes(u32, Vec<u8>),
    /// Nothing until the deadline.
    Silence,
    Errno(Errno),
}

/// What a camera is like.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// Format, sizes, intervals of each.
    pub(crate) formats: Vec<(u32, Vec<Offered>)>,
    pub(crate) controls: Vec<ControlInfo>,
    pub(crate) caps: u32,
    pub(crate) next: VecDeque<Next>,
    /// Calls that fail once, by name, in this order.
    pub(crate) fail: Vec<(&'static str, Errno)>,
    pub(crate) signal: bool,
    pub(crate) field: u32,
}

/// A size and its rates in frames a second.
pub(crate) type Offered = ((u32, u32), Vec<u32>);

/// A webcam as they are: raw frames small and slow, JPEG for the rest.
pub(crate) fn webcam() -> Script {
    let control = |id, name: &str| ControlInfo {
        id,
        name: name.to_owned(),
        kind: 1,
        least: 0,
        most: 255,
        default: 128,
        disabled: false,
    };
    Script {
        formats: vec![
            (YUYV, vec![((640, 480), vec![30, 15]), ((1280, 720), vec![5])]),
            (MJPG, vec![((640, 480), vec![30]), ((1280, 720), vec![30, 10])]),
            (super::fourcc(*b"H264"), vec![((1920, 1080), vec![60])]),
        ],
        controls: vec![
            control(0x98_0900, "Brightness"),
            control(0x98_0918, "Power Line Frequency"),
        ],
        caps: raw::CAPTURE | raw::STREAMING,
        next: VecDeque::new(),
        fail: Vec::new(),
        signal: true,
        field: raw::FIELD_NONE,
    }
}

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) script: Script,
    pub(crate) format: Format,
    interval: (u32, u32),
    buffers: Vec<Vec<u8>>,
    /// In the hands of the driver.
    queued: VecDeque<u32>,
    pub(crate) streams: bool,
    /// Names of all calls.
    pub(crate) calls: Vec<&'static str>,
}

impl Fake {
    pub(crate) fn new(script: Script) -> Self {
        let format = Format::wanted(Kind::Capture, YUYV, 640, 480);
        Self {
            script,
            format,
            interval: (1, 5),
            buffers: Vec::new(),
            queued: VecDeque::new(),
            streams: false,
            calls: Vec::new(),
        }
    }

    fn call(&mut self, call: &'static str) -> Io<()> {
        self.calls.push(call);
        match self.script.fail.iter().position(|(name, _)| *name == call) {
            Some(at) => {
                let (_, errno) = self.script.fail.remove(at);
                Err(Failed { call, errno })
            }
            None => Ok(()),
        }
    }

    /// Buffers that the driver does not have back.
    pub(crate) fn missing(&self) -> usize {
        self.buffers.len() - self.queued.len()
    }

    fn sizes(&self, fourcc: u32) -> &[Offered] {
        self.script.formats.iter().find(|f| f.0 == fourcc).map_or(&[], |f| f.1.as_slice())
    }
}

impl Driver for Fake {
    fn card(&mut self) -> Io<Card> {
        self.call("VIDIOC_QUERYCAP")?;
        let text = |t: &str| t.to_owned();
        let (driver, card, bus) = (text("fake"), text("Fake webcam"), text("usb-fake-1"));
        Ok(Card { driver, card, bus, caps: self.script.caps })
    }

    fn format_at(&mut self, _: Kind, index: u32) -> Io<Option<u32>> {
        self.call("VIDIOC_ENUM_FMT")?;
        Ok(self.script.formats.get(index as usize).map(|f| f.0))
    }

    fn size_at(&mut self, fourcc: u32, index: u32) -> Io<Option<Sizes>> {
        self.call("VIDIOC_ENUM_FRAMESIZES")?;
        Ok(self.sizes(fourcc).get(index as usize).map(|((w, h), _)| Sizes::One(*w, *h)))
    }

    fn interval_at(&mut self, fourcc: u32, size: (u32, u32), index: u32) -> Io<Option<Intervals>> {
        self.call("VIDIOC_ENUM_FRAMEINTERVALS")?;
        let rates = self.sizes(fourcc).iter().find(|s| s.0 == size).map(|s| s.1.as_slice());
        Ok(rates.unwrap_or_default().get(index as usize).map(|fps| Intervals::One(1, *fps)))
    }

    fn format(&mut self, _: Kind) -> Io<Format> {
        self.call("VIDIOC_G_FMT")?;
        Ok(self.format)
    }

    fn set_format(&mut self, wanted: &Format) -> Io<Format> {
        self.call("VIDIOC_S_FMT")?;
        let mut format = *wanted;
        format.field = self.script.field;
        let bytes = format.width * format.height * 2;
        format.planes[0] =
            if format.fourcc == YUYV { (format.width * 2, bytes) } else { (0, bytes) };
        self.format = format;
        Ok(format)
    }

    fn interval(&mut self, _: Kind) -> Io<Option<(u32, u32)>> {
        self.call("VIDIOC_G_PARM")?;
        Ok(Some(self.interval))
    }

    fn set_interval(&mut self, _: Kind, interval: (u32, u32)) -> Io<()> {
        self.call("VIDIOC_S_PARM")?;
        self.interval = interval;
        Ok(())
    }

    fn control_after(&mut self, id: u32) -> Io<Option<ControlInfo>> {
        self.call("VIDIOC_QUERYCTRL")?;
        // After its last this one begins again, as some do.
        let next = self.script.controls.iter().find(|c| c.id > id);
        Ok(next.or(self.script.controls.first()).cloned())
    }

    fn control(&mut self, _: u32) -> Io<i32> {
        self.call("VIDIOC_G_CTRL")?;
        Ok(0)
    }

    fn set_control(&mut self, _: u32, _: i32) -> Io<()> {
        self.call("VIDIOC_S_CTRL")
    }

    fn has_signal(&mut self) -> Io<bool> {
        Ok(self.script.signal)
    }

    fn buffers(&mut self, format: &Format, count: u32) -> Io<u32> {
        self.call("VIDIOC_REQBUFS")?;
        let bytes = format.planes[0].1 as usize;
        self.buffers = (0..count).map(|n| vec![n as u8 + 1; bytes]).collect();
        self.queued.clear();
        Ok(count)
    }

    fn queue(&mut self, index: u32) -> Io<()> {
        self.call("VIDIOC_QBUF")?;
        assert!(!self.queued.contains(&index), "a buffer is queued twice");
        self.queued.push_back(index);
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> Io<bool> {
        self.call("poll")?;
        Ok(!matches!(self.script.next.front(), None | Some(Next::Silence)))
    }

    fn dequeue(&mut self) -> Io<Slot> {
        self.call("VIDIOC_DQBUF")?;
        let failed = |errno| Failed { call: "VIDIOC_DQBUF", errno };
        let next = self.script.next.pop_front().ok_or(failed(Errno::AGAIN))?;
        if let Next::Errno(errno) = next {
            return Err(failed(errno));
        }
        assert!(self.streams, "frames come only from a stream");
        let index = self.queued.pop_front().ok_or(failed(Errno::AGAIN))?;
        let mut slot = Slot { index, at: Some(Duration::from_millis(7)), ..Slot::default() };
        slot.used[0] = self.format.planes[0].1;
        match next {
            Next::Frame(n) => slot.sequence = n,
            Next::Damaged(n) => (slot.sequence, slot.damaged) = (n, true),
            Next::Short(n, bytes) => (slot.sequence, slot.used[0]) = (n, bytes),
            Next::Bytes(n, bytes) => {
                (slot.sequence, slot.used[0]) = (n, bytes.len() as u32);
                self.buffers[index as usize][..bytes.len()].copy_from_slice(&bytes);
            }
            Next::Silence | Next::Errno(_) => return Err(failed(Errno::AGAIN)),
        }
        Ok(slot)
    }

    fn plane(&self, index: u32, _: usize) -> &[u8] {
        self.buffers.get(index as usize).map_or(&[], Vec::as_slice)
    }

    fn stream(&mut self, _: Kind, on: bool) -> Io<()> {
        self.call(if on { "VIDIOC_STREAMON" } else { "VIDIOC_STREAMOFF" })?;
        if !on {
            self.queued.clear();
        }
        self.streams = on;
        Ok(())
    }
}
