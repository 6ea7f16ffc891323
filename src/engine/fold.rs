//! A model's file as runtimes understand it best: what exporters leave unsaid is said, and weights
//! that are stored in other ways are floats. What the model computes stays as it is.
//!
//! - Initialisers leave the graph's inputs: older exports list them there, and some runtimes then
//!   take them for inputs.
//! - Halves behind a Cast and codes behind a DequantizeLinear become floats, unless activations are
//!   quantised too: such a model is INT8 on purpose.
//! - Convolutions and pools say their kernel, strides, dilations and pads.

use std::collections::{BTreeMap, BTreeSet};

use mien_base::limits;
use mien_base::model::Folded;
use mien_nn::protobuf::{Field, Fields, Found, put_bytes, put_number, put_varint, text};

use crate::onnx::{self, TensorFacts};
use crate::{Error, Result};

/// ONNX element types in which weights are stored to be smaller.
const UINT8: u64 = 2;
const INT8: u64 = 3;
const HALF: u64 = 10;

/// The same model, folded, and what was done to it.
///
/// # Errors
/// `Load` when the file is damaged, or would become larger than `limits::MODEL_FILE`.
pub fn fold(model: &str, bytes: &[u8]) -> Result<(Vec<u8>, Folded)> {
    folded(bytes).map_err(|detail| Error::Load { model: model.to_owned(), detail })
}

/// A node, as far as it is looked at.
struct Node<'a> {
    operator: &'a str,
    inputs: Vec<&'a str>,
    outputs: Vec<&'a str>,
    attributes: BTreeMap<&'a str, Value<'a>>,
}

/// An attribute of a node.
enum Value<'a> {
    Number(i64),
    Numbers(Vec<i64>),
    Text(&'a str),
    Other,
}

fn node(message: &[u8]) -> Found<Node<'_>> {
    let mut node =
        Node { operator: "", inputs: Vec::new(), outputs: Vec::new(), attributes: BTreeMap::new() };
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            Field::Bytes(1, name) => node.inputs.push(text(name)?),
            Field::Bytes(2, name) => node.outputs.push(text(name)?),
            Field::Bytes(4, name) => node.operator = text(name)?,
            Field::Bytes(5, message) => {
                let (name, value) = attribute(message)?;
                node.attributes.insert(name, value);
            }
            _ => {}
        }
    }
    Ok(node)
}

fn attribute(message: &[u8]) -> Found<(&str, Value<'_>)> {
    let (mut name, mut value, mut numbers) = ("", Value::Other, Vec::new());
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            Field::Bytes(1, n) => name = text(n)?,
            Field::Number(3, number) => value = Value::Number(number.cast_signed()),
            Field::Bytes(4, bytes) => value = text(bytes).map_or(Value::Other, Value::Text),
            Field::Number(8, number) => numbers.push(number.cast_signed()),
            Field::Bytes(8, packed) => {
                let mut packed = Fields(packed);
                while !packed.is_empty() {
                    numbers.push(packed.varint()?.cast_signed());
                }
            }
            _ => {}
        }
    }
    Ok((name, if numbers.is_empty() { value } else { Value::Numbers(numbers) }))
}

impl Node<'_> {
    fn number(&self, name: &str) -> Option<i64> {
        match self.attributes.get(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    fn numbers(&self, name: &str) -> Option<&[i64]> {
        match self.attributes.get(name) {
            Some(Value::Numbers(numbers)) => Some(numbers),
            _ => None,
        }
    }
}

/// What the graph is folded by.
#[derive(Default)]
struct Graph<'a> {
    constants: BTreeMap<&'a str, TensorFacts<'a>>,
    outputs: BTreeSet<String>,
    /// Activations are quantised in it.
    quantised: bool,
    opset: u64,
}

