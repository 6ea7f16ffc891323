"""FlatBuffers, read only: tables with numbered slots, vectors, text. Every offset is checked."""

import struct


class Table:
    """A table of a FlatBuffers file."""

    def __init__(self, file, at):
        self.file = file
        self.at = at
        self.slots = at - self._number("<i", at)
        self.end = self._number("<H", self.slots)

    @classmethod
    def root(cls, file):
        """The table that the file begins with."""
        file = memoryview(file)
        return cls(file, struct.unpack_from("<I", file, 0)[0])

    def _number(self, kind, at):
        if at < 0 or at + struct.calcsize(kind) > len(self.file):
            raise ValueError("an offset points out of the file")
        return struct.unpack_from(kind, self.file, at)[0]

    def _slot(self, slot):
        """Where the value of a slot stands, or None when it is absent."""
        place = 4 + 2 * slot
        offset = self._number("<H", self.slots + place) if place < self.end else 0
        return self.at + offset if offset else None

    def _target(self, slot):
        """Where the offset in a slot points to, or None."""
        at = self._slot(slot)
        return None if at is None else at + self._number("<I", at)

    def number(self, slot, kind="i", default=0):
        """A number; `kind` is its letter in `struct`."""
        at = self._slot(slot)
        return default if at is None else self._number("<" + kind, at)

    def table(self, slot):
        """A table, or None."""
        at = self._target(slot)
        return None if at is None else Table(self.file, at)

    def bytes(self, slot, width=1):
        """The bytes of a vector of values `width` bytes wide; empty when absent."""
        at = self._target(slot)
        if at is None:
            return b""
        size = self._number("<I", at) * width
        if at + 4 + size > len(self.file):
            raise ValueError("a vector runs past the end of the file")
        return bytes(self.file[at + 4 : at + 4 + size])

    def numbers(self, slot):
        """A vector of int32."""
        raw = self.bytes(slot, 4)
        return list(struct.unpack(f"<{len(raw) // 4}i", raw))

    def text(self, slot):
        """A string; empty when absent."""
        return self.bytes(slot).decode()

    def tables(self, slot):
        """A vector of tables."""
        at = self._target(slot)
        count = 0 if at is None else self._number("<I", at)
        places = (at + 4 + 4 * index for index in range(count))
        return [Table(self.file, place + self._number("<I", place)) for place in places]
