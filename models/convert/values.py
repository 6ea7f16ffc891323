"""Values of a tensor as little-endian bytes: permute axes, change width, reckon as float32 does."""

import math
import struct
from array import array

CHUNK = 1 << 16


def floats(values):
    """Numbers rounded to float32, as an array."""
    return array("f", values)


def scaled(codes, scale, least):
    """codes * scale + least, each step rounded to float32 as a float32 machine would."""
    return floats(value + least for value in floats(code * scale for code in codes))


def halves(values):
    """float32 to float16 bytes, to nearest, ties to even."""
    parts = []
    for at in range(0, len(values), CHUNK):
        chunk = values[at : at + CHUNK]
        parts.append(struct.pack(f"<{len(chunk)}e", *chunk))
    return b"".join(parts)


def from_halves(raw):
    """float16 bytes to float32, exactly."""
    return floats(struct.unpack(f"<{len(raw) // 2}e", raw))


def whole(values):
    """Whole numbers as int64 bytes."""
    return struct.pack(f"<{len(values)}q", *values)


def permute(raw, width, dims, axes):
    """Bytes of a tensor with its axes reordered: axis i of the result is axis axes[i] of `raw`."""
    if math.prod(dims) * width != len(raw):
        raise ValueError(f"a tensor of {dims} does not have {len(raw)} bytes")
    if list(axes) == list(range(len(dims))):
        return bytes(raw)
    source = array({1: "B", 2: "H", 4: "I"}[width], bytes(raw))
    target = array(source.typecode, bytes(len(raw)))
    steps = [0] * len(dims)
    step = 1
    for axis in reversed(axes):
        steps[axis] = step
        step *= dims[axis]
    run, stride = dims[-1], steps[-1]
    for row in range(len(source) // run if run else 0):
        rest, base = row, 0
        for axis in range(len(dims) - 2, -1, -1):
            rest, index = divmod(rest, dims[axis])
            base += index * steps[axis]
        target[base : base + (run - 1) * stride + 1 : stride] = source[row * run : (row + 1) * run]
    return target.tobytes()
