//! Reads protobuf messages without copying them, and writes fields. No length reaches beyond its
//! message.

/// A reader's answer; the error says what is wrong with the bytes.
pub type Found<T> = std::result::Result<T, String>;

/// A field: its number and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<'a> {
    Number(u32, u64),
    Bytes(u32, &'a [u8]),
    /// Fixed 32 or 64 bit, little endian.
    Fixed(u32, &'a [u8]),
}

/// What is left of one message, field by field in order.
#[derive(Debug, Clone)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number of variable length.
    ///
    /// # Errors
    /// When it is cut off or too long.
    pub fn varint(&mut self) -> Found<u64> {
        let mut value = 0_u64;
        for (i, &byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.0 = &self.0[i + 1..];
                return Ok(value);
            }
        }
        Err("a number is cut off".into())
    }

    fn take(&mut self, length: u64) -> Found<&'a [u8]> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (head, tail) =
            self.0.split_at_checked(length).ok_or("a part reaches beyond the file's end")?;
        self.0 = tail;
        Ok(head)
    }

    /// The next field; `None` at the message's end.
    ///
    /// # Errors
    /// When the field is cut off or of a type that is not known.
    #[allow(clippy::should_implement_trait)] // It can fail.
    pub fn next(&mut self) -> Found<Option<Field<'a>>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| "a field number is too large")?;
        Ok(Some(match tag & 7 {
            0 => Field::Number(number, self.varint()?),
            1 => Field::Fixed(number, self.take(8)?),
            2 => {
                let length = self.varint()?;
                Field::Bytes(number, self.take(length)?)
            }
            5 => Field::Fixed(number, self.take(4)?),
            kind => return Err(format!("field {number} has the unknown wire type {kind}")),
        }))
    }
}

/// A name.
///
/// # Errors
/// When it is not UTF-8.
pub fn text(bytes: &[u8]) -> Found<&str> {
    std::str::from_utf8(bytes).map_err(|_| "a name is not UTF-8".into())
}

/// Writes a number of variable length.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a field that is a number.
pub fn put_number(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, value);
}

/// Writes a field of bytes: a text, a message, a list that is packed.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut message = Vec::new();
        put_number(&mut message, 3, u64::MAX);
        put_bytes(&mut message, 300, &[7; 200]);
        put_number(&mut message, 1, 127);
        let mut fields = Fields(&message);
        assert_eq!(fields.next(), Ok(Some(Field::Number(3, u64::MAX))));
        assert_eq!(fields.next(), Ok(Some(Field::Bytes(300, &[7; 200]))));
        assert_eq!(fields.next(), Ok(Some(Field::Number(1, 127))));
        assert_eq!(fields.next(), Ok(None));
    }

    #[test]
    fn fields_come_in_order_and_nothing_reaches_beyond_the_end() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4];
        let mut fields = Fields(&message);
        assert_eq!(fields.next(), Ok(Some(Field::Number(1, 150))));
        assert_eq!(fields.next(), Ok(Some(Field::Bytes(2, b"hi"))));
        assert_eq!(fields.next(), Ok(Some(Field::Fixed(3, &[1, 2, 3, 4]))));
        assert_eq!(fields.next(), Ok(None));
        for length in [1, 2, 4, 5, 6, 8, 11] {
            let mut fields = Fields(&message[..length]);
            let end = std::iter::from_fn(|| fields.next().transpose()).find(Result::is_err);
            assert!(end.is_some(), "{length} bytes");
        }
        assert!(Fields(&[0xff; 11]).varint().is_err());
    }
}
