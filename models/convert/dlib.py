"""face-api's weights of dlib's recognition network to ONNX: 150 x 150 RGB, 128 values a face."""

import json
from array import array
from pathlib import Path

import onnx
import quantised
import values

MEAN = (122.782, 117.001, 104.298)
# A zero this near to a whole code is that code; others are stored as float32.
NEAR = 2e-3


def convert(manifest, weights):
    """The ONNX model of the manifest (JSON) and its one file of weights."""
    listed = json.loads(Path(manifest).read_text())[0]["weights"]
    return Network(quantised.load(listed, Path(weights).read_bytes())).model()


class Network:
    """The network, block by block. `side` is the picture's side where the last block ended."""

    def __init__(self, weights):
        self.weights = weights
        self.graph = onnx.Graph()
        self.side = 35

    def add(self, kind, inputs, **attributes):
        """A node with a counted output."""
        return self.graph.add(kind, inputs, self.graph.name("t"), **attributes)

    def single(self, dims, numbers):
        """A constant of float32."""
        raw = array("f", numbers).tobytes()
        return self.graph.constant(self.graph.name("c"), onnx.FLOAT, dims, raw)

    def whole(self, numbers):
        """A constant list of whole numbers."""
        raw = values.whole(numbers)
        return self.graph.constant(self.graph.name("c"), onnx.INT64, [len(numbers)], raw)

    def codes(self, dims, raw):
        """A constant of bytes."""
        return self.graph.constant(self.graph.name("c"), onnx.UINT8, dims, raw)

    def kernel(self, weight, scale):
        """A kernel times the scale of each output channel, as bytes where that loses nothing."""
        kh, kw, inner, outer = weight.dims
        dims, axes, zero = [outer, inner, kh, kw], (3, 2, 0, 1), weight.zero()
        if abs(zero - round(zero)) > NEAR or not 0 <= round(zero) <= 255:
            numbers = weight.floats()
            numbers = values.floats(n * scale[i % outer] for i, n in enumerate(numbers))
            raw = values.permute(numbers.tobytes(), 4, weight.dims, axes)
            return self.single(dims, array("f", raw))
        if min(scale) <= 0:
            raise ValueError("a channel has a scale that is not positive")
        codes = self.codes(dims, values.permute(weight.codes, 1, weight.dims, axes))
        steps = self.single([outer], [weight.scale * each for each in scale])
        zeros = self.codes([outer], bytes([round(zero)]) * outer)
        return self.add("DequantizeLinear", [codes, steps, zeros], axis=0)

    def convolve(self, value, name, stride, pad, relu):
        """A convolution with its scale layer folded in."""
        scale = self.weights[name + "/scale/weights"].floats()
        bias = self.weights[name + "/conv/bias"].floats()
        bias = values.floats(b * s for b, s in zip(bias, scale))
        shift = self.weights[name + "/scale/biases"].floats()
        kernel = self.kernel(self.weights[name + "/conv/filters"], scale)
        bias = self.single([len(bias)], [b + s for b, s in zip(bias, shift)])
        value = self.add(
            "Conv",
            [value, kernel, bias],
            strides=[stride, stride],
            pads=[pad] * 4,
            dilations=[1, 1],
        )
        return self.add("Relu", [value]) if relu else value

    def residual(self, value, name):
        """A block that keeps size and channels."""
        inner = self.convolve(value, name + "/conv1", 1, 1, True)
        inner = self.convolve(inner, name + "/conv2", 1, 1, False)
        return self.add("Relu", [self.add("Add", [inner, value])])

    def shrink(self, value, name, before, after):
        """A block that halves the size and adds channels; zeros fill what is missing."""
        inner = self.convolve(value, name + "/conv1", 2, 0, True)
        inner = self.convolve(inner, name + "/conv2", 1, 1, False)
        if (self.side - 3) // 2 + 1 != self.side // 2:
            inner = self.add("Pad", [inner, self.whole([0, 0, 0, 0, 0, 0, 1, 1])])
        value = self.add("AveragePool", [value], kernel_shape=[2, 2], strides=[2, 2])
        if before != after:
            around = self.whole([0, 0, 0, 0, 0, after - before, 0, 0])
            value = self.add("Pad", [value, around])
        self.side //= 2
        return self.add("Relu", [self.add("Add", [value, inner])])

    def model(self):
        """The whole network."""
        value = self.add("Transpose", ["image"], perm=[0, 3, 1, 2])
        value = self.add("Sub", [value, self.single([1, 3, 1, 1], MEAN)])
        value = self.add("Mul", [value, self.single([1], [1 / 255])])
        value = self.convolve(value, "conv32_down", 2, 0, True)
        value = self.add("MaxPool", [value], kernel_shape=[3, 3], strides=[2, 2])
        channels = 32
        for name, wide, count in (("32", 32, 3), ("64", 64, 3), ("128", 128, 2), ("256", 256, 2)):
            if wide != channels:
                value = self.shrink(value, f"conv{name}_down", channels, wide)
                channels = wide
            for index in range(1, count + 1):
                value = self.residual(value, f"conv{name}_{index}")
        value = self.shrink(value, "conv256_down_out", 256, 256)
        value = self.add("Flatten", [self.add("GlobalAveragePool", [value])])
        last = self.weights["fc"]
        value = self.add("MatMul", [value, self.single(last.dims, last.floats())])
        self.graph.add("Identity", [value], "descriptor")
        inputs, outputs = [("image", ["N", 150, 150, 3])], [("descriptor", ["N", 128])]
        return self.graph.model("dlib_resnet", inputs, outputs, 13)
