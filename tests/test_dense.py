"""A port that multiplies unpacked weights in float32: another backend, which the portable tier passes and judges."""

from functools import partial

import pytest
from harness import harness

from goldens import canary
from stages import dense, mutate
from stages.forked import each
from stages.planted import Mutant
from stages.shelf import Question

# In float32 MLX's own BLAS adds in the order of its kernels for packed weights, to the same bits.
EXPERTS = (("experts", "bfloat16"),)
SUM = Mutant("unweighted", "moe", "moe.Experts.__call__", "(y_NKD * weights_NK[..., None])", "y_NKD", "", ("experts",))


@pytest.fixture
def call(monkeypatch, tmp_path):
    return harness(monkeypatch, tmp_path)


def judged(mutant, question):
    """(the first objection, the nearest to one, the tier) of a process of its own."""
    work = [partial(mutate._one, dense.MODEL, mutant, EXPERTS, question, canary.canary())]
    ((_, found),) = each(work, 120.0)
    return found


def test_it_passes_in_the_portable_tier():
    objection, _, tier = judged(None, Question(tier="portable", dense=True))
    assert (objection, tier) == (None, "portable")
    moved = Mutant(
        "the same", "moe", "moe.Router.scores", " * self.scale.array", " * (self.scale.array)", "", ("short",)
    )
    _, nearest, _ = judged(moved, Question(tier="portable", dense=True))
    assert nearest.value > 0  # the experts' sums are others


def test_the_exact_tier_would_see_it():
    objection, _, _ = judged(None, Question(tier="exact", dense=True))
    assert objection.value > 0


def test_a_bug_is_still_caught():
    objection, _, _ = judged(SUM, Question(tier="portable", dense=True))
    assert objection.stage == "moe"


def test_the_canary_names_what_differs():
    recorded = canary.canary()
    assert canary.differing(recorded, recorded | dense.PRIMITIVE) == list(dense.PRIMITIVE)


def test_bugs_under_it_are_counted_in_the_portable_tier_alone(call):
    assert "portable tier" in call("mutate", "--dense").error
    assert call("mutate", "--dense", "--tier", "portable", "--record").code == 2
