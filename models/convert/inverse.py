"""H.264's inverse transforms (clause 8.5), added onto predicted samples."""

from h264_tables import NORM_4, SCAN_4, SCAN_8


def hadamard(values, side):
    """The transform of DC values, 4 x 4 or 2 x 2, by rows."""
    if side == 2:
        a, b, c, d = values
        return [a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d]

    def line(a, b, c, d):
        return [a + b + c + d, a + b - c - d, a - b - c + d, a - b + c - d]

    rows = [line(*values[4 * y : 4 * y + 4]) for y in range(4)]
    columns = [line(*column) for column in zip(*rows)]
    return [columns[x][y] for y in range(4) for x in range(4)]


def dequantise_dc(values, quantiser):
    """Luma DC values of a macroblock that is predicted as a whole, scaled."""
    scale, shift = 16 * NORM_4[quantiser % 6][0], quantiser // 6
    if shift >= 6:
        return [value * scale << shift - 6 for value in values]
    return [value * scale + (1 << 5 - shift) >> 6 - shift for value in values]


def add(plane, x, y, rows):
    """Adds a block of differences, 64ths, onto the samples."""
    for dy, row in enumerate(rows):
        line = plane[y + dy]
        for dx, value in enumerate(row):
            line[x + dx] = min(max(line[x + dx] + (value + 32 >> 6), 0), 255)


def transform(values, scan, line):
    """Rows, then columns."""
    side = int(len(scan) ** 0.5)
    block = [[0] * side for _ in range(side)]
    for (x, y), value in zip(scan, values):
        block[y][x] = value
    columns = [line(*column) for column in zip(*[line(*row) for row in block])]
    return list(zip(*columns))


def inverse_4(plane, x, y, values):
    """A 4 x 4 block."""
    add(plane, x, y, transform(values, SCAN_4, line_4))


def inverse_8(plane, x, y, values):
    """An 8 x 8 block."""
    add(plane, x, y, transform(values, SCAN_8, line_8))


def line_4(a, b, c, d):
    """Four values."""
    e, f, g, h = a + c, a - c, (b >> 1) - d, b + (d >> 1)
    return [e + h, f + g, f - g, e - h]


def line_8(a, b, c, d, e, f, g, h):
    """Eight values (clause 8.5.13.2)."""
    p, q, r, s = a + e, a - e, (c >> 1) - g, c + (g >> 1)
    even = (p + s, q + r, q - r, p - s)
    t, u = -d + f - h - (h >> 1), b + h - d - (d >> 1)
    v, w = -b + h + f + (f >> 1), d + f + b + (b >> 1)
    odd = (w - (t >> 2), (u >> 2) - v, u + (v >> 2), (w >> 2) + t)
    falling = [first - second for first, second in zip(even, odd)]
    return [first + second for first, second in zip(even, odd)] + falling[::-1]
