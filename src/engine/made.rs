//! Writes small ONNX files, so that tests and the suite need no file from elsewhere.
//!
//! ```
//! use mien_engine::made::{Attribute, Model};
//!
//! let bytes = Model::new()
//!     .input("x", &[1, 3, 0, 0])
//!     .weight("w", &[4, 3, 1, 1], &[0.1; 12])
//!     .node("Conv", &["x", "w"], &["y"], &[
//!         Attribute::Ints("kernel_shape", &[1, 1]),
//!         Attribute::Ints("strides", &[1, 1]),
//!         Attribute::Ints("dilations", &[1, 1]),
//!         Attribute::Ints("pads", &[0, 0, 0, 0]),
//!     ])
//!     .output("y", &[1, 4, 0, 0])
//!     .bytes();
//! assert!(!bytes.is_empty());
//! ```

use mien_nn::protobuf::{put_bytes as bytes, put_number as number, put_varint as varint};

/// An attribute of a node.
#[derive(Debug, Clone, Copy)]
pub enum Attribute<'a> {
    Int(&'a str, i64),
    Ints(&'a str, &'a [i64]),
    Float(&'a str, f32),
    Text(&'a str, &'a str),
}

/// A model in the making. Dimensions of 0 are free.
#[derive(Debug, Clone, Default)]
pub struct Model {
    graph: Vec<u8>,
}

fn tensor(name: &str, shape: &[usize], element: u64, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    shape.iter().for_each(|&d| number(&mut out, 1, d as u64));
    number(&mut out, 2, element);
    bytes(&mut out, 8, name.as_bytes());
    bytes(&mut out, 9, raw);
    out
}

fn port(name: &str, shape: &[usize]) -> Vec<u8> {
    let (mut dims, mut kind) = (Vec::new(), Vec::new());
    for (axis, &d) in shape.iter().enumerate() {
        let mut dim = Vec::new();
        if d == 0 {
            bytes(&mut dim, 2, format!("d{axis}").as_bytes());
        } else {
            number(&mut dim, 1, d as u64);
        }
        bytes(&mut dims, 1, &dim);
    }
    number(&mut kind, 1, 1);
    bytes(&mut kind, 2, &dims);
    let (mut value, mut out) = (Vec::new(), Vec::new());
    bytes(&mut value, 1, &kind);
    bytes(&mut out, 1, name.as_bytes());
    bytes(&mut out, 2, &value);
    out
}

fn attribute(attribute: &Attribute<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let (Attribute::Int(name, _)
    | Attribute::Ints(name, _)
    | Attribute::Float(name, _)
    | Attribute::Text(name, _)) = attribute;
    bytes(&mut out, 1, name.as_bytes());
    let kind = match attribute {
        Attribute::Float(_, value) => {
            varint(&mut out, 2 << 3 | 5);
            out.extend_from_slice(&value.to_le_bytes());
            1
        }
        Attribute::Int(_, value) => {
            number(&mut out, 3, value.cast_unsigned());
            2
        }
        Attribute::Text(_, value) => {
            bytes(&mut out, 4, value.as_bytes());
            3
        }
        Attribute::Ints(_, values) => {
            values.iter().for_each(|v| number(&mut out, 8, v.cast_unsigned()));
            7
        }
    };
    number(&mut out, 20, kind);
    out
}

impl Model {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A float input.
    #[must_use]
    pub fn input(mut self, name: &str, shape: &[usize]) -> Self {
        bytes(&mut self.graph, 11, &port(name, shape));
        self
    }

    /// A float output.
    #[must_use]
    pub fn output(mut self, name: &str, shape: &[usize]) -> Self {
        bytes(&mut self.graph, 12, &port(name, shape));
        self
    }

    /// A float constant.
    #[must_use]
    pub fn weight(mut self, name: &str, shape: &[usize], values: &[f32]) -> Self {
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes(&mut self.graph, 5, &tensor(name, shape, 1, &raw));
        self
    }

    /// A half-precision constant, from its bits.
    #[must_use]
    pub fn half(mut self, name: &str, shape: &[usize], bits: &[u16]) -> Self {
        let raw: Vec<u8> = bits.iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes(&mut self.graph, 5, &tensor(name, shape, 10, &raw));
        self
    }

    /// A constant of bytes, read as signed or not: codes of a scale.
    #[must_use]
    pub fn codes(mut self, name: &str, shape: &[usize], signed: bool, raw: &[u8]) -> Self {
        bytes(&mut self.graph, 5, &tensor(name, shape, if signed { 3 } else { 2 }, raw));
        self
    }

    /// A constant of 64-bit integers (shapes, axes).
    #[must_use]
    pub fn integers(mut self, name: &str, values: &[i64]) -> Self {
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes(&mut self.graph, 5, &tensor(name, &[values.len()], 7, &raw));
        self
    }

    /// A node.
    #[must_use]
    pub fn node(
        mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[Attribute<'_>],
    ) -> Self {
        let mut out = Vec::new();
        inputs.iter().for_each(|name| bytes(&mut out, 1, name.as_bytes()));
        outputs.iter().for_each(|name| bytes(&mut out, 2, name.as_bytes()));
        bytes(&mut out, 4, operator.as_bytes());
        attributes.iter().for_each(|a| bytes(&mut out, 5, &attribute(a)));
        bytes(&mut self.graph, 1, &out);
        self
    }

    /// The file (opset 17).
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let (mut out, mut opset) = (Vec::new(), Vec::new());
        number(&mut out, 1, 8);
        bytes(&mut opset, 1, b"");
        number(&mut opset, 2, 17);
        bytes(&mut out, 8, &opset);
        bytes(&mut out, 7, &self.graph);
        out
    }

    /// A model that gives the same answers whatever it sees: for a detector or an embedder whose
    /// answer the test chooses. Inputs `(name, shape)`, outputs `(name, shape, values)`.
    #[must_use]
    pub fn answering(inputs: &[(&str, &[usize])], outputs: &[(&str, &[usize], &[f32])]) -> Self {
        let mut model = Self::new().weight("made.zero", &[], &[0.0]);
        let mut sum = String::from("made.zero");
        for (name, shape) in inputs {
            let (flat, next) = (format!("made.{name}.max"), format!("made.{name}.sum"));
            model = model
                .input(name, shape)
                .node("ReduceMax", &[name], &[&flat], &[Attribute::Int("keepdims", 0)])
                .node("Mul", &[&flat, "made.zero"], &[&next], &[]);
            let joined = format!("made.{name}.joined");
            model = model.node("Add", &[&sum, &next], &[&joined], &[]);
            sum = joined;
        }
        for (name, shape, values) in outputs {
            let constant = format!("made.{name}.values");
            model = model
                .weight(&constant, shape, values)
                .node("Add", &[&constant, &sum], &[name], &[])
                .output(name, shape);
        }
        model
    }

    /// Gives its input back.
    #[must_use]
    pub fn identity(shape: &[usize]) -> Self {
        Self::new().input("x", shape).node("Identity", &["x"], &["y"], &[]).output("y", shape)
    }

    /// 0 / 0 for every value.
    #[must_use]
    pub fn not_a_number(shape: &[usize]) -> Self {
        Self::new()
            .input("x", shape)
            .node("Sub", &["x", "x"], &["zero"], &[])
            .node("Div", &["zero", "zero"], &["y"], &[])
            .output("y", shape)
    }

    /// A 3x3 convolution with padding 1 and bias, then ReLU: `x` [n, channels, h, w] to `y`.
    #[must_use]
    pub fn convolution(from: usize, to: usize, weights: &[f32], bias: &[f32]) -> Self {
        let around = [
            Attribute::Ints("kernel_shape", &[3, 3]),
            Attribute::Ints("strides", &[1, 1]),
            Attribute::Ints("dilations", &[1, 1]),
            Attribute::Ints("pads", &[1, 1, 1, 1]),
        ];
        Self::new()
            .input("x", &[0, from, 0, 0])
            .weight("w", &[to, from, 3, 3], weights)
            .weight("b", &[to], bias)
            .node("Conv", &["x", "w", "b"], &["sum"], &around)
            .node("Relu", &["sum"], &["y"], &[])
            .output("y", &[0, to, 0, 0])
    }
}
