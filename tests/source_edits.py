"""Random mutations of the port's source, made by cosmic-ray: drawn from a seed, kept as data, planted in memory.

Every *place* (file, first and last character) of every mutation that cosmic-ray's operators make is equally likely, and
so is, at a place, each of its mutations: drawn from all mutations instead, a `+`, which has eleven replacements, would
come eleven times as often as a `True`. Left out is what changes no computation: a mutation that is no Python (a bare
`*` among parameters is taken for a product), and one that only changes an annotation.
"""

import ast
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class UnfitError(Exception):
    """The lines that a mutation changes no longer stand in its file."""


@dataclass(frozen=True)
class Edit:
    """One mutation.

    Attributes:
        file: Relative to the checkout.
        line: Where its lines began when it was drawn.
        operator: cosmic-ray's name of what was done.
        before: The lines that it changes.
        after: What stands there instead; "" where they are removed.
    """

    file: str
    line: int
    operator: str
    before: str
    after: str

    @property
    def place(self) -> str:
        """`port/x.py:12`."""
        return f"{self.file}:{self.line}"

    def found(self, text: str) -> int:
        """The number of its first line in this text of its file: of several like it the one nearest to where it was.

        Raises:
            UnfitError: there is none.
        """
        lines, wanted = text.splitlines(), self.before.splitlines()
        starts = [i for i in range(len(lines)) if lines[i : i + len(wanted)] == wanted]
        if not starts:
            raise UnfitError(f"{self.place} holds no more: {self.before.strip()}")
        return 1 + min(starts, key=lambda i: abs(i + 1 - self.line))

    def mutated(self, text: str) -> str:
        """The text of the file with the mutation."""
        lines, first = text.splitlines(), self.found(text) - 1
        lines[first : first + len(self.before.splitlines())] = self.after.splitlines()
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Drawn:
    """A sample, and what it was drawn from."""

    edits: tuple[Edit, ...]
    places: int
    mutations: int
    left_out: int


def draw(count: int, seed: int) -> Drawn:
    """So many mutations of `port/`, each of another place."""
    places: dict[tuple[Path, Any, Any], list[tuple[str, int]]] = {}
    for path in sorted((ROOT / "port").rglob("*.py")):
        for place, mutation in _mutations(path):
            places.setdefault((path, *place), []).append(mutation)
    chance = random.Random(seed)
    order = sorted(places)
    chance.shuffle(order)
    edits: list[Edit] = []
    tried = 0
    while len(edits) < count:
        place = order[tried]
        tried += 1
        edit = _edit(place[0], *chance.choice(places[place]))
        if edit is not None:
            edits.append(edit)
    edits.sort(key=lambda edit: (edit.file, edit.line))
    return Drawn(tuple(edits), len(places), sum(map(len, places.values())), tried - count)


def _mutations(path: Path) -> Iterator[tuple[tuple[Any, Any], tuple[str, int]]]:
    """((start, end), (operator, its number)) of everything that cosmic-ray would do to a file."""
    # Imported here: who judges a sample that was drawn needs no cosmic-ray.
    from cosmic_ray.ast import ast_nodes, get_ast  # noqa: PLC0415
    from cosmic_ray.plugins import get_operator, operator_names  # noqa: PLC0415

    nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if kind.arguments():
            continue  # those that replace variables by names of the caller's choice
        operator = kind()
        found = (place for node in nodes for place in operator.mutation_positions(node))
        yield from ((place, (name, number)) for number, place in enumerate(found))


def _edit(path: Path, operator: str, number: int) -> Edit | None:
    """The mutation as changed lines; nothing if it computes what stood there, or is no Python."""
    from cosmic_ray.mutating import mutate_code  # noqa: PLC0415
    from cosmic_ray.plugins import get_operator  # noqa: PLC0415

    text = path.read_text(encoding="utf-8")
    mutated = mutate_code(text, get_operator(operator)(), number)
    try:
        if _computes(mutated) == _computes(text):
            return None
    except SyntaxError:
        return None
    old, new = text.splitlines(), mutated.splitlines()
    first = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    same = next(i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b)
    same = min(same, len(old) - first, len(new) - first)
    before, after = old[first : len(old) - same], new[first : len(new) - same]
    name = operator.rpartition("/")[2]
    return Edit(str(path.relative_to(ROOT)), first + 1, name, "\n".join(before), "\n".join(after))


def _computes(text: str) -> str:
    """The syntax tree without annotations and places."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


class _Planted(SourceFileLoader):
    """Imports one module from a text in memory, whatever its file holds and whatever was compiled of it before."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 -- as the import system calls it
        return compile(self.text, self.path, "exec", dont_inherit=True)

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None


def plant(edit: Edit) -> None:
    """From now on this process imports the mutated module. There is no way back, and it may not be imported yet."""
    path = ROOT / edit.file
    name = edit.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if name in sys.modules:
        raise RuntimeError(f"{name} was imported before its mutation could be planted")
    sys.meta_path.insert(0, _Planted(name, str(path), edit.mutated(path.read_text(encoding="utf-8"))))
