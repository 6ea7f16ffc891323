//! Reads an ONNX file without copying it: its ports, and whether its claims fit its bytes.
//!
//! rten parses and allocates by what a file says. This pass comes first and refuses what could
//! make that abort or run away: lengths beyond the file, tensors that claim more than they carry,
//! data in other files, nested graphs, and constant shapes beyond `limits::TENSOR_VALUES`.

use std::collections::BTreeMap;

use mien_base::limits::TENSOR_VALUES;
use mien_base::model::{Folded, PortFacts, Survey};
use mien_nn::element;
use mien_nn::protobuf::{Field, Fields, Found, text};

use crate::contract::Dim;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Most nodes, initialisers and ports of a model, together.
const PARTS: usize = 100_000;
/// Most axes of a tensor.
const AXES: usize = 16;
/// Largest window, stride, dilation or pad of an operator.
const WINDOW: u64 = 4096;

/// An input or output as the file declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) name: String,
    /// ONNX element type; 0 when the file does not say.
    pub(crate) element: u64,
    pub(crate) shape: Option<Vec<Dim>>,
}

impl Declared {
    /// True for the element types that are floats at the boundary (rten turns f16 and f64 into f32).
    pub(crate) const fn is_float(&self) -> bool {
        matches!(self.element, 0 | 1 | 10 | 11)
    }
}

/// What a file declares.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) operators: BTreeMap<String, u32>,
    pub(crate) inputs: Vec<Declared>,
    pub(crate) outputs: Vec<Declared>,
}

/// A tensor's claims, checked, and where its values are.
pub(crate) struct TensorFacts<'a> {
    pub(crate) name: &'a str,
    pub(crate) element: u64,
    pub(crate) shape: Vec<usize>,
    raw: Option<&'a [u8]>,
    floats: Vec<&'a [u8]>,
    varints: Vec<&'a [u8]>,
}

pub(crate) fn tensor(message: &[u8]) -> Found<TensorFacts<'_>> {
    let (mut name, mut kind, mut raw) = ("", 0, None);
    let (mut dims, mut floats, mut varints) = (Vec::new(), Vec::new(), Vec::new());
    let mut doubles = 0;
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            Field::Number(1, d) => dims.push(d),
            Field::Bytes(1, packed) => {
                let mut packed = Fields(packed);
                while !packed.0.is_empty() && dims.len() <= AXES {
                    dims.push(packed.varint()?);
                }
            }
            Field::Number(2, element) => kind = element,
            Field::Bytes(4, packed) => floats.push(packed),
            Field::Fixed(4, one) => floats.push(one),
            Field::Bytes(5 | 7, packed) => varints.push(packed),
            Field::Number(5 | 7, _) => return Err("a tensor's integers are not packed".into()),
            Field::Bytes(8, n) => name = text(n)?,
            Field::Bytes(9, bytes) => raw = Some(bytes),
            Field::Bytes(10, packed) => doubles += packed.len() / 8,
            Field::Bytes(13, _) | Field::Number(14, 1..) => {
                return Err("it keeps weights in another file: join them into one".into());
            }
            _ => {}
        }
    }
    if dims.len() > AXES {
        return Err(format!("tensor `{name}` has more than {AXES} axes"));
    }
    let claim = element::claim(name, &dims)?;
    let width = element::width(name, kind)?;
    let count_varints = |packed: &&[u8]| packed.iter().filter(|&&b| b & 0x80 == 0).count();
    let carried = match (raw, kind) {
        (Some(raw), _) if raw.len() % width != 0 => u64::MAX,
        (Some(raw), _) => (raw.len() / width) as u64,
        (None, 1) => floats.iter().map(|p| p.len() as u64 / 4).sum(),
        (None, 11) => doubles as u64,
        (None, _) => varints.iter().map(count_varints).sum::<usize>() as u64,
    };
    if carried != claim {
        return Err(format!("tensor `{name}` claims {claim} values and carries {carried}"));
    }
    let shape = dims.iter().map(|&d| d as usize).collect();
    Ok(TensorFacts { name, element: kind, shape, raw, floats, varints })
}

