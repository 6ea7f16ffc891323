"""A TF.js layers model (Keras) that was packed into JavaScript, to ONNX. Weights stay bytes."""

import base64
import json
import re
import struct
from pathlib import Path

import onnx
import quantised
import values


def convert(model, weights):
    """The ONNX model of nsfwjs' two scripts: the layers, and the weights as base64."""
    layers, listed = topology(Path(model).read_text())
    return Network(quantised.load(listed, unpacked(Path(weights).read_text()))).model(layers)


def unpacked(script):
    """The longest text of base64 in a script."""
    texts = re.findall(r'"([A-Za-z0-9+/=]{1000,})"', script)
    if not texts:
        raise ValueError("the script holds no weights")
    return base64.b64decode(max(texts, key=len))


def topology(script):
    """Layers, and the list of weights, from an object literal of minified JavaScript."""
    begin = script.index("{modelTopology")
    depth, end = 0, begin
    for end in range(begin, len(script)):
        depth += (script[end] == "{") - (script[end] == "}")
        if depth == 0:
            break
    text = re.sub(r"([{,])([A-Za-z_]\w*):", r'\1"\2":', script[begin : end + 1])
    text = text.replace("!0", "true").replace("!1", "false")
    text = re.sub(r"(?<=[:\[,])(-?)\.(\d)", r"\g<1>0.\2", text)
    model = json.loads(text)
    layers = model["modelTopology"]["model_config"]["config"]["layers"]
    return layers, [each for group in model["weightsManifest"] for each in group["weights"]]


class Network:
    """The network, layer by layer. Values go by the name of the layer that made them."""

    def __init__(self, weights):
        self.weights = weights
        self.graph = onnx.Graph()
        self.values = {}

    def model(self, layers):
        """The whole network."""
        value = None
        for layer in layers:
            config = layer["config"]
            method = getattr(self, "do_" + layer["class_name"].lower(), None)
            if method is None:
                raise ValueError(f"layer {layer['class_name']} is not understood")
            inbound = layer.get("inbound_nodes") or [[]]
            inputs = [self.values[each[0]] for each in inbound[0]]
            value = self.values[config["name"]] = method(inputs, config, config["name"])
        self.graph.add("Identity", [value], "probabilities")
        inputs, outputs = [("input", ["N", 224, 224, 3])], [("probabilities", ["N", 5])]
        return self.graph.model("nsfw_mobilenet_v2", inputs, outputs, 13, "mien-tools")

    def single(self, name, value):
        """A constant of one float32."""
        return self.graph.constant(name, onnx.FLOAT, [1], struct.pack("<f", value))

    def vector(self, name, weight):
        """A small weight as float32."""
        weight = self.weights[weight]
        return self.graph.constant(name, onnx.FLOAT, weight.dims, weight.floats().tobytes())

    def kernel(self, name, axes):
        """A large weight as bytes with one scale."""
        weight = self.weights[name]
        dims = [weight.dims[axis] for axis in axes]
        codes = values.permute(weight.codes, 1, weight.dims, axes)
        zero = round(values.floats([weight.zero()])[0])
        parts = [
            self.graph.constant(name + "_q", onnx.UINT8, dims, codes),
            self.single(name + "_s", weight.scale),
            self.graph.constant(name + "_z", onnx.UINT8, [1], bytes([zero])),
        ]
        return self.graph.add("DequantizeLinear", parts, name + "_f")

    def do_inputlayer(self, *_):
        """The picture comes as NHWC."""
        return self.graph.add("Transpose", ["input"], "nchw", perm=[0, 3, 1, 2])

    def do_zeropadding2d(self, inputs, config, name):
        """Zeros around."""
        (top, bottom), (left, right) = config["padding"]
        raw = values.whole([0, 0, top, left, 0, 0, bottom, right])
        around = self.graph.constant(name + "_p", onnx.INT64, [8], raw)
        return self.graph.add("Pad", [*inputs, around], name + "_o")

    def do_conv2d(self, inputs, config, name):
        """Convolution."""
        kernel = self.kernel(name + "/kernel", (3, 2, 0, 1))
        return self.convolution([*inputs, kernel], config, name, {})

    def do_depthwiseconv2d(self, inputs, config, name):
        """Convolution of each channel by itself."""
        weight = name + "/depthwise_kernel"
        _, _, channels, multiplier = self.weights[weight].dims
        if multiplier != 1:
            raise ValueError(f"`{name}` has a depth multiplier")
        kernel = self.kernel(weight, (2, 3, 0, 1))
        return self.convolution([*inputs, kernel], config, name, {"group": channels})

    def convolution(self, inputs, config, name, attributes):
        """What both kinds share."""
        if config["dilation_rate"] != [1, 1] or config["activation"] != "linear":
            raise ValueError(f"`{name}` is dilated or has an activation")
        if config["use_bias"]:
            inputs.append(self.vector(name + "_b", name + "/bias"))
        attributes.update(padding(config))
        strides = config["strides"]
        return self.graph.add(
            "Conv", inputs, name + "_o", strides=strides, dilations=[1, 1], **attributes
        )

    def do_batchnormalization(self, inputs, config, name):
        """Normalisation by stored statistics."""
        kinds = ("gamma", "beta", "moving_mean", "moving_variance")
        inputs += [self.vector(f"{name}_{kind}", f"{name}/{kind}") for kind in kinds]
        epsilon = float(config["epsilon"])
        return self.graph.add("BatchNormalization", inputs, name + "_o", epsilon=epsilon)

    def do_relu(self, inputs, config, name):
        """ReLU with a ceiling."""
        bounds = [self.single(name + "_0", 0), self.single(name + "_6", config["max_value"])]
        return self.graph.add("Clip", inputs + bounds, name + "_o")

    def do_add(self, inputs, _, name):
        """Sum."""
        return self.graph.add("Add", inputs, name + "_o")

    def do_averagepooling2d(self, inputs, config, name):
        """Mean over a window."""
        size, strides = config["pool_size"], config["strides"]
        attributes = {"kernel_shape": size, "strides": strides, **padding(config)}
        return self.graph.add("AveragePool", inputs, name + "_o", **attributes)

    def do_flatten(self, inputs, _, name):
        """Values in the order of NHWC."""
        value = self.graph.add("Transpose", inputs, name + "_t", perm=[0, 2, 3, 1])
        return self.graph.add("Flatten", [value], name + "_o")

    def do_dense(self, inputs, config, name):
        """Every value with every other."""
        kernel = self.kernel(name + "/kernel", (0, 1))
        bias = self.vector(name + "_b", name + "/bias")
        value = self.graph.add("Gemm", [*inputs, kernel, bias], name + "_o")
        if config["activation"] == "softmax":
            return self.graph.add("Softmax", [value], value + "s", axis=-1)
        if config["activation"] == "relu":
            return self.graph.add("Relu", [value], value + "r")
        raise ValueError(f"`{name}` has an activation that is not understood")

    def do_dropout(self, inputs, *_):
        """Nothing, outside training."""
        return inputs[0]


def padding(config):
    """Pads of a convolution or a pool."""
    if config["padding"] == "valid":
        return {"pads": [0, 0, 0, 0]}
    return {"auto_pad": "SAME_UPPER"}
