//! Runs a plan, task by task.

use crate::errors::{Error, Result};
use crate::layout;
use crate::ops::{Op, Step};
use crate::plan::{Piece, Place, Plan, Task, What, view};
use crate::pointwise::{self, Right};
use crate::shapes::{self, scales};
use crate::simd::bands::{Residual, With};
use crate::simd::dense::{self, Image};
use crate::simd::team::Team;
use crate::simd::{Lane, Level, chain, depthwise, floats, floats_mut, spread};
use crate::spatial;

/// What a task reads and writes.
struct Operands<'a> {
    /// Plain order or the floats of blocks.
    x: &'a [f32],
    /// The second input; `None` where there is none or it lies in place.
    second: Option<&'a [Lane]>,
    /// The first input lies in place: `y` holds it.
    first_in_place: bool,
    second_in_place: bool,
    y: &'a mut [Lane],
}

fn misfit() -> Error {
    Error::unsupported("a plan whose parts overlap")
}

fn range(piece: &Piece) -> std::ops::Range<usize> {
    match piece.place {
        Place::Memory(at) => at..at + piece.lanes(),
        Place::Input(_) => 0..0,
    }
}

/// Runs all tasks.
pub(crate) fn run(
    plan: &Plan,
    steps: &[Step],
    inputs: &[&[f32]],
    memory: &mut [Lane],
    (level, team): (Level, &Team),
) -> Result<()> {
    for task in &plan.tasks {
        if let What::Step(at) = task.what
            && let Op::Concat(along) = steps[at].op
        {
            concat(plan, task, along, inputs, memory)?;
            continue;
        }
        let pieces: [Option<&Piece>; 2] =
            [0, 1].map(|i| task.inputs.get(i).map(|&p| &plan.pieces[p]));
        let same = task.inputs.get(1) == task.inputs.first();
        let output = &plan.pieces[task.output];
        let part = |i: usize| {
            let idle = task.in_place == Some(i) || i == 1 && same;
            pieces[i].filter(|_| !idle).map_or(0..0, range)
        };
        let scratch = task.scratch.0..task.scratch.0 + task.scratch.1;
        let parts = [part(0), part(1), range(output), scratch];
        let [x, second, y, scratch] = memory.get_disjoint_mut(parts).map_err(|_| misfit())?;
        let first = pieces[0].ok_or_else(misfit)?;
        let x: &[f32] = match first.place {
            Place::Input(i) => inputs.get(i).ok_or_else(misfit)?,
            Place::Memory(_) => floats(x),
        };
        let has_second = pieces[1].is_some() && !same && task.in_place != Some(1);
        let mut operands = Operands {
            x,
            second: has_second.then_some(&*second),
            first_in_place: task.in_place == Some(0),
            second_in_place: task.in_place == Some(1),
            y,
        };
        match task.what {
            What::Block => {
                let [n, c, h, w] = first.image();
                layout::block(x, operands.y, (n, c), h * w);
            }
            What::Plain => {
                let [n, c, h, w] = first.image();
                let (to, length) = (floats_mut(operands.y), n * c * h * w);
                layout::plain(lanes_of(x), &mut to[..length], (n, c), h * w);
            }
            What::Copy => floats_mut(operands.y)[..x.len()].copy_from_slice(x),
            What::Step(at) => {
                let mut with = With { level, team, scratch };
                step(&steps[at].op, &mut with, (first, pieces[1]), output, &mut operands)?;
            }
        }
    }
    Ok(())
}

fn residual<'a>(operands: &Operands<'a>, piece: Option<&Piece>) -> Residual<'a> {
    let Some(piece) = piece else { return Residual::None };
    let blocks = piece.image()[1].div_ceil(8);
    match operands.second {
        Some(lanes) => Residual::Other(lanes, blocks),
        None if operands.second_in_place => Residual::InPlace(blocks),
        // What is convolved is added, too.
        None => Residual::Other(lanes_of(operands.x), blocks),
    }
}

