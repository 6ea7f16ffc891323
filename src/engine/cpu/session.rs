//! One model on our engine, or on rten where ours refuses it: loaded from bytes, checked against
//! its contract, and every run checked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use mien_base::limits::MODEL_FILE;
use mien_nn::{Input, Memory, Network, Output, Team};
use rten::ThreadPool;

use super::rten::{Rten, panic_text};
use crate::backend;
use crate::contract::{Contract, Dim, Port};
use crate::onnx::{self, Declared};
use crate::tensor::{Tensor, all_finite, values};
use crate::{Error, Result};

/// What sessions of one backend run on.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) pool: Arc<ThreadPool>,
    pub(super) team: Arc<Team>,
    /// One for each run at a time; what a run leaves, the next takes, of whichever session.
    pub(super) memory: Arc<Mutex<Vec<Memory>>>,
    /// Run every model on rten.
    pub(super) only_rten: bool,
}

enum Runtime {
    Ours {
        network: Box<Network>,
        /// Which of the session's inputs each of the network's is.
        order: Vec<usize>,
        shared: Shared,
    },
    Rten(Box<Rten>),
}

/// A loaded model. Its weights are held once, as f32; the file's bytes are freed.
pub struct Session {
    name: String,
    runtime: Runtime,
    checked_inputs: Vec<Port>,
    checked_outputs: Vec<Port>,
    declared_inputs: Vec<Port>,
    declared_outputs: Vec<Port>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = (&self.declared_inputs, &self.declared_outputs);
        let runtime = match self.runtime {
            Runtime::Ours { .. } => "ours",
            Runtime::Rten(_) => "rten",
        };
        f.debug_struct("Session")
            .field("model", &self.name)
            .field("runtime", &runtime)
            .field("ports", &shown)
            .finish()
    }
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

/// A shape to try a model with: what it or its contract says, and something small for the rest.
fn trial(declared: &Port, port: &Port) -> Option<Vec<usize>> {
    let rank = declared.shape.len().max(port.shape.len());
    let fixed = |shape: &[Dim], axis: usize| match shape.get(axis) {
        Some(Dim::Fixed(size)) => Some(*size),
        _ => None,
    };
    let size = |axis: usize| {
        let small = if axis == 0 { 1 } else { 64 };
        fixed(&port.shape, axis).or_else(|| fixed(&declared.shape, axis)).unwrap_or(small)
    };
    (rank > 0).then(|| (0..rank).map(size).collect())
}

/// The model on our engine, tried with shapes that fit; an error says why it goes to rten.
fn ours(
    bytes: &[u8],
    (inputs, shapes): (&[usize], &[Option<Vec<usize>>]),
    outputs: &[usize],
) -> std::result::Result<(Network, Vec<usize>), String> {
    let compile = || {
        let network = Network::compile(bytes, outputs).map_err(|e| e.to_string())?;
        let place = |i: usize| inputs.iter().position(|&at| at == i);
        let order: Option<Vec<usize>> = (0..inputs.len()).map(place).collect();
        let order = order.ok_or("an input is missing")?;
        let shape = |&at: &usize| shapes[at].as_deref().ok_or("an input declares no shape");
        let shapes = order.iter().map(shape).collect::<std::result::Result<Vec<_>, _>>()?;
        network.try_shapes(&shapes).map_err(|e| e.to_string())?;
        Ok((network, order))
    };
    catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|panic| Err(panic_text(&*panic)))
}

impl Session {
    pub(super) fn load(
        name: &str,
        contract: &Contract,
        bytes: &[u8],
        shared: &Shared,
    ) -> Result<Self> {
        let load = |detail: String| Error::Load { model: name.to_owned(), detail };
        let broken = |detail: String| Error::Contract { model: name.to_owned(), detail };
        if bytes.len() as u64 > MODEL_FILE {
            return Err(load(format!("{} bytes are more than {MODEL_FILE}", bytes.len())));
        }
        let facts = onnx::facts(bytes).map_err(load)?;
        if !contract.inputs.is_empty() && contract.inputs.len() != facts.inputs.len() {
            let (has, needs) = (facts.inputs.len(), contract.inputs.len());
            return Err(broken(format!("it has {has} inputs where {needs} are needed")));
        }
        let inputs = pair("Input", &contract.inputs, &facts.inputs).map_err(broken)?;
        let outputs = pair("Output", &contract.outputs, &facts.outputs).map_err(broken)?;
        let declared_inputs: Vec<Port> = inputs.iter().map(|(_, d, _)| declared_port(d)).collect();
        let places = |pairs: &[(usize, &Declared, Port)]| -> Vec<usize> {
            pairs.iter().map(|(at, ..)| *at).collect()
        };
        let (from, to) = (places(&inputs), places(&outputs));
        let shapes: Vec<_> =
            declared_inputs.iter().zip(&inputs).map(|(d, (_, _, p))| trial(d, p)).collect();
        let compiled = if shared.only_rten {
            Err("rten is asked for".to_owned())
        } else {
            ours(bytes, (&from, &shapes), &to)
        };
        let runtime = match compiled {
            Ok((network, order)) => {
                Runtime::Ours { network: Box::new(network), order, shared: shared.clone() }
            }
            Err(_) => {
                let pool = Arc::clone(&shared.pool);
                let ports = (facts.inputs.len(), facts.outputs.len());
                let rten = Rten::load(bytes.to_vec(), pool, (&from, &to), ports).map_err(load)?;
                Runtime::Rten(Box::new(rten))
            }
        };
        Ok(Self {
            name: name.to_owned(),
            runtime,
            declared_outputs: outputs.iter().map(|(_, d, _)| declared_port(d)).collect(),
            declared_inputs,
            checked_inputs: inputs.into_iter().map(|(_, _, port)| port).collect(),
            checked_outputs: outputs.into_iter().map(|(_, _, port)| port).collect(),
        })
    }

