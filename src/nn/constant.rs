//! Constants of a model, decoded when they are needed.

use std::borrow::Cow;

use crate::element::{self, single};
use crate::errors::{Error, Result};
use crate::protobuf::{Field, Fields, Found, text};

/// Most axes of a tensor.
pub(crate) const AXES: usize = 8;

/// A tensor that the file holds, or that was computed from such.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Constant<'a> {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Data<'a>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data<'a> {
    /// Little-endian values of an ONNX element type.
    Raw(u64, &'a [u8]),
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

impl<'a> Constant<'a> {
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The values of a tensor of floats.
    pub(crate) fn floats(&self) -> Option<Cow<'_, [f32]>> {
        let values = match &self.data {
            Data::Floats(values) => return Some(Cow::Borrowed(values)),
            Data::Integers(_) => return None,
            Data::Raw(1, raw) => {
                raw.chunks_exact(4).map(|b| f32::from_le_bytes(fixed(b))).collect()
            }
            Data::Raw(10, raw) => {
                raw.chunks_exact(2).map(|b| single(u16::from_le_bytes(fixed(b)))).collect()
            }
            Data::Raw(11, raw) => {
                raw.chunks_exact(8).map(|b| f64::from_le_bytes(fixed(b)) as f32).collect()
            }
            Data::Raw(..) => return None,
        };
        Some(Cow::Owned(values))
    }

    /// The values of a tensor of integers.
    pub(crate) fn integers(&self) -> Option<Vec<i64>> {
        Some(match &self.data {
            Data::Integers(values) => values.clone(),
            Data::Raw(7, raw) => {
                raw.chunks_exact(8).map(|b| i64::from_le_bytes(fixed(b))).collect()
            }
            Data::Raw(6, raw) => {
                raw.chunks_exact(4).map(|b| i32::from_le_bytes(fixed(b)).into()).collect()
            }
            Data::Raw(3, raw) => raw.iter().map(|&b| i64::from(b.cast_signed())).collect(),
            Data::Raw(2 | 9, raw) => raw.iter().map(|&b| b.into()).collect(),
            _ => return None,
        })
    }

    /// The same values as floats, of any type.
    pub(crate) fn as_floats(&self) -> Option<Vec<f32>> {
        if let Some(values) = self.floats() {
            return Some(values.into_owned());
        }
        match &self.data {
            Data::Raw(3, raw) => {
                return Some(raw.iter().map(|&b| b.cast_signed().into()).collect());
            }
            Data::Raw(2 | 9, raw) => return Some(raw.iter().map(|&b| b.into()).collect()),
            _ => {}
        }
        Some(self.integers()?.iter().map(|&v| v as f32).collect())
    }

    /// The value of a tensor of one float.
    pub(crate) fn scalar(&self) -> Option<f32> {
        (self.len() == 1).then(|| self.as_floats()?.first().copied()).flatten()
    }

    /// Reads a `TensorProto`; gives its name, too.
    pub(crate) fn read(message: &'a [u8]) -> Result<(&'a str, Self)> {
        read(message).map_err(Error::damaged)
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(bytes);
    out
}

fn read(message: &[u8]) -> Found<(&str, Constant<'_>)> {
    let (mut name, mut kind, mut raw) = ("", 0, None);
    let (mut dims, mut floats, mut integers) = (Vec::new(), Vec::new(), Vec::new());
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            Field::Number(1, d) => dims.push(d),
            Field::Bytes(1, packed) => {
                let mut packed = Fields(packed);
                while !packed.is_empty() && dims.len() <= AXES {
                    dims.push(packed.varint()?);
                }
            }
            Field::Number(2, element) => kind = element,
            Field::Bytes(4, packed) => floats.push(packed),
            Field::Fixed(4, one) => floats.push(one),
            Field::Bytes(5 | 7, packed) => {
                let mut packed = Fields(packed);
                while !packed.is_empty() {
                    integers.push(packed.varint()?.cast_signed());
                }
            }
            Field::Number(5 | 7, one) => integers.push(one.cast_signed()),
            Field::Bytes(8, n) => name = text(n)?,
            Field::Bytes(9, bytes) => raw = Some(bytes),
            Field::Bytes(13, _) | Field::Number(14, 1..) => {
                return Err("it keeps weights in another file".into());
            }
            _ => {}
        }
    }
    if dims.len() > AXES {
        return Err(format!("tensor `{name}` has more than {AXES} axes"));
    }
    let claim = element::claim(name, &dims)?;
    let width = element::width(name, kind)?;
    let (data, carried) = match (raw, kind) {
        (Some(raw), _) if raw.len() % width == 0 => (Data::Raw(kind, raw), raw.len() / width),
        (None, 1) => {
            let all: Vec<f32> = floats
                .iter()
                .flat_map(|p| p.chunks_exact(4))
                .map(|b| f32::from_le_bytes(fixed(b)))
                .collect();
            let carried = all.len();
            (Data::Floats(all), carried)
        }
        (None, 10) => {
            let halves = integers.iter().map(|&v| single(v as u16)).collect();
            (Data::Floats(halves), integers.len())
        }
        (None, 2 | 3 | 6 | 7 | 9) => {
            let carried = integers.len();
            (Data::Integers(integers), carried)
        }
        _ => return Err(format!("tensor `{name}` has no values that are known")),
    };
    if carried as u64 != claim {
        return Err(format!("tensor `{name}` claims {claim} values and carries {carried}"));
    }
    let shape = dims.iter().map(|&d| d as usize).collect();
    Ok((name, Constant { shape, data }))
}
