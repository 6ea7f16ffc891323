//! A model for inputs of known shapes: what runs on which memory, in which order.

use std::collections::BTreeMap;

use crate::errors::{Error, Result};
use crate::graph::Value;
use crate::ops::{Map, Op, Source, Step};
use crate::shapes::{Shape, axis, four, image, output, values};
use crate::simd::dense::{Image, convolve_scratch};

/// Most lanes of memory that a plan may ask for (2 GiB).
const MEMORY: usize = 64 << 20;

/// A tensor in memory.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) shape: Shape,
    /// In blocks of eight channels, or in plain order.
    pub(crate) blocked: bool,
    pub(crate) place: Place,
    /// The piece whose memory this is.
    root: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The caller's.
    Input(usize),
    /// From this lane on.
    Memory(usize),
}

impl Piece {
    /// Batch, channels, rows and columns; the builder makes sure that there are such.
    pub(crate) fn image(&self) -> [usize; 4] {
        four(&self.shape).unwrap_or([1, self.shape.iter().product(), 1, 1])
    }

    pub(crate) fn lanes(&self) -> usize {
        if self.blocked {
            let [n, c, h, w] = self.image();
            n * c.div_ceil(8) * h * w
        } else {
            self.shape.iter().product::<usize>().div_ceil(8)
        }
    }
}

/// One thing to do.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) what: What,
    pub(crate) inputs: Vec<usize>,
    pub(crate) output: usize,
    /// This input lies where the output will.
    pub(crate) in_place: Option<usize>,
    /// First lane and number of lanes.
    pub(crate) scratch: (usize, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Step(usize),
    /// From plain order to blocks, and back.
    Block,
    Plain,
    /// The caller's values, where their own memory does not do.
    Copy,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) outputs: Vec<usize>,
    /// Lanes of memory.
    pub(crate) memory: usize,
}

struct Builder<'a> {
    steps: &'a [Step],
    threads: usize,
    pieces: Vec<Piece>,
    tasks: Vec<Task>,
    values: BTreeMap<Value, usize>,
    /// The other layout of a piece, where it was made.
    converted: BTreeMap<usize, usize>,
}

type Attempt<T> = std::result::Result<T, String>;

impl Plan {
    pub(crate) fn new(
        steps: &[Step],
        (inputs, outputs): (&[Value], &[Value]),
        shapes: &[&[usize]],
        threads: usize,
    ) -> Result<Self> {
        let mut builder = Builder {
            steps,
            threads,
            pieces: Vec::new(),
            tasks: Vec::new(),
            values: BTreeMap::new(),
            converted: BTreeMap::new(),
        };
        for (i, (&value, shape)) in inputs.iter().zip(shapes).enumerate() {
            values(shape).map_err(|detail| Error::Input { detail })?;
            let root = builder.pieces.len();
            let (shape, place) = (shape.to_vec(), Place::Input(i));
            builder.pieces.push(Piece { shape, blocked: false, place, root });
            builder.values.insert(value, root);
        }
        for (at, step) in steps.iter().enumerate() {
            builder
                .step(at, step)
                .map_err(|why| Error::unsupported(format!("step {at} meets {why}")))?;
        }
        let found = |v| builder.values.get(v).copied();
        let outputs: Option<Vec<usize>> = outputs.iter().map(found).collect();
        let outputs = outputs.ok_or_else(|| Error::unsupported("an output that is constant"))?;
        builder.finish(outputs)
    }
}

