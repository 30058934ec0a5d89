"""Fields of the port's configuration that are not what `config.json` says, and whether one of them is what is wrong.

A port may rightly have other values than its file. So each such field is given the file's value, everything is made
anew, and it counts where the port then gives what the oracle gives, or opens what it refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stages.trace.likeness import members
from stages.trace.origin import ABSENT, field_of
from stages.trace.whence import Trail, site

from .fields import field_at
from .sides import First

COMMON = 2  # names that an object has to share with the file to be a configuration
TRIES = 6
Field = tuple[type, str, Any, Any]  # a class of the port, its field, what that is, what the file says


def misread(trail: Trail, config: dict[str, Any], mends: Callable[[], bool]) -> First | None:
    """The line at which such a field became what it is; None where none is to blame.

    Args:
        trail: Of a run of the port, from loading on.
        config: What the file says.
        mends: Makes everything anew, and says whether all is well.
    """
    for kind, name, mine, theirs in list(dict.fromkeys(_otherwise(trail, config)))[:TRIES]:
        with _instead(kind, name, theirs):
            well = mends()
        if well and (at := field_at(trail, name, mine, _brothers(kind, trail) - {name})) is not None:
            why = f"{name} becomes {mine!r} here, where config.json has {theirs!r}; with that all is well"
            return First(-1, site(at), (site(at),), why)
    return None


def _otherwise(trail: Trail, config: dict[str, Any]) -> Iterator[Field]:
    said: dict[str, list[Any]] = {}
    for name, value in _leaves(config):
        said.setdefault(name, []).append(value)
    seen: set[int] = set()
    for frame in trail.watch.frames:
        for write in frame.writes:
            for one in (write.value, *members(write.value)):
                if id(one) in seen or not type(one).__module__.startswith("port.") or isinstance(one, type):
                    continue
                seen.add(id(one))
                fields = {name: value for name in said if (value := field_of(one, name)) is not ABSENT}
                if len(fields) < COMMON:
                    continue
                for name, value in fields.items():
                    plain = isinstance(value, (int, float, str, type(None)))
                    yield from (
                        (type(one), name, value, each) for each in said[name] if plain and value not in said[name]
                    )


def _leaves(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        elif isinstance(value, (int, float, str)):
            yield name, value


def _brothers(kind: type, trail: Trail) -> set[str]:
    """Names of the fields of a class's objects."""
    one = next(
        value for frame in trail.watch.frames for write in frame.writes
        for value in (write.value, *members(write.value)) if type(value) is kind
    )  # fmt: skip
    return set(vars(one)) if hasattr(one, "__dict__") else set()


@contextmanager
def _instead(kind: type, name: str, value: Any) -> Iterator[None]:
    """Objects of a class are made with that value in a field, whatever they are told."""
    made: Any = vars(kind).get("__init__", object.__init__)

    def otherwise(self: Any, *args: Any, **named: Any) -> None:
        made(self, *args, **named)
        object.__setattr__(self, name, value)

    setattr(kind, "__init__", otherwise)  # noqa: B010 -- a type checker has no word for it
    try:
        yield
    finally:
        setattr(kind, "__init__", made)  # noqa: B010
