"""A function of the port taken as one: called again otherwise, against its twin; values traced to their beginning."""

import sys
import textwrap
from types import ModuleType, SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from stages.diff.align import align
from stages.diff.calls import given, helper, value_of
from stages.diff.config import misread
from stages.diff.fields import otherwise
from stages.diff.first import first
from stages.diff.near import NEAR, Near, adopted, nearness
from stages.diff.sides import Sides
from stages.diff.twins import contradicted
from stages.gates import Exact
from stages.places import ROOT
from stages.spec import Out, Stage
from stages.trace.branches import decided, skipped
from stages.trace.demands import demanded_at
from stages.trace.expressions import given_as, names_in
from stages.trace.frames import watching
from stages.trace.oplog import OpLog, recording
from stages.trace.origin import first_with, number_first, value_first
from stages.trace.whence import Trail

FILE = f"{ROOT}/port/made_up.py"
CUT = f"{ROOT}/port/made_up/cuts.py"


def built(source: str, file: str = FILE, **space: Any) -> Any:
    """What a piece of source defines, as if it stood in the port."""
    exec(compile(textwrap.dedent(source), file, "exec"), space)
    return SimpleNamespace(**space)


def both(port: Any, oracle: Any, *, near: bool = True) -> tuple[Sides, Any, Any]:
    """Both sides of a function of no arguments, logged and paired: (the logs, the oracle's result, the port's)."""
    door = built("def door(called):\n    return called()\n", CUT)
    with recording() as theirs:
        right = np.array(oracle())
    with watching("port/") as watch, recording(watch) as ours:
        wrong = np.array(door.door(port))
    alike = Near(theirs)
    ours = adopted(ours, alike) if near else ours
    return Sides(ours, theirs, align(ours.ops, theirs.ops), alike.digest, near), right, wrong


def marked(port: Any, oracle: Any) -> tuple[int, str]:
    sides, right, wrong = both(port, oracle)
    found = first(sides, {"y": (right, wrong)})
    assert found is not None
    assert found.at is not None
    return found.at.line, found.why


RNG = np.random.Generator(np.random.PCG64(0))
Q, K, V = (mx.array(RNG.normal(size=(1, 2, 5, 8)).astype(np.float32)) for _ in range(3))
MASK = mx.array(np.float32([[0, 0, 0, -1e9, -1e9]]))

ATTENTION = """\
import mlx.core as mx
def weights(x):
    e = mx.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
def attend(q, k, v, mask, scale):
    scores = (q * scale) @ k.swapaxes(-1, -2)
    scores = scores if mask is None else scores + mask
    return weights(scores) @ v
def layer(q, k, v, mask):
    return attend({call}, mask={mask}, scale={scale})
def run():
    return layer(q, k, v, mask)
"""


def layer(call: str = "q, k, v", mask: str = "mask", scale: str = "8**-0.5") -> Any:
    return built(ATTENTION.format(call=call, mask=mask, scale=scale), q=Q, k=K, v=V, mask=MASK).run


def fused() -> mx.array:
    return mx.fast.scaled_dot_product_attention(Q, K, V, scale=8**-0.5, mask=MASK)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"call": "q, v, k"}, "once k and v are exchanged"),
        ({"mask": "None"}, "with another mask"),
        ({"scale": "0.25"}, ""),
    ],
)
def test_who_calls_a_written_out_operation_wrongly_is_marked(change, said):
    line, why = marked(layer(**change), fused)
    assert line == 10
    assert said in why


def test_what_is_written_out_rightly_introduces_nothing():
    sides, right, wrong = both(layer(), fused)
    np.testing.assert_allclose(right, wrong, rtol=1e-4, atol=1e-5)
    first(sides, {})
    assert not [op.name for i, op in enumerate(sides.port.ops) if not sides.good(i)]


