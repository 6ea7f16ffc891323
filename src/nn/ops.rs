//! The steps of a compiled model.

use crate::graph::Value;
use crate::simd::Lane;
use crate::simd::chain::Chain;
use crate::simd::dense::{Border, Dense, Window};
use crate::simd::depthwise::Depthwise;
use crate::simd::tile::{Act, Filter, groups};

/// One step: an operator and what it reads and makes.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Value>,
    pub(crate) output: Value,
}

/// How the input of a first convolution lies in the caller's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Blocked,
    /// An input of the model, channel by channel,
    Planar,
    /// or pixel by pixel.
    Interleaved,
}

/// A convolution before its weights are packed: `[out][in / groups][rows][columns]`.
#[derive(Debug, Clone)]
pub(crate) struct Loose {
    pub(crate) weights: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    /// Input channels of one group.
    pub(crate) inputs: usize,
    pub(crate) groups: usize,
    pub(crate) window: Window,
    pub(crate) border: Border,
    pub(crate) act: LooseAct,
    pub(crate) after: bool,
    pub(crate) transposed: bool,
    /// A matrix: its input and output have no rows and columns.
    pub(crate) flat: bool,
}

/// An activation with one slope a channel, or one for all.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LooseAct {
    None,
    Slope(Vec<f32>),
    Clip(f32, f32),
    HardSwish,
}

/// A function of one value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Map {
    Act(LooseAct),
    Sigmoid,
    Tanh,
    Exp,
    Abs,
    Sqrt,
    Negate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pooling {
    Max,
    /// Padding counts, or not.
    Mean {
        padding: bool,
    },
}

/// How `Resize` finds its sizes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sizes {
    Scales(f32, f32),
    Given(usize, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sampling {
    /// Both neighbours, weighed; pixel centres at halves.
    Linear,
    /// The same with corners that meet.
    LinearCorners,
    /// floor(x / scale).
    Nearest,
}

#[derive(Debug)]
pub(crate) enum Op {
    Loose(Box<Loose>),
    Dense(Box<Dense>, Source),
    Depthwise(Box<Depthwise>),
    Chain(Box<Chain>, Source),
    /// A transposed convolution whose windows do not meet: one pointwise one for each place in
    /// the window.
    Spread(Vec<Dense>, Window),
    Pool(Pooling, Window),
    /// The mean over rows and columns.
    Mean,
    Map(Map),
    /// x * scale + shift, per channel or one for all.
    Scale(Vec<f32>, Vec<f32>),
    Pair(Pair),
    Normalise(f32),
    Resize(Sizes, Sampling),
    /// Top, left, bottom, right; channels after.
    Pad([usize; 4], usize, Border),
    Concat(i64),
    Slice {
        axis: i64,
        start: i64,
        end: i64,
    },
    Reshape(Vec<i64>),
    Flatten(i64),
    Axes(&'static str, Vec<i64>),
    Transpose(Vec<usize>),
    Softmax(i64),
}

/// One lane for each block of channels; a single value stands for all.
pub(crate) fn lanes(values: &[f32], channels: usize) -> Vec<Lane> {
    let mut lanes = vec![Lane::ZERO; channels.div_ceil(8)];
    for channel in 0..channels {
        let value = if values.len() == 1 { values[0] } else { values[channel] };
        lanes[channel / 8].0[channel % 8] = value;
    }
    lanes
}

impl LooseAct {
    pub(crate) fn pack(&self, channels: usize) -> Act {
        match self {
            Self::None => Act::None,
            Self::Slope(slopes) => Act::Slope(lanes(slopes, channels)),
            Self::Clip(low, high) => Act::Clip(*low, *high),
            Self::HardSwish => Act::HardSwish,
        }
    }
}

impl Loose {
    pub(crate) fn outputs(&self) -> usize {
        self.bias.len()
    }

    pub(crate) fn is_dense(&self) -> bool {
        self.groups == 1 && !self.transposed
    }

    pub(crate) fn is_depthwise(&self) -> bool {
        self.groups > 1 && !self.transposed
    }

    fn taps(&self) -> usize {
        self.window.kernel.0 * self.window.kernel.1
    }

    fn filter(&self, weights: Vec<Lane>) -> Filter {
        let bias = lanes(&self.bias, self.outputs());
        let outputs = self.outputs();
        Filter { weights, bias, outputs, act: self.act.pack(outputs), after: self.after }
    }

    pub(crate) fn depthwise(&self) -> Depthwise {
        let (channels, taps) = (self.outputs(), self.taps());
        let mut weights = vec![Lane::ZERO; channels.div_ceil(8) * taps];
        for channel in 0..channels {
            for tap in 0..taps {
                let lane = &mut weights[channel / 8 * taps + tap];
                lane.0[channel % 8] = self.weights[channel * taps + tap];
            }
        }
        Depthwise { window: self.window, filter: self.filter(weights) }
    }

    pub(crate) fn dense(&self, source: Source) -> Dense {
        let taps = self.taps();
        let at = |out: usize, input: usize, tap: usize| {
            self.weights[(out * self.inputs + input) * taps + tap]
        };
        let filter = self.filter(self.packed(source, taps, at));
        Dense { window: self.window, border: self.border, filter }
    }

    /// One pointwise convolution for each place in the window of a transposed one, whose weights
    /// are `[in][out][rows][columns]`.
    pub(crate) fn spread(&self) -> Vec<Dense> {
        let (taps, outputs) = (self.taps(), self.outputs());
        let one = |place: usize| {
            let at = |out: usize, input: usize, _: usize| {
                self.weights[(input * outputs + out) * taps + place]
            };
            let filter = self.filter(self.packed(Source::Blocked, 1, at));
            Dense { window: Window::POINT, border: Border::Zero, filter }
        };
        (0..taps).map(one).collect()
    }

    /// Weights in the order in which the tile walks.
    fn packed(
        &self,
        source: Source,
        taps: usize,
        at: impl Fn(usize, usize, usize) -> f32,
    ) -> Vec<Lane> {
        let (inputs, outputs) = (self.inputs, self.outputs());
        let (values, blocks) = (inputs * taps, outputs.div_ceil(8));
        let width = match source {
            Source::Blocked => 8,
            Source::Planar => 1,
            Source::Interleaved => inputs,
        };
        let mut packed = vec![Lane::ZERO; blocks * values];
        for (first, size) in groups(blocks) {
            let group = &mut packed[first * values..][..size * values];
            // Lane by lane in the order of the inputs: eight rows of weights, each from end to end.
            for m in 0..size {
                let from = (first + m) * 8;
                let known = (outputs - from).min(8);
                for begin in (0..inputs).step_by(width) {
                    let together = width.min(inputs - begin);
                    for input in begin..begin + together {
                        for tap in 0..taps {
                            let place = begin * taps + tap * together + input - begin;
                            let lane = &mut group[place * size + m].0;
                            if known == 8 {
                                *lane = std::array::from_fn(|i| at(from + i, input, tap));
                            } else {
                                for (i, value) in lane[..known].iter_mut().enumerate() {
                                    *value = at(from + i, input, tap);
                                }
                            }
                        }
                    }
                }
            }
        }
        packed
    }
}
