"""Margins of decisions: exact on numbers that binary holds, against sums done by hand."""

import math

import numpy as np
import pytest

from stages.gates import Yardstick
from stages.margins import of_argmax, of_budget, of_stopping, of_threshold


def f32(*values) -> np.ndarray:
    return np.array(values, np.float32)


def accepting(confidence, hidden, *, last: bool = False, threshold: float = 0.5):
    return of_threshold(
        Yardstick(
            ins={
                "confidence": f32(confidence),
                "unrevealed": np.array([hidden]),
                "threshold": np.array(threshold),
                "last": np.array(last),
            }
        )
    ).distance.tolist()[0]


def test_best_token_is_measured_against_the_next_one_in_the_score_s_own_spacing():
    margin = of_argmax(Yardstick(ins={"processed": f32([[1.0, 3.0, 2.5], [4.0, 4.0, -1.0]])}))
    assert margin.distance.tolist() == [[0.5, 0.0]]
    assert margin.spacing.tolist() == [[2.0**-22, 2.0**-21]]
    assert margin.noise is None


def test_with_one_candidate_nothing_is_decided():
    assert of_argmax(Yardstick(ins={"processed": f32([[1.0]])})) is None


def test_confidence_is_measured_against_the_threshold_where_something_hides():
    assert accepting([0.75, 0.5, 0.25, 0.625], [True, True, True, False]) == [0.25, 0.0, 0.25, math.inf]


def test_the_surest_of_an_unsure_row_is_measured_against_the_next():
    assert accepting([0.25, 0.3125, 0.125, 0.4375], [True, True, True, False]) == [0.25, 0.0625, 0.375, math.inf]


def test_the_last_step_decides_nothing():
    assert accepting([0.25, 0.75], [True, True], last=True) == [math.inf, math.inf]


def test_entropy_is_measured_by_the_sum_of_all_smaller_ones():
    margin = of_budget(Yardstick(ins={"entropy": f32([0.5, 0.125, 0.25, 1.0]), "bound": np.array(0.375)}))
    # Sorted 0.125, 0.25, 0.5, 1: before them 0, 0.125, 0.375 and 0.875.
    assert margin.distance.tolist() == [[0.0, 0.375, 0.25, 0.5]]


@pytest.mark.parametrize(("bound", "distance"), [(0.0, math.log(2)), (1.0, 1 - math.log(2))])
def test_stopping_is_measured_by_the_mean_entropy_of_the_canvas(bound, distance):
    # Two sure tokens of four candidates would pull the mean down; these two have 2 and 2 even ones each.
    processed = f32([[0.0, 0.0, -1e4, -1e4], [5.0, -1e4, 5.0, -1e4]])
    ins = {"processed": processed, "confidence": np.array(bound), "stability": np.array(1)}
    assert float(of_stopping(Yardstick(ins=ins)).distance) == pytest.approx(distance, rel=1e-6)
    assert of_stopping(Yardstick(ins=ins | {"stability": np.array(-1)})) is None
