//! From the graph's operators to steps: weights are folded, activations and sums join the
//! convolutions before them.

use std::collections::BTreeMap;

use crate::constant::Constant;
use crate::errors::{Error, Result};
use crate::graph::{Graph, Node, Value};
use crate::ops::{Loose, LooseAct, Map, Op, Pair, Pooling, Sampling, Sizes, Step};

use crate::simd::dense::{Border, Window};

mod weights;

/// Largest window, stride, dilation or padding.
const WINDOW: usize = 4096;

type Attempt<T> = std::result::Result<T, String>;

/// The steps so far, and who makes what.
pub(crate) struct Lowering<'g, 'a> {
    graph: &'g Graph<'a>,
    uses: Vec<usize>,
    steps: Vec<Option<Step>>,
    makers: BTreeMap<Value, usize>,
}

/// The steps of a graph, in the order in which they run.
pub(crate) fn lower(graph: &Graph<'_>) -> Result<Vec<Step>> {
    let mut lowering = Lowering {
        graph,
        uses: graph.uses(),
        steps: Vec::with_capacity(graph.nodes.len()),
        makers: BTreeMap::new(),
    };
    for node in &graph.nodes {
        lowering
            .node(node)
            .map_err(|why| Error::unsupported(format!("operator {}: {why}", node.operator)))?;
    }
    Ok(lowering.steps.into_iter().flatten().collect())
}

/// Sizes of an attribute, of which there must be `N`.
fn sizes<const N: usize>(values: Option<&[i64]>, default: usize) -> Attempt<[usize; N]> {
    let Some(values) = values else { return Ok([default; N]) };
    let size = |&v: &i64| usize::try_from(v).ok().filter(|&v| v <= WINDOW);
    let sizes: Option<Vec<usize>> = values.iter().map(size).collect();
    sizes
        .and_then(|s| s.try_into().ok())
        .ok_or_else(|| format!("{values:?} where {N} sizes are needed"))
}

fn window(node: &Node<'_>, kernel: [usize; 2]) -> Attempt<Window> {
    let stride: [usize; 2] = sizes(node.integers("strides"), 1)?;
    let dilation: [usize; 2] = sizes(node.integers("dilations"), 1)?;
    let mut pads: [usize; 4] = sizes(node.integers("pads"), 0)?;
    if kernel.iter().chain(&stride).chain(&dilation).any(|&v| v == 0 || v > WINDOW) {
        return Err("a window without size".into());
    }
    match node.text("auto_pad", "NOTSET") {
        "NOTSET" => {}
        "VALID" => pads = [0; 4],
        same @ ("SAME_UPPER" | "SAME_LOWER") if stride == [1, 1] => {
            for axis in 0..2 {
                let all = (kernel[axis] - 1) * dilation[axis];
                let less = all / 2;
                let (begin, end) =
                    if same == "SAME_UPPER" { (less, all - less) } else { (all - less, less) };
                (pads[axis], pads[axis + 2]) = (begin, end);
            }
        }
        other => return Err(format!("padding `{other}`")),
    }
    let pair = |[a, b]: [usize; 2]| (a, b);
    let (kernel, stride, dilation) = (pair(kernel), pair(stride), pair(dilation));
    Ok(Window { kernel, stride, dilation, pads })
}

/// One value a channel, or one for all, of a constant that is broadcast against `[n, c, h, w]`.
fn per_channel(constant: &Constant<'_>, flat: bool) -> Attempt<Vec<f32>> {
    let values = constant.as_floats().ok_or("a constant of another type")?;
    let shape = &constant.shape;
    let channels = match shape.len() {
        _ if values.len() == 1 => return Ok(values),
        1 => flat,
        2 => flat && shape[0] == 1,
        3 => !flat && shape[1..] == [1, 1],
        4 => !flat && shape[0] == 1 && shape[2..] == [1, 1],
        _ => false,
    };
    if channels { Ok(values) } else { Err(format!("a constant of the shape {shape:?}")) }
}

