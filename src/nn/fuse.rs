//! Packs the weights of each step, and joins convolutions into chains.

use std::collections::BTreeMap;

use crate::graph::{Graph, Value};
use crate::ops::{Loose, Op, Source, Step};
use crate::simd::chain::Chain;
use crate::simd::dense::{Border, Window};

/// How the input of a convolution lies, and which value it is.
fn source(
    steps: &[Option<Step>],
    makers: &BTreeMap<Value, usize>,
    graph: &Graph<'_>,
    x: Value,
) -> (Source, Value) {
    let is_input = |value: Value| graph.inputs.iter().any(|(v, _)| *v == value);
    if is_input(x) {
        return (Source::Planar, x);
    }
    let maker = makers.get(&x).and_then(|&at| steps[at].as_ref());
    match maker {
        Some(Step { op: Op::Transpose(perm), inputs, .. })
            if perm == &[0, 3, 1, 2] && is_input(inputs[0]) =>
        {
            (Source::Interleaved, inputs[0])
        }
        _ => (Source::Blocked, x),
    }
}

/// Most channels that are read pixel by pixel.
const INTERLEAVED: usize = 8;

fn loose(step: &Step) -> Option<&Loose> {
    match &step.op {
        Op::Loose(loose) => Some(loose),
        _ => None,
    }
}

/// The steps with packed weights. Steps whose results nobody reads are dropped.
pub(crate) fn fuse(steps: Vec<Step>, graph: &Graph<'_>) -> Vec<Step> {
    let mut uses: BTreeMap<Value, usize> = BTreeMap::new();
    let read =
        steps.iter().flat_map(|s| s.inputs.iter()).chain(graph.outputs.iter().map(|(v, _)| v));
    read.for_each(|v| *uses.entry(*v).or_default() += 1);
    let makers: BTreeMap<Value, usize> =
        steps.iter().enumerate().map(|(i, step)| (step.output, i)).collect();
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();

    // The convolution alone before each: a chain ends at a pointwise one.
    let alone = |steps: &[Option<Step>], value: Value| {
        let at = *makers.get(&value)?;
        let step = steps[at].as_ref()?;
        let fits = uses.get(&value) == Some(&1) && step.inputs.len() == 1;
        (fits && loose(step).is_some()).then_some(at)
    };
    for at in 0..steps.len() {
        let chain = || {
            let narrow = steps[at].as_ref()?;
            let wanted = |l: &Loose| l.is_dense() && l.window == Window::POINT;
            loose(narrow).filter(|l| wanted(l))?;
            let middle = alone(&steps, narrow.inputs[0])?;
            let filter = steps[middle].as_ref()?;
            loose(filter).filter(|l| l.is_depthwise() && l.border == Border::Zero)?;
            let first = alone(&steps, filter.inputs[0])
                .filter(|&at| steps[at].as_ref().and_then(loose).is_some_and(Loose::is_dense));
            Some((middle, first))
        };
        let Some((middle, first)) = chain() else { continue };
        let x = match first {
            Some(first) => steps[first].as_ref().map(|s| s.inputs[0]),
            None => steps[middle].as_ref().map(|s| s.inputs[0]),
        };
        let Some(x) = x else { continue };
        let (mut from, mut value) = source(&steps, &makers, graph, x);
        let wide = first.and_then(|f| steps[f].take());
        let wide = wide.as_ref().and_then(loose);
        if wide.is_none()
            || from == Source::Interleaved && wide.is_some_and(|l| l.inputs > INTERLEAVED)
        {
            (from, value) = (Source::Blocked, x);
        }
        let filter = steps[middle].take();
        let Some(filter) = filter.as_ref().and_then(loose) else { continue };
        let Some(step) = steps[at].as_mut() else { continue };
        let Op::Loose(narrow) = &step.op else { continue };
        let chain = Chain {
            widen: wide.map(|l| l.dense(from)),
            depthwise: filter.depthwise(),
            narrow: narrow.dense(Source::Blocked),
            channels: filter.outputs(),
        };
        step.op = Op::Chain(Box::new(chain), from);
        step.inputs[0] = value;
    }
    for at in 0..steps.len() {
        let Some((loose, x)) = steps[at].as_ref().and_then(|s| Some((loose(s)?, s.inputs[0])))
        else {
            continue;
        };
        let (op, value) = if loose.transposed {
            (Op::Spread(loose.spread(), loose.window), x)
        } else if loose.is_depthwise() {
            (Op::Depthwise(Box::new(loose.depthwise())), x)
        } else {
            let (mut from, mut value) = source(&steps, &makers, graph, x);
            if from == Source::Interleaved && loose.inputs > INTERLEAVED {
                (from, value) = (Source::Blocked, x);
            }
            (Op::Dense(Box::new(loose.dense(from)), from), value)
        };
        if let Some(step) = steps[at].as_mut() {
            step.op = op;
            step.inputs[0] = value;
        }
    }
    drop_unused(steps.into_iter().flatten().collect(), graph)
}

fn drop_unused(steps: Vec<Step>, graph: &Graph<'_>) -> Vec<Step> {
    let mut used: std::collections::BTreeSet<Value> =
        graph.outputs.iter().map(|(v, _)| *v).collect();
    let mut kept = Vec::with_capacity(steps.len());
    for step in steps.into_iter().rev() {
        if used.contains(&step.output) {
            used.extend(step.inputs.iter().copied());
            kept.push(step);
        }
    }
    kept.reverse();
    kept
}
