//! The fallback and the oracle: a model on rten, which knows more operators than our engine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rten::{ModelOptions, NodeId, OpRegistry, RunOptions, ThreadPool, Value, ValueOrView};
use rten_tensor::{Layout, TensorView};

use crate::tensor::Tensor;

/// A model on rten, which holds one f32 copy of the weights; the file's bytes are freed.
pub(super) struct Rten {
    model: rten::Model,
    pool: Arc<ThreadPool>,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
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

impl Rten {
    /// Loads a file. `inputs` and `outputs` are places in its lists, `ports` how many there are.
    pub(super) fn load(
        bytes: Vec<u8>,
        pool: Arc<ThreadPool>,
        (inputs, outputs): (&[usize], &[usize]),
        ports: (usize, usize),
    ) -> std::result::Result<Self, String> {
        // Weights are folded inside rten at this point, on a pool of its own: see `Cpu::new`.
        let model = catch_unwind(AssertUnwindSafe(|| {
            let options = ModelOptions::with_ops(operators());
            options.load(bytes).map_err(|error| chain(&error))
        }))
        .unwrap_or_else(|panic| Err(panic_text(&*panic)))?;
        if (model.input_ids().len(), model.output_ids().len()) != ports {
            return Err("the runtime reads other ports than the file declares".into());
        }
        let inputs = inputs.iter().map(|&at| model.input_ids()[at]).collect();
        let outputs = outputs.iter().map(|&at| model.output_ids()[at]).collect();
        Ok(Self { model, pool, inputs, outputs })
    }

    /// Runs it; `None` for an output that is not of floats.
    pub(super) fn run(
        &self,
        inputs: &[&Tensor],
    ) -> std::result::Result<Vec<Option<Tensor>>, String> {
        let answers = catch_unwind(AssertUnwindSafe(|| {
            let given = self.inputs.iter().zip(inputs).map(|(node, tensor)| {
                let view = TensorView::from_data(&tensor.shape[..], &tensor.data[..]);
                (*node, ValueOrView::from(view))
            });
            let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.pool)));
            let run = self.model.run(given.collect(), &self.outputs, Some(options));
            run.map_err(|error| chain(&error))
        }))
        .unwrap_or_else(|panic| Err(panic_text(&*panic)))?;
        let floats = |value: Value| match value {
            Value::FloatTensor(tensor) => {
                let shape = tensor.shape().to_vec();
                Some(Tensor { shape, data: tensor.into_data() })
            }
            _ => None,
        };
        Ok(answers.into_iter().map(floats).collect())
    }
}
