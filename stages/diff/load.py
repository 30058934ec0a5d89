"""A port that refuses its checkpoint, opened: no occurrence is reached, so loading itself is walked back.

What is demanded of a tensor or a field stands in the error. It was computed from the configuration: where a value of
the port's is not what the configuration says under that name, or where what no earlier demand had used came from.
"""

import json
import operator
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from stages import sides as doors
from stages.judge import said
from stages.mend.search import mended
from stages.shelf import Held
from stages.spec import Table
from stages.trace.demands import demanded_at
from stages.trace.frames import PARAMETER, Frame, watching
from stages.trace.likeness import key, members
from stages.trace.origin import ABSENT, field_of, first_with
from stages.trace.whence import DOORS, Place, Trail, latest, site

from .config import misread
from .opened import Opened
from .sides import First

Facts = dict[str, Any]
LETTERS = 8  # of a name in the configuration, from which on it is hardly met by chance in a message


def refused(table: Table, held: Held, stage: str, seconds: float = 0.0) -> Opened | None:
    """Load the port's model under a log; None where it opens.

    Args:
        table: Whose port.
        held: The golden whose checkpoint is opened.
        stage: Which stage was asked for.
        seconds: How long to search for an edit of the port that mends it; 0 for not at all.
    """
    cuts = doors.cuts("port", table.model)
    with watching("port/") as watch:
        try:
            cuts.load(held.checkpoint, held.compute)
        except Exception as error:  # noqa: BLE001 -- whatever the port raises is said of the port
            raised = error
        else:
            return None
    found = Opened(stage, "", held.name, held.tier, raised=True)
    found.notes.append(f"the port does not open its checkpoint: {said(raised)}")
    config = json.loads((held.checkpoint / "config.json").read_text())
    chain = list(_chain(raised, Trail(watch)))
    path = tuple(site(one) for one in reversed(chain))

    def opens() -> bool:
        try:
            cuts.load(held.checkpoint, held.compute)
        except Exception:  # noqa: BLE001 -- still refused, for whatever reason
            return False
        return True

    if chain and (field := misread(Trail(watch), config, opens)) is not None:
        found.first = replace(field, path=path)
    elif chain:
        place, why = _blamed(Trail(watch), chain, str(raised), config)
        found.first = First(-1, site(place), path, why)
    if seconds:
        # Any occurrence will do: each begins with loading.
        names = (one.name for one in table.stages if held.golden.occurrences(one.name))
        name = next(names, stage)
        found.searched = mended(table, held, name, held.golden.occurrences(name)[0], found.first, watch, seconds)
        found.first = found.searched.believed(found.first)
    return found


def _chain(raised: BaseException, trail: Trail) -> Iterator[Place]:
    """The port's calls that an error went through, from the inside out."""
    trace, lines = raised.__traceback__, []
    while trace is not None:
        lines.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    for code, line in reversed(lines):
        frame = next((one for one in reversed(trail.watch.frames) if one.code is code), None)
        if frame is not None and not frame.file.endswith(DOORS):
            yield frame, line, trail.watch.number


def _blamed(trail: Trail, chain: list[Place], message: str, config: Facts) -> tuple[Place, str]:
    name, facts = _facts(config, message)
    for owner, field in _against(chain, config, facts):
        place = first_with(trail, partial(operator.is_, owner))
        if place is not None:
            wrong = field_of(owner, field)
            why = f"{field} becomes {wrong!r} here, where config.json has {facts[field]!r}" + (name and f" for {name}")
            return _chosen(trail, place, field, wrong, name), why
    for n, at in enumerate(chain[1:], 1):
        if (earlier := _earlier(at, chain[n - 1][0])) and (fresh := _fresh(trail, at, earlier)) is not None:
            value, start = fresh
            return _read(trail, start, value), f"{value!r} is from here, and nothing accepted before had used it"
        if earlier:
            return at, "this asks for it, though all that it gives was accepted before"
    if (flag := _flagged(trail, chain)) is not None:
        return flag, "this asks for what is not there"
    for value in _demanded(chain[0][0], message):
        way = [one for one in trail.way(*chain[0], key(value) or "") if not one[0].file.endswith(DOORS)]
        if len(way) > 1:
            return demanded_at(trail, way[-1], value, message), f"{value!r} is computed here, and refused"
    return chain[0], "this is what refuses"


