"""Edits of what is made of parts: calls and their arguments, members of lists and dictionaries, subscripts."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .scope import Scope
from .tables import ATOMS
from .text import Source

MOST = 12  # other names that are tried for one


@dataclass
class Parts:
    """What is known of one function, and what may be done to what is made of parts in it: (text, kind, weight).

    Attributes:
        strings: That may stand for another string.
        own: The function's text.
    """

    source: Source
    scope: Scope
    strings: tuple[str, ...] = ()
    own: str = ""

    def _call(self, node: ast.Call) -> Iterator[tuple[str, str, float]]:
        function, parts = self.source.of(node.func), [*node.args, *node.keywords]
        texts = [self.source.of(one) for one in parts]
        name = function.rpartition(".")[2]
        gives = self.source.library.given.get(name, set()) if name in self.source.library.methods else set()
        if isinstance(node.func, ast.Attribute) and self.source.of(node.func.value) not in self.source.modules:
            inner = [node.func.value, *node.args]
        else:
            inner = [*node.args]
        for one in inner:
            tags = self.scope.tags.get(self.source.of(one), set())
            if not isinstance(one, ast.Starred) and (not gives or not tags or gives & tags):
                yield self.source.of(one), "a call left out", 0.7
        count = len(node.args)
        for n in range(count):
            if count > 1:
                yield f"{function}({', '.join(texts[:n] + texts[n + 1 :])})", "an argument left out", 0.4
            for m in range(n + 1, count):
                swapped = list(texts)
                swapped[n], swapped[m] = swapped[m], swapped[n]
                weight = 0.6 if m == n + 1 else 0.3
                alike = self._alike(node.args[n], node.args[m])
                yield f"{function}({', '.join(swapped)})", "arguments exchanged", weight if alike else weight / 4
        for new, weight in self.source.more(node, self.scope):
            yield f"{function}({', '.join([*texts, new])})", "an argument handed on", weight
        for other in self.source.alike(node):
            yield f"{other}({', '.join(texts)})", "another function of the module", 0.5

    def shared(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether two things may be of one type, as far as that is known."""
        if isinstance(one, ast.Starred) or isinstance(other, ast.Starred):
            return False
        tags = [self.scope.tags.get(self.source.of(part), set()) for part in (one, other)]
        return not all(tags) or bool(tags[0] & tags[1])

    def _alike(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether two things may be of one type, as far as that is known."""
        if isinstance(one, ast.Starred) or isinstance(other, ast.Starred):
            return False
        tags = [self.scope.tags.get(self.source.of(part), set()) for part in (one, other)]
        return not all(tags) or bool(tags[0] & tags[1])

    def _subscript(self, node: ast.Subscript) -> Iterator[tuple[str, str, float]]:
        if isinstance(node.ctx, ast.Load):
            yield self.source.of(node.value), "a subscript left out", 0.6

    def _several(self, node: ast.Tuple | ast.List) -> Iterator[tuple[str, str, float]]:
        if not isinstance(node.ctx, ast.Load) or not 1 <= len(node.elts) <= 6:
            return
        texts = [self.source.of(one) for one in node.elts]
        above = self.source.parents.get(node)
        bare = isinstance(above, ast.Subscript) and above.slice is node
        opening, closing = ("[", "]") if isinstance(node, ast.List) else ("", "") if bare else ("(", ")")
        for one in sorted(self.scope.idle):
            star = "*" if self.scope.tags.get(one, set()) & {"tuple", "list", "set", "frozenset"} else ""
            yield f"{opening}{', '.join([f'{star}{one}', *texts])}{closing}", "a member more", 0.8
            yield f"{opening}{', '.join([*texts, f'{star}{one}'])}{closing}", "a member more", 0.8
        if len(texts) < 2:
            return
        for n in range(len(texts) - 1):
            swapped = [*texts[:n], texts[n + 1], texts[n], *texts[n + 2 :]]
            yield f"{opening}{', '.join(swapped)}{closing}", "members exchanged", 0.4
        for n in range(len(texts)):
            rest = texts[:n] + texts[n + 1 :]
            yield f"{opening}{', '.join(rest)}{',' if len(rest) == 1 else ''}{closing}", "a member left out", 0.3

    def _entries(self, node: ast.Dict) -> Iterator[tuple[str, str, float]]:
        of = self.source.of
        texts = [
            f"**{of(value)}" if key is None else f"{of(key)}: {of(value)}"
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        for n in range(len(texts)):
            yield f"{{{', '.join(texts[:n] + texts[n + 1 :])}}}", "a member left out", 0.6

    def _tight(self, node: ast.expr) -> str:
        """A node's text, in brackets where it may not stand beside an operator."""
        text = self.source.of(node)
        return text if isinstance(node, ATOMS) and not isinstance(node, ast.Tuple) else f"({text})"
