"""The first picture of an H.264 clip: one intra slice, CABAC, 8 bits, 4:2:0, progressive.

What the clip of the catalogue needs and no more: no PCM, no scaling lists, and quantisers so fine
that the deblocking filter does nothing. Anything else is refused. Clauses are those of ITU-T H.264.
"""

import h264_tables as tables
from intra import predict_4, predict_8, predict_block
from inverse import dequantise_dc, hadamard, inverse_4, inverse_8

# The kinds of residual blocks (table 9-42) and where their contexts begin.
LUMA_DC, LUMA_AC, LUMA_4, CHROMA_DC, CHROMA_AC, LUMA_8 = range(6)
SIGNIFICANT = (105, 120, 134, 149, 152, 402)
LAST = (166, 181, 195, 210, 213, 417)
LEVEL = (227, 237, 247, 257, 266, 426)
# Below this quantiser the deblocking filter leaves every sample alone (table 8-16).
FILTERED = 16
# The order of 4 x 4 blocks in a macroblock.
ORDER = [((i & 1) + (i >> 1 & 2), (i >> 1 & 1) + (i >> 2 & 2)) for i in range(16)]


class Bits:
    """A string of bits with the codes of clause 9.1."""

    def __init__(self, unit):
        # Clause 7.4.1: a 3 after two zeros was put there by the sender.
        self.bytes = bytes(unit).replace(b"\0\0\3", b"\0\0")
        self.at = 0

    def bit(self):
        """The next bit."""
        value = self.bytes[self.at >> 3] >> (7 - (self.at & 7)) & 1
        self.at += 1
        return value

    def number(self, count):
        """The next bits as a number."""
        value = 0
        for _ in range(count):
            value = value << 1 | self.bit()
        return value

    def golomb(self):
        """An unsigned Exp-Golomb code."""
        zeros = 0
        while not self.bit():
            zeros += 1
            if zeros > 31:
                raise ValueError("a code is too long")
        return (1 << zeros) - 1 + self.number(zeros)

    def signed(self):
        """A signed Exp-Golomb code."""
        code = self.golomb()
        return (code + 1) // 2 if code & 1 else -(code // 2)


def refuse(condition, what):
    """Stops at what this decoder does not know."""
    if condition:
        raise ValueError(f"the clip has {what}, which is not understood")


class Parameters:
    """Sequence and picture parameters (clauses 7.3.2.1 and 7.3.2.2)."""

    def __init__(self, sequence, picture):
        bits = Bits(sequence[1:])
        refuse(bits.number(8) != 100, "a profile other than High")
        bits.number(16)
        bits.golomb()
        refuse(bits.golomb() != 1, "no 4:2:0 samples")
        refuse(bits.golomb() or bits.golomb(), "more than 8 bits")
        refuse(bits.bit() or bits.bit(), "scaling lists")
        self.frame_bits = bits.golomb() + 4
        refuse(bits.golomb() != 0, "another order of pictures")
        self.order_bits = bits.golomb() + 4
        bits.golomb()
        bits.bit()
        self.wide, self.high = bits.golomb() + 1, bits.golomb() + 1
        refuse(self.wide * self.high > 1620, "too many macroblocks")
        refuse(not bits.bit(), "fields")
        bits.bit()
        refuse(bits.bit(), "cropped borders")

        bits = Bits(picture[1:])
        bits.golomb()
        bits.golomb()
        refuse(not bits.bit(), "no CABAC")
        self.order_delta = bits.bit()
        refuse(bits.golomb(), "slice groups")
        bits.golomb()
        bits.golomb()
        bits.number(3)
        self.quantiser = 26 + bits.signed()
        bits.signed()
        self.chroma_offset = bits.signed()
        self.has_filter = bits.bit()
        bits.bit()
        refuse(bits.bit(), "redundant pictures")
        self.has_8x8 = bits.bit()
        refuse(bits.bit(), "scaling lists")
        refuse(bits.signed() != self.chroma_offset, "unlike chroma quantisers")


