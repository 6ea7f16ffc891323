"""Protocol Buffers wire format: what ONNX files are written in, and no more of it than they use."""

import struct

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(value):
    """A whole number of 64 bits, seven bits a byte, low bits first."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    """A field that holds a whole number."""
    return varint(field << 3 | VARINT) + varint(value)


def numbers(field, values):
    """A repeated field of whole numbers, one by one as ONNX has them."""
    return b"".join(number(field, value) for value in values)


def single(field, value):
    """A field that holds a float of 32 bits."""
    return varint(field << 3 | FIXED32) + struct.pack("<f", value)


def data(field, value):
    """A field that holds bytes, text or another message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | BYTES) + varint(len(value)) + value


def read_varint(message, at):
    """The number at `at` and the place after it."""
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a number runs past the end of its message")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(message):
    """The fields of a message in their order: (field, kind, value). Bytes are views, not copies."""
    message = memoryview(message)
    at, found = 0, []
    while at < len(message):
        key, at = read_varint(message, at)
        field, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = read_varint(message, at)
        else:
            if kind == BYTES:
                size, at = read_varint(message, at)
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
            else:
                raise ValueError(f"field {field} has the unknown kind {kind}")
            value, at = message[at : at + size], at + size
            if at > len(message):
                raise ValueError(f"field {field} runs past the end of its message")
        found.append((field, kind, value))
    return found


def write(found):
    """The message of these fields, in the order of their numbers."""
    parts = []
    for field, kind, value in sorted(found, key=lambda item: item[0]):
        if kind == VARINT:
            parts.append(number(field, value))
        elif kind == BYTES:
            parts.append(data(field, value))
        else:
            parts.append(varint(field << 3 | kind) + bytes(value))
    return b"".join(parts)


def first(found, field, default=None):
    """The value of a field, or `default` when it is absent."""
    return next((value for number_, _, value in found if number_ == field), default)


def every(found, field):
    """All values of a repeated field."""
    return [value for number_, _, value in found if number_ == field]