def _facts(config: Facts, message: str) -> tuple[str, Facts]:
    """The entry of the configuration that a message names, or the fields that it names: (the entry's name, fields)."""
    entries = [(name, value) for name, value in _entries(config) if isinstance(value, dict) and len(name) >= LETTERS]
    named = [(name, value) for name, value in entries if name in message]
    if named:
        return max(named, key=lambda one: len(one[0]))
    words = set(re.findall(r"\w+", message))
    return "", {name: value for name, value in _entries(config) if name in words and not isinstance(value, dict)}


def _entries(config: Facts) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        yield name, value
        if isinstance(value, dict):
            yield from _entries(value)


def _against(chain: list[Place], config: Facts, facts: Facts) -> Iterator[tuple[Any, str]]:
    """(object, field) of what the port made on the way that is not as the configuration says, innermost first."""
    written = [config, *(value for _, value in _entries(config) if isinstance(value, dict))]
    for frame, _, _ in chain:
        for write in frame.writes:
            for owner in (write.value, *members(write.value)):
                if isinstance(owner, dict) and owner in written:
                    continue
                fields = {name: value for name in facts if (value := field_of(owner, name)) is not ABSENT}
                if facts and fields.keys() == facts.keys():
                    yield from ((owner, name) for name, value in fields.items() if value != facts[name])


def _chosen(trail: Trail, place: Place, field: str, wrong: Any, name: str) -> Place:
    """Of what was made there, where the thing that it took its field from was chosen."""
    frame, line, until = place
    taken = next(
        (path[0] for path, value, _ in trail.names(*place) if len(path) == 1 and field_of(value, field) == wrong), None
    )
    if taken is None:
        return frame, line, until
    texts = [one for one in frame.writes if one.line == PARAMETER and isinstance(one.value, str) and one.value]
    if name and texts and all(one.value != name for one in texts):
        near = next((one for one in texts if one.value in name or name in one.value), None)
        if near is not None and frame.parent is not None:
            return trail.way(frame.parent, frame.asked, frame.began, key(near.value) or "")[-1]
    first = next((one for one in frame.writes if one.name == taken), None)
    if first is None or first.line == PARAMETER:
        return frame, line, until
    return frame, first.line, first.number


def _flagged(trail: Trail, chain: list[Place]) -> Place | None:
    """Where a flag came from that a call on the way asked about where it demanded what was refused."""
    for at in chain[1:]:
        for path, value, write in trail.names(*at):
            if value is True and len(path) == 1 and write.line == PARAMETER and at[0].parent is not None:
                above: Place = (at[0].parent, at[0].asked, at[0].began)
                named = (one for one in trail.names(*above) if one[1] is True and len(one[0]) == 1)
                return next(((above[0], one[2].line, one[2].number) for one in named if one[2].line), above)
    return None


def _earlier(at: Place, inner: Frame) -> set[int]:
    """Lines of a call that had called the same function before, which refused nothing."""
    frame, line, _ = at
    return {one.asked for one in frame.children if one.code is inner.code and one.asked != line}


def _fresh(trail: Trail, at: Place, earlier: set[int]) -> tuple[Any, Place] | None:
    """A number that is used at a place and was not at the earlier lines: (it, where it was given)."""
    frame, _, until = at
    known = {path for line in earlier for path, _, _ in trail.names(frame, line, until)}
    for path, value, write in reversed(trail.names(*at)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number and path not in known:
            owner: Any = write.value
            for part in path[1:-1]:
                owner = trail.attribute(owner, part, until)
            store = trail.store(owner, path[-1], until) if len(path) > 1 else None
            if store is not None:
                return value, (store[0], store[1].line, store[1].number)
            if write.line != PARAMETER:
                return value, (frame, write.line, write.number)
    return None


def _read(trail: Trail, start: Place, value: Any) -> Place:
    """Back along a number's way to where it is read off an object that had it: which of its fields was chosen there."""
    wanted = key(value) or ""
    way = trail.way(*start, wanted)
    for frame, line, until in way:
        for path, one, write in trail.names(frame, line, until):
            if len(path) == 2 and trail.key(one) == wanted and trail.store(write.value, path[1], until) is None:
                return frame, line, until
    return way[-1]


def _demanded(frame: Frame, message: str) -> Iterator[Any]:
    """What a function was given that its error speaks of: shapes before numbers."""
    names = frame.code.co_varnames[: frame.code.co_argcount + frame.code.co_kwonlyargcount]
    values = [one.value for name in names if (one := latest(frame, name, frame.began)) is not None]
    yield from (one for one in values if isinstance(one, (tuple, list)) and one and str(list(one)) in message)
    words = set(re.findall(r"[\w.-]+", message))
    yield from (one for one in values if isinstance(one, (int, float)) and repr(one) in words)
