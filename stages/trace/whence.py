"""Where a value came from: walked back through the names, calls and attributes that handed it on."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .frames import PARAMETER, Frame, Watch, Write, reads, spans
from .likeness import key, members, telling
from .sites import Site

Place = tuple[Frame, int, int]  # a call, a line of it, and when
Path = tuple[str, ...]  # a name, and the attributes asked of it in turn
# Of the port, where it meets the harness.
DOORS = ("cuts.py", "taps.py", "borders.py", "record.py")
DEPTH = 3  # a value may lie so deep in what holds it


@dataclass
class Trail:
    """The way back of values in one log of frames."""

    watch: Watch
    events: list[tuple[int, int, Any, Frame]] = field(default_factory=list, repr=False)
    _keys: dict[int, str | None] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)

    def key(self, value: Any) -> str | None:
        """`key`, worked out once."""
        if isinstance(value, (bool, int, float)):
            return key(value)
        if id(value) not in self._keys:
            self._kept.append(value)
            self._keys[id(value)] = key(value)
        return self._keys[id(value)]

    def holds(self, value: Any, wanted: str, depth: int = DEPTH) -> bool:
        """Whether a value is the one that is wanted, or has it in it."""
        if self.key(value) == wanted:
            return True
        return depth > 0 and any(self.holds(one, wanted, depth - 1) for one in members(value))

    def frames_of(self, frame: Frame | None) -> Iterator[Place]:
        """(call, the line it was at, when) from the inside out, up to what the harness called."""
        line, number, at = 0, self.watch.number, frame
        while at is not None:
            yield at, line, number
            line, number, at = at.asked, at.began, at.parent

    def calls(self, frame: Frame, line: int, until: int) -> list[Frame]:
        """What the expression at a line called, latest first, of what had ended by then."""
        first, last = spans(frame.code).get(line, (line, line))
        since = max(
            (one.number for one in frame.writes if one.number < until and not first <= one.line <= last), default=0
        )
        return [
            one
            for one in reversed(frame.children)
            if first <= one.asked <= last and one.returns and since <= one.began and one.returns[-1][0] <= until
        ]

    def names(self, frame: Frame, line: int, until: int) -> list[tuple[tuple[str, ...], Any, Write]]:
        """(name and attributes, value, the write of the name) of everything that the expression at a line reads."""
        first, last = spans(frame.code).get(line, (line, line))
        by_line = reads(frame.code)
        paths = dict.fromkeys(path for at in range(first, last + 1) for path in by_line.get(at, ()))
        found = []
        for path in paths:
            write = latest(frame, path[0], until)
            if write is None:
                continue
            value = write.value
            found.append((path[:1], value, write))
            for n, attribute in enumerate(path[1:], 2):
                value = self.attribute(value, attribute, until)
                if value is None or callable(value):
                    break
                found.append((path[:n], value, write))
        return found

    def attribute(self, owner: Any, name: str, until: int) -> Any:
        """An attribute as it was then, where it was seen to be set; else as it is."""
        if (store := self.store(owner, name, until)) is not None:
            return store[1].value
        with suppress(Exception):  # a property may refuse: then there is no value to walk back
            return getattr(owner, name, None)
        return None

    def store(self, owner: Any, name: str, until: int) -> tuple[Frame, Write] | None:
        """Where an attribute was set last before then."""
        known = [one for one in self.watch.stores.get((id(owner), name), ()) if one[1].number < until]
        return known[-1] if known else None

    def way(self, frame: Frame, line: int, until: int, wanted: str) -> list[Place]:
        """The places that handed on a value which the expression at a line reads or gives, back to what computed it."""
        found: list[Place] = []
        step: Place | None = (frame, line, until)
        while step is not None and step not in found:
            found.append(step)
            step = self._step(*step, wanted)
        return found

    def suspects(self, at: Place, known: set[str]) -> Iterator[tuple[Place, str]]:
        """What the expression at a place reads or is given by its calls that nobody else has: (where, its key)."""
        for call in self.calls(*at):
            until, line, value = call.returns[-1]
            found = self.key(value)
            if found is not None and telling(value) and found not in known:
                yield (call, line, until), found
        for path, value, write in self.names(*at):
            found = self.key(value)
            if len(path) == 1 and write is not None and found is not None and telling(value) and found not in known:
                if write.line != PARAMETER:
                    yield (at[0], write.line, write.number), found
                elif (above := self._above(at[0], path[0])) is not None:
                    yield above, found

    def handed(self, frame: Frame, line: int, until: int, wrong: str, right: str | None, *, meant: int) -> Place:
        """The place that chose a value instead of another one.

        It is out where both were at hand, or where the wrong one got the only name it is used by.

        Args:
            frame: The call that used it.
            line: The line that did.
            until: When.
            wrong: The key of the value.
            right: That of the oracle's, if there is one.
            meant: When the wrong value was last used as the oracle uses it; 0: never. What a name got later than that
                is no more what it should be: it comes from an earlier round.
        """
        held: Any = None
        while True:
            name, write = self._read(frame, line, until, wrong, held)
            if write is None or name is None:
                return self.given_back((frame, line, until), wrong)
            if write.line != PARAMETER and not frame.code.co_name.startswith("<"):
                stays = (
                    meant >= write.number
                    and self._elsewhere(frame, name, line)
                    and not self._alias(frame, write, wrong)
                )
                return (frame, line, until) if stays else self.given_back((frame, write.line, until), wrong)
            # Of two that a caller gave, it is the caller who exchanged them, unless this one is used rightly as well.
            own = self._elsewhere(frame, name, line)
            here = (one for one in frame.writes if one.number <= until and (own or one.line != PARAMETER))
            near = right is not None and any(self.key(one.value) == right for one in here)
            above = self._above(frame, name)
            if near or above is None or above[0].file.endswith("cuts.py"):
                return frame, line, until
            held = None if self.holds(write.value, wrong, 2) else write.value
            frame, line, until = above

    def given_back(self, at: Place, wanted: str) -> Place:
        """Of a value on its way, the line of a function that only gives back what it got; else the place itself."""
        for place in self.way(*at, wanted):
            for call in self.calls(*place):
                until, line, value = call.returns[-1]
                got = any(one.line == PARAMETER and self.key(one.value) == wanted for one in call.writes)
                if got and self.key(value) == wanted and not call.file.endswith(DOORS):
                    return call, line, until
        return at

    def _alias(self, frame: Frame, write: Write, wrong: str) -> bool:
        """Whether a name got what another name of the function already was."""
        return any(
            one.name != write.name and one.number < write.number and self.key(one.value) == wrong
            for one in frame.writes
        )

    def _above(self, frame: Frame, name: str) -> Place | None:
        """Where a name got its value that the function did not give it: from its caller, or from around it."""
        if name in frame.code.co_freevars:
            around = (one for one in self.frames_of(frame) if name in one[0].code.co_cellvars and one[0] is not frame)
            return next(around, None)
        return None if frame.parent is None else (frame.parent, frame.asked, frame.began)

    def _read(self, frame: Frame, line: int, until: int, wanted: str, held: Any) -> tuple[str | None, Write | None]:
        """The name that an expression reads a value by; of an object that has it as an attribute, the object's."""
        names = self.names(frame, line, until)
        for depth in (0, 2):
            for path, value, write in names:
                whole = len(path) == 1 and path[0] != "self"
                if whole and (self.holds(value, wanted, depth) or (held is not None and value is held)):
                    return path[0], write
        for path, value, write in names:
            if len(path) > 1 and write.name != "self" and self.key(value) == wanted:
                return path[0], write
        return None, None

    def _elsewhere(self, frame: Frame, name: str, line: int) -> bool:
        first, last = spans(frame.code).get(line, (line, line))
        return any(
            (name,) in {path[:1] for path in paths} and not first <= at <= last
            for at, paths in reads(frame.code).items()
        )

    def given_out(self, out: Any, made: Frame | None = None, *, within: bool = False) -> Site | None:
        """The line that handed a value to the port's door, out of functions that give out what another gave them.

        Args:
            out: The value.
            made: The call that made the value: it did what it is for.
            within: Unless more should have been done in there.
        """
        found: Site | None = None
        wanted = self.key(out) or ""
        doorsteps = (
            one
            for one in self.watch.frames
            if not one.file.endswith(DOORS) and one.parent is not None and one.parent.file.endswith(DOORS)
        )
        frame = next((one for one in doorsteps if one.returns and self.holds(one.returns[-1][2], wanted, 2)), None)
        while frame is not None:
            until, line, value = frame.returns[-1]
            found = Site(frame.file, line, frame.code.co_name)
            frame = next(
                (one for one in self.calls(frame, line, until) if self._passed(one, wanted, value, made, within)), None
            )
        return found

    def _passed(self, call: Frame, wanted: str, value: Any, made: Frame | None, within: bool) -> bool:
        """Whether a call gave what was given on; what made it, only where that is the very thing, and asked for."""
        given = call.returns[-1][2]
        return self.key(given) == wanted and (call is not made or (within and given is value))

    def _step(self, frame: Frame, line: int, until: int, wanted: str) -> Place | None:
        for depth in (0, DEPTH):  # the value itself, before what has it in it
            for call in self.calls(frame, line, until):
                for when, at, value in reversed(call.returns):
                    if when <= until and self.holds(value, wanted, depth):
                        return call, at, when
        names = self.names(frame, line, until)
        values = {path: value for path, value, _ in names}
        for depth in (0, DEPTH):
            for path, value, write in names:
                if depth and self._passed_by(frame, line, path, wanted, values):
                    continue
                held = self.holds(value, wanted, depth)
                if held and (place := self.named(frame, path, write, until)) is not None:
                    return place
        return None

    def _passed_by(self, frame: Frame, line: int, path: Path, wanted: str, values: dict[Path, Any]) -> bool:
        """Whether of something that may have a value in it an expression reads nothing but other attributes."""
        first, last = spans(frame.code).get(line, (line, line))
        by_line = reads(frame.code)
        read = {one for at in range(first, last + 1) for one in by_line.get(at, ()) if one[: len(path)] == path}
        return all(one != path and one in values and not self.holds(values[one], wanted) for one in read)

    def named(self, frame: Frame, path: tuple[str, ...], write: Write, until: int) -> Place | None:
        """Where a name, or an attribute of it, got what it has."""
        if len(path) == 1:
            given = write.line == PARAMETER or frame.code.co_name.startswith("<")
            return self._above(frame, path[0]) if given else (frame, write.line, write.number)
        owner = write.value
        for name in path[1:-1]:
            owner = self.attribute(owner, name, until)
        store = self.store(owner, path[-1], until)
        return None if store is None else (store[0], store[1].line, store[1].number)


def keys(watch: Watch) -> set[str]:
    """Of every value that a log of calls has, and of what lies in it."""
    trail = Trail(watch)
    found: set[str] = set()
    for frame in watch.frames:
        for value in (*(one.value for one in frame.writes), *(value for _, _, value in frame.returns)):
            found.update(one for part in (value, *members(value)) if (one := trail.key(part)) is not None)
    return found


def latest(frame: Frame, name: str, until: int) -> Write | None:
    """The last time that a name got a value before then."""
    return next((one for one in reversed(frame.writes) if one.name == name and one.number <= until), None)


def site(at: Place) -> Site:
    """A place as a line of a file."""
    frame, line, _ = at
    return Site(frame.file, line, frame.code.co_name)