fn step(
    op: &Op,
    with: &mut With<'_>,
    (first, second): (&Piece, Option<&Piece>),
    output: &Piece,
    operands: &mut Operands<'_>,
) -> Result<()> {
    let [n, c, h, w] = first.image();
    let [_, oc, oh, ow] = output.image();
    let (from, to) = ((h, w), (oh, ow));
    let added = residual(operands, second);
    let images =
        |image: Image<'_>, number: usize| -> usize { number * (image.data.len() / n.max(1)) };
    match op {
        Op::Dense(..) | Op::Chain(..) | Op::Depthwise(_) | Op::Spread(..) => {
            let source = match op {
                Op::Dense(_, from) | Op::Chain(_, from) => *from,
                _ => crate::ops::Source::Blocked,
            };
            let whole = view(operands.x, &first.shape, source).map_err(Error::unsupported)?;
            for number in 0..n {
                let image = Image { data: &operands.x[images(whole, number)..], ..whole };
                let y = &mut *operands.y;
                match op {
                    Op::Dense(dense, _) => dense::convolve(with, dense, &image, number, y, added),
                    Op::Chain(chain, _) => chain::convolve(with, chain, &image, number, y, added),
                    Op::Depthwise(filter) => {
                        depthwise::convolve(with, filter, &image, number, y, added);
                    }
                    Op::Spread(places, window) => {
                        spread::convolve(with, places, window.kernel, &image, number, y, added);
                    }
                    _ => {}
                }
            }
        }
        Op::Pool(pooling, window) => {
            spatial::pool(*pooling, window, lanes_of(operands.x), operands.y, from, to);
        }
        Op::Mean => spatial::mean(lanes_of(operands.x), operands.y, h * w),
        Op::Map(map) => {
            copy_first(operands);
            match pointwise::slopes(map) {
                Some(slopes) => pointwise::slope(operands.y, slopes, c.div_ceil(8), h * w),
                None => pointwise::map(map, floats_mut(operands.y)),
            }
            if output.blocked {
                pointwise::clear_unused(operands.y, c, h * w);
            }
        }
        Op::Scale(by, plus) => {
            copy_first(operands);
            let (blocks, pixels) =
                if output.blocked { (c.div_ceil(8), h * w) } else { (1, operands.y.len()) };
            pointwise::scale(operands.y, (by, plus), blocks, pixels.max(1));
            if output.blocked {
                pointwise::clear_unused(operands.y, c, h * w);
            }
        }
        Op::Pair(pair) => {
            let second = second.unwrap_or(first);
            two(*pair, first, second, output, operands);
            if output.blocked {
                pointwise::clear_unused(operands.y, oc, oh * ow);
            }
        }
        Op::Normalise(epsilon) => {
            copy_first(operands);
            spatial::normalise(operands.y, h * w, *epsilon);
        }
        Op::Resize(sizes, sampling) => {
            let by = scales(sizes, from);
            spatial::resize(*sampling, by, lanes_of(operands.x), operands.y, from, to);
        }
        Op::Pad(pads, _, border) => {
            let (each, made) = (c.div_ceil(8) * h * w, oc.div_ceil(8) * oh * ow);
            let x = lanes_of(operands.x);
            for (from_image, to_image) in
                x.chunks_exact(each).zip(operands.y.chunks_exact_mut(made))
            {
                spatial::pad(*pads, *border, from_image, to_image, from, to);
            }
        }
        Op::Slice { axis, start, end } => {
            let along = shapes::axis(*axis, first.shape.len()).map_err(Error::unsupported)?;
            let (start, length) = shapes::slice(*start, *end, first.shape[along]);
            if output.blocked {
                let (each, made) = (c.div_ceil(8) * h * w, oc.div_ceil(8) * h * w);
                let x = lanes_of(operands.x);
                for (x, y) in x.chunks_exact(each).zip(operands.y.chunks_exact_mut(made)) {
                    layout::channels(x, y, (start, 0, length), h * w);
                }
                pointwise::clear_unused(operands.y, oc, h * w);
            } else {
                let outer: usize = first.shape[..along].iter().product();
                let inner: usize = first.shape[along + 1..].iter().product();
                let whole = first.shape[along] * inner;
                let to = floats_mut(operands.y);
                for part in 0..outer {
                    let from = &operands.x[part * whole + start * inner..][..length * inner];
                    to[part * length * inner..][..length * inner].copy_from_slice(from);
                }
            }
        }
        Op::Transpose(perm) => {
            let length: usize = output.shape.iter().product();
            let to = &mut floats_mut(operands.y)[..length];
            layout::transpose(operands.x, to, &first.shape, perm);
        }
        Op::Softmax(_) => {
            copy_first(operands);
            let length: usize = output.shape.iter().product();
            let row = output.shape.last().copied().unwrap_or(1);
            pointwise::softmax(&mut floats_mut(operands.y)[..length], row);
        }
        Op::Concat(_) | Op::Reshape(_) | Op::Flatten(_) | Op::Axes(..) | Op::Loose(_) => {}
    }
    Ok(())
}

