//! V4L2 as the kernel lays it out on 64-bit machines: structures, numbers of calls, flags.

use rustix::ioctl::{Opcode, opcode};

/// Cuts what a driver says at its first NUL.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Capability {
    pub(super) driver: [u8; 16],
    pub(super) card: [u8; 32],
    pub(super) bus: [u8; 32],
    pub(super) version: u32,
    pub(super) all: u32,
    pub(super) node: u32,
    pub(super) reserved: [u32; 3],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FormatDescription {
    pub(super) index: u32,
    pub(super) kind: u32,
    pub(super) flags: u32,
    pub(super) description: [u8; 32],
    pub(super) fourcc: u32,
    pub(super) bus_code: u32,
    pub(super) reserved: [u32; 3],
}

/// `v4l2_frmsizeenum`: `values` are width and height, or least, most and step of both.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FrameSize {
    pub(super) index: u32,
    pub(super) fourcc: u32,
    pub(super) kind: u32,
    pub(super) values: [u32; 6],
    pub(super) reserved: [u32; 2],
}

/// `v4l2_frmivalenum`: `values` are one fraction of a second, or least, most and step.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FrameInterval {
    pub(super) index: u32,
    pub(super) fourcc: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) kind: u32,
    pub(super) values: [u32; 6],
    pub(super) reserved: [u32; 2],
}

/// A union of 200 bytes, which the kernel aligns to 8 because one of its members holds pointers.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct FormatBody(pub(super) [u32; 50]);

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Format {
    pub(super) kind: u32,
    pub(super) body: FormatBody,
}

impl Default for Format {
    fn default() -> Self {
        Self { kind: 0, body: FormatBody([0; 50]) }
    }
}

/// Places in `FormatBody` of a single-planar format (`v4l2_pix_format`), in words.
pub(super) mod pix {
    pub(crate) const WIDTH: usize = 0;
    pub(crate) const HEIGHT: usize = 1;
    pub(crate) const FOURCC: usize = 2;
    pub(crate) const FIELD: usize = 3;
    pub(crate) const STRIDE: usize = 4;
    pub(crate) const BYTES: usize = 5;
    pub(crate) const COLOUR_SPACE: usize = 6;
    pub(crate) const ENCODING: usize = 9;
    pub(crate) const QUANTISATION: usize = 10;
}

