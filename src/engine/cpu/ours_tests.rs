//! Each operator on our engine gives what rten gives, at every level and number of threads.

use mien_nn::{Input, Level, Memory, Network, Output, Team};

use super::tests::{difference, load};
use super::{Cpu, Session};
use crate::backend::Session as _;
use crate::made::{Attribute, Model};
use crate::tensor::Tensor;

use Attribute::{Float, Int, Ints, Text};

/// Values between -1 and 1 that repeat nowhere soon; another seed, others.
fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 331 + 13) % 1009) as f32 / 504.5 - 1.0).collect()
}

fn tensor(shape: &[usize], seed: usize) -> Tensor {
    Tensor { shape: shape.to_vec(), data: values(shape.iter().product(), seed) }
}

/// A model in the making, its last value and that value's channels.
struct Made {
    model: Model,
    last: String,
    channels: usize,
    count: usize,
}

#[derive(Clone, Copy)]
struct Conv {
    to: usize,
    kernel: usize,
    stride: i64,
    pads: [i64; 4],
    dilation: i64,
    depthwise: bool,
}

const fn conv(to: usize, kernel: usize, stride: i64, pads: [i64; 4]) -> Conv {
    Conv { to, kernel, stride, pads, dilation: 1, depthwise: false }
}

const fn depthwise(kernel: usize, stride: i64, pads: [i64; 4]) -> Conv {
    Conv { to: 0, kernel, stride, pads, dilation: 1, depthwise: true }
}

impl Made {
    fn new(shape: &[usize]) -> Self {
        let model = Model::new().input("x", shape);
        Self { model, last: "x".into(), channels: shape[1], count: 0 }
    }

    fn name(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}{}", self.count)
    }

    fn node(mut self, operator: &str, more: &[&str], attributes: &[Attribute<'_>]) -> Self {
        let out = self.name("v");
        let inputs: Vec<&str> =
            std::iter::once(&self.last[..]).chain(more.iter().copied()).collect();
        self.model = self.model.node(operator, &inputs, &[&out], attributes);
        self.last = out;
        self
    }

    fn weight(&mut self, shape: &[usize], scale: f32) -> String {
        let name = self.name("w");
        let data = values(shape.iter().product(), self.count);
        let data: Vec<f32> = data.iter().map(|v| v * scale).collect();
        self.model = std::mem::take(&mut self.model).weight(&name, shape, &data);
        name
    }

    fn integers(&mut self, list: &[i64]) -> String {
        let name = self.name("i");
        self.model = std::mem::take(&mut self.model).integers(&name, list);
        name
    }

    fn conv(mut self, conv: Conv) -> Self {
        let (to, each) = if conv.depthwise { (self.channels, 1) } else { (conv.to, self.channels) };
        let k = conv.kernel;
        let w = self.weight(&[to, each, k, k], 1.0 / (each as f32).sqrt());
        let b = self.weight(&[to], 1.0);
        let kernel = [k as i64; 2];
        self.node(
            "Conv",
            &[&w, &b],
            &[
                Ints("kernel_shape", &kernel),
                Ints("strides", &[conv.stride; 2]),
                Ints("dilations", &[conv.dilation; 2]),
                Ints("pads", &conv.pads),
                Int("group", if conv.depthwise { to as i64 } else { 1 }),
            ],
        )
        .with_channels(to)
    }

    fn with_channels(mut self, channels: usize) -> Self {
        self.channels = channels;
        self
    }

    fn relu(self) -> Self {
        self.node("Relu", &[], &[])
    }

    fn prelu(mut self) -> Self {
        let slope = self.weight(&[self.channels, 1, 1], 0.5);
        self.node("PRelu", &[&slope], &[])
    }

    fn pad(mut self, pads: [i64; 4], channels: i64, mode: &str) -> Self {
        let [top, left, bottom, right] = pads;
        let list = self.integers(&[0, 0, top, left, 0, channels, bottom, right]);
        let channels = self.channels + channels as usize;
        self.node("Pad", &[&list], &[Text("mode", mode)]).with_channels(channels)
    }

    fn bytes(self) -> Vec<u8> {
        self.model.node("Identity", &[&self.last], &["out"], &[]).output("out", &[]).bytes()
    }
}

