"""Edits of whole statements: left out, moved, one more."""

import ast
from collections.abc import Iterator

from .scope import Scope
from .text import Piece, Source


def statements(source: Source, scope: Scope, node: ast.stmt) -> Iterator[Piece]:
    """What might have stood in place of a statement."""
    siblings = source.siblings_of(node)
    at = siblings.index(node)
    if not _says(node):
        start, end = source.span(node)
        yield Piece(node.lineno, start, end, "pass", "a statement left out", _idle_weight(node))
    if at + 1 < len(siblings) and not isinstance(node, ast.Return) and not _says(node):
        yield from _exchanged(source, node, siblings[at + 1])
    yield from _out(source, node, siblings, at)
    yield from _inside(source, scope, node)
    if isinstance(node, ast.If) and not node.orelse and at + 1 < len(siblings):
        yield from _else(source, node, siblings[at + 1 :])


def _inside(source: Source, scope: Scope, node: ast.stmt) -> Iterator[Piece]:
    """What might have stood in a statement of its kind."""
    start, end = source.span(node)
    if isinstance(node, ast.AugAssign):
        target, value = source.of(node.target), source.of(node.value)
        for sign in ("=", "+=", "-=", "*="):
            yield Piece(node.lineno, start, end, f"{target} {sign} {value}", "another assignment", 0.5)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        yield from _assigned(source, node, node.targets[0])
    elif isinstance(node, ast.Return) and node.value is not None:
        yield from _returned(source, scope, node, node.value)
    elif isinstance(node, ast.Break | ast.Continue):
        other = "continue" if isinstance(node, ast.Break) else "break"
        yield Piece(node.lineno, start, end, other, "another jump", 0.5)


def _returned(source: Source, scope: Scope, node: ast.Return, value: ast.expr) -> Iterator[Piece]:
    start, end = source.span(value)
    for one in sorted(scope.idle):
        yield Piece(node.lineno, start, end, one, "another name", 0.8)
    function = source.function_of(node)
    declared = ast.unparse(function.returns) if function is not None and function.returns else ""
    for one, kind in (("None", "None"), ("True", "bool"), ("False", "bool"), ('""', "str")):
        if kind in declared and not isinstance(value, ast.Constant):
            yield Piece(node.lineno, start, end, one, "nothing given back", 0.5)


def _says(node: ast.stmt) -> bool:
    """Whether it is a text for people, or nothing."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _idle_weight(node: ast.stmt) -> float:
    """How likely a statement is one too many: what later ones read is not."""
    if isinstance(node, ast.Expr | ast.AugAssign | ast.Continue | ast.Break):
        return 0.7
    if isinstance(node, ast.Assign):
        return 0.3 if any(isinstance(part, ast.Name) for one in node.targets for part in [one]) else 0.6
    return 0.3


def _exchanged(source: Source, one: ast.stmt, other: ast.stmt) -> Iterator[Piece]:
    if isinstance(other, ast.Return | ast.FunctionDef) or isinstance(one, ast.FunctionDef) or _says(other):
        return
    if not (source.alone(one) and source.alone(other)):
        return
    start, middle = source.whole(one)
    begin, end = source.whole(other)
    text = source.text
    if not text[middle:begin].strip():
        new = text[begin:end] + text[middle:begin] + text[start:middle]
        yield Piece(one.lineno, start, end, new, "statements exchanged", 0.4)


def _out(source: Source, node: ast.stmt, siblings: list[ast.stmt], at: int) -> Iterator[Piece]:
    """The last statement of a branch behind it instead, and the first before it."""
    above = source.parents.get(node)
    if not isinstance(above, ast.If | ast.For | ast.While | ast.With) or not source.alone(node) or len(siblings) < 2:
        return
    if isinstance(node, ast.Return | ast.Continue | ast.Break):
        return
    start, end = source.whole(node)
    text = source.text
    moved = source.shifted(node, above)
    if at == len(siblings) - 1 and siblings is getattr(above, "body", None):
        last = source.whole(above)[1]
        yield Piece(node.lineno, start, last, text[end:last] + moved, "a statement out of its branch", 0.4)
    if at == 0 and siblings is getattr(above, "body", None):
        first = source.whole(above)[0]
        yield Piece(node.lineno, first, end, moved + text[first:start], "a statement out of its branch", 0.35)


def _assigned(source: Source, node: ast.Assign, target: ast.expr) -> Iterator[Piece]:
    if isinstance(target, ast.Tuple) and len(target.elts) >= 2:
        texts = [source.of(one) for one in target.elts]
        start, end = source.span(target)
        for n in range(len(texts) - 1):
            swapped = [*texts[:n], texts[n + 1], texts[n], *texts[n + 2 :]]
            yield Piece(node.lineno, start, end, ", ".join(swapped), "targets exchanged", 0.4)
    if isinstance(target, ast.Name | ast.Attribute):
        start, end = source.span(node)
        value = source.of(node.value)
        yield Piece(node.lineno, start, end, f"{source.of(target)} += {value}", "another assignment", 0.3)
        yield Piece(node.lineno, start, end, f"{source.of(target)} -= {value}", "another assignment", 0.2)


def _else(source: Source, node: ast.If, rest: list[ast.stmt]) -> Iterator[Piece]:
    """What follows a branch in the branch as well: it is left out where the condition does not hold."""
    following = rest[0]
    if not source.alone(following) or isinstance(following, ast.FunctionDef | ast.Return):
        return
    start, end = source.whole(following)
    inner = source.of(node.body[0])
    if inner:
        lead = " " * node.body[0].col_offset
        moved = "".join(
            f"{lead}{line.strip()}\n" if line.strip() else line for line in source.text[start:end].splitlines()
        )
        if following.lineno == following.end_lineno:
            yield Piece(following.lineno, start, end, moved, "a statement into the branch before it", 0.4)
