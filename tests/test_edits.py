"""Candidate edits: what they exchange, where, and that they are made of the source and of what was seen alone."""

import ast

import numpy as np
import pytest

from stages.mend.edits import edits
from stages.mend.scope import Scope, seen, tag
from stages.mend.text import Library, Source
from stages.places import ROOT
from stages.trace.frames import watching

LONG = set(range(1, 100))


def made(text: str, lines=LONG, scope: Scope | None = None, strings=(), name="f") -> dict[str, list]:
    """Every edit of a text by what the whole text is with it."""
    library = Library()
    library.add("port/x.py", ast.parse(text))
    found: dict[str, list] = {}
    for one in edits(Source("port/x.py", text, library), lines, {("port/x.py", name): scope or Scope()}, strings):
        found.setdefault(one.applied(text), []).append(one)
    return found


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("a < b", "a <= b"),
        ("a == b", "a != b"),
        ("a and b", "a or b"),
        ("a and b", "a"),
        ("not a", "a"),
        ("a + b", "a - b"),
        ("a * b", "a"),
        ("a - b", "b - a"),
        ("a if b else c", "c if b else a"),
        ("g(a, b)", "g(b, a)"),
        ("g(a, b)", "g(a)"),
        ("g(a, key=b)", "g(a)"),
        ("g(a)", "a"),
        ("a.strip()", "a"),
        ("a.strip()", "a.rstrip()"),
        ("mx.argmax(a)", "mx.argmin(a)"),
        ("[a, b]", "[b, a]"),
        ("{**a, 'k': b}", "{**a}"),
        ("a[1:]", "a[:]"),
        ("a[b]", "a"),
        ("a + 2", "a + 3"),
        ("g(a, axis=-1)", "g(a, axis=0)"),
        ("True", "False"),
        ("round(a), round(b)", "math.floor(a), math.floor(b)"),
        ("helper(a)", "other(a)"),
        ("a", "helper(a)"),
    ],
)
def test_mistakes_turned_round(wrong, right):
    rest = "def helper(x):\n    return math.exp(x)\n\n\ndef other(x):\n    return x\n"
    text = f"import math\n\n\ndef f(a, b, c):\n    return {wrong}\n\n\n{rest}"
    found = {ast.dump(ast.parse(one)) for one in made(text) if _parses(one)}
    assert ast.dump(ast.parse(text.replace(f"return {wrong}", f"return {right}"))) in found


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("    if a:\n        b = 1\n    return b\n", "    if True:\n        b = 1\n    return b\n"),
        ("    if a:\n        return b\n    return c\n", "    if not a:\n        return b\n    return c\n"),
        ("    b = 1\n    c = 2\n    return c\n", "    c = 2\n    b = 1\n    return c\n"),
        ("    b = 1\n    g(b)\n    return b\n", "    b = 1\n    pass\n    return b\n"),
        ("    b += 1\n    return b\n", "    b = 1\n    return b\n"),
        ("    a, b = g(c)\n    return b\n", "    b, a = g(c)\n    return b\n"),
        ("    for a in b:\n        c = a\n        c = 1\n", "    for a in b:\n        c = a\n    c = 1\n"),
        ("    for a in b:\n        continue\n", "    for a in b:\n        break\n"),
    ],
)
def test_statements_turned_round(wrong, right):
    head = "def f(a, b, c):\n"
    found = {ast.dump(ast.parse(one)) for one in made(head + wrong) if _parses(one)}
    assert ast.dump(ast.parse(head + right)) in found


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def test_names_are_exchanged_for_names_of_their_type_only():
    scope = Scope({"a": {"int"}, "b": {"int"}, "c": {"str"}, "self.d": {"int"}})
    found = made("def f(self, a, b, c):\n    return g(a, b, c)\n", scope=scope)
    calls = {text.partition("return ")[2].strip() for text in found}
    assert {"g(b, b, c)", "g(self.d, b, c)"} <= calls
    assert "g(c, b, c)" not in calls


def test_what_is_idle_comes_first():
    scope = Scope({"x": {"array 2 float"}, "y": {"array 2 float"}, "mask": {"array 2 float"}})
    found = made("def f(x, y, mask):\n    return g(x) + y\n", scope=scope)
    best = {one.new: one.weight for ones in found.values() for one in ones if one.kind == "another name"}
    assert best["mask"] > best["y"]
    assert any("x * mask" in text for text in found)


def test_what_is_idle_may_have_been_a_member():
    scope = Scope({"history": {"tuple"}, "last": {"array 2 int"}})
    found = made("def f(history, last):\n    return (last,)[-2:]\n", scope=scope)
    assert any("return (*history, last)[-2:]" in text for text in found)


def test_an_argument_is_handed_on_by_its_name():
    text = "def g(x, mask=None):\n    return x\n\n\ndef f(x, mask):\n    return g(x)\n"
    found = made(text, scope=Scope({"x": {"array 2 float"}, "mask": {"array 2 bool"}}))
    assert any("g(x, mask=mask)" in one for one in found)


def test_a_function_that_nothing_calls_is_called_for_nothing():
    text = "def signal(x, y):\n    return x.signal\n\n\ndef f(x, y, done):\n    z = None\n    return z\n"
    found = made(text, scope=Scope({"x": {"X"}, "y": {"Y"}, "done": {"bool"}}))
    assert any("z = (None if done else signal(x, y))" in one for one in found)


def test_a_string_is_exchanged_for_one_like_it():
    found = made("def f(a):\n    return a['t_max']\n", strings=("t_min", "steps"))
    assert any("a['t_min']" in one for one in found)
    assert not any("steps" in one for one in found)


def test_only_lines_that_ran():
    text = "def f(a):\n    if a:\n        a = 1\n    return a < 2\n"
    lines = {one.line for ones in made(text, lines={2, 4}).values() for one in ones}
    assert lines == {2, 4}


def test_what_runs_on_import_is_said_to():
    text = "LIMIT = 3\n\n\ndef f(a, b=2):\n    return a < LIMIT\n"
    found = [one for ones in made(text).values() for one in ones]
    assert {one.line for one in found if one.imported} == {1, 4}
    assert all(one.function == "f" for one in found if not one.imported)


def test_every_edit_says_what_it_exchanges():
    text = "def f(a, b):\n    é = a < b  # ä\n    return é\n"
    one = next(one for ones in made(text).values() for one in ones if one.kind == "another comparison")
    assert one.said(text) == "`é = a < b # ä` -> `é = a <= b # ä`"
    assert one.line == 2


def test_nearly_all_edits_of_the_port_are_python():
    file = "port/diffusion_gemma/canvas.py"
    text = (ROOT / file).read_text()
    library = Library()
    library.add(file, ast.parse(text))
    found = [one.applied(text) for one in edits(Source(file, text, library), set(range(1, 400)), {})]
    assert len(found) > 300
    assert sum(map(_parses, found)) > 0.98 * len(found)


def test_types_are_those_that_were_seen():
    assert tag(np.zeros((2, 3), np.float32)) == tag(np.ones((4, 1), np.float64)) == "array 2 float"
    assert tag(True) == "bool"
    assert tag(None) == "NoneType"
    from port.diffusion_gemma.stopping import remember  # noqa: PLC0415 -- a function of the port to look at

    with watching("port/") as watch:
        remember((), np.zeros((1, 3), np.int32), 1)
    scope = seen(watch)["port/diffusion_gemma/stopping.py", "remember"]
    assert scope.tags == {"history": {"tuple"}, "argmax_BC": {"array 2 int"}, "stability": {"int"}}
    assert scope.like("stability") == []
