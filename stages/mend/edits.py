"""Small edits of one file's source: each exchanges one piece of text, as a person who ports might have written it."""

import ast
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from .kinds import Kinds
from .scope import Scope, declared, idle, stored
from .text import Piece, Source

WORD = re.compile(r"\w+")
SHOWN = 70  # letters of a piece of source that are shown


@dataclass(frozen=True)
class Edit:
    """One piece of a file exchanged for another.

    Attributes:
        file: From the checkout's root.
        function: The qualified name of the outermost function that holds it; "" where it runs on import.
        line: Where it stands.
        start: First letter of what is exchanged, in the text.
        end: The letter behind it.
        new: What stands there instead.
        kind: What sort of mistake it would mend.
        weight: How likely such a mistake is, from 0 to 1.
        imported: Whether it takes a new import of the port.
        statement: First line of the statement that it is in.
    """

    file: str
    function: str
    line: int
    start: int
    end: int
    new: str
    kind: str
    weight: float
    imported: bool = False
    statement: int = 0

    def applied(self, text: str) -> str:
        """The whole text with it."""
        return text[: self.start] + self.new + text[self.end :]

    def said(self, text: str) -> str:
        """For people: `a < b` -> `a <= b`, with the rest of its lines around it."""
        first = text.rfind("\n", 0, self.start) + 1
        last = text.find("\n", max(self.end - 1, self.start))
        last = len(text) if last < 0 else last
        old = text[first:last].strip()
        new = (text[first : self.start] + self.new + text[self.end : last]).strip()
        return f"`{_short(old)}` -> `{_short(new)}`" if new else f"`{_short(old)}` left out"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 2 * SHOWN else f"{flat[:SHOWN]} ... {flat[-SHOWN:]}"


def edits(
    source: Source, lines: AbstractSet[int], scopes: Mapping[tuple[str, str], Scope], strings: tuple[str, ...] = ()
) -> Iterator[Edit]:
    """Edits of the lines that ran.

    Args:
        source: The file.
        lines: Its lines that ran; of what runs on import, all lines that may be edited.
        scopes: What is known of names.
        strings: That may stand for another string.
    """
    for path, outer, function in _functions(source.tree.body, ""):
        # A method that was put in place by itself is not called after its class.
        seen = scopes.get((source.file, path)) or scopes.get((source.file, function.name))
        scope = seen or Scope(declared(function))
        scope.idle = idle(function) | {one for one in scope.tags if one.startswith("self.") and _unread(one, source)}
        kinds, first = Kinds(source, scope, strings, source.of(function)), stored(function)
        ran = [one for one in _statements(function.body) if not lines.isdisjoint(_span(one))]
        for statement in ran:
            late = {name for name, line in first.items() if line > (statement.end_lineno or statement.lineno)}
            for part in (statement, *_head(statement)):
                for piece in kinds.pieces(part):
                    if late.isdisjoint(WORD.findall(piece.new)):
                        yield _edit(source, outer, piece, statement)
        for default in _defaults(function) if ran else ():
            for piece in kinds.pieces(default):
                yield _edit(source, outer, piece, function, imported=True)
    yield from _on_import(source, lines, strings)


def _on_import(source: Source, lines: AbstractSet[int], strings: tuple[str, ...]) -> Iterator[Edit]:
    kinds = Kinds(source, Scope(), strings)
    for statement in _imported(source.tree.body):
        for part in _head(statement) if statement.lineno in lines else ():
            for piece in kinds.pieces(part):
                yield _edit(source, "", piece, statement, imported=True)


def _defaults(function: ast.FunctionDef) -> list[ast.expr]:
    return [*function.args.defaults, *(one for one in function.args.kw_defaults if one is not None)]


def _span(statement: ast.stmt) -> range:
    """Lines of a statement, without those of the statements in its branches."""
    first = statement.lineno
    ends = (part.end_lineno or first for part in _head(statement) if isinstance(part, ast.expr))
    return range(first, max(ends, default=first) + 1)


def _unread(path: str, source: Source) -> bool:
    """Whether an attribute, or one on the way to it, is one that its file nowhere reads."""
    return path.split(".")[1].partition("[")[0] not in source.read


def _edit(source: Source, function: str, piece: Piece, statement: ast.stmt, *, imported: bool = False) -> Edit:
    return Edit(
        source.file, function, piece.line, piece.start, piece.end, piece.new, piece.kind, piece.weight, imported,
        statement.lineno,
    )  # fmt: skip


def _functions(body: list[ast.stmt], inside: str, outer: str = "") -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """(qualified name, that of the outermost function around it, itself) of every function."""
    for node in body:
        path = f"{inside}.{node.name}" if inside and hasattr(node, "name") else getattr(node, "name", inside)
        if isinstance(node, ast.FunctionDef):
            yield path, outer or path, node
            yield from _functions(node.body, f"{path}.<locals>", outer or path)
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, path, outer)
        else:
            for part in ("body", "orelse", "finalbody"):
                yield from _functions(getattr(node, part, []), inside, outer)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a function, those in branches too, without those of functions inside it."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        yield node
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield from _statements(handler.body)


def _head(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement holds, without the statements in its branches."""
    todo = list(ast.iter_child_nodes(statement))
    while todo:
        node = todo.pop(0)
        # Of what stands within a formatted string the parser of Python 3.11 gives no true place.
        if not isinstance(node, ast.stmt | ast.ExceptHandler | ast.JoinedStr | ast.arguments):
            yield node
            todo += ast.iter_child_nodes(node)


def _imported(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that give names of modules and classes their values."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _imported(node.body)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            yield node