TWIN = """\
import mlx.core as mx
def whole():
    return False
def softmax(x):
    if whole():
        return mx.softmax(x, axis=-1)
    e = mx.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis={axis}, keepdims=True)
def squashed(x):
    if whole():
        return mx.tanh(x)
    return mx.sinh(x) / mx.cosh(x) * {factor}
def run(x):
    return softmax(x), squashed(x)
"""


@pytest.mark.parametrize(("axis", "factor"), [(-1, 1), (-2, 1), (-1, 1.5)])
def test_a_function_is_told_wrong_by_its_twin(monkeypatch, axis, factor):
    made: Any = ModuleType("port.made_up")
    exec(compile(TWIN.format(axis=axis, factor=factor), FILE, "exec"), vars(made))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    with watching("port/") as watch:
        made.run(mx.array(RNG.normal(size=(4, 4)).astype(np.float32)))
    frames = {one.code.co_name: one for one in watch.frames}
    assert contradicted(frames["softmax"]) == (axis != -1)
    assert contradicted(frames["squashed"]) == (factor != 1)
    assert not contradicted(frames["run"])


def test_what_a_call_was_given_and_gave():
    made = built("def f(x, by=2, *, much=None):\n    y = x * by\n    return y\n")
    with watching("port/") as watch:
        made.f(mx.array([1.0, 2.0]))
    (frame,) = watch.frames
    assert list(given(frame)) == ["x", "by", "much"]
    assert helper(frame)
    np.testing.assert_array_equal(value_of(frame), [2.0, 4.0])


def test_flags_are_told_from_what_asked_for_them():
    made = built("def f(x):\n    if x > 3:\n        return None\n    return x + 1\n")
    with watching("port/") as watch:
        made.f(5)
        made.f(1)
    (high, low) = watch.frames
    assert decided((high, 3, watch.number)).line == 2
    assert decided((low, 4, watch.number)).line == 4


def test_a_question_that_skipped_an_assignment_is_told():
    made = built("def f(x, top):\n    y = x\n    if top:\n        y = x + top\n    return y * 2\n")
    with watching("port/") as watch:
        made.f(5, 0)
        made.f(5, 1)
    without, with_it = watch.frames
    asked = skipped((without, 2, watch.number), 5, "y")
    assert asked is not None
    assert asked.line == 3
    assert skipped((with_it, 4, watch.number), 5, "y") is None


class Net(nn.Module):
    """Two layers, whose first may be held fast."""

    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.a, self.b, self.forward = nn.Linear(6, 6), nn.Linear(6, 6), forward

    def __call__(self, x: mx.array) -> mx.array:
        return self.forward(self, x)


FORWARD = """\
import mlx.core as mx
def forward(net, x):
    h = mx.tanh({a})
    y = {b}
    return (y * y).sum()
"""


@pytest.mark.parametrize(
    ("a", "b", "line"),
    [
        ("mx.stop_gradient(net.a(x))", "net.b(h)", 3),
        ("net.a(x)", "mx.stop_gradient(net.b(h))", 4),
        ("net.a(x)", "net.b(h)\n    y = 2 * y - mx.stop_gradient(y)", 5),
    ],
)
def test_a_derivative_that_is_cut_is_marked_where_it_is(a, b, line):
    x = mx.array(RNG.normal(size=(3, 6)).astype(np.float32))
    right, wrong = (
        Net(built(FORWARD.format(a=one, b=other)).forward) for one, other in (("net.a(x)", "net.b(h)"), (a, b))
    )
    wrong.update(right.parameters())

    def gradients(net: Net) -> dict[str, np.ndarray]:
        _, found = nn.value_and_grad(net, net)(x)
        return {f"grads.{n}-{m}": np.array(y) for n, part in found.items() for m, y in part.items()}

    door = built("def door(net, called):\n    return called(net)\n", CUT)
    with recording() as theirs:
        oracle = gradients(right)
    with watching("port/") as watch, recording(watch) as ours:
        port = door.door(wrong, gradients)
    sides = Sides(ours, theirs, align(ours.ops, theirs.ops))
    outs = {name: (oracle[name], port[name]) for name in oracle if not np.array_equal(oracle[name], port[name])}
    assert outs
    found = first(sides, outs)
    assert found is not None
    assert found.at is not None
    assert found.at.line == line, found


