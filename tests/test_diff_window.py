"""Runs that part in Python: what is read forwards, bounded, and named as the line that decided."""

import textwrap

import mlx.core as mx
import numpy as np
import pytest

from stages.diff.align import align
from stages.diff.first import first
from stages.diff.order import Order
from stages.diff.sides import Sides
from stages.places import ROOT
from stages.trace.frames import watching
from stages.trace.oplog import recording
from stages.trace.slices import bare, governing, idle, spot

DOOR = "def cut(x):\n    return run(x)\n"
RIGHT = """\
    def share(n):
        return n // 2
    def step(x, times):
        y = mx.sin(x)
        if times > 1:
            y = mx.cos(y)
        return y
    def run(x):
        best = mx.exp(x)
        draft = mx.tanh(x)
        for _ in range(2):
            x = step(x, 3)
        shown = best
        parts = mx.repeat(x, share(8), axis=0)
        if x.size < 2:
            raise ValueError(f"{x.size} numbers")
        return parts, mx.log(shown)
    """


def told(source, folder, x):
    """(log, outputs or what was raised) of a source that stands in some folder of the checkout."""
    space = {"mx": mx}
    exec(compile(textwrap.dedent(source), f"{ROOT}/{folder}/made_up.py", "exec"), space)
    exec(compile(DOOR, f"{ROOT}/{folder}/cuts.py", "exec"), space)
    with watching(f"{folder}/") as watch, recording(watch) as log:
        try:
            return log, [np.array(one) for one in space["cut"](x)]
        except ValueError as error:
            return log, error


def opened(old="", new=""):
    """The sides of a run of the source above with an edit, beside one of it as it is; and what differs."""
    assert old in RIGHT
    x = mx.array([[0.31, 0.72, 1.13], [1.54, 1.95, 2.36], [2.77, 3.18, 3.59]])
    theirs, right = told(RIGHT, "oracle", x)
    ours, found = told(RIGHT.replace(old, new) if old else RIGHT, "port", x)
    sides = Sides(ours, theirs, align(ours.ops, theirs.ops))
    if isinstance(found, ValueError):
        return sides, {}
    pairs = {str(n): pair for n, pair in enumerate(zip(right, found, strict=True))}
    return sides, {name: (a, b) for name, (a, b) in pairs.items() if a.tobytes() != b.tobytes()}


def line_of(text, source=RIGHT):
    return next(n for n, line in enumerate(source.splitlines(), 1) if text in line)


def test_two_runs_that_are_alike_part_nowhere():
    sides, outs = opened()
    assert not outs
    assert Order(sides).gap() is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("y = mx.cos(y)", "pass", "y = mx.cos(y)"),
        ("shown = best", "shown = draft", "shown = best"),
        ("share(8)", "share(6)", "share(8)"),
        ("x.size < 2", "x.size < 20", "x.size < 2"),
        ("y = mx.sin(x)", "y = mx.sin(x * 1.01)", "y = mx.sin(x)"),
    ],
)
def test_the_line_that_decided_is_marked(old, new, expected):
    sides, outs = opened(old, new)
    found = first(sides, outs, raised=not outs)
    assert found is not None
    assert found.at is not None
    assert found.at.line == line_of(expected), (str(found.at), found.why)


def test_what_is_made_otherwise_and_comes_to_the_same_is_no_parting():
    sides, outs = opened("y = mx.sin(x)", "y = mx.sin(mx.negative(mx.negative(x)))")
    assert not outs
    assert Order(sides).gap() is None


def test_statements_that_do_nothing_and_what_governs_others():
    log, _ = told(RIGHT.replace("y = mx.cos(y)", "pass"), "port", mx.array([0.5, 1.5, 2.5]))
    frame = next(one for one in log.watch.frames if one.code.co_name == "step")
    assert idle(frame.code) == {line_of("y = mx.cos(y)")}
    when = next(number for number, line in frame.lines if line in idle(frame.code))
    at = spot(frame, when, whole=True)
    above = governing(at)
    assert above is not None
    assert above.first == line_of("if times > 1")
    assert bare(at)
    assert not bare(above)