impl TensorFacts<'_> {
    /// The values of a small integer or float tensor.
    fn small(&self) -> Option<Vec<f64>> {
        let count: usize = self.shape.iter().product();
        let values = || small_values(self.element, self.raw, &self.varints, &self.floats);
        (count <= AXES * 2).then(values).flatten()
    }

    /// The values of a tensor of floats, halves, or bytes, as floats.
    pub(crate) fn values(&self) -> Option<Vec<f32>> {
        let listed = || varints(&self.varints);
        match (self.element, self.raw) {
            (2, Some(raw)) => Some(raw.iter().map(|&b| b.into()).collect()),
            (3, Some(raw)) => Some(raw.iter().map(|&b| b.cast_signed().into()).collect()),
            (2 | 3, None) => Some(listed()?.into_iter().map(|v| v as f32).collect()),
            (10, None) => {
                listed()?.into_iter().map(|v| u16::try_from(v).ok().map(element::single)).collect()
            }
            _ => self.floats(),
        }
    }

    /// The values of a float or half-precision tensor.
    fn floats(&self) -> Option<Vec<f32>> {
        let single = |b: &[u8]| b.try_into().map(f32::from_le_bytes).ok();
        let half = |b: &[u8]| b.try_into().map(|b| element::single(u16::from_le_bytes(b))).ok();
        match (self.element, self.raw) {
            (1, Some(raw)) => raw.chunks_exact(4).map(single).collect(),
            (1, None) => self.floats.iter().flat_map(|p| p.chunks_exact(4)).map(single).collect(),
            (10, Some(raw)) => raw.chunks_exact(2).map(half).collect(),
            _ => None,
        }
    }
}

/// Numbers of variable length, of packed lists.
fn varints(lists: &[&[u8]]) -> Option<Vec<i64>> {
    let mut all = Vec::new();
    for packed in lists {
        let mut packed = Fields(packed);
        while !packed.0.is_empty() {
            all.push(packed.varint().ok()?.cast_signed());
        }
    }
    Some(all)
}

fn small_values(
    element: u64,
    raw: Option<&[u8]>,
    lists: &[&[u8]],
    floats: &[&[u8]],
) -> Option<Vec<f64>> {
    let as_f32 = |b: &[u8]| b.try_into().map(|b| f64::from(f32::from_le_bytes(b))).ok();
    let as_i64 = |b: &[u8]| b.try_into().map(|b| i64::from_le_bytes(b) as f64).ok();
    let as_i32 = |b: &[u8]| b.try_into().map(|b| f64::from(i32::from_le_bytes(b))).ok();
    match (element, raw) {
        (1, Some(raw)) => raw.chunks_exact(4).map(as_f32).collect(),
        (6, Some(raw)) => raw.chunks_exact(4).map(as_i32).collect(),
        (7, Some(raw)) => raw.chunks_exact(8).map(as_i64).collect(),
        (1, None) => floats.iter().flat_map(|p| p.chunks_exact(4)).map(as_f32).collect(),
        (6 | 7, None) => Some(varints(lists)?.into_iter().map(|v| v as f64).collect()),
        _ => None,
    }
}

/// The name of an input or output.
pub(crate) fn port_name(message: &[u8]) -> Found<&str> {
    let (mut name, mut fields) = ("", Fields(message));
    while let Some(field) = fields.next()? {
        if let Field::Bytes(1, bytes) = field {
            name = text(bytes)?;
        }
    }
    Ok(name)
}

/// The version of ONNX's own operators that a file is written for; 0 when it does not say.
pub(crate) fn opset(bytes: &[u8]) -> Found<u64> {
    let (mut opset, mut fields) = (0, Fields(bytes));
    while let Some(field) = fields.next()? {
        let Field::Bytes(8, message) = field else { continue };
        let (mut domain, mut version, mut fields) = ("", 0, Fields(message));
        while let Some(field) = fields.next()? {
            match field {
                Field::Bytes(1, name) => domain = text(name)?,
                Field::Number(2, number) => version = number,
                _ => {}
            }
        }
        if domain.is_empty() || domain == "ai.onnx" {
            opset = version;
        }
    }
    Ok(opset)
}

