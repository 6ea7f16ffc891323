//! Dense float tensors on the host.

use mien_base::limits::TENSOR_VALUES;

/// Shape and row-major values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Vec<f32>,
}

/// How many values a shape holds; `None` beyond `limits::TENSOR_VALUES`.
#[must_use]
pub fn values(shape: &[usize]) -> Option<usize> {
    let mut product = 1_usize;
    for &dim in shape {
        product = product.checked_mul(dim)?;
    }
    (product <= TENSOR_VALUES).then_some(product)
}

/// True when no value is a NaN or an infinity. Branch-free blocks, so that it vectorises.
#[must_use]
pub fn all_finite(data: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    data.chunks(256).all(|block| {
        block.iter().fold(0, |worst: u32, v| worst.max(v.to_bits() & EXPONENT)) != EXPONENT
    })
}

impl Tensor {
    /// A tensor from its values; `None` when their number does not fit the shape.
    #[must_use]
    pub fn new(shape: &[usize], data: Vec<f32>) -> Option<Self> {
        (values(shape)? == data.len()).then(|| Self { shape: shape.to_vec(), data })
    }

    /// A tensor of one value throughout.
    ///
    /// # Panics
    /// When the shape is beyond `limits::TENSOR_VALUES`.
    #[must_use]
    pub fn filled(shape: &[usize], value: f32) -> Self {
        let length = values(shape).expect("a shape within limits");
        Self { shape: shape.to_vec(), data: vec![value; length] }
    }

    /// True when the number of values is what the shape says.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        values(&self.shape) == Some(self.data.len())
    }

    /// Sets the shape and resizes the values, keeping the allocation.
    pub fn reshape_for(&mut self, shape: &[usize]) {
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        self.data.resize(shape.iter().product(), 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_value_at_any_place_is_found() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for length in [1, 7, 255, 256, 257, 1000] {
                let good: Vec<f32> = (0..length).map(|i| (i as f32 - 100.0) * 3.0e35).collect();
                assert!(all_finite(&good), "{length}");
                for at in 0..length {
                    let mut data = good.clone();
                    data[at] = bad;
                    assert!(!all_finite(&data), "{bad} at {at} of {length}");
                }
            }
        }
        assert!(all_finite(&[]) && all_finite(&[f32::MAX, f32::MIN, f32::MIN_POSITIVE]));
    }

    #[test]
    fn a_shape_that_overflows_is_refused() {
        assert_eq!(values(&[usize::MAX, 2]), None);
        assert_eq!(values(&[1 << 33, 1 << 33]), None);
        assert_eq!(values(&[2, 3]), Some(6));
        assert!(Tensor::new(&[2, 3], vec![0.0; 5]).is_none());
    }
}