/// Places in `FormatBody` of a multi-planar format (`v4l2_pix_format_mplane`), in words: each
/// plane has its bytes and its stride first, and takes `EACH` words; `COUNT` holds four bytes:
/// planes, flags, encoding, quantisation.
pub(super) mod planes {
    pub(crate) const COLOUR_SPACE: usize = 4;
    pub(crate) const FIRST: usize = 5;
    pub(crate) const EACH: usize = 5;
    pub(crate) const COUNT: usize = FIRST + 8 * EACH;
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestBuffers {
    pub(super) count: u32,
    pub(super) kind: u32,
    pub(super) memory: u32,
    pub(super) capabilities: u32,
    pub(super) flags: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Time {
    pub(super) seconds: i64,
    pub(super) micros: i64,
}

/// `v4l2_buffer`. `place` is an offset for `mmap`, or the address of its planes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffer {
    pub(super) index: u32,
    pub(super) kind: u32,
    pub(super) used: u32,
    pub(super) flags: u32,
    pub(super) field: u32,
    pub(super) time: Time,
    pub(super) code: [u32; 4],
    pub(super) sequence: u32,
    pub(super) memory: u32,
    pub(super) place: u64,
    pub(super) length: u32,
    pub(super) reserved: [u32; 2],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plane {
    pub(super) used: u32,
    pub(super) length: u32,
    pub(super) place: u64,
    pub(super) offset: u32,
    pub(super) reserved: [u32; 11],
}

/// `v4l2_streamparm`: of capture and output, the fraction of a second stands in words 2 and 3.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Parameters {
    pub(super) kind: u32,
    pub(super) body: [u32; 50],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Control {
    pub(super) id: u32,
    pub(super) value: i32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueryControl {
    pub(super) id: u32,
    pub(super) kind: u32,
    pub(super) name: [u8; 32],
    pub(super) least: i32,
    pub(super) most: i32,
    pub(super) step: i32,
    pub(super) default: i32,
    pub(super) flags: u32,
    pub(super) reserved: [u32; 2],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Input {
    pub(super) index: u32,
    pub(super) name: [u8; 32],
    pub(super) kind: u32,
    pub(super) sound: u32,
    pub(super) tuner: u32,
    pub(super) standards: u64,
    pub(super) status: u32,
    pub(super) capabilities: u32,
    pub(super) reserved: [u32; 3],
}

const _: () = {
    assert!(size_of::<Capability>() == 104);
    assert!(size_of::<FormatDescription>() == 64);
    assert!(size_of::<FrameSize>() == 44);
    assert!(size_of::<FrameInterval>() == 52);
    assert!(size_of::<Format>() == 208 && align_of::<Format>() == 8);
    assert!(size_of::<RequestBuffers>() == 20);
    assert!(size_of::<Buffer>() == 88);
    assert!(size_of::<Plane>() == 64);
    assert!(size_of::<Parameters>() == 204);
    assert!(size_of::<Control>() == 8);
    assert!(size_of::<QueryControl>() == 68);
    assert!(size_of::<Input>() == 80);
    assert!(planes::COUNT == 45);
};

const V: u8 = b'V';
pub(super) const QUERYCAP: Opcode = opcode::read::<Capability>(V, 0);
pub(super) const ENUM_FMT: Opcode = opcode::read_write::<FormatDescription>(V, 2);
pub(super) const G_FMT: Opcode = opcode::read_write::<Format>(V, 4);
pub(super) const S_FMT: Opcode = opcode::read_write::<Format>(V, 5);
pub(super) const REQBUFS: Opcode = opcode::read_write::<RequestBuffers>(V, 8);
pub(super) const QUERYBUF: Opcode = opcode::read_write::<Buffer>(V, 9);
pub(super) const QBUF: Opcode = opcode::read_write::<Buffer>(V, 15);
pub(super) const DQBUF: Opcode = opcode::read_write::<Buffer>(V, 17);
pub(super) const STREAMON: Opcode = opcode::write::<i32>(V, 18);
pub(super) const STREAMOFF: Opcode = opcode::write::<i32>(V, 19);
pub(super) const G_PARM: Opcode = opcode::read_write::<Parameters>(V, 21);
pub(super) const S_PARM: Opcode = opcode::read_write::<Parameters>(V, 22);
pub(super) const ENUMINPUT: Opcode = opcode::read_write::<Input>(V, 26);
pub(super) const G_CTRL: Opcode = opcode::read_write::<Control>(V, 27);
pub(super) const S_CTRL: Opcode = opcode::read_write::<Control>(V, 28);
pub(super) const QUERYCTRL: Opcode = opcode::read_write::<QueryControl>(V, 36);
pub(super) const G_INPUT: Opcode = opcode::read::<i32>(V, 38);
pub(super) const ENUM_FRAMESIZES: Opcode = opcode::read_write::<FrameSize>(V, 74);
pub(super) const ENUM_FRAMEINTERVALS: Opcode = opcode::read_write::<FrameInterval>(V, 75);

/// Capabilities of a node.
pub(super) const CAPTURE: u32 = 0x1;
pub(super) const OUTPUT: u32 = 0x2;
pub(super) const CAPTURE_PLANES: u32 = 0x1000;
pub(super) const READ_WRITE: u32 = 0x0100_0000;
pub(super) const STREAMING: u32 = 0x0400_0000;
/// `all` is of the whole device, `node` of this node.
pub(super) const OF_NODE: u32 = 0x8000_0000;

/// Kinds of buffers.
pub(super) const KIND_CAPTURE: u32 = 1;
pub(super) const KIND_OUTPUT: u32 = 2;
pub(super) const KIND_CAPTURE_PLANES: u32 = 9;
pub(super) const KIND_OUTPUT_PLANES: u32 = 10;

pub(super) const MEMORY_MMAP: u32 = 1;
pub(super) const FIELD_NONE: u32 = 1;

/// The next control after the one that is named.
pub(super) const NEXT_CONTROL: u32 = 0x8000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_numbers_of_the_kernel() {
        // As `strace -X verbose` and the kernel's headers give them for x86-64 and arm64.
        for (ours, theirs) in [
            (QUERYCAP, 0x8068_5600_u32),
            (ENUM_FMT, 0xc040_5602),
            (G_FMT, 0xc0d0_5604),
            (S_FMT, 0xc0d0_5605),
            (REQBUFS, 0xc014_5608),
            (QUERYBUF, 0xc058_5609),
            (QBUF, 0xc058_560f),
            (DQBUF, 0xc058_5611),
            (STREAMON, 0x4004_5612),
            (STREAMOFF, 0x4004_5613),
            (G_PARM, 0xc0cc_5615),
            (S_PARM, 0xc0cc_5616),
            (ENUMINPUT, 0xc050_561a),
            (G_CTRL, 0xc008_561b),
            (S_CTRL, 0xc008_561c),
            (QUERYCTRL, 0xc044_5624),
            (G_INPUT, 0x8004_5626),
            (ENUM_FRAMESIZES, 0xc02c_564a),
            (ENUM_FRAMEINTERVALS, 0xc034_564b),
        ] {
            assert_eq!(ours, theirs, "{ours:#x} {theirs:#x}");
        }
    }
}
