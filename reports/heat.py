"""Where the cells of a heat map and the bars of a histogram stand, from what a verdict keeps of a difference."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports.report import excess
from reports.spread import Spread, label
from reports.verdict import SEVERITY, Verdict, address, number

LEVELS = 7  #: colours, each for a range of errors
SIZE, TALL, BAR = 12, 96, 26  # a cell, a histogram's height, a bar's width: pixels
MAPS = 12  #: on a page


@dataclass(frozen=True, slots=True)
class Heat:
    """The map of one verdict: SVG paths by level in units of a cell, and what each cell says.

    Attributes:
        values: JSON: rows of errors as texts, for the script to read out.
        rows: the axis down and its length; columns: the axis across and its length.
        legend: for each level in use, the least error it stands for.
    """

    title: str
    width: int
    height: int
    paths: tuple[tuple[int, str], ...]
    values: str
    rows: tuple[str, int]
    columns: tuple[str, int]
    legend: tuple[tuple[int, str], ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Bar:
    """One bin: left edge, top and height in pixels, its label, and what to say of it."""

    x: int
    y: float
    height: float
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """Elements by distance, over all differing tensors of a stage in one mode."""

    mode: str
    unit: str
    total: int
    bars: tuple[Bar, ...]
    width: int


def heats(verdicts: Iterable[Verdict], axes: dict[str, list[str]]) -> tuple[list[Heat], int]:
    """Maps of the verdicts furthest from their bounds, at most `MAPS`, and how many differing tensors there are."""
    found = [v for v in verdicts if v.spread is not None and v.spread.grid]
    found.sort(key=lambda v: (SEVERITY.index(v.status), v.mode != "forced", -excess(v)))
    return [_heat(v, v.spread, axes.get(v.tensor, [])) for v in found[:MAPS] if v.spread], len(found)


def _heat(verdict: Verdict, spread: Spread, names: list[str]) -> Heat:
    grid = spread.grid
    finite = [value for row in grid for value in row if value > 0 and math.isfinite(value)]
    top = max(finite, default=1.0)
    low = max(min(finite, default=1.0), top * 1e-6)
    span = math.log10(top / low) or 1.0
    cells: dict[int, str] = {}
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            level = _level(value, low, span)
            if level:
                cells[level] = cells.get(level, "") + f"M{x} {y}h1v1h-1z"
    legend = [
        (
            level,
            "no number"
            if level == LEVELS + 1
            else f"from {number(float(f'{low * 10 ** (span * (level - 1) / LEVELS):.3g}'))}",
        )
        for level in sorted(cells)
    ]
    named = [_axis(names, axis, spread) for axis in spread.axes]
    while len(named) < 2:
        named.insert(0, ("", 1))
    return Heat(
        title=f"{address(verdict)}, {verdict.mode}, {verdict.case}",
        width=len(grid[0]),
        height=len(grid),
        paths=tuple(sorted(cells.items())),
        values=json.dumps([[f"{value:.3g}" for value in row] for row in grid], separators=(",", ":")),
        rows=named[0],
        columns=named[1],
        legend=tuple(legend),
        verdict=verdict,
    )


def _level(value: float, low: float, span: float) -> int:
    """0 for no error, 1 to `LEVELS` by its logarithm, one more where there is no number."""
    if not math.isfinite(value):
        return LEVELS + 1
    if value <= 0:
        return 0
    place = max(0.0, math.log10(value / low) / span) if value > low else 0.0
    return 1 + min(LEVELS - 1, int(place * LEVELS))


def _axis(names: list[str], axis: int, spread: Spread) -> tuple[str, int]:
    named = len(names) == len(spread.shape)
    return (names[axis] if named else f"axis {axis}", spread.shape[axis])


def histograms(verdicts: Iterable[Verdict]) -> list[Histogram]:
    """One per mode: the counts of all differing tensors, on a logarithmic scale."""
    totals: dict[str, list[int]] = {}
    for verdict in verdicts:
        if verdict.spread is not None:
            row = totals.setdefault(verdict.mode, [0] * len(verdict.spread.counts))
            totals[verdict.mode] = [a + b for a, b in zip(row, verdict.spread.counts, strict=True)]
    return [_histogram(mode, totals[mode]) for mode in ("forced", "free") if mode in totals]


def _short(place: int) -> str:
    """A bin's label where there is room for five characters: its least distance, in units of 1024 from there on."""
    least = label(place).partition("-")[0].partition(" ")[0]
    return f"{int(least) // 1024}k" if least.isdigit() and int(least) >= 1024 else least


def _histogram(mode: str, counts: Sequence[int]) -> Histogram:
    last = max((place for place, count in enumerate(counts) if count), default=0)
    top = math.log10(1 + max(counts)) or 1.0
    bars = []
    for place, count in enumerate(counts[: last + 1]):
        height = round(TALL * math.log10(1 + count) / top, 1)
        words = f"{number(count)} element{'' if count == 1 else 's'}: {label(place)}"
        words += "" if label(place) == "no number" else " ULP (floats) or units (integers) apart"
        bars.append(Bar(8 + place * BAR, 14 + TALL - height, height, _short(place), words))
    return Histogram(mode, "ULP", sum(counts), tuple(bars), 16 + BAR * (last + 1))
