//! A compiled model: runs on inputs of any shape that it was made for.

use crate::errors::{Error, Result};
use crate::fuse::fuse;
use crate::graph::{Graph, INPUTS, Value};
use crate::layout;
use crate::lower::lower;
use crate::ops::Step;
use crate::plan::{Place, Plan};
use crate::run;
use crate::simd::team::Team;
use crate::simd::{Lane, Level, floats};

/// Most plans that a network keeps: one for each set of input shapes, the latest first.
const PLANS: usize = 4;

/// Most steps of a model: planning grows with their square.
const STEPS: usize = 4096;

/// An input: its shape and its values in row-major order.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub shape: &'a [usize],
    pub values: &'a [f32],
}

/// An output; its memory is used again by the next run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// The memory of a run, which networks share one after the other. It grows to what the largest
/// plan needs.
#[derive(Debug, Default)]
pub struct Memory(Vec<Lane>);

impl Memory {
    /// Bytes that are held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Lane>()
    }
}

/// A compiled model. It holds its weights, packed, and nothing of the file.
pub struct Network {
    steps: Vec<Step>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    level: Level,
    plans: Vec<(Vec<Vec<usize>>, usize, Plan)>,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network")
            .field("steps", &self.steps.len())
            .field("level", &self.level.name())
            .finish_non_exhaustive()
    }
}

impl Network {
    /// Compiles an ONNX file. `outputs` are places in the file's list of outputs, in the order in
    /// which they are given; only what they need is computed.
    ///
    /// # Errors
    /// `Damaged`, or `Unsupported` where another runtime may know more.
    pub fn compile(bytes: &[u8], outputs: &[usize]) -> Result<Self> {
        let graph = Graph::read(bytes, outputs)?;
        let steps = fuse(lower(&graph)?, &graph);
        if steps.len() > STEPS {
            return Err(Error::unsupported(format!("{} steps", steps.len())));
        }
        Ok(Self {
            steps,
            inputs: graph.inputs.iter().map(|(v, _)| *v).collect(),
            outputs: graph.outputs.iter().map(|(v, _)| *v).collect(),
            level: Level::best(),
            plans: Vec::new(),
        })
    }

    /// Uses these instructions: for comparisons.
    #[must_use]
    pub fn at_level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Finds the plan for these shapes, or makes it; the latest stands first.
    fn plan(&mut self, inputs: &[Input<'_>], threads: usize) -> Result<()> {
        if inputs.len() != self.inputs.len() {
            let (given, needed) = (inputs.len(), self.inputs.len());
            let detail = format!("{given} are given where {needed} are needed");
            return Err(Error::Input { detail });
        }
        let fits = |(shapes, made_for, _): &(Vec<Vec<usize>>, usize, Plan)| {
            *made_for == threads && shapes.iter().zip(inputs).all(|(s, i)| s == i.shape)
        };
        match self.plans.iter().position(fits) {
            Some(at) => self.plans[..=at].rotate_right(1),
            None => {
                let shapes: Vec<&[usize]> = inputs.iter().map(|i| i.shape).collect();
                let ports = (&self.inputs[..], &self.outputs[..]);
                let plan = Plan::new(&self.steps, ports, &shapes, threads)?;
                let shapes = inputs.iter().map(|i| i.shape.to_vec()).collect();
                self.plans.truncate(PLANS - 1);
                self.plans.insert(0, (shapes, threads, plan));
            }
        }
        Ok(())
    }

    /// True when inputs of these shapes can be run.
    ///
    /// # Errors
    /// `Input`, `Unsupported`.
    pub fn try_shapes(&self, shapes: &[&[usize]]) -> Result<()> {
        let ports = (&self.inputs[..], &self.outputs[..]);
        if shapes.len() != self.inputs.len() {
            return Err(Error::Input { detail: "their number is wrong".into() });
        }
        Plan::new(&self.steps, ports, shapes, 1).map(|_| ())
    }

    /// Bytes of memory that a run on inputs of the latest shapes needs.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.plans.first().map_or(0, |(_, _, plan)| plan.memory * size_of::<Lane>())
    }

    /// Runs the model. With shapes seen lately, and outputs and memory that were used before,
    /// nothing is allocated.
    ///
    /// # Errors
    /// `Input`, `Unsupported`.
    pub fn run(
        &mut self,
        team: &Team,
        memory: &mut Memory,
        inputs: &[Input<'_>],
        outputs: &mut [Output],
    ) -> Result<()> {
        for input in inputs {
            if input.shape.iter().product::<usize>() != input.values.len() {
                let detail =
                    format!("{:?} does not hold {} values", input.shape, input.values.len());
                return Err(Error::Input { detail });
            }
        }
        if outputs.len() != self.outputs.len() {
            return Err(Error::Input { detail: "there is room for other outputs".into() });
        }
        self.plan(inputs, team.threads())?;
        let Some((_, _, plan)) = self.plans.first() else { return Ok(()) };
        if memory.0.len() < plan.memory {
            memory.0 = Vec::new();
            memory.0.resize(plan.memory, Lane::ZERO);
        }
        let mut values: [&[f32]; INPUTS] = [&[]; INPUTS];
        for (value, input) in values.iter_mut().zip(inputs) {
            *value = input.values;
        }
        run::run(plan, &self.steps, &values, &mut memory.0, (self.level, team))?;
        for (&piece, output) in plan.outputs.iter().zip(outputs) {
            let piece = &plan.pieces[piece];
            let length = piece.shape.iter().product();
            output.shape.clear();
            output.shape.extend_from_slice(&piece.shape);
            output.values.resize(length, 0.0);
            match piece.place {
                Place::Input(i) => output.values.copy_from_slice(values[i]),
                Place::Memory(at) => {
                    let lanes = &memory.0[at..at + piece.lanes()];
                    if piece.blocked {
                        let [n, c, h, w] = piece.image();
                        layout::plain(lanes, &mut output.values, (n, c), h * w);
                    } else {
                        output.values.copy_from_slice(&floats(lanes)[..length]);
                    }
                }
            }
        }
        Ok(())
    }
}
