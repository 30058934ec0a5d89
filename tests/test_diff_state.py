"""State: what comes a round late, what a buffer still holds, what is dropped, what a model keeps, what never ends."""

import textwrap

import mlx.core as mx
import numpy as np
import pytest

from stages.diff.align import align
from stages.diff.dropped import dropped
from stages.diff.first import first
from stages.diff.kept import kept
from stages.diff.planted import At, measure
from stages.diff.sides import Sides
from stages.diff.stale import stale
from stages.mutate import mutants_of
from stages.places import ROOT
from stages.trace.frames import watching
from stages.trace.oplog import recording

# Where each is objected to, so that nobody looks again.
PLANTED = {
    "the noise of the step before": ("denoise_canvas", "canvas=0/forced", "confidence/float32"),
    "the signal of the step before": ("denoise_canvas", "canvas=0/forced", "confidence/float32"),
    "the signal kept from one canvas to the next": ("denoise_canvas", "canvas=0/free", "confidence/float32"),
    "never a signal": ("denoise_canvas", "canvas=0/forced", "confidence/float32"),
    "stopping rule not followed": ("denoise_canvas", "canvas=0/forced", "certain/float32"),
    "a canvas that is revealed goes on": ("denoise_canvas", "canvas=0/forced", "answer/float32"),
    "stability of what is shown to the model": ("stopping", "run=1/canvas=0/step=2", "coarse/bfloat16"),
    "a history that is a view of the canvas": ("stopping", "made/moved", "decisions/float32"),
    "best tokens no longer remembered": ("stopping", "made/moved-before", "decisions/float32"),
    "slots never written read as keys": ("attention", "encoder/chunk=1/layer=0", "ring/bfloat16"),
    "static buffers read whole": ("generate", "run=0/whole", "static/float32"),
    "stop tokens of one call kept for the next": ("generate", "run=0/whole", "stops/float32"),
}
EXACT = ("line", "statement")

# A loop that hands on an average and a buffer, to an end that it finds itself.
RIGHT = """\
    def mixed(x, before):
        return mx.sin(x) if before is None else mx.add(mx.sin(x), mx.cos(before))
    class Store:
        rows = 0
        def put(self, x):
            if not self.rows:
                self.kept = mx.zeros((32, x.shape[1]))
            self.kept[self.rows : self.rows + x.shape[0]] = x
            self.rows += x.shape[0]
        def seen(self):
            return self.kept[: self.rows]
    def remember(past, x):
        return (*past, x)[-2:]
    def step(x, before, past):
        y = mixed(x, before)
        after = mx.tanh(y)
        sure = bool((mx.max(after) > 0.92).item())
        done = sure
        return y, after, remember(past, after), done
    def run(x):
        store, before, past, rounds = Store(), None, (), 0
        while rounds < 6:
            x, after, past, done = step(x, before, past)
            store.put(x)
            rounds += 1
            if done:
                break
            before = after
        return mx.exp(store.seen()), x, mx.stack(past)
    """
DOOR = "def cut(x):\n    return run(x)\n"


def told(source, folder, x):
    """(log, outputs) of a source that stands in some folder of the checkout."""
    space = {"mx": mx}
    exec(compile(textwrap.dedent(source), f"{ROOT}/{folder}/made_up.py", "exec"), space)
    exec(compile(DOOR, f"{ROOT}/{folder}/cuts.py", "exec"), space)
    with watching(f"{folder}/") as watch, recording(watch) as log:
        return log, [np.array(one) for one in space["cut"](x)]


def opened(old, new):
    """The sides of a run of the source above with an edit, beside one of it as it is; and what differs."""
    assert RIGHT.count(old) == 1
    x = mx.array([[0.31, 0.72, 1.13], [1.54, 1.95, 2.36], [2.77, 3.18, 3.59]])
    theirs, right = told(RIGHT, "oracle", x)
    ours, found = told(RIGHT.replace(old, new), "port", x)
    sides = Sides(ours, theirs, align(ours.ops, theirs.ops))
    pairs = {str(n): pair for n, pair in enumerate(zip(right, found, strict=True))}
    return sides, {name: (a, b) for name, (a, b) in pairs.items() if a.tobytes() != b.tobytes()}


def line_of(text):
    return next(n for n, line in enumerate(RIGHT.splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("before = after", "before = after if before is None else before", "before = after"),
        ("return self.kept[: self.rows]", "return self.kept", "return self.kept[: self.rows]"),
        ("done = sure", "done = False", "done = sure"),
    ],
)
def test_the_line_that_kept_gave_or_went_on_is_marked(old, new, expected):
    sides, outs = opened(old, new)
    assert outs
    found = first(sides, outs)
    assert found is not None
    assert found.at is not None
    assert found.at.line == line_of(expected), (str(found.at), found.why)


def test_rows_that_are_given_and_not_given_on():
    sides, outs = opened("(*past, x)[-2:]", "(*past, x)[-1:]")
    found = dropped(sides, outs)
    assert found is not None
    assert found.at is not None
    assert found.at.line == line_of("(*past, x)[-2:]"), found.why
    assert stale(sides, None) is None


def test_a_right_port_keeps_gives_and_drops_nothing():
    sides, outs = opened("done = sure", "done = sure or False")
    assert not outs
    assert stale(sides, None) is None
    assert dropped(sides, outs) is None


KEEPS = """\
    import time
    class Model:
        def __init__(self):
            self.known, self.last = {}, None
        def doubled(self, x):
            if "doubled" not in self.known:
                self.known["doubled"] = mx.add(x, x)
            return self.known["doubled"]
        def run(self, x):
            began = time.perf_counter()
            y = self.doubled(x)
            past = LAST
            self.last = mx.sin(y)
            return y if past is None else mx.add(y, past), time.perf_counter() - began
    """


@pytest.mark.parametrize(("last", "expected"), [("self.last", 12), ("None", None)])
def test_what_a_model_keeps_is_told_from_what_it_only_remembers(last, expected):
    space = {"mx": mx}
    source = textwrap.dedent(KEEPS.replace("LAST", last))
    exec(compile(source, f"{ROOT}/port/made_up.py", "exec"), space)
    x = mx.array([0.31, 0.72, 1.13, 1.54, 1.95, 2.36, 2.77, 3.18])

    def watched(model):
        with watching("port/") as watch:
            model.run(x)
        return watch

    used = space["Model"]()
    used.run(x)
    found = kept(watched(used), watched(space["Model"]()), watched(space["Model"]()))
    assert (found and found.at and found.at.line) == expected


def test_planted_bugs_of_state_are_marked_at_their_line():
    asked = [(one, At(*PLANTED[one.name])) for one in mutants_of("diffusion_gemma") if one.name in PLANTED]
    assert len(asked) == len(PLANTED)
    found = list(measure([("diffusion_gemma", mutant, at) for mutant, at in asked], search=0))
    wrong = [f"{one.name}: {one.grade}, {one.at}: {one.why}" for one in found if one.grade not in EXACT]
    assert not wrong, "\n".join(wrong)
