#!/usr/bin/env python3
"""An FP32 model to INT8: Q/DQ in the graph, calibrated on given frames, with an acceptance report.

    python3 -m venv q && q/bin/pip install -r models/quantise/requirements.txt
    q/bin/python models/quantise/quantise.py MODEL.onnx -o OUT.onnx FRAMES... [--mien PROGRAM]

Beside MODEL.onnx lies its manifest MODEL.toml (`mien model pack --template`). The faces of the
frames are found by `mien detect`, and the result is measured by `mien model measure`, the same code
by which a device decides whether it takes the model. OUT.toml gets what was measured as bounds,
with some slack; OUT.json is the report.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnx.version_converter
from onnx import TensorProto
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType
from onnxruntime.quantization import quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

# How each family is fed; face/detect, face/landmarks and face/embed say the same.
ARCFACE = np.float32([
    (0.34191607, 0.46157411), (0.65653393, 0.45983393), (0.500225, 0.64050536),
    (0.37097589, 0.82469196), (0.63151696, 0.82325089),
])
DETECTORS = {
    "centerface": (0.0, 1.0, 640), "blazeback": (127.5, 127.5, 256), "blazeshort": (127.5, 127.5, 128),
    "scrfd": (127.5, 128.0, 640), "retinaface": (127.5, 128.0, 640), "yoloface": (0.0, 255.0, 640),
}
# What is left between what was measured and what is promised.
SLACK = {"box_iou": -0.05, "landmark_drift": 0.01, "cosine": -0.02}


def planes(picture, mean, scale):
    return np.ascontiguousarray((picture.astype(np.float32) - mean)[None].transpose(0, 3, 1, 2) / scale)


def letterbox(picture, side):
    high, wide = picture.shape[:2]
    factor = side / max(high, wide)
    small = cv2.resize(picture, (round(wide * factor), round(high * factor)), interpolation=cv2.INTER_AREA)
    canvas = np.zeros((side, side, 3), np.uint8)
    canvas[: small.shape[0], : small.shape[1]] = small
    return canvas


def faces(mien, frame):
    found = subprocess.run([mien, "detect", frame, "--json", "-q"], capture_output=True, check=True, text=True)
    return json.loads(found.stdout)["faces"]


def aligned(picture, face, side=112):
    five = np.float32(face["landmarks"])
    matrix, _ = cv2.estimateAffinePartial2D(five, ARCFACE * side, method=cv2.LMEDS)
    return cv2.warpAffine(picture, matrix, (side, side), flags=cv2.INTER_LINEAR)


def turned(picture, face, side=192):
    x0, y0, x1, y1 = face["box"]
    left, right = face["landmarks"][:2]
    size = max(x1 - x0, y1 - y0) * 1.5
    angle = np.degrees(np.arctan2(right[1] - left[1], right[0] - left[0]))
    centre = ((x0 + x1) / 2, (y0 + y1) / 2)
    matrix = cv2.getRotationMatrix2D(centre, angle, side / size)
    matrix[:, 2] += side / 2 - np.float64(centre)
    return cv2.warpAffine(picture, matrix, (side, side), flags=cv2.INTER_LINEAR)


def samples(family, frames, mien):
    for frame in frames:
        picture = cv2.imread(str(frame))
        if picture is None:
            sys.exit(f"{frame}: no picture")
        picture = cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
        if family in DETECTORS:
            mean, scale, side = DETECTORS[family]
            for flipped in (picture, picture[:, ::-1]):
                yield planes(letterbox(flipped, side), mean, scale)
            continue
        for face in faces(mien, frame):
            if family == "arcface":
                crop = aligned(picture, face)
                for one in (crop, crop[:, ::-1]):
                    yield planes(one, 127.5, 128.0)
            elif family == "facemesh":
                crop = turned(picture, face)
                for one in (crop, crop[:, ::-1]):
                    yield planes(one, 0.0, 255.0)
            else:
                sys.exit(f"family {family}: there is no way to calibrate it here")


class Reader(CalibrationDataReader):
    def __init__(self, name, values):
        self.values = iter([{name: value} for value in values])

    def get_next(self):
        return next(self.values, None)


def whole(path, out):
    """The model with weights as float32: half precision is stored behind Cast or as initialisers."""
    model = onnx.load(path)
    graph = model.graph
    held = {tensor.name: tensor for tensor in graph.initializer}
    casts = [n for n in graph.node if n.op_type == "Cast" and n.input[0] in held]
    for node in casts:
        tensor = held[node.input[0]]
        to = next(a.i for a in node.attribute if a.name == "to")
        if to != TensorProto.FLOAT:
            continue
        values = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(values, node.output[0]))
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    for tensor in [t for t in graph.initializer if t.name not in used]:
        graph.initializer.remove(tensor)
    named = {t.name for t in graph.initializer}
    for port in [p for p in graph.input if p.name in named]:
        graph.input.remove(port)
    if model.opset_import[0].version < 13:
        model = onnx.version_converter.convert_version(model, 13)
    onnx.save(model, out)
    return [p.name for p in model.graph.input][0]


def spoil(path):
    """Makes a bad one, to show that it is refused: every fourth scale of a weight is eight times as large."""
    model = onnx.load(path)
    weights = {n.input[1] for n in model.graph.node if n.op_type == "DequantizeLinear"}
    for count, tensor in enumerate(t for t in model.graph.initializer if t.name in weights):
        if count % 4 == 0:
            values = onnx.numpy_helper.to_array(tensor) * np.float32(8)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), tensor.name))
    onnx.save(model, path)


def manifest(draft, out, version, bounds):
    lines = [
        f'id = "{draft["id"]}"', f'role = "{draft["role"]}"', f'family = "{draft["family"]}"',
        f'version = "{version}"', f'security_version = {draft.get("security_version", 1)}',
        'precision = "int8"', f'licence = {json.dumps(draft["licence"])}',
        f'commercial = {str(draft["commercial"]).lower()}',
        f'origin = {json.dumps(draft.get("origin", "a plain model") + ", INT8 by quantise.py")}',
        "[bounds]",
    ]
    lines += [f"{name} = {value:.4f}" for name, value in bounds.items()]
    out.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("frames", type=Path, nargs="+", help="pictures with faces, to calibrate on")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--accept", type=Path, nargs="+", help="pictures to measure by [default: the frames]")
    parser.add_argument("--mien", default="mien", help="the program")
    parser.add_argument("--version", default="1.1.0", help="version of the INT8 model")
    parser.add_argument("--exclude", nargs="*", default=[], help="nodes that stay FP32")
    parser.add_argument("--spoil", action="store_true", help="makes a bad one; its bounds stay those of a good one")
    arguments = parser.parse_args()
    draft = tomllib.loads(arguments.model.with_suffix(".toml").read_text())

    with tempfile.TemporaryDirectory() as folder:
        full, prepared = Path(folder, "full.onnx"), Path(folder, "prepared.onnx")
        name = whole(arguments.model, full)
        quant_pre_process(str(full), str(prepared), skip_symbolic_shape=True)
        values = list(samples(draft["family"], arguments.frames, arguments.mien))
        if not values:
            sys.exit("no face in the frames: nothing to calibrate on")
        quantize_static(
            str(prepared), str(arguments.output), Reader(name, values), quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=True,
            calibrate_method=CalibrationMethod.MinMax, op_types_to_quantize=["Conv", "Gemm", "MatMul", "Add"],
            nodes_to_exclude=arguments.exclude, extra_options={"ActivationSymmetric": False},
        )

    toml, report = arguments.output.with_suffix(".toml"), arguments.output.with_suffix(".json")
    manifest(draft, toml, arguments.version, {})

    def measured():
        frames = [str(frame) for frame in arguments.accept or arguments.frames]
        command = [arguments.mien, "model", "measure", str(arguments.output), "--against", str(arguments.model)]
        found = subprocess.run([*command, *frames, "--json", "-q"], capture_output=True, text=True)
        if found.returncode:
            sys.exit(f"mien model measure: {found.stderr.strip()}")
        return json.loads(found.stdout)

    distance = measured()
    bounds = {
        key: min(max(distance[key] + slack, 0.0), 1.0)
        for key, slack in SLACK.items() if distance.get(key) is not None
    }
    manifest(draft, toml, arguments.version, bounds)
    if arguments.spoil:
        spoil(arguments.output)
        distance = measured()
    sizes = {"fp32_bytes": arguments.model.stat().st_size, "int8_bytes": arguments.output.stat().st_size}
    written = {"model": draft["id"], "role": draft["role"], **sizes, "samples": len(values),
               "distance": distance, "bounds": bounds}
    report.write_text(json.dumps(written, indent=1) + "\n")
    print(json.dumps(written))


main()
