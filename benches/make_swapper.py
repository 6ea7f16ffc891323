#!/usr/bin/env python3
"""A small generator with the interface of inswapper_128, of made weights: make_swapper.py FOLDER

Writes swapper-bench.onnx, its manifest, and emap.bin (float32 rows, for the peer). The weights come
from a seed, so every machine makes the same bytes. It swaps nothing anyone would know; it costs
what a small swapper costs, with the operators that a real one has."""

import hashlib
import math
import struct
import sys
from array import array
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "models" / "convert"))
sys.dont_write_bytecode = True
import onnx  # noqa: E402
import values  # noqa: E402

SIDE, LATENT, EMBEDDING = 128, 512, 192
CHANNELS, BLOCKS = 24, 2
WORD = (1 << 64) - 1


class Random:
    """splitmix64."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        """The next number in -1..1."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & WORD
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
        return ((z ^ z >> 31) >> 40) / (1 << 23) - 1

    def floats(self, count, scale):
        """An array of numbers in -scale..scale."""
        return array("f", (self.next() * scale for _ in range(count)))


class Swapper:
    """The network: down, residual blocks steered by the latent, up."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.graph = onnx.Graph()

    def add(self, kind, inputs, output=None, **attributes):
        """A node; its output is counted unless it has a name."""
        return self.graph.add(kind, inputs, output or self.graph.name("t"), **attributes)

    def single(self, dims, numbers, name=None):
        """A constant of float32."""
        name = name or self.graph.name("c")
        return self.graph.constant(name, onnx.FLOAT, dims, array("f", numbers).tobytes())

    def whole(self, numbers):
        """A constant list of whole numbers."""
        name = self.graph.name("c")
        return self.graph.constant(name, onnx.INT64, [len(numbers)], values.whole(numbers))

    def convolve(self, value, before, after, stride=1):
        """A 3 x 3 convolution over reflected borders."""
        value = self.add("Pad", [value, self.whole([0, 0, 1, 1, 0, 0, 1, 1])], mode="reflect")
        weights = self.random.floats(after * before * 9, math.sqrt(2 / (9 * before)))
        kernel = self.single([after, before, 3, 3], weights)
        bias = self.single([after], [0] * after)
        attributes = {"strides": [stride] * 2, "dilations": [1, 1], "pads": [0] * 4}
        return self.add("Conv", [value, kernel, bias], **attributes)

    def style(self, value, channels):
        """Instance normalisation, then scale and shift out of the latent."""
        mean = self.add("ReduceMean", [value], axes=[2, 3], keepdims=1)
        rest = self.add("Sub", [value, mean])
        square = self.add("Mul", [rest, rest])
        variance = self.add("ReduceMean", [square], axes=[2, 3], keepdims=1)
        variance = self.add("Add", [variance, self.single([], [1e-8])])
        value = self.add("Div", [rest, self.add("Sqrt", [variance])])
        weights = self.single([2 * channels, LATENT], self.random.floats(2 * channels * LATENT, 1))
        bias = self.single([2 * channels], [1] * channels + [0] * channels)
        style = self.add("Gemm", ["source", weights, bias], transB=1)
        style = self.add("Unsqueeze", [style, self.whole([2, 3])])
        begin, middle, end = self.whole([0]), self.whole([channels]), self.whole([2 * channels])
        axis = self.whole([1])
        scale = self.add("Slice", [style, begin, middle, axis])
        shift = self.add("Slice", [style, middle, end, axis])
        return self.add("Add", [self.add("Mul", [value, scale]), shift])

    def model(self, emap):
        """The whole network; `emap` is its last constant, as every host expects."""
        wide = 2 * CHANNELS
        value = self.add("LeakyRelu", [self.convolve("target", 3, CHANNELS)], alpha=0.2)
        value = self.add("LeakyRelu", [self.convolve(value, CHANNELS, wide, 2)], alpha=0.2)
        for _ in range(BLOCKS):
            inner = self.style(self.convolve(value, wide, wide), wide)
            inner = self.add("Relu", [inner])
            inner = self.style(self.convolve(inner, wide, wide), wide)
            value = self.add("Add", [value, inner])
        scales = self.single([4], [1, 1, 2, 2])
        modes = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
        value = self.add("Resize", [value, "", scales], **modes)
        value = self.add("LeakyRelu", [self.convolve(value, wide, CHANNELS)], alpha=0.2)
        value = self.add("Tanh", [self.convolve(value, CHANNELS, 3)])
        value = self.add("Mul", [value, self.single([], [0.25])])
        value = self.add("Add", ["target", value])
        self.add("Clip", [value, self.single([], [0]), self.single([], [1])], "output")
        self.single([EMBEDDING, LATENT], emap, "emap")
        picture = [1, 3, SIDE, SIDE]
        inputs, outputs = [("target", picture), ("source", [1, LATENT])], [("output", picture)]
        return self.graph.model("swapper_bench", inputs, outputs, 13)


def main(folder):
    """Writes the three files."""
    swapper = Swapper(7)
    emap = Random(11).floats(EMBEDDING * LATENT, math.sqrt(3 / EMBEDDING))
    model = swapper.model(emap)
    manifest = (
        'id = "swapper-bench"\nrole = "swapper"\nfamily = "inswapper"\n'
        f'sha256 = "{hashlib.sha256(model).hexdigest()}"\nbytes = {len(model)}\n'
        'licence = "made here"\ncommercial = true\n'
    )
    (folder / "swapper-bench.onnx").write_bytes(model)
    (folder / "swapper-bench.toml").write_text(manifest)
    (folder / "emap.bin").write_bytes(struct.pack("<I", EMBEDDING) + emap.tobytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
