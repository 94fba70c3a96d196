"""How the rows of a group are divided into chunks: a function of their numbers alone.

A group that grows a hundredfold must not have a hundred times as many files. Chunks may therefore grow with their
number: a hundred of the first size, a hundred of twice that size, and so on. Rows that were simulated before keep their
chunks, and the content of a chunk does not depend on how many rows were asked for when.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BLOCK", "LARGEST", "Chunking"]

BLOCK = 100  # chunks of one size
LARGEST = 1000  # rows to which chunks grow


@dataclass(frozen=True)
class Chunking:
    """Chunks of equal size, or growing ones.

    Arguments:
        size: The number of rows of the first chunks.
        growing: Whether sizes double after every hundred chunks, up to 1000 rows.

    >>> chunking = Chunking(10, growing=True)
    >>> chunking.rows(0), chunking.rows(100), chunking.start(101), chunking.count(3000), chunking.count(3001)
    (10, 20, 1020, 200, 201)
    """

    size: int
    growing: bool = False

    def rows(self, chunk: int) -> int:
        """The number of rows of a full chunk."""
        if not self.growing or self.size >= LARGEST:
            return self.size
        return min(LARGEST, self.size << min(chunk // BLOCK, LARGEST.bit_length()))

    def start(self, chunk: int) -> int:
        """The number of rows before a chunk."""
        rows = block = 0
        while block + BLOCK <= chunk and self.rows(block) < self.rows(chunk):
            rows += BLOCK * self.rows(block)
            block += BLOCK
        return rows + (chunk - block) * self.rows(chunk)

    def count(self, n: int) -> int:
        """The number of chunks of the first ``n`` rows."""
        block = 0
        while self.start(block + BLOCK) < n and self.rows(block) < self.rows(block + BLOCK):
            block += BLOCK
        size = self.rows(block)
        return block + -(-(n - self.start(block)) // size)

    def within(self, chunk: int, n: int) -> int:
        """The number of rows of a chunk among the first ``n``; the last chunk may be partial."""
        return max(0, min(self.rows(chunk), n - self.start(chunk)))
