//! The smallest parts of packets: numbers, texts, bytes.

use super::packet::Bad;

/// Reads from the front of bytes that may be anything.
pub(super) struct Reader<'a>(&'a [u8]);

const SHORT: Bad = Bad::Malformed("it ends too early");

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(front)
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        self.take(N)?.try_into().map_err(|_| SHORT)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Bad> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn short(&mut self) -> Result<u16, Bad> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<u32, Bad> {
        self.array().map(u32::from_be_bytes)
    }

    /// A number of one to four bytes.
    pub(super) fn number(&mut self) -> Result<u32, Bad> {
        let mut value = 0;
        for n in 0..4 {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f) << (7 * n);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Bad::Malformed("a number of more than four bytes"))
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8], Bad> {
        let length = self.short()?;
        self.take(usize::from(length))
    }

    pub(super) fn text(&mut self) -> Result<String, Bad> {
        let bytes = self.binary()?.to_vec();
        String::from_utf8(bytes).map_err(|_| Bad::Malformed("a text that is not UTF-8"))
    }
}

/// Writes a number of one to four bytes.
pub(super) fn put_number(to: &mut Vec<u8>, mut value: u32) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            to.push(low);
            return;
        }
        to.push(low | 0x80);
    }
}

/// Writes a text or bytes behind their length; what is longer than that can say is cut.
pub(super) fn put_text(to: &mut Vec<u8>, text: &[u8]) {
    let text = text.get(..usize::from(u16::MAX)).unwrap_or(text);
    to.extend((text.len() as u16).to_be_bytes());
    to.extend(text);
}