class Cabac:
    """The arithmetic decoder of clause 9.3."""

    def __init__(self, bits, quantiser):
        bits.at = bits.at + 7 & ~7
        self.bits = bits
        self.range, self.offset = 510, bits.number(9)
        self.states = {}
        for begin, contexts in tables.CONTEXTS.items():
            for index, (m, n) in enumerate(contexts):
                state = min(max((m * quantiser >> 4) + n, 1), 126)
                self.states[begin + index] = (
                    (63 - state, 0) if state <= 63 else (state - 64, 1)
                )

    def decide(self, context):
        """One bin with a context."""
        state, likely = self.states[context]
        less = tables.LESS[state * 4 + (self.range >> 6 & 3)]
        self.range -= less
        if self.offset < self.range:
            self.states[context] = (min(state + 1, 62), likely)
            value = likely
        else:
            self.offset -= self.range
            self.range = less
            value = 1 - likely
            self.states[context] = (tables.AFTER_LESS[state], likely if state else value)
        while self.range < 256:
            self.range <<= 1
            self.offset = self.offset << 1 | self.bits.bit()
        return value

    def bypass(self):
        """One bin that is as likely 0 as 1."""
        self.offset = self.offset << 1 | self.bits.bit()
        if self.offset < self.range:
            return 0
        self.offset -= self.range
        return 1

    def ends(self):
        """The bin that says whether something ends here."""
        self.range -= 2
        if self.offset >= self.range:
            return 1
        while self.range < 256:
            self.range <<= 1
            self.offset = self.offset << 1 | self.bits.bit()
        return 0

    def level(self, kind, ones, more):
        """A coefficient: its size less one, then its sign (clause 9.3.2.3 and 9.3.3.1.3)."""
        context = LEVEL[kind]
        size = 0
        if self.decide(context + (0 if more else min(4, 1 + ones))):
            size = 1
            context += 5 + min(4 - (kind == CHROMA_DC), more)
            while size < 14 and self.decide(context):
                size += 1
        if size == 14:
            power = 0
            while self.bypass():
                size += 1 << power
                power += 1
                refuse(power > 24, "a level beyond all bounds")
            for place in range(power - 1, -1, -1):
                size += self.bypass() << place
        return -(size + 1) if self.bypass() else size + 1

    def block(self, kind, count):
        """The coefficients of a block in scan order (clause 7.3.5.3.3)."""
        places = []
        for index in range(count - 1):
            significant = last = index
            if kind == CHROMA_DC:
                significant = last = min(index, 2)
            elif kind == LUMA_8:
                significant, last = tables.SIGNIFICANT_8[index], tables.LAST_8[index]
            if self.decide(SIGNIFICANT[kind] + significant):
                places.append(index)
                if self.decide(LAST[kind] + last):
                    break
        else:
            places.append(count - 1)
        levels, ones, more = [0] * count, 0, 0
        for place in reversed(places):
            levels[place] = self.level(kind, ones, more)
            if abs(levels[place]) == 1:
                ones += 1
            else:
                more += 1
        return levels


class Macroblock:
    """What neighbours ask of a macroblock."""

    def __init__(self):
        self.is_16 = self.is_8 = False
        self.luma = self.chroma = self.chroma_mode = 0
        self.dc = [0, 0, 0]


