"""TensorFlow Lite to ONNX. NHWC becomes NCHW, float16 weights stay float16 behind a Cast, pads and
dilations are written out, so that every runtime takes the file."""

import struct
from pathlib import Path

import onnx
import values
from flat import Table

FLOAT32, FLOAT16, INT32 = 0, 1, 2
WIDTH = {FLOAT32: 4, FLOAT16: 2, INT32: 4}
SAME, VALID = 0, 1
NONE, RELU, RELU6 = 0, 1, 3
CUSTOM = 32
# Codes of the operators that are understood.
KINDS = {
    0: "Add", 1: "AveragePool", 2: "Concat", 3: "Conv", 4: "Depthwise", 6: "Dequantize",
    14: "Sigmoid", 17: "MaxPool", 18: "Mul", 19: "Relu", 22: "Reshape", 23: "Resize", 34: "Pad",
    41: "Sub", 54: "PRelu", 101: "Abs", 117: "HardSwish",
}  # fmt: skip
# Weights with fewer values are stored whole.
LEAST_HALF = 256


def convert(path, open_batch=False):
    """The ONNX model of a TensorFlow Lite file; `open_batch` leaves the batch open."""
    return Converter(Table.root(Path(path).read_bytes()), open_batch).run(Path(path).stem)


def pads(mode, size, kernel, stride, dilation=(1, 1)):
    """Pads top, left, bottom, right as TensorFlow reckons them."""
    if mode == VALID:
        return [0, 0, 0, 0]
    before, after = [], []
    for n, k, s, d in zip(size, kernel, stride, dilation):
        total = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        before.append(total // 2)
        after.append(total - total // 2)
    return before + after


class Converter:
    """One graph on its way. Tensors go by their index in the file."""

    def __init__(self, model, open_batch):
        graph = model.tables(2)[0]
        self.open_batch = open_batch
        self.codes = model.tables(1)
        self.operators = graph.tables(3)
        self.inputs, self.outputs = graph.numbers(1), graph.numbers(2)
        tensors = graph.tables(0)
        self.shapes = [tensor.numbers(0) for tensor in tensors]
        self.kinds = [tensor.number(1, "b") for tensor in tensors]
        self.names = [tensor.text(3).replace(";", "_") for tensor in tensors]
        buffers = model.tables(4)
        stored = [buffers[tensor.number(2, "I")].bytes(0) for tensor in tensors]
        self.constants = {index: raw for index, raw in enumerate(stored) if raw}
        self.graph = onnx.Graph()
        self.values = {}

    def run(self, name):
        """The whole model."""
        inputs = []
        for index in self.inputs:
            inputs.append((self.names[index], self.batch(self.nchw(self.shapes[index]))))
            self.values[index] = self.names[index]
        for operator in self.operators:
            self.operator(operator)
        outputs = [self.output(index) for index in self.outputs]
        return self.graph.model(name, inputs, outputs, 14, "tfl2onnx")

    def output(self, index):
        """Names a result as the file does, flat when it is one point of many channels."""
        shape, value = self.nchw(self.shapes[index]), self.values[index]
        if len(shape) == 4 and shape[2] == shape[3] == 1:
            shape, value = shape[:2], self.add("Flatten", [value])
        self.graph.add("Identity", [value], self.names[index])
        return self.names[index], self.batch(shape)

    def batch(self, shape):
        """The shape, its first dimension open when that was asked for."""
        return ["N", *shape[1:]] if self.open_batch else list(shape)

    @staticmethod
    def nchw(shape):
        """NHWC as NCHW; other shapes as they are."""
        return [shape[0], shape[3], shape[1], shape[2]] if len(shape) == 4 else list(shape)

    def add(self, kind, inputs, **attributes):
        """A node whose output is named after its kind."""
        return self.graph.add(kind, inputs, self.graph.name(kind.lower() + "_"), **attributes)

    def constant(self, stem, kind, dims, raw):
        """A constant with a counted name."""
        return self.graph.constant(self.graph.name(stem + "_"), kind, dims, raw)

    def whole(self, numbers):
        """A constant list of whole numbers."""
        return self.constant("c", onnx.INT64, [len(numbers)], values.whole(numbers))

    def numbers(self, index):
        """A constant of int32 as numbers."""
        if self.kinds[index] != INT32:
            raise ValueError(f"tensor {index} must hold whole numbers")
        raw = self.constants[index]
        return list(struct.unpack(f"<{len(raw) // 4}i", raw))

    def single(self, index, axes):
        """A constant as float32 bytes and dimensions, with its axes reordered."""
        dims, raw = self.shapes[index], self.constants[index]
        raw = values.permute(raw, WIDTH[self.kinds[index]], dims, axes)
        if self.kinds[index] == FLOAT16:
            raw = values.from_halves(raw).tobytes()
        return raw, [dims[axis] for axis in axes]

    def weight(self, index, axes=None):
        """A weight, kept as float16 when it came so and is large."""
        dims, raw = self.shapes[index], self.constants[index]
        axes = range(len(dims)) if axes is None else axes
        if self.kinds[index] == FLOAT16 and len(raw) >= 2 * LEAST_HALF:
            raw = values.permute(raw, 2, dims, axes)
            half = self.constant("w16", onnx.FLOAT16, [dims[axis] for axis in axes], raw)
            return self.graph.add("Cast", [half], self.graph.name("w_"), to=onnx.FLOAT)
        raw, dims = self.single(index, axes)
        return self.constant("w", onnx.FLOAT, dims, raw)

    def value(self, index, spatial):
        """An operand; a constant is brought to the layout of what it is combined with."""
        if index not in self.values:
            rank = len(self.shapes[index])
            axes = {3: (2, 0, 1), 4: (0, 3, 1, 2)}.get(rank) if spatial else None
            raw, dims = self.single(index, axes or range(rank))
            if spatial and rank == 1 and dims[0] > 1:
                dims = [dims[0], 1, 1]
            self.values[index] = self.constant("k", onnx.FLOAT, dims, raw)
        return self.values[index]

    def activate(self, value, activation):
        """What an operator does to its result in the end."""
        if activation == NONE:
            return value
        if activation == RELU:
            return self.add("Relu", [value])
        if activation == RELU6:
            bounds = [self.constant("c", onnx.FLOAT, [], struct.pack("<f", n)) for n in (0, 6)]
            return self.add("Clip", [value, *bounds])
        raise ValueError(f"activation {activation} is not understood")

    def operator(self, operator):
        """One operator: finds its method by its name."""
        code = self.codes[operator.number(0, "I")]
        number = max(code.number(3), code.number(0, "b"))
        kind = code.text(1) if number == CUSTOM else KINDS.get(number)
        method = getattr(self, f"do_{kind}".lower(), None)
        if method is None:
            raise ValueError(f"operator {kind or number} is not understood")
        inputs, result = operator.numbers(1), operator.numbers(2)[0]
        if kind == "Dequantize":
            # float16 constants are widened where they are used.
            for table in (self.constants, self.kinds, self.shapes):
                table[result] = table[inputs[0]]
            return
        options = operator.bytes(5) if number == CUSTOM else operator.table(4)
        self.values[result] = method(kind, inputs, result, options)

    def do_dequantize(self, *_):
        """Handled by `operator`: it makes no node."""

    def do_conv(self, kind, inputs, _, options):
        """Convolution with bias and activation."""
        depthwise = kind == "Depthwise"
        shape, weights = self.shapes[inputs[0]], self.shapes[inputs[1]]
        stride = [options.number(2), options.number(1)]
        wide, high, activation = (5, 6, 4) if depthwise else (4, 5, 3)
        dilation = [options.number(high, default=1), options.number(wide, default=1)]
        attributes = {"group": shape[3]} if depthwise else {}
        axes = (3, 0, 1, 2) if depthwise else (0, 3, 1, 2)
        operands = [self.values[inputs[0]], self.weight(inputs[1], axes)]
        operands += [self.weight(index) for index in inputs[2:] if index >= 0]
        mode = options.number(0, "b")
        value = self.add(
            "Conv",
            operands,
            strides=stride,
            dilations=dilation,
            kernel_shape=weights[1:3],
            pads=pads(mode, shape[1:3], weights[1:3], stride, dilation),
            **attributes,
        )
        return self.activate(value, options.number(activation, "b"))

    do_depthwise = do_conv

    def do_convolution2dtransposebias(self, _, inputs, __, options):
        """MediaPipe's own transposed convolution: no overlap, so stride and kernel are one."""
        _, wide, high = struct.unpack("<3i", options)
        kernel = self.shapes[inputs[1]][1:3]
        if kernel != [high, wide]:
            raise ValueError("a transposed convolution with overlap is not understood")
        operands = [self.weight(inputs[1], (3, 0, 1, 2)), self.weight(inputs[2])]
        return self.add(
            "ConvTranspose",
            [self.values[inputs[0]], *operands],
            strides=[high, wide],
            kernel_shape=kernel,
            dilations=[1, 1],
            pads=[0, 0, 0, 0],
        )

    def do_add(self, kind, inputs, result, options):
        """Elementwise arithmetic."""
        spatial = len(self.shapes[result]) == 4
        operands = [self.value(index, spatial) for index in inputs]
        return self.activate(self.add(kind, operands), options.number(0, "b") if options else NONE)

    do_sub = do_mul = do_add

    def do_relu(self, kind, inputs, *_):
        """Elementwise functions."""
        return self.add(kind, [self.values[inputs[0]]])

    do_abs = do_hardswish = do_sigmoid = do_relu

    def do_prelu(self, kind, inputs, *_):
        """ReLU with a slope for each channel."""
        return self.add(kind, [self.values[inputs[0]], self.weight(inputs[1], (2, 0, 1))])

    def do_pad(self, kind, inputs, *_):
        """Zeros around."""
        amounts = self.numbers(inputs[1])
        pairs = [amounts[2 * axis : 2 * axis + 2] for axis in (0, 3, 1, 2)]
        amounts = [before for before, _ in pairs] + [after for _, after in pairs]
        return self.add(kind, [self.values[inputs[0]], self.whole(amounts)])

    def do_maxpool(self, kind, inputs, _, options):
        """Pooling."""
        kernel = [options.number(4), options.number(3)]
        stride = [options.number(2), options.number(1)]
        around = pads(options.number(0, "b"), self.shapes[inputs[0]][1:3], kernel, stride)
        value = [self.values[inputs[0]]]
        value = self.add(kind, value, kernel_shape=kernel, strides=stride, pads=around)
        return self.activate(value, options.number(5, "b"))

    do_averagepool = do_maxpool

    def do_resize(self, kind, inputs, result, options):
        """Bilinear resize."""
        corners, centres = options.number(2, "b"), options.number(3, "b")
        mode = "align_corners" if corners else "half_pixel" if centres else "asymmetric"
        size = self.whole(self.nchw(self.shapes[result]))
        operands = [self.values[inputs[0]], "", "", size]
        return self.add(kind, operands, mode="linear", coordinate_transformation_mode=mode)

    def do_concat(self, kind, inputs, result, options):
        """Concatenation."""
        rank = len(self.shapes[result])
        axis = options.number(0) % rank
        axis = (0, 2, 3, 1)[axis] if rank == 4 else axis
        return self.add(kind, [self.values[index] for index in inputs], axis=axis)

    def do_reshape(self, kind, inputs, result, _):
        """Reshape, by way of NHWC where the order of values depends on it."""
        value, shape = self.values[inputs[0]], self.shapes[inputs[0]]
        if len(shape) == 4 and shape[1:3] != [1, 1]:
            value = self.add("Transpose", [value], perm=[0, 2, 3, 1])
        shape = list(self.shapes[result])
        rank = len(shape)
        shape[0] = -1 if self.open_batch else shape[0]
        value = self.add(kind, [value, self.whole(shape)])
        return self.add("Transpose", [value], perm=[0, 3, 1, 2]) if rank == 4 else value
