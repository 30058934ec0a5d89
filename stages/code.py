"""Which files of the port a stage's result depends on: those it executed, and those whose constants they read."""

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .places import ROOT

PORT = ROOT / "port"


class Executed:
    """The port's files whose functions ran while `watching()`."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note every Python function that is called on this thread."""
        codes = self._codes

        def note(frame: FrameType, event: str, _argument: Any) -> None:
            if event == "call":
                codes.add(frame.f_code)

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(before if callable(before) else None)  # one written in C cannot be given back

    def files(self, *, constructors: bool) -> set[Path]:
        """Files under port/ that ran; without those that only had a constructor run."""
        return {
            path
            for code in self._codes
            if code.co_flags & inspect.CO_OPTIMIZED  # a function, not a module's or a class' body being imported
            and (constructors or code.co_name != "__init__")
            and (path := Path(code.co_filename)).is_relative_to(PORT)
        }


def with_constants(files: Iterable[Path]) -> set[Path]:
    """These files and, repeatedly, those whose module-level values they import: no call betrays reading one."""
    found: set[Path] = set()
    todo = list(files)
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo.extend(_value_sources(path, path.stat().st_mtime_ns))
    return found


@lru_cache(maxsize=1024)
def _value_sources(path: Path, _changed: int) -> tuple[Path, ...]:
    tree = ast.parse(path.read_text())
    sources = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        # An absolute import leaves the checkout, or names one of its packages from the root.
        base = path.parents[node.level - 1] if node.level else ROOT
        if node.module:
            target = base.joinpath(*node.module.split(".")).with_suffix(".py")
            if target.exists() and any(alias.name in _values(target) for alias in node.names):
                sources.append(target)
        else:
            for alias in node.names:
                target = base / f"{alias.name}.py"
                if target.exists() and _read_attributes(tree, alias.asname or alias.name) & _values(target):
                    sources.append(target)
    return tuple(sources)


def _values(path: Path) -> set[str]:
    """Names that a module assigns at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names.update(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    return names


def _read_attributes(tree: ast.AST, module: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module
    }


def digest(path: Path) -> str:
    """sha256 of a file, or "absent"."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "absent"


@lru_cache(maxsize=1)
def as_found() -> dict[Path, str]:
    """Digest of each file of the port when it was first asked for: before the port was imported.

    A file saved while its old code is being judged is not the one that was judged.
    """
    return {path: digest(path) for path in PORT.rglob("*.py")}


def fingerprint(files: Iterable[Path]) -> dict[str, str]:
    """Digest of each file as it was found, by its path from the project's root."""
    found = as_found()
    return {path.relative_to(ROOT).as_posix(): found.get(path, "absent") for path in sorted(files)}


def unchanged(recorded: dict[str, str]) -> bool:
    """Whether every file still has the bytes it had."""
    return all(digest(ROOT / name) == before for name, before in recorded.items())


def harness_digest() -> str:
    """What judges: a changed gate, judge or plan asks again."""
    here = Path(__file__).parent
    names = ("gates", "decisions", "judge", "code", "sides", "cases", "made", "pictures")
    parts = [digest(here / f"{name}.py") for name in names]
    return hashlib.sha256("".join(parts).encode()).hexdigest()