fn at_level(level: Level, bytes: &[u8], x: &[Tensor]) -> Tensor {
    let mut network = Network::compile(bytes, &[0]).unwrap().at_level(level);
    let inputs: Vec<_> = x.iter().map(|x| Input { shape: &x.shape, values: &x.data }).collect();
    let mut out = [Output::default()];
    network.run(&Team::new(1), &mut Memory::default(), &inputs, &mut out).unwrap();
    let [Output { shape, values }] = out;
    Tensor { shape, data: values }
}

fn check_inputs(what: &str, bytes: &[u8], x: &[Tensor]) {
    let run = |mut session: Session| {
        let x: Vec<&Tensor> = x.iter().collect();
        session.run(&x).unwrap().remove(0)
    };
    let right = run(load(&Cpu::on_rten(1), bytes).unwrap());
    let one = load(&Cpu::new(1), bytes).unwrap();
    assert!(one.is_ours(), "{what}: {:?}", Network::compile(bytes, &[0]).map(|_| ()));
    let one = run(one);
    let off = difference(&one, &right);
    assert!(off < 2e-5, "{what}: {off}");
    assert!(right.data.iter().any(|v| *v != right.data[0]) || right.data.len() == 1, "{what}");
    let three = run(load(&Cpu::new(3), bytes).unwrap());
    assert!(one == three, "{what} differs between one thread and three");
    let plain = at_level(Level::PLAIN, bytes, x);
    let off = difference(&plain, &right);
    assert!(off < 2e-5, "{what} in plain code: {off}");
}

fn check(what: &str, made: Made, shape: &[usize]) {
    check_inputs(what, &made.bytes(), &[tensor(shape, 1)]);
}

#[test]
fn convolutions_of_every_shape() {
    let kinds = [
        conv(5, 3, 1, [1, 1, 1, 1]),
        conv(24, 1, 1, [0; 4]),
        conv(40, 1, 2, [0; 4]),
        conv(8, 3, 2, [0, 0, 1, 1]),
        conv(17, 5, 2, [1, 2, 3, 0]),
        conv(3, 7, 1, [3; 4]),
        conv(9, 2, 3, [0; 4]),
        Conv { dilation: 2, ..conv(16, 3, 1, [2; 4]) },
    ];
    for (i, kind) in kinds.into_iter().enumerate() {
        for shape in [[1, 3, 19, 23], [2, 8, 9, 40], [1, 13, 12, 7]] {
            check(&format!("of the input {i} {shape:?}"), Made::new(&shape).conv(kind), &shape);
            let made = Made::new(&shape).node("Sigmoid", &[], &[]).conv(kind).relu();
            check(&format!("within {i} {shape:?}"), made, &shape);
        }
    }
    // Wide enough for several threads, and for a thousand channels.
    let shape = [1, 32, 60, 60];
    check("on threads", Made::new(&shape).conv(conv(64, 3, 1, [1; 4])), &shape);
    check("wide", Made::new(&[1, 300, 3, 3]).conv(conv(1000, 3, 3, [0; 4])), &[1, 300, 3, 3]);
}

#[test]
fn depthwise_convolutions_of_every_shape() {
    let kinds = [
        depthwise(3, 1, [1; 4]),
        depthwise(3, 2, [0, 0, 1, 1]),
        depthwise(5, 1, [2; 4]),
        depthwise(5, 2, [1, 1, 2, 2]),
        depthwise(7, 1, [0; 4]),
        depthwise(2, 2, [0; 4]),
        Conv { dilation: 3, ..depthwise(3, 1, [3; 4]) },
    ];
    for (i, kind) in kinds.into_iter().enumerate() {
        for shape in [[1, 8, 19, 23], [2, 13, 7, 8], [1, 40, 9, 100]] {
            check(&format!("{i} {shape:?}"), Made::new(&shape).conv(kind).prelu(), &shape);
        }
    }
    check("small", Made::new(&[1, 16, 3, 3]).conv(depthwise(5, 1, [2; 4])), &[1, 16, 3, 3]);
}

