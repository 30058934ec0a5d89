"""What can be asked of a generation, what a checkpoint's generation_config adds, and what follows from both.

Source of names, defaults and precedence: mlx-optiq 0.7.7 (`generate/diffusion.py`).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from port.errors import CheckpointError, OptionError, fetch_again

from .config import ModelConfig
from .samplers import CONFIDENCE, SAMPLERS
from .schedule import Schedule
from .stopping import Stopping

STEPS, MIN_CANVAS, MAX_TOKENS, BOUND = 48, 64, 256, 0.1
GENERATION_CONFIG = "generation_config.json"


@dataclass(frozen=True)
class Options:
    """What is asked. None leaves a choice to the generation config, and then to the default in brackets.

    Attributes:
        max_tokens: most tokens to make, a stop token included [256].
        temperature: 0 takes the best token; above, tokens are drawn by tempered logits over it.
        sampler: "confidence-threshold" or "entropy-bound".
        threshold: a probability, of the confidence sampler.
        entropy_bound: nats, of the entropy sampler [0.1].
        steps: denoising steps of each canvas [48].
        min_canvas: least tokens of a canvas, whatever is left to make [64].
        max_canvas: most tokens of a canvas [the model's].
        full_canvas: every canvas as long as the model's.
        static_cache: buffers of their final length from the start.
        prefill_step: tokens of a prompt that are encoded at a time; None for all.
        compile: compile the canvas pass.
        show: report drafts. The last step then samples too, which changes the draws.
        show_every: steps between drafts.
        skip: ids that leave no text.
    """

    max_tokens: int | None = 512
    temperature: float = 0.0
    sampler: str = CONFIDENCE
    threshold: float = 0.9
    entropy_bound: float | None = None
    steps: int | None = None
    min_canvas: int | None = None
    max_canvas: int | None = None
    full_canvas: bool = False
    static_cache: bool = False
    prefill_step: int | None = None
    compile: bool = False
    show: bool = False
    show_every: int = 1
    skip: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            _refuse("sampler", self.sampler, f"one of {', '.join(SAMPLERS)}")
        for name in ("max_tokens", "steps", "min_canvas", "max_canvas", "prefill_step", "show_every"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                _refuse(name, value, "a whole number from 1 on")
        if not 0.0 <= self.threshold <= 1.0:
            _refuse("threshold", self.threshold, "a probability from 0 to 1")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            _refuse("temperature", self.temperature, "0 for the best token, or a positive number")
        if self.entropy_bound is not None and not self.entropy_bound >= 0:
            _refuse("entropy_bound", self.entropy_bound, "nats from 0 on")


@dataclass(frozen=True)
class Settings:
    """What a generation does, every choice made.

    Attributes:
        options: what was asked, for everything not repeated here.
        max_tokens: most tokens to make.
        steps: denoising steps of each canvas.
        entropy_bound: nats.
        schedule: of the temperature.
        stopping: when a canvas ends early, or None.
        eos: ids that the generation config adds to the stop set.
        shortest: least tokens of a canvas.
        longest: most tokens of a canvas.
    """

    options: Options
    max_tokens: int
    steps: int
    entropy_bound: float
    schedule: Schedule
    stopping: Stopping | None
    eos: frozenset[int]
    shortest: int
    longest: int

    def canvas_length(self, made: int) -> int:
        """Tokens of the next canvas, after `made` tokens."""
        if self.options.full_canvas:
            return self.longest
        return min(self.longest, max(self.max_tokens - made, self.shortest))

    def capacity(self, prompt: int) -> int | None:
        """Slots of a static cache: the prompt and every canvas but the last; None for a cache that grows."""
        slots = prompt + (self.max_tokens - 1) // self.longest * self.longest
        return slots if self.options.static_cache and slots > prompt else None


def resolve(options: Options, config: ModelConfig, generation: Mapping[str, Any] | None = None) -> Settings:
    """Join what is asked with what the checkpoint recommends.

    Args:
        options: what is asked.
        config: the model's, whose own `generation_config` counts where no other is given.
        generation: a parsed generation config; {} for none at all.

    Raises:
        OptionError: the generation config names a sampler or holds a value that is not allowed.
    """
    found = dict((config.generation_config if generation is None else generation) or {})
    sampler = _section(found, "sampler_config")
    if (name := sampler.get("_cls_name", "EntropyBoundSamplerConfig")) != "EntropyBoundSamplerConfig":
        _refuse("generation config: sampler_config._cls_name", name, "EntropyBoundSamplerConfig")
    schedule = _section(found, "linear_temperature_schedule_config") or found
    stopping = _section(found, "diffusion_stopping_config") or found
    longest = config.canvas_length
    if not options.full_canvas:
        longest = min(longest, options.max_canvas or longest)
    bound = options.entropy_bound
    settings = Settings(
        options=options,
        max_tokens=int(options.max_tokens or found.get("max_new_tokens", MAX_TOKENS)),
        steps=int(options.steps or found.get("max_denoising_steps") or STEPS),
        entropy_bound=float(sampler.get("entropy_bound", BOUND)) if bound is None else bound,
        schedule=Schedule(float(schedule.get("t_min", 0.4)), float(schedule.get("t_max", 0.8))),
        stopping=_stopping(stopping),
        eos=frozenset(ids(found.get("eos_token_id"))),
        shortest=min(longest, options.min_canvas or MIN_CANVAS),
        longest=longest,
    )
    for value, key, allowed in (
        (settings.max_tokens, "max_new_tokens", "a whole number from 1 on"),
        (settings.steps, "max_denoising_steps", "a whole number from 1 on"),
        (settings.schedule.t_min, "t_min", "above 0"),
        (settings.schedule.t_max, "t_max", "above 0"),
    ):
        if not value > 0:
            _refuse(f"generation config: {key}", value, allowed)
    return settings


def ids(value: Any) -> list[int]:
    """Token ids of a config's field: none, one or several."""
    return [] if value is None else [int(value)] if isinstance(value, int) else [int(one) for one in value]


def read_generation_config(directory: Path) -> dict[str, Any]:
    """The generation config that lies beside the weights.

    Raises:
        CheckpointError: the file is absent or is not a JSON object.
    """
    path = directory / GENERATION_CONFIG
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(path, f"it cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise _unreadable(path, f"it holds {type(found).__name__}")
    return found


def _unreadable(path: Path, found: str) -> CheckpointError:
    mend = fetch_again(path.parent, path.name)
    return CheckpointError(str(path), found=found, expected="a JSON object", mend=mend)


def _section(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = found.get(name)
    return section if isinstance(section, dict) else {}


def _stopping(found: Mapping[str, Any]) -> Stopping | None:
    if not {"stability_threshold", "confidence_threshold"} & found.keys():
        return None
    stability = int(found.get("stability_threshold", 1))
    if stability < 0:
        _refuse("generation config: stability_threshold", stability, "a whole number from 0 on")
    return Stopping(stability, float(found.get("confidence_threshold", 0.005)))


def _refuse(name: str, value: Any, allowed: str) -> NoReturn:
    raise OptionError(
        name, found=f"it is {value!r}", expected=allowed, mend=f"give {name} such a value, or leave it out"
    )