fn value_info(message: &[u8]) -> Found<Declared> {
    let mut declared = Declared { name: String::new(), element: 0, shape: None };
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            Field::Bytes(1, name) => declared.name = text(name)?.to_owned(),
            Field::Bytes(2, kind) => {
                let mut kind = Fields(kind);
                while let Some(field) = kind.next()? {
                    let Field::Bytes(1, tensor) = field else { continue };
                    let mut tensor = Fields(tensor);
                    while let Some(field) = tensor.next()? {
                        match field {
                            Field::Number(1, element) => declared.element = element,
                            Field::Bytes(2, shape) => declared.shape = Some(shape_of(shape)?),
                            _ => {}
                        }
                    }
                }
            }
            _ => {}
        }
    }
    Ok(declared)
}

fn shape_of(message: &[u8]) -> Found<Vec<Dim>> {
    let mut shape = Vec::new();
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        let Field::Bytes(1, dimension) = field else { continue };
        if shape.len() == AXES {
            return Err(format!("a port has more than {AXES} axes"));
        }
        let mut dim = Dim::Any;
        let mut dimension = Fields(dimension);
        while let Some(field) = dimension.next()? {
            if let Field::Number(1, value) = field
                && value.cast_signed() > 0
            {
                let value = usize::try_from(value).unwrap_or(usize::MAX);
                if value > TENSOR_VALUES {
                    return Err(format!("a port has an axis of {value}"));
                }
                dim = Dim::Fixed(value);
            }
        }
        shape.push(dim);
    }
    Ok(shape)
}

/// A node's operator, inputs and outputs, and the constant it holds.
struct NodeFacts<'a> {
    operator: &'a str,
    inputs: Vec<&'a str>,
    output: &'a str,
    constant: Option<Vec<f64>>,
}

fn node(message: &[u8]) -> Found<NodeFacts<'_>> {
    let mut facts = NodeFacts { operator: "", inputs: Vec::new(), output: "", constant: None };
    let mut attributes = Vec::new();
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            Field::Bytes(1, name) => facts.inputs.push(text(name)?),
            Field::Bytes(2, name) if facts.output.is_empty() => facts.output = text(name)?,
            Field::Bytes(4, name) => facts.operator = text(name)?,
            Field::Bytes(5, attribute) => attributes.push(attribute),
            _ => {}
        }
    }
    for attribute in attributes {
        if let Some(values) = check_attribute(facts.operator, attribute)? {
            facts.constant = Some(values);
        }
    }
    Ok(facts)
}

/// Checks one attribute; gives the values of a small tensor or list.
fn check_attribute(operator: &str, message: &[u8]) -> Found<Option<Vec<f64>>> {
    let (mut name, mut ints, mut values) = ("", Vec::new(), None);
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            Field::Bytes(1, n) => name = text(n)?,
            Field::Bytes(5, t) => values = tensor(t)?.small(),
            Field::Bytes(6 | 10 | 11 | 22 | 23, _) => {
                return Err(format!("operator {operator} holds a graph, which is not supported"));
            }
            Field::Number(3 | 8, value) => ints.push(value),
            Field::Bytes(8, packed) => {
                let mut packed = Fields(packed);
                while !packed.0.is_empty() {
                    ints.push(packed.varint()?);
                }
            }
            _ => {}
        }
    }
    let window = ["kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape"];
    let counts = ["group", "blocksize", "num_outputs"];
    let too_large = |v: &u64| v.cast_signed().unsigned_abs() > WINDOW;
    if (window.contains(&name) || counts.contains(&name)) && ints.iter().any(too_large) {
        return Err(format!("operator {operator} has {name} beyond {WINDOW}"));
    }
    if values.is_none() && !ints.is_empty() && ints.len() <= AXES * 2 {
        values = Some(ints.iter().map(|v| v.cast_signed() as f64).collect());
    }
    Ok(values)
}

