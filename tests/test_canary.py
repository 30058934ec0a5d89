"""The canary gives one hash a primitive, the same each time, and names what differs."""

import json

import mlx.core as mx
import numpy as np
import pytest

from goldens import backend, primitives
from goldens import canary as canaries
from goldens.canary import canary, differing

KINDS = {
    "matmul", "quantized_matmul", "gather_qmm", "dequantize", "rms_norm", "rope", "sdpa", "softmax", "logsumexp",
    "gelu", "tanh", "exp", "cumsum", "argpartition", "argsort", "randint", "categorical", "cast", "compile",
}  # fmt: skip


@pytest.fixture(scope="module")
def here():
    return canary(None)


def test_every_kind_of_primitive_is_there(here):
    assert {name.split("/")[0] for name in here} >= KINDS
    for dtype in ("float32", "bfloat16"):
        for bits in ("4bit", "8bit"):
            for way in ("transposed", "plain"):
                rows = {n.split("/")[3] for n in here if n.startswith(f"quantized_matmul/{dtype}/{bits}/") and way in n}
                assert {"1", "64"} <= {row.split("x")[0] for row in rows}
        kinds = {name.rpartition("/")[2] for name in here if name.startswith(f"sdpa/{dtype}")}
        assert kinds == {"full", "causal", "masked"}
        assert {f"softmax/{dtype}/1000", f"softmax/{dtype}/1000/precise"} <= here.keys()


def test_it_is_the_same_each_time(here):
    assert canary(None) == here
    assert differing(here, canary(None)) == []


def test_names_are_unique():
    names = [name for name, _ in primitives.probes()]
    assert len(names) == len(set(names))


def test_the_callers_random_state_is_left_alone():
    mx.random.seed(5)
    expected = mx.random.uniform(shape=(4,)).tolist()
    mx.random.seed(5)
    canary(None)
    assert mx.random.uniform(shape=(4,)).tolist() == expected


def test_a_primitive_that_computes_otherwise_is_named(here, monkeypatch):
    true = mx.tanh
    monkeypatch.setattr(mx, "tanh", lambda x: true(x) * (1 + 2**-7))
    named = differing(here, canary(None))
    assert {"softcap/float32", "softcap/bfloat16", "gelu/float32"} <= set(named)
    assert not any(name.startswith(("matmul", "rms_norm", "softmax")) for name in named)


def test_one_flipped_bit_changes_a_hash(here, monkeypatch):
    def flipped():
        for name, probe in primitives_probes():
            yield name, (lambda probe=probe: flip(probe())) if name == "matmul/float32/7x320x192" else probe

    def flip(result):
        bits = np.array(result).view(np.uint32).copy()
        bits[3, 3] ^= 1
        return mx.array(bits.view(np.float32))

    primitives_probes = primitives.probes
    monkeypatch.setattr(primitives, "probes", flipped)
    assert differing(here, canary(None)) == ["matmul/float32/7x320x192"]


def test_a_primitive_that_cannot_run_is_recorded_so(monkeypatch):
    def refuse():
        raise ValueError("no kernel")

    monkeypatch.setattr(primitives, "probes", lambda: iter([("sdpa/float64", refuse)]))
    assert canary(None) == {"sdpa/float64": "raises ValueError"}


def test_differing_names_what_only_one_side_has():
    assert differing({"a": "1", "b": "2"}, {"b": "3", "c": "4", "d": "5"}) == ["a", "b", "c", "d"]
    assert differing({"a": "1"}, {"a": "1"}) == []


def test_inputs_are_exact_and_known():
    assert primitives.integers(3, 7, 8).tolist() == [160, 229, 198]
    for dtype in (mx.float32, mx.bfloat16):
        x = primitives.floats((1000,), dtype, 3, 4.0).astype(mx.float32)
        assert float(mx.min(x)) >= -4
        assert float(mx.max(x)) < 4
        step = 4.0 / (1 << (7 if dtype == mx.bfloat16 else 19))
        assert np.array_equal(np.round(np.array(x) / step) * step, np.array(x))


@pytest.fixture
def counted(monkeypatch):
    runs = []
    monkeypatch.setattr(canaries, "compute", lambda: runs.append(1) or {"a": str(len(runs))})
    return runs


def test_the_answer_is_kept_while_nothing_changed(tmp_path, counted):
    assert canary(tmp_path / "new") == canary(tmp_path / "new") == {"a": "1"}
    assert len(counted) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setenv("OMP_NUM_THREADS", "3"),
        lambda patch: patch.setenv("MLX_DISABLE_COMPILE", "1"),
        lambda patch: patch.setenv("LD_PRELOAD", "/nowhere/libopenblas.so"),
        lambda patch: patch.setattr(backend, "cpu", lambda: "another"),
        lambda patch: patch.setattr(backend, "device", lambda: "gpu (another)"),
        lambda patch: patch.setattr(backend, "version", lambda *_: "0.0.0"),
        lambda patch: patch.setattr(backend, "_stamp", lambda *_: [1, 2]),
        lambda patch: patch.setattr(backend.shutil, "which", lambda *_: None),
    ],
)
def test_the_answer_is_dropped_when_the_backend_changes(tmp_path, counted, monkeypatch, change):
    canary(tmp_path)
    change(monkeypatch)
    assert canary(tmp_path) == {"a": "2"}
    monkeypatch.undo()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"identity": 1}', '{"canary": {"a": "9"}}', "\0"])
def test_a_damaged_cache_is_computed_anew(tmp_path, counted, content):
    canary(tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_text(content)
    assert canary(tmp_path) == {"a": "2"}
    assert canary(tmp_path) == {"a": "2"}


def test_the_backend_is_described_without_paths():
    described = backend.describe()
    assert described.keys() >= {"device", "blas", "threads", "platform", "cpu"}
    assert all(described.values())
    assert "/" not in json.dumps(described)


def test_the_numeric_libraries_are_found():
    names = [path.name for path in backend.loaded_libraries()]
    assert any("libmlx" in name for name in names)
    assert all(path.is_file() for path in backend.loaded_libraries())
