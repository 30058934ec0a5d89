"""The reference's denoising engine at work: what its loop hands from function to function, observed or answered.

The loop itself (`stream_diffusion_generate`) is driven as it is. For the length of a `with` block the functions that it
looks up in its module are stood around, and its own local variables are read where it calls them.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import mlx.core as mx
import numpy as np
from optiq.vlm._mlxvlm.generate import diffusion as engine

from .reference import Reference
from .tensors import to_numpy
from .vision_cuts import ABSENT

LOOP = "stream_diffusion_generate"
KNOBS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "sampler": "diffusion_sampler",
    "threshold": "diffusion_threshold",
    "steps": "max_denoising_steps",
    "min_canvas": "diffusion_min_canvas_length",
    "max_canvas": "diffusion_max_canvas_length",
    "full_canvas": "diffusion_full_canvas",
    "static_cache": "diffusion_static_cache",
    "prefill_step": "prefill_step_size",
    "compile": "diffusion_compile",
    "show": "diffusion_show_unmasking",
    "show_every": "diffusion_unmasking_interval",
}


@dataclass
class Step:
    """One pass of the loop: MLX arrays by the loop's own words, `number` counting down to 1."""

    number: int = 0
    values: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        """A value, or None where this step never came by it."""
        return self.values.get(name)


@dataclass
class Canvas:
    """One canvas: its noise at first, the caches that it reads, its steps in order."""

    tokens: mx.array
    caches: list[Any]
    steps: list[Step] = field(default_factory=list)


@dataclass
class Answers:
    """What the loop is told instead of finding it out: for replaying one recorded canvas.

    Attributes:
        caches: what the prefill leaves.
        tokens: answers to each draw of noise, the canvas' first tokens before them.
        drawn: answers to each categorical draw.
        canvases: what each step sees; None for what the loop made itself.
        stops: whether each step is the last; None to let the loop decide.
    """

    caches: list[Any]
    tokens: Iterator[mx.array]
    drawn: Iterator[mx.array]
    canvases: Iterator[mx.array] | None = None
    stops: list[bool] | None = None


@dataclass
class Generated:
    """What a run gave: tokens (a stop token included), steps a canvas, finish reason, segments of text, drafts."""

    tokens: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    finish: str = ""
    segments: list[str] = field(default_factory=list)
    drafts: list[str] = field(default_factory=list)


