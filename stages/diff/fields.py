"""Settings given as text: the field that is not the oracle's, and the line of the port that made it so."""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from stages.gates import Tensor
from stages.spec import Stage
from stages.trace.expressions import given_as, names_in
from stages.trace.frames import PARAMETER
from stages.trace.likeness import NOTHING
from stages.trace.origin import ABSENT, field_of, first_with
from stages.trace.whence import Place, Trail, latest, site

from .sides import First, Sides, step_at, trail_of

Trace = dict[str, Tensor]
Fields = dict[tuple[str, ...], Any]


def otherwise(sides: Sides, stage: Stage, oracle: Trace, port: Trace) -> First | None:
    """The line of the first field that differs; None where no output is made of named fields, or none is found.

    Args:
        sides: The logs.
        stage: Whose outputs these are.
        oracle: The oracle's: a JSON text, or rows of text that another output names.
        port: The port's.
    """
    trail = trail_of(sides)
    if trail is None:
        return None
    for theirs, mine in _told(stage, oracle, port):
        for path, value in mine.items():
            wanted = theirs.get(path, ABSENT)
            if wanted == value and type(wanted) is type(value):
                continue
            brothers = {one[-1] for one in mine if one[:-1] == path[:-1]} - {path[-1]}
            if (at := field_at(trail, path[-1], value, brothers)) is not None:
                said = "nothing of that name" if wanted is ABSENT else json.dumps(wanted)
                why = f"{'.'.join(path)} becomes {json.dumps(value)} here, where the oracle has {said}"
                return First(step_at(sides, site(at)), site(at), (site(at),), why)
        for path in (one for one in theirs if one not in mine):
            if (found := lost_at(trail, path, mine)) is not None:
                (at, name), said = found, ".".join(path)
                why = f"{said} is lost here: what the others of {name} are in lacks it"
                return First(step_at(sides, site(at)), site(at), (site(at),), why)
    return None


def lost_at(trail: Trail, path: tuple[str, ...], mine: Fields) -> tuple[Place, str] | None:
    """Where a field was left out: the first that has all of its brothers and lacks what something before had."""
    for n in range(len(path) - 1, 0, -1):
        brothers = {one[n] for one in mine if one[:n] == path[:n] and len(one) == n + 1}
        names = [".".join(path[n:m]) for m in range(n + 1, len(path) + 1)]
        if not brothers:
            continue

        had = (one for one in names if first_with(trail, partial(_has, brothers, one)) is not None)
        name = next(had, None)
        if name is not None and (at := first_with(trail, partial(_lacks, brothers, name))) is not None:
            return at, ".".join(path[:n])
    return None


def _has(brothers: set[str], name: str, owner: Any) -> bool:
    return isinstance(owner, dict) and brothers <= owner.keys() and name in owner


def _lacks(brothers: set[str], name: str, owner: Any) -> bool:
    return isinstance(owner, dict) and brothers <= owner.keys() and name not in owner


def field_at(trail: Trail, name: str, value: Any, brothers: set[str]) -> Place | None:
    """Where a field first had a value: in what has at least half of its brothers; then what it was made of."""

    def has(one: Any) -> bool:
        return field_of(one, name) == value and type(field_of(one, name)) is type(value)

    def whole(owner: Any) -> bool:
        known = sum(field_of(owner, one) is not ABSENT for one in brothers)
        return has(owner) and 2 * known >= len(brothers)

    at = first_with(trail, whole)
    return None if at is None else made_of(trail, at, name, value)


def made_of(trail: Trail, at: Place, name: str, value: Any) -> Place:
    """Of a statement that gives a field, what the field was given there, back to where that came from."""
    frame, line, until = at
    expression = given_as(frame.file, line, name)
    if expression is None:
        return at
    wrong = trail.key(value)
    for asked in (wrong, NOTHING):
        for read in names_in(expression):
            write = latest(frame, read, until)
            if write is None or trail.key(write.value) != asked or asked is None:
                continue
            if write.line == PARAMETER:
                return at if frame.parent is None else (frame.parent, frame.asked, frame.began)
            return trail.way(frame, write.line, write.number, asked)[-1]
    return frame, expression.lineno, until


def _told(stage: Stage, oracle: Trace, port: Trace) -> Iterator[tuple[Fields, Fields]]:
    for name, out in stage.gives.items():
        if out.label and {out.label, name} <= oracle.keys() & port.keys():
            sides = [_rows(trace[out.label], trace[name]) for trace in (oracle, port)]
            if sides[0] and sides[1]:
                yield sides[0], sides[1]
    for name in oracle.keys() & port.keys():
        sides = [_json(trace[name]) for trace in (oracle, port)]
        if sides[0] and sides[1]:
            yield sides[0], sides[1]


def _rows(names: Tensor, values: Tensor) -> Fields:
    found: Fields = {}
    with suppress(ValueError):
        for name, value in zip(names, values, strict=True):
            path = tuple(name.tobytes().rstrip(b"\0").decode().split("."))
            found[path] = json.loads(value.tobytes().rstrip(b"\0"))
        return _listed(found)
    return {}


def _listed(fields: Fields) -> Fields:
    """Entries that are numbered, as one list."""
    found: Fields = {}
    for path, value in fields.items():
        if path[-1].isdigit():
            found.setdefault(path[:-1], []).append(value)
        else:
            found[path] = value
    return found


def _json(text: Tensor) -> Fields:
    if text.dtype != np.uint8 or text.ndim != 1:
        return {}
    with suppress(ValueError):
        told = json.loads(text.tobytes())
        return dict(_leaves(told)) if isinstance(told, dict) else {}
    return {}


def _leaves(told: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in told.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value
