"""Planted bugs: an edit of the port's source as data, and how it is put into a running port. Never into a file."""

import ast
import importlib
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import HarnessError
from .places import ROOT

COMPUTE = "float32"
TEXTS: dict[str, str] = {}  # files of the port that are otherwise in this process than on disk, by path from the root


@dataclass(frozen=True)
class Mutant:
    """One bug that ports have had, or are likely to have.

    Attributes:
        name: What a reader calls it.
        stage: Where it has to be caught first, in the order of the table.
        where: The function or method within the model's port: `attention.Attention.encode`.
        old: A piece of its source that stands there exactly once.
        new: What stands there instead.
        math: One sentence: what is computed otherwise.
        cases: Which goldens are asked, as "case" (in float32) or "case/bfloat16".
        bugs: Numbers in a catalogue of real bugs.
        unseen: Why no gate of the portable tier can see it; "" where one has to.
    """

    name: str
    stage: str
    where: str
    old: str
    new: str
    math: str
    cases: tuple[str, ...]
    bugs: tuple[str, ...] = ()
    unseen: str = ""

    @property
    def goldens(self) -> tuple[tuple[str, str], ...]:
        """Its cases as (case, compute dtype)."""
        pairs = (case.partition("/") for case in self.cases)
        return tuple((case, compute or COMPUTE) for case, _, compute in pairs)


class PlantingError(HarnessError):
    """A mutant that does not fit the port as it is."""


def plant(model: str, mutant: Mutant) -> None:
    """Change a port in memory: every module of it that holds the function holds the changed one from now on.

    There is no way back: a process plants one mutant and ends.

    Raises:
        PlantingError: the function is not there, `old` does not stand in it exactly once, or `new` is no Python.
    """
    module_name, _, path = mutant.where.partition(".")
    try:
        module = importlib.import_module(f"port.{model}.{module_name}")
        owner = _owner(module, path)
        name = path.rpartition(".")[2]
        original = vars(owner)[name]
    except (ModuleNotFoundError, AttributeError, KeyError) as error:
        raise _unfit(model, mutant, f"there is no {mutant.where}") from error
    changed = _changed(model, mutant, module, name)
    file, first, source = function_of(model, mutant)
    text = "".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[: first - 1])
    rest = file.read_text(encoding="utf-8")[len(text) :].removeprefix(source.removesuffix("\n"))
    TEXTS[file.relative_to(ROOT).as_posix()] = text + source.replace(mutant.old, mutant.new).removesuffix("\n") + rest
    for holder in _holders(model, owner):
        for held, value in list(vars(holder).items()):
            if value is original:
                setattr(holder, held, changed)


def _owner(module: ModuleType, path: str) -> Any:
    owner: Any = module
    for name in path.split(".")[:-1]:
        owner = getattr(owner, name)
    return owner


def _holders(model: str, owner: Any) -> list[Any]:
    if not isinstance(owner, ModuleType):
        return [owner]
    return [module for name, module in list(sys.modules.items()) if name.startswith((f"port.{model}.", "port."))]


def function_of(model: str, mutant: Mutant) -> tuple[Path, int, str]:
    """The function that a mutant changes, as it is: (its file, the line it begins at, its source).

    Raises:
        PlantingError: it is not there, or `old` does not stand in it exactly once.
    """
    module, _, path = mutant.where.partition(".")
    file = ROOT / "port" / model / f"{module}.py"
    text = file.read_text(encoding="utf-8")
    node = _find(ast.parse(text), path.split("."))
    if node is None:
        raise _unfit(model, mutant, f"{file.name} defines no {path}")
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    source = "\n".join(text.splitlines()[first - 1 : node.end_lineno]) + "\n"
    if (times := source.count(mutant.old)) != 1:
        raise _unfit(model, mutant, f"{mutant.old!r} stands {times} times in {mutant.where}")
    return file, first, source


def _changed(model: str, mutant: Mutant, module: ModuleType, name: str) -> Any:
    """The function as it is with the edit, its globals the module's own, its lines where they were."""
    file, first, source = function_of(model, mutant)
    if "super()" in source:
        raise _unfit(model, mutant, f"{mutant.where} calls super(), which only works inside its class")
    edited = textwrap.dedent(source.replace(mutant.old, mutant.new))
    try:
        code = compile("\n" * (first - 1) + edited, str(file), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _unfit(model, mutant, f"what stands there instead is no Python: {error.msg}") from error
    made: dict[str, Any] = {}
    exec(code, vars(module), made)  # noqa: S102 -- this project's own text
    return made[name]


def _find(tree: ast.Module, path: list[str]) -> ast.FunctionDef | None:
    body: list[ast.stmt] = tree.body
    for name in path[:-1]:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == name), [])
    return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == path[-1]), None)


def _unfit(model: str, mutant: Mutant, found: str) -> PlantingError:
    return PlantingError(
        f"the mutant {mutant.name!r} cannot be planted: {found}; its text should stand exactly once in port/{model}. "
        f"Mend its row in stages/mutants/{model}*.py"
    )
