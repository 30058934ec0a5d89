"""What stands in a file: the expression that a field, or a name, is given in a statement."""

import ast
from collections.abc import Iterator
from functools import cache

from stages.places import ROOT


@cache
def _tree(file: str) -> ast.Module | None:
    path = ROOT / file
    return ast.parse(path.read_text(encoding="utf-8")) if path.exists() else None


def statement(file: str, line: int) -> ast.stmt | None:
    """The innermost statement of a file of the checkout that has a line; None where the file is elsewhere."""
    tree = _tree(file)
    found: ast.stmt | None = None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found = node if found is None or node.lineno >= found.lineno else found
    return found


def given_as(file: str, line: int, name: str) -> ast.expr | None:
    """What a field of that name is given in the statement at a line: by a keyword, or as the entry of a dictionary."""
    node = statement(file, line)
    for one in ast.walk(node) if node is not None else ():
        if isinstance(one, ast.keyword) and one.arg == name:
            return one.value
        if isinstance(one, ast.Dict):
            for key, value in zip(one.keys, one.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    return value
    return None


def names_in(expression: ast.expr) -> Iterator[str]:
    """Names that an expression reads."""
    yield from dict.fromkeys(one.id for one in ast.walk(expression) if isinstance(one, ast.Name))


def element_of(file: str, line: int, index: int) -> ast.expr | None:
    """The expression of one element, where the statement at a line gives or assigns several."""
    node = statement(file, line)
    value = getattr(node, "value", None)
    return value.elts[index] if isinstance(value, ast.Tuple) and index < len(value.elts) else None