fn folded(bytes: &[u8]) -> Found<(Vec<u8>, Folded)> {
    let inner = onnx::graph(bytes)?;
    let graph = Graph::read(bytes, inner)?;
    let mut done = Folded::default();
    let (mut nodes, mut used) = (Vec::new(), BTreeSet::new());
    // By the constant that they are made of.
    let mut made: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    let mut grown = bytes.len() as u64;
    let mut fields = Fields(inner);
    while let Some(field) = fields.next()? {
        let Field::Bytes(1, message) = field else { continue };
        let node = node(message)?;
        if let Some((name, shape, values)) = graph.whole(&node) {
            grown += values.len() as u64 * 4;
            if grown > limits::MODEL_FILE {
                let most = limits::MODEL_FILE >> 20;
                return Err(format!("with its weights as floats it has more than {most} MiB"));
            }
            let of = node.inputs.first().copied().unwrap_or_default();
            made.entry(of).or_default().push(tensor(name, &shape, &values));
            used.extend(node.inputs.iter().skip(1).copied());
            done.weights += 1;
            continue;
        }
        used.extend(node.inputs.iter().copied());
        let said = graph.unsaid(&node);
        done.attributes += said.len() as u32;
        let mut out = Vec::with_capacity(message.len());
        // A rule for pads and pads themselves exclude each other.
        let drop_rule = said.iter().any(|(name, _)| *name == "pads");
        parts(message, |field, taken| {
            let rule = match field {
                Field::Bytes(5, message) => drop_rule && attribute(message)?.0 == "auto_pad",
                _ => false,
            };
            if !rule {
                out.extend_from_slice(taken);
            }
            Ok(())
        })?;
        said.iter().for_each(|(name, values)| put_bytes(&mut out, 5, &integers(name, values)));
        nodes.push(out);
    }

    let mut kept = Vec::with_capacity(inner.len());
    nodes.iter().for_each(|node| put_bytes(&mut kept, 1, node));
    parts(inner, |field, taken| {
        match field {
            Field::Bytes(1, _) => return Ok(()),
            Field::Bytes(11, port) if graph.constants.contains_key(onnx::port_name(port)?) => {
                done.inputs += 1;
                return Ok(());
            }
            // Each in the place of what it is made of: a table may be known by being the last.
            Field::Bytes(5, message) => {
                let name = onnx::tensor(message)?.name;
                if let Some(whole) = made.get(name) {
                    whole.iter().for_each(|tensor| put_bytes(&mut kept, 5, tensor));
                    if !used.contains(name) && !graph.outputs.contains(name) {
                        return Ok(());
                    }
                }
            }
            _ => {}
        }
        kept.extend_from_slice(taken);
        Ok(())
    })?;
    if done.count() == 0 {
        return Ok((bytes.to_vec(), done));
    }
    let mut out = Vec::with_capacity(bytes.len());
    parts(bytes, |field, taken| {
        match field {
            Field::Bytes(7, _) => put_bytes(&mut out, 7, &kept),
            _ => out.extend_from_slice(taken),
        }
        Ok(())
    })?;
    Ok((out, done))
}

/// Goes through the fields of a message, each with the bytes that it stands in.
fn parts<'a>(
    message: &'a [u8],
    mut see: impl FnMut(Field<'a>, &'a [u8]) -> Found<()>,
) -> Found<()> {
    let mut fields = Fields(message);
    loop {
        let before = fields.0;
        let Some(field) = fields.next()? else { return Ok(()) };
        see(field, before.get(..before.len() - fields.0.len()).unwrap_or_default())?;
    }
}

impl<'a> Graph<'a> {
    fn read(bytes: &'a [u8], inner: &'a [u8]) -> Found<Self> {
        let mut graph = Self { opset: onnx::opset(bytes)?, ..Self::default() };
        let mut fields = Fields(inner);
        while let Some(field) = fields.next()? {
            match field {
                Field::Bytes(1, message) => {
                    let quantising = ["QuantizeLinear", "DynamicQuantizeLinear"];
                    graph.quantised |= quantising.contains(&node(message)?.operator);
                }
                Field::Bytes(5, message) => {
                    let tensor = onnx::tensor(message)?;
                    graph.constants.insert(tensor.name, tensor);
                }
                Field::Bytes(12, message) => {
                    graph.outputs.insert(onnx::port_name(message)?.to_owned());
                }
                _ => {}
            }
        }
        Ok(graph)
    }

