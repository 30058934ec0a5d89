"""Against an oracle in PyTorch too, `harness diff` marks the line that a planted bug changed."""

import random

import numpy as np
import torch

from stages import torchlog
from stages.diff_planted import measure
from stages.mutate import mutants_of
from stages.places import MODELS

MODEL = "metadiffusion"
MORE = (
    "GELU",
    "bound not weighted",
    "causal",
    "neighbours turned",
    "norms swapped",
    "scores not scaled",
    "time reversed",
)


def drawn() -> list[str]:
    """Of ten planted bugs, drawn from those of every model as tests/test_diff_mutants.py does, this model's."""
    every = ((model, one) for model in MODELS for one in mutants_of(model))
    pairs = sorted(every, key=lambda pair: (pair[0], pair[1].name))
    return [one.name for model, one in random.Random(0).sample(pairs, 10) if model == MODEL]


def test_the_marked_line_is_the_one_that_was_changed():
    names = {*drawn(), *MORE}
    asked = [(MODEL, one, None) for one in mutants_of(MODEL) if one.name in names]
    found = list(measure(asked))
    assert len(found) == len(names) == 9
    wrong = [f"{one.name}: {one.at} for {one.hunk.lines}: {one.why}" for one in found if one.grade != "line"]
    assert not wrong, "\n".join(wrong)


def test_every_operation_is_logged_with_its_value_and_its_operands():
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    with torchlog.recording(torch) as log:
        y = torch.nn.functional.silu(x * 2.0).reshape(3, 2)
        y.T.sum()
    assert [op.name for op in log.ops] == ["multiply", "silu", "transpose", "sum"]
    assert log.ops[0].fixed == "2.0"
    assert [one.op for one in log.ops[2].operands] == [1]  # a reshape is no step of its own
    np.testing.assert_array_equal(log.ops[0].out, x.numpy() * 2)
    assert log.ops[0].operands[0].digest in log.leaves
    count = len(log.ops)
    _ = x + 1
    assert len(log.ops) == count