class Picture:
    """A picture that is being decoded; planes are lists of rows."""

    def __init__(self, parameters, slice_unit):
        self.parameters = parameters
        self.wide, self.high = parameters.wide, parameters.high
        sizes = ((16, 16), (8, 8), (8, 8))
        self.planes = [[bytearray(self.wide * w) for _ in range(self.high * h)] for w, h in sizes]
        self.done = {}
        self.modes = {}
        # Whether a block has coefficients: by plane, column, row of 4 x 4 blocks.
        self.coded = {}
        self.quantiser, self.delta = self.header(slice_unit), 0
        self.slice()

    def header(self, unit):
        """Reads the slice header (clause 7.3.3); the quantiser that the slice begins with."""
        parameters, self.bits = self.parameters, Bits(unit[1:])
        bits = self.bits
        refuse(bits.golomb() != 0, "several slices")
        refuse(bits.golomb() % 5 != 2, "a first picture that is not intra")
        bits.golomb()
        bits.number(parameters.frame_bits)
        bits.golomb()
        bits.number(parameters.order_bits)
        if parameters.order_delta:
            bits.signed()
        bits.number(2)
        quantiser = parameters.quantiser + bits.signed()
        self.filtered = FILTERED
        if parameters.has_filter and bits.golomb() != 1:
            self.filtered -= 2 * bits.signed()
            bits.signed()
        return quantiser

    def slice(self):
        """Every macroblock, row by row."""
        self.cabac = Cabac(self.bits, self.quantiser)
        for index in range(self.wide * self.high):
            self.x, self.y = index % self.wide, index // self.wide
            self.left = self.done.get((self.x - 1, self.y))
            self.above = self.done.get((self.x, self.y - 1))
            self.block = Macroblock()
            self.macroblock()
            self.done[self.x, self.y] = self.block
            refuse(self.quantiser >= self.filtered, "samples that need the deblocking filter")
            if self.cabac.ends() != (index == self.wide * self.high - 1):
                raise ValueError("the slice ends at the wrong place")

    def ask(self, context, question):
        """A bin whose context depends on the macroblocks to the left and above."""
        left = self.left is not None and question(self.left)
        above = self.above is not None and question(self.above)
        return self.cabac.decide(context + left + above)

    def macroblock(self):
        """One macroblock (clause 7.3.5)."""
        cabac, block = self.cabac, self.block
        block.is_16 = bool(self.ask(3, lambda n: n.is_16))
        if block.is_16:
            refuse(cabac.ends(), "samples without compression")
            block.luma = 15 * cabac.decide(6)
            block.chroma = cabac.decide(7) and 1 + cabac.decide(8)
            mode = 2 * cabac.decide(9) + cabac.decide(10)
        else:
            block.is_8 = bool(
                self.parameters.has_8x8 and self.ask(399, lambda n: n.is_8)
            )
            modes = self.luma_modes()
        block.chroma_mode = self.chroma_mode()
        if not block.is_16:
            block.luma, block.chroma = self.pattern()
        if block.is_16 or block.luma or block.chroma:
            self.change_quantiser()
        else:
            self.delta = 0
        if block.is_16:
            self.luma_16(mode)
        elif block.is_8:
            self.luma_8(modes)
        else:
            self.luma_4(modes)
        self.chroma()

    def luma_modes(self):
        """Prediction modes of the blocks (clauses 7.3.5.1, 8.3.1.1 and 8.3.2.1)."""
        found, step = [], 2 if self.block.is_8 else 1
        for bx, by in ORDER[:: step * step]:
            x, y = self.x * 4 + bx, self.y * 4 + by
            # A neighbour outside, or of another kind, counts as DC; one outside decides alone.
            around = [self.modes.get(place) for place in ((x - 1, y), (x, y - 1))]
            likely = 2 if None in around else min(around)
            if not self.cabac.decide(68):
                rest = sum(self.cabac.decide(69) << place for place in range(3))
                likely = rest + (rest >= likely)
            for dx in range(step):
                for dy in range(step):
                    self.modes[x + dx, y + dy] = likely
            found.append(likely)
        return found

    def chroma_mode(self):
        """The prediction mode of both chroma planes."""
        if not self.ask(64, lambda n: n.chroma_mode != 0):
            return 0
        if not self.cabac.decide(67):
            return 1
        return 2 + self.cabac.decide(67)

    def pattern(self):
        """Which quarters of luma, and what of chroma, have coefficients (clause 9.3.3.1.1.4)."""
        luma = 0
        for quarter in range(4):
            if quarter & 1:
                left = not luma >> quarter - 1 & 1
            else:
                left = self.left is not None and not self.left.luma >> quarter + 1 & 1
            if quarter & 2:
                above = not luma >> quarter - 2 & 1
            else:
                above = self.above is not None and not self.above.luma >> quarter + 2 & 1
            luma |= self.cabac.decide(73 + left + 2 * above) << quarter
        left = self.left.chroma if self.left else 0
        above = self.above.chroma if self.above else 0
        chroma = self.cabac.decide(77 + (left > 0) + 2 * (above > 0))
        if chroma:
            chroma += self.cabac.decide(81 + (left == 2) + 2 * (above == 2))
        return luma, chroma

    def change_quantiser(self):
        """The quantiser's step from the macroblock before."""
        code = self.cabac.decide(60 + (self.delta != 0))
        if code:
            context = 62
            while self.cabac.decide(context):
                code += 1
                context = 63
                refuse(code > 104, "a quantiser beyond all bounds")
        self.delta = (code + 1) // 2 if code & 1 else -(code // 2)
        self.quantiser = (self.quantiser + self.delta) % 52

    def has_dc(self, plane, kind, exists):
        """Whether a macroblock's DC block is coded."""
        around = [
            1 if near is None else exists(near) and near.dc[plane]
            for near in (self.left, self.above)
        ]
        context = 85 + 4 * kind + around[0] + 2 * around[1]
        self.block.dc[plane] = self.cabac.decide(context)
        return self.block.dc[plane]

    def has_block(self, plane, kind, x, y):
        """Whether a 4 x 4 block is coded; neighbours outside the picture count as coded."""
        around = [self.coded.get((plane, *place), 1) for place in ((x - 1, y), (x, y - 1))]
        self.coded[plane, x, y] = self.cabac.decide(85 + 4 * kind + around[0] + 2 * around[1])
        return self.coded[plane, x, y]

    def luma_quarter(self, index):
        """Whether the quarter with this 4 x 4 block has coefficients."""
        return self.block.luma >> (index >> 2) & 1

    def coefficients_4(self, plane, kind, x, y, quantiser, present):
        """Coefficients of a 4 x 4 block, scaled, by place; None when there are none."""
        if not present:
            self.coded[plane, x, y] = 0
            return None
        if not self.has_block(plane, kind, x, y):
            return None
        skip = kind in (LUMA_AC, CHROMA_AC)
        levels = [0] * skip + self.cabac.block(kind, 16 - skip)
        scale = tables.SCALE_4[quantiser % 6]
        return [level * s << quantiser // 6 for level, s in zip(levels, scale)]

    def luma_4(self, modes):
        """Sixteen blocks, each predicted from its neighbours."""
        places = [(self.x * 4 + bx, self.y * 4 + by) for bx, by in ORDER]
        found = [
            self.coefficients_4(0, LUMA_4, x, y, self.quantiser, self.luma_quarter(index))
            for index, (x, y) in enumerate(places)
        ]
        for index, ((x, y), mode, values) in enumerate(zip(places, modes, found)):
            right = index not in (3, 7, 11, 13, 15) and self.right_of(x, y, 1)
            predict_4(self.planes[0], 4 * x, 4 * y, mode, right)
            if values:
                inverse_4(self.planes[0], 4 * x, 4 * y, values)

    def corner(self):
        """Whether there is a macroblock above on the right."""
        return (self.x + 1, self.y - 1) in self.done

    def right_of(self, x, y, step):
        """Whether the samples above on the right of a block lie inside the picture."""
        if y == 0 or x + step >= self.wide * 4:
            return False
        return y % 4 != 0 or (x + step) % 4 != 0 or self.corner()

    def luma_8(self, modes):
        """Four blocks of 8 x 8, each predicted from its neighbours."""
        found = []
        for index in range(4):
            x, y = self.x * 4 + 2 * (index & 1), self.y * 4 + (index & 2)
            present = self.block.luma >> index & 1
            for place in ((x, y), (x + 1, y), (x, y + 1), (x + 1, y + 1)):
                self.coded[(0, *place)] = present
            values = None
            if present:
                scale, shift = tables.SCALE_8[self.quantiser % 6], self.quantiser // 6
                levels = self.cabac.block(LUMA_8, 64)
                # Clause 8.5.13.1 with flat lists: 16 * level * scale, 6 places down.
                values = [(level * s * 4 << shift) + 8 >> 4 for level, s in zip(levels, scale)]
            found.append((x, y, values))
        for index, ((x, y, values), mode) in enumerate(zip(found, modes)):
            right = index != 3 and self.right_of(x, y, 2)
            predict_8(self.planes[0], 4 * x, 4 * y, mode, right)
            if values:
                inverse_8(self.planes[0], 4 * x, 4 * y, values)

    def luma_16(self, mode):
        """The whole macroblock predicted at once; the blocks' DC values come first."""
        for bx, by in ORDER:
            self.modes[self.x * 4 + bx, self.y * 4 + by] = 2
        dc = [0] * 16
        if self.has_dc(0, LUMA_DC, lambda near: near.is_16):
            levels = self.cabac.block(LUMA_DC, 16)
            for (x, y), level in zip(tables.SCAN_4, levels):
                dc[4 * y + x] = level
            dc = dequantise_dc(hadamard(dc, 4), self.quantiser)
        found = []
        for index, (bx, by) in enumerate(ORDER):
            x, y = self.x * 4 + bx, self.y * 4 + by
            present = self.luma_quarter(index)
            values = self.coefficients_4(0, LUMA_AC, x, y, self.quantiser, present) or [0] * 16
            values[0] = dc[4 * by + bx]
            found.append((x, y, values))
        around = (self.left is not None, self.above is not None)
        predict_block(self.planes[0], 16 * self.x, 16 * self.y, 16, mode, around)
        for x, y, values in found:
            inverse_4(self.planes[0], 4 * x, 4 * y, values)

    def chroma(self):
        """Both chroma planes: their DC values, then the rest."""
        quantiser = min(max(self.quantiser + self.parameters.chroma_offset, 0), 51)
        refuse(quantiser >= 30, "coarse chroma")
        dc = {1: [0] * 4, 2: [0] * 4}
        for plane in (1, 2):
            if self.block.chroma and self.has_dc(plane, CHROMA_DC, lambda near: near.chroma):
                values = hadamard(self.cabac.block(CHROMA_DC, 4), 2)
                scale = 16 * tables.NORM_4[quantiser % 6][0]
                dc[plane] = [(value * scale << quantiser // 6) >> 5 for value in values]
        found = []
        for plane in (1, 2):
            for index in range(4):
                x, y = self.x * 2 + (index & 1), self.y * 2 + (index >> 1)
                present = self.block.chroma == 2
                values = self.coefficients_4(plane, CHROMA_AC, x, y, quantiser, present)
                values = values or [0] * 16
                values[0] = dc[plane][index]
                found.append((plane, x, y, values))
        around = (self.left is not None, self.above is not None)
        # Chroma numbers its modes otherwise: DC, horizontal, vertical, plane.
        mode = (2, 1, 0, 3)[self.block.chroma_mode]
        for plane in (1, 2):
            predict_block(self.planes[plane], 8 * self.x, 8 * self.y, 8, mode, around)
        for plane, x, y, values in found:
            inverse_4(self.planes[plane], 4 * x, 4 * y, values)
