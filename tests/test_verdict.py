import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.verdict import Status, Verdict, Worst, exit_code, line, measured, number, overall, summarize


def verdict(status=Status.PASS, **rest):
    fields = {
        "model": "diffusion_gemma",
        "stage": "moe",
        "occurrence": "encoder/layer=5",
        "mode": "forced",
        "case": "long/bfloat16",
        "tensor": "h",
        "gate": "exact",
        "value": 0.0,
        "bound": 0.0,
        "where": "",
        "note": "",
    }
    return Verdict(status=status, **fields | rest)


worsts = st.builds(
    Worst, st.lists(st.integers(0, 9), max_size=4).map(tuple), st.text(), st.text(), st.text(), st.text(), st.floats()
)
verdicts = st.builds(
    verdict,
    st.sampled_from(Status),
    occurrence=st.text(),
    tensor=st.text(),
    gate=st.text(),
    value=st.none() | st.floats(),
    bound=st.none() | st.floats(0, 1e9),
    note=st.text(),
    because=st.text(),
    tier=st.sampled_from(["exact", "portable"]),
    worst=st.lists(worsts, max_size=3).map(tuple),
)


def test_a_failure_reads_as_one_line_with_address_number_bound_and_both_values():
    failed = verdict(
        Status.FAIL, value=7.0, where="T=4, D=6", worst=(Worst((4, 6), "-3.9958", "-3.9998", "0xc080", "0xc081", 1.0),)
    )
    assert line(failed) == (
        "FAIL moe[encoder/layer=5].h exact: 7 differing bits (bound 0) at T=4, D=6: oracle -3.9958, port -3.9998"
    )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            verdict(Status.FAIL, gate="within(2)", value=7.1, bound=2.0, where="T=4"),
            "FAIL moe[encoder/layer=5].h within: 7.1 (bound 2) at T=4",
        ),
        (
            verdict(Status.FAIL, value=None, where="T=4", note="port is nan here"),
            "FAIL moe[encoder/layer=5].h exact: T=4: port is nan here",
        ),
        (
            verdict(Status.LOCKED, occurrence="", tensor="", gate="", value=None, bound=None, note="waits for router"),
            "LOCKED moe: waits for router",
        ),
        (verdict(Status.FAIL, value=1.0), "FAIL moe[encoder/layer=5].h exact: 1 differing bit (bound 0)"),
    ],
)
def test_lines_leave_out_what_is_not_known(found, text):
    assert line(found) == text


def test_the_note_stands_instead_of_the_first_element_where_there_is_one():
    failed = verdict(Status.FAIL, value=7.0, note="oracle 1, port 2", worst=(Worst((0,), "3", "4", "", "", 1.0),))
    assert line(failed).endswith("oracle 1, port 2")


def test_json_has_exactly_the_twelve_public_fields():
    assert list(verdict(worst=(Worst((0,), "1", "2", "", "", 1.0),)).to_json()) == [
        *("model", "stage", "occurrence", "mode", "case", "tensor"),
        *("status", "gate", "value", "bound", "where", "note"),
    ]


@pytest.mark.parametrize(("value", "text"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_json_stays_json_when_a_value_is_no_number(value, text):
    document = json.dumps(verdict(Status.FAIL, value=value).to_json(), allow_nan=False)
    assert json.loads(document)["value"] == text


@given(verdicts)
def test_records_survive_json(found):
    again = Verdict.from_record(json.loads(json.dumps(found.to_record())))
    assert repr(again) == repr(found)  # repr, since a NaN is not equal to itself
    assert isinstance(again.status, Status)


@pytest.mark.parametrize("record", [[], verdict().to_record()[:-1], [*verdict().to_record()[:6], "MAYBE"] + [""] * 8])
def test_a_record_of_another_shape_is_refused(record):
    with pytest.raises(ValueError, match="16 fields"):
        Verdict.from_record(record)


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 1),
        ([Status.PASS], 0),
        ([Status.PASS, Status.PASS], 0),
        ([Status.PASS, Status.FAIL], 1),
        ([Status.LOCKED], 1),
        ([Status.PASS, Status.INCONCLUSIVE], 1),
        ([Status.FAIL, Status.STALE], 3),
        ([Status.STALE, Status.ERROR, Status.FAIL], 4),
    ],
)
def test_exit_codes(statuses, code):
    assert exit_code(verdict(status) for status in statuses) == code


@given(st.lists(st.sampled_from(Status)))
def test_only_pass_alone_is_success(statuses):
    assert (exit_code(map(verdict, statuses)) == 0) == (set(statuses) == {Status.PASS})


def test_counts_name_every_status():
    counts = summarize([verdict(), verdict(Status.FAIL)])
    assert list(counts) == list(Status)
    assert sum(counts.values()) == 2
    assert counts[Status.PASS] == counts[Status.FAIL] == 1


def test_the_worst_status_stands_for_many():
    assert overall([Status.PASS, Status.LOCKED, Status.FAIL]) is Status.FAIL
    assert overall([]) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (123456.0, "123456"), (7.123456, "7.123"), (1.25e-7, "1.25e-07"), (math.nan, "nan")],
)
def test_numbers(value, text):
    assert number(value) == text


def test_a_value_that_is_no_number_has_no_unit():
    assert measured("exact", math.nan) == "nan"
    assert measured("agreement(0)", 1.0) == "1 miss"
