"""What a model keeps of an earlier run: the port on a model that was used, beside the same on new ones.

Both run the same code on the same inputs. What is otherwise in the first was left there, if two new models agree on it.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from stages.trace.frames import PARAMETER, Frame, Watch
from stages.trace.likeness import key
from stages.trace.sites import Site
from stages.trace.whence import DOORS

from .sides import First

Event = tuple[int, int, str, Any]  # when, line, name, value


def kept(used: Watch, new: Watch, again: Watch) -> First | None:
    """The first line that has something which no run on a new model ever has.

    Args:
        used: A run on a model that had been used.
        new: The same on a new one.
        again: Once more: what differs between these two is of no run, as times are.
    """
    known = {_key(value) for frame in new.frames for _, _, _, value in _events(frame)}
    found = [
        (when, frame, line, name)
        for frame, other, third in _alike([used, new, again])
        for (when, line, name, value), (_, _, _, right), (_, _, _, twice) in _pairs(frame, other, third)
        if _key(value) != _key(right) == _key(twice) and _key(value) not in known
    ]
    for _, frame, line, name in sorted(found, key=lambda one: one[0]):
        at = _site(frame, line)
        if at is not None:
            return First(-1, at, (at,), f"{name} has here what an earlier run left in the model")
    return None


def _site(frame: Frame, line: int) -> Site | None:
    while line == PARAMETER and frame.parent is not None:
        line, frame = frame.asked, frame.parent
    return None if frame.file.endswith(DOORS) or line == PARAMETER else Site(frame.file, line, frame.code.co_name)


def _alike(watches: list[Watch]) -> Iterator[tuple[Frame, ...]]:
    """Calls that stand for each other in all runs: by function, line that asked, and order."""
    todo = [[[one for one in watch.frames if one.parent is None] for watch in watches]]
    while todo:
        grouped: list[dict[Any, list[Frame]]] = []
        for frames in todo.pop():
            groups: dict[Any, list[Frame]] = defaultdict(list)
            for one in frames:
                groups[one.code, one.asked].append(one)
            grouped.append(groups)
        for where, some in grouped[0].items():
            for same in zip(some, *(groups.get(where, []) for groups in grouped[1:]), strict=False):
                yield same
                todo.append([one.children for one in same])


def _events(frame: Frame) -> Iterator[Event]:
    yield from ((one.number, one.line, one.name, one.value) for one in frame.writes)
    yield from ((when, line, "what it gives", value) for when, line, value in frame.returns)


def _pairs(*frames: Frame) -> Iterator[tuple[Event, ...]]:
    """What happened at one line to one name in each call, in order; a line that one did not come by is left out."""
    grouped: list[dict[Any, list[Event]]] = []
    for frame in frames:
        groups: dict[Any, list[Event]] = defaultdict(list)
        for one in _events(frame):
            groups[one[1:3]].append(one)
        grouped.append(groups)
    for where, some in grouped[0].items():
        yield from zip(some, *(groups.get(where, []) for groups in grouped[1:]), strict=False)


def _key(value: Any) -> str:
    """What is equal where two values are; nothing where that cannot be told of one."""
    found = key(value)
    if found is None and isinstance(value, (set, frozenset, list, tuple, dict)):
        parts = [key(one) for pair in value.items() for one in pair] if isinstance(value, dict) else map(key, value)
        listed = [part or "" for part in parts]
        found = " ".join(sorted(listed) if isinstance(value, (set, frozenset)) else listed)
    return found or ""
