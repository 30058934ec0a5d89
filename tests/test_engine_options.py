"""What may be asked of a generation, and what follows from it and from a generation config."""

import re

import pytest

from port.diffusion_gemma.config import read
from port.diffusion_gemma.options import Options, read_generation_config, resolve
from port.diffusion_gemma.schedule import Schedule
from port.diffusion_gemma.stopping import Stopping
from port.errors import CheckpointError, OptionError
from stages.places import checkpoint_path

NANO = checkpoint_path("nano")
CONFIG = read(NANO)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("sampler", "greedy", "one of confidence-threshold, entropy-bound"),
        ("threshold", 1.5, "a probability from 0 to 1"),
        ("threshold", float("nan"), "a probability from 0 to 1"),
        ("temperature", -1.0, "0 for the best token, or a positive number"),
        ("temperature", float("inf"), "0 for the best token, or a positive number"),
        ("entropy_bound", -0.1, "nats from 0 on"),
        ("max_tokens", 0, "a whole number from 1 on"),
        ("steps", 0, "a whole number from 1 on"),
        ("min_canvas", -3, "a whole number from 1 on"),
        ("max_canvas", 0, "a whole number from 1 on"),
        ("prefill_step", 0, "a whole number from 1 on"),
        ("show_every", 0, "a whole number from 1 on"),
        ("steps", 2.5, "a whole number from 1 on"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(name, value, allowed):
    with pytest.raises(OptionError) as caught:
        Options(**{name: value})
    assert f"{name}: it is {value!r}. Expected: {allowed}" in str(caught.value)


def test_without_a_generation_config_the_reference_neither_stops_early_nor_adds_stop_tokens():
    settings = resolve(Options(), CONFIG)
    assert settings.stopping is None
    assert settings.eos == frozenset()
    assert settings.schedule == Schedule(0.4, 0.8)
    assert (settings.steps, settings.entropy_bound, settings.max_tokens) == (48, 0.1, 512)


def test_a_generation_config_brings_stopping_schedule_steps_bound_and_stop_tokens():
    settings = resolve(Options(max_tokens=None), CONFIG, {**read_generation_config(NANO), "t_min": 0.3})
    assert settings.stopping == Stopping(1, 0.005)
    assert settings.eos == {1, 106, 50}
    assert settings.schedule == Schedule(0.3, 0.8)
    assert (settings.steps, settings.max_tokens) == (48, 256)


def test_what_is_asked_goes_before_what_is_recommended():
    found = {"max_denoising_steps": 7, "max_new_tokens": 9, "sampler_config": {"entropy_bound": 0.5}}
    settings = resolve(Options(steps=3, max_tokens=5, entropy_bound=0.2), CONFIG, found)
    assert (settings.steps, settings.max_tokens, settings.entropy_bound) == (3, 5, 0.2)
    settings = resolve(Options(max_tokens=None), CONFIG, found)
    assert (settings.steps, settings.max_tokens, settings.entropy_bound) == (7, 9, 0.5)


def test_a_bound_of_no_nats_is_a_bound():
    assert resolve(Options(entropy_bound=0.0), CONFIG).entropy_bound == 0
    assert resolve(Options(), CONFIG, {"sampler_config": {"entropy_bound": 0.0}}).entropy_bound == 0


def test_nested_sections_go_before_flat_ones():
    found = {
        "t_min": 0.1,
        "linear_temperature_schedule_config": {"t_max": 0.9},
        "stability_threshold": 4,
        "diffusion_stopping_config": {"stability_threshold": 2},
    }
    settings = resolve(Options(), CONFIG, found)
    assert settings.schedule == Schedule(0.4, 0.9)
    assert settings.stopping == Stopping(2, 0.005)


def test_a_canvas_may_stop_at_its_first_step_where_the_generation_config_says_so():
    assert resolve(Options(), CONFIG, {"stability_threshold": 0}).stopping == Stopping(0, 0.005)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"sampler_config": {"_cls_name": "Other"}}, "_cls_name: it is 'Other'. Expected: EntropyBoundSamplerConfig"),
        ({"t_min": 0}, "t_min: it is 0.0. Expected: above 0"),
        ({"stability_threshold": -1}, "stability_threshold: it is -1. Expected: a whole number from 0 on"),
        ({"max_denoising_steps": -2}, "max_denoising_steps: it is -2. Expected: a whole number from 1 on"),
    ],
)
def test_a_generation_config_that_cannot_be_followed_is_refused(found, message):
    with pytest.raises(OptionError, match=re.escape(message)):
        resolve(Options(), CONFIG, found)


def test_a_generation_config_that_is_not_there_says_how_to_get_it(tmp_path):
    with pytest.raises(CheckpointError, match=r"hf download OWNER/NAME generation_config\.json"):
        read_generation_config(tmp_path)
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="it holds list"):
        read_generation_config(tmp_path)


@pytest.mark.parametrize(
    ("options", "made", "length"),
    [
        ({"max_tokens": 200}, 0, 96),  # the model's
        ({"max_tokens": 10}, 0, 64),  # never fewer than 64
        ({"max_tokens": 100}, 96, 64),
        ({"max_tokens": 170}, 96, 74),
        ({"max_tokens": 10, "min_canvas": 4}, 0, 10),
        ({"max_tokens": 10, "max_canvas": 16}, 0, 16),
        ({"max_tokens": 10, "max_canvas": 500}, 0, 64),
        ({"max_tokens": 10, "max_canvas": 16, "full_canvas": True}, 0, 96),
    ],
)
def test_the_length_of_a_canvas(options, made, length):
    assert resolve(Options(**options), CONFIG).canvas_length(made) == length


def test_the_slots_of_a_static_cache():
    assert resolve(Options(max_tokens=193, static_cache=True), CONFIG).capacity(7) == 7 + 2 * 96
    assert resolve(Options(max_tokens=96, static_cache=True), CONFIG).capacity(7) is None
    assert resolve(Options(max_tokens=500), CONFIG).capacity(7) is None
