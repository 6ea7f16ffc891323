//! What an ONNX tensor says of itself, held against its bounds.

use mien_base::limits::TENSOR_VALUES;

use crate::protobuf::Found;

/// The number of values that `dims` claim.
///
/// # Errors
/// When it is more than `TENSOR_VALUES`.
pub fn claim(name: &str, dims: &[u64]) -> Found<u64> {
    dims.iter()
        .try_fold(1_u64, |product, &d| product.checked_mul(d))
        .filter(|&n| n <= TENSOR_VALUES as u64)
        .ok_or_else(|| format!("tensor `{name}` claims more than {TENSOR_VALUES} values"))
}

/// Bytes of a raw value of an ONNX element type.
///
/// # Errors
/// When the type is none that is read.
pub fn width(name: &str, kind: u64) -> Found<usize> {
    Ok(match kind {
        2 | 3 | 9 => 1,
        10 => 2,
        1 | 6 => 4,
        7 | 11 => 8,
        kind => return Err(format!("tensor `{name}` has the unsupported element type {kind}")),
    })
}

/// A half-precision number, from its bits. Without a branch, so that loops over it vectorise.
#[inline]
#[must_use]
pub fn single(half: u16) -> f32 {
    // With the exponent of a single the value is too small by 2^112, also where it is denormal.
    const LARGER: f32 = f32::from_bits(0x7780_0000);
    let size = u32::from(half & 0x7fff) << 13;
    let finite = (f32::from_bits(size) * LARGER).to_bits();
    let bits = if half & 0x7c00 == 0x7c00 { size | 0x7f80_0000 } else { finite };
    f32::from_bits(bits | u32::from(half & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::single;

    #[test]
    fn halves_are_what_their_bits_say() {
        let known = [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2.0_f32.powi(-24)),
            (0x7bff, 65504.0),
            (0x3555, 0.333_251_95),
            (0x0400, 2.0_f32.powi(-14)),
        ];
        for (bits, value) in known {
            assert_eq!(single(bits), value);
            assert_eq!(single(bits ^ 0x8000), -value);
        }
        assert_eq!(single(0x7c00), f32::INFINITY);
        assert!(single(0x7e00).is_nan());
    }
}
