"""Backwards through Python: what a statement read as it ran, and where each of it came from."""

import dis
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import CodeType
from typing import Any

from .frames import NAMES, PARAMETER, Frame, reads, spans
from .sites import Site
from .whence import DOORS, Trail, latest

JUMPS = ("POP_JUMP", "JUMP_IF", "FOR_ITER")
LEAVES = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP_BACKWARD", "JUMP_FORWARD"})


@dataclass(frozen=True)
class Spot:
    """A statement as it ran once: from `start` until `end`, in the order of everything logged; `done`, or under way."""

    frame: Frame
    first: int
    last: int
    start: int
    end: int
    done: bool = True

    @property
    def read(self) -> int:
        """When it read its names; one that is under way may have named some itself: a comprehension."""
        return self.start if self.done else self.end

    @property
    def door(self) -> bool:
        """Whether it is where the port meets the harness."""
        return self.frame.file.endswith(DOORS)

    @property
    def site(self) -> Site:
        """Its line."""
        return Site(self.frame.file, self.first, self.frame.code.co_name)


@dataclass(frozen=True)
class Input:
    """Something that a statement read.

    Attributes:
        value: What it was.
        source: Where it came from; None: from nowhere that is logged.
        given: Whether by the caller, so that of what is read there only the same value counts.
        written: When it got it.
        carrier: What the source gave: the value, or the object that has it as an attribute.
        name: What it was read by, without what it is an attribute of.
    """

    value: Any
    source: Spot | None
    given: bool = False
    written: int = 0
    carrier: Any = None
    name: str = ""


def spot(frame: Frame, when: int, line: int | None = None, *, whole: bool = False) -> Spot:
    """The statement of a call that was under way at some time, until then, or the whole of it.

    If a line is named, it is the last that holds it.
    """
    n = bisect_right(frame.lines, (when, 1 << 30)) - 1
    if line is not None:
        while n >= 0 and not _same(frame, frame.lines[n][1], line):
            n -= 1
    if n < 0:
        at = line or frame.code.co_firstlineno
        return Spot(frame, at, at, frame.began, when)
    at = frame.lines[n][1]
    first, last = spans(frame.code).get(at, (at, at))
    begin = end = n
    while begin and first <= frame.lines[begin - 1][1] <= last:
        begin -= 1
    while end + 1 < len(frame.lines) and first <= frame.lines[end + 1][1] <= last:
        end += 1
    until = frame.lines[end + 1][0] if end + 1 < len(frame.lines) else 1 << 30
    done = whole or when >= until
    return Spot(frame, frame.lines[begin][1], last, frame.lines[begin][0], until if done else when, done)


def _same(frame: Frame, one: int, other: int) -> bool:
    first, last = spans(frame.code).get(one, (one, one))
    return first <= other <= last


def inputs(trail: Trail, at: Spot) -> list[Input]:
    """What a statement read by name or attribute, and what its calls gave."""
    found: list[Input] = []
    low = spans(at.frame.code).get(at.first, (at.first, at.first))[0]
    by_line = reads(at.frame.code)
    for path in dict.fromkeys(path for line in range(low, at.last + 1) for path in by_line.get(line, ())):
        free = path[0] in at.frame.code.co_freevars
        write = None if free else latest(at.frame, path[0], at.read)
        if write is None:
            found += _around(trail, at, path[0])
            continue
        given = write.line == PARAMETER
        source = _caller(at.frame) if given else spot(at.frame, write.number, write.line)
        value, written = write.value, write.number
        carrier = value
        if not given and isinstance(value, (dict, list)) and (filling := _filled(at, path[0])) is not None:
            source, written = filling, filling.start
        for name in path[1:]:
            store = trail.store(value, name, at.read)
            value = trail.attribute(value, name, at.read)
            if (value is None and store is None) or callable(value):
                break
            if store is not None:
                source, given, written = spot(store[0], store[1].number, store[1].line), False, store[1].number
                carrier = value
            else:
                given = source is not None and (given or not at.door)
        found.append(Input(value, source, given, written, carrier, path[-1]))
    for call in at.frame.children:
        if low <= call.asked <= at.last and at.start <= call.began and call.returns and call.returns[-1][0] <= at.end:
            when, line, value = call.returns[-1]
            found.append(Input(value, spot(call, when, line), written=when, carrier=value))
    return found


def _filled(at: Spot, name: str) -> Spot | None:
    """Where something was last put into a container before a statement."""
    lines = {line for line, names in _filling(at.frame.code).items() if name in names}
    before = (number for number, line in reversed(at.frame.lines) if number < at.start and line in lines)
    number = next(before, None) if lines else None
    return None if number is None else spot(at.frame, number, whole=True)


@cache
def _filling(code: CodeType) -> dict[int, set[str]]:
    """Names of containers that a line puts something into by index."""
    found: dict[int, set[str]] = {}
    last: list[str] = []
    for one in dis.get_instructions(code):
        if one.opname in NAMES:
            last.append(str(one.argval))
        elif one.opname == "STORE_SUBSCR" and one.positions and one.positions.lineno:
            found.setdefault(one.positions.lineno, set()).update(last[-3:])
    return found


def _caller(frame: Frame) -> Spot | None:
    return None if frame.parent is None else spot(frame.parent, frame.began)


