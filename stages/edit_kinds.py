"""What kinds of mistakes ports have, turned round: for one node of a syntax tree, what might have stood there."""

import ast
import builtins
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .edit_scope import Scope
from .edit_statements import statements
from .edit_text import Piece, Source

NUMBERS = ("int", "float")
EVERYWHERE = ("another name", "another of its kind", "another constant")
MOST = 12  # other names that are tried for one
ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set)
COMPARED: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">", ">=", "=="), ast.LtE: ("<", ">=", ">", "=="), ast.Gt: (">=", "<", "<=", "=="),
    ast.GtE: (">", "<=", "<", "=="), ast.Eq: ("!=", "<=", ">=", "<", ">"), ast.NotEq: ("==", "<", ">"),
    ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",), ast.NotIn: ("in",),
}  # fmt: skip
JOINED: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("-", "*"), ast.Sub: ("+", "*", "/"), ast.Mult: ("/", "**", "+", "//"), ast.Div: ("*", "//"),
    ast.FloorDiv: ("/", "%", "*"), ast.Mod: ("//",), ast.Pow: ("*",), ast.BitAnd: ("|", "^"), ast.BitOr: ("&", "^"),
    ast.BitXor: ("&", "|"), ast.LShift: (">>",), ast.RShift: ("<<",), ast.MatMult: ("*",),
}  # fmt: skip
# Functions and methods that are taken for each other.
FAMILIES = tuple(
    frozenset(one.split())
    for one in (
        "argmax argmin", "max min maximum minimum", "sum mean max min prod", "any all", "floor ceil round trunc",
        "sin cos", "exp expm1 exp2", "log log2 log1p log10", "sqrt rsqrt square", "sigmoid tanh silu gelu relu",
        "cumsum cummax cumprod cummin", "less less_equal greater greater_equal", "zeros ones full zeros_like ones_like",
        "strip lstrip rstrip", "startswith endswith", "find rfind", "partition rpartition", "split rsplit",
        "append insert", "sorted reversed list", "argsort argpartition sort", "repeat tile", "keys values items",
        "tril triu", "float16 bfloat16 float32 float64", "int8 uint8 int16 uint16 int32 uint32 int64",
        "logical_and logical_or logical_not", "concatenate stack", "moveaxis swapaxes transpose", "min max abs",
        "logsumexp max sum softmax", "normal uniform", "popleft pop", "update setdefault", "lower upper",
        "bilinear bicubic lanczos nearest box hamming", "multiply divide", "add subtract", "int float bool round",
    )
)  # fmt: skip


