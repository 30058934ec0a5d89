"""A few of the generations of `nox -s generations`, token for token; and that its comparison sees what differs."""

import warnings

import pytest
from generations import PROMPTS, Sides, Tally, matrix, one

from port.diffusion_gemma import draws
from stages.places import checkpoint_path


@pytest.fixture(scope="module")
def sides():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield Sides.load(checkpoint_path("nano"), "float32")


def test_the_matrix_has_every_prompt_with_every_seed_sampler_and_way_to_choose():
    runs = list(matrix(8, 4))
    seen = {(prompt, seed, options["sampler"], options["temperature"]) for _, prompt, options, seed in runs}
    assert len(seen) == len(runs) == 12 * 10 * 2 * 2
    assert len(set(PROMPTS)) == 12
    for knob in ("generation_config", "prefill_step", "show"):
        assert sum(knob in options for _, _, options, _ in runs) > 40
    assert sum("generation_config" not in options for _, _, options, _ in runs) > 200
    assert sum(options["max_tokens"] > 2 * options["max_canvas"] for _, _, options, _ in runs) > 40


@pytest.mark.parametrize("run", list(matrix(8, 3))[7:480:53], ids=lambda run: run[0][:20])
def test_a_generation_is_the_oracles(sides, run):
    name, prompt, options, seed = run
    tally = Tally()
    one(sides, name, sides.encode(prompt), options, seed, tally)
    assert not tally.differing
    assert tally.counts["tokens"] > 0
    assert tally.counts["draws"] > 0


def test_another_draw_is_seen(sides, monkeypatch):
    original = draws.Generator.tokens
    monkeypatch.setattr(draws.Generator, "tokens", lambda self, length: (original(self, length) + 1) % 704)
    tally = Tally()
    one(sides, "shifted", sides.encode("Hi"), {"max_tokens": 4, "max_canvas": 4, "steps": 2}, 0, tally)
    assert any("tokens differ" in line for line in tally.differing)


def test_a_draw_too_many_is_seen_in_the_log(sides, monkeypatch):
    original = draws.Generator.tokens
    monkeypatch.setattr(
        draws.Generator, "tokens", lambda self, length: (original(self, length), original(self, length))[0]
    )
    tally = Tally()
    one(sides, "twice", sides.encode("Hi"), {"max_tokens": 4, "max_canvas": 4, "steps": 1}, 0, tally)
    assert any("draws differ" in line for line in tally.differing)
