"""What is taken for what: operators, functions of one kind, and how pieces of source may stand beside each other."""

import ast

NUMBERS = ("int", "float")
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


def numeric(tags: set[str]) -> bool:
    """Whether something may be reckoned with; what was never seen may be."""
    return not tags or any(part.startswith("array") or part in NUMBERS for part in tags)


def atomic(text: str) -> bool:
    """Whether a text may stand beside an operator without brackets."""
    try:
        parsed = ast.parse(text, mode="eval").body
    except SyntaxError:
        return True
    return isinstance(parsed, ATOMS) and not (isinstance(parsed, ast.Tuple) and not text.startswith("("))


def enclosed(above: ast.AST, node: ast.AST) -> bool:
    """Whether the node above already keeps this one apart: an argument, a subscript, a member."""
    if isinstance(above, ast.Call):
        return above.func is not node
    if isinstance(above, ast.Subscript):
        return above.slice is node
    return isinstance(above, ast.Tuple | ast.List | ast.Set | ast.keyword)


def chain(texts: list[str], signs: list[str]) -> str:
    """Comparisons one after the other, as text."""
    return texts[0] + "".join(f" {sign} {text}" for sign, text in zip(signs, texts[1:], strict=True))


def written(op: ast.AST) -> str:
    """How an operator is written."""
    found = {
        ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
        ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*",
        ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|",
        ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@",
    }  # fmt: skip
    return found[type(op)]


def shared(a: str, b: str) -> float:
    """How many of the letters two strings begin or end with alike, of the longer."""
    most = max(len(a), len(b), 1)
    begin = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    end = next((n for n, (x, y) in enumerate(zip(a[::-1], b[::-1], strict=False)) if x != y), min(len(a), len(b)))
    return max(begin, end) / most
