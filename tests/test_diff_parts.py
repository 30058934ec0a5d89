"""The parts of `harness diff` by themselves: calls that are logged, values walked back, what counts as equal."""

import textwrap

import mlx.core as mx
import numpy as np
import pytest

from stages.diff.crop import cropped
from stages.diff.near import Near, adopted
from stages.places import ROOT
from stages.trace.frames import PARAMETER, watching
from stages.trace.likeness import key, telling
from stages.trace.oplog import OpLog, recording
from stages.trace.whence import Trail

SOURCE = textwrap.dedent("""\
    class Scale:
        def __init__(self, factor):
            self.factor = factor
    def idle(x):
        return x
    def scaled(x, by):
        factor = by.factor + 0.25
        y = [idle(one) * factor for one in x]
        return {"y": y}
    def run(x):
        by = Scale(2.125)
        made = scaled(x, by)
        return made["y"]
    """)


def logged(x):
    """A run of the source above, as if it stood in the port: (log, its result)."""
    space = {}
    exec(compile(SOURCE, f"{ROOT}/port/made_up.py", "exec"), space)
    with watching("port/") as watch:
        y = space["run"](x)
    return Trail(watch), y


def way(trail, wanted):
    door = next(one for one in trail.watch.frames if one.parent is None)
    when, line, _ = door.returns[-1]
    return [(frame.code.co_name, at) for frame, at, _ in trail.way(door, line, when, key(wanted))]


def test_a_value_is_walked_back_to_the_line_that_computed_it():
    trail, y = logged([1.5, 3.5])
    assert way(trail, y)[-1] == ("<listcomp>", 8)
    assert ("scaled", 9) in way(trail, y)


def test_a_number_is_walked_back_through_an_attribute_to_who_set_it():
    trail, _ = logged([1.5, 3.5])
    inside = next(one for one in trail.watch.frames if one.code.co_name == "scaled")
    places = trail.way(inside, 7, inside.returns[-1][0], key(2.125))
    assert [(frame.code.co_name, line) for frame, line, _ in places][-1] == ("run", 11)


def test_names_of_a_caller_are_known_at_every_call():
    trail, _ = logged([1.5, 3.5])
    assert [one.code.co_name for one in trail.watch.frames].count("idle") == 2
    given = [write.value for frame in trail.watch.frames if frame.code.co_name == "idle" for write in frame.writes]
    assert given == [1.5, 3.5]
    assert all(
        write.line == PARAMETER
        for frame in trail.watch.frames
        for write in frame.writes
        if write.name == "by" and frame.code.co_name == "scaled"
    )


@pytest.mark.parametrize(
    "values",
    [
        (3, np.int32(3), mx.array(3), True + 2, 3.0),
        ([1, 2, 3], (1, 2, 3), np.array([1, 2, 3], np.int32), mx.array([[1, 2, 3]])),
        ("abc", b"abc", np.frombuffer(b"abc", np.uint8)),
        (np.float32([0.5, 0.25]), mx.array([0.5, 0.25], dtype=mx.bfloat16)),
    ],
)
def test_values_are_alike_whatever_holds_them(values):
    assert len({key(one) for one in values}) == 1


def test_other_values_are_not_alike():
    assert len({key(one) for one in (3, 4, None, [3, 4], "34", np.float32([3, 4.5]))}) == 6
    assert key(object()) is None
    assert not telling([1, 2])
    assert telling("a whole sentence")


def test_rounding_and_order_of_axes_count_as_equal_and_nothing_else():
    x = np.random.Generator(np.random.PCG64(0)).normal(size=(4, 6)).astype(np.float32)
    near = Near(OpLog(leaves={"theirs": x, "ids": np.arange(24)}))
    assert near.digest(x * np.float32(1 + 1e-6)) == "theirs"
    assert near.digest(np.ascontiguousarray(x.T)) == "theirs"
    assert near.digest(x * np.float32(1.001)) != "theirs"
    assert near.digest(x[::-1].copy()) != "theirs"
    assert near.digest(np.arange(24) + 1) != "ids"


def test_a_port_gets_the_digests_of_what_it_nearly_is():
    with recording() as ours:
        _ = mx.exp(mx.array([0.1, 0.2, 0.3])) * 2
    theirs = OpLog(leaves={"e": np.exp(np.float32([0.1, 0.2, 0.3]) + np.float32(1e-7))})
    again = adopted(ours, Near(theirs))
    assert again.ops[0].digest == "e"
    assert again.ops[1].operands[0].digest == "e"
    assert again.ops[1].digest == ours.ops[1].digest


def test_what_the_oracle_fills_up_is_cut():
    def full(x):
        h = mx.concatenate([x, mx.zeros((1, 5, 4))], axis=1)
        return mx.exp(h) * 3

    x = mx.array(np.arange(12, dtype=np.float32).reshape(1, 3, 4) / 7)
    with recording() as theirs:
        full(x)
    with recording() as ours:
        _ = mx.exp(x) * 3
    cut = cropped(ours, theirs)
    assert [op.out.shape for op in cut.ops if op.name in ("exp", "multiply")] == [(1, 3, 4)] * 2
    assert {op.digest for op in ours.ops} <= {op.digest for op in cut.ops}
    assert cropped(ours, ours) is ours


def site_of(file: str) -> list[str]:
    """The files on the way to an operation that a function of `file` runs."""
    scope: dict = {"mx": mx}
    exec(compile("def add(x):\n    return mx.add(x, 1.0)\n", file, "exec"), scope)
    with recording() as log:
        scope["add"](mx.ones(2))
    return [site.file for site in log.ops[-1].sites]


@pytest.mark.parametrize("root", ["/somewhere/else", f"{ROOT}/.venv", f"{ROOT}/.nox/tests"])
def test_an_environment_in_the_checkout_is_no_part_of_it(root):
    packages = f"{root}/lib/python3.11/site-packages"
    assert site_of(f"{packages}/optiq/layer.py") == ["optiq/layer.py"]
    assert site_of(f"{packages}/mlx/nn/layers/normalization.py") == []
    assert site_of(f"{ROOT}/port/layer.py") == ["port/layer.py"]
