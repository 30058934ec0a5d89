"""Where a value, or a field of some name, first was what it is: the earliest line of the port that has it."""

from collections.abc import Callable, Iterator
from typing import Any

from .frames import PARAMETER, Frame
from .likeness import key, members
from .whence import DOORS, Place, Trail

ABSENT = object()
DEPTH = 2  # a number may lie so deep in what a name holds


def first_with(trail: Trail, has: Callable[[Any], bool]) -> Place | None:
    """The earliest place at which a name got, or a call gave, a value of a kind; a caller's where it was handed on.

    Values are as they are at the end: what was put into a dictionary later counts from its beginning.
    """
    seen: dict[int, bool] = {}
    kept: list[Any] = []

    def asked(value: Any) -> bool:
        if id(value) not in seen:
            kept.append(value)
            seen[id(value)] = has(value)
        return seen[id(value)]

    for number, line, value, frame in _events(trail):
        if not frame.file.endswith(DOORS) and asked(value):
            return _own(frame, line, number)
    return None


def _events(trail: Trail) -> list[tuple[int, int, Any, Frame]]:
    if not trail.events:
        for frame in trail.watch.frames:
            trail.events += [(one.number, one.line, one.value, frame) for one in frame.writes]
            trail.events += [(number, line, value, frame) for number, line, value in frame.returns]
        trail.events.sort(key=lambda one: one[0])
    return trail.events


def _own(frame: Frame, line: int, number: int) -> Place | None:
    """The place itself; of what was handed on, its caller's; none where the port's door handed it in."""
    while line == PARAMETER:
        if frame.parent is None or frame.parent.file.endswith(DOORS):
            return None
        line, number, frame = frame.asked, frame.began, frame.parent
    return frame, line, number


def number_first(trail: Trail, value: float) -> Place | None:
    """Where a number, that is hardly met by chance, came from."""
    wanted = key(value)

    def has(one: Any, depth: int = DEPTH) -> bool:
        if isinstance(one, (int, float)) and not isinstance(one, bool):
            return key(one) == wanted
        return depth > 0 and any(has(part, depth - 1) for part in _parts(one))

    return first_with(trail, has)


def value_first(trail: Trail, wanted: str, size: int) -> Place | None:
    """Where an array or list of this key and size first was."""

    def has(one: Any) -> bool:
        many = getattr(one, "size", None) if not isinstance(one, (list, tuple)) else len(one)
        return many == size and trail.key(one) == wanted

    return first_with(trail, has)


def field_of(owner: Any, name: str) -> Any:
    """An attribute or an entry; `ABSENT` where there is none."""
    if isinstance(owner, dict):
        return owner.get(name, ABSENT)
    if type(owner).__module__.startswith(("port.", "oracle.")) and not isinstance(owner, type):
        found = getattr(owner, "__dict__", {}).get(name, ABSENT)
        return getattr(owner, name, ABSENT) if found is ABSENT and hasattr(type(owner), "__slots__") else found
    return ABSENT


def _parts(value: Any) -> Iterator[Any]:
    yield from (one for one in members(value) if not callable(one))