impl Builder<'_> {
    fn piece(&mut self, shape: Shape, blocked: bool) -> usize {
        let root = self.pieces.len();
        self.pieces.push(Piece { shape, blocked, place: Place::Memory(0), root });
        root
    }

    fn task(&mut self, what: What, inputs: Vec<usize>, output: usize, scratch: usize) {
        let scratch = (0, scratch);
        self.tasks.push(Task { what, inputs, output, in_place: None, scratch });
    }

    /// The same tensor in the other layout.
    fn as_layout(&mut self, piece: usize, blocked: bool) -> Attempt<usize> {
        if self.pieces[piece].blocked == blocked {
            return Ok(piece);
        }
        if let Some(&known) = self.converted.get(&piece) {
            return Ok(known);
        }
        if blocked {
            image(&self.pieces[piece].shape)?;
        }
        let made = self.piece(self.pieces[piece].shape.clone(), blocked);
        self.task(if blocked { What::Block } else { What::Plain }, vec![piece], made, 0);
        self.converted.insert(piece, made);
        Ok(made)
    }

    /// The same tensor in memory of ours.
    fn owned(&mut self, piece: usize) -> usize {
        if matches!(self.pieces[piece].place, Place::Memory(_)) {
            return piece;
        }
        let made = self.piece(self.pieces[piece].shape.clone(), false);
        self.task(What::Copy, vec![piece], made, 0);
        made
    }

    /// The same memory under another shape.
    fn alias(&mut self, piece: usize, shape: Shape) -> usize {
        let Piece { blocked, place, root, .. } = self.pieces[piece];
        self.pieces.push(Piece { shape, blocked, place, root });
        self.pieces.len() - 1
    }

    fn step(&mut self, at: usize, step: &Step) -> Attempt<()> {
        let found = |v: &Value| self.values.get(v).copied().ok_or("a value that is not made");
        let mut inputs =
            step.inputs.iter().map(found).collect::<std::result::Result<Vec<_>, _>>()?;
        let shapes: Vec<&[usize]> = inputs.iter().map(|&i| &self.pieces[i].shape[..]).collect();
        let shape = output(&step.op, &shapes)?;
        let rank = shapes[0].len();
        let blocked = match &step.op {
            Op::Dense(_, from) | Op::Chain(_, from) => {
                if *from == Source::Blocked {
                    inputs[0] = self.as_layout(inputs[0], true)?;
                } else if !matches!(self.pieces[inputs[0]].place, Place::Input(_)) {
                    return Err("an input that moved".into());
                }
                self.residual(&mut inputs, &shape)?;
                true
            }
            Op::Depthwise(_) | Op::Spread(..) => {
                inputs[0] = self.as_layout(inputs[0], true)?;
                self.residual(&mut inputs, &shape)?;
                true
            }
            Op::Map(map) => {
                // Few channels leave most of a block unused, and these functions are costly.
                let few = four(&shape).is_some_and(|s| s[1] <= 4) && !matches!(map, Map::Act(_));
                if few {
                    inputs[0] = self.as_layout(inputs[0], false)?;
                }
                let blocked = self.pieces[inputs[0]].blocked;
                let per_channel = crate::pointwise::slopes(map).is_some();
                if per_channel {
                    let slopes = crate::pointwise::slopes(map).map_or(0, <[f32]>::len);
                    if image(&shape)?[1] != slopes {
                        return Err("slopes of another number than channels".into());
                    }
                    inputs[0] = self.as_layout(inputs[0], true)?;
                }
                blocked || per_channel
            }
            Op::Scale(by, plus) if by.len().max(plus.len()) == 1 => self.pieces[inputs[0]].blocked,
            Op::Pool(..)
            | Op::Mean
            | Op::Normalise(_)
            | Op::Scale(..)
            | Op::Resize(..)
            | Op::Pad(..) => {
                inputs[0] = self.as_layout(inputs[0], true)?;
                true
            }
            Op::Pair(_) => {
                let same = self.pieces[inputs[0]].shape == self.pieces[inputs[1]].shape;
                let blocked = !same || inputs.iter().any(|&i| self.pieces[i].blocked);
                let itself = inputs[0] == inputs[1];
                for input in &mut inputs {
                    let laid = self.as_layout(*input, blocked)?;
                    *input = self.owned(laid);
                }
                if itself {
                    inputs[1] = inputs[0];
                }
                blocked
            }
            Op::Concat(along) | Op::Slice { axis: along, .. } => {
                let blocked = rank == 4 && axis(*along, rank)? == 1;
                for input in &mut inputs {
                    *input = self.as_layout(*input, blocked)?;
                }
                blocked
            }
            Op::Reshape(_) | Op::Flatten(_) | Op::Axes(..) => {
                let piece = inputs[0];
                let from = &self.pieces[piece];
                let point = |s: &[usize]| image(s).ok().filter(|s| s[2..] == [1, 1]);
                let stays =
                    from.blocked && point(&shape).is_some() && point(&shape) == point(&from.shape);
                let piece = if stays { piece } else { self.as_layout(piece, false)? };
                let made = self.alias(piece, shape);
                self.values.insert(step.output, made);
                return Ok(());
            }
            Op::Transpose(_) => {
                inputs[0] = self.as_layout(inputs[0], false)?;
                false
            }
            Op::Softmax(along) => {
                if axis(*along, rank)? + 1 != rank {
                    return Err("a softmax over another axis than the last".into());
                }
                inputs[0] = self.as_layout(inputs[0], false)?;
                false
            }
            Op::Loose(_) => return Err("weights that are not packed".into()),
        };
        let scratch = self.scratch(&step.op, inputs[0])?;
        let made = self.piece(shape, blocked);
        self.task(What::Step(at), inputs, made, scratch);
        self.values.insert(step.output, made);
        Ok(())
    }

    /// A residual has the output's shape, with as many channels or fewer.
    fn residual(&mut self, inputs: &mut [usize], shape: &[usize]) -> Attempt<()> {
        let Some(residual) = inputs.get_mut(1) else { return Ok(()) };
        let ([n, c, h, w], of) = (image(shape)?, image(&self.pieces[*residual].shape)?);
        if of[0] != n || of[1] > c || of[2..] != [h, w] {
            return Err(format!("the shapes {shape:?} and {of:?}"));
        }
        *residual = self.as_layout(*residual, true)?;
        Ok(())
    }

    fn scratch(&self, op: &Op, x: usize) -> Attempt<usize> {
        let (Op::Dense(_, from) | Op::Chain(_, from)) = op else { return Ok(0) };
        let image = view(&[], &self.pieces[x].shape, *from)?;
        Ok(match op {
            Op::Dense(dense, _) => convolve_scratch(dense, &image, self.threads),
            Op::Chain(chain, _) => chain.scratch(&image, self.threads),
            _ => 0,
        })
    }

    /// Finds which results may lie on what they are made of, and where everything lies.
    fn finish(mut self, outputs: Vec<usize>) -> Result<Plan> {
        let end = self.tasks.len();
        let mut last = vec![0; self.pieces.len()];
        let mut first = vec![end; self.pieces.len()];
        for (at, task) in self.tasks.iter().enumerate() {
            for &piece in task.inputs.iter().chain([&task.output]) {
                let root = self.pieces[piece].root;
                last[root] = at;
                first[root] = first[root].min(at);
            }
        }
        for &piece in &outputs {
            last[self.pieces[piece].root] = end;
        }
        for at in 0..end {
            let output = self.tasks[at].output;
            let candidates: &[usize] = match self.tasks[at].what {
                What::Step(step) => match self.steps[step].op {
                    Op::Dense(..) | Op::Chain(..) | Op::Depthwise(_) | Op::Spread(..) => &[1],
                    Op::Map(_) | Op::Scale(..) | Op::Normalise(_) | Op::Softmax(_) => &[0],
                    Op::Pair(_) => &[0, 1],
                    _ => &[],
                },
                _ => &[],
            };
            let inputs = &self.tasks[at].inputs;
            let root = |i: usize| self.pieces[inputs[i]].root;
            let fits = |&&i: &&usize| {
                let Some(&piece) = inputs.get(i) else { return false };
                let (of, to) = (&self.pieces[piece], &self.pieces[output]);
                let alone = (0..inputs.len()).all(|j| j == i || root(j) != root(i));
                let memory = matches!(self.pieces[root(i)].place, Place::Memory(_));
                memory
                    && alone
                    && last[root(i)] == at
                    && of.lanes() == to.lanes()
                    && of.blocked == to.blocked
                    && self.pieces[root(i)].lanes() == to.lanes()
            };
            let Some(&place) = candidates.iter().find(fits) else { continue };
            let (from, old) = (root(place), self.pieces[output].root);
            last[from] = last[old];
            for piece in &mut self.pieces {
                if piece.root == old {
                    piece.root = from;
                }
            }
            self.tasks[at].in_place = Some(place);
        }
        self.place(&first, &last, outputs)
    }

    /// Largest first, each at the lowest place that is free while it lives.
    fn place(mut self, first: &[usize], last: &[usize], outputs: Vec<usize>) -> Result<Plan> {
        struct Block {
            lanes: usize,
            life: (usize, usize),
            at: usize,
            whose: Whose,
        }
        #[derive(Clone, Copy)]
        enum Whose {
            Piece(usize),
            Task(usize),
        }
        let mut blocks = Vec::new();
        for (i, piece) in self.pieces.iter().enumerate() {
            let owns = piece.root == i && matches!(piece.place, Place::Memory(_));
            if owns && first[i] <= last[i] {
                let (lanes, life) = (piece.lanes(), (first[i], last[i]));
                blocks.push(Block { lanes, life, at: 0, whose: Whose::Piece(i) });
            }
        }
        for (i, task) in self.tasks.iter().enumerate().filter(|(_, t)| t.scratch.1 > 0) {
            let (lanes, life) = (task.scratch.1, (i, i));
            blocks.push(Block { lanes, life, at: 0, whose: Whose::Task(i) });
        }
        blocks.sort_by_key(|b| std::cmp::Reverse(b.lanes));
        let mut memory = 0;
        for i in 0..blocks.len() {
            let (done, rest) = blocks.split_at_mut(i);
            let block = &mut rest[0];
            let mut taken: Vec<(usize, usize)> = done
                .iter()
                .filter(|b| b.life.0 <= block.life.1 && block.life.0 <= b.life.1)
                .map(|b| (b.at, b.at + b.lanes))
                .collect();
            taken.sort_unstable();
            for (begin, end) in taken {
                if block.at + block.lanes <= begin {
                    break;
                }
                block.at = block.at.max(end);
            }
            memory = memory.max(block.at + block.lanes);
        }
        if memory > MEMORY {
            return Err(Error::Input { detail: format!("they need {} MiB", memory >> 15) });
        }
        for block in &blocks {
            match block.whose {
                Whose::Piece(i) => self.pieces[i].place = Place::Memory(block.at),
                Whose::Task(i) => self.tasks[i].scratch.0 = block.at,
            }
        }
        for i in 0..self.pieces.len() {
            self.pieces[i].place = self.pieces[self.pieces[i].root].place;
        }
        Ok(Plan { pieces: self.pieces, tasks: self.tasks, outputs, memory })
    }
}

/// One image of a tensor as a convolution sees it.
pub(crate) fn view<'a>(data: &'a [f32], shape: &[usize], from: Source) -> Attempt<Image<'a>> {
    let [_, b, c, d] = image(shape)?;
    Ok(match from {
        Source::Blocked => Image::blocked(data, b, (c, d)),
        Source::Planar => Image::planar(data, b, (c, d)),
        Source::Interleaved => Image::interleaved(data, d, (b, c)),
    })
}
