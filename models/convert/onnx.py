"""ONNX messages: tensors, nodes, graphs, models, written field by field in their order."""

import wire

FLOAT, UINT8, INT64, FLOAT16 = 1, 2, 7, 10
A_FLOAT, A_INT, A_STRING, A_INTS = 1, 2, 3, 7


def tensor(name, kind, dims, raw):
    """A TensorProto with raw data."""
    return (
        wire.numbers(1, dims) + wire.number(2, kind) + wire.data(8, name) + wire.data(9, raw)
    )


def attribute(name, value):
    """An AttributeProto of a whole number, a float, a text or a list of whole numbers."""
    out = wire.data(1, name)
    if isinstance(value, int):
        return out + wire.number(3, value) + wire.number(20, A_INT)
    if isinstance(value, float):
        return out + wire.single(2, value) + wire.number(20, A_FLOAT)
    if isinstance(value, str):
        return out + wire.data(4, value) + wire.number(20, A_STRING)
    return out + wire.numbers(8, value) + wire.number(20, A_INTS)


def node(kind, inputs, outputs, attributes):
    """A NodeProto; attributes stand in the order of their names."""
    parts = [wire.data(1, name) for name in inputs] + [wire.data(2, name) for name in outputs]
    parts.append(wire.data(4, kind))
    parts += [wire.data(5, attribute(name, attributes[name])) for name in sorted(attributes)]
    return b"".join(parts)


def value_info(name, dims):
    """A ValueInfoProto of float32; a text among `dims` is a free dimension."""
    shape = b""
    for dim in dims:
        inner = wire.data(2, dim) if isinstance(dim, str) else wire.number(1, dim)
        shape += wire.data(1, inner)
    kind = wire.number(1, FLOAT) + wire.data(2, shape)
    return wire.data(1, name) + wire.data(2, wire.data(1, kind))


class Graph:
    """A graph that grows node by node. Names are counted, so that they come out the same."""

    def __init__(self):
        self.nodes = []
        self.tensors = []
        self.count = 0

    def name(self, stem):
        """The next name with this stem."""
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, name, kind, dims, raw):
        """An initialiser; returns its name."""
        self.tensors.append(tensor(name, kind, dims, raw))
        return name

    def add(self, kind, inputs, output, **attributes):
        """A node with one output; returns its name."""
        self.nodes.append(node(kind, inputs, [output], attributes))
        return output

    def model(self, name, inputs, outputs, opset, producer=""):
        """The ModelProto; `inputs` and `outputs` are pairs of name and dimensions."""
        graph = [wire.data(1, each) for each in self.nodes] + [wire.data(2, name)]
        graph += [wire.data(5, each) for each in self.tensors]
        graph += [wire.data(11, value_info(*each)) for each in inputs]
        graph += [wire.data(12, value_info(*each)) for each in outputs]
        head = wire.number(1, 8) + (wire.data(2, producer) if producer else b"")
        version = wire.data(1, "") + wire.number(2, opset)
        return head + wire.data(7, b"".join(graph)) + wire.data(8, version)
