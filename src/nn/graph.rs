//! A model's graph as the file holds it, with constants computed and known patterns named.

use std::collections::BTreeMap;

use crate::constant::{AXES, Constant, Data};
use crate::errors::{Error, Result};
use crate::protobuf::{Field, Fields, Found, text};

/// Most nodes, constants and ports of a model, together.
const PARTS: usize = 100_000;

/// Most inputs of a model.
pub(crate) const INPUTS: usize = 16;

/// A tensor of the graph.
pub(crate) type Value = usize;

/// One operator.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    pub(crate) operator: &'a str,
    /// Absent ones are `None`.
    pub(crate) inputs: Vec<Option<Value>>,
    pub(crate) outputs: Vec<Value>,
    pub(crate) attributes: Vec<(&'a str, Attribute<'a>)>,
}

#[derive(Debug, Clone)]
pub(crate) enum Attribute<'a> {
    Integer(i64),
    Float(f32),
    Text(&'a [u8]),
    Integers(Vec<i64>),
    Tensor(Constant<'a>),
    Other,
}

impl<'a> Node<'a> {
    fn attribute(&self, name: &str) -> Option<&Attribute<'a>> {
        self.attributes.iter().find(|(n, _)| *n == name).map(|(_, a)| a)
    }

    pub(crate) fn integer(&self, name: &str, default: i64) -> i64 {
        match self.attribute(name) {
            Some(Attribute::Integer(value)) => *value,
            _ => default,
        }
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> f32 {
        match self.attribute(name) {
            Some(Attribute::Float(value)) => *value,
            _ => default,
        }
    }

    pub(crate) fn text(&self, name: &str, default: &'static str) -> &str {
        match self.attribute(name) {
            Some(Attribute::Text(value)) => std::str::from_utf8(value).unwrap_or("?"),
            _ => default,
        }
    }

    pub(crate) fn integers(&self, name: &str) -> Option<&[i64]> {
        match self.attribute(name) {
            Some(Attribute::Integers(values)) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn input(&self, at: usize) -> Option<Value> {
        self.inputs.get(at).copied().flatten()
    }
}

/// A graph. Nodes stand in the order in which they run.
#[derive(Debug, Default)]
pub(crate) struct Graph<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
    pub(crate) constants: BTreeMap<Value, Constant<'a>>,
    pub(crate) inputs: Vec<(Value, &'a str)>,
    pub(crate) outputs: Vec<(Value, &'a str)>,
    pub(crate) opset: u64,
    names: BTreeMap<&'a str, Value>,
    next: Value,
}

impl<'a> Graph<'a> {
    pub(crate) fn fresh(&mut self) -> Value {
        self.next += 1;
        self.next - 1
    }

    fn value(&mut self, name: &'a str) -> Value {
        if let Some(&known) = self.names.get(name) {
            return known;
        }
        let value = self.fresh();
        self.names.insert(name, value);
        value
    }

    /// Reads an ONNX file. Only `outputs`, places in its list of outputs, are kept.
    pub(crate) fn read(bytes: &'a [u8], outputs: &[usize]) -> Result<Self> {
        let mut graph = Self::default();
        graph.parse(bytes).map_err(Error::damaged)?;
        if graph.outputs.is_empty() {
            return Err(Error::damaged("it has no output"));
        }
        graph.inputs.retain(|(value, _)| !graph.constants.contains_key(value));
        if graph.inputs.len() > INPUTS {
            return Err(Error::unsupported(format!("it has more than {INPUTS} inputs")));
        }
        graph.check()?;
        let kept: Option<Vec<_>> = outputs.iter().map(|&i| graph.outputs.get(i).copied()).collect();
        graph.outputs = kept.ok_or_else(|| Error::damaged("an output is missing"))?;
        graph.drop_unused();
        graph.fold()?;
        graph.name_patterns();
        Ok(graph)
    }

    fn parse(&mut self, bytes: &'a [u8]) -> Found<()> {
        let (mut body, mut opset) = (None, 0);
        let mut fields = Fields(bytes);
        while let Some(field) = fields.next()? {
            match field {
                Field::Bytes(7, message) if body.is_none() => body = Some(message),
                Field::Bytes(7 | 20 | 25, _) => return Err("it holds more than a graph".into()),
                Field::Bytes(8, message) => {
                    let (mut domain, mut version) = ("", 0);
                    let mut fields = Fields(message);
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
                _ => {}
            }
        }
        self.opset = opset;
        let body = body.ok_or("it holds no graph")?;
        let (mut fields, mut parts) = (Fields(body), 0);
        while let Some(field) = fields.next()? {
            parts += 1;
            if parts > PARTS {
                return Err(format!("it has more than {PARTS} parts"));
            }
            match field {
                Field::Bytes(1, message) => {
                    let node = self.node(message)?;
                    self.nodes.push(node);
                }
                Field::Bytes(5, message) => {
                    let (name, constant) = Constant::read(message).map_err(|e| e.to_string())?;
                    let value = self.value(name);
                    self.constants.insert(value, constant);
                }
                Field::Bytes(port @ (11 | 12), message) => {
                    let name = port_name(message)?;
                    let value = self.value(name);
                    let side = if port == 11 { &mut self.inputs } else { &mut self.outputs };
                    side.push((value, name));
                }
                Field::Bytes(15, _) => return Err("it holds sparse weights".into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn node(&mut self, message: &'a [u8]) -> Found<Node<'a>> {
        let mut node =
            Node { operator: "", inputs: Vec::new(), outputs: Vec::new(), attributes: Vec::new() };
        let mut fields = Fields(message);
        while let Some(field) = fields.next()? {
            match field {
                Field::Bytes(1, b"") => node.inputs.push(None),
                Field::Bytes(1, name) => node.inputs.push(Some(self.value(text(name)?))),
                Field::Bytes(2, b"") => {}
                Field::Bytes(2, name) => node.outputs.push(self.value(text(name)?)),
                Field::Bytes(4, name) => node.operator = text(name)?,
                Field::Bytes(5, message) => node.attributes.push(attribute(message)?),
                Field::Bytes(7, domain) if !domain.is_empty() && domain != b"ai.onnx" => {
                    return Err("it uses operators of another domain".into());
                }
                _ => {}
            }
        }
        Ok(node)
    }

    /// Every value is made once, before it is used.
    fn check(&self) -> Result<()> {
        let mut known: Vec<bool> = vec![false; self.next];
        let given = self.inputs.iter().map(|(v, _)| *v).chain(self.constants.keys().copied());
        for value in given {
            if std::mem::replace(&mut known[value], true) {
                return Err(Error::damaged("a value is made twice"));
            }
        }
        for node in &self.nodes {
            if node.inputs.iter().flatten().any(|&v| !known[v]) {
                return Err(Error::damaged(format!(
                    "operator {} uses a value before it is made",
                    node.operator
                )));
            }
            for &out in &node.outputs {
                if std::mem::replace(&mut known[out], true) {
                    return Err(Error::damaged("a value is made twice"));
                }
            }
        }
        if self.outputs.iter().any(|(v, _)| !known[*v]) {
            return Err(Error::damaged("an output is never made"));
        }
        Ok(())
    }

    /// Computes what follows from constants alone, and takes out what does nothing.
    fn fold(&mut self) -> Result<()> {
        let mut same: BTreeMap<Value, Value> = BTreeMap::new();
        let nodes = std::mem::take(&mut self.nodes);
        for mut node in nodes {
            for input in node.inputs.iter_mut().flatten() {
                *input = same.get(input).copied().unwrap_or(*input);
            }
            let Some(&out) = node.outputs.first() else { continue };
            let constant = node.input(0).and_then(|v| self.constants.get(&v));
            let folded = match (node.operator, constant) {
                ("Constant", _) => match node.attributes.first() {
                    Some((_, Attribute::Tensor(value))) => Some(value.clone()),
                    _ => None,
                },
                ("Cast", Some(value)) => cast(value, node.integer("to", 1)),
                ("DequantizeLinear", Some(value)) => self.dequantised(value, &node),
                ("Unsqueeze" | "Squeeze" | "Reshape", Some(value)) => {
                    let shape = node.input(1).and_then(|v| self.constants.get(&v)?.integers());
                    reshaped(value, &node, shape.as_deref())
                }
                ("Identity", Some(value)) => Some(value.clone()),
                _ => None,
            };
            if let Some(value) = folded {
                self.constants.insert(out, value);
                continue;
            }
            // A cast at run time can only be from float to float here: all else is refused.
            let idle = match node.operator {
                "Identity" | "Dropout" => true,
                "Cast" => node.integer("to", 0) == 1,
                _ => false,
            };
            if let (true, Some(input)) = (idle, node.input(0)) {
                same.insert(out, input);
                continue;
            }
            self.nodes.push(node);
        }
        for (output, _) in &mut self.outputs {
            *output = same.get(output).copied().unwrap_or(*output);
        }
        Ok(())
    }

    fn dequantised(&self, value: &Constant<'a>, node: &Node<'a>) -> Option<Constant<'a>> {
        let scale = self.constants.get(&node.input(1)?)?;
        let zero = match node.input(2) {
            Some(zero) => self.constants.get(&zero)?.as_floats()?,
            None => vec![0.0],
        };
        let (scales, values) = (scale.floats()?.into_owned(), value.as_floats()?);
        let axis = usize::try_from(node.integer("axis", 1)).ok()?;
        let (size, inner) = match scales.len() {
            1 => (1, value.len()),
            n => (n, value.shape.get(axis + 1..)?.iter().product::<usize>()),
        };
        if size > 1 && value.shape[axis] != size || zero.len() != 1 && zero.len() != size {
            return None;
        }
        let mut floats = values;
        for (i, part) in floats.chunks_mut(inner.max(1)).enumerate() {
            let at = i % size;
            let (zero, scale) = (zero[at % zero.len()], scales[at]);
            part.iter_mut().for_each(|v| *v = (*v - zero) * scale);
        }
        Some(Constant { shape: value.shape.clone(), data: Data::Floats(floats) })
    }

    /// How often each value is read, by nodes or as an output.
    pub(crate) fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.next];
        let read = self.nodes.iter().flat_map(|n| n.inputs.iter().flatten());
        read.chain(self.outputs.iter().map(|(v, _)| v)).for_each(|&v| uses[v] += 1);
        uses
    }

    pub(crate) fn makers(&self) -> BTreeMap<Value, usize> {
        let outs = |(i, node): (usize, &Node<'a>)| {
            node.outputs.iter().map(move |&v| (v, i)).collect::<Vec<_>>()
        };
        self.nodes.iter().enumerate().flat_map(outs).collect()
    }

    pub(crate) fn drop_unused(&mut self) {
        let mut used = vec![false; self.next];
        self.outputs.iter().for_each(|(v, _)| used[*v] = true);
        let nodes = std::mem::take(&mut self.nodes);
        for node in nodes.into_iter().rev() {
            if node.outputs.iter().any(|&v| used[v]) {
                node.inputs.iter().flatten().for_each(|&v| used[v] = true);
                self.nodes.push(node);
            }
        }
        self.nodes.reverse();
        self.constants.retain(|v, _| used[*v]);
    }
}

fn cast<'a>(value: &Constant<'a>, to: i64) -> Option<Constant<'a>> {
    let shape = value.shape.clone();
    let data = match to {
        1 if value.floats().is_some() => value.data.clone(),
        1 => Data::Floats(value.as_floats()?),
        7 => Data::Integers(value.integers()?),
        _ => return None,
    };
    Some(Constant { shape, data })
}

fn reshaped<'a>(
    value: &Constant<'a>,
    node: &Node<'_>,
    given: Option<&[i64]>,
) -> Option<Constant<'a>> {
    let given = given.or_else(|| node.integers("axes"));
    let shape = if node.operator == "Reshape" {
        resolve(given?, &value.shape)?
    } else {
        change_axes(node.operator, &value.shape, given)?
    };
    Some(Constant { shape, data: value.data.clone() })
}

/// The shape that a `Reshape` asks for: 0 keeps an axis, -1 takes what is left.
pub(crate) fn resolve(wanted: &[i64], from: &[usize]) -> Option<Vec<usize>> {
    let all: usize = from.iter().product();
    let mut shape = Vec::with_capacity(wanted.len());
    for (axis, &dim) in wanted.iter().enumerate().take(AXES + 1) {
        shape.push(match dim {
            0 => *from.get(axis)?,
            -1 => 0,
            n => usize::try_from(n).ok()?,
        });
    }
    if wanted.iter().filter(|&&d| d == -1).count() > 1 || shape.len() > AXES {
        return None;
    }
    if let Some(free) = wanted.iter().position(|&d| d == -1) {
        let product = |p: usize, (_, &d): (usize, &usize)| p.checked_mul(d);
        let rest = shape.iter().enumerate().filter(|(i, _)| *i != free).try_fold(1, product)?;
        shape[free] = all.checked_div(rest)?;
    }
    let product = shape.iter().try_fold(1_usize, |p, &d| p.checked_mul(d))?;
    (product == all).then_some(shape)
}

/// The shape after `Unsqueeze` or `Squeeze`.
pub(crate) fn change_axes(
    operator: &str,
    shape: &[usize],
    axes: Option<&[i64]>,
) -> Option<Vec<usize>> {
    let adds = operator == "Unsqueeze";
    let rank = shape.len() + if adds { axes?.len() } else { 0 };
    if rank > AXES {
        return None;
    }
    let place = |&axis: &i64| {
        let axis = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(axis).ok().filter(|a| *a < rank)
    };
    let places: Option<Vec<usize>> = axes.map(|a| a.iter().map(place).collect())?;
    let places = places?;
    if adds {
        let mut old = shape.iter();
        (0..rank).map(|i| if places.contains(&i) { Some(1) } else { old.next().copied() }).collect()
    } else {
        let kept = shape.iter().enumerate().filter(|(i, _)| !places.contains(i));
        places.iter().all(|&i| shape[i] == 1).then(|| kept.map(|(_, &d)| d).collect())
    }
}

fn port_name(message: &[u8]) -> Found<&str> {
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        if let Field::Bytes(1, name) = field {
            return text(name);
        }
    }
    Err("a port has no name".into())
}

fn attribute(message: &[u8]) -> Found<(&str, Attribute<'_>)> {
    let (mut name, mut value, mut integers) = ("", Attribute::Other, Vec::new());
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            Field::Bytes(1, n) => name = text(n)?,
            Field::Fixed(2, bytes) => {
                value = Attribute::Float(f32::from_le_bytes(bytes.try_into().unwrap_or_default()));
            }
            Field::Number(3, number) => value = Attribute::Integer(number.cast_signed()),
            Field::Bytes(4, text) => value = Attribute::Text(text),
            Field::Bytes(5, message) => {
                value = Attribute::Tensor(Constant::read(message).map_err(|e| e.to_string())?.1);
            }
            Field::Number(8, number) => integers.push(number.cast_signed()),
            Field::Bytes(8, packed) => {
                let mut packed = Fields(packed);
                while !packed.is_empty() {
                    integers.push(packed.varint()?.cast_signed());
                }
            }
            _ => {}
        }
    }
    if !integers.is_empty() {
        value = Attribute::Integers(integers);
    }
    Ok((name, value))
}