def _around(trail: Trail, at: Spot, name: str) -> Iterator[Input]:
    """A name of the function around."""
    for frame, _, _ in trail.frames_of(at.frame.parent):
        if name in frame.code.co_cellvars and (write := latest(frame, name, at.read)) is not None:
            given = write.line == PARAMETER
            source = _caller(frame) if given else spot(frame, write.number, write.line)
            yield Input(write.value, source, given, carrier=write.value, name=name)
            return


@cache
def deciding(code: CodeType) -> frozenset[int]:
    """Lines on which it is decided what runs next."""
    return frozenset(one.positions.lineno for one in _jumps(code) if one.positions and one.positions.lineno)


@cache
def _jumps(code: CodeType) -> tuple[dis.Instruction, ...]:
    """Jumps that are decided by the program; a `with` decides nothing but whether an exception goes on."""
    listed = list(dis.get_instructions(code))
    pairs = pairwise(listed)
    return tuple(one for last, one in pairs if one.opname.startswith(JUMPS) and last.opname != "WITH_EXCEPT_START")


@cache
def raising(code: CodeType) -> frozenset[int]:
    """Lines of statements that raise."""
    found: set[int] = set()
    for one in dis.get_instructions(code):
        at = one.positions
        if one.opname == "RAISE_VARARGS" and at and at.lineno and at.end_lineno:
            found.update(range(at.lineno, at.end_lineno + 1))
    return frozenset(found)


@cache
def idle(code: CodeType) -> frozenset[int]:
    """Lines on which nothing is done: `pass`, and conditions that are constants."""
    begun = {entry.start for entry in dis._parse_exception_table(code)}  # type: ignore[attr-defined]  # noqa: SLF001
    found: dict[int, bool] = {}
    listed = list(dis.get_instructions(code))
    for n, one in enumerate(listed):
        if one.positions and (line := one.positions.lineno):
            following = listed[n + 1].offset if n + 1 < len(listed) else -1
            found[line] = found.get(line, True) and one.opname == "NOP" and following not in begun
    return frozenset(line for line, nothing in found.items() if nothing)


@cache
def _branches(code: CodeType) -> tuple[tuple[int, int, int, bool], ...]:
    """(line, offset, target, whether what lies between always leaves) of every jump forwards that is decided."""
    listed = list(dis.get_instructions(code))
    found = []
    for one in _jumps(code):
        line = one.positions.lineno if one.positions else None
        if line and isinstance(one.argval, int) and one.argval > one.offset:
            between = [o for o in listed if one.offset < o.offset < one.argval and o.opname != "CACHE"]
            found.append((line, one.offset, one.argval, bool(between) and between[-1].opname in LEAVES))
    return tuple(found)


@cache
def _offsets(code: CodeType) -> dict[int, int]:
    found: dict[int, int] = {}
    for one in dis.get_instructions(code):
        if one.positions and one.positions.lineno:
            found.setdefault(one.positions.lineno, one.offset)
    return found


def governing(at: Spot) -> Spot | None:
    """The last decision that ran before a statement in its call and without which it would not have run."""
    offset = _offsets(at.frame.code).get(at.first)
    if offset is None:
        return None
    lines = {
        line
        for line, where, target, leaves in _branches(at.frame.code)
        if (where < offset < target or (leaves and offset >= target)) and not at.first <= line <= at.last
    }
    n = bisect_right(at.frame.lines, (at.start - 1, 1 << 30)) - 1
    while n >= 0:
        number, line = at.frame.lines[n]
        if line in lines:
            return spot(at.frame, number, whole=True)
        n -= 1
    return None


@cache
def leaving(code: CodeType) -> frozenset[int]:
    """Lines that decide whether a function, or a loop, is left, but for those that a loop begins with."""
    listed = dis.get_instructions(code)
    loops = {
        one.positions and one.positions.lineno for one in listed if "FOR_ITER" in one.opname or "BACKWARD" in one.opname
    }
    return frozenset(line for line, _, _, leaves in _branches(code) if leaves) - loops


@cache
def calling(code: CodeType) -> frozenset[int]:
    """Lines that call something."""
    return frozenset(
        one.positions.lineno
        for one in dis.get_instructions(code)
        if one.opname.startswith("CALL") and one.positions and one.positions.lineno
    )


def bare(at: Spot) -> bool:
    """Whether a statement reads no name and calls nothing that is logged: it gives a constant."""
    low = spans(at.frame.code).get(at.first, (at.first, at.first))[0]
    by_line = reads(at.frame.code)
    if any(path != ("self",) for line in range(low, at.last + 1) for path in by_line.get(line, ())):
        return False
    return not any(low <= one.asked <= at.last and at.start <= one.began <= at.end for one in at.frame.children)


def written(at: Spot) -> Iterator[Any]:
    """The constants that a statement has written out, those in tuples too."""
    low = spans(at.frame.code).get(at.first, (at.first, at.first))[0]
    for one in dis.get_instructions(at.frame.code):
        if one.opname == "LOAD_CONST" and one.positions and low <= (one.positions.lineno or 0) <= at.last:
            yield from one.argval if isinstance(one.argval, tuple) else (one.argval,)
