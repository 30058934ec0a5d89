"""The port's exponential: against float64, against MLX's own, and what is made of it, there and back."""

import mlx.core as mx
import numpy as np
import pytest

from port.metadiffusion import exponential, model

AXIS = np.linspace(-87, 88, 300_001).astype(np.float32)
ONE = np.finfo(np.float32).eps


def drawn(*shape, seed=0):
    return mx.array(np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 3)


def masked(q, k, v):
    mask = model.additive(mx.arange(5)[None] < mx.array([[5], [3], [1]]), mx.float32)
    return model.attend(q, k, v, scale=0.5, mask=mask)


def looking_back(q, k, v):
    mask = mx.where(mx.tril(mx.ones((5, 5), dtype=mx.bool_)), 0.0, model.BLOCKED)
    return model.attend(q, k, v, scale=0.5, mask=mask)


HEADS = (drawn(3, 4, 5, 6), drawn(3, 2, 5, 6, seed=1), drawn(3, 2, 5, 6, seed=2))
MADE = {
    "gated": (exponential.gated, (drawn(3, 7), drawn(3, 7, seed=1))),
    "softmax": (exponential.softmax, (drawn(2, 3, 7),)),
    "logsumexp": (exponential.logsumexp, (drawn(2, 3, 7),)),
    "largest_share": (exponential.largest_share, (drawn(2, 3, 7),)),
    "attend": (lambda q, k, v: model.attend(q, k, v, scale=0.5, mask=None), HEADS),
    "attend, padded": (masked, HEADS),
    "attend, looking back": (looking_back, HEADS),
}


def test_it_is_the_exponential_within_one_unit_in_the_last_place():
    found = np.array(exponential._exp(mx.array(AXIS))).astype(np.float64)
    exact = np.exp(AXIS.astype(np.float64))
    assert np.abs(found / exact - 1).max() < ONE  # 0.83 of it; MLX's own: 32


def test_ends_of_the_axis():
    x = mx.array([-np.inf, -1e9, -88.5, -0.0, 0.0, 1e9, np.inf, np.nan], dtype=mx.float32)
    found = np.array(exponential._exp(x))
    assert found[:3].tolist() == [0, 0, 0]  # nothing at all: masked scores must not leave a trace
    assert found[3:5].tolist() == [1, 1]
    assert (found[5:7] > 1e38).all()
    assert np.isnan(found[7])


@pytest.mark.parametrize("name", MADE)
def test_made_of_it_as_of_mlx_own_there_and_back(name, monkeypatch):
    function, given = MADE[name]
    weights = drawn(*function(*given).shape, seed=9)
    there_and_back = mx.value_and_grad(lambda *x: (function(*x) * weights).sum(), argnums=list(range(len(given))))
    ours, our_gradients = there_and_back(*given)
    monkeypatch.setattr(exponential, "by_vectors", lambda _x: False)
    monkeypatch.setattr(model, "by_vectors", lambda _x: False)
    theirs, their_gradients = there_and_back(*given)
    assert abs(ours.item() - theirs.item()) < 1e-4
    for our, their in zip(our_gradients, their_gradients, strict=True):
        assert np.abs(np.array(our) - np.array(their)).max() < 1e-5 * max(1, np.abs(np.array(their)).max())


@pytest.mark.parametrize("name", MADE)
def test_bfloat16_is_left_to_mlx(name):
    function, given = MADE[name]
    half = [x.astype(mx.bfloat16) for x in given]
    assert not exponential.by_vectors(half[0])
    if "padded" not in name and "back" not in name:  # their masks here are float32
        assert function(*half).dtype == mx.bfloat16


def test_vectors_are_for_linux_on_a_cpu(monkeypatch):
    monkeypatch.setattr(exponential.sys, "platform", "darwin")
    assert not exponential.by_vectors(mx.zeros(1))
    monkeypatch.setattr(exponential.sys, "platform", "linux")
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    assert exponential.by_vectors(mx.zeros(1)) == on_cpu
