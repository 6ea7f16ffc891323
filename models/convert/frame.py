"""The first picture of an MP4 clip, as a PNG."""

import struct
import zlib
from pathlib import Path

from h264 import Parameters, Picture

# Boxes of an MP4 file that hold other boxes, on the way to a track's samples.
INNER = {b"moov", b"trak", b"mdia", b"minf", b"stbl"}
SLICE_OF_REFRESH = 5


def convert(path):
    """The PNG file of a clip's first picture."""
    clip = Path(path).read_bytes()
    boxes = dict(walk(clip, 0, len(clip)))
    entry = boxes[b"stsd"]
    at = entry.index(b"avcC") + 4
    sequence, at = parameter_set(entry, at + 6)
    picture, _ = parameter_set(entry, at + 1)
    begin = struct.unpack_from(">I", boxes[b"stco"], 8)[0]
    fixed, _, size = struct.unpack_from(">III", boxes[b"stsz"], 4)
    for unit in units(clip[begin : begin + (fixed or size)]):
        if unit[0] & 31 == SLICE_OF_REFRESH:
            return png(*rgb(Picture(Parameters(sequence, picture), unit).planes))
    raise ValueError("the clip does not begin with a whole picture")


def walk(clip, at, end):
    """Name and content of each box of the first track."""
    while at + 8 <= end:
        size, name = struct.unpack_from(">I4s", clip, at)
        if size < 8 or at + size > end:
            raise ValueError("a box runs past the end of the clip")
        if name in INNER:
            yield from walk(clip, at + 8, at + size)
        else:
            yield name, clip[at + 8 : at + size]
        at += size


def parameter_set(entry, at):
    """The parameter set at `at`, after its size, and the place after it."""
    size = struct.unpack_from(">H", entry, at)[0]
    return entry[at + 2 : at + 2 + size], at + 2 + size


def units(sample):
    """The units of a sample, each after its size in four bytes."""
    at = 0
    while at + 4 < len(sample):
        size = struct.unpack_from(">I", sample, at)[0]
        yield sample[at + 4 : at + 4 + size]
        at += 4 + size


def rgb(planes):
    """Width, height and RGB rows, by BT.601 with limited range, in whole numbers."""
    luma, blue, red = planes
    blue, red = enlarge(blue), enlarge(red)
    rows = []
    for line, u_line, v_line in zip(luma, blue, red):
        row = bytearray()
        for y, u, v in zip(line, u_line, v_line):
            y, u, v = 76309 * (y - 16) + 32768, u - 128, v - 128
            values = (y + 104597 * v, y - 25675 * u - 53279 * v, y + 132201 * u)
            row += bytes(min(max(value >> 16, 0), 255) for value in values)
        rows.append(row)
    return len(luma[0]), len(luma), rows


def enlarge(plane):
    """Twice as wide and high, by the nearest four samples weighted 9, 3, 3, 1."""
    high, wide = len(plane), len(plane[0])
    rows = []
    for y in range(2 * high):
        near = plane[y // 2]
        far = plane[min(max(y // 2 + (1 if y & 1 else -1), 0), high - 1)]
        mixed = [3 * a + b for a, b in zip(near, far)]
        row = []
        for x in range(2 * wide):
            other = mixed[min(max(x // 2 + (1 if x & 1 else -1), 0), wide - 1)]
            row.append(3 * mixed[x // 2] + other + 8 >> 4)
        rows.append(row)
    return rows


def png(wide, high, rows):
    """A PNG file. It is stored, not packed: packers differ, and the bytes are pinned."""

    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    raw = b"".join(b"\0" + bytes(row) for row in rows)
    packed = b"\x78\x01"
    for at in range(0, len(raw), 65535):
        part = raw[at : at + 65535]
        last = at + 65535 >= len(raw)
        packed += struct.pack("<BHH", last, len(part), len(part) ^ 65535) + part
    packed += struct.pack(">I", zlib.adler32(raw))
    head = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    signature = b"\x89PNG\r\n\x1a\n"
    return signature + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
