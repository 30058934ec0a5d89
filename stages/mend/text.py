"""One file's source, parsed: where each node stands in the text, and what it stands among."""

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from .scope import Scope

MOST = 6


@dataclass(frozen=True)
class Piece:
    """Text that stands in place of some letters: see `edits.Edit`."""

    line: int
    start: int
    end: int
    new: str
    kind: str
    weight: float


@dataclass
class Library:
    """Functions and methods of a port, as its files define them.

    Attributes:
        functions: By file, those of the module itself by name.
        methods: Of all files, by name.
        mentioned: How often a name stands anywhere.
        given: Tags of what functions were seen to give back, by name.
    """

    functions: dict[str, dict[str, ast.FunctionDef]] = field(default_factory=dict)
    methods: dict[str, list[ast.FunctionDef]] = field(default_factory=dict)
    mentioned: dict[str, int] = field(default_factory=dict)
    given: dict[str, set[str]] = field(default_factory=dict)

    def add(self, file: str, tree: ast.Module) -> None:
        """Take in a file."""
        own = self.functions.setdefault(file, {})
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                self.methods.setdefault(node.name, []).append(node)
                if node in tree.body:
                    own[node.name] = node
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            self.mentioned[name] = self.mentioned.get(name, 0) + 1


@dataclass
class Source:
    """One file's text.

    Attributes:
        file: From the checkout's root.
        library: Of all files of the port.
        parents: The node around each node.
    """

    file: str
    text: str
    library: Library = field(default_factory=Library)
    tree: ast.Module = field(init=False)
    parents: dict[ast.AST, ast.AST] = field(init=False)
    _starts: list[int] = field(init=False)
    _lines: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        lines = self.text.splitlines(keepends=True)
        self._lines = [line.encode() for line in lines]
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Of a line and a column in bytes, as syntax trees count them: the letter in the text."""
        return self._starts[line - 1] + len(self._lines[line - 1][:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """First letter, and the one behind the last."""
        at, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return self.offset(*at), self.offset(*end)

    def of(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def whole(self, statement: ast.stmt) -> tuple[int, int]:
        """A statement with its indentation and its line's end."""
        return self._starts[statement.lineno - 1], self._starts[statement.end_lineno or statement.lineno]

    def alone(self, statement: ast.stmt) -> bool:
        """Whether no other statement stands on its lines."""
        start, end = self.whole(statement)
        first, last = self.span(statement)
        rest = self.text[last:end].strip()
        return not self.text[start:first].strip() and (not rest or rest.startswith("#"))

    def shifted(self, statement: ast.stmt, to: ast.stmt) -> str:
        """A statement's lines as they would be beside another."""
        start, end = self.whole(statement)
        return textwrap.indent(textwrap.dedent(self.text[start:end]), " " * to.col_offset)

    def siblings_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements of the block that it stands in."""
        above = self.parents.get(statement, self.tree)
        for part in ("body", "orelse", "finalbody"):
            found: list[ast.stmt] = getattr(above, part, [])
            if isinstance(found, list) and statement in found:
                return found
        return [statement]

    def function_of(self, node: ast.AST) -> ast.FunctionDef | None:
        """The innermost function around a node."""
        above = self.parents.get(node)
        while above is not None and not isinstance(above, ast.FunctionDef):
            above = self.parents.get(above)
        return above

    def alike(self, node: ast.Call) -> Iterator[str]:
        """Other functions that might have been called: of the same module or class, and as many parameters."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        inside = self.function_of(node)
        count = len(node.args) + len(node.keywords)
        for functions in self._modules(name):
            for other, definition in functions.items():
                fits = definition is not inside and _takes(definition, count) and self._gives_alike(name, other)
                if other != name and fits and self._known(other):
                    yield other
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            owner = node.func.value.id
            for other in self._attributes(owner, node.func.attr, count):
                yield f"{owner}.{other}"

    def wrapping(self, node: ast.AST) -> Iterator[tuple[str, float]]:
        """Functions of one argument that might have been called on a node's value: (name, weight)."""
        inside, idle = self.function_of(node), set(self.idle_functions(1))
        for other, definition in self.library.functions.get(self.file, {}).items():
            if definition is not inside and other not in idle and _takes(definition, 1):
                yield other, 0.15
        for other in sorted(idle):
            yield other, 0.9

    def idle_functions(self, count: int) -> Iterator[str]:
        """Functions of so many arguments that the file defines or imports and never calls."""
        own = self.library.functions.get(self.file, {})
        for name, definition in own.items():
            if name not in self.named and self.library.mentioned.get(name, 0) == 0 and _takes(definition, count):
                yield name
        for name in self._imported():
            if name not in self.named and any(_takes(one, count) for one in self.library.methods.get(name, ())):
                yield name

    def idle_calls(self, scope: Scope) -> Iterator[str]:
        """Calls of functions that the file defines or imports and never calls, of what is in scope by their names."""
        known = {*self._imported(), *self.library.functions.get(self.file, {})} - self.named
        for name in sorted(known):
            for definition in self.library.methods.get(name, [])[:MOST]:
                arguments = definition.args
                places = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
                needed = places[: len(places) - len(arguments.defaults)]
                if all(one in scope.tags for one in needed):
                    yield f"{name}({', '.join(needed)})"

    @cached_property
    def constants(self) -> dict[str, type]:
        """Names that the module gives a plain number or text, with its type."""
        found: dict[str, type] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
                pairs = (
                    zip(target.elts, value.elts, strict=False)
                    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                    else [(target, value)]
                )
                for name, one in pairs:
                    if isinstance(name, ast.Name) and isinstance(one, ast.Constant):
                        found[name.id] = type(one.value)
        return found

    def more(self, node: ast.Call, scope: Scope) -> Iterator[tuple[str, float]]:
        """Arguments that are not given, though something in scope is called like the parameter: (text, weight)."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = {one.arg for one in node.keywords}
        for definition in self.library.methods.get(name, [])[:MOST]:
            arguments = definition.args
            places = [one.arg for one in (*arguments.posonlyargs, *arguments.args) if one.arg not in ("self", "cls")]
            for parameter in (*places[len(node.args) :], *(one.arg for one in arguments.kwonlyargs)):
                if parameter in given:
                    continue
                for one in scope.tags:
                    last = one.rpartition(".")[2]
                    if last == parameter or last.partition("_")[0] == parameter.partition("_")[0]:
                        yield f"{parameter}={one}", 0.9 if last == parameter else 0.5
                for one in sorted(one for one in scope.idle if "." not in one):
                    yield f"{parameter}={one}", 0.7
                yield f"{parameter}=True", 0.3

    def _gives_alike(self, one: str, other: str) -> bool:
        """Whether two functions may give what the other gives, as far as that was seen."""
        mine, theirs = self.library.given.get(one, set()), self.library.given.get(other, set())
        return not mine or not theirs or bool(mine & theirs)

    @cached_property
    def modules(self) -> frozenset[str]:
        """Names that the file imports."""
        nodes = [one for one in ast.walk(self.tree) if isinstance(one, ast.Import | ast.ImportFrom)]
        return frozenset((alias.asname or alias.name).partition(".")[0] for node in nodes for alias in node.names)

    def _modules(self, name: str) -> Iterator[dict[str, ast.FunctionDef]]:
        for functions in self.library.functions.values():
            if name and name in functions:
                yield functions

    def _known(self, name: str) -> bool:
        return name in self.library.functions.get(self.file, {}) or name in self._imported()

    def _imported(self) -> list[str]:
        return [
            alias.asname or alias.name
            for node in self.tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        ]

    @cached_property
    def named(self) -> frozenset[str]:
        """Every name that the file reads: an attribute may be called like a function."""
        nodes = (one for one in ast.walk(self.tree) if isinstance(one, ast.Name))
        return frozenset(one.id for one in nodes if isinstance(one.ctx, ast.Load))

    @cached_property
    def read(self) -> frozenset[str]:
        """Every name and attribute that the file reads."""
        nodes = [one for one in ast.walk(self.tree) if isinstance(getattr(one, "ctx", None), ast.Load)]
        return frozenset(
            one.id if isinstance(one, ast.Name) else one.attr
            for one in nodes
            if isinstance(one, ast.Name | ast.Attribute)
        )

    def _attributes(self, owner: str, name: str, count: int) -> Iterator[str]:
        """Of `self.name` other methods of its class; of `module.name` other functions of that module."""
        if owner == "self":
            for node in self.tree.body:
                own = [one for one in getattr(node, "body", []) if isinstance(one, ast.FunctionDef)]
                if isinstance(node, ast.ClassDef) and any(one.name == name for one in own):
                    yield from (one.name for one in own if one.name != name and _takes(one, count + 1))
            return
        for functions in self._modules(name):
            yield from (other for other, one in functions.items() if other != name and _takes(one, count))


def _takes(function: ast.FunctionDef, count: int) -> bool:
    arguments = function.args
    places = len(arguments.posonlyargs) + len(arguments.args)
    needed = places - len(arguments.defaults) + sum(one is None for one in arguments.kw_defaults)
    return needed <= count <= places + len(arguments.kwonlyargs)
