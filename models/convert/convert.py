"""Makes one file of the catalogue: convert.py STEP OUT MEMBER...

Needs Python 3.8 and nothing else. Runs no code of what it reads."""

import struct
import sys
from pathlib import Path

import dlib
import frame
import halve
import layers
import tflite

STEPS = {
    "onnx": lambda path: halve.halve(Path(path).read_bytes()),
    "centerface": lambda path: halve.halve(Path(path).read_bytes(), open_size=True),
    "tflite": tflite.convert,
    "tflite-batch": lambda path: halve.halve(tflite.convert(path, open_batch=True)),
    "dlib": dlib.convert,
    "nsfwjs": layers.convert,
    "frame": frame.convert,
}


def main(arguments):
    """Converts; an exit status of 1 with one line on stderr says why not."""
    if sys.byteorder != "little":
        raise SystemExit("the converters need a little-endian machine")
    step, out, *members = arguments
    try:
        Path(out).write_bytes(STEPS[step](*members))
    except (ValueError, LookupError, OverflowError, struct.error, OSError) as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
