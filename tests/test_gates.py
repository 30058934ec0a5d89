"""What a gate promises whatever the tensors: equal passes, NaN never does, the number grows with the error."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from stages.gates import FLOATS, KL, Agreement, Exact, Within, Yardstick, bits, judge, kl, ulps

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INTEGERS = [np.dtype(name) for name in ("uint8", "int8", "int32", "uint32", "int64", "uint64")]
EVERY = [*FLOATS, *INTEGERS, np.dtype(bool)]
BLANK = Yardstick()
GATES = [Exact(), Within(1.0, because="test"), KL(0.0, because="test"), Agreement(0, because="test")]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
FILLED = hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=4)

quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def tensors(draw, dtypes=tuple(EVERY), shapes=SHAPES):
    """Any finite tensor of any dtype, by its bits: negative zeros and subnormal numbers included."""
    dtype, shape = draw(st.sampled_from(dtypes)), draw(shapes)
    if dtype.kind == "b":
        return draw(hnp.arrays(bool, shape))
    raw = draw(hnp.arrays(f"u{dtype.itemsize}", shape))
    tensor = raw.reshape(-1).view(dtype).reshape(shape)
    if dtype not in FLOATS:
        return tensor
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(np.isfinite(tensor.astype(np.float64)), tensor, dtype.type(1.5)).astype(dtype).reshape(shape)


def indices(shape):
    return st.tuples(*(st.integers(0, side - 1) for side in shape))


def known(tensor: np.ndarray) -> Yardstick:
    """A yardstick with which Within can measure: the oracle was off by one half everywhere."""
    return Yardstick(delta=np.full(tensor.shape, 0.5), noise=0.5)


def is_for(gate, tensor: np.ndarray) -> bool:
    """Whether a table may put this gate on such a tensor: KL and Within are for floats."""
    return tensor.dtype in FLOATS or gate.name in {"exact", "agreement"}


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
@quick
@given(tensor=tensors())
def test_equal_passes(gate, tensor):
    assume(is_for(gate, tensor))
    passed, measured = judge(gate, tensor, tensor.copy(), known(tensor))
    assert passed, measured
    assert measured.value is not None
    assert measured.value <= gate.bound


@quick
@given(data=st.data(), tensor=tensors(shapes=FILLED))
def test_one_flipped_bit_fails_exact_and_is_found(data, tensor):
    index = data.draw(indices(tensor.shape))
    changed = tensor.copy()
    if tensor.dtype.kind == "b":
        changed[index] = not changed[index]
    else:
        width = 8 * tensor.dtype.itemsize
        flat = bits(changed).reshape(-1)
        place = np.ravel_multi_index(index, tensor.shape) if index else 0
        flat[place] ^= flat.dtype.type(1 << data.draw(st.integers(0, width - 1)))
        changed = flat.view(tensor.dtype).reshape(tensor.shape)
    passed, measured = judge(Exact(), tensor, changed, BLANK)
    assert not passed
    assert measured.index == index
    # NumPy knows what is finite of its own types; float32 does not hold every float64.
    known = changed.astype(np.float32) if tensor.dtype.itemsize < 4 else changed
    if tensor.dtype not in FLOATS or np.isfinite(known).all():
        assert measured.value == 1


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["oracle", "port", "both"])
@settings(max_examples=15, deadline=None)
@given(data=st.data(), tensor=tensors(dtypes=FLOATS, shapes=FILLED))
def test_nothing_that_is_not_finite_passes_anywhere(gate, poison, side, data, tensor):
    index = data.draw(indices(tensor.shape))
    ill = tensor.copy()
    ill[index] = poison
    oracle, port = (ill if side in (name, "both") else tensor for name in ("oracle", "port"))
    passed, measured = judge(gate, oracle, port, known(tensor))
    assert not passed
    assert measured.value is None
    assert measured.index == index
    assert measured.note.startswith(("oracle", "port") if side == "both" else side)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
@quick
@given(tensor=tensors(), other=tensors())
def test_another_shape_or_dtype_fails_before_any_number(gate, tensor, other):
    assume(tensor.shape != other.shape or tensor.dtype != other.dtype)
    passed, measured = judge(gate, tensor, other, known(tensor))
    assert not passed
    assert measured.value is None
    assert measured.index is None
    assert "should be" in measured.note


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_shapes_that_numpy_would_broadcast_are_not_alike(gate):
    for one, other in (((3,), (1, 3)), ((1,), (3,)), ((), (1,)), ((0,), (0, 3)), ((2, 3), (3, 2))):
        passed, measured = judge(gate, np.zeros(one, np.float32), np.zeros(other, np.float32), BLANK)
        assert not passed
        assert measured.value is None


def test_the_same_bits_under_another_dtype_are_not_alike():
    tensor = np.ones(4, np.float32)
    assert not judge(Exact(), tensor, tensor.view(np.uint32), BLANK)[0]
    assert not judge(Exact(), tensor.astype(BFLOAT16), tensor.astype(np.float16), BLANK)[0]


# Exact


@quick
@given(tensor=tensors(shapes=FILLED), order=st.randoms(use_true_random=False))
def test_exact_counts_bits_and_grows_with_every_further_one(tensor, order):
    assume(tensor.dtype not in FLOATS and tensor.dtype.kind != "b")
    places = [(i, b) for i in range(tensor.size) for b in range(8 * tensor.dtype.itemsize)]
    order.shuffle(places)
    flat = bits(tensor).reshape(-1).copy()
    for count, (i, b) in enumerate(places[:20], start=1):
        flat[i] ^= flat.dtype.type(1 << b)
        measured = Exact().measure(tensor, flat.view(tensor.dtype).reshape(tensor.shape), BLANK)
        assert measured.value == count


def test_exact_tells_zeros_apart_by_their_sign():
    for dtype in FLOATS:
        passed, measured = judge(Exact(), np.zeros(3, dtype), np.array([0.0, -0.0, 0.0], dtype), BLANK)
        assert not passed
        assert (measured.value, measured.index) == (1, (1,))


def test_exact_names_the_element_furthest_off_not_the_one_of_most_bits():
    oracle = np.array([1.0, 1.0, 0.0], np.float32)
    port = np.array([1.0 - 2**-24, 64.0, -0.0], np.float32)
    passed, measured = judge(Exact(), oracle, port, BLANK)
    assert not passed
    assert measured.index == (1,)


def test_exact_sees_integers_that_float64_cannot_tell_apart():
    passed, measured = judge(Exact(), np.array([0, 2**60], np.int64), np.array([0, 2**60 + 1], np.int64), BLANK)
    assert not passed
    assert (measured.value, measured.index) == (1, (1,))


def test_exact_measures_where_the_difference_overflows():
    largest = np.finfo(np.float64).max
    passed, measured = judge(Exact(), np.array([0.0, largest]), np.array([0.0, -largest]), BLANK)
    assert not passed
    assert (measured.value, measured.index) == (1, (1,))


# Within

SIZES = st.floats(1e-6, 1e6)
ROWS = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5)


@st.composite
def measured_rows(draw):
    """(oracle, delta, direction): a tensor, its own error (nowhere zero) and a way to leave the reference."""
    shape = draw(ROWS)
    numbers = st.floats(-8, 8, allow_subnormal=False).map(lambda x: round(x, 3))
    parts = [draw(hnp.arrays(np.float64, shape, elements=numbers)) for _ in range(3)]
    oracle, delta, direction = parts
    return oracle, np.where(delta == 0, 0.25, delta), np.where(direction == 0, 0.5, direction)


@quick
@given(rows=measured_rows(), near=st.floats(0, 50), further=st.floats(1.01, 20))
def test_within_grows_with_the_distance_to_the_wide_reference(rows, near, further):
    oracle, delta, direction = rows
    gate, yardstick = Within(3, because="test"), Yardstick(delta=delta)
    reference = oracle + delta
    small, large = (
        gate.measure(oracle, reference + t * direction, yardstick).value for t in (near, near * further + 0.5)
    )
    assert small < large


@quick
@given(rows=measured_rows())
def test_within_asks_the_oracle_itself_for_at_most_one(rows):
    oracle, delta, _ = rows
    value = Within(1, because="test").measure(oracle, oracle, Yardstick(delta=delta)).value
    assert 0 <= value <= 1


def test_within_is_a_ratio_of_root_mean_squares_by_hand():
    oracle = np.zeros((2, 2))
    delta = np.array([[3.0, 4.0], [0.0, 0.0]])  # rms 3.5355 in the first row, 2.5 over all
    port = np.array([[0.0, 0.0], [0.0, 5.0]])  # the second row is off by 3.5355
    passed, measured = judge(Within(1.4, because="test"), oracle, port, Yardstick(delta=delta))
    assert not passed
    assert measured.value == pytest.approx(2**0.5)
    assert measured.index == (1, 1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (2, 3, 4), (1, 2, 3, 4)])
def test_within_names_the_element_that_was_moved(dtype, shape):
    oracle = np.ones(shape, dtype)
    delta = np.full(shape, 2.0**-9)
    moved = np.unravel_index(oracle.size // 2, shape)
    port = oracle.copy()
    port[moved] = 1.5
    passed, measured = judge(Within(3, because="test"), oracle, port, Yardstick(delta=delta))
    assert not passed
    assert measured.index == tuple(map(int, moved))


def test_a_row_that_the_oracle_rounded_luckily_is_held_to_the_whole_tensor():
    oracle = np.zeros((2, 4))
    delta = np.array([[0.0] * 4, [1.0] * 4])
    port = np.array([[0.5] * 4, [0.0] * 4])
    assert Within(1, because="test").measure(oracle, port, Yardstick(delta=delta)).value == 1  # of the second row


def test_an_oracle_without_rounding_leaves_no_room_for_any():
    oracle = np.ones((2, 3), np.float32)
    exact = Yardstick(delta=np.zeros((2, 3)), noise=0.0)
    assert judge(Within(3, because="test"), oracle, oracle, exact)[0]
    port = np.nextafter(oracle, np.float32(2))
    passed, measured = judge(Within(3, because="test"), oracle, port, exact)
    assert not passed
    assert measured.value == np.inf


@quick
@given(rows=measured_rows(), noise=SIZES, near=st.floats(0, 50), further=st.floats(1.01, 20))
def test_in_a_free_run_the_unit_is_the_noise_that_travelled(rows, noise, near, further):
    oracle, _, direction = rows
    gate, yardstick = Within(3, because="test"), Yardstick(noise=noise)
    small, large = (gate.measure(oracle, oracle + t * direction, yardstick).value for t in (near, near * further + 0.5))
    assert small < large
    assert gate.measure(oracle, oracle, yardstick).value == 0


@pytest.mark.parametrize(
    "yardstick",
    [
        BLANK,
        Yardstick(delta=np.array([0.1, np.nan])),
        Yardstick(delta=np.array([0.1, np.inf])),
        Yardstick(noise=np.nan),
        Yardstick(noise=np.inf),
    ],
    ids=["none", "nan", "infinite", "nan noise", "infinite noise"],
)
def test_a_yardstick_that_measures_nothing_passes_nothing(yardstick):
    passed, measured = judge(Within(3, because="test"), np.zeros(2), np.array([0.0, 1e9]), yardstick)
    assert not passed
    assert measured.value is None
    assert "harness dump" in measured.note


def test_an_error_too_large_to_square_is_still_an_error():
    passed, _ = judge(Within(3, because="test"), np.zeros(2), np.full(2, 1e300), Yardstick(delta=np.full(2, 1e200)))
    assert not passed


# KL

LOGITS = st.floats(-30, 30, width=32, allow_subnormal=False)


@st.composite
def logit_pairs(draw, rows=3, classes=6):
    shape = (draw(st.integers(1, rows)), draw(st.integers(2, classes)))
    return tuple(draw(hnp.arrays(np.float32, shape, elements=LOGITS)) for _ in range(2))


@quick
@given(pair=logit_pairs())
def test_kl_is_never_negative_and_finite(pair):
    divergence = kl(*pair)
    assert np.isfinite(divergence).all()
    assert (divergence >= 0).all()


@quick
@given(data=st.data(), pair=logit_pairs())
def test_kl_is_zero_only_where_logits_are_equal(data, pair):
    logits, _ = pair
    logits = np.where(np.abs(logits) < 1e-3, np.float32(1), logits)
    assert (kl(logits, logits) == 0).all()
    index = data.draw(indices(logits.shape))
    changed = logits.copy()
    changed[index] = np.nextafter(changed[index], np.float32(0))
    passed, measured = judge(KL(0.0, because="test"), logits, changed, BLANK)
    assert not passed
    assert measured.value > 0
    assert measured.index == index[:1]


@quick
@given(pair=logit_pairs(), near=st.floats(0.001, 1), further=st.floats(1.05, 4))
def test_kl_grows_along_any_ray(pair, near, further):
    start, toward = (x.astype(np.float64) for x in pair)
    assume((np.ptp(toward, axis=-1) > 0.5).all())
    small, large = (
        KL(0, because="test").measure(start, start + t * toward, BLANK).value for t in (near, near * further)
    )
    assert small < large


@pytest.mark.parametrize("shift", [2.0**-10, -3.0, 12.5])
def test_a_constant_added_at_a_position_is_the_one_equality_that_logits_do_not_show(shift):
    logits = np.array([[1.0, -2.5, 0.75], [4.0, 4.0, -8.0]], np.float32)
    assert KL(0.0, because="test").measure(logits, logits + np.float32(shift), BLANK).value == pytest.approx(
        0, abs=1e-28
    )
    assert not judge(Exact(), logits, logits + np.float32(shift), BLANK)[0]


def test_kl_of_two_coins_by_hand():
    p, q = np.array([0.75, 0.25]), np.array([0.5, 0.5])
    expected = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    assert kl(np.log(p), np.log(q)) == pytest.approx(expected, rel=1e-12)


def test_kl_takes_the_worst_position_not_the_mean():
    oracle = np.zeros((2, 50, 4), np.float32)
    port = oracle.copy()
    port[1, 7, 2] = 3
    passed, measured = judge(KL(0.3, because="test"), oracle, port, BLANK)
    assert not passed
    assert measured.index == (1, 7)
    assert measured.value == pytest.approx(np.log((3 + np.e**3) / 4) - 3 / 4, rel=1e-12)


def test_kl_of_logits_without_a_cap_is_a_number_too():
    oracle, port = np.array([[0.0, -2000.0]]), np.array([[0.0, 0.0]])
    assert kl(oracle, port) == pytest.approx(np.log(2), rel=1e-12)
    assert kl(port, oracle) == pytest.approx(1000 - np.log(2), rel=1e-12)


# Agreement

IDS = st.lists(st.permutations(range(8)).map(lambda order: order[:3]), min_size=1, max_size=5)


@quick
@given(chosen=IDS, data=st.data())
def test_rows_of_integers_agree_as_sets(chosen, data):
    oracle = np.array(chosen, np.int32)
    port = np.array([data.draw(st.permutations(row)) for row in chosen], np.int32)
    passed, measured = judge(Agreement(0, because="test"), oracle, port, BLANK)
    assert passed
    assert measured.value == 0


@quick
@given(chosen=IDS, data=st.data())
def test_every_row_that_chose_otherwise_is_one_miss(chosen, data):
    oracle = np.array(chosen, np.int32)
    wrong = data.draw(st.sets(st.integers(0, len(chosen) - 1), min_size=1))
    port = oracle.copy()
    for row in wrong:
        port[row, data.draw(st.integers(0, 2))] = 8  # an expert that the oracle cannot have chosen
    passed, measured = judge(Agreement(0, because="test"), oracle, port, BLANK)
    assert not passed
    assert measured.value == len(wrong)
    assert measured.index == (min(wrong),)
    assert judge(Agreement(len(wrong), because="test"), oracle, port, BLANK)[0]
    assert not judge(Agreement(len(wrong) - 1, because="test"), oracle, port, BLANK)[0]


def test_a_set_with_an_expert_twice_is_another_set():
    assert not judge(Agreement(0, because="test"), np.array([[1, 2, 3]]), np.array([[1, 3, 3]]), BLANK)[0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_of_floats_agree_by_their_argmax(dtype):
    oracle = np.array([[0.0, 2.0, 1.0], [5.0, 4.0, 3.0]], dtype)
    assert judge(Agreement(0, because="test"), oracle, oracle * oracle, BLANK)[0]
    port = np.array([[0.0, 2.0, 1.0], [4.0, 5.0, 3.0]], dtype)
    passed, measured = judge(Agreement(0, because="test"), oracle, port, BLANK)
    assert not passed
    assert (measured.value, measured.index) == (1, (1,))
    assert "the oracle chose [0], the port [1]" in measured.note


def scores_note(scores: np.ndarray, oracle: list[int], port: list[int], noise: float | None = None) -> str:
    gate = Agreement(0, because="test", scores="scores")
    yardstick = Yardstick(ins={"scores": scores[None]}, noise=noise)
    passed, measured = judge(gate, np.array([oracle], np.int32), np.array([port], np.int32), yardstick)
    assert not passed
    return measured.note


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_tie_and_a_bug_look_different(dtype):
    tie = np.array([1.0, 1.0, 0.5], dtype)
    assert "by a margin of 0 ULP" in scores_note(tie, [0], [1])
    near = bits(np.array([1.0, 1.0, 0.5], dtype)).copy()
    near[0] += 3
    assert "by a margin of 3 ULP" in scores_note(near.view(dtype), [0], [1])
    bug = scores_note(np.array([1.0, -1.0, 0.5], dtype), [0, 2], [1, 2], noise=0.125)
    assert "the oracle chose [0], the port [1]" in bug
    assert "16 times its noise" in bug


@pytest.mark.parametrize("strange", [8, -1, 2**31 - 1])
def test_an_expert_that_does_not_exist_is_a_miss_not_a_crash(strange):
    assert f"the oracle chose [2], the port [{strange}]" in scores_note(np.arange(8.0), [1, 2], [1, strange])


# ULP


@quick
@given(tensor=tensors(dtypes=FLOATS, shapes=st.just(())), steps=st.integers(0, 100))
def test_ulps_count_representable_numbers_across_zero(tensor, steps):
    integer = f"i{tensor.dtype.itemsize}"
    raw = int(bits(tensor).view(integer))
    least = int(np.iinfo(integer).min)
    # On the line of floats, the negative ones lie in the order opposite to that of their bits.
    place = raw if raw >= 0 else least - raw
    there = place + steps
    other = np.array(there if there >= 0 else least - there, integer).view(tensor.dtype)
    assume(np.isfinite(other.astype(np.float64)))
    assert ulps(tensor, other) == ulps(other, tensor) == steps


def test_empty_tensors_are_equal_only_in_shape_and_dtype():
    for gate in GATES:
        empty = np.zeros((0, 3), np.float32)
        assert judge(gate, empty, empty.copy(), BLANK)[0]
        assert not judge(gate, empty, np.zeros((3, 0), np.float32), BLANK)[0]
