//! One model on rten: loaded from bytes, checked against its contract, and every run checked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mien_base::limits::MODEL_FILE;
use rten::{ModelOptions, NodeId, OpRegistry, RunOptions, ThreadPool, Value, ValueOrView};
use rten_tensor::{Layout, TensorView};

use crate::backend;
use crate::contract::{Contract, Dim, Port};
use crate::onnx::{self, Declared};
use crate::tensor::{Tensor, all_finite, values};
use crate::{Error, Result};

/// A loaded model. rten holds one f32 copy of the weights; the file's bytes are freed.
pub struct Session {
    name: String,
    model: rten::Model,
    pool: Arc<ThreadPool>,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    declared_inputs: Vec<Port>,
    declared_outputs: Vec<Port>,
}

/// Where a port of the contract is in the graph, and what is checked there at each run.
struct Slot {
    node: NodeId,
    port: Port,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = (&self.declared_inputs, &self.declared_outputs);
        f.debug_struct("Session").field("model", &self.name).field("ports", &shown).finish()
    }
}

/// The operators that face networks are made of. No control flow, sequences or generators of
/// noise: what is not here is refused at load.
fn operators() -> OpRegistry {
    rten::op_registry!(
        Abs,
        Add,
        And,
        ArgMax,
        ArgMin,
        AveragePool,
        BatchNormalization,
        Cast,
        Ceil,
        Clip,
        Concat,
        ConstantOfShape,
        Conv,
        ConvInteger,
        ConvTranspose,
        Cos,
        CumSum,
        DepthToSpace,
        DequantizeLinear,
        Div,
        DynamicQuantizeLinear,
        Einsum,
        Elu,
        Equal,
        Erf,
        Exp,
        Expand,
        Flatten,
        Floor,
        Gather,
        GatherElements,
        GatherND,
        Gelu,
        Gemm,
        GlobalAveragePool,
        Greater,
        GreaterOrEqual,
        GridSample,
        HardSigmoid,
        HardSwish,
        Identity,
        InstanceNormalization,
        LayerNormalization,
        LeakyRelu,
        Less,
        LessOrEqual,
        Log,
        LogSoftmax,
        LpNormalization,
        MatMul,
        MatMulInteger,
        Max,
        MaxPool,
        Mean,
        Min,
        Mod,
        Mul,
        Neg,
        NonMaxSuppression,
        NonZero,
        Not,
        OneHot,
        Or,
        Pad,
        Pow,
        PRelu,
        QuantizeLinear,
        Range,
        Reciprocal,
        ReduceL2,
        ReduceMax,
        ReduceMean,
        ReduceMin,
        ReduceProd,
        ReduceSum,
        ReduceSumSquare,
        Relu,
        Reshape,
        Resize,
        Round,
        ScatterElements,
        ScatterND,
        Shape,
        Sigmoid,
        Sign,
        Sin,
        Size,
        Slice,
        Softmax,
        Softplus,
        Softsign,
        Split,
        Sqrt,
        Squeeze,
        Sub,
        Sum,
        Tanh,
        Tile,
        TopK,
        Transpose,
        Unsqueeze,
        Upsample,
        Where
    )
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the runtime panicked: {}", text.unwrap_or("without a word"))
}

/// Every inner cause of an error in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn shown(shape: &[Dim]) -> String {
    let dims: Vec<_> = shape.iter().map(Dim::to_string).collect();
    format!("[{}]", dims.join(","))
}

/// Pairs the ports that a contract asks for with those a file declares, by name or position.
fn pair<'a>(
    side: &str,
    wanted: &[Port],
    declared: &'a [Declared],
) -> std::result::Result<Vec<(usize, &'a Declared, Port)>, String> {
    let all: Vec<Port>;
    let wanted = if wanted.is_empty() {
        all = vec![Port { name: String::new(), shape: Vec::new() }; declared.len()];
        &all
    } else {
        wanted
    };
    let mut pairs: Vec<(usize, &Declared, Port)> = Vec::with_capacity(wanted.len());
    for (position, port) in wanted.iter().enumerate() {
        let at = if port.name.is_empty() {
            (position < declared.len()).then_some(position)
        } else {
            declared.iter().position(|d| d.name == port.name)
        };
        let names = || declared.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
        let at = at.ok_or_else(|| {
            format!("{side} {position} `{}` is missing; it has: {}", port.name, names())
        })?;
        if pairs.iter().any(|(taken, ..)| *taken == at) {
            return Err(format!("{side} `{}` is asked for twice", declared[at].name));
        }
        let found = &declared[at];
        if !found.is_float() {
            return Err(format!(
                "{side} `{}` has the element type {}, only floats are supported",
                found.name, found.element
            ));
        }
        if let Some(shape) = &found.shape
            && !port.meets(shape)
        {
            return Err(format!(
                "{side} `{}` has the shape {} where {} is needed",
                found.name,
                shown(shape),
                shown(&port.shape)
            ));
        }
        pairs.push((at, found, Port { name: found.name.clone(), shape: port.shape.clone() }));
    }
    Ok(pairs)
}

fn declared_port(declared: &Declared) -> Port {
    Port { name: declared.name.clone(), shape: declared.shape.clone().unwrap_or_default() }
}

