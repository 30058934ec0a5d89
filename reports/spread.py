"""How two tensors differ, in a few hundred numbers: enough to draw a heat map and a histogram long after the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SIDE = 32  #: rows and columns of a heat map, at most
BINS = 20  #: 0 | 1 | 2-3 | 4-7 | ... | 131072 and more | no number
CHANGED = 512  #: changed elements of a tensor of integers that are kept one by one, at most


@dataclass(frozen=True, slots=True)
class Spread:
    """The difference of one tensor.

    Attributes:
        shape: of the tensor.
        axes: the one or two axes that the map's rows and columns stand for, in that order; () for a scalar.
        grid: largest absolute error of each block of elements, over all other axes too; infinite where one is no
            number. A tensor with one axis has one row.
        counts: elements by distance, `BINS` of them: in ULP for floats, in units for integers.
        changed: of integers and booleans, (place in the flattened tensor, the port's value) where it differs; None
            for floats, and where more than `CHANGED` differ.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    grid: tuple[tuple[float, ...], ...]
    counts: tuple[int, ...]
    changed: tuple[tuple[int, int], ...] | None = None

    def to_record(self) -> list[Any]:
        """Every field, of types the json module writes; `from_record` reverses it."""
        changed = None if self.changed is None else [list(pair) for pair in self.changed]
        return [list(self.shape), list(self.axes), [list(row) for row in self.grid], list(self.counts), changed]

    @classmethod
    def from_record(cls, record: Sequence[Any]) -> Spread:
        """The spread whose `to_record` gave `record`.

        Raises:
            ValueError: the record has another number of fields or bins.
        """
        if len(record) != 5 or len(record[3]) != BINS:
            raise ValueError(f"a spread's record is 5 fields with {BINS} bins fourth, not {record!r:.200}")
        shape, axes, grid, counts, changed = record
        kept = None if changed is None else tuple((int(place), int(value)) for place, value in changed)
        return cls(tuple(shape), tuple(axes), tuple(map(tuple, grid)), tuple(counts), kept)

    @property
    def differing(self) -> int:
        """How many elements differ."""
        return sum(self.counts[1:])


def label(number: int) -> str:
    """What a bin counts: `0`, `1`, `4-7`, `131072 and more`, `no number`."""
    if number < 2:
        return str(number)
    if number == BINS - 1:
        return "no number"
    low = 2 ** (number - 1)
    return f"{low} and more" if number == BINS - 2 else f"{low}-{2 * low - 1}"
