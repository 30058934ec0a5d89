"""The ledger of decisions: what differs beyond the oracle's noise fails, what differs within it is a counted tie."""

import numpy as np
import pytest

from stages.decisions import Decisions, Left, between_best, story
from stages.gates import Yardstick, judge

GATE = Decisions(0, because="test", margins=between_best)


def yardstick(margins, noise: float | None = 0.01) -> Yardstick:
    margin = np.array(margins, np.float32)
    noises = {} if noise is None else {"margin": noise}
    return Yardstick(outs={"best": np.full(margin.shape, 2.0, np.float32), "margin": margin}, noises=noises)


def ids(*rows) -> np.ndarray:
    return np.array(rows, np.int32)


def test_equal_decisions_measure_nothing():
    assert judge(GATE, ids([1, 2]), ids([1, 2]), yardstick([[0.0, 0.0]]))[0]


def test_a_difference_within_four_times_the_noise_is_a_tie_and_shown():
    passed, found = judge(GATE, ids([1, 2], [3, 4]), ids([1, 9], [3, 4]), yardstick([[1.0, 0.04], [1.0, 1.0]]))
    assert passed
    assert found.value == 0
    assert found.note.startswith("1 ties; leaves the oracle at step 1 of 2, back from step 2 on; its margin there was ")
    assert found.note.endswith("4 times its noise")


def test_a_difference_outside_the_noise_fails_with_its_margin_in_ulp_and_in_noise():
    passed, found = judge(GATE, ids([1, 2], [3, 4]), ids([1, 2], [3, 9]), yardstick([[1.0, 1.0], [1.0, 0.0625]]))
    assert not passed
    assert found.value == 1
    assert found.index == (1, 1)
    assert "leaves the oracle at step 2 of 2, does not come back" in found.note
    assert f"{0.0625 / np.spacing(np.float32(2)):.0f} ULP, 6.25 times its noise" in found.note


def test_without_a_wide_replay_there_are_no_ties():
    passed, found = judge(GATE, ids([1]), ids([2]), yardstick([[1e-9]], noise=None))
    assert not passed
    assert "ULP" in found.note
    assert "noise" not in found.note


def test_without_margins_every_difference_counts():
    gate = Decisions(0, because="test")
    assert judge(gate, np.array([True, False]), np.array([True, True]), Yardstick())[1].value == 1


def test_the_exact_gate_tells_the_same_story():
    oracle = np.arange(12, dtype=np.int32).reshape(4, 3)
    port = oracle.copy()
    port[1:3] += 100
    passed, found = judge(Left(margins=between_best), oracle, port, Yardstick())
    assert not passed
    assert found.value > 0
    assert found.note == "leaves the oracle at step 2 of 4, back from step 4 on"
    assert judge(Left(), oracle, oracle, Yardstick())[0]


@pytest.mark.parametrize("decision", [np.array(True), np.array(3)])
def test_a_single_decision_is_one_step(decision):
    assert story(decision, ~decision, None) == "leaves the oracle at step 1 of 1, does not come back"
    assert story(decision, decision, None) == ""