class Observed:
    """The canvases of one run, as they were denoised.

    Args:
        answers: what to replay, or None to let the loop run as it does.
        finished: called with each canvas as it ends; its arrays are dropped afterwards.
    """

    def __init__(self, answers: Answers | None = None, finished: Callable[[Canvas], None] | None = None) -> None:
        self.canvases: list[Canvas] = []
        self._answers, self._finished = answers, finished
        self._open: Canvas | None = None
        self._step = Step()
        self._seen: list[Any] = []  # keeps observed results alive, so that none is taken for another

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Stand around the loop's functions."""
        around = {
            "_diffusion_linear_temperature": self._temperature,
            "_diffusion_initialize_canvas": self._noise,
            "_diffusion_sample_canvas": self._sample,
            "_diffusion_token_probability": self._confidence,
            "_diffusion_entropy_and_soft_embeddings": self._entropy_and_soft,
            "_diffusion_token_entropy": self._entropy,
            "_diffusion_confidence_transfer_mask": self._accept,
            "_diffusion_entropy_transfer_mask": self._accept,
            "_diffusion_stable_and_confident": self._stable,
            "_diffusion_soft_embeddings": self._soft,
            "_diffusion_prefill_cache": self._prefill,
            "_make_diffusion_decoder_logits_fns": self._decoders,
        }
        with ExitStack() as stack:
            for name, hook in around.items():
                stack.enter_context(replaced(engine, name, _around(getattr(engine, name), hook)))
            stack.enter_context(replaced(engine, "mx", _Mlx(self)))
            yield

    # What each function of the loop is stood around by: (frame that calls, original, arguments)

    def _prefill(self, _frame: FrameType, call: Callable[[], Any], *_args: Any, **_kwargs: Any) -> Any:
        return self._answers.caches if self._answers else call()

    def _decoders(self, _frame: FrameType, call: Callable[[], Any], *_args: Any, **_kwargs: Any) -> Any:
        def observed(function: Callable[..., Any]) -> Callable[..., Any]:
            def logits(canvas: mx.array, signal: mx.array | None = None) -> Any:
                if self._answers and self._answers.canvases is not None:
                    canvas = next(self._answers.canvases)
                result = function(canvas) if signal is None else function(canvas, signal)
                self._step = Step(0, {"canvas": canvas, "signal": signal, "logits": result})
                if self._open is not None:
                    self._open.steps.append(self._step)
                return result

            return logits

        return tuple(observed(function) for function in call())

    def _temperature(self, _frame: FrameType, call: Callable[[], Any], step: int, steps: int, config: Any) -> Any:
        self._step.number = step
        self._step.values |= {"steps": steps, "schedule": (config.get("t_min", 0.4), config.get("t_max", 0.8))}
        return call()

    def _noise(self, frame: FrameType, call: Callable[[], Any], *_args: Any, **_kwargs: Any) -> Any:
        tokens = next(self._answers.tokens) if self._answers else call()
        if self._open is None:
            self._open = Canvas(tokens, frame.f_locals["kv_cache"])
            self.canvases.append(self._open)
        else:
            self._step.values["noise"] = tokens
        return tokens

    def _sample(self, _frame: FrameType, call: Callable[[], Any], *_args: Any, **_kwargs: Any) -> Any:
        drawn = next(self._answers.drawn) if self._answers else call()
        self._step.values["drawn"] = drawn
        return drawn

    def _confidence(self, _frame: FrameType, call: Callable[[], Any], *_args: Any, **_kwargs: Any) -> Any:
        self._step.values["measure"] = call()
        return self._step["measure"]

    def _entropy_and_soft(self, _frame: FrameType, call: Callable[[], Any], *_args: Any, **_kwargs: Any) -> Any:
        self._step.values["measure"], self._step.values["soft"] = result = call()
        return result

    def _entropy(self, frame: FrameType, call: Callable[[], Any], *_args: Any, **_kwargs: Any) -> Any:
        result = call()
        if frame.f_code.co_name == LOOP:  # the stopping rule asks too
            self._step.values["measure"] = result
        return result

    def _accept(self, frame: FrameType, call: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        before = {"draft": frame.f_locals["draft_canvas"], "revealed": frame.f_locals["draft_reveal_mask"]}
        self._step.values |= {"before": before, "limit": float(args[-1]), "last": kwargs.get("force_all", False)}
        self._step.values["accepted"] = call()
        return self._step["accepted"]

    def _soft(self, _frame: FrameType, call: Callable[[], Any], *_args: Any, **_kwargs: Any) -> Any:
        self._step.values["soft"] = call()
        return self._step["soft"]

    def _stable(self, frame: FrameType, call: Callable[[], Any], *args: Any, **_kwargs: Any) -> Any:
        history, rule = list(args[2]), args[3]
        self._settle(frame)
        stop = call()
        self._step.values |= {"history": history, "remembered": list(args[2]), "rule": rule, "stable": stop}
        self._step.values["stop"] = stop
        return self._last(stop)

    # What the loop asks MLX itself

    def all_revealed(self, frame: FrameType, result: mx.array) -> mx.array:
        """The loop asks whether the whole canvas is revealed: its step is made."""
        self._settle(frame)
        self._step.values["stop"] = bool(result.item())
        return mx.array(self._last(self._step["stop"]))

    def end_of_canvas(self, frame: FrameType) -> None:
        """The loop evaluates the canvas that it will emit."""
        self._step.values.setdefault("processed", frame.f_locals["processed_logits"])
        self._step.values.setdefault("argmax", frame.f_locals["argmax_canvas"])
        done, self._open = self._open, None
        if self._finished and done is not None:
            self._finished(done)
            self.canvases[-1] = Canvas(done.tokens, [])

    def _last(self, own: bool) -> bool:
        """Whether the loop is to end the canvas here: as recorded where that is replayed, else as it decided."""
        if self._open is None or self._answers is None or self._answers.stops is None:
            return own
        return self._answers.stops[len(self._open.steps) - 1]

    def _settle(self, frame: FrameType) -> None:
        local = frame.f_locals
        names = {
            "processed": "processed_logits",
            "argmax": "argmax_canvas",
            "tokens": "current_canvas",
            "draft": "draft_canvas",
            "revealed": "draft_reveal_mask",
        }
        self._step.values |= {mine: local[name] for mine, name in names.items()}


class _Mlx:
    """MLX as the engine's module sees it, two functions of it stood around."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)

    def all(self, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        frame, result = sys._getframe(1), mx.all(x, *args, **kwargs)  # noqa: SLF001
        if frame.f_code.co_name == LOOP and x is frame.f_locals.get("draft_reveal_mask"):
            return self._observed.all_revealed(frame, result)
        return result

    def eval(self, *args: Any) -> None:
        frame = sys._getframe(1)  # noqa: SLF001
        mx.eval(*args)
        if frame.f_code.co_name == LOOP and len(args) == 1 and args[0] is frame.f_locals.get("argmax_canvas"):
            self._observed.end_of_canvas(frame)


def _around(original: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)  # noqa: SLF001
        return hook(frame, lambda: original(*args, **kwargs), *args, **kwargs)

    return call


@contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """`holder.name` is `value` for a while."""
    original = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, original)


@contextmanager
def drawing(log: list[dict[str, Any]]) -> Iterator[None]:
    """Note every draw from MLX's generator: kind, shape, dtype, bounds, and the digest of its values, in order."""

    def noted(kind: str, original: Callable[..., mx.array]) -> Callable[..., mx.array]:
        def draw(*args: Any, **kwargs: Any) -> mx.array:
            result = original(*args, **kwargs)
            values = to_numpy(result)
            bounds = [int(bound) for bound in args[:2]] if kind == "randint" else []
            facts = {"kind": kind, "shape": list(values.shape), "dtype": str(values.dtype), "bounds": bounds}
            log.append({**facts, "sha256": hashlib.sha256(values.tobytes()).hexdigest()[:16]})
            return result

        return draw

    with ExitStack() as stack:
        for kind in ("randint", "categorical", "uniform", "bernoulli", "gumbel"):
            stack.enter_context(replaced(mx.random, kind, noted(kind, getattr(mx.random, kind))))
        yield


def generate(
    reference: Reference, ids: Any, options: dict[str, Any], seed: int | None, types: np.ndarray | None = None
) -> Generated:
    """One run of the loop from a seed, set on this thread; with token types, about pictures that `seeing` answers for.

    The reference adds a generation config's stop tokens to its tokenizer for good; here they last for one run.
    """
    model, tokenizer = reference.model, reference.tokenizer
    knobs = {KNOBS[name]: value for name, value in options.items() if name in KNOBS}
    stops = tokenizer.stopping_criteria
    usual, found = list(stops.eos_token_ids), Generated()
    if seed is not None:
        mx.random.seed(seed)
    with replaced(model.config, "generation_config", options.get("generation_config")):
        try:
            prompt = mx.array(np.asarray(ids, np.int32))[None]
            pixels = None if types is None else ABSENT
            kinds = None if types is None else mx.array(types)[None]
            results = engine.stream_diffusion_generate(
                model,
                tokenizer,
                tokenizer,
                prompt,
                pixels,
                None,
                skip_special_token_ids=set(),
                mm_token_type_ids=kinds,
                **knobs,
            )
            for result in results:
                _collect(found, result)
        finally:
            stops.eos_token_ids = usual
    return found


def _collect(found: Generated, result: Any) -> None:
    if result.is_draft:
        found.drafts.append(result.draft_text)
        return
    if result.generation_tokens > len(found.tokens):
        found.tokens.append(int(result.token))
    if result.diffusion_block_complete:
        found.steps.append(result.diffusion_denoising_steps - sum(found.steps))
    elif result.finish_reason is None:
        found.segments.append(result.text)
    else:
        found.segments.append(result.text)
        found.finish = result.finish_reason
