"""What an edit may name in place of another thing: names of a function with the types they were seen to hold."""

import ast
import re
from collections.abc import Hashable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from stages.trace.frames import Watch

DEPTH = 2  # attributes of attributes of a name
SIMPLE = (bool, int, float, str)


def tag(value: Any) -> str:
    """A type as one word: two values of one tag can stand for each other."""
    if value is None or isinstance(value, SIMPLE):
        return type(value).__name__
    if hasattr(value, "dtype") and hasattr(value, "ndim"):
        return f"array {value.ndim} {_kind(str(value.dtype))}"
    if callable(value) and not hasattr(type(value), "__dataclass_fields__") and not hasattr(value, "__dict__"):
        return "callable"
    return type(value).__name__


def _kind(dtype: str) -> str:
    """Floats of any width may stand for each other, and so may whole numbers."""
    return "float" if "float" in dtype else "int" if "int" in dtype else dtype.rpartition(".")[2]


@dataclass
class Scope:
    """Of one function: every name and attribute that was seen in it, with its tags.

    Attributes:
        tags: By `name` or `name.attribute`.
        idle: Names that the function's text gives a value and never reads; parameters above all.
        calls: What can be called of it, of the port's own classes.
    """

    tags: dict[str, set[str]] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)

    def like(self, found: str) -> list[str]:
        """What may stand for a name or attribute: of a tag that it was seen with, the idle first."""
        mine = self.tags.get(found, set())
        return self.of(mine, {found})

    def of(self, wanted: AbstractSet[str], without: AbstractSet[str] = frozenset()) -> list[str]:
        """What was seen with one of these tags."""
        found = [one for one, tags in self.tags.items() if one not in without and tags & wanted]
        return sorted(found, key=lambda one: (not ({one, one.partition(".")[0]} & self.idle), one.count("."), one))


def seen(watch: Watch | None) -> dict[tuple[str, str], Scope]:
    """Scopes by (file, qualified name of the function)."""
    found: dict[tuple[str, str], Scope] = {}
    for frame in watch.frames if watch else ():
        # What a comprehension or a lambda names stands in the text of the function around it.
        scope = found.setdefault((frame.file, re.sub(r"(\.<locals>\.<\w+>)+$", "", frame.code.co_qualname)), Scope())
        values = [(one.name, one.value) for one in frame.writes]
        for name, value in values:
            if name.startswith("."):
                continue
            for path, part in _parts(name, value, DEPTH):
                scope.tags.setdefault(path, set()).add(tag(part))
                if type(part).__module__.startswith("port."):
                    if callable(part):
                        scope.calls.add(path)
                    for array in _arrays(cast("Hashable", type(part))):
                        scope.tags.setdefault(f"{path}.{array}", set()).add("array")
    return found


def given(watch: Watch | None) -> dict[str, set[str]]:
    """Tags of what functions were seen to give back, by name."""
    found: dict[str, set[str]] = {}
    for frame in watch.frames if watch else ():
        for _, _, value in frame.returns:
            found.setdefault(frame.code.co_name, set()).add(tag(value))
    return found


def _parts(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, list | tuple) and value and type(value[0]).__module__.startswith("port."):
        yield from _parts(f"{path}[0]", value[0], depth - 1)
    if depth > 0 and type(value).__module__.startswith("port."):
        slots = (name for name in getattr(type(value), "__slots__", ()) if hasattr(value, name))
        for name in dict.fromkeys((*getattr(value, "__dict__", {}), *slots)):
            if not name.startswith("_") or path == "self":
                yield from _parts(f"{path}.{name}", getattr(value, name), depth - 1)


def declared(function: ast.FunctionDef) -> dict[str, set[str]]:
    """Tags of the parameters that are declared to hold something plain: what was never called was never seen."""
    found: dict[str, set[str]] = {}
    for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        words = set(re.findall(r"\w+", ast.unparse(one.annotation))) if one.annotation else set()
        if words and words <= {"bool", "int", "float", "str", "None"}:
            found[one.arg] = {"NoneType" if word == "None" else word for word in words}
    return found


@cache
def _arrays(cls: Hashable) -> tuple[str, ...]:
    """Properties of a class that are declared to be arrays; asking for one might read a file."""
    found = [(name, one.fget) for name, one in vars(cls).items() if isinstance(one, property)]
    return tuple(name for name, get in found if "array" in str(getattr(get, "__annotations__", {}).get("return", "")))


def stored(function: ast.FunctionDef) -> dict[str, int]:
    """Names that a function gives a value, and the first line that does; a loop may come by a line again."""
    found: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = min(found.get(node.id, node.lineno), node.lineno)
    given = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    return {name: line for name, line in found.items() if name not in given}


def idle(function: ast.FunctionDef) -> set[str]:
    """Names that a function is given or sets, and never reads."""
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = {one.arg for one in given} | {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return names - read - {"self", "cls", "_"}
