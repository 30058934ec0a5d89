"""The port's model: what no comparison with the reference shows, because the reference lacks it or gets it wrong."""

import sys
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from port_files import NANO

from port.diffusion_gemma import taps
from port.diffusion_gemma.attention import Attention
from port.diffusion_gemma.cache import Cache, GrowingCache, RotatingCache
from port.diffusion_gemma.conditioning import SelfConditioning
from port.diffusion_gemma.embed import Embedding
from port.diffusion_gemma.layers import Layer
from port.diffusion_gemma.mlp import MLP
from port.diffusion_gemma.model import DiffusionGemma, load
from port.diffusion_gemma.moe import Experts, Router
from port.diffusion_gemma.rope import Rope
from port.errors import PortError
from port.observe import wrapped

# The reference BLAS of MLX's Linux wheel adds a row's products in one order, whatever the other rows are.
ORDERED_SUMS = sys.platform == "linux" and mx.default_device() == mx.Device(mx.cpu)
WATCHED = (Attention, DiffusionGemma, Embedding, Experts, GrowingCache, Layer, MLP, RotatingCache, Rope, Router,
           SelfConditioning)  # fmt: skip


@pytest.fixture(scope="module", params=["bfloat16", "float32"])
def model(request: pytest.FixtureRequest) -> DiffusionGemma:
    return load(NANO, request.param)


def words(seed: int, count: int, rows: int = 1) -> mx.array:
    return mx.array(np.random.default_rng(seed).integers(3, 690, (rows, count)).astype(np.int32))


def number(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32))


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def same(a: mx.array, b: mx.array) -> bool:
    return a.dtype == b.dtype and np.array_equal(number(a), number(b))


@pytest.mark.parametrize(("prompt", "canvas"), [(20, 16), (51, 24)])
def test_a_static_cache_equals_a_growing_one_block_after_block(model: DiffusionGemma, prompt: int, canvas: int) -> None:
    growing, static = model.new_cache(), model.new_cache(capacity=prompt + 3 * canvas)
    written = words(0, prompt)
    for block in range(4):
        assert same(model.encode(written, growing), model.encode(written, static)), block
        drawn = words(block + 1, canvas)
        first = [model.decode(drawn, cache) for cache in (growing, static)]
        signals = [model.signal(model.logits(h)) for h in first]
        second = [model.decode(drawn, cache, signal) for cache, signal in zip((growing, static), signals, strict=True)]
        assert same(*first), block
        assert same(*second), block
        written = words(block + 10, canvas)
    assert static[0].offset == prompt + 3 * canvas


