"""Away from the recording's backend: ties are told from bugs step by step, and nothing passes for having been cut."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goldens.store import Golden, Record
from reports.verdict import Status
from stages import followed
from stages.asked import table_of
from stages.gates import Unasked, Within, Yardstick, judge
from stages.judge import Border, Judge, _FreeRun
from stages.places import COMMITTED, golden_path
from stages.ties import NEAR, near

TABLE = table_of("diffusion_gemma")
STEPS, C = 3, 4
CONFIG = {"sampler_config": {"entropy_bound": 0.5}, "stability_threshold": 1, "confidence_threshold": 0.1}


def canvas(sampler="confidence-threshold", rounding=0.01, **outs) -> Record:
    """Three steps of four positions, of which the last does not sample; everything far from anything else."""
    asked = {"sampler": sampler, "threshold": 0.9, "temperature": 0.0, "steps": STEPS, "show": False}
    sampled = (STEPS - 1, 1, C)
    given = {
        "argmax": np.arange(STEPS * C, dtype=np.int32).reshape(STEPS, 1, C),
        "accepted": np.array([[[True, False, False, False]], [[False, True, False, False]]]),
        "revealed": np.array([[[True, False, False, False]], [[True, True, False, False]]]),
        "canvas": np.full(sampled, 7, np.int32),
        "stop": np.array([False, False, True]),
        "best": np.full((STEPS, 1, C), 5.0, np.float32),
        "margin": np.full((STEPS, 1, C), 2.0, np.float32),
        "measure": np.array([[[0.99, 0.2, 0.3, 0.1]], [[0.2, 0.99, 0.3, 0.1]]], np.float32),
        "some_logits": np.zeros((STEPS, 1, C, 2), np.float32),
        "some_soft": np.zeros((STEPS - 1, 1, C, 2), np.float32),
        **outs,
    }
    ins = {
        "options": np.frombuffer(json.dumps({**asked, "generation_config": CONFIG}).encode(), np.uint8),
        "tokens": np.zeros((1, C), np.int32),
        "noise": np.zeros(sampled, np.int32),
        "drawn": np.zeros((0, 1, C), np.int32),
    }
    wide = {n: np.full(x.shape, rounding) for n, x in given.items() if x.dtype == np.float32}
    return Record(ins, given, wide, {})


def changed(outs, name, index, value):
    port = {n: x.copy() for n, x in outs.items()}
    port[name][index] = value
    return port


def closely(step, position, margin):
    """A canvas with one best token near another one."""
    margins = np.full((STEPS, 1, C), 2.0, np.float32)
    margins[step, 0, position] = margin
    return canvas(margin=margins)


# How near decisions are


def test_a_best_token_is_as_near_as_its_margin_in_roundings_of_its_own_step():
    record = closely(1, 2, 0.03)
    record.wide["margin"][0] = 1.0  # another step's is not looked at
    found = near(record, record).best
    assert found[1, 0, 2] == pytest.approx(3)
    assert found[0, 0, 0] == pytest.approx(2)


def test_without_a_replay_only_equal_scores_are_near():
    record = replace(closely(1, 2, 0.0), wide={})
    found = near(record, record).best
    assert found[1, 0, 2] == 0
    assert np.isinf(np.delete(found.ravel(), 6)).all()


def test_confidence_is_near_its_threshold_and_what_is_revealed_decides_nothing():
    measure = np.array([[[0.95, 0.88, 0.3, 0.1]], [[0.2, 0.95, 0.3, 0.1]]], np.float32)
    record = canvas(measure=measure)
    found = near(record, record).accepted
    assert found[0, 0].tolist() == pytest.approx([5, 2, 60, 80], rel=1e-5)
    assert np.isinf(found[1, 0, 0])


def test_where_none_reaches_the_threshold_the_surest_is_near_the_next():
    measure = np.array([[[0.52, 0.5, 0.3, 0.1]], [[0.2, 0.95, 0.3, 0.1]]], np.float32)
    record = canvas(measure=measure)
    assert near(record, record).accepted[0, 0].tolist() == pytest.approx([2, 2, 22, 42], rel=1e-5)


def test_entropy_is_near_where_the_sum_before_it_is_near_the_bound_or_the_order_is():
    measure = np.array([[[0.2, 0.28, 0.9, 0.1]], [[0.1, 0.1, 3.0, 3.02]]], np.float32)
    record = canvas("entropy-bound", measure=measure)  # the bound is 0.5
    found = near(record, record).accepted
    # Sums before them: 0.1 and 0.3 of one and two roundings, 0.58 of three, 0 of none; across the bound 0.62.
    assert found[0, 0].tolist() == pytest.approx([40, 0.2 / 0.01 / 2**0.5, 0.08 / 0.01 / 3**0.5, 80], rel=1e-5)
    # The third's sum is 0.2, far from it; but the fourth, behind the bound, could stand in its place.
    assert found[1, 0, 2:].tolist() == pytest.approx([2, 2], rel=1e-4)


def test_an_end_is_as_near_as_the_rules_mean_and_whatever_it_follows_from():
    measure = np.array([[[0.12, 0.12, 0.12, 0.12]], [[2.0, 2.0, 2.0, 2.0]]], np.float32)
    found = near(*[canvas("entropy-bound", measure=measure)] * 2).stop
    assert found[0] == pytest.approx(2, rel=1e-4)
    argmax = near(*[closely(0, 1, 0.03)] * 2).stop
    assert argmax[:2].tolist() == pytest.approx([3, 3])  # the step after remembers these best tokens


# Canvases whose steps are told


def test_a_tie_is_set_aside_and_told():
    record = closely(1, 2, NEAR * 0.01)
    settled = followed.forced(record, changed(record.outs, "argmax", (1, 0, 2), 99))
    assert np.array_equal(settled.outs["argmax"], record.outs["argmax"])
    assert settled.note == "1 tie set aside, at most 6 times the oracle's rounding apart"
    assert settled.parting is None


@pytest.mark.parametrize("name", ["argmax", "accepted", "revealed", "canvas", "stop"])
def test_what_rounding_cannot_turn_is_left_to_fail(name):
    record = canvas()
    index = (1,) if name == "stop" else (1, 0, 2)
    value = 99 if record.outs[name].dtype == np.int32 else not record.outs[name][index]
    port = changed(record.outs, name, index, value)
    for settled in (followed.forced(record, port), followed.free(record, record, port)):
        assert not np.array_equal(settled.outs[name], record.outs[name])
        assert settled.record.outs[name].shape == record.outs[name].shape
        assert settled.note == ""
        assert settled.parting is None


def test_a_tie_at_one_position_excuses_no_other():
    record = closely(1, 2, 0.01)
    port = changed(changed(record.outs, "argmax", (1, 0, 2), 99), "argmax", (1, 0, 3), 99)
    assert followed.forced(record, port).outs["argmax"][1, 0].tolist() == [4, 5, 6, 99]
    assert np.array_equal(followed.free(record, record, port).outs["argmax"], port["argmax"])


def test_what_is_missing_or_of_another_shape_is_left_to_fail():
    record = canvas()
    for port in (
        {n: x for n, x in record.outs.items() if n != "accepted"},
        {**record.outs, "accepted": record.outs["accepted"][..., :2]},
    ):
        assert followed.forced(record, port).outs is port
        assert followed.free(record, record, port).outs is port


# Canvases that go on by themselves


def test_a_tie_ends_what_is_compared_and_everything_before_it_still_is():
    record = closely(1, 2, 0.01)
    port = changed(changed(record.outs, "argmax", (1, 0, 2), 99), "canvas", (1, 0, 2), 99)
    port = {name: np.full_like(x, 42) if name == "nothing" else x for name, x in port.items()}
    port["argmax"][2] = 42  # what follows
    settled = followed.free(record, record, port, where=3, before=(10, 20))
    assert len(settled.outs["argmax"]) == len(settled.record.outs["argmax"]) == 2
    assert np.array_equal(settled.outs["argmax"], record.outs["argmax"][:2])
    assert {name: len(settled.outs[name]) for name in ("margin", "some_logits", "measure")} == {
        "margin": 2, "some_logits": 2, "measure": 2,
    }  # fmt: skip
    assert {name: len(settled.outs[name]) for name in ("accepted", "canvas", "stop", "some_soft")} == {
        "accepted": 1, "canvas": 1, "stop": 1, "some_soft": 1,
    }  # fmt: skip
    assert len(settled.record.wide["margin"]) == 2
    assert settled.parting == followed.Parting(3, 2, 10 + 1 + 1, 20, settled.note)
    assert settled.note.startswith("followed 1 of 3 steps of canvas 3, then a tie: 2 decisions within 1 times")


def test_a_tie_that_changes_no_canvas_ends_nothing():
    record = closely(0, 2, 0.01)
    port = changed(record.outs, "argmax", (0, 0, 2), 99)
    settled = followed.free(record, record, port)
    assert settled.parting is None
    assert np.array_equal(settled.outs["argmax"], record.outs["argmax"])
    port["argmax"][2, 0, 1] = 99  # and a bug after it is still one
    assert followed.free(record, record, port).outs["argmax"][2, 0, 1] == 99


def test_at_the_last_step_the_best_tokens_are_what_the_canvas_gives():
    record = closely(2, 0, 0.01)
    settled = followed.free(record, record, changed(record.outs, "argmax", (2, 0, 0), 99))
    assert settled.parting.number == 1
    assert settled.note.startswith("followed 2 of 3 steps")


def test_an_end_that_rounding_can_turn_parts_them_and_another_fails():
    measure = np.array([[[0.05, 0.1, 0.15, 0.18]], [[1.0, 2.0, 3.0, 4.0]]], np.float32)
    record = canvas("entropy-bound", measure=measure)
    early = {**{name: x[:1] for name, x in record.outs.items()}, "stop": np.array([True])}
    assert followed.free(record, record, early).parting.number == STEPS
    unsure = canvas("entropy-bound", measure=measure + 5)
    assert followed.free(unsure, unsure, early).outs is early


# What follows from a canvas


@pytest.mark.parametrize(
    ("at", "parted"),
    [
        ({"canvas": 0, "step": 1}, False),
        ({"canvas": 1, "step": 3}, False),
        ({"canvas": 1, "step": 2}, True),
        ({"canvas": 1, "forced": True}, False),
        ({"canvas": 2, "step": 3}, True),
        ({"canvas": 2, "free": True}, True),
        ({"whole": True}, False),
    ],
)
def test_what_comes_after_a_tie(at, parted):
    assert followed.Parting(1, 2, 0, 0, "").parted(at) is parted


def run(tokens, draws, finish="length"):
    texts = {"outcome": "finished", "finish": finish, "segments": json.dumps(tokens), "drafts": "[]"}
    log = [{"kind": kind, "sha256": value} for kind, value in draws]
    numbers = {"tokens": np.array(tokens, np.int32), "steps": np.array([3, 3], np.int32)}
    bytes_ = {n: np.frombuffer(x.encode(), np.uint8) for n, x in {**texts, "draws": json.dumps(log)}.items()}
    return {**bytes_, **numbers}


NOISE = [("randint", "a"), ("randint", "b"), ("randint", "c")]


def test_a_generation_is_compared_up_to_the_tie():
    record = Record({}, run([1, 2, 3, 4, 5, 6], [*NOISE, ("randint", "d")]), {}, {})
    parting = followed.Parting(1, 2, 3, 4, "followed")
    same = followed.whole(record, run([1, 2, 3, 4, 9, 9], [*NOISE, ("randint", "x")], "stop"), parting)
    assert {n: x.tobytes() for n, x in same.outs.items()} == {n: x.tobytes() for n, x in same.record.outs.items()}
    assert same.outs["tokens"].tolist() == [1, 2, 3, 4]
    assert same.outs["steps"].tolist() == [3]
    assert len(json.loads(same.outs["draws"].tobytes())) == 3
    other = followed.whole(record, run([1, 2, 9, 4], [NOISE[0], ("randint", "x")]), parting)
    assert other.outs["tokens"].tolist() == [1, 2, 9, 4]
    assert not np.array_equal(other.outs["draws"], other.record.outs["draws"])
    assert followed.whole(record, record.outs, parting).note == ""


def test_without_a_tie_a_generation_is_compared_whole():
    record = Record({}, run([1, 2], NOISE), {}, {})
    for port in (run([1, 3], NOISE), run([1, 2], NOISE[:2]), run([1, 2], [*NOISE[:2], ("randint", "x")])):
        settled = followed.whole(record, port, None)
        assert any(not np.array_equal(settled.outs[n], x) for n, x in settled.record.outs.items())


def test_chosen_tokens_are_compared_by_what_they_lead_to():
    record = Record({}, run([1, 2], [*NOISE, ("categorical", "d")]), {}, {})
    settled = followed.whole(record, run([1, 2], [*NOISE, ("categorical", "x")]), None)
    assert np.array_equal(settled.outs["draws"], settled.record.outs["draws"])
    lacking = followed.whole(record, run([1, 2], NOISE), None)
    assert not np.array_equal(lacking.outs["draws"], lacking.record.outs["draws"])


# Within the harness


@pytest.fixture
def held():
    golden = Golden.open(Path(golden_path(COMMITTED, TABLE.model, "confidence", "float32")))
    return Judge(TABLE, golden, "confidence/float32", "portable", None, {})


def test_a_free_run_is_judged_up_to_its_tie_and_no_further(held):
    record, stage = held.golden.read("denoise_canvas", "canvas=0/free"), TABLE["denoise_canvas"]
    nearness = near(record, held.golden.read("denoise_canvas", "canvas=0/forced"))
    position = int(np.argmin(nearness.best[-1, 0]))
    assert nearness.best[-1, 0, position] <= NEAR
    port = changed(record.outs, "argmax", (-1, 0, position), 3)
    rows = {row.tensor: row for row in held.hold(Border(stage, "canvas=0/free", "free"), record, port)}
    assert {row.status for row in rows.values()} == {Status.PASS}
    assert rows.keys() == stage.gives.keys() - {"logits", "soft"}
    assert "followed 5 of 6 steps of canvas 0" in rows["argmax"].note
    assert held.partings.keys() == {""}
    free = _FreeRun(held)
    later = held.verdict(Border(TABLE["sampler_step"], "canvas=1/step=5", "free"), "argmax", Status.FAIL)
    assert free._parted(later)
    assert not free._parted(replace(later, occurrence="canvas=0/step=5"))


def test_a_difference_that_is_no_tie_fails_and_parts_nothing(held):
    record, stage = held.golden.read("denoise_canvas", "canvas=0/free"), TABLE["denoise_canvas"]
    port = changed(record.outs, "argmax", (0, 0, 0), 3)
    rows = {row.tensor: row.status for row in held.hold(Border(stage, "canvas=0/free", "free"), record, port)}
    assert rows["argmax"] is Status.FAIL
    assert not held.partings


def test_an_early_step_is_held_to_its_own_rounding_whatever_later_ones_lost(held):
    record, stage = held.golden.read("denoise_canvas", "canvas=0/forced"), TABLE["denoise_canvas"]
    port = {n: x.copy() for n, x in record.outs.items()}
    port["best"][0] += 1e-4  # the last step's rounding is a thousand times that
    rows = {row.tensor: row.status for row in held.hold(Border(stage, "canvas=0/forced", "forced"), record, port)}
    assert rows["best"] is Status.FAIL


# Gates


def test_apart_a_step_has_a_yardstick_of_its_own():
    oracle, delta = np.zeros((2, 3, 4), np.float32), np.ones((2, 3, 4))
    delta[0] = 1e-3
    port = oracle.copy()
    port[0, 1] = 0.01
    yardstick = Yardstick(delta)
    assert Within(6, because="test").measure(oracle, port, yardstick).value < 2
    found = Within(6, because="test", apart=True).measure(oracle, port, yardstick)
    assert found.value == pytest.approx(9)
    assert found.index == (0, 1, 0)


def test_what_is_not_asked_has_no_number_to_fail():
    assert judge(Unasked(because="test"), np.zeros(2), np.ones(2), Yardstick())[0]