@dataclass
class Kinds:
    """Everything that may be done to the nodes of one function."""

    source: Source
    scope: Scope
    strings: tuple[str, ...] = ()

    def pieces(self, node: ast.AST) -> Iterator[Piece]:
        """What might have stood in place of a node."""
        if isinstance(node, ast.stmt):
            yield from statements(self.source, self.scope, node)
        if isinstance(node, ast.expr):
            if self._is_test(node):
                yield from self._test(node)
            made: dict[type[ast.expr], Callable[..., Iterator[tuple[str, str, float]]]] = {
                ast.Compare: self._compare, ast.BoolOp: self._bool, ast.UnaryOp: self._unary, ast.BinOp: self._binary,
                ast.IfExp: self._either, ast.Constant: self._constant, ast.Name: self._name,
                ast.Attribute: self._attribute, ast.Call: self._call, ast.Subscript: self._subscript,
                ast.Tuple: self._several, ast.List: self._several, ast.Dict: self._entries,
            }  # fmt: skip
            for new, kind, weight in made[type(node)](node) if type(node) in made else ():
                yield self._instead(node, new, kind, weight)
                if kind in EVERYWHERE and (piece := self._everywhere(node, new, kind, weight)):
                    yield piece
            if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and self._is_value(node):
                for function, weight in self.source.wrapping(node):
                    yield self._instead(node, f"{function}({self.source.of(node)})", "a call more", weight)
        if isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper, node.step):
                if bound is not None:
                    yield self._instead(bound, "", "a bound left out", 0.5)
        if isinstance(node, ast.keyword) and node.arg is not None:
            yield from self._without(node, "an argument left out", 0.6)

    def _instead(self, node: ast.AST, new: str, kind: str, weight: float) -> Piece:
        start, end = self.source.span(node)
        above = self.source.parents.get(node)
        compound = new and not _atomic(new)
        if isinstance(above, ast.Attribute) and new[:1].isdigit():
            new = f"({new})"
        elif compound and isinstance(above, ast.expr | ast.keyword | ast.comprehension) and not _enclosed(above, node):
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
            if type(one) is type(node) and one.lineno <= statement.lineno + 6 and self.source.of(one) == old  # type: ignore[attr-defined]
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
        texts = [self._tight(one, node) for one in terms]
        signs = [_sign(one) for one in node.ops]
        for n, op in enumerate(node.ops):
            for rank, sign in enumerate(COMPARED[type(op)]):
                changed = [*signs[:n], sign, *signs[n + 1 :]]
                yield _chain(texts, changed), "another comparison", 0.9 if rank == 0 else 0.45

    def _bool(self, node: ast.BoolOp) -> Iterator[tuple[str, str, float]]:
        texts = [self._tight(one, node) for one in node.values]
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

    def _unary(self, node: ast.UnaryOp) -> Iterator[tuple[str, str, float]]:
        yield self._tight(node.operand, node), "a sign left out", 0.7
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            if isinstance(value, int):
                yield str(1 - value), "another constant", 0.8
                yield str(-1 - value), "another constant", 0.6

    def _binary(self, node: ast.BinOp) -> Iterator[tuple[str, str, float]]:
        left, right = self._tight(node.left, node), self._tight(node.right, node)
        for rank, sign in enumerate(JOINED[type(node.op)]):
            yield f"{left} {sign} {right}", "another operation", 0.6 if rank == 0 else 0.3
        yield self.source.of(node.left), "an operand left out", 0.7
        yield self.source.of(node.right), "an operand left out", 0.5
        commute = isinstance(node.op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr)
        yield f"{right} {_sign(node.op)} {left}", "operands exchanged", 0.3 if commute else 0.5
        yield from self._more(node)

    def _either(self, node: ast.IfExp) -> Iterator[tuple[str, str, float]]:
        body, test, other = (self.source.of(one) for one in (node.body, node.test, node.orelse))
        yield f"{other} if {test} else {body}", "branches exchanged", 0.5

    def _constant(self, node: ast.Constant) -> Iterator[tuple[str, str, float]]:
        value = node.value
        if isinstance(value, bool):
            yield str(not value), "another constant", 0.9
        elif isinstance(value, int | float):
            ones: list[float] = [value + 1, value - 1] if isinstance(value, int) else []
            ones += [-value, 0, 1, -1, 2, value * 2, value // 2 if isinstance(value, int) else value / 2]
            if value and isinstance(value, float):
                ones += [1 / value, value * 10, value / 10, 0.5, value**0.5]
            for rank, one in enumerate(dict.fromkeys(one for one in ones if one != value)):
                yield repr(one), "another constant", 0.8 if rank < 2 else 0.4
            for one in self.scope.of({type(value).__name__})[:MOST]:
                yield one, "a name for a constant", 0.4
            for one, kind in self.source.constants.items():
                if kind is type(value):
                    yield one, "a name for a constant", 0.4 if one in self.source.read else 0.95
        elif isinstance(value, str) and not isinstance(self.source.parents.get(node), ast.Expr | ast.JoinedStr):
            near = sorted(self.strings, key=lambda text: -_alike(text, value))
            for text in near[:MOST]:
                if text != value and (alike := _alike(text, value)) > 0.2:
                    yield repr(text), "another string", 0.3 + 0.4 * alike
            for text in ("", f"{value}\n", value.rstrip("\n"), value.strip(), value.lower()):
                if text != value:
                    yield repr(text), "another string", 0.3
        elif value is None:
            for one in self.scope.idle or ():
                yield one, "a name for nothing", 0.9
            for one in list(self.scope.tags)[:MOST]:
                yield one, "a name for nothing", 0.4
            for call in self.source.idle_calls(self.scope):
                yield call, "a call for nothing", 0.8
                for test in self.scope.of({"bool"})[:MOST]:
                    yield f"({call} if {test} else None)", "a call for nothing", 0.7
                    yield f"(None if {test} else {call})", "a call for nothing", 0.7

    def _name(self, node: ast.Name) -> Iterator[tuple[str, str, float]]:
        if not isinstance(node.ctx, ast.Load):
            return
        yield from self._others(node.id)
        yield from self._family(node, node.id, "")
        yield from self._more(node)

    def _attribute(self, node: ast.Attribute) -> Iterator[tuple[str, str, float]]:
        if not isinstance(node.ctx, ast.Load):
            return
        text = self.source.of(node)
        above = self.source.parents.get(node)
        if not isinstance(above, ast.Attribute):
            yield from self._others(text)
        yield from self._family(node, node.attr, f"{self.source.of(node.value)}.")
        if not (isinstance(above, ast.Call) and above.func is node):
            yield from self._more(node)

    def _others(self, text: str) -> Iterator[tuple[str, str, float]]:
        base = text.rpartition(".")[0]
        for one in self.scope.like(text)[: 2 * MOST]:
            near = one.rpartition(".")[0] == base
            weight = 1.0 if {one, one.partition(".")[0]} & self.scope.idle else 0.5 if near else 0.3
            yield one, "another name", weight

    def _family(self, node: ast.AST, name: str, base: str) -> Iterator[tuple[str, str, float]]:
        for family in FAMILIES:
            if name.lower() in family:
                for one in sorted(family - {name.lower()}):
                    if base or hasattr(builtins, one):
                        yield f"{base}{one.upper() if name.isupper() else one}", "another of its kind", 0.6
                    elif hasattr(math, one) and "math" in self.source.read:
                        yield f"math.{one}", "another of its kind", 0.6

    def _more(self, node: ast.expr) -> Iterator[tuple[str, str, float]]:
        """One step more or less of a whole number; something with what is idle."""
        text = self._tight(node, node)
        if isinstance(node, ast.BinOp) or "int" in self.scope.tags.get(text, ()):
            above = self.source.parents.get(node)
            if not isinstance(above, ast.BinOp):
                yield f"{text} + 1", "one more or less", 0.45
                yield f"{text} - 1", "one more or less", 0.45
        mine = self.scope.tags.get(text, set())
        for one in sorted(self.scope.idle):
            tags = self.scope.tags.get(one, set())
            if any(part.startswith("array") for part in tags) and _numeric(mine):
                for sign in ("+", "*", "&", "|", "-", "/"):
                    yield f"{text} {sign} {one}", "one operand more", 0.9 if mine & tags else 0.5
            elif tags & {"int", "float"} and mine & {"int", "float"}:
                for sign in ("+", "-", "*", "/"):
                    yield f"{text} {sign} {one}", "one operand more", 0.5
            elif "bool" in tags and "bool" in mine:
                yield f"{text} and {one}", "one operand more", 0.6

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
        bare = isinstance(self.source.parents.get(node), ast.Subscript)
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

    def _tight(self, node: ast.expr, above: ast.expr) -> str:
        """A node's text, in brackets where it may not stand beside an operator."""
        text = self.source.of(node)
        return text if isinstance(node, ATOMS) and not isinstance(node, ast.Tuple) else f"({text})"


def _numeric(tags: set[str]) -> bool:
    """Whether something may be reckoned with; what was never seen may be."""
    return not tags or any(part.startswith("array") or part in NUMBERS for part in tags)


def _atomic(text: str) -> bool:
    try:
        parsed = ast.parse(text, mode="eval").body
    except SyntaxError:
        return True
    return isinstance(parsed, ATOMS) and not (isinstance(parsed, ast.Tuple) and not text.startswith("("))


def _enclosed(above: ast.AST, node: ast.AST) -> bool:
    """Whether the node above already keeps this one apart: an argument, a subscript, a member."""
    if isinstance(above, ast.Call):
        return above.func is not node
    if isinstance(above, ast.Subscript):
        return above.slice is node
    return isinstance(above, ast.Tuple | ast.List | ast.Set | ast.keyword)


def _chain(texts: list[str], signs: list[str]) -> str:
    return texts[0] + "".join(f" {sign} {text}" for sign, text in zip(signs, texts[1:], strict=True))


def _sign(op: ast.AST) -> str:
    found = {
        ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
        ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*",
        ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|",
        ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@",
    }  # fmt: skip
    return found[type(op)]


def _alike(a: str, b: str) -> float:
    """How many of the letters two strings begin or end with alike, of the longer."""
    most = max(len(a), len(b), 1)
    begin = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    end = next((n for n, (x, y) in enumerate(zip(a[::-1], b[::-1], strict=False)) if x != y), min(len(a), len(b)))
    return max(begin, end) / most
