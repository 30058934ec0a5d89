import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.chart import charts
from reports.graph import layout
from reports.verdict import Status, Verdict
from reports.views import file_name, flattened, slug


def verdict(
    value, *, occurrence="encoder/layer=5", mode="forced", case="long/float32", tensor="h", gate="exact", bound=0.0
):
    status = Status.PASS if value is not None and bound is not None and value <= bound else Status.FAIL
    return Verdict("gemma", "moe", occurrence, mode, case, tensor, status, gate, value, bound, "", "")


@given(st.lists(st.floats(0, 1e12), min_size=2, max_size=12), st.sampled_from([0.0, 1e-3, 2.0]))
def test_larger_values_stand_higher_and_those_over_the_bound_above_its_line(values, bound):
    (chart,) = charts(verdict(v, bound=bound, occurrence=f"encoder/layer={n}") for n, v in enumerate(values))
    ((_, marks, _), _) = chart.series
    heights = sorted(zip(values, (-mark.y for mark in marks), strict=True))
    assert [h for _, h in heights] == sorted(h for _, h in heights)
    assert all(0 <= mark.x <= chart.width and 0 <= mark.y <= chart.height for mark in marks)
    assert all((mark.y <= chart.bound) for value, mark in zip(values, marks, strict=True) if value > bound)
    assert all((mark.y >= chart.bound) for value, mark in zip(values, marks, strict=True) if value <= bound)


def test_a_chart_keeps_gates_apart_takes_the_worst_and_crosses_out_what_is_no_number():
    found = [
        verdict(3.0),
        verdict(9.0, case="short/float32"),
        verdict(float("inf"), occurrence="encoder/layer=6", mode="free"),
        verdict(0.005, gate="kl", bound=0.001, tensor="logits"),
        verdict(None, gate="", bound=None),
    ]
    exact, kl = charts(found)
    (forced, free) = (marks for _, marks, _ in exact.series)
    assert ["9 differing bits" in mark.title for mark in forced] == [True]
    assert [(mark.finite, mark.good) for mark in free] == [(False, False)]
    assert kl.gate == "kl, bound 0.001"
    assert [text for _, text in kl.ticks][:3] == ["0.001", "0.0005", "0"]


def test_the_graph_stands_below_what_it_comes_after_and_draws_no_implied_edge():
    after = {"a": (), "b": ("a",), "c": ("a", "b"), "d": ("a",), "e": ("c", "d", "elsewhere"), "f": ("a", "e")}
    graph = layout(after)
    heights = {node.name: node.y for node in graph.nodes}
    assert all(heights[p] < heights[name] for name, before in after.items() for p in before if p in heights)
    assert {(above, below) for above, below, _ in graph.edges} == {
        ("a", "b"),
        ("b", "c"),
        ("a", "d"),
        ("c", "e"),
        ("d", "e"),
        ("e", "f"),
    }
    assert all(node.x >= 0 and node.x + node.width <= graph.width + 1 for node in graph.nodes)
    for one in graph.nodes:
        for other in graph.nodes:
            assert one is other or one.y != other.y or one.x + one.width <= other.x or other.x + other.width <= one.x


def test_a_circle_of_stages_is_refused_by_name():
    with pytest.raises(ValueError, match="in a circle: a, b"):
        layout({"a": ("b",), "b": ("a",)})


def test_long_listings_are_counted_not_written_out():
    assert flattened({"data": {str(n): n for n in range(1000)}, "b": [1, None, "x"], "a": {}}) == [
        *(("a", "{}"), ("b.0", "1"), ("b.1", "null"), ("b.2", "x"), ("data", "1000 entries")),
    ]


@given(st.text(), st.text())
def test_other_names_have_other_files(one, other):
    assert (slug(one) == slug(other)) == (one == other)
    assert re.fullmatch(r"[A-Za-z0-9_~-]+", slug(one))
    assert file_name("m", one) != "index.html"


def test_a_name_longer_than_a_file_system_takes_is_cut_and_still_its_own():
    one, other = (file_name("m", "x" * 400 + end) for end in "ab")
    assert one != other
    assert len(one) < 200