impl Session {
    pub(super) fn load(
        name: &str,
        contract: &Contract,
        bytes: Vec<u8>,
        pool: Arc<ThreadPool>,
    ) -> Result<Self> {
        let load = |detail: String| Error::Load { model: name.to_owned(), detail };
        let broken = |detail: String| Error::Contract { model: name.to_owned(), detail };
        if bytes.len() as u64 > MODEL_FILE {
            return Err(load(format!("{} bytes are more than {MODEL_FILE}", bytes.len())));
        }
        let facts = onnx::facts(&bytes).map_err(load)?;
        if !contract.inputs.is_empty() && contract.inputs.len() != facts.inputs.len() {
            let (has, needs) = (facts.inputs.len(), contract.inputs.len());
            return Err(broken(format!("it has {has} inputs where {needs} are needed")));
        }
        let inputs = pair("Input", &contract.inputs, &facts.inputs).map_err(broken)?;
        let outputs = pair("Output", &contract.outputs, &facts.outputs).map_err(broken)?;

        // Weights are folded inside rten at this point, on a pool of its own: see `Cpu::new`.
        let model = catch_unwind(AssertUnwindSafe(|| {
            let options = ModelOptions::with_ops(operators());
            options.load(bytes).map_err(|error| chain(&error))
        }))
        .unwrap_or_else(|panic| Err(panic_text(&*panic)))
        .map_err(load)?;
        if model.input_ids().len() != facts.inputs.len()
            || model.output_ids().len() != facts.outputs.len()
        {
            return Err(load("the runtime reads other ports than the file declares".into()));
        }
        let slot =
            |ids: &[NodeId], at: usize, port: &Port| Slot { node: ids[at], port: port.clone() };
        Ok(Self {
            name: name.to_owned(),
            inputs: inputs.iter().map(|(at, _, p)| slot(model.input_ids(), *at, p)).collect(),
            outputs: outputs.iter().map(|(at, _, p)| slot(model.output_ids(), *at, p)).collect(),
            declared_inputs: inputs.iter().map(|(_, d, _)| declared_port(d)).collect(),
            declared_outputs: outputs.iter().map(|(_, d, _)| declared_port(d)).collect(),
            model,
            pool,
        })
    }

    fn run_error(&self, detail: String) -> Error {
        Error::Run { model: self.name.clone(), detail }
    }

    fn check_input(&self, slot: &Slot, tensor: &Tensor) -> Result<()> {
        if !tensor.is_whole() {
            return Err(self.run_error(format!(
                "input `{}` says {:?} and holds {} values",
                slot.port.name,
                tensor.shape,
                tensor.data.len()
            )));
        }
        if !slot.port.admits(&tensor.shape) {
            return Err(Error::Contract {
                model: self.name.clone(),
                detail: format!(
                    "input `{}` is given {:?} where {} is needed",
                    slot.port.name,
                    tensor.shape,
                    shown(&slot.port.shape)
                ),
            });
        }
        Ok(())
    }

    fn check_output(&self, slot: &Slot, value: Value) -> Result<Tensor> {
        let broken = |detail: String| Error::Contract { model: self.name.clone(), detail };
        let Value::FloatTensor(tensor) = value else {
            return Err(broken(format!("output `{}` is not float", slot.port.name)));
        };
        let shape = tensor.shape().to_vec();
        if values(&shape).is_none() || !slot.port.admits(&shape) {
            return Err(broken(format!(
                "output `{}` has the shape {shape:?} where {} is needed",
                slot.port.name,
                shown(&slot.port.shape)
            )));
        }
        let data = tensor.into_data();
        if !all_finite(&data) {
            let (model, output) = (self.name.clone(), slot.port.name.clone());
            return Err(Error::NotFinite { model, output });
        }
        Ok(Tensor { shape, data })
    }
}

impl backend::Session for Session {
    type Tensor = Tensor;

    fn run(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        if inputs.len() != self.inputs.len() {
            let (given, needed) = (inputs.len(), self.inputs.len());
            return Err(
                self.run_error(format!("{given} inputs are given where {needed} are needed"))
            );
        }
        for (slot, tensor) in self.inputs.iter().zip(inputs) {
            self.check_input(slot, tensor)?;
        }
        let nodes: Vec<NodeId> = self.outputs.iter().map(|slot| slot.node).collect();
        let answers = catch_unwind(AssertUnwindSafe(|| {
            let given = self.inputs.iter().zip(inputs).map(|(slot, tensor)| {
                let view = TensorView::from_data(&tensor.shape[..], &tensor.data[..]);
                (slot.node, ValueOrView::from(view))
            });
            let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.pool)));
            self.model.run(given.collect(), &nodes, Some(options)).map_err(|error| chain(&error))
        }))
        .unwrap_or_else(|panic| Err(panic_text(&*panic)))
        .map_err(|detail| self.run_error(detail))?;
        if answers.len() != self.outputs.len() {
            return Err(self.run_error(format!("it gave {} outputs", answers.len())));
        }
        let checked = self.outputs.iter().zip(answers);
        checked.map(|(slot, value)| self.check_output(slot, value)).collect()
    }

    fn inputs(&self) -> &[Port] {
        &self.declared_inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.declared_outputs
    }
}
