//! The frame of a JPEG file: size, components, colours; checked, and written again in clean form.

use crate::codec::bounds::Bounds;
use crate::errors::{Error, Result};
use crate::geometry::Size;

pub(crate) const JPEG: &str = "JPEG";

/// How the components of a file are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Grey,
    YCbCr,
    Rgb,
    /// As Adobe writes it: inverted.
    AdobeCmyk,
    Cmyk,
    Ycck,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Component {
    pub(crate) id: u8,
    /// Sampling factors.
    pub(crate) across: u8,
    pub(crate) down: u8,
    table: u8,
}

#[derive(Debug)]
pub(crate) struct Frame {
    marker: u8,
    pub(crate) size: Size,
    pub(crate) components: Vec<Component>,
}

pub(crate) fn bad(detail: &str) -> Error {
    Error::Malformed { format: JPEG, detail: detail.to_owned() }
}

pub(crate) const fn early(what: &'static str) -> Error {
    Error::Truncated { format: JPEG, what }
}

/// Why a frame of another coding is refused.
pub(crate) fn unread(marker: u8) -> Error {
    let what = match marker {
        0xc3 | 0xc7 | 0xcb | 0xcf => "Lossless JPEG",
        0xc5 | 0xc6 | 0xcd | 0xce => "Hierarchical JPEG",
        _ => "JPEG with arithmetic coding",
    };
    Error::Foreign { what, advice: ADVICE }
}

const ADVICE: &str = "convert it first, as with `magick IN OUT.png`";

pub(crate) fn write_segment(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    let length = u16::try_from(body.len() + 2).expect("as long as it was in the file");
    out.extend_from_slice(&[0xff, marker]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
}

impl Frame {
    /// Reads SOF0 (baseline), SOF1 or SOF2 (progressive).
    pub(crate) fn read(marker: u8, body: &[u8], bounds: &Bounds) -> Result<Self> {
        let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else {
            return Err(bad("its frame is too short"));
        };
        if precision != 8 {
            return Err(Error::Foreign { what: "JPEG with 12 bits a sample", advice: ADVICE });
        }
        let side = |high, low| u32::from(u16::from_be_bytes([high, low]));
        let size = Size::new(side(w1, w0), side(h1, h0));
        bounds.check(JPEG, size)?;
        if !matches!(count, 1 | 3 | 4) {
            return Err(bad("it has neither one, three nor four components"));
        }
        if rest.len() != usize::from(count) * 3 {
            return Err(bad("its frame has a wrong length"));
        }
        let (parts, _) = rest.as_chunks::<3>();
        let component = |&[id, sampling, table]: &[u8; 3]| Component {
            id,
            across: sampling >> 4,
            down: sampling & 15,
            table,
        };
        let mut components: Vec<Component> = parts.iter().map(component).collect();
        let possible =
            |c: &Component| (1..=4).contains(&c.across) && (1..=4).contains(&c.down) && c.table < 4;
        if !components.iter().all(possible) {
            return Err(bad("its frame has impossible sampling factors or tables"));
        }
        let mut ids: Vec<u8> = components.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != components.len() {
            return Err(bad("two components have one name"));
        }
        if let [only] = components.as_mut_slice() {
            // A single component is never interleaved, so its factors mean nothing.
            (only.across, only.down) = (1, 1);
        }
        let frame = Self { marker, size, components };
        // The decoder takes the first component for the finest, and would give a wrong picture.
        let (across, down) = frame.most();
        let first = frame.components[0];
        if (u32::from(first.across), u32::from(first.down)) != (across, down)
            || across == 3
            || !frame.components.iter().all(|c| {
                across.is_multiple_of(u32::from(c.across)) && down.is_multiple_of(u32::from(c.down))
            })
        {
            return Err(Error::Foreign { what: "JPEG with unusual sampling", advice: ADVICE });
        }
        Ok(frame)
    }

    pub(crate) fn progressive(&self) -> bool {
        self.marker == 0xc2
    }

    /// Colours as libjpeg takes them: JFIF says YCbCr, else Adobe's transform counts, else names.
    pub(crate) fn colour(&self, jfif: bool, adobe: Option<u8>) -> Colour {
        let named_rgb = self.components.iter().map(|c| c.id).eq(*b"RGB");
        match (self.components.len(), adobe) {
            (1, _) => Colour::Grey,
            (3, _) if jfif => Colour::YCbCr,
            (3, Some(0)) => Colour::Rgb,
            (3, None) if named_rgb => Colour::Rgb,
            (3, _) => Colour::YCbCr,
            (_, Some(0)) => Colour::AdobeCmyk,
            (_, Some(_)) => Colour::Ycck,
            (_, None) => Colour::Cmyk,
        }
    }

    /// The name of a component in the clean file: what makes the decoder take the right colours.
    pub(crate) fn name(&self, index: usize, colour: Colour) -> u8 {
        match colour {
            Colour::Rgb => b"RGB"[index],
            _ => u8::try_from(index + 1).expect("at most four components"),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>, colour: Colour) {
        if colour == Colour::Ycck {
            write_segment(out, 0xee, b"Adobe\0\x64\0\0\0\0\x02");
        }
        let side = |v: u32| u16::try_from(v).expect("read from 16 bits").to_be_bytes();
        let mut body = vec![8];
        body.extend_from_slice(&side(self.size.height));
        body.extend_from_slice(&side(self.size.width));
        body.push(u8::try_from(self.components.len()).expect("at most four components"));
        for (index, c) in self.components.iter().enumerate() {
            body.extend_from_slice(&[self.name(index, colour), c.across << 4 | c.down, c.table]);
        }
        write_segment(out, self.marker, &body);
    }

    /// Blocks of one component when it is scanned alone.
    pub(crate) fn blocks(&self, index: usize) -> u64 {
        let (across, down) = self.most();
        let c = self.components[index];
        let along = |side: u32, factor: u8, most: u32| {
            u64::from((side * u32::from(factor)).div_ceil(8 * most))
        };
        along(self.size.width, c.across, across) * along(self.size.height, c.down, down)
    }

    /// MCUs of a scan of several components.
    pub(crate) fn mcus(&self) -> u64 {
        let (across, down) = self.most();
        u64::from(self.size.width.div_ceil(8 * across))
            * u64::from(self.size.height.div_ceil(8 * down))
    }

    fn most(&self) -> (u32, u32) {
        let most =
            |of: fn(&Component) -> u8| u32::from(self.components.iter().map(of).max().unwrap_or(1));
        (most(|c| c.across), most(|c| c.down))
    }
}
