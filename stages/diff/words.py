"""Outputs that are words: the statement that wrote one down, or that lost it."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import SequenceMatcher

import numpy as np

from stages.gates import Tensor
from stages.trace.frames import Frame, Write, reads
from stages.trace.likeness import members
from stages.trace.sites import Site
from stages.trace.slices import Spot, bare, idle, spot
from stages.trace.whence import DOORS, Trail

from .sides import First, Sides, trail_of


def worded(sides: Sides, outs: dict[str, tuple[Tensor, Tensor]]) -> First | None:
    """Of outputs that are text: where the port wrote a word down, or had the oracle's and lost it; None elsewhere."""
    trail = trail_of(sides)
    for name, (oracle, mine) in outs.items() if trail is not None else ():
        assert trail is not None
        for theirs, ours in _differing(oracle, mine):
            at = _at(trail, theirs, ours)
            if at is not None:
                return First(-1, at, (at,), f"{name}: {ours!r} is said here, the oracle says {theirs!r}")
    return None


def _at(trail: Trail, theirs: str, ours: str) -> Site | None:
    """The whole before the first piece that it lacks, or has too much; else where the whole was first given."""
    lacking, added, begin = _pieces(theirs, ours)
    ways: tuple[Callable[[], Site | None], ...] = (
        lambda: _lost(trail, theirs) if theirs else None,
        lambda: _written(trail, ours) if ours else None,
        lambda: _kept_back(trail, lacking.strip()) if len(lacking.strip()) > 1 else None,
        lambda: _dropped(trail, theirs, ours, begin) if lacking else None,
        lambda: _only_there(trail, added) if len(added) > 1 else None,
        lambda: _gave(trail, ours) if ours else None,
    )
    return next((found for way in ways if (found := way()) is not None), None)


def _pieces(theirs: str, ours: str) -> tuple[str, str, int]:
    """What is first missing from a text, what first stands there instead, and where."""
    parts = SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes()
    return next(((theirs[a:b], ours[c:d], a) for tag, a, b, c, d in parts if tag != "equal"), ("", "", 0))


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


def _written(trail: Trail, word: str) -> Site | None:
    """The last statement that wrote a word down as it is."""
    last: tuple[int, Spot] | None = None
    stores = (one for (_, _), known in trail.watch.stores.items() for one in known)
    named = ((frame, write) for frame in trail.watch.frames for write in frame.writes if write.line)
    for frame, write in (*stores, *named):
        if isinstance(write.value, str) and write.value == word and not frame.file.endswith(DOORS):
            at = spot(frame, write.number, write.line)
            if bare(at) and (last is None or write.number > last[0]):
                last = write.number, at
    return None if last is None else last[1].site


def _gave(trail: Trail, word: str) -> Site | None:
    """The first call that gave a word, in something that has it."""
    gave = (
        (when, frame, line)
        for frame in trail.watch.frames
        if not frame.file.endswith(DOORS)
        for when, line, value in frame.returns
        if not isinstance(value, str) and any(isinstance(one, str) and one == word for one in members(value))
    )
    first = min(gave, key=lambda one: one[0], default=None)
    return None if first is None else spot(first[1], first[0], first[2]).site


def _only_there(trail: Trail, piece: str) -> Site | None:
    """On the way to a function that had a piece, a line from which it was called for no other; the last such way."""
    frames = trail.watch.frames
    for handled in (one for one in reversed(frames) if any(_is(write, piece) for write in one.writes)):
        others = [one for one in frames if one.code is handled.code and one is not handled]
        inner = handled
        while inner.parent is not None and not inner.parent.file.endswith(DOORS) and others:
            if all(one.asked != inner.asked for one in others):
                return Site(inner.parent.file, inner.asked, inner.parent.code.co_name)
            others, inner = [one.parent for one in others if one.parent is not None], inner.parent
    return None


def _kept_back(trail: Trail, piece: str) -> Site | None:
    """Of an object that has a piece to the end, how its last call ended; a statement in it that does nothing first."""
    last: Frame | None = None
    for frame in trail.watch.frames:
        owner = frame.held.get("self")
        outer = frame.parent is None or frame.parent.held.get("self") is not owner
        if outer and frame.returns and any(isinstance(one, str) and piece in one for one in members(owner)):
            last = frame
    if last is None:
        return None
    undone = (line for _, line in last.lines if line in idle(last.code))
    return Site(last.file, next(undone, last.returns[-1][1]), last.code.co_name)


def _dropped(trail: Trail, theirs: str, ours: str, begin: int) -> Site | None:
    """What the last name that had the missing place of a text was used for first."""
    last: tuple[int, Frame, str] | None = None
    for frame in trail.watch.frames:
        for write in frame.writes if not frame.file.endswith(DOORS) else ():
            value = write.value
            if isinstance(value, str) and len(value) > 1 and value not in ours and _covers(theirs, value, begin):
                last = max(last or (-1, frame, ""), (write.number, frame, write.name), key=lambda one: one[0])
    if last is None:
        return None
    since, frame, name = last
    uses = {line for line, paths in reads(frame.code).items() if any(path[0] == name for path in paths)}
    when = next((number for number, line in frame.lines if number >= since and line in uses), None)
    return None if when is None else spot(frame, when, whole=True).site


def _covers(text: str, piece: str, place: int) -> bool:
    """Whether a piece of a text has the letter at some place of it."""
    return text.find(piece, max(place - len(piece) + 1, 0), place + len(piece)) >= 0


def _is(write: Write, word: str) -> bool:
    """Whether a statement gave a name a word."""
    return bool(write.line) and isinstance(write.value, str) and write.value == word


def _lost(trail: Trail, word: str) -> Site | None:
    """Where a name that had a word got another value, by another statement: a loop has one after the other."""
    for frame in trail.watch.frames:
        if frame.file.endswith(DOORS):
            continue
        had: dict[str, int] = {}
        for write in frame.writes:
            lost = write.line and write.value != word if isinstance(write.value, str) else False
            if lost and had.get(write.name, write.line) != write.line:
                return spot(frame, write.number, write.line).site
            if isinstance(write.value, str) and write.value == word:
                had[write.name] = write.line
    return None
