"""Outputs that are words: the statement that wrote one down, or that lost it."""

import json
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from .diff_sides import First, Sides, trail_of
from .gates import Tensor
from .likeness import members
from .slices import Spot, bare, spot
from .whence import DOORS, Trail


def worded(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> First | None:
    """Of outputs that are text: where the port wrote a word down, or had the oracle's and lost it; None elsewhere."""
    trail = trail_of(sides)
    for name, (oracle, mine) in outs.items() if trail is not None else ():
        assert trail is not None
        for theirs, ours in _differing(oracle, mine):
            at = _lost(trail, theirs) if theirs else None
            at = at or (_written(trail, ours) if ours else None)
            if at is not None:
                return First(-1, at.site, (at.site,), f"{name}: {ours!r} is said here, the oracle says {theirs!r}")
    return None


def _differing(oracle: Tensor, port: Tensor) -> Iterator[tuple[str, str]]:
    """The first words that differ: the whole of an output, or one of a list."""
    if oracle.dtype != np.uint8 or port.dtype != np.uint8 or oracle.ndim != 1 or port.ndim != 1:
        return
    with suppress(UnicodeDecodeError):
        theirs, ours = oracle.tobytes().decode(), port.tobytes().decode()
        try:
            lists = json.loads(theirs), json.loads(ours)
        except ValueError:
            yield theirs, ours
            return
        if all(isinstance(one, list) for one in lists):
            pairs = zip(*lists, strict=False)  # what follows the first difference is of no interest
            first = next(((a, b) for a, b in pairs if a != b), None)
            if first is not None and all(isinstance(one, str) for one in first):
                yield first


def _written(trail: Trail, word: str) -> Spot | None:
    """The last statement that wrote a word down as it is; else the first that gave it."""
    last: tuple[int, Spot] | None = None
    stores = (one for (_, _), known in trail.watch.stores.items() for one in known)
    named = ((frame, write) for frame in trail.watch.frames for write in frame.writes if write.line)
    for frame, write in (*stores, *named):
        if isinstance(write.value, str) and write.value == word and not frame.file.endswith(DOORS):
            at = spot(frame, write.number, write.line)
            if bare(at) and (last is None or write.number > last[0]):
                last = write.number, at
    if last is not None:
        return last[1]
    gave = (
        (when, frame, line)
        for frame in trail.watch.frames
        if not frame.file.endswith(DOORS)
        for when, line, value in frame.returns
        if not isinstance(value, str) and any(isinstance(one, str) and one == word for one in members(value))
    )
    first = min(gave, key=lambda one: one[0], default=None)
    return None if first is None else spot(first[1], first[0], first[2])


def _lost(trail: Trail, word: str) -> Spot | None:
    """Where a name that had a word got another value."""
    for frame in trail.watch.frames:
        if frame.file.endswith(DOORS):
            continue
        had: set[str] = set()
        for write in frame.writes:
            if write.name in had and write.line and write.value != word and isinstance(write.value, str):
                return spot(frame, write.number, write.line)
            if isinstance(write.value, str) and write.value == word:
                had.add(write.name)
    return None
