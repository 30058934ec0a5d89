"""Lines that are right by themselves: a right function called, a line that is missing, the wrong of two numbers."""

import textwrap

import mlx.core as mx
import numpy as np
import pytest

from stages.diff.align import align
from stages.diff.asked import asked_again
from stages.diff.crop import cropped
from stages.diff.first import first
from stages.diff.sides import Sides
from stages.places import ROOT
from stages.trace.frames import watching
from stages.trace.likeness import key
from stages.trace.oplog import recording

DOOR = "def cut(x, w):\n    return [Model().run(x, w)]\n"
RIGHT = """\
    def centred(x):
        return (x - 0.5) * 2
    def unit(x):
        return mx.fast.rms_norm(x, None, 1e-6)
    def dot(x, w):
        return x @ w
    def squeezed(x):
        made = mx.tanh(x)
        return made * 1.75
    def places(n, rows):
        ids = mx.arange(n)
        return ids % rows, ids // rows
    class Model:
        def __init__(self):
            self.width, self.part = 24.0, 8.0
            exponents = mx.arange(0, 16, 2).astype(mx.float32) / self.width
            self.waves = 3.5 ** exponents
            settings = {"near": {"base": 300.5}, "far": {"base": 7.25}}
            kind = "near"
            chosen = settings[kind]
            self.base = chosen["base"]
        def attend(self, x, w):
            q, k, v = x * w, x * (w + 1), x * (w + 2)
            return unit(mx.sin(q)), unit(mx.cos(k)), unit(mx.exp(v)).transpose(1, 0)
        def run(self, x, w):
            x = mx.log(centred(mx.abs(x)) + 3)
            x = mx.addmm(x, x, w)
            q, k, v = self.attend(x, w)
            x = q * mx.sigmoid(k) + mx.transpose(mx.square(v))
            x = mx.logaddexp(squeezed(x), w) - x
            turns = [mx.cos(place.astype(mx.float32) / self.waves) for place in places(8, 4)]
            mixed = x * turns[0] + mx.erf(x) * turns[1]
            if w.ndim == 2:
                mixed = mixed * mx.floor(mx.abs(mixed))
            order = mx.argsort(mx.arange(8) * -1)
            mixed = mixed[order] + 1
            if self.base > 100:
                return mx.power(mixed / self.base, 2)
            return mx.power(mx.minimum(mixed, 3) / self.base, 2)
    """


PARAMETERS = """\
    class Param:
        def __init__(self, name):
            self.name = name
            self.array = WEIGHTS[name]
    class Norm:
        def __init__(self, name):
            self.weight = Param(name)
        def __call__(self, x):
            return mx.fast.rms_norm(x, self.weight.array, 1e-6)
    class Model:
        def __init__(self):
            first, second = "layer.before", "layer.behind_it"
            self.before = Norm(first)
            self.behind_it = Norm(second)
        def run(self, x, w):
            wide = x.ndim == 2 and w.ndim == 3
            whole = mx.sin(w[:3])
            part = whole if wide else None
            x = mx.cos(self.before(x)) + mx.tanh(self.behind_it(mx.sin(x)))
            if part is not None:
                x = x + part
            return mx.exp(x)
    """


def told(source, folder):
    """The log of a source that stands in some folder of the checkout, and its output, if it gives any."""
    weights = {name: mx.array([len(name) + n / 8 for n in range(8)]) for name in ("layer.before", "layer.behind_it")}
    space = {"mx": mx, "__name__": f"{folder}.made_up", "WEIGHTS": weights}
    exec(compile(textwrap.dedent(source), f"{ROOT}/{folder}/made_up.py", "exec"), space)
    exec(compile(DOOR, f"{ROOT}/{folder}/cuts.py", "exec"), space)
    x, w = (mx.random.normal((8, 8), key=mx.random.key(seed)) for seed in (1, 2))
    with watching(f"{folder}/") as watch, recording(watch) as log:
        try:
            return log, [np.array(one) for one in space["cut"](x, w)]
        except ValueError:  # what MLX raises of shapes that do not fit
            return log, []


