"""Outputs that no operation on arrays made: where Python first has what was given."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from stages.gates import Tensor
from stages.trace.likeness import key, telling
from stages.trace.origin import value_first
from stages.trace.sites import Site
from stages.trace.whence import DOORS, Place, Trail, site

from .asked import asked_again
from .blame import outside
from .sides import First, Sides, step_at, trail_of


def never_read(sides: Sides) -> First | None:
    """Most of what the oracle reads the port has too, and some it has not: the line where it gets the others."""
    trail = trail_of(sides)
    wanted = {found for tensor in sides.oracle.leaves.values() if (found := key(tensor)) is not None}
    if trail is None or not wanted:
        return None
    places: Counter[Site] = Counter()
    had: set[str] = set()
    for frame in trail.watch.frames:
        found = trail.key(frame.returns[-1][2]) if frame.returns else None
        if found not in wanted or frame.parent is None:
            continue
        had.add(found)
        above = frame.parent.returns
        if not above or trail.key(above[-1][2]) != found:
            places[Site(frame.parent.file, frame.asked, frame.parent.code.co_name)] += 1
    if not places or 2 * len(had) < len(wanted):
        return None
    at = places.most_common(1)[0][0]
    why = f"{len(wanted - had)} of {len(wanted)} arrays that the oracle reads never come here, where the others do"
    if had == wanted:
        why = "all that the oracle reads comes here, and ends up somewhere else"
    return First(-1, at, (at,), why)


def _made_of(sides: Sides, trail: Trail, way: list[Place]) -> list[Place]:
    """A way, gone on while what its end computes with is something that the oracle has not."""
    known, seen = sides.keys, set[tuple[int, int, int]]()
    if way[-1][0].file.endswith(DOORS):  # written out there: what of?
        frame, line, until = way[-1]
        ways = {}
        for path, value, _ in trail.names(frame, line, until):
            found = trail.key(value)
            if len(path) == 1 and found is not None:
                longer = trail.way(frame, line, until, found)
                if not longer[-1][0].file.endswith(DOORS):
                    ways[found] = longer
        # What the oracle has not; else what it goes on with, last.
        best = next((one for one in ways if one not in known), None)
        if best is None and ways:
            best = next((one for one in sides.unused if one in ways), next(iter(ways)))
            handed = [place for place in ways[best] if not place[0].file.endswith(DOORS)]
            return way + handed[:1]  # it is the oracle's: what lacks is behind it
        way = way + ways.get(best or "", [])
    while known:
        frame, line, until = way[-1]
        further = next(
            (one for one in trail.suspects(way[-1], known) if (id(one[0][0]), *one[0][1:]) not in seen), None
        )
        if further is None:
            break
        seen.add((id(frame), line, until))
        (frame, line, until), wanted = further
        seen.add((id(frame), line, until))
        way = way + trail.way(frame, line, until, wanted)
    return way


def given_out(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> First | None:
    """Outputs that no operation on arrays made: where Python first has what was given."""
    trail = trail_of(sides)
    if trail is None:
        return None
    door = next((one for one in reversed(trail.watch.frames) if one.parent is None and one.returns), None)
    if door is None:
        return None
    when, line, _ = door.returns[-1]
    for name, (oracle, mine) in outs.items():
        for wanted in _said_otherwise(oracle, mine):
            if telling(mine) and wanted in sides.keys and (handed := trail.given_out(mine)) is not None:
                return First(
                    step_at(sides, handed),
                    handed,
                    (handed,),
                    f"{name} is given out here: the oracle has this value too, and goes on",
                )
            way = _made_of(sides, trail, trail.way(door, line, when, wanted))
            again = asked_again(way, lambda one: telling(one) and (key(one) or "") in sides.keys)
            if again is not None:
                return First(step_at(sides, again[0]), again[0], (again[0],), again[1])
            if (at := outside(way)) is not None:
                return First(step_at(sides, at), at, (at,), f"{name} is computed here")
    return None


def decided_before(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]], when: int) -> First | None:
    """Where Python had the whole of an output, which the oracle never had, before an operation at some time."""
    trail = trail_of(sides)
    for name, (_, mine) in outs.items():
        wanted = key(mine)
        if trail is None or wanted is None or not telling(mine) or wanted in sides.keys:
            continue
        place = value_first(trail, wanted, mine.size)
        if place is not None and place[2] < when:
            at = site(place)
            return First(step_at(sides, at), at, (at,), f"all of {name} is there here, and the oracle never has it")
    return None


def _said_otherwise(oracle: Tensor, port: Tensor) -> Iterator[str]:
    """What to look for of an output: of rows of text the first that differs, as text and as what it says; else it."""
    if port.dtype == np.uint8 and port.ndim == 2 and port.shape == oracle.shape:
        row = port[int(np.flatnonzero(np.any(port != oracle, axis=1))[0])].tobytes().rstrip(b"\0")
        with suppress(ValueError):
            if (found := key(json.loads(row))) is not None:
                yield found
        yield key(row) or ""
    elif port.dtype == np.uint8 and port.ndim == 1 and isinstance(said := _parsed(port), dict):
        told = _parsed(oracle)
        for name, value in said.items():
            if isinstance(told, dict) and told.get(name) != value and (found := key(value)) is not None:
                yield found
    elif (found := key(port)) is not None:
        yield found


def _parsed(text: Tensor) -> Any:
    with suppress(ValueError):
        return json.loads(text.tobytes())
    return None