def test_every_chunk_size_ends_where_one_pass_does(model: DiffusionGemma) -> None:
    tokens, canvas = 29, words(2, 8)
    ids = words(1, tokens)
    whole = model.new_cache()
    expected = model.encode(ids, whole), model.decode(canvas, whole)
    bfloat16 = expected[0].dtype == mx.bfloat16
    for size in range(1, tokens + 1):
        chunks = [size] * (tokens // size) + [tokens % size] * (tokens % size > 0)
        cache = model.new_cache()
        got = model.prefill(ids, cache, chunks), model.decode(canvas, cache)
        # A pass of one token adds in another order: its keys lie in a ring, and one row is another BLAS routine.
        if ORDERED_SUMS and 1 not in chunks:
            assert all(same(a, b) for a, b in zip(got, expected, strict=True)), size
        else:
            for a, b in zip(got, expected, strict=True):
                # A few of bfloat16's last bits, or one token's expert near a tie.
                bound = rms(number(b)) * (2**-4 if bfloat16 else 2**-14)
                assert rms(number(a) - number(b)) <= bound, size
        assert [(c.offset, c.seen() is None) for c in cache] == [(tokens, False)] * len(cache)


@pytest.mark.parametrize("chunks", [[], [50], [52], [51, 0], [60, -9]])
def test_chunks_that_do_not_add_up_are_refused(model: DiffusionGemma, chunks: list[int]) -> None:
    cache = model.new_cache()
    with pytest.raises(PortError, match="for a prompt of 51"):
        model.prefill(words(1, 51), cache, chunks)
    assert cache[0].offset == 0


def buffers(cache: list[Cache]) -> list[Any]:
    return [(store.offset, store.cursor, *(number(part) for part in store.seen() or ())) for store in cache]


def test_a_canvas_pass_leaves_no_trace(model: DiffusionGemma) -> None:
    cache = model.new_cache()
    model.encode(words(1, 30), cache)
    before = buffers(cache)
    first = model.decode(words(2, 16), cache)
    model.decode(words(3, 24), cache, mx.ones_like(first[:, :1]) + mx.zeros((1, 24, 1)))
    for old, new in zip(before, buffers(cache), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(old, new, strict=True))
    assert same(model.decode(words(2, 16), cache), first)


def test_no_signal_is_a_signal_of_zeros(model: DiffusionGemma) -> None:
    cache = model.new_cache()
    model.encode(words(1, 30), cache)
    canvas = words(2, 16)
    silent = model.decode(canvas, cache)
    assert same(silent, model.decode(canvas, cache, mx.zeros_like(silent)))
    assert not same(silent, model.decode(canvas, cache, model.signal(model.logits(silent))))


def test_a_canvas_looks_both_ways_and_a_prompt_only_back(model: DiffusionGemma) -> None:
    ids, changed = words(1, 12), words(1, 12)
    changed[0, 8] = (changed[0, 8] + 1) % 600 + 3
    caches = model.new_cache(), model.new_cache()
    a, b = model.encode(ids, caches[0]), model.encode(changed, caches[1])
    assert same(a[:, :8], b[:, :8])
    assert all(not same(a[:, i], b[:, i]) for i in range(8, 12))
    a, b = model.decode(ids, caches[0]), model.decode(changed, caches[0])
    assert all(not same(a[:, i], b[:, i]) for i in range(12))


def test_an_empty_cache_is_a_canvas_alone(model: DiffusionGemma) -> None:
    h = model.decode(words(1, 8), model.new_cache())
    assert h.shape == (1, 8, model.config.text_config.hidden_size)
    assert np.isfinite(number(h)).all()


def test_what_is_padding_does_not_matter_to_what_is_not(model: DiffusionGemma) -> None:
    padding = np.ones((2, 30), bool)
    padding[0, :9] = False
    ids, other, canvas = words(1, 30, 2), words(1, 30, 2), words(2, 16, 2)
    other[0, :9] = words(5, 9)[0]
    results = []
    for prompt in (ids, other):
        cache = model.new_cache()
        h = model.encode(prompt, cache, mx.array(padding))
        results.append((h[0, 9:], h[1], model.decode(canvas, cache, padding_BP=mx.array(padding))))
    assert all(same(a, b) for a, b in zip(*results, strict=True))
    without = model.new_cache()
    model.encode(other, without)
    assert not same(results[1][2], model.decode(canvas, without))


def test_image_tokens_read_as_padding_in_a_prompt_and_as_words_in_a_canvas(model: DiffusionGemma) -> None:
    image, pad = model.config.image_token_id, model.config.text_config.pad_token_id
    a, b = mx.array([[5, image, 7]]), mx.array([[5, pad, 7]])
    assert same(model.embed_tokens.prompt(a), model.embed_tokens.prompt(b))
    assert not same(model.embed_tokens.canvas(a), model.embed_tokens.canvas(b))


def test_a_rotation_without_settings_turns_by_powers_of_ten_thousand() -> None:
    width, offset = 8, 3000
    x = np.random.default_rng(0).standard_normal((1, 1, 2, width))
    angles = (offset + np.arange(2))[:, None] * 10_000.0 ** (-np.arange(0, width, 2) / width)
    first, second = x[..., : width // 2], x[..., width // 2 :]
    cos, sin = np.cos(angles), np.sin(angles)
    turned = np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    found = Rope(width, {})(mx.array(x.astype(np.float32)), offset)
    # Float32 holds an angle of 3000 to 2e-4; another base, 9999, would turn the second pair by 75e-4 more.
    np.testing.assert_allclose(number(found), turned, atol=1e-3)


def test_a_proportional_rotation_without_a_fraction_turns_all_of_the_head() -> None:
    x = mx.array(np.random.default_rng(0).standard_normal((1, 1, 2, 8)).astype(np.float32))
    found = Rope(8, {"rope_type": "proportional"})(x, 5)
    # Wavelengths are taken in another order: 3e-8 apart. Half a head turned is 0.08 away.
    np.testing.assert_allclose(number(found), number(Rope(8, {})(x, 5)), rtol=0, atol=1e-6)


def test_a_cache_of_fewer_layers_is_refused(model: DiffusionGemma) -> None:
    with pytest.raises(ValueError, match="shorter"):
        model.encode(words(1, 4), model.new_cache()[:-1])


def test_logits_are_float32_below_the_cap_and_not_flat(model: DiffusionGemma) -> None:
    cache = model.new_cache()
    model.encode(words(1, 30), cache)
    logits = model.logits(model.decode(words(2, 16), cache))
    cap = model.config.text_config.final_logit_softcapping
    assert logits.dtype == mx.float32
    assert np.abs(number(logits)).max() <= cap
    capped = [float(x) for x in model.embed_tokens._softcap(mx.array([0.0, 1.0, 45.0, -1e4]))]
    assert np.allclose(capped, [0.0, cap * np.tanh(1 / cap), cap * np.tanh(45 / cap), -cap], atol=1e-5)


def test_both_formulas_are_probabilities(model: DiffusionGemma) -> None:
    logits = mx.array(np.random.default_rng(3).normal(0, 8, (1, 4, 704)).astype(np.float32))
    wide = np.array(logits, np.float64)
    wide = np.exp(wide - wide.max(-1, keepdims=True))
    wide /= wide.sum(-1, keepdims=True)
    for formula in (taps.confident_probabilities, taps.entropic_probabilities):
        assert np.allclose(number(formula(logits)), wide, rtol=1e-5, atol=1e-12)


def test_experts_choose_without_stopping_gradients_elsewhere(model: DiffusionGemma) -> None:
    layer = model.layers[0]

    def through(h: mx.array) -> mx.array:
        chosen = layer.router.select(layer.router.scores(h))
        return layer.experts(h, *chosen).astype(mx.float32).sum()

    for tokens in (3, 20):  # below and above the threshold of sorting
        gradient = mx.grad(through)(mx.ones((tokens, 192), dtype=model.norm.dtype))
        assert np.isfinite(number(gradient)).all()
        assert np.abs(number(gradient)).max() > 0


def plan(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    canvas = {
        "steps": [
            {"ids": np.array(words(seed, 16)), "signal": signal}
            for seed, signal in ((1, "none"), (2, "logits"), (3, "entropy"))
        ],
        "finished": np.array(words(4, 16)),
    }
    direct = {"layer": 2, "assignments": 64, "x": rng.normal(size=(16, 192)).astype(np.float32),
              "experts": rng.integers(0, 16, (16, 4)).astype(np.int32),
              "weights": rng.random((16, 4)).astype(np.float32)}  # fmt: skip
    whole = {"texts": ["hi"], "chats": [[{"role": "user", "content": "hi"}]], "ids": np.array(words(0, 30)),
             "padding": None, "chunks": None, "canvases": [canvas, canvas], "direct_moe": [direct]}  # fmt: skip
    return whole | changes


@pytest.fixture
def methods() -> Iterator[None]:
    before = [dict(vars(cls)) for cls in WATCHED]
    yield
    assert [dict(vars(cls)) for cls in WATCHED] == before


@pytest.mark.usefixtures("methods")
def test_a_watched_run_puts_everything_back(model: DiffusionGemma) -> None:
    seen: list[tuple[str, str]] = []
    taps.run(model, plan(), lambda stage, occurrence, _ins, _outs: seen.append((stage, occurrence)))
    assert len(set(seen)) == len(seen)
    assert {stage for stage, _ in seen} == {
        "config", "weights", "tokenize", "chat_template", "embed", "rope", "attention", "mlp", "router",
        "select_experts", "moe", "layer", "encoder_masks", "kv_cache", "encoder", "decoder_masks", "soft_embeddings",
        "self_conditioning", "decoder", "logits",
    }  # fmt: skip


@pytest.mark.usefixtures("methods")
def test_a_watcher_that_fails_puts_everything_back_too(model: DiffusionGemma) -> None:
    def fail(stage: str, *_: Any) -> None:
        if stage == "attention":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taps.run(model, plan(), fail)


@pytest.mark.usefixtures("methods")
def test_a_wrapper_that_cannot_be_put_on_leaves_nothing_behind() -> None:
    with pytest.raises(KeyError), wrapped({(MLP, "__call__"): lambda *_: None, (MLP, "absent"): lambda *_: None}):
        pass


@pytest.mark.usefixtures("methods")
def test_watching_changes_nothing(model: DiffusionGemma) -> None:
    caught: dict[tuple[str, str], Any] = {}
    script = plan()
    taps.run(model, script, lambda stage, occurrence, _ins, outs: caught.update({(stage, occurrence): outs}))
    cache = model.new_cache()
    model.encode(mx.array(script["ids"]), cache)
    for block, canvas in enumerate(script["canvases"]):
        if block:
            model.encode(mx.array(script["canvases"][block - 1]["finished"]), cache)
        signal, logits = None, mx.array(0)
        for step, given in zip((3, 2, 1), canvas["steps"], strict=True):
            if given["signal"] == "logits":
                signal = model.signal(logits)
            elif given["signal"] == "entropy":
                table = model.embed_tokens.table.dense()
                signal = taps.soft_from_table(taps.entropic_probabilities(logits), table, model.embed_tokens.scale)
            logits = model.logits(model.decode(mx.array(given["ids"]), cache, signal))
            assert np.array_equal(caught["logits", f"canvas={block}/step={step}"]["logits"], np.array(logits))


def test_a_signal_needs_a_step_before_it(model: DiffusionGemma) -> None:
    canvas = {"steps": [{"ids": np.array(words(1, 16)), "signal": "logits"}], "finished": None}
    with pytest.raises(ValueError, match="canvas=0/step=1 asks for a signal from logits"):
        taps.run(model, plan(canvases=[canvas]), lambda *_: None)
