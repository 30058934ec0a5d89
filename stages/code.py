"""Which code of the port a stage's result depends on: the functions it ran, whatever was built before, and its taps."""

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .places import MODELS, ROOT

PORT = ROOT / "port"
BUILT = "#construction"
CONSTRUCTORS = {"__init__", "__post_init__", "__new__"}
PRODUCT = ("model", "generate")  # what a user of a port calls
PLANTING = {"forked", "mutate", "mutate_cli", "planted", "ratchet"}
SHOWING = PLANTING | {
    "__init__",
    "asked",
    "cli",
    "dump",
    "errors",
    "loose",
    "progress",
    "regate",
    "told",
    "trajectory",
    "view",
}


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


@dataclass(frozen=True)
class Source:
    """A file of the port as it was found, before the port was imported."""

    text: bytes

    @cached_property
    def digest(self) -> str:
        """sha256 of the whole file."""
        return hashlib.sha256(self.text).hexdigest()

    @cached_property
    def construction(self) -> str:
        """sha256 of what runs before any stage does: the module's and the classes' own statements, and constructors.

        The bodies of all other functions are left out, and so are docstrings, comments and layout.
        """
        try:
            tree = ast.parse(self.text)
        except SyntaxError:
            return self.digest
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in CONSTRUCTORS:
                node.body = [ast.Pass()]
            elif isinstance(node, ast.Module | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:]
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


@lru_cache(maxsize=1)
def as_found() -> dict[str, Source]:
    """The port's files by path from the project's root, as they were when this was first asked.

    A file saved while its old code is being judged is not the one that was judged.
    """
    return {path.relative_to(ROOT).as_posix(): Source(path.read_bytes()) for path in sorted(PORT.rglob("*.py"))}


@lru_cache(maxsize=8)
def observing(model: str) -> set[Path]:
    """Files, the model's own or shared, that serve its cuts and taps and not its product.

    Every free verdict came through them.
    """
    names = {path.stem: path for path in (*PORT.glob("*.py"), *(PORT / model).glob("*.py"))}
    return {names[name] for name in _reached(names, {"cuts", "taps"}) - _reached(names, PRODUCT)}


def _reached(names: dict[str, Path], roots: Iterable[str]) -> set[str]:
    """Modules among `names` that these import, and theirs, and so on; themselves included."""
    found: set[str] = set()
    todo = [name for name in roots if name in names]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += names.keys() & set(_imported(as_found()[names[name].relative_to(ROOT).as_posix()].text))
    return found


def _imported(text: bytes) -> Iterator[str]:
    """The last parts of the names of modules that a file imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield from [node.module.rpartition(".")[2]] if node.module else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)


def fingerprint(files: Iterable[Path], model: str) -> dict[str, str]:
    """The digest of each of these files, and of what is constructed in each of the model's port."""
    found = as_found()
    whole = {path.relative_to(ROOT).as_posix() for path in files}
    prints = {name: found[name].digest if name in found else "absent" for name in sorted(whole)}
    return prints | {f"{name}{BUILT}": found[name].construction for name in _files_of(model)}


def unchanged(recorded: dict[str, str], model: str) -> bool:
    """Whether everything still is as it was, and no file of the model's port came or went."""
    found = as_found()
    if {name for name in recorded if name.endswith(BUILT)} != {f"{name}{BUILT}" for name in _files_of(model)}:
        return False
    return all(_now(name, found) == before for name, before in recorded.items())


def _files_of(model: str) -> list[str]:
    """The files of a model's port, and those that all ports share."""
    return [name for name in as_found() if name.startswith(f"port/{model}/") or name.count("/") == 1]


def _now(name: str, found: dict[str, Source]) -> str:
    source = found.get(name.removesuffix(BUILT))
    if source is None:
        return "absent"
    return source.construction if name.endswith(BUILT) else source.digest


def port_digest() -> str:
    """The port's files as they were found, in one digest."""
    return hashlib.sha256("".join(f"{name} {file.digest}\n" for name, file in as_found().items()).encode()).hexdigest()


def harness_digest() -> str:
    """What judges: a change of anything in the harness but what only records, or only shows, asks again."""
    here = Path(__file__).parent
    # A table's rows and cases are compared as they are, one by one.
    judging = sorted(
        path for path in here.glob("*.py") if path.stem not in SHOWING and not path.stem.startswith(MODELS)
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in judging)).hexdigest()
