"""What Python did on the way: calls, names and attributes of some files, logged for the length of a `with` block.

Nothing is patched: the interpreter's own trace function is set, and put back. Values are kept, not copied.
"""

import dis
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FrameType
from typing import Any

from stages.places import ROOT

from .sites import ASIDE

PARAMETER = 0  # the line of a name that a caller gave
CHANGING = frozenset({"STORE_FAST", "DELETE_FAST", "STORE_DEREF", "DELETE_DEREF"})
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
BLOCKS = ("POP_JUMP", "FOR_ITER", "BEFORE_WITH", "JUMP_IF")  # belong to a statement, where they begin with its line
NAMES = frozenset({"LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF"})


@dataclass(frozen=True)
class Write:
    """A name that got a value.

    Attributes:
        number: When, in the order of everything logged.
        line: The line that gave it, or `PARAMETER`.
        name: Of the variable, or of the attribute.
        value: What it got.
    """

    number: int
    line: int
    name: str
    value: Any


@dataclass(frozen=True, eq=False)
class Known:
    """What is asked of a function at every line of it, worked out once.

    Attributes:
        file: Where it stands, if that is one whose calls are logged, else nothing.
        assigned: From `assigned`.
        stored: From `stored`.
        changes: The lines that give one of its names a value, or take it; None: any may, or another function.
    """

    code: CodeType  # kept, so that its id stays its own
    file: str
    assigned: dict[int, tuple[str, ...]]
    stored: dict[int, tuple[tuple[str, str], ...]]
    changes: frozenset[int] | None


@dataclass(eq=False)
class Frame:
    """One call of a function.

    Attributes:
        parent: The innermost call that is logged around it; None: none is.
        asked: The line of the parent that it was called from.
        began: When.
        writes: Its names, in order.
        lines: (when, line) of every line that began.
        raised: (when, line) of the last exception that came by.
        returns: (when, line, value) of what it gave; a generator gives several.
    """

    known: Known
    parent: "Frame | None"
    asked: int
    began: int
    line: int = 0
    writes: list[Write] = field(default_factory=list)
    returns: list[tuple[int, int, Any]] = field(default_factory=list)
    lines: list[tuple[int, int]] = field(default_factory=list)
    raised: tuple[int, int] | None = None
    children: list["Frame"] = field(default_factory=list)
    held: dict[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> CodeType:
        """The function."""
        return self.known.code

    @property
    def file(self) -> str:
        """Where it stands."""
        return self.known.file


@dataclass
class Watch:
    """Everything logged: `stores` are attributes that were set, by object."""

    folders: tuple[str, ...]
    frames: list[Frame] = field(default_factory=list)
    stores: dict[tuple[int, str], list[tuple[Frame, Write]]] = field(default_factory=dict)
    number: int = 0
    _of: dict[FrameType, Frame] = field(default_factory=dict)
    _codes: dict[int, Known] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)

    def innermost(self) -> Frame | None:
        """The innermost call that is being logged now."""
        at: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- the only way to a frame
        while at is not None and at not in self._of:
            at = at.f_back
        return None if at is None else self._now(at)

    def _now(self, frame: FrameType) -> Frame:
        """A call with its names as they are: between two lines of it much may happen."""
        mine = self._of[frame]
        self._names(mine, frame)
        return mine

    def called(self, frame: FrameType, event: str, _: Any) -> Any:
        """The interpreter's trace function."""
        if event != "call" or not (known := self._known(frame.f_code)).file:
            return None
        self.number += 1
        if frame in self._of:
            return self._went
        above = frame.f_back
        while above is not None and above not in self._of:
            above = above.f_back
        parent = None if above is None else self._now(above)
        asked = 0 if above is None else above.f_lineno or 0
        mine = self._of[frame] = Frame(known, parent, asked, self.number, PARAMETER)
        self.frames.append(mine)
        if parent is not None:
            parent.children.append(mine)
        self._names(mine, frame)
        mine.line = known.code.co_firstlineno
        return self._went

    def _went(self, frame: FrameType, event: str, given: Any) -> Any:
        mine = self._of[frame]
        self.number += 1
        self._names(mine, frame)
        known = mine.known
        for name in known.assigned.get(mine.line, ()):
            last = mine.writes[-1] if mine.writes else None
            if name in mine.held and not (last and last.number == self.number and last.name == name):
                mine.writes.append(Write(self.number, mine.line, name, mine.held[name]))  # what it was already
        for base, name in known.stored.get(mine.line, ()):
            owner = mine.held.get(base)
            if owner is not None:
                value = getattr(owner, name, None)
                before = self.stores.setdefault((id(owner), name), [])
                before.append((mine, Write(self.number, mine.line, name, value)))
                self._kept.append(owner)
        if event == "line":
            mine.lines.append((self.number, frame.f_lineno or mine.line))
        elif event == "exception":
            mine.raised = (self.number, frame.f_lineno or mine.line)
        elif event == "return":
            mine.returns.append((self.number, frame.f_lineno or mine.line, given))
        mine.line = frame.f_lineno or mine.line
        return self._went

    def _names(self, mine: Frame, frame: FrameType) -> None:
        """Note what got a value since a call was last looked at, which is at the line that it is at."""
        line, changes = mine.line, mine.known.changes
        if changes is not None and line not in changes and line != PARAMETER:
            return
        held = mine.held
        for name, value in frame.f_locals.items():
            if name not in held or held[name] is not value:
                held[name] = value
                mine.writes.append(Write(self.number, line, name, value))

    def _known(self, code: CodeType) -> Known:
        found = self._codes.get(id(code))  # a function's own hash is made of all that it holds, every time
        if found is None:
            name = code.co_filename.removeprefix(f"{ROOT}/").rpartition("site-packages/")[2]
            if name.startswith(self.folders) and name not in ASIDE:
                found = Known(code, name, assigned(code), stored(code), changes(code))
            else:
                found = Known(code, "", {}, {}, None)
            self._codes[id(code)] = found
        return found


