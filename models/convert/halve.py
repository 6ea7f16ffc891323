"""ONNX to ONNX: weights stored as half precision, constants out of the graph's inputs."""

import math
from array import array

import onnx
import values
import wire

# Smaller tensors are left as they are: biases and scalars.
LEAST = 1024
# Field numbers of GraphProto, ModelProto and TensorProto.
NODE, INITIALIZER, INPUT, OUTPUT, GRAPH = 1, 5, 11, 12, 7
DIMS, KIND, FLOATS, NAME, RAW = 1, 2, 4, 8, 9


def halve(model, open_size=False):
    """Stores weights as float16 behind a Cast. `open_size` leaves height and width of a
    detector's input and outputs open."""
    found = wire.fields(model)
    graph = wire.fields(wire.first(found, GRAPH))
    kept, casts, names = [], [], set()
    for initializer in wire.every(graph, INITIALIZER):
        name, small, cast = smaller(initializer)
        kept.append(small)
        casts += cast
        names.add(name)
    # Exporters of ONNX up to 3 listed constants as inputs too; runtimes then fold nothing.
    inputs = [each for each in wire.every(graph, INPUT) if name_of(each) not in names]
    outputs = wire.every(graph, OUTPUT)
    if open_size:
        inputs = [reshaped(each, [1, 3, "H", "W"]) for each in inputs]
        outputs = [reshaped(each, [1, None, "H/4", "W/4"]) for each in outputs]
    rest = [field for field in graph if field[0] not in (NODE, INITIALIZER, INPUT, OUTPUT)]
    nodes = casts + wire.every(graph, NODE)
    parts = ((NODE, nodes), (INITIALIZER, kept), (INPUT, inputs), (OUTPUT, outputs))
    rest += [(field, wire.BYTES, each) for field, group in parts for each in group]
    model = [field for field in found if field[0] != GRAPH]
    return wire.write(model + [(GRAPH, wire.BYTES, wire.write(rest))])


def name_of(value_info):
    """The name of a graph's input or output."""
    return bytes(wire.first(wire.fields(value_info), 1)).decode()


def smaller(initializer):
    """Name of a constant, what is stored for it, and the nodes that make it whole again."""
    found = wire.fields(initializer)
    name = bytes(wire.first(found, NAME)).decode()
    dims = wire.every(found, DIMS)
    if wire.first(found, KIND) != onnx.FLOAT or math.prod(dims) < LEAST:
        return name, initializer, []
    raw = wire.first(found, RAW)
    if raw is None:
        raw = b"".join(bytes(part) for part in wire.every(found, FLOATS))
    half = values.halves(array("f", bytes(raw)))
    if len(half) != 2 * math.prod(dims):
        raise ValueError(f"`{name}` of {dims} has {len(half) // 2} values")
    cast = onnx.node("Cast", [name + "_h"], [name], {"to": onnx.FLOAT})
    return name, onnx.tensor(name + "_h", onnx.FLOAT16, dims, half), [cast]


def reshaped(value_info, dims):
    """The same value with other dimensions; None leaves one as it is."""
    found = wire.fields(value_info)
    kind = wire.fields(wire.first(wire.fields(wire.first(found, 2)), 1))
    old = [wire.fields(dim) for dim in wire.every(wire.fields(wire.first(kind, 2)), 1)]
    if len(old) != len(dims):
        raise ValueError(f"a value of {len(dims)} dimensions has {len(old)}")
    kept = [wire.first(was, 1) if dim is None else dim for was, dim in zip(old, dims)]
    return onnx.value_info(name_of(value_info), kept)