/// The floats of blocks, as blocks. What is here came from lanes.
fn lanes_of(x: &[f32]) -> &[Lane] {
    crate::simd::lanes(x)
}

/// For what works in place: brings the first input there, if it is elsewhere.
fn copy_first(operands: &mut Operands<'_>) {
    if !operands.first_in_place {
        let to = floats_mut(operands.y);
        let length = operands.x.len().min(to.len());
        to[..length].copy_from_slice(&operands.x[..length]);
    }
}

fn two(
    pair: crate::ops::Pair,
    first: &Piece,
    second: &Piece,
    output: &Piece,
    operands: &mut Operands<'_>,
) {
    let pixels: usize = output.shape.iter().skip(2).product();
    let each = first.shape == second.shape;
    // What has the output's shape stands on the left, unless the other is in place.
    let first_is_whole = first.shape == output.shape;
    let second_left = operands.second_in_place || !first_is_whole;
    let right = |lanes| if each { Right::Each(lanes) } else { Right::Channel(lanes, pixels) };
    if second_left {
        if let (false, Some(lanes)) = (operands.second_in_place, operands.second) {
            operands.y.copy_from_slice(lanes);
        }
        pointwise::pair(pair, true, operands.y, right(lanes_of(operands.x)));
        return;
    }
    copy_first(operands);
    match operands.second {
        Some(lanes) => pointwise::pair(pair, false, operands.y, right(lanes)),
        // A value with itself.
        None => pointwise::pair(pair, false, operands.y, right(lanes_of(operands.x))),
    }
}

fn concat(
    plan: &Plan,
    task: &Task,
    along: i64,
    inputs: &[&[f32]],
    memory: &mut [Lane],
) -> Result<()> {
    let output = &plan.pieces[task.output];
    let along = shapes::axis(along, output.shape.len()).map_err(Error::unsupported)?;
    let outer: usize = output.shape[..along].iter().product();
    let inner: usize = output.shape[along + 1..].iter().product();
    let mut at = 0;
    for &input in &task.inputs {
        let piece = &plan.pieces[input];
        let [x, y] =
            memory.get_disjoint_mut([range(piece), range(output)]).map_err(|_| misfit())?;
        let length = piece.shape[along];
        if output.blocked {
            let ([n, c, h, w], [_, oc, ..]) = (piece.image(), output.image());
            let (each, made) = (c.div_ceil(8) * h * w, oc.div_ceil(8) * h * w);
            for image in 0..n {
                let (x, y) = (&x[image * each..][..each], &mut y[image * made..][..made]);
                layout::channels(x, y, (0, at, length), h * w);
            }
            pointwise::clear_unused(y, oc, h * w);
        } else {
            let from = match piece.place {
                Place::Input(i) => inputs.get(i).ok_or_else(misfit)?,
                Place::Memory(_) => floats(x),
            };
            let to = &mut floats_mut(y)[at * inner..];
            layout::place(from, to, outer, length * inner, output.shape[along] * inner);
        }
        at += length;
    }
    Ok(())
}
