import json

import ml_dtypes
import numpy as np
import pytest

from reports.spread import BINS, SIDE, Spread, label
from stages.gates import ulps
from stages.spread import SMALL, spread

DTYPES = [ml_dtypes.bfloat16, np.float16, np.float32, np.float64]


def test_equal_bits_have_no_spread_and_equal_numbers_of_other_bits_have_one():
    zeros = np.zeros((2, 3), np.float32)
    assert spread(zeros, zeros.copy(), passed=False) is None
    assert spread(zeros[:0], zeros[:0], passed=False) is None
    found = spread(zeros, -zeros, passed=False)
    assert found.grid == ((0.0,) * 3,) * 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_element_is_counted_in_the_bin_of_its_distance(dtype):
    random = np.random.default_rng(5)
    oracle = random.standard_normal(500).astype(dtype)
    port = (oracle.astype(np.float64) * (1 + random.choice([0, 1e-7, 1e-3, -2.5], 500))).astype(dtype)
    found = spread(oracle, port, passed=False)
    assert sum(found.counts) == 500
    expected = [0] * BINS
    for a, b in zip(oracle, port, strict=True):
        distance = int(ulps(np.array(a), np.array(b)))
        expected[min(distance.bit_length(), BINS - 2)] += 1
    assert list(found.counts) == expected


def test_the_map_stands_for_the_two_longest_axes_and_keeps_the_largest_error():
    oracle = np.zeros((2, 70, 3, 40), np.float32)
    port = oracle.copy()
    port[1, 69, 2, 39], port[0, 0, 0, 1] = 5.0, np.nan
    found = spread(oracle, port, passed=False)
    assert (found.axes, len(found.grid), len(found.grid[0])) == ((1, 3), SIDE, SIDE)
    assert found.grid[-1][-1] == 5.0
    assert found.grid[0][0] == np.inf or found.grid[0][1] == np.inf
    assert found.counts[BINS - 1] == 1
    assert found.differing == 2
    small = spread(oracle, port, passed=True)
    assert (len(small.grid), len(small.grid[0])) == (SMALL, SMALL)


def test_integers_keep_what_the_port_gave_and_scalars_have_one_cell():
    oracle = np.arange(6, dtype=np.int32).reshape(2, 3)
    port = oracle.copy()
    port[1, 2] = -9
    assert spread(oracle, port, passed=False).changed == ((5, -9),)
    assert spread(np.array(True), np.array(False), passed=False).changed == ((0, 0),)
    assert spread(np.array(1.0), np.array(3.5), passed=False).grid == ((2.5,),)
    many = np.zeros(9999, np.int32)
    assert spread(many, many + 1, passed=False).changed is None


def test_records_survive_json_and_others_are_refused():
    found = spread(np.zeros(4, np.float32), np.array([0, 1, np.inf, 2], np.float32), passed=False)
    assert Spread.from_record(json.loads(json.dumps(found.to_record()))) == found
    with pytest.raises(ValueError, match="5 fields with 20 bins"):
        Spread.from_record([[], [], [], [], None])


def test_every_bin_has_its_words():
    assert [label(n) for n in (0, 1, 2, 3, BINS - 2, BINS - 1)] == [
        *("0", "1", "2-3", "4-7", "131072 and more", "no number"),
    ]
