"""Weights of TF.js: a list of shapes beside one buffer, of float32 or of steps of a scale."""

import math
from array import array
from dataclasses import dataclass

import values


@dataclass
class Weight:
    """code * scale + least, in float32; without a scale the bytes are float32 themselves."""

    dims: list
    codes: bytes
    scale: float
    least: float

    def floats(self):
        """The values, as an array of float32."""
        if self.scale is None:
            return array("f", self.codes)
        return values.scaled(self.codes, self.scale, self.least)

    def zero(self):
        """The code that stands for zero; it may lie between two codes. -1 when there is none."""
        return -1 if self.scale is None else -self.least / self.scale


def load(listed, buffer):
    """Weights by name. `listed` says name, shape and scale of each, in the buffer's order."""
    found, at = {}, 0
    for weight in listed:
        step, size = weight.get("quantization"), math.prod(weight["shape"])
        if step is None and weight["dtype"] == "float32":
            scale, least, size = None, None, size * 4
        elif step is not None and step.get("dtype") == "uint8":
            scale, least = values.floats([step["scale"], step["min"]])
        else:
            raise ValueError(f"`{weight['name']}` is stored in a way that is not understood")
        codes = buffer[at : at + size]
        found[weight["name"]] = Weight(weight["shape"], codes, scale, least)
        at += size
    if at != len(buffer):
        raise ValueError(f"the weights have {len(buffer)} bytes, {at} are listed")
    return found