@contextmanager
def watching(*folders: str) -> Iterator[Watch]:
    """Log what functions of these folders do, on this thread: "port/", or a package that is installed: "optiq/"."""
    watch, before = Watch(folders), sys.gettrace()
    sys.settrace(watch.called)
    try:
        yield watch
    finally:
        sys.settrace(before)


@cache
def spans(code: CodeType) -> dict[int, tuple[int, int]]:
    """The first and last line of the expression that a line stands in, by line."""
    ranges = sorted({(a, b) for a, b in _expressions(code) if a >= code.co_firstlineno and b - a < 40})
    merged: list[list[int]] = []
    for first, last in ranges:
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return {line: (first, last) for first, last in merged for line in range(first, last + 1)}


def _expressions(code: CodeType) -> Iterator[tuple[int, int]]:
    """First and last lines of what an instruction belongs to, without statements that have others in them."""
    listed = [(one, one.positions) for one in dis.get_instructions(code) if one.positions]
    margins: dict[int, int] = {}
    for _, at in listed:
        if at.lineno and at.col_offset is not None:
            margins[at.lineno] = min(margins.get(at.lineno, at.col_offset), at.col_offset)
    blocks = {
        (at.lineno, at.end_lineno)
        for one, at in listed
        if one.opname.startswith(BLOCKS) and at.lineno and at.col_offset == margins.get(at.lineno)
    }
    for _, at in listed:
        if at.lineno and at.end_lineno:
            yield at.lineno, at.lineno if (at.lineno, at.end_lineno) in blocks else at.end_lineno


@cache
def reads(code: CodeType) -> dict[int, tuple[tuple[str, ...], ...]]:
    """Names that a line reads, each with the attributes asked of it in turn: ("self", "window")."""
    found: dict[int, list[tuple[str, ...]]] = {}
    path: tuple[str, ...] = ()
    for one in dis.get_instructions(code):
        line = one.positions.lineno if one.positions else None
        if one.opname in NAMES:
            path = (str(one.argval),)
        elif path and one.opname in ATTRIBUTES:
            path = (*path, str(one.argval))
        else:
            if path and one.opname == "STORE_ATTR" and line in found:
                del found[line][-len(path) :]  # what it is set on is not read
            path = path if one.opname == "COPY" else ()  # `x.n += 1` asks a copy
            continue
        if line:
            found.setdefault(line, []).append(path)
    return {line: tuple(dict.fromkeys(paths)) for line, paths in found.items()}


@cache
def assigned(code: CodeType) -> dict[int, tuple[str, ...]]:
    """Names of its own that a line sets."""
    found: dict[int, list[str]] = {}
    for one in dis.get_instructions(code):
        if one.opname in {"STORE_FAST", "STORE_DEREF"} and one.positions and one.positions.lineno:
            found.setdefault(one.positions.lineno, []).append(str(one.argval))
    return {line: tuple(dict.fromkeys(names)) for line, names in found.items()}


@cache
def changes(code: CodeType) -> frozenset[int] | None:
    """Lines that change a name of its own; None where the interpreter does not say, or another function may."""
    if not code.co_flags & inspect.CO_OPTIMIZED or code.co_cellvars or code.co_freevars:
        return None
    found = {one.positions and one.positions.lineno for one in dis.get_instructions(code) if one.opname in CHANGING}
    return None if None in found else frozenset(line for line in found if line is not None)


@cache
def stored(code: CodeType) -> dict[int, tuple[tuple[str, str], ...]]:
    """(name, attribute) of every attribute that a line sets on a name."""
    found: dict[int, list[tuple[str, str]]] = {}
    before = twice = None
    for one in dis.get_instructions(code):
        owner = twice if before is not None and before.opname == "SWAP" else before  # `x.n += 1` has it from a copy
        if one.opname == "STORE_ATTR" and owner is not None and owner.opname in NAMES and one.positions:
            found.setdefault(one.positions.lineno or 0, []).append((str(owner.argval), str(one.argval)))
        if one.opname == "COPY":
            twice = before
        if one.opname != "CACHE":
            before = one
    return {line: tuple(pairs) for line, pairs in found.items()}
