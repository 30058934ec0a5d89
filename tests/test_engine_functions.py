"""The engine's pure functions against their definitions, written out in numpy."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from port.diffusion_gemma.canvas import begin
from port.diffusion_gemma.draws import Replay
from port.diffusion_gemma.samplers import (
    Canvas,
    accept_confidence,
    accept_entropy,
    step_confidence,
    step_entropy,
    token_confidence,
    token_entropy,
)
from port.diffusion_gemma.schedule import Schedule, temper
from port.diffusion_gemma.stopping import Stopping, decide

FLOATS = st.floats(0, 1, width=32)
ROWS = st.lists(st.tuples(FLOATS, st.booleans()), min_size=1, max_size=12)


def test_the_temperature_is_highest_at_the_first_step_and_never_reaches_the_lowest():
    schedule = Schedule(0.4, 0.8)
    degrees = [schedule.temperature(step, 48) for step in range(48, 0, -1)]
    assert degrees[0] == 0.4 + (0.8 - 0.4) * (48 / 48)
    assert degrees == sorted(degrees, reverse=True)
    assert degrees[-1] == 0.4 + (0.8 - 0.4) * (1 / 48) > 0.4


def test_logits_are_divided_by_it():
    logits = np.random.Generator(np.random.PCG64(0)).normal(size=(1, 4, 64)).astype(np.float32)
    divided = np.array(temper(mx.array(logits), 0.7))
    np.testing.assert_array_equal(divided, logits / np.float32(0.7))
    assert (divided != logits * np.float32(1 / 0.7)).any()


@settings(max_examples=60, deadline=None)
@given(ROWS, FLOATS)
def test_confidence_accepts_what_is_sure_or_else_the_surest_hidden_one(rows, threshold):
    confidence, hidden = (np.array([column]) for column in zip(*rows, strict=True))
    confidence = confidence.astype(np.float32)
    accepted = np.array(accept_confidence(mx.array(confidence), mx.array(hidden), threshold, last=False))[0]
    expected = hidden[0] & (confidence[0] >= np.float32(threshold))
    if hidden.any() and not expected.any():
        expected[np.argmax(np.where(hidden[0], confidence[0], -np.inf))] = True
    np.testing.assert_array_equal(accepted, expected)
    last = accept_confidence(mx.array(confidence), mx.array(hidden), threshold, last=True)
    np.testing.assert_array_equal(np.array(last), hidden)


@settings(max_examples=60, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=12), FLOATS)
def test_entropy_accepts_the_least_uncertain_while_those_before_sum_to_the_bound(row, bound):
    entropy = np.array([row], np.float32)
    accepted = np.array(accept_entropy(mx.array(entropy), bound))[0]
    order = np.argsort(entropy[0], kind="stable")
    total, expected = np.float32(0), np.zeros(len(row), bool)
    for position in order:
        total = np.float32(total + entropy[0, position])
        expected[position] = np.float32(total - entropy[0, position]) <= np.float32(bound)
    # Which of two equal entropies comes first is the backend's affair; how often each value is accepted is not.
    assert sorted(entropy[0, accepted]) == sorted(entropy[0, expected])
    assert entropy[0, accepted].min() == entropy.min()  # nothing stands before the first


def test_confidence_and_entropy_are_what_they_are_called():
    logits = np.random.Generator(np.random.PCG64(1)).normal(size=(1, 3, 50)).astype(np.float32) * 4
    wide = np.exp(logits.astype(np.float64))
    p = wide / wide.sum(-1, keepdims=True)
    tokens = np.array([[7, 0, 49]], np.int32)
    sure = np.array(token_confidence(mx.array(logits), mx.array(tokens)))
    np.testing.assert_allclose(sure, np.take_along_axis(p, tokens[..., None], -1)[..., 0], rtol=1e-5)
    np.testing.assert_allclose(np.array(token_entropy(mx.array(logits))), -(p * np.log(p)).sum(-1), rtol=1e-5)
    even = np.array(token_entropy(mx.zeros((1, 1, 8))))
    np.testing.assert_allclose(even, math.log(8), rtol=1e-6)


def canvas_of(tokens, revealed) -> Canvas:
    return Canvas(mx.array([tokens]), mx.array([tokens]), mx.array([revealed]))


def test_what_confidence_accepted_once_stays_and_the_rest_is_noise():
    logits = np.zeros((1, 3, 8), np.float32)
    logits[0, 1, 4] = 20.0
    before = canvas_of([1, 2, 3], [True, False, False])
    made = step_confidence(before, mx.array(logits), mx.array([[0, 4, 0]]), mx.array([[7, 7, 7]]), 0.9, last=False)
    assert made.canvas.tokens.tolist() == [[1, 4, 7]]
    assert made.canvas.draft.tolist() == [[1, 4, 3]]
    assert made.canvas.revealed.tolist() == [[True, True, False]]


def test_entropy_decides_anew_and_shows_its_best_tokens():
    logits = np.zeros((1, 3, 8), np.float32)
    logits[0, 1, 4] = 20.0
    best, drawn, noise = mx.array([[0, 4, 0]]), mx.array([[5, 4, 6]]), mx.array([[7, 7, 7]])
    made = step_entropy(best, mx.array(logits), drawn, noise, 0.01, last=False)
    assert made.accepted.tolist() == [[True, True, False]]  # the second comes first, and the next follows for nothing
    assert made.canvas.tokens.tolist() == [[5, 4, 7]]
    assert made.canvas.draft.tolist() == [[0, 4, 0]]


@pytest.mark.parametrize(
    ("stability", "history", "expected"),
    [(1, [], False), (1, [[4, 2]], True), (1, [[4, 3]], False), (2, [[4, 2]], False), (2, [[4, 2], [4, 2]], True),
     (2, [[1, 1], [4, 2]], False), (0, [], True)],
)  # fmt: skip
def test_stable_is_as_many_equal_steps_before_as_asked_for(stability, history, expected):
    sure = np.zeros((1, 2, 8), np.float32)
    sure[0, [0, 1], [4, 2]] = 60.0
    past = tuple(mx.array([one]) for one in history)
    stop, after = decide(past, mx.array([[4, 2]]), mx.array(sure), Stopping(stability, 0.005))
    assert stop is expected
    assert len(after) == min(len(history) + 1, stability)
    assert not decide(past, mx.array([[4, 2]]), mx.zeros((1, 2, 8)), Stopping(stability, 0.005))[0]


def test_no_rule_never_stops_and_remembers_nothing():
    assert decide((), mx.array([[1]]), mx.zeros((1, 1, 4)), None) == (False, ())


def test_a_canvas_begins_as_noise_of_which_nothing_is_revealed():
    carry = begin(mx.array([[3, 1, 2]]))
    assert carry.canvas.tokens.tolist() == carry.canvas.draft.tolist() == [[3, 1, 2]]
    assert not any(carry.canvas.revealed.tolist()[0])
    assert carry.signal is None
    assert carry.history == ()


def test_a_record_that_does_not_fit_says_so():
    with pytest.raises(ValueError, match="the record is used up"):
        Replay([]).tokens(4)
    with pytest.raises(ValueError, match="draws 4 tokens, and the record holds 3 tokens next"):
        Replay([mx.zeros((1, 3))]).tokens(4)