impl<'a> Lowering<'_, 'a> {
    fn constant(&self, node: &Node<'_>, at: usize) -> Option<&Constant<'a>> {
        self.graph.constants.get(&node.input(at)?)
    }

    fn floats(&self, node: &Node<'_>, at: usize) -> Attempt<Vec<f32>> {
        let constant = self.constant(node, at).ok_or("it needs a constant there")?;
        constant.as_floats().ok_or_else(|| "a constant of another type".into())
    }

    fn integers(&self, node: &Node<'_>, at: usize) -> Option<Vec<i64>> {
        self.constant(node, at)?.integers()
    }

    /// The value of an input that is not constant.
    fn value(&self, node: &Node<'_>, at: usize) -> Attempt<Value> {
        let value = node.input(at).ok_or("an input is missing")?;
        if self.graph.constants.contains_key(&value) {
            return Err("a constant where a value is needed".into());
        }
        Ok(value)
    }

    fn push(&mut self, op: Op, inputs: Vec<Value>, output: Value) {
        self.makers.insert(output, self.steps.len());
        self.steps.push(Some(Step { op, inputs, output }));
    }

    fn maker(&self, value: Value) -> Option<&Step> {
        self.steps[*self.makers.get(&value)?].as_ref()
    }

    /// The convolution that makes a value which nothing else reads.
    fn own_convolution(&mut self, value: Value) -> Option<&mut Loose> {
        if self.uses[value] != 1 {
            return None;
        }
        match self.steps[*self.makers.get(&value)?].as_mut()? {
            Step { op: Op::Loose(loose), .. } => Some(loose),
            _ => None,
        }
    }

    /// The step that makes `value` makes `output` instead.
    fn rename(&mut self, value: Value, output: Value) {
        if let Some(at) = self.makers.remove(&value) {
            self.makers.insert(output, at);
            if let Some(step) = &mut self.steps[at] {
                step.output = output;
            }
        }
    }

    fn node(&mut self, node: &Node<'a>) -> Attempt<()> {
        let out = match node.outputs[..] {
            [out] => out,
            _ => return Err("more than one output".into()),
        };
        match node.operator {
            "Conv" | "ConvTranspose" => self.convolution(node, out),
            "BatchNormalization" => self.batch_norm(node, out),
            "Gemm" | "MatMul" => self.matrix(node, out),
            "Relu" => self.act(node, out, LooseAct::Slope(vec![0.0])),
            "LeakyRelu" => self.act(node, out, LooseAct::Slope(vec![node.float("alpha", 0.01)])),
            "PRelu" => {
                let slope = self.constant(node, 1).ok_or("it needs a constant there")?;
                let slope = per_channel(slope, false)?;
                self.act(node, out, LooseAct::Slope(slope))
            }
            "HardSwish" => self.act(node, out, LooseAct::HardSwish),
            "Clip" => {
                let bound = |name: &str, at: usize, default: f32| match node.input(at) {
                    None => Ok(node.float(name, default)),
                    Some(_) => self
                        .constant(node, at)
                        .and_then(Constant::scalar)
                        .ok_or("a bound that is not constant"),
                };
                let low = bound("min", 1, f32::MIN)?;
                let act = LooseAct::Clip(low, bound("max", 2, f32::MAX)?);
                self.act(node, out, act)
            }
            "Sigmoid" => self.map(node, out, Map::Sigmoid),
            "Tanh" => self.map(node, out, Map::Tanh),
            "Exp" => self.map(node, out, Map::Exp),
            "Abs" => self.map(node, out, Map::Abs),
            "Sqrt" => self.map(node, out, Map::Sqrt),
            "Neg" => self.map(node, out, Map::Negate),
            "Add" => self.pair(node, out, Pair::Add),
            "Sub" => self.pair(node, out, Pair::Subtract),
            "Mul" => self.pair(node, out, Pair::Multiply),
            "Div" => self.pair(node, out, Pair::Divide),
            "MaxPool" | "AveragePool" => self.pool(node, out),
            "GlobalAveragePool" => self.one(node, out, Op::Mean),
            "ReduceMean" => {
                let axes = node.integers("axes").map(<[i64]>::to_vec);
                let axes = axes.or_else(|| self.integers(node, 1)).unwrap_or_default();
                let plane = axes == [2, 3] || axes == [-2, -1];
                if !plane || node.integer("keepdims", 1) != 1 {
                    return Err("a mean over other axes than rows and columns".into());
                }
                self.one(node, out, Op::Mean)
            }
            "Normalise" => self.one(node, out, Op::Normalise(node.float("epsilon", 1e-5))),
            "InstanceNormalization" => {
                let (scale, shift) = (self.floats(node, 1)?, self.floats(node, 2)?);
                let x = self.value(node, 0)?;
                let between = self.uses.len();
                self.uses.push(1);
                self.push(Op::Normalise(node.float("epsilon", 1e-5)), vec![x], between);
                self.push(Op::Scale(scale, shift), vec![between], out);
                Ok(())
            }
            "Pad" => self.pad(node, out),
            "Resize" => self.resize(node, out),
            "Concat" => {
                let inputs: Attempt<Vec<Value>> =
                    (0..node.inputs.len()).map(|i| self.value(node, i)).collect();
                self.push(Op::Concat(node.integer("axis", 0)), inputs?, out);
                Ok(())
            }
            "Slice" => self.slice(node, out),
            "Reshape" => {
                let shape = self.integers(node, 1).ok_or("a shape that is not constant")?;
                if node.integer("allowzero", 0) != 0 {
                    return Err("zero axes".into());
                }
                self.one(node, out, Op::Reshape(shape))
            }
            "Flatten" => self.one(node, out, Op::Flatten(node.integer("axis", 1))),
            "Unsqueeze" | "Squeeze" => {
                let given = node.integers("axes").map(<[i64]>::to_vec);
                let axes = given.or_else(|| self.integers(node, 1)).ok_or("no axes")?;
                let name = if node.operator == "Squeeze" { "Squeeze" } else { "Unsqueeze" };
                self.one(node, out, Op::Axes(name, axes))
            }
            "Transpose" => {
                let perm = node.integers("perm").ok_or("no order of axes")?;
                let place = |&axis: &i64| usize::try_from(axis).ok().filter(|a| *a < perm.len());
                let perm: Option<Vec<usize>> = perm.iter().map(place).collect();
                self.one(node, out, Op::Transpose(perm.ok_or("a wrong order of axes")?))
            }
            "Softmax" => {
                let default = if self.graph.opset < 13 { 1 } else { -1 };
                self.one(node, out, Op::Softmax(node.integer("axis", default)))
            }
            _ => Err("it is not known here".into()),
        }
    }

    fn one(&mut self, node: &Node<'_>, out: Value, op: Op) -> Attempt<()> {
        let x = self.value(node, 0)?;
        self.push(op, vec![x], out);
        Ok(())
    }

    fn map(&mut self, node: &Node<'_>, out: Value, map: Map) -> Attempt<()> {
        self.one(node, out, Op::Map(map))
    }

    fn act(&mut self, node: &Node<'_>, out: Value, act: LooseAct) -> Attempt<()> {
        let x = self.value(node, 0)?;
        if let Some(loose) = self.own_convolution(x)
            && loose.act == LooseAct::None
            && !loose.after
        {
            if let LooseAct::Slope(slopes) = &act
                && slopes.len() != 1
                && slopes.len() != loose.outputs()
            {
                return Err("slopes of another number than channels".into());
            }
            loose.act = act;
            self.rename(x, out);
            return Ok(());
        }
        self.map(node, out, Map::Act(act))
    }

    fn pool(&mut self, node: &Node<'_>, out: Value) -> Attempt<()> {
        let kernel = sizes(node.integers("kernel_shape"), 1)?;
        let window = window(node, kernel)?;
        if node.integer("ceil_mode", 0) != 0 {
            return Err("sizes that are rounded up".into());
        }
        let pooling = if node.operator == "MaxPool" {
            Pooling::Max
        } else {
            Pooling::Mean { padding: node.integer("count_include_pad", 0) != 0 }
        };
        self.one(node, out, Op::Pool(pooling, window))
    }

    fn pad(&mut self, node: &Node<'_>, out: Value) -> Attempt<()> {
        let given = node.integers("pads").map(<[i64]>::to_vec);
        let pads = given.or_else(|| self.integers(node, 1)).ok_or("pads that are not constant")?;
        let pads: [usize; 8] = sizes(Some(&pads), 0)?;
        let border = match node.text("mode", "constant") {
            "constant" => Border::Zero,
            "reflect" => Border::Reflect,
            "edge" => Border::Edge,
            other => return Err(format!("mode `{other}`")),
        };
        let value = match node.input(2) {
            Some(_) => self.constant(node, 2).and_then(Constant::scalar).ok_or("no value")?,
            None => node.float("value", 0.0),
        };
        let [n0, c0, top, left, n1, channels, bottom, right] = pads;
        if value != 0.0 || n0 + n1 + c0 != 0 || channels > 0 && border != Border::Zero {
            return Err("padding before channels, or of other values than zero".into());
        }
        self.one(node, out, Op::Pad([top, left, bottom, right], channels, border))
    }

    fn resize(&mut self, node: &Node<'_>, out: Value) -> Attempt<()> {
        let centres = node.text("coordinate_transformation_mode", "half_pixel");
        let sampling = match (node.text("mode", "nearest"), centres) {
            ("linear", "half_pixel" | "pytorch_half_pixel") => Sampling::Linear,
            ("linear", "align_corners") => Sampling::LinearCorners,
            ("nearest", "asymmetric") if node.text("nearest_mode", "") == "floor" => {
                Sampling::Nearest
            }
            (mode, centres) => return Err(format!("mode `{mode}` with `{centres}`")),
        };
        let at = if self.graph.opset < 11 { 1 } else { 2 };
        let sizes = match self.constant(node, at).and_then(Constant::as_floats).as_deref() {
            Some(&[n, c, h, w]) if n == 1.0 && c == 1.0 && h > 0.0 && w > 0.0 => {
                Sizes::Scales(h, w)
            }
            Some([]) | None => match self.integers(node, 3).as_deref() {
                Some(&[_, _, h, w]) if (1..=1 << 20).contains(&h) && (1..=1 << 20).contains(&w) => {
                    Sizes::Given(h as usize, w as usize)
                }
                _ => return Err("sizes that are not constant".into()),
            },
            Some(_) => return Err("scales of other axes than rows and columns".into()),
        };
        self.one(node, out, Op::Resize(sizes, sampling))
    }

    fn slice(&mut self, node: &Node<'_>, out: Value) -> Attempt<()> {
        let list = |name: &str, at: usize| {
            node.integers(name).map(<[i64]>::to_vec).or_else(|| self.integers(node, at))
        };
        let (starts, ends) = (list("starts", 1), list("ends", 2));
        let axes = list("axes", 3).unwrap_or_else(|| vec![0]);
        let steps = list("", 4).unwrap_or_else(|| vec![1]);
        match (starts.as_deref(), ends.as_deref(), &axes[..], &steps[..]) {
            (Some(&[start]), Some(&[end]), &[axis], &[1]) => {
                self.one(node, out, Op::Slice { axis, start, end })
            }
            _ => Err("more than one axis, or steps".into()),
        }
    }
}
