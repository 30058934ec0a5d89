"""What kinds of mistakes ports have, turned round: for one node of a syntax tree, what might have stood there."""

import ast
import builtins
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .parts import MOST, Parts
from .statements import statements
from .tables import (
    COMPARED,
    FAMILIES,
    JOINED,
    atomic,
    chain,
    enclosed,
    numeric,
    shared,
    written,
)
from .text import Piece

LIKE = 0.2  # share of two strings that is the same, where one may stand for the other
EVERYWHERE = ("another name", "another of its kind", "another constant")


@dataclass
class Kinds(Parts):
    """Everything that may be done to the nodes of one function."""

    def pieces(self, node: ast.AST) -> Iterator[Piece]:
        """What might have stood in place of a node."""
        if isinstance(node, ast.stmt):
            yield from statements(self.source, self.scope, node)
        elif isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper, node.step):
                if bound is not None:
                    yield self._instead(bound, "", "a bound left out", 0.5)
        elif isinstance(node, ast.expr):
            yield from self._expression(node)
        elif isinstance(node, ast.keyword) and node.arg is not None:
            yield from self._without(node, "an argument left out", 0.6)

    def _expression(self, node: ast.expr) -> Iterator[Piece]:
        if self._is_test(node):
            yield from self._test(node)
        made: dict[type[ast.expr], Callable[..., Iterator[tuple[str, str, float]]]] = {
            ast.Compare: self._compare, ast.BoolOp: self._bool, ast.UnaryOp: self._unary, ast.BinOp: self._binary,
            ast.IfExp: self._either, ast.Constant: self._constant, ast.Name: self._name,
            ast.Attribute: self._attribute, ast.Call: self._called, ast.Subscript: self._subscript,
            ast.Tuple: self._several, ast.List: self._several, ast.Dict: self._entries,
        }  # fmt: skip
        for new, kind, weight in made[type(node)](node) if type(node) in made else ():
            yield self._instead(node, new, kind, weight)
            if kind in EVERYWHERE and (piece := self._everywhere(node, new, kind, weight)):
                yield piece
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and self._is_value(node):
            for function, weight in self.source.wrapping(node):
                yield self._instead(node, f"{function}({self.source.of(node)})", "a call more", weight)
            for one in sorted(self.scope.calls):
                if one.count(".") == 1 and one not in self.own:
                    weight = 0.9 if one in self.scope.idle else 0.3
                    yield self._instead(node, f"{one}({self.source.of(node)})", "a call more", weight)

    def _instead(self, node: ast.AST, new: str, kind: str, weight: float) -> Piece:
        start, end = self.source.span(node)
        above = self.source.parents.get(node)
        compound = new and not atomic(new)
        if (isinstance(above, ast.Attribute) and new[:1].isdigit()) or (
            compound and isinstance(above, ast.expr | ast.keyword | ast.comprehension) and not enclosed(above, node)
        ):
            new = f"({new})"
        return Piece(node.lineno, start, end, new, kind, weight)  # type: ignore[attr-defined]

    def _everywhere(self, node: ast.expr, new: str, kind: str, weight: float) -> Piece | None:
        """The same exchange wherever the same stands in a statement: what was mistaken once, often was again."""
        statement: ast.AST = node
        while not isinstance(statement, ast.stmt):
            statement = self.source.parents[statement]
        old = self.source.of(node)
        if isinstance(statement, ast.If | ast.For | ast.With) or self.source.of(statement).count(old) < 2:
            return None
        same = [
            one
            for one in ast.walk(statement)
            if isinstance(one, ast.expr) and type(one) is type(node) and self.source.of(one) == old
        ]
        if not 2 <= len(same) <= 4 or same[0] is not node:
            return None
        start, end = self.source.span(statement)
        text = self.source.text[start:end]
        for one in sorted(same, key=self.source.span, reverse=True):
            first, last = self.source.span(one)
            text = text[: first - start] + new + text[last - start :]
        return Piece(node.lineno, start, end, text, f"{kind}, wherever it stands", 0.8 * weight)

    def _without(self, node: ast.AST, kind: str, weight: float) -> Iterator[Piece]:
        """A member of a list of arguments or elements taken away, with its comma."""
        start, end = self.source.span(node)
        text = self.source.text
        behind = end + len(text[end:]) - len(text[end:].lstrip())
        if text[behind : behind + 1] == ",":
            behind += 1
            end = behind + len(text[behind:]) - len(text[behind:].lstrip(" "))
        else:
            before = len(text[:start].rstrip())
            start = before - 1 if text[before - 1] == "," else start
        yield Piece(node.lineno, start, end, "", kind, weight)  # type: ignore[attr-defined]

    def _is_test(self, node: ast.expr) -> bool:
        above = self.source.parents.get(node)
        held = getattr(above, "test", None) is node
        return held or (isinstance(above, ast.comprehension) and node in above.ifs)

    def _is_value(self, node: ast.expr) -> bool:
        """Whether it is something whole: given to a call, to a name, or given back."""
        above = self.source.parents.get(node)
        if isinstance(node, ast.Constant):
            return False
        if isinstance(above, ast.Call):
            return node in above.args
        return isinstance(above, ast.Assign | ast.Return | ast.keyword | ast.BinOp | ast.AnnAssign)

    def _test(self, node: ast.expr) -> Iterator[Piece]:
        text = self.source.of(node)
        if isinstance(node, ast.Constant):
            yield self._instead(node, str(not node.value), "a condition", 0.6)
            for one in self.scope.of({"NoneType"})[:MOST]:
                yield self._instead(node, f"{one} is not None", "a condition", 0.8)
                yield self._instead(node, f"{one} is None", "a condition", 0.6)
            for one in self.scope.of({"bool"})[:MOST]:
                yield self._instead(node, one, "a condition", 0.7)
                yield self._instead(node, f"not {one}", "a condition", 0.6)
            return
        if not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            yield self._instead(node, f"not ({text})", "a condition turned round", 0.6)
        yield self._instead(node, "True", "a condition", 0.6)
        yield self._instead(node, "False", "a condition", 0.6)
        for one in self.scope.of({"bool"})[:MOST]:
            if one not in text:
                weight = 0.5 if one.partition(".")[0] in self.scope.idle else 0.2
                for new in (f"({text}) and {one}", f"({text}) and not {one}", f"({text}) or {one}"):
                    yield self._instead(node, new, "one more condition", weight)

    def _compare(self, node: ast.Compare) -> Iterator[tuple[str, str, float]]:
        terms = [node.left, *node.comparators]
        texts = [self._tight(one) for one in terms]
        signs = [written(one) for one in node.ops]
        for n, op in enumerate(node.ops):
            for rank, sign in enumerate(COMPARED[type(op)]):
                changed = [*signs[:n], sign, *signs[n + 1 :]]
                yield chain(texts, changed), "another comparison", 0.9 if rank == 0 else 0.45

    def _bool(self, node: ast.BoolOp) -> Iterator[tuple[str, str, float]]:
        texts = [self._tight(one) for one in node.values]
        word = " and " if isinstance(node.op, ast.And) else " or "
        yield (" or " if word == " and " else " and ").join(texts), "and, or", 0.6
        for n in range(len(texts)):
            rest = texts[:n] + texts[n + 1 :]
            left = rest[0] if len(rest) > 1 else self.source.of(node.values[1 - n])
            yield word.join([left, *rest[1:]]), "a part of a condition left out", 0.7
            turned = [*texts[:n], f"not {texts[n]}", *texts[n + 1 :]]
            yield word.join(turned), "a part of a condition turned round", 0.4
        text = self.source.of(node)
        for one in self.scope.of({"bool"})[:MOST]:
            if one not in text:
                yield f"{text}{word}{one}", "one more condition", 0.45
        for one in self.scope.of({"int"})[:MOST]:
            if one not in text and "." not in one:
                yield f"{text}{word}{one} == 0", "one more condition", 0.3
                yield f"{text}{word}{one} != 0", "one more condition", 0.2

    def _unary(self, node: ast.UnaryOp) -> Iterator[tuple[str, str, float]]:
        yield self._tight(node.operand), "a sign left out", 0.7
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            if isinstance(value, int):
                yield str(1 - value), "another constant", 0.8
                yield str(-1 - value), "another constant", 0.6

    def _binary(self, node: ast.BinOp) -> Iterator[tuple[str, str, float]]:
        left, right = self._tight(node.left), self._tight(node.right)
        for rank, sign in enumerate(JOINED[type(node.op)]):
            yield f"{left} {sign} {right}", "another operation", 0.6 if rank == 0 else 0.3
        yield self.source.of(node.left), "an operand left out", 0.7
        yield self.source.of(node.right), "an operand left out", 0.5
        commute = isinstance(node.op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr)
        yield f"{right} {written(node.op)} {left}", "operands exchanged", 0.3 if commute else 0.5
        yield from self._more(node)

    def _either(self, node: ast.IfExp) -> Iterator[tuple[str, str, float]]:
        body, test, other = (self.source.of(one) for one in (node.body, node.test, node.orelse))
        yield f"{other} if {test} else {body}", "branches exchanged", 0.5

    def _constant(self, node: ast.Constant) -> Iterator[tuple[str, str, float]]:
        value = node.value
        if isinstance(value, bool):
            yield str(not value), "another constant", 0.9
        elif isinstance(value, int | float):
            yield from self._number(value)
        elif isinstance(value, str):
            if not isinstance(self.source.parents.get(node), ast.Expr):
                yield from self._text(value)
        elif value is None:
            yield from self._nothing()

    def _number(self, value: float) -> Iterator[tuple[str, str, float]]:
        if isinstance(value, int):
            others: list[float] = [value + 1, value - 1, -value, 0, 1, -1, 2, value * 2, value // 2]
        else:
            others = [0.0, 1.0, -value, value * 2, value / 2, value * 10, value / 10, 0.5, -1.0]
            others += [1 / value, value**0.5] if value > 0 else []
        for rank, one in enumerate(dict.fromkeys(one for one in others if one != value)):
            yield repr(one), "another constant", 0.8 if rank < 2 else 0.4
        for name in self.scope.of({type(value).__name__})[:MOST]:
            yield name, "a name for a constant", 0.4
        for name, kind in self.source.constants.items():
            if kind is type(value):
                yield name, "a name for a constant", 0.4 if name in self.source.read else 0.95

    def _text(self, value: str) -> Iterator[tuple[str, str, float]]:
        for text in sorted(self.strings, key=lambda one: -shared(one, value))[:MOST]:
            if text != value and (alike := shared(text, value)) > LIKE:
                yield repr(text), "another string", 0.3 + 0.4 * alike
        for text in dict.fromkeys(("", f"{value}\n", value.rstrip("\n"), value.strip(), value.lower())):
            if text != value:
                yield repr(text), "another string", 0.3

    def _nothing(self) -> Iterator[tuple[str, str, float]]:
        for name in sorted(self.scope.idle):
            yield name, "a name for nothing", 0.9
        for name in list(self.scope.tags)[:MOST]:
            yield name, "a name for nothing", 0.4
        for call in self.source.idle_calls(self.scope):
            yield call, "a call for nothing", 0.8
            for test in self.scope.of({"bool"})[:MOST]:
                yield f"({call} if {test} else None)", "a call for nothing", 0.7
                yield f"(None if {test} else {call})", "a call for nothing", 0.7

    def _name(self, node: ast.Name) -> Iterator[tuple[str, str, float]]:
        if not isinstance(node.ctx, ast.Load):
            return
        yield from self._others(node.id)
        yield from self._family(node.id, "")
        yield from self._more(node)

    def _attribute(self, node: ast.Attribute) -> Iterator[tuple[str, str, float]]:
        if not isinstance(node.ctx, ast.Load):
            return
        text = self.source.of(node)
        above = self.source.parents.get(node)
        if not isinstance(above, ast.Attribute):
            yield from self._others(text)
        yield from self._family(node.attr, f"{self.source.of(node.value)}.")
        if not (isinstance(above, ast.Call) and above.func is node):
            yield from self._more(node)

    def _others(self, text: str) -> Iterator[tuple[str, str, float]]:
        base = text.rpartition(".")[0]
        for one in self.scope.like(text)[: 2 * MOST]:
            near = one.rpartition(".")[0] == base
            weight = 1.0 if {one, one.partition(".")[0]} & self.scope.idle else 0.5 if near else 0.3
            yield one, "another name", weight

    def _family(self, name: str, base: str) -> Iterator[tuple[str, str, float]]:
        for family in FAMILIES:
            if name.lower() in family:
                for one in sorted(family - {name.lower()}):
                    if base or hasattr(builtins, one):
                        yield f"{base}{one.upper() if name.isupper() else one}", "another of its kind", 0.6
                    elif hasattr(math, one) and "math" in self.source.read:
                        yield f"math.{one}", "another of its kind", 0.6

    def _called(self, node: ast.Call) -> Iterator[tuple[str, str, float]]:
        yield from self._call(node)
        yield from self._more(node)

    def _more(self, node: ast.expr) -> Iterator[tuple[str, str, float]]:
        """One step more or less of a whole number; something with what is idle."""
        text = self._tight(node)
        if isinstance(node, ast.BinOp) or "int" in self.scope.tags.get(text, ()):
            above = self.source.parents.get(node)
            if not isinstance(above, ast.BinOp):
                yield f"{text} + 1", "one more or less", 0.45
                yield f"{text} - 1", "one more or less", 0.45
        mine = self.scope.tags.get(text, set())
        for one in sorted(self.scope.idle):
            tags = self.scope.tags.get(one, set())
            if any(part.startswith("array") for part in tags) and numeric(mine):
                for sign in ("*", "+", "&", "|", "-", "/"):
                    yield f"{text} {sign} {one}", "one operand more", 0.9 if mine & tags else 0.5
            elif tags & {"int", "float"} and mine & {"int", "float"}:
                for sign in ("+", "-", "*", "/"):
                    yield f"{text} {sign} {one}", "one operand more", 0.5
            elif "bool" in tags and "bool" in mine:
                yield f"{text} and {one}", "one operand more", 0.6
