//! One scan of a JPEG file: its header, its restart markers, and whether its data is all there.

use mien_base::limits;

use crate::codec::entropy::{self, Block, Table};
use crate::codec::frame::{Colour, Frame, bad, early};
use crate::errors::Result;

/// Ones behind the data of a scan, stuffed: no Huffman code is all ones, so a decoder that reads
/// on where data is missing fails instead of painting grey.
const ONES: &[u8] = &[0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0];

/// What was defined so far, as later scans use it.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    dc: [Option<Table>; 4],
    ac: [Option<Table>; 4],
    /// MCUs between two restart markers; 0 for none.
    restart: u64,
    bytes: usize,
}

impl Tables {
    /// Takes a DHT, DQT or DRI segment.
    pub(crate) fn take(&mut self, marker: u8, body: &[u8]) -> Result<()> {
        self.bytes += body.len() + 4;
        if self.bytes > limits::JPEG_TABLES {
            return Err(bad("it has too many tables"));
        }
        match marker {
            0xc4 => self.huffman(body).ok_or_else(|| bad("a Huffman table is impossible")),
            0xdd => {
                let interval = body.try_into().map_err(|_| bad("a restart interval is wrong"))?;
                self.restart = u64::from(u16::from_be_bytes(interval));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn huffman(&mut self, mut body: &[u8]) -> Option<()> {
        while let Some((&place, rest)) = body.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>()?;
            let total = counts.iter().map(|&n| usize::from(n)).sum();
            let (symbols, rest) = rest.split_at_checked(total)?;
            let slots = match place >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return None,
            };
            *slots.get_mut(usize::from(place & 15))? = Some(Table::new(counts, symbols)?);
            body = rest;
        }
        Some(())
    }
}

/// The header of a scan.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Index of each component in the frame, and its DC and AC tables.
    parts: Vec<(usize, usize, usize)>,
    /// First pass over the DC values (progressive).
    coarse: bool,
    /// The header with the names that the clean frame has.
    pub(crate) header: Vec<u8>,
}

impl Scan {
    pub(crate) fn read(body: &[u8], frame: &Frame, colour: Colour) -> Result<Self> {
        let wrong = || bad("a scan header is wrong");
        let count = usize::from(*body.first().ok_or_else(wrong)?);
        if !(1..=frame.components.len()).contains(&count) || body.len() != 4 + 2 * count {
            return Err(wrong());
        }
        let mut header = body.to_vec();
        let mut parts: Vec<(usize, usize, usize)> = Vec::with_capacity(count);
        for [id, tables] in header[1..=2 * count].as_chunks_mut::<2>().0 {
            let index = frame.components.iter().position(|c| c.id == *id).ok_or_else(wrong)?;
            let (dc, ac) = (usize::from(*tables >> 4), usize::from(*tables & 15));
            if parts.iter().any(|part| part.0 == index) || dc > 3 || ac > 3 {
                return Err(wrong());
            }
            parts.push((index, dc, ac));
            *id = frame.name(index, colour);
        }
        let coarse = body[1 + 2 * count] == 0 && body[3 + 2 * count] >> 4 == 0;
        Ok(Self { parts, coarse, header })
    }

    /// Bit per component whose pixels begin here: all of a sequential scan's, those of a
    /// progressive scan that is the first pass over the DC values.
    pub(crate) fn begins(&self, frame: &Frame) -> u8 {
        if frame.progressive() && !self.coarse {
            return 0;
        }
        self.parts.iter().fold(0, |bits, part| bits | 1 << part.0)
    }

    /// Copies the data to the clean file. Fails when a restart marker is missing, stands at the
    /// wrong place in the order, or pixels are missing.
    pub(crate) fn copy(
        &self,
        data: &[u8],
        out: &mut Vec<u8>,
        frame: &Frame,
        tables: &Tables,
        first: bool,
    ) -> Result<()> {
        // The decoder must find the marker behind these scans at once, without ones in between.
        let whole = self.parts.len() == frame.components.len();
        let stepped = if frame.progressive() { first } else { !whole };
        let mcus = match self.parts.as_slice() {
            [(index, ..)] => frame.blocks(*index),
            _ => frame.mcus(),
        };
        self.copy_intervals(data, out, mcus, tables.restart)?;
        if !stepped {
            out.extend_from_slice(ONES);
            return Ok(());
        }
        let blocks = self.blocks(frame, tables)?;
        if entropy::complete(data, mcus, tables.restart, &blocks) {
            Ok(())
        } else {
            Err(early("pixels are missing"))
        }
    }

    fn copy_intervals(&self, data: &[u8], out: &mut Vec<u8>, mcus: u64, every: u64) -> Result<()> {
        let wanted = if every == 0 { 0 } else { mcus.div_ceil(every) - 1 };
        let mut seen = 0;
        let mut rest = data;
        while let Some(at) = restart(rest) {
            if every == 0 || seen > wanted || rest[at + 1] != 0xd0 + (seen % 8) as u8 {
                return Err(bad("a restart marker stands where none belongs"));
            }
            out.extend_from_slice(&rest[..at]);
            // Some encoders write one more behind the last interval.
            if seen < wanted {
                out.extend_from_slice(ONES);
                out.extend_from_slice(&rest[at..at + 2]);
            }
            seen += 1;
            rest = &rest[at + 2..];
        }
        if seen < wanted {
            return Err(early("pixels are missing"));
        }
        out.extend_from_slice(rest);
        Ok(())
    }

    fn blocks<'a>(&self, frame: &Frame, tables: &'a Tables) -> Result<Vec<Block<'a>>> {
        let missing = || bad("a scan uses a Huffman table that is missing");
        let mut blocks = Vec::new();
        for &(index, dc, ac) in &self.parts {
            let dc = tables.dc[dc].as_ref().ok_or_else(missing)?;
            let ac = match frame.progressive() {
                true => None,
                false => Some(tables.ac[ac].as_ref().ok_or_else(missing)?),
            };
            let c = frame.components[index];
            let times = if self.parts.len() == 1 { 1 } else { c.across * c.down };
            blocks.extend(std::iter::repeat_n(Block { dc, ac }, usize::from(times)));
        }
        Ok(blocks)
    }
}

/// Where the next restart marker stands.
fn restart(data: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += data.get(at..)?.iter().position(|&b| b == 0xff)?;
        match data.get(at + 1)? {
            0xd0..=0xd7 => return Some(at),
            _ => at += 1,
        }
    }
}
