"""Borders that are handed on late: with the values that they had, in order, and as far as a run came."""

from collections.abc import Callable

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest

from port import crossed_borders
from port.crossed_borders import Crossings, batched, computed

Seen = list[tuple[str, str, dict[str, np.ndarray], dict[str, np.ndarray]]]


def watched() -> tuple[Seen, Crossings]:
    seen: Seen = []
    return seen, Crossings(lambda *border: seen.append(border))


def test_what_is_written_into_an_array_later_was_not_there() -> None:
    seen, crossed = watched()
    for dtype in (mx.int32, mx.bfloat16):
        x = mx.arange(4).astype(dtype)
        with crossed:
            crossed("cache", "before", {"x": x}, {})
            x[1:3] = 9
            crossed("cache", "after", {"x": x}, {})
            x += 1
    values = [ins["x"].astype(int).tolist() for _, _, ins, _ in seen]
    assert values == [[0, 1, 2, 3], [0, 9, 9, 3]] * 2


def test_dtypes_and_bits_stay() -> None:
    x = mx.array([1.0, -0.0, float("nan")])
    found = computed({"x": x, "half": x.astype(mx.bfloat16), "ready": np.zeros(0, bool), "turned": mx.ones((2, 3)).T})
    assert [str(one.dtype) for one in found.values()] == ["float32", "bfloat16", "bool", "float32"]
    assert found["x"].tobytes() == np.array([1.0, -0.0, np.nan], np.float32).tobytes()
    assert found["half"].tobytes() == np.array([1.0, -0.0, np.nan]).astype(ml_dtypes.bfloat16).tobytes()
    assert found["turned"].shape == (3, 2)


def test_nothing_is_computed_before_it_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, crossed = watched()
    for i in range(3):
        crossed("mlp", f"layer={i}", {"x": mx.ones(4)}, {"h": mx.ones(4) * i}, lambda outs: {"sum": outs["h"].sum()})
    assert not seen
    crossed.hand_on()
    assert [(where, float(outs["sum"])) for _, where, _, outs in seen] == [
        ("layer=0", 0),
        ("layer=1", 4),
        ("layer=2", 8),
    ]
    monkeypatch.setattr(crossed_borders, "_MOST", 1000)
    for _ in range(11):
        crossed("mlp", "large", {"x": np.zeros(25, np.float32)}, {})
    assert len(seen) == 14  # 1,100 bytes were too many to wait


def cross(crossed: Crossings, *gives: Callable[[], mx.array]) -> None:
    with crossed:
        for i, give in enumerate(gives):
            crossed("logits", f"step={i}", {}, {"h": give()})


def ready() -> mx.array:
    return mx.ones(1)


def unable() -> mx.array:
    """An array that is refused only when it is computed."""
    return mx.linalg.inv(mx.zeros((4, 4)), stream=mx.cpu)


def absent() -> mx.array:
    """A call that is refused at once."""
    raise ZeroDivisionError


def test_a_run_that_raises_has_handed_on_what_it_crossed() -> None:
    seen, crossed = watched()
    with pytest.raises(ZeroDivisionError):
        cross(crossed, ready, absent, ready)
    assert [where for _, where, _, _ in seen] == ["step=0"]


def test_what_cannot_be_computed_is_nobodys_value() -> None:
    seen, crossed = watched()
    with pytest.raises(RuntimeError, match="factorization"):
        cross(crossed, ready, unable, ready)
    assert not seen


def test_nobody_is_told_of_more_once_he_has_raised() -> None:
    told: list[str] = []

    def emit(_stage: str, occurrence: str, *_: object) -> None:
        told.append(occurrence)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cross(Crossings(emit), ready, ready)
    assert told == ["step=0"]


def test_batches_are_all_of_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossed_borders, "_MOST", 100)
    named = [(str(i), mx.zeros(10)) for i in range(8)]
    parts = [list(part) for part in batched(named)]
    assert [len(part) for part in parts] == [3, 3, 2]
    assert [name for part in parts for name in part] == [name for name, _ in named]
