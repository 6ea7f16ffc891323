//! Bytes as text: hex, and base64 in its one canonical form.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Lowercase hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Exactly `N` bytes out of lowercase hex digits.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(*pair.first()?)? << 4 | digit(*pair.last()?)?;
    }
    Some(bytes)
}

/// Base64 with padding (RFC 4648, section 4).
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let at = |i: usize| u32::from(part.get(i).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = (group >> (18 - 6 * i) & 63) as usize;
            let known = if i <= part.len() { ALPHABET.get(digit) } else { None };
            text.push(known.map_or('=', |byte| char::from(*byte)));
        }
    }
    text
}

/// Bytes of base64; `None` for anything but the one text that [`base64`] gives.
#[must_use]
pub fn unbase64(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    for part in digits.chunks_exact(4) {
        let mut group = 0_u32;
        let mut held = 0;
        for byte in part.iter().take_while(|byte| **byte != b'=') {
            let digit = ALPHABET.iter().position(|known| known == byte)?;
            group = group << 6 | u32::try_from(digit).ok()?;
            held += 1;
        }
        let whole = group << (6 * (4 - held));
        let kept = match held {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        bytes.extend(whole.to_be_bytes().get(1..=kept)?);
    }
    // Spare bits, or padding before the end, give another text.
    (base64(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_texts_are_those_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(unbase64(text).unwrap(), bytes.as_bytes());
        }
    }

    #[test]
    fn a_second_text_for_the_same_bytes_is_refused() {
        for bad in ["Zh==", "Zg=", "Zg", "Z===", "====", "Zg==Zg==", "Zm9v\n", "Zm9-", "=m9v"] {
            assert_eq!(unbase64(bad), None, "{bad}");
        }
        assert_eq!(unhex::<1>("FF"), None);
        assert_eq!(unhex::<1>("f"), None);
        assert_eq!(unhex::<2>("00ff"), Some([0, 255]));
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(unbase64(&base64(&bytes)), Some(bytes));
        }
    }
}