CONFIG = """\
from dataclasses import dataclass
@dataclass(frozen=True)
class Config:
    width: int
    heads: int
    eps: float = 1e-6
def read(raw):
    theta = raw.get("theta")
    return Config(**{**raw, "heads": 2 * raw["heads"]})
def run(raw):
    config = read(raw)
    return config.width // config.heads
"""


def test_a_field_is_walked_to_the_line_that_gave_it():
    made = built(CONFIG, __name__="port.made_up")
    raw = {"width": 64, "heads": 4}
    with watching("port/") as watch:
        made.run(raw)
    tried = []
    found = misread(Trail(watch), raw, lambda: tried.append(made.run(raw)) or tried[-1] == 16)
    assert found is not None
    assert found.at is not None
    assert found.at.line == 9
    assert tried == [16]
    assert made.run(raw) == 8  # the class is as it was
    assert misread(Trail(watch), raw, lambda: False) is None
    told = Stage("config", {}, {"config": Out("byte", Exact())})
    texts = [np.frombuffer(f'{{"heads": {n}, "width": 64}}'.encode(), np.uint8) for n in (4, 8)]
    sides = Sides(OpLog(watch=watch), OpLog(), [])
    by_text = otherwise(sides, told, {"config": texts[0]}, {"config": texts[1]})
    assert by_text is not None
    assert by_text.at == found.at


def test_values_are_traced_to_where_they_first_were():
    made = built("def f(x):\n    y = x + 0.125\n    z = [y, y]\n    return g(z)\ndef g(z):\n    return z\n")
    with watching("port/") as watch:
        made.f(1)
    trail = Trail(watch)
    assert number_first(trail, 1.125)[1] == 2
    assert first_with(trail, lambda one: isinstance(one, list))[1] == 3
    assert number_first(trail, 7.5) is None
    assert value_first(trail, trail.key([1.125, 1.125]), 2)[1] == 3


DEMANDS = """\
class Model:
    def __init__(self, inner, width):
        self.inner = 2 * inner
        self.table = matrix("table", 3 * self.inner, width)
def matrix(name, rows, columns):
    return claim(name, (rows, columns))
def claim(name, shape):
    return shape
"""


def test_a_refused_shape_is_walked_to_what_computed_its_wrong_number():
    made = built(DEMANDS)
    with watching("port/") as watch:
        made.Model(5, 7)
    trail = Trail(watch)
    frame = next(one for one in watch.frames if one.code.co_name == "matrix")
    at = demanded_at(trail, (frame, 6, watch.number), (30, 7), "it is F32 [15, 7]. Expected: F32 [30, 7]")
    assert at[1] == 3
    same = demanded_at(trail, (frame, 6, watch.number), (30, 7), "it is missing. Expected: F32 [30, 7]")
    assert same[1] == 6


def test_outputs_that_fail_their_gates_never_count_as_equal():
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    near = nearness([(x, x * np.float32(1 + 4e-6))])
    assert near < 4e-6
    assert nearness([(x, x * np.float32(1.5))]) == nearness([]) == NEAR
    assert not Near(OpLog(), near).alike(x * np.float32(1 + 4e-6), x)


def test_what_a_field_is_given_is_read_from_the_file():
    file = "port/metadiffusion/convert.py"
    text = (ROOT / file).read_text().splitlines()
    line = next(n for n, one in enumerate(text, 1) if "config = Config(" in one)
    expression = given_as(file, line, "rope_theta")
    assert expression is not None
    assert list(names_in(expression)) == ["float", "theta"]
    assert given_as(file, line, "nothing of that name") is None