/// Refuses an operator whose constant input would make its output huge.
fn check_growth(node: &NodeFacts<'_>, small: &BTreeMap<&str, Vec<f64>>) -> Found<()> {
    // The inputs that say how much, and whether by their product or by the largest of them.
    let (inputs, product): (&[usize], bool) = match node.operator {
        "ConstantOfShape" => (&[0], true),
        "Expand" | "Tile" | "Upsample" | "Reshape" | "OneHot" => (&[1], true),
        "Resize" => (&[2, 3], true),
        "Range" => (&[0, 1], false),
        "Pad" => (&[1], false),
        _ => return Ok(()),
    };
    let most = if node.operator == "Pad" { WINDOW as f64 } else { TENSOR_VALUES as f64 };
    for values in inputs.iter().filter_map(|&i| small.get(node.inputs.get(i)?)) {
        let sizes = values.iter().map(|v| v.abs().max(1.0));
        let size: f64 = if product { sizes.product() } else { sizes.fold(1.0, f64::max) };
        if size > most || values.iter().any(|v| v.is_nan()) {
            return Err(format!("operator {} asks for a huge tensor", node.operator));
        }
    }
    Ok(())
}

/// The graph of an ONNX file.
pub(crate) fn graph(bytes: &[u8]) -> Found<&[u8]> {
    let mut graph = None;
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field {
            Field::Bytes(7, message) if graph.is_none() => graph = Some(message),
            Field::Bytes(7, _) => return Err("it holds two graphs".into()),
            Field::Bytes(20 | 25, _) => return Err("it holds functions or training parts".into()),
            _ => {}
        }
    }
    graph.ok_or_else(|| "it is not an ONNX file: it holds no graph".into())
}

/// Which constant of a model is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constant<'a> {
    Named(&'a str),
    /// The last of the file: where inswapper keeps the map of its embeddings.
    Last,
}

/// A float constant of a model's file, for what a session does not hand out.
///
/// # Errors
/// `Load` when the file is damaged, `Contract` when it has no such constant of floats.
pub fn constant(model: &str, bytes: &[u8], which: Constant<'_>) -> Result<Tensor> {
    let found = find_constant(bytes, which)
        .map_err(|detail| Error::Load { model: model.to_owned(), detail })?;
    found.ok_or_else(|| Error::Contract {
        model: model.to_owned(),
        detail: format!("it has no constant of floats where {which:?} is needed"),
    })
}

fn find_constant(bytes: &[u8], which: Constant<'_>) -> Found<Option<Tensor>> {
    let mut fields = Fields(graph(bytes)?);
    let mut found = None;
    while let Some(field) = fields.next()? {
        let Field::Bytes(5, message) = field else { continue };
        let tensor = tensor(message)?;
        if which == Constant::Last || which == Constant::Named(tensor.name) {
            found = Some(tensor);
        }
    }
    let tensor = found.and_then(|tensor| Some((tensor.floats()?, tensor.shape)));
    Ok(tensor.map(|(data, shape)| Tensor { shape, data }))
}

/// What a file holds.
///
/// # Errors
/// `Load` when the file is damaged or claims what can't be.
pub fn survey(model: &str, bytes: &[u8]) -> Result<Survey> {
    let facts = facts(bytes).map_err(|detail| Error::Load { model: model.to_owned(), detail })?;
    let port = |port: &Declared| PortFacts {
        name: port.name.clone(),
        element: u8::try_from(port.element).unwrap_or(0),
        shape: port
            .shape
            .iter()
            .flatten()
            .map(|dim| match dim {
                Dim::Fixed(n) => u32::try_from(*n).unwrap_or(u32::MAX),
                Dim::Any => 0,
            })
            .collect(),
    };
    Ok(Survey {
        inputs: facts.inputs.iter().map(port).collect(),
        outputs: facts.outputs.iter().map(port).collect(),
        operators: facts.operators.into_iter().collect(),
        folded: Folded::default(),
        refused: None,
    })
}