def marked(old, new, source=RIGHT):
    """What is marked in a run of a source with an edit, beside one of it as it is."""
    assert source.count(old) == 1
    theirs, right = told(source, "oracle")
    ours, found = told(source.replace(old, new), "port")
    outs = {"x": (right[0], found[0])} if found else {}
    assert not found or right[0].tobytes() != found[0].tobytes()
    return first(Sides(ours, theirs, align(ours.ops, theirs.ops)), outs, raised=not found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return (x - 0.5) * 2", "return x"),
        ("x = mx.addmm(x, x, w)", "x = dot(x, w) + x"),
        ("unit(mx.exp(v)).transpose(1, 0)", "mx.exp(v).transpose(1, 0)"),
        ("return made * 1.75", "return made"),
        ("in places(8, 4)]", "in places(8, 4)[::-1]]"),
        ("mx.arange(0, 16, 2).astype(mx.float32) / self.width", "mx.arange(0, 16, 2).astype(mx.float32) / self.part"),
        ('kind = "near"', 'kind = "far"'),
        ("mixed = mixed * mx.floor(mx.abs(mixed))", "pass"),
        ("mixed = mixed[order] + 1", "mixed = (mixed[mx.argsort(mx.negative(mx.arange(8)))] * 1.5) + 1"),
    ],
)
def test_the_line_that_was_changed_is_marked(old, new):
    found = marked(old, new)
    assert found is not None
    assert found.at is not None
    changed = next(n for n, line in enumerate(RIGHT.splitlines(), 1) if old in line)
    assert found.at.line == changed, (str(found.at), changed, found.why)


def test_a_parameter_that_was_bound_to_the_name_of_another_and_what_is_asked_for_it():
    crossed = marked('"layer.before", "layer.behind_it"', '"layer.behind_it", "layer.before"', PARAMETERS)
    used = marked("self.behind_it(mx.sin(x))", "self.before(mx.sin(x))", PARAMETERS)
    for found, text in ((crossed, "self.before ="), (used, "mx.tanh(")):
        assert found is not None
        assert found.at is not None
        assert found.at.line == next(n for n, line in enumerate(PARAMETERS.splitlines(), 1) if text in line), found.why
    assert "the parameter layer.behind_it [8]" in crossed.why
    assert "the parameter layer.before [8]" in used.why


def test_what_the_framework_refuses_because_it_is_there_was_decided_before():
    found = marked("x.ndim == 2 and w.ndim == 3", "x.ndim == 2", PARAMETERS)
    assert found is not None
    assert found.at is not None
    assert found.at.line == next(n for n, line in enumerate(PARAMETERS.splitlines(), 1) if "wide = " in line), found.why


def test_a_function_that_was_not_told_what_its_caller_was_told():
    source = textwrap.dedent("""\
        def size(width, budget=280):
            return [width * budget, budget]
        def prepare(width, budget):
            return size(width)
        """)
    space = {}
    exec(compile(source, f"{ROOT}/port/made_up.py", "exec"), space)
    with watching("port/") as watch:
        space["prepare"](3, 8)
    prepare, size = watch.frames
    found = asked_again([(prepare, 4, 99), (size, 2, 99)], lambda value: value == [24, 8])
    assert found is not None
    assert (found[0].line, found[0].function) == (4, "prepare")
    assert asked_again([(prepare, 4, 99), (size, 2, 99)], lambda value: value == [24, 9]) is None


def test_what_is_cut_to_as_many_as_flags_are_set_is_compared_uncut():
    x = mx.random.normal((5, 8), key=mx.random.key(3))
    with recording() as theirs:
        flags = mx.arange(20) < 5
        filled = mx.sin(mx.concatenate([x, mx.ones((15, 8))]))
        count = int(mx.sum(flags.astype(mx.int32)).item())
        right = mx.exp(filled[:count])
    with recording() as ours:
        left = mx.exp(mx.sin(x))
    assert key(left) == key(right)
    shapes = {op.out.shape for op in cropped(ours, theirs).ops if op.name == "sin"}
    assert shapes == {(5, 8)}
    assert {op.digest for op in ours.ops} <= {op.digest for op in cropped(ours, theirs).ops}
