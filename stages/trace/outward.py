"""What a library was told: calls into it, and how its objects are set.

Calls are logged for the length of a `with` block, by the interpreter's own profile function, which is put back. To see
whether a difference matters, a function of a library is told something else for as long.
"""

import gc
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from types import CodeType, FrameType, FunctionType
from typing import Any

from stages.places import ROOT

from .sites import PACKAGES

Settings = dict[str, Any]
LONG = 200  # letters of a text beyond which its digest stands for it
MANY = 200  # entries of a container
TEXT = (json.__file__,)  # of Python's own, what makes text of what it is told
OUT = ("mlx", "numpy", "torch", "ml_dtypes")  # arrays are compared elsewhere


@dataclass(frozen=True)
class Call:
    """One call of a library's function.

    Attributes:
        name: Its file within the packages and its qualified name: "jinja2/environment.py:Environment.from_string".
        told: Its arguments by name, as plain values; those of a mapping at the end by their own names.
        called: The function.
        code: What called it.
        line: From which line.
    """

    name: str
    told: Settings
    called: CodeType | None = field(default=None, compare=False)
    code: CodeType | None = field(default=None, compare=False)
    line: int = 0


@contextmanager
def calling(folder: str | None, wanted: frozenset[str] = frozenset()) -> Iterator[list[Call]]:
    """Log calls of libraries' functions on this thread.

    Args:
        folder: Called from the files in there: "port/".
        wanted: Or, whoever called them, of these names.
    """
    found: list[Call] = []
    inside = f"{ROOT}/{folder}" if folder else None

    def called(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or (PACKAGES not in file and file not in TEXT):
            return
        above = frame.f_back
        mine = inside is not None and above is not None and above.f_code.co_filename.startswith(inside)
        name = _name(frame.f_code) if mine or wanted else ""
        if above is not None and (mine or name in wanted) and not name.startswith(OUT):
            found.append(Call(name, _told(frame), frame.f_code, above.f_code, above.f_lineno or 0))

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(before)


@contextmanager
def instead(code: CodeType | None, name: str, value: Any) -> Iterator[bool]:
    """Have a library's function told something else by whoever calls it; gives whether that can be done.

    Without a name it does nothing: it gives back the last thing it was given that is of the kind of what it would give.
    """
    if code is None:
        yield False
        return
    made = [one for one in gc.get_referrers(code) if isinstance(one, FunctionType) and one.__code__ is code]
    owner: Any = sys.modules.get(made[0].__module__) if made else None
    for part in code.co_qualname.split(".")[:-1]:
        owner = getattr(owner, part, None)
    if owner is None or vars(owner).get(code.co_name) is not made[0]:
        yield False
        return
    signature = inspect.signature(made[0])
    rest = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), None)

    @wraps(made[0])
    def otherwise(*args: Any, **named: Any) -> Any:
        given = signature.bind(*args, **named)
        if not name:
            result = made[0](*args, **named)
            return next((one for one in reversed(given.args) if type(one) is type(result)), result)
        if name in signature.parameters or rest is None:
            given.arguments[name] = value
        else:
            given.arguments[rest] = {**given.arguments.get(rest, {}), name: value}
        return made[0](*given.args, **given.kwargs)

    setattr(owner, code.co_name, otherwise)
    try:
        yield True
    finally:
        setattr(owner, code.co_name, made[0])


def _name(code: CodeType) -> str:
    return f"{code.co_filename.rpartition(PACKAGES)[2]}:{code.co_qualname}"


def _told(frame: FrameType) -> Settings:
    code = frame.f_code
    plain = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:plain]
    found = {name: said(frame.f_locals.get(name)) for name in names if name != "self"}
    at = plain + bool(code.co_flags & 0x04)  # *args stand between
    if code.co_flags & 0x08:
        found |= {name: said(value) for name, value in frame.f_locals.get(code.co_varnames[at], {}).items()}
    return found


def said(value: Any, depth: int = 3) -> Any:
    """A value as one that can be written down and compared; of what cannot be, its kind."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else repr(value)
        return text if len(text) <= LONG else f"text {hashlib.sha256(text.encode()).hexdigest()[:20]}"
    if depth and isinstance(value, (list, tuple)):
        return [said(one, depth - 1) for one in value[:MANY]]
    if depth and isinstance(value, dict):
        return {str(name): said(one, depth - 1) for name, one in list(value.items())[:MANY]}
    return "something"


def library(value: Any) -> str:
    """The name of a library's type, of which a value is; "" of anything else."""
    kind = type(value)
    top = str(kind.__module__).partition(".")[0]
    own = top in sys.stdlib_module_names or top in {"port", "oracle", "stages", "builtins", "__main__", *OUT}
    return "" if own or isinstance(value, type) else f"{kind.__module__}.{kind.__qualname__}"


def state(value: Any) -> Settings:
    """How an object is set: its public attributes that are plain values, or mappings of such."""
    found: Settings = {}
    for name in {*dir(type(value)), *getattr(value, "__dict__", {})}:
        if not name.startswith("_"):
            with suppress(Exception):  # a property may refuse: then it says nothing
                one = getattr(value, name)
                if one is None or isinstance(one, (bool, int, float, str)):
                    found[name] = said(one)
                elif isinstance(one, dict):
                    found[name] = {str(key): _whose(entry, value) for key, entry in one.items()}
    return found


def _whose(entry: Any, owner: Any) -> Any:
    """A setting; of a function, whether it is one of the library itself or was given to it."""
    if not callable(entry):
        return said(entry)
    own = str(getattr(entry, "__module__", "")).partition(".")[0] == type(owner).__module__.partition(".")[0]
    return f"its own {getattr(entry, '__name__', '')}" if own else "one of another's"


def states(names: frozenset[str]) -> dict[str, list[Settings]]:
    """How all living objects of these types are set, by type."""
    seen: set[int] = set()
    found: dict[str, list[Settings]] = {name: [] for name in names}
    for holder in gc.get_objects():
        values = [holder]
        if str(type(holder).__module__).partition(".")[0] not in sys.stdlib_module_names:
            values += list(getattr(holder, "__dict__", {}).values()) if not isinstance(holder, type) else []
        for value in values:
            if id(value) not in seen and (name := library(value)) in names:
                seen.add(id(value))
                found[name].append(state(value))
    return found
