//! V4L2: our own thin layer. What is asked of a driver, what it answers, what goes wrong.
//!
//! ```text
//!   descriptor ─▶ Node: Driver ─▶ what it offers (probe)
//!                      └────────▶ Capture: FrameSource ─▶ frames
//! ```
//! `Driver` is all that the layer knows of the kernel: tests script one that fails as drivers do.

mod raw;
mod node;
pub mod probe;
mod capture;
mod output;
#[cfg(test)]
mod fake;

use std::time::Duration;

use rustix::io::Errno;

pub use capture::Capture;
pub use node::Node;
pub use output::Sink;

/// Most planes of a format that is read.
pub const PLANES: usize = 3;

/// Four characters as V4L2 packs them.
#[must_use]
pub const fn fourcc(name: [u8; 4]) -> u32 {
    u32::from_le_bytes(name)
}

/// Formats that are read.
pub const MJPG: u32 = fourcc(*b"MJPG");
/// The same under its other name.
pub const JPEG: u32 = fourcc(*b"JPEG");
pub const YUYV: u32 = fourcc(*b"YUYV");
pub const NV12: u32 = fourcc(*b"NV12");
/// NV12 in two buffers.
pub const NM12: u32 = fourcc(*b"NM12");

/// Four characters of a format, with what does not print as `?`.
#[must_use]
pub fn name(fourcc: u32) -> String {
    let plain = |b: u8| if b.is_ascii_graphic() { b as char } else { '?' };
    fourcc.to_le_bytes().map(plain).iter().collect::<String>().trim_end().to_owned()
}

/// Which way frames go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Capture,
    CapturePlanes,
    Output,
    OutputPlanes,
}

impl Kind {
    const fn number(self) -> u32 {
        match self {
            Self::Capture => raw::KIND_CAPTURE,
            Self::CapturePlanes => raw::KIND_CAPTURE_PLANES,
            Self::Output => raw::KIND_OUTPUT,
            Self::OutputPlanes => raw::KIND_OUTPUT_PLANES,
        }
    }

    const fn planes(self) -> bool {
        matches!(self, Self::CapturePlanes | Self::OutputPlanes)
    }
}

/// Who a node is and what it can.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Card {
    pub driver: String,
    pub card: String,
    /// Where it is attached; the same again after it was unplugged.
    pub bus: String,
    caps: u32,
}

impl Card {
    /// How it captures; `None` when it does not, or can't stream.
    #[must_use]
    pub const fn captures(&self) -> Option<Kind> {
        if self.caps & raw::STREAMING == 0 {
            return None;
        }
        match self.caps & (raw::CAPTURE | raw::CAPTURE_PLANES) {
            0 => None,
            raw::CAPTURE_PLANES => Some(Kind::CapturePlanes),
            _ => Some(Kind::Capture),
        }
    }

    /// How it takes frames that are written to it; `None` when it does not.
    #[must_use]
    pub const fn takes(&self) -> Option<Kind> {
        let wanted = raw::OUTPUT | raw::READ_WRITE;
        if self.caps & wanted == wanted { Some(Kind::Output) } else { None }
    }
}

/// A pixel format of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub kind: Kind,
    pub width: u32,
    pub height: u32,
    pub fourcc: u32,
    /// 1: whole frames. All others are not read.
    pub field: u32,
    /// Bytes a row and bytes in all, of each plane.
    pub planes: [(u32, u32); PLANES],
    pub count: usize,
    pub colour_space: u32,
    pub encoding: u32,
    /// 1: 0..=255, 2: 16..=235.
    pub quantisation: u32,
}

impl Format {
    /// A format to ask for.
    #[must_use]
    pub const fn wanted(kind: Kind, fourcc: u32, width: u32, height: u32) -> Self {
        Self {
            kind,
            width,
            height,
            fourcc,
            field: raw::FIELD_NONE,
            planes: [(0, 0); PLANES],
            count: 1,
            colour_space: 0,
            encoding: 0,
            quantisation: 0,
        }
    }
}

/// Sides of frames: one size, or all from `least` to `most` in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    One(u32, u32),
    Range { least: (u32, u32), most: (u32, u32), step: (u32, u32) },
}

/// Time between frames as fractions of a second: one, or all from `least` to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intervals {
    One(u32, u32),
    Range { least: (u32, u32), most: (u32, u32) },
}

/// A buffer of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    pub index: u32,
    /// Of each plane: bytes that hold a frame, and from where.
    pub used: [u32; PLANES],
    pub offset: [u32; PLANES],
    /// The driver says that the frame is damaged.
    pub damaged: bool,
    pub sequence: u32,
    /// On the monotonic clock where the driver says so.
    pub at: Option<Duration>,
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlInfo {
    pub id: u32,
    pub name: String,
    /// 1 number, 2 switch, 3 menu, 4 button; others have no plain number.
    pub kind: u32,
    pub least: i32,
    pub most: i32,
    pub default: i32,
    pub disabled: bool,
}

/// A call that failed, by the kernel's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {errno}")]
pub struct Failed {
    pub call: &'static str,
    pub errno: Errno,
}

type Io<T> = std::result::Result<T, Failed>;

/// All that is asked of a driver.
pub trait Driver: Send {
    /// QUERYCAP.
    ///
    /// # Errors
    /// `Failed`, as from each call here.
    fn card(&mut self) -> Io<Card>;
    /// ENUM_FMT: the format of this index; `None` after the last.
    fn format_at(&mut self, kind: Kind, index: u32) -> Io<Option<u32>>;
    /// ENUM_FRAMESIZES.
    fn size_at(&mut self, fourcc: u32, index: u32) -> Io<Option<Sizes>>;
    /// ENUM_FRAMEINTERVALS.
    fn interval_at(&mut self, fourcc: u32, size: (u32, u32), index: u32) -> Io<Option<Intervals>>;
    /// G_FMT.
    fn format(&mut self, kind: Kind) -> Io<Format>;
    /// S_FMT: what the driver makes of what is wanted.
    fn set_format(&mut self, wanted: &Format) -> Io<Format>;
    /// G_PARM: the time between frames; `None` when the driver does not say.
    fn interval(&mut self, kind: Kind) -> Io<Option<(u32, u32)>>;
    /// S_PARM.
    fn set_interval(&mut self, kind: Kind, interval: (u32, u32)) -> Io<()>;
    /// QUERYCTRL: the control after `id`; `None` after the last.
    fn control_after(&mut self, id: u32) -> Io<Option<ControlInfo>>;
    /// G_CTRL.
    fn control(&mut self, id: u32) -> Io<i32>;
    /// S_CTRL.
    fn set_control(&mut self, id: u32, value: i32) -> Io<()>;
    /// G_INPUT and ENUMINPUT: false when the driver says that its input has no signal.
    fn has_signal(&mut self) -> Io<bool>;
    /// REQBUFS, QUERYBUF, `mmap`: buffers that there are now. 0 gives all of them back.
    fn buffers(&mut self, format: &Format, count: u32) -> Io<u32>;
    /// QBUF.
    fn queue(&mut self, index: u32) -> Io<()>;
    /// `poll`: true when a frame, or an error, can be fetched.
    fn wait(&mut self, most: Duration) -> Io<bool>;
    /// DQBUF.
    fn dequeue(&mut self) -> Io<Slot>;
    /// A plane of a buffer.
    fn plane(&self, index: u32, plane: usize) -> &[u8];
    /// STREAMON, STREAMOFF.
    fn stream(&mut self, kind: Kind, on: bool) -> Io<()>;
}