    /// True when our engine runs it, and not the fallback.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.runtime, Runtime::Ours { .. })
    }

    fn run_error(&self, detail: String) -> Error {
        Error::Run { model: self.name.clone(), detail }
    }

    fn check_input(&self, port: &Port, tensor: &Tensor) -> Result<()> {
        if !tensor.is_whole() {
            return Err(self.run_error(format!(
                "input `{}` says {:?} and holds {} values",
                port.name,
                tensor.shape,
                tensor.data.len()
            )));
        }
        if !port.admits(&tensor.shape) {
            return Err(Error::Contract {
                model: self.name.clone(),
                detail: format!(
                    "input `{}` is given {:?} where {} is needed",
                    port.name,
                    tensor.shape,
                    shown(&port.shape)
                ),
            });
        }
        Ok(())
    }

    fn check_output(&self, port: &Port, tensor: Option<Tensor>) -> Result<Tensor> {
        let broken = |detail: String| Error::Contract { model: self.name.clone(), detail };
        let Some(tensor) = tensor else {
            return Err(broken(format!("output `{}` is not float", port.name)));
        };
        if values(&tensor.shape).is_none() || !port.admits(&tensor.shape) {
            return Err(broken(format!(
                "output `{}` has the shape {:?} where {} is needed",
                port.name,
                tensor.shape,
                shown(&port.shape)
            )));
        }
        if !all_finite(&tensor.data) {
            let (model, output) = (self.name.clone(), port.name.clone());
            return Err(Error::NotFinite { model, output });
        }
        Ok(tensor)
    }
}

/// Runs our engine in memory that other runs have used.
fn run_ours(
    network: &mut Network,
    (shared, order): (&Shared, &[usize]),
    inputs: &[&Tensor],
    outputs: usize,
) -> std::result::Result<Vec<Option<Tensor>>, String> {
    let kept = || shared.memory.lock().unwrap_or_else(PoisonError::into_inner);
    let mut memory = kept().pop().unwrap_or_default();
    let given: Vec<Input<'_>> = order
        .iter()
        .map(|&at| Input { shape: &inputs[at].shape, values: &inputs[at].data })
        .collect();
    let mut out = vec![Output::default(); outputs];
    let run = || network.run(&shared.team, &mut memory, &given, &mut out);
    let ran = catch_unwind(AssertUnwindSafe(run));
    kept().push(memory);
    match ran {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(error.to_string()),
        Err(panic) => return Err(panic_text(&*panic)),
    }
    let tensor = |output: Output| Some(Tensor { shape: output.shape, data: output.values });
    Ok(out.into_iter().map(tensor).collect())
}

impl backend::Session for Session {
    type Tensor = Tensor;

    fn run(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        if inputs.len() != self.checked_inputs.len() {
            let (given, needed) = (inputs.len(), self.checked_inputs.len());
            return Err(
                self.run_error(format!("{given} inputs are given where {needed} are needed"))
            );
        }
        for (port, tensor) in self.checked_inputs.iter().zip(inputs) {
            self.check_input(port, tensor)?;
        }
        let answers = match &mut self.runtime {
            Runtime::Ours { network, order, shared } => {
                run_ours(network, (shared, order), inputs, self.checked_outputs.len())
            }
            Runtime::Rten(rten) => rten.run(inputs),
        };
        let answers = answers.map_err(|detail| self.run_error(detail))?;
        if answers.len() != self.checked_outputs.len() {
            return Err(self.run_error(format!("it gave {} outputs", answers.len())));
        }
        let checked = self.checked_outputs.iter().zip(answers);
        checked.map(|(port, value)| self.check_output(port, value)).collect()
    }

    fn inputs(&self) -> &[Port] {
        &self.declared_inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.declared_outputs
    }
}