    /// The floats that a node makes of a constant, with their name and shape; `None` when it does
    /// something else.
    fn whole<'n>(&self, node: &Node<'n>) -> Option<(&'n str, Vec<usize>, Vec<f32>)> {
        let [output] = node.outputs[..] else { return None };
        let constant = self.constants.get(node.inputs.first()?)?;
        let stored = [UINT8, INT8, HALF].contains(&constant.element);
        if !stored || self.outputs.contains(output) || self.constants.contains_key(output) {
            return None;
        }
        let values = match node.operator {
            "Cast" if node.number("to") == Some(1) => constant.values()?,
            "DequantizeLinear" if !self.quantised => self.decoded(node, constant)?,
            _ => return None,
        };
        Some((output, constant.shape.clone(), values))
    }

    /// (code - zero) * scale, where scale and zero are one, or one for each step of an axis.
    fn decoded(&self, node: &Node<'_>, codes: &TensorFacts<'_>) -> Option<Vec<f32>> {
        let constant = |at: usize| node.inputs.get(at).map(|name| self.constants.get(name));
        // Blocks within an axis came later and are left as they are.
        if node.number("block_size").is_some_and(|size| size != 0) {
            return None;
        }
        let scale = constant(1)??;
        let zero = match constant(2) {
            Some(zero) => zero?.values()?,
            None => vec![0.0],
        };
        let (scales, mut values) = (scale.values()?, codes.values()?);
        let rank = i64::try_from(codes.shape.len()).ok()?;
        let axis = node.number("axis").unwrap_or(1);
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        let (steps, inner) = match scales.len() {
            1 => (1, values.len()),
            steps => {
                let after = codes.shape.get(axis + 1..)?;
                (steps, after.iter().try_fold(1_usize, |all, &n| all.checked_mul(n))?)
            }
        };
        let fits = steps == 1 || codes.shape.get(axis) == Some(&steps);
        if !fits || zero.len() != 1 && zero.len() != steps {
            return None;
        }
        for (at, part) in values.chunks_mut(inner.max(1)).enumerate() {
            let zero = *zero.get(at % steps % zero.len())?;
            let scale = *scales.get(at % steps)?;
            part.iter_mut().for_each(|value| *value = (*value - zero) * scale);
        }
        Some(values)
    }

    /// Attributes that a node leaves to be guessed, and what they are.
    fn unsaid(&self, node: &Node<'_>) -> Vec<(&'static str, Vec<i64>)> {
        let weights = node.inputs.get(1).and_then(|name| self.constants.get(name));
        let shape = weights.map(|weights| weights.shape.as_slice());
        let of_weights = shape.and_then(|shape| {
            shape.get(2..)?.iter().map(|&n| i64::try_from(n).ok()).collect::<Option<Vec<_>>>()
        });
        let convolves = matches!(node.operator, "Conv" | "ConvTranspose");
        let pools = matches!(node.operator, "MaxPool" | "AveragePool");
        let given = node.numbers("kernel_shape").map(<[i64]>::to_vec);
        let kernel = if convolves { given.clone().or(of_weights) } else { given.clone() };
        let Some(kernel) = kernel.filter(|k| (convolves || pools) && !k.is_empty()) else {
            return Vec::new();
        };
        let ones = vec![1; kernel.len()];
        let mut said = Vec::new();
        if given.is_none() {
            said.push(("kernel_shape", kernel.clone()));
        }
        if node.numbers("strides").is_none() {
            said.push(("strides", ones.clone()));
        }
        // Pools had no dilations at first.
        let dilates = match node.operator {
            "MaxPool" => self.opset >= 10,
            "AveragePool" => self.opset >= 19,
            _ => true,
        };
        if dilates && node.numbers("dilations").is_none() {
            said.push(("dilations", ones.clone()));
        }
        if node.numbers("pads").is_none()
            && let Some(pads) = pads(node, &kernel, &ones)
        {
            said.push(("pads", pads));
        }
        said
    }
}

/// Pads by the rule that a node names; `None` where they depend on the picture's size.
fn pads(node: &Node<'_>, kernel: &[i64], ones: &[i64]) -> Option<Vec<i64>> {
    let rule = match node.attributes.get("auto_pad") {
        Some(Value::Text(rule)) => *rule,
        Some(_) => return None,
        None => "NOTSET",
    };
    let (strides, dilations) = (node.numbers("strides"), node.numbers("dilations"));
    match rule {
        // The size of what it makes may be given instead.
        "NOTSET" | "VALID" if node.numbers("output_shape").is_none() => {
            Some(vec![0; 2 * kernel.len()])
        }
        "SAME_UPPER" | "SAME_LOWER" if node.operator != "ConvTranspose" => {
            if strides.unwrap_or(ones).iter().any(|&stride| stride != 1) {
                return None;
            }
            let dilations = dilations.unwrap_or(ones).iter().chain(std::iter::repeat(&1));
            let all: Option<Vec<i64>> = kernel
                .iter()
                .zip(dilations)
                .map(|(k, d)| k.checked_sub(1)?.checked_mul(*d).filter(|all| *all >= 0))
                .collect();
            let all = all?;
            let less: Vec<i64> = all.iter().map(|all| all / 2).collect();
            let more: Vec<i64> = all.iter().zip(&less).map(|(all, less)| all - less).collect();
            Some(if rule == "SAME_UPPER" { [less, more] } else { [more, less] }.concat())
        }
        _ => None,
    }
}

fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len() * 4 + 64);
    shape.iter().for_each(|&n| put_number(&mut out, 1, n as u64));
    put_number(&mut out, 2, 1);
    put_bytes(&mut out, 8, name.as_bytes());
    put_varint(&mut out, 9 << 3 | 2);
    put_varint(&mut out, values.len() as u64 * 4);
    values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    out
}

fn integers(name: &str, values: &[i64]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, name.as_bytes());
    values.iter().for_each(|value| put_number(&mut out, 8, value.cast_unsigned()));
    put_number(&mut out, 20, 7);
    out
}

#[cfg(test)]
mod tests;
