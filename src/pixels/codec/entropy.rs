//! Steps over the Huffman codes of a scan to prove that all of its pixels are there.
//!
//! The decoder fills what is missing with grey. For most scans a run of ones behind the data makes
//! it fail instead (no code is all ones); where the decoder must see the next marker at once, the
//! scan is stepped over here first: no coefficients, no transform.

/// A Huffman table for stepping.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// For the next nine bits: length of the code (0 when it is longer) and its symbol.
    short: Box<[(u8, u8); 512]>,
    /// For each length: first code that is too large, its bits at the top of 16.
    end: [u32; 17],
    /// For each length: index of its first symbol minus its first code.
    offset: [i32; 17],
    symbols: Vec<u8>,
}

impl Table {
    /// From the counts per length and the symbols; `None` when the codes don't fit.
    pub(crate) fn new(counts: &[u8; 16], symbols: &[u8]) -> Option<Self> {
        let mut table = Self {
            short: Box::new([(0, 0); 512]),
            end: [0; 17],
            offset: [0; 17],
            symbols: symbols.to_vec(),
        };
        let mut code = 0u32;
        let mut index = 0usize;
        for (length, &count) in (1u32..).zip(counts) {
            table.offset[length as usize] = index as i32 - code as i32;
            for _ in 0..count {
                if code >= 1 << length {
                    return None;
                }
                let symbol = *symbols.get(index)?;
                if length <= 9 {
                    let first = (code << (9 - length)) as usize;
                    let span = 1usize << (9 - length);
                    table.short[first..first + span].fill((length as u8, symbol));
                }
                code += 1;
                index += 1;
            }
            table.end[length as usize] = code << (16 - length);
            code <<= 1;
        }
        (index == symbols.len()).then_some(table)
    }
}

/// One block of an MCU: which tables it uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) dc: &'a Table,
    /// `None` in a scan of DC values only.
    pub(crate) ac: Option<&'a Table>,
}

/// Bits of coded data, without its stuffing.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    held: u64,
    count: u32,
}

impl Bits<'_> {
    /// Holds at least 32 bits where the data has them; stops at a restart marker.
    fn fill(&mut self) {
        while self.count <= 48 {
            match self.bytes.get(self.at..) {
                Some([0xff, 0, ..]) => {
                    self.push(0xff);
                    self.at += 2;
                }
                Some([byte, ..]) if *byte != 0xff => {
                    self.push(*byte);
                    self.at += 1;
                }
                _ => return,
            }
        }
    }

    fn push(&mut self, byte: u8) {
        self.held = self.held << 8 | u64::from(byte);
        self.count += 8;
    }

    fn skip(&mut self, bits: u32) -> Option<()> {
        if self.count < bits {
            self.fill();
        }
        self.count = self.count.checked_sub(bits)?;
        Some(())
    }

    fn symbol(&mut self, table: &Table) -> Option<u8> {
        if self.count < 16 {
            self.fill();
        }
        // Missing bits read as zero; `skip` notices when they were needed.
        let next = if self.count >= 16 {
            (self.held >> (self.count - 16)) as u32 & 0xffff
        } else {
            ((self.held << (16 - self.count)) as u32) & 0xffff
        };
        let (length, symbol) = table.short[(next >> 7) as usize];
        if length > 0 {
            self.skip(u32::from(length))?;
            return Some(symbol);
        }
        let length = (10..=16).find(|&l| next < table.end[l])?;
        let index = (next >> (16 - length)) as i32 + table.offset[length];
        self.skip(length as u32)?;
        table.symbols.get(usize::try_from(index).ok()?).copied()
    }

    /// Steps over a restart marker.
    fn restart(&mut self) -> Option<()> {
        (self.held, self.count) = (0, 0);
        loop {
            match self.bytes.get(self.at..)? {
                [0xff, 0xd0..=0xd7, ..] => {
                    self.at += 2;
                    return Some(());
                }
                [_, ..] => self.at += 1,
                [] => return None,
            }
        }
    }
}

/// True when the scan holds as many MCUs of these blocks as it must.
pub(crate) fn complete(scan: &[u8], mcus: u64, restart: u64, blocks: &[Block<'_>]) -> bool {
    let mut bits = Bits { bytes: scan, at: 0, held: 0, count: 0 };
    (0..mcus).all(|mcu| {
        if restart != 0 && mcu != 0 && mcu % restart == 0 && bits.restart().is_none() {
            return false;
        }
        blocks.iter().all(|block| step(&mut bits, block).is_some())
    })
}

fn step(bits: &mut Bits<'_>, block: &Block<'_>) -> Option<()> {
    let size = bits.symbol(block.dc)?;
    if size > 16 {
        return None;
    }
    bits.skip(u32::from(size))?;
    let Some(ac) = block.ac else { return Some(()) };
    let mut position = 1;
    while position < 64 {
        let symbol = bits.symbol(ac)?;
        let (run, size) = (symbol >> 4, symbol & 15);
        match (run, size) {
            (15, 0) => position += 16,
            (_, 0) => break,
            _ => {
                position += run + 1;
                bits.skip(u32::from(size))?;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes 0, 10, 110 for the sizes 0, 1, 2.
    fn sizes() -> Table {
        let mut counts = [0; 16];
        counts[..3].fill(1);
        Table::new(&counts, &[0, 1, 2]).unwrap()
    }

    #[test]
    fn a_scan_is_complete_only_with_all_its_codes() {
        let table = sizes();
        let blocks = [Block { dc: &table, ac: None }];
        // 0 | 10 1 | 110 11 | ones
        let scan = [0b0101_1101, 0b1111_1111, 0];
        assert!(complete(&scan, 3, 0, &blocks));
        assert!(!complete(&scan, 4, 0, &blocks), "ones are no code");
        assert!(!complete(&scan[..1], 3, 0, &blocks));
        assert!(!complete(&[], 1, 0, &blocks));
    }

    #[test]
    fn ac_codes_end_a_block_and_restarts_are_found() {
        let table = sizes();
        let blocks = [Block { dc: &table, ac: Some(&table) }];
        // DC 0, AC end of block, twice in each interval.
        let scan = [0b0000_1111, 0xff, 0xd0, 0b0000_1111];
        assert!(complete(&scan, 4, 2, &blocks));
        assert!(!complete(&scan, 6, 2, &blocks));
        assert!(!complete(&[0b0000_1111, 0b0000_1111], 4, 2, &blocks));
    }

    #[test]
    fn long_codes_step_as_short_ones() {
        // One code of 1 bit, then a chain down to 12 bits.
        let counts = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let table = Table::new(&counts, &[0, 3]).unwrap();
        let blocks = [Block { dc: &table, ac: None }];
        // 1000_0000_0000 then three bits, then 0.
        assert!(complete(&[0x80, 0b0000_1110], 2, 0, &blocks));
        assert!(!complete(&[0x80], 1, 0, &blocks));
    }

    #[test]
    fn impossible_tables_are_refused() {
        assert!(
            Table::new(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 2, 3]).is_none()
        );
        assert!(Table::new(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).is_none());
        assert!(Table::new(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 2]).is_none());
    }
}
