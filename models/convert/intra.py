"""H.264's predictions of a block from its neighbours (clause 8.3)."""

VERTICAL, HORIZONTAL, DC, PLANE = range(4)


def smooth(values, at):
    """Three neighbours weighted 1, 2, 1; the ends count again beyond themselves."""
    last = len(values) - 1
    before, after = values[min(max(at - 1, 0), last)], values[min(at + 1, last)]
    return before + 2 * values[min(at, last)] + after + 2 >> 2


def between(values, at):
    """The mean of two neighbours."""
    last = len(values) - 1
    return values[min(at, last)] + values[min(at + 1, last)] + 1 >> 1


def mean(values):
    """The rounded mean; grey when there is nothing."""
    return (sum(values) + len(values) // 2) // len(values) if values else 128


def neighbours(plane, x, y, side, right):
    """Samples above (twice as many as wide), to the left, and in the corner; empty if outside."""
    above, left, corner = [], [], None
    if y > 0:
        above = list(plane[y - 1][x : x + (2 * side if right else side)])
        above += above[-1:] * (2 * side - len(above))
    if x > 0:
        left = [plane[y + dy][x - 1] for dy in range(side)]
    if above and left:
        corner = plane[y - 1][x - 1]
    return above, left, corner


def predict_4(plane, x, y, mode, right):
    """A 4 x 4 block; `right` says whether the samples above on the right are known."""
    fill(plane, x, y, 4, mode, neighbours(plane, x, y, 4, right))


def predict_8(plane, x, y, mode, right):
    """An 8 x 8 block: its neighbours are smoothed first (clause 8.3.2.2.1)."""
    above, left, corner = neighbours(plane, x, y, 8, right)
    head = [] if corner is None else [corner]
    smoothed = []
    for line in (above, left):
        line = head + line
        smoothed.append([smooth(line, at) for at in range(len(head), len(line))])
    if corner is not None:
        corner = above[0] + 2 * corner + left[0] + 2 >> 2
    fill(plane, x, y, 8, mode, (*smoothed, corner))


def fill(plane, x, y, side, mode, around):
    """Writes the prediction of a block in one of nine directions."""
    above, left, corner = around
    missing = {0: not above, 3: not above, 7: not above, 1: not left, 8: not left}
    if missing.get(mode, mode != DC and corner is None):
        raise ValueError("a block is predicted from outside the picture")
    edge = left[::-1] + [corner] + above
    flat = mean(above[:side] + left)
    for dy in range(side):
        for dx in range(side):
            value = flat if mode == DC else DIRECTIONS[mode](above, left, edge, side, dx, dy)
            plane[y + dy][x + dx] = value


def down_left(above, _, __, ___, x, y):
    """From above on the right."""
    return smooth(above, x + y + 1)


def down_right(_, __, edge, side, x, y):
    """From the corner; `edge` runs from below on the left to above on the right."""
    return smooth(edge, side + x - y)


def vertical_right(_, __, edge, side, x, y):
    """From above, a little from the left."""
    if 2 * x < y:
        return smooth(edge, side + 1 - y + 2 * x)
    at = side + x - (y >> 1)
    return smooth(edge, at) if y & 1 else between(edge, at)


def horizontal_down(_, __, edge, side, x, y):
    """From the left, a little from above."""
    if 2 * y < x:
        return smooth(edge, side - 1 + x - 2 * y)
    at = side - y + (x >> 1)
    return smooth(edge, at) if x & 1 else between(edge, at - 1)


def vertical_left(above, _, __, ___, x, y):
    """From above, a little from the right."""
    at = x + (y >> 1)
    return smooth(above, at + 1) if y & 1 else between(above, at)


def horizontal_up(_, left, __, ___, x, y):
    """From the left, a little from below."""
    at = y + (x >> 1)
    return smooth(left, at + 1) if x & 1 else between(left, at)


DIRECTIONS = {
    0: lambda above, left, edge, side, x, y: above[x],
    1: lambda above, left, edge, side, x, y: left[y],
    3: down_left,
    4: down_right,
    5: vertical_right,
    6: horizontal_down,
    7: vertical_left,
    8: horizontal_up,
}


def predict_block(plane, x, y, side, mode, around):
    """A block of 16 x 16 luma or 8 x 8 chroma, as a whole."""
    has_left, has_above = around
    above = plane[y - 1][x : x + side] if has_above else b""
    left = bytes(plane[y + dy][x - 1] for dy in range(side)) if has_left else b""
    if mode == PLANE:
        rows = slope(above, left, plane[y - 1][x - 1] if above and left else None, side)
    elif mode == VERTICAL:
        rows = [above] * side
    elif mode == HORIZONTAL:
        rows = [bytes([value]) * side for value in left]
    elif side == 16:
        rows = [bytes([mean(list(above) + list(left))]) * side] * side
    else:
        rows = quarters(list(above), list(left))
    if len(rows) != side or len(rows[0]) != side:
        raise ValueError("a block is predicted from outside the picture")
    for dy, row in enumerate(rows):
        plane[y + dy][x : x + side] = row


def quarters(above, left):
    """The mean for each quarter of chroma, of those neighbours that touch it."""
    top = mean(above[:4] + left[:4]), mean(above[4:] or left[:4])
    low = mean(left[4:] or above[:4]), mean(above[4:] + left[4:])
    return [bytes([a] * 4 + [b] * 4) for a, b in (top, low) for _ in range(4)]


def slope(above, left, corner, side):
    """A plane through the neighbours."""
    if corner is None:
        raise ValueError("a block is predicted from outside the picture")
    half, weight = side // 2, 5 if side == 16 else 34

    def gradient(line):
        line = [corner, *line]
        steps = range(1, half + 1)
        total = sum(step * (line[half + step] - line[half - step]) for step in steps)
        return weight * total + 32 >> 6

    across, down = gradient(above), gradient(left)
    base = 16 * (above[-1] + left[-1]) + 16
    places = [place - half + 1 for place in range(side)]
    return [
        bytes(min(max(base + across * x + down * y >> 5, 0), 255) for x in places)
        for y in places
    ]