#[test]
fn chains_with_and_without_widening_and_sums() {
    for (wide, narrow) in [(24, 16), (13, 5), (96, 24), (72, 36)] {
        for (i, filter) in [
            depthwise(3, 1, [1; 4]),
            depthwise(3, 2, [1; 4]),
            depthwise(5, 2, [1, 1, 2, 2]),
            depthwise(3, 1, [0; 4]),
        ]
        .into_iter()
        .enumerate()
        {
            let shape = [2, 16, 21, 26];
            let what = format!("{wide} {narrow} {i}");
            let made = Made::new(&shape).conv(conv(wide, 1, 1, [0; 4])).relu();
            let made = made.conv(filter).prelu().conv(conv(narrow, 1, 1, [0; 4]));
            check(&format!("of the input {what}"), made, &shape);
            let made = Made::new(&shape).conv(conv(wide, 3, 2, [1; 4])).node("HardSwish", &[], &[]);
            let made = made.conv(filter).conv(conv(narrow, 1, 1, [0; 4])).relu();
            check(&format!("of a picture {what}"), made, &shape);
            let made = Made::new(&shape).node("Tanh", &[], &[]).conv(filter).relu();
            check(&format!("without {what}"), made.conv(conv(narrow, 1, 1, [0; 4])), &shape);
        }
    }
    // Many rows, so that the ring turns several times, on several threads.
    let shape = [1, 8, 200, 50];
    let made = Made::new(&shape).conv(conv(64, 1, 1, [0; 4])).relu().conv(depthwise(3, 1, [1; 4]));
    check("long", made.relu().conv(conv(16, 1, 1, [0; 4])), &shape);
}

#[test]
fn sums_before_and_after_activations() {
    let shape = [1, 16, 10, 11];
    for after in [false, true] {
        for itself in [false, true] {
            let mut made = Made::new(&shape).conv(conv(16, 3, 1, [1; 4])).relu();
            let first = made.last.clone();
            if !itself {
                made = made.node("Tanh", &[], &[]);
            }
            made = made.conv(conv(24, 1, 1, [0; 4])).relu().conv(depthwise(3, 1, [1; 4])).relu();
            made = made.conv(conv(16, 1, 1, [0; 4]));
            if after {
                made = made.prelu().node("Add", &[&first], &[]);
            } else {
                made = made.node("Add", &[&first], &[]).prelu();
            }
            check(&format!("{after} {itself}"), made.conv(conv(8, 1, 1, [0; 4])), &shape);
        }
    }
    // A sum with fewer channels, and one that comes later than the convolution.
    let mut made = Made::new(&shape).conv(conv(12, 1, 1, [0; 4])).relu();
    let first = made.last.clone();
    made = made.conv(depthwise(3, 2, [0, 0, 1, 1])).conv(conv(20, 1, 1, [0; 4]));
    let second = made.last.clone();
    made.last = first;
    let pool = [Ints("kernel_shape", &[2, 2]), Ints("strides", &[2, 2]), Ints("pads", &[0; 4])];
    made = made.with_channels(12).node("MaxPool", &[], &pool).pad([0; 4], 8, "constant");
    check("padded", made.node("Add", &[&second], &[]).relu(), &shape);
}

#[test]
fn what_is_folded_into_convolutions() {
    let shape = [1, 6, 12, 13];
    for border in ["constant", "reflect", "edge"] {
        let made = Made::new(&shape).pad([1, 2, 3, 2], 0, border).conv(conv(9, 3, 1, [0; 4]));
        check(border, made, &shape);
        let made = Made::new(&shape).pad([1, 2, 3, 2], 0, border).node("Tanh", &[], &[]);
        check(&format!("{border} alone"), made, &shape);
    }
    let norm = |mut made: Made| {
        let of = [made.channels];
        let [a, b, c] = [1.0, 1.0, 1.0].map(|s| made.weight(&of, s));
        let name = made.name("w");
        let variance: Vec<f32> = values(of[0], 9).iter().map(|v| v.abs() + 0.1).collect();
        made.model = made.model.weight(&name, &of, &variance);
        made.node("BatchNormalization", &[&a, &b, &c, &name], &[Float("epsilon", 1e-3)])
    };
    check("norm after", norm(Made::new(&shape).conv(conv(10, 3, 1, [1; 4]))).relu(), &shape);
    check("norm alone", norm(Made::new(&shape).node("Tanh", &[], &[])), &shape);
    let mut made = Made::new(&shape);
    let (by, plus) = (made.weight(&[1, 6, 1, 1], 1.0), made.weight(&[1], 1.0));
    let made = made.node("Sub", &[&by], &[]).node("Mul", &[&plus], &[]);
    check("factors before", made.conv(conv(10, 3, 2, [0; 4])), &shape);
    let made = norm(Made::new(&shape).node("Abs", &[], &[]).conv(conv(7, 1, 1, [0; 4])));
    let mut made = made.node("Clip", &[], &[]);
    let w = made.weight(&[7, 3, 2, 2], 1.0);
    let attributes = [
        Ints("kernel_shape", &[2, 2]),
        Ints("strides", &[2, 2]),
        Ints("dilations", &[1, 1]),
        Ints("pads", &[0; 4]),
    ];
    let made = made.node("ConvTranspose", &[&w], &attributes).with_channels(3);
    check("transposed", norm(made).relu(), &shape);
}

