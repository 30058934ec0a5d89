"""Against an oracle in PyTorch too, `harness diff` marks the line that a planted bug changed."""

import numpy as np
import torch

from stages.diff.planted import measure
from stages.mutate import mutants_of
from stages.trace import torchlog

MODEL = "metadiffusion"
# Of the draws in tests/test_diff_mutants.py: this model's; and some more, of each kind of rule.
DRAWN = (
    "surest of all positions",
    "timestep residual left as it is made",
    "confidence of the wrong token",
    "no mask at all",
    "GELU",
    "bound not weighted",
    "neighbours turned",
    "norms swapped",
    "scores not scaled",
    "time reversed",
    "causal",
    "padding attended",
    "gate and input swapped",
    "norms without epsilon",
    "loss everywhere",
    "gradient through one projection cut",
    "padding trained by lookup",
    "schedule cut",
    "theta lost",
    "weights rounded as they are read",
)


def test_the_marked_line_is_the_one_that_was_changed():
    asked = [(MODEL, one, None) for one in mutants_of(MODEL) if one.name in DRAWN]
    found = list(measure(asked, search=0))
    assert len(found) == len(DRAWN)
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