/// Reads a whole ONNX file's claims.
pub(crate) fn facts(bytes: &[u8]) -> Found<Facts> {
    let graph = graph(bytes)?;
    let (mut facts, mut small, mut nodes) = (Facts::default(), BTreeMap::new(), Vec::new());
    let (mut initialised, mut parts) = (std::collections::BTreeSet::new(), 0);
    let mut fields = Fields(graph);
    while let Some(field) = fields.next()? {
        parts += 1;
        if parts > PARTS {
            return Err(format!("it has more than {PARTS} parts"));
        }
        match field {
            Field::Bytes(1, message) => nodes.push(node(message)?),
            Field::Bytes(5, message) => {
                let tensor = tensor(message)?;
                initialised.insert(tensor.name);
                tensor.small().and_then(|values| small.insert(tensor.name, values));
            }
            Field::Bytes(11, message) => facts.inputs.push(value_info(message)?),
            Field::Bytes(12, message) => facts.outputs.push(value_info(message)?),
            Field::Bytes(13, message) => {
                value_info(message)?;
            }
            Field::Bytes(15, _) => return Err("it holds sparse weights".into()),
            _ => {}
        }
    }
    facts.inputs.retain(|port| !initialised.contains(port.name.as_str()));
    for node in &nodes {
        *facts.operators.entry(node.operator.to_owned()).or_default() += 1;
    }
    for node in nodes.iter_mut().filter(|node| node.operator == "Constant") {
        if let Some(values) = node.constant.take() {
            small.insert(node.output, values);
        }
    }
    nodes.iter().try_for_each(|node| check_growth(node, &small))?;
    if facts.outputs.is_empty() {
        return Err("it has no output".into());
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::Model;

    #[test]
    fn a_constant_is_read_by_name_and_as_the_last() {
        let bytes = Model::new()
            .input("x", &[2])
            .weight("first", &[2], &[1.5, -2.5])
            .half("emap", &[2, 3], &[0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000, 0x3555])
            .node("Mul", &["x", "first"], &["y"], &[])
            .output("y", &[2])
            .bytes();
        let first = constant("made", &bytes, Constant::Named("first")).unwrap();
        assert_eq!(first, Tensor { shape: vec![2], data: vec![1.5, -2.5] });
        let last = constant("made", &bytes, Constant::Last).unwrap();
        assert_eq!(last.shape, [2, 3]);
        assert_eq!(last.data, [1.0, -2.0, 2.0_f32.powi(-24), 65504.0, -0.0, 0.333_251_95]);
        assert_eq!(last, constant("made", &bytes, Constant::Named("emap")).unwrap());
        let missing = constant("made", &bytes, Constant::Named("second"));
        assert!(matches!(missing, Err(Error::Contract { .. })), "{missing:?}");
        let cut = constant("made", &bytes[..bytes.len() - 3], Constant::Last);
        assert!(matches!(cut, Err(Error::Load { .. })), "{cut:?}");
    }

    #[test]
    fn ports_are_told_from_constants() {
        // Old files list their constants as inputs too.
        let bytes = Model::new()
            .input("x", &[1, 0])
            .input("w", &[4])
            .weight("w", &[4], &[1.0; 4])
            .node("Mul", &["x", "w"], &["y"], &[])
            .output("y", &[1, 4])
            .bytes();
        let facts = facts(&bytes).unwrap();
        let names: Vec<_> = facts.inputs.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["x"]);
        assert_eq!(facts.inputs[0].shape, Some(vec![Dim::Fixed(1), Dim::Any]));
        assert_eq!(facts.outputs[0].shape, Some(vec![Dim::Fixed(1), Dim::Fixed(4)]));
    }

    #[test]
    fn what_is_ordinary_is_not_called_huge() {
        let model = Model::new()
            .input("x", &[1, 3, 64, 64])
            .integers("pads", &[0, 0, 200, 200, 0, 0, 200, 200])
            .node("Pad", &["x", "pads"], &["p"], &[])
            .integers("shape", &[1, 3, -1])
            .node("Reshape", &["p", "shape"], &["y"], &[])
            .output("y", &[1, 3, 0]);
        facts(&model.bytes()).unwrap();
    }
}