#[test]
fn pixels_together_are_read_as_they_lie() {
    for channels in [3, 4, 20] {
        let shape = [2, 15, 17, channels];
        let made = Made::new(&shape).node("Transpose", &[], &[Ints("perm", &[0, 3, 1, 2])]);
        let made = made.with_channels(channels).conv(conv(12, 5, 2, [2, 2, 1, 1])).relu();
        check(&format!("{channels} channels"), made, &shape);
    }
}

#[test]
fn pools_means_and_sizes() {
    let shape = [2, 13, 14, 15];
    for (kernel, stride, pads) in
        [([2, 2], [2, 2], [0; 4]), ([3, 3], [2, 2], [1; 4]), ([3, 2], [1, 3], [0, 0, 1, 1])]
    {
        let window = [Ints("kernel_shape", &kernel), Ints("strides", &stride), Ints("pads", &pads)];
        for operator in ["MaxPool", "AveragePool"] {
            check(operator, Made::new(&shape).node(operator, &[], &window), &shape);
        }
    }
    check("mean", Made::new(&shape).node("GlobalAveragePool", &[], &[]), &shape);
    for (sizes, mode, centres) in [
        ([2, 13, 28, 30], "linear", "half_pixel"),
        ([2, 13, 9, 31], "linear", "half_pixel"),
        ([2, 13, 20, 21], "linear", "align_corners"),
        ([2, 13, 28, 45], "nearest", "asymmetric"),
    ] {
        let mut made = Made::new(&shape);
        let sizes = made.integers(&sizes);
        let made = made.node(
            "Resize",
            &["", "", &sizes],
            &[
                Text("mode", mode),
                Text("coordinate_transformation_mode", centres),
                Text("nearest_mode", "floor"),
            ],
        );
        check(&format!("{mode} {centres}"), made, &shape);
    }
}

#[test]
fn functions_and_pairs() {
    let shape = [2, 11, 6, 7];
    for operator in ["Sigmoid", "Tanh", "Exp", "Abs", "Neg", "HardSwish", "LeakyRelu"] {
        check(operator, Made::new(&shape).node(operator, &[], &[]), &shape);
        let made = Made::new(&shape).conv(conv(9, 1, 1, [0; 4])).node(operator, &[], &[]);
        check(operator, made.conv(conv(5, 1, 1, [0; 4])), &shape);
    }
    check("roots", Made::new(&shape).node("Abs", &[], &[]).node("Sqrt", &[], &[]), &shape);
    for operator in ["Add", "Sub", "Mul", "Div"] {
        // With itself, with a tensor of its shape, and with one value a channel, on either side.
        let made = Made::new(&shape).node("Exp", &[], &[]);
        let exp = made.last.clone();
        check(operator, made.node("Exp", &[], &[]).node(operator, &[&exp], &[]), &shape);
        let mut made = Made::new(&shape).node("Exp", &[], &[]);
        let exp = made.last.clone();
        made = made.node("GlobalAveragePool", &[], &[]);
        let gate = made.last.clone();
        check(operator, made.node(operator, &[&exp], &[]), &shape);
        let mut made = Made::new(&shape).node("Exp", &[], &[]);
        let exp = made.last.clone();
        made = made.node("GlobalAveragePool", &[], &[]).node("Sigmoid", &[], &[]);
        let swapped = made.last.clone();
        made.last = exp;
        assert_ne!(gate, "");
        check(operator, made.node(operator, &[&swapped], &[]), &shape);
    }
}

