"""Where the marks of a chart stand: one value per occurrence against its bound, forced and free as two series.

Only geometry: the template draws it as SVG. Charts of different gates are kept apart, since their numbers do
not compare. The vertical scale is log10(1 + r), where r is the value in units of its bound, or the plain count
where the bound is 0: it shows zero, and a range of many decades, at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reports.report import excess
from reports.verdict import Status, Verdict, kind, line, number

LEFT, TOP, RIGHT = 58, 12, 14  # pixels around the plot
TALL, FLAT = 132, 44  # the plot's height, and where every value is 0
CHARACTER, ROW = 6.4, 13  # width of a label's character and height of its row, pixels


@dataclass(frozen=True, slots=True)
class Mark:
    """One value: its place in pixels, whether it passes, whether it is a number, and what to say of it."""

    x: float
    y: float
    good: bool
    finite: bool
    title: str


@dataclass(frozen=True, slots=True)
class Band:
    """Neighbouring occurrences of one pass: left and right edge, the pass's name, and the label's baseline."""

    left: float
    right: float
    name: str
    label: str
    y: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything the template draws, in pixels."""

    gate: str
    width: int
    height: int
    floor: float
    bound: float
    base: float
    ticks: tuple[tuple[float, str], ...]
    places: tuple[tuple[float, str], ...]
    bands: tuple[Band, ...]
    series: tuple[tuple[str, tuple[Mark, ...], str], ...]


def charts(verdicts: Iterable[Verdict]) -> list[Chart]:
    """One chart per gate and bound among the verdicts; at each occurrence the verdict furthest from its bound.

    Occurrences stand in order of first appearance. Verdicts without a gate, such as LOCKED ones, are left out.
    """
    groups: dict[tuple[str, float], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.gate and verdict.bound is not None:
            groups.setdefault((verdict.gate, verdict.bound), []).append(verdict)
    return [_chart(found, bound) for (_, bound), found in groups.items()]


def _chart(verdicts: list[Verdict], bound: float) -> Chart:
    places = {name: place for place, name in enumerate(dict.fromkeys(v.occurrence for v in verdicts))}
    worst: dict[str, dict[int, Verdict]] = {}
    for verdict in verdicts:
        row, place = worst.setdefault(verdict.mode, {}), places[verdict.occurrence]
        if place not in row or excess(verdict) > excess(row[place]):
            row[place] = verdict
    unit = bound or 1.0
    ratios = [_ratio(v, unit) for row in worst.values() for v in row.values()]
    top = max([_scaled(9.0 if not bound else 1.5), *(_scaled(r) for r in ratios if math.isfinite(r))]) * 1.04
    step = min(96.0, max(7.0, 900 / len(places)))
    plot = TALL if any(ratios) else FLAT

    def height(ratio: float) -> float:
        return round(TOP + plot * (1 - _scaled(ratio) / top), 1)

    series = []
    for shift, mode in ((-step / 9, "forced"), (step / 9, "free")):
        marks, path, last = [], "", ""
        for place, verdict in sorted(worst.get(mode, {}).items()):
            ratio = _ratio(verdict, unit)
            y = height(ratio) if math.isfinite(ratio) else float(TOP)
            x = round(LEFT + (place + 0.5) * step + shift, 1)
            marks.append(Mark(x, y, verdict.status is Status.PASS, math.isfinite(ratio), _title(verdict)))
            if math.isfinite(ratio):
                prefix = f"{_pass_of(verdict.occurrence)}/"
                path += f"{'L' if prefix == last else 'M'}{x:g} {y:g}"
                last = prefix
        series.append((mode, tuple(marks), path))
    base = TOP + plot
    names = _short(list(places), step)
    bands, rows = _bands(list(places), step, base + ROW * (2 if names else 1) + 1)
    return Chart(
        gate=f"{kind(verdicts[0].gate)}, bound {number(bound)}",
        width=round(max(LEFT + step * len(places), _end_of_labels(bands, names, step)) + RIGHT),
        height=base + ROW * (rows + bool(names)) + 8,
        floor=height(0.0),
        bound=height(1.0 if bound else 0.0),
        base=base,
        ticks=_ticks(height, unit, [1.0, 0.5, 0.0] if bound else [0.0, 1.0], top),
        places=tuple((round(LEFT + (n + 0.5) * step, 1), name) for n, name in enumerate(names)),
        bands=bands,
        series=tuple(series),
    )


def _ratio(verdict: Verdict, unit: float) -> float:
    """The value in units; infinite where it is no finite number."""
    return verdict.value / unit if verdict.value is not None and math.isfinite(verdict.value) else math.inf


def _scaled(ratio: float) -> float:
    return math.log10(1 + max(ratio, 0.0))


def _ticks(
    height: Callable[[float], float], unit: float, first: list[float], top: float
) -> tuple[tuple[float, str], ...]:
    """Labels at the ratios in `first` and at powers of ten, those left out that would touch one before them."""
    ticks: list[tuple[float, str]] = []
    for ratio in [*first, *(10.0**power for power in range(1, 40))]:
        y = height(ratio)
        if _scaled(ratio) <= top and all(abs(y - other) >= ROW for other, _ in ticks):
            ticks.append((y, number(ratio * unit)))
    return tuple(ticks)


def _title(verdict: Verdict) -> str:
    return f"{verdict.mode}, {verdict.case}: {line(verdict)}"


def _short(names: list[str], step: float) -> list[str]:
    """What tells the occurrences of a pass apart, without its keys: `3/q`; empty where there is no room for it."""
    tails = [name[len(_pass_of(name)) :].lstrip("/") for name in names]
    short = ["/".join(segment.rpartition("=")[2] for segment in tail.split("/")) for tail in tails]
    return short if max(map(len, short)) * CHARACTER + 4 <= step else []


def _bands(names: list[str], step: float, y: float) -> tuple[tuple[Band, ...], int]:
    """Runs of occurrences of one pass, and how many rows (up to three) keep their labels from overlapping."""
    runs: list[tuple[str, int, int]] = []
    for place, name in enumerate(names):
        prefix = _pass_of(name)
        if runs and runs[-1][0] == prefix:
            runs[-1] = (prefix, runs[-1][1], place + 1)
        else:
            runs.append((prefix, place, place + 1))
    ends = [0.0, 0.0, 0.0]
    bands, used = [], 1
    for prefix, first, last in runs:
        left, right = LEFT + first * step, LEFT + last * step
        key, keyed, _ = names[first][len(prefix) :].lstrip("/").partition("=")
        label = " by ".join(part for part in (prefix, key if keyed else "") if part)
        row = next((n for n, end in enumerate(ends) if end <= left), None)
        if row is not None:
            ends[row] = left + len(label) * CHARACTER + 8
            used = max(used, row + 1)
        bands.append(Band(round(left, 1), round(right, 1), label, "" if row is None else label, y + ROW * (row or 0)))
    return tuple(bands), used


def _end_of_labels(bands: tuple[Band, ...], names: list[str], step: float) -> float:
    """Where the rightmost label ends: it may be wider than what it names."""
    ends = [band.left + 3 + len(band.label) * CHARACTER for band in bands]
    middle = LEFT + (len(names) - 0.5) * step
    return max([*ends, middle + len(names[-1]) * CHARACTER / 2 if names else 0.0])


def _pass_of(occurrence: str) -> str:
    """The part of an occurrence that names its pass: all before its layer, else all but the last segment."""
    segments = occurrence.split("/")
    for count, segment in enumerate(segments):
        if segment.startswith("layer="):
            return "/".join(segments[:count])
    return "/".join(segments[:-1])