#[test]
fn norms_of_planes_with_a_style() {
    let shape = [1, 12, 9, 10];
    let mut made = Made::new(&shape);
    let (scale, shift) = (made.weight(&[12], 1.0), made.weight(&[12], 1.0));
    check("instance", made.node("InstanceNormalization", &[&scale, &shift], &[]), &shape);
    // As generators write it, with a style that comes from a second input.
    let model = Model::new()
        .input("x", &shape)
        .input("s", &[1, 10])
        .weight("e", &[], &[1e-5])
        .weight("w", &[24, 10], &values(240, 3))
        .weight("b", &[24], &values(24, 4))
        .integers("from", &[0])
        .integers("half", &[12])
        .integers("to", &[24])
        .integers("one", &[1])
        .integers("plane", &[2, 3])
        .node("ReduceMean", &["x"], &["m"], &[Ints("axes", &[2, 3]), Int("keepdims", 1)])
        .node("Sub", &["x", "m"], &["d"], &[])
        .node("Mul", &["d", "d"], &["dd"], &[])
        .node("ReduceMean", &["dd"], &["v"], &[Ints("axes", &[2, 3]), Int("keepdims", 1)])
        .node("Add", &["v", "e"], &["ve"], &[])
        .node("Sqrt", &["ve"], &["sd"], &[])
        .node("Div", &["d", "sd"], &["n"], &[])
        .node("Gemm", &["s", "w", "b"], &["style"], &[Int("transB", 1)])
        .node("Unsqueeze", &["style", "plane"], &["four"], &[])
        .node("Slice", &["four", "from", "half", "one"], &["scale"], &[])
        .node("Slice", &["four", "half", "to", "one"], &["shift"], &[])
        .node("Mul", &["n", "scale"], &["scaled"], &[])
        .node("Add", &["scaled", "shift"], &["out"], &[])
        .output("out", &shape);
    check_inputs("style", &model.bytes(), &[tensor(&shape, 1), tensor(&[1, 10], 2)]);
}

#[test]
fn joins_cuts_and_other_shapes() {
    let shape = [1, 13, 6, 7];
    for (first, second) in [(8, 16), (5, 9), (16, 3)] {
        let mut made = Made::new(&shape).conv(conv(first, 1, 1, [0; 4])).relu();
        let one = made.last.clone();
        made.last = "x".into();
        made = made.with_channels(13).conv(conv(second, 3, 1, [1; 4]));
        let made = made.node("Concat", &[&one], &[Int("axis", 1)]);
        check("joined", made.with_channels(first + second).conv(conv(6, 1, 1, [0; 4])), &shape);
    }
    let mut made = Made::new(&shape).node("Tanh", &[], &[]);
    let [from, to, axis] = [[3], [12], [1]].map(|list| made.integers(&list));
    let made = made.node("Slice", &[&from, &to, &axis], &[]).with_channels(9);
    check("cut", made.conv(conv(4, 1, 1, [0; 4])), &shape);
    let made = Made::new(&shape).conv(conv(10, 1, 1, [0; 4]));
    let mut made = made.node("Transpose", &[], &[Ints("perm", &[0, 2, 3, 1])]);
    let list = made.integers(&[1, -1, 5]);
    let made = made.node("Reshape", &[&list], &[]);
    check("rows of a detector", made.node("Softmax", &[], &[Int("axis", 2)]), &shape);
    let mut made = Made::new(&shape).conv(conv(8, 1, 1, [0; 4])).relu();
    let pool = [Ints("kernel_shape", &[6, 7]), Ints("strides", &[1, 1]), Ints("pads", &[0; 4])];
    made = made.node("AveragePool", &[], &pool).node("Flatten", &[], &[Int("axis", 1)]);
    let (w, b) = (made.weight(&[8, 30], 1.0), made.weight(&[30], 1.0));
    made = made.node("MatMul", &[&w], &[]).node("Add", &[&b], &[]).relu();
    let w = made.weight(&[5, 30], 1.0);
    check("classes", made.node("Gemm", &[&w], &[Int("transB", 1)]), &shape);
    let mut made = Made::new(&shape).node("Flatten", &[], &[Int("axis", 1)]);
    let w = made.weight(&[13 * 42, 7], 0.1);
    check("all pixels", made.node("MatMul", &[&w], &[]), &shape);
}

#[test]
fn what_our_engine_does_not_know_runs_on_rten() {
    let model = Model::new()
        .input("x", &[1, 4])
        .node("CumSum", &["x", "axis"], &["y"], &[])
        .weight("unused", &[1], &[0.0])
        .integers("axis", &[1])
        .output("y", &[1, 4]);
    let mut session = load(&Cpu::new(1), &model.bytes()).unwrap();
    assert!(!session.is_ours());
    let out = session.run(&[&Tensor::filled(&[1, 4], 1.0)]).unwrap();
    assert_eq!(out[0].data, [1.0, 2.0, 3.0, 4.0]);
}
