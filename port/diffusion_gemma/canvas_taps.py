"""One ordinary generation of the port, with the engine's borders reported canvas by canvas, step by step."""

import json
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from port.crossed_borders import Emit, computed
from port.errors import PortError
from port.observe import drawing, wrapped

from . import canvas as canvases
from . import generate as generation
from . import vision_taps
from .borders import ABSENT, Trace, cursor, number, text_bytes, to_numpy, visible
from .canvas import Step
from .canvas_record import as_trace, finished, refused, tokens_of
from .model import DiffusionGemma
from .options import Settings
from .samplers import CONFIDENCE


def run(model: DiffusionGemma, planned: dict[str, Any], emit: Emit) -> None:
    """Run one planned generation; `emit` at every border, in order of execution."""
    prefix, options, seed = planned["prefix"], planned["options"], planned["seed"]
    ids, stage, more = planned["ids"], "generate", {}
    prompt: Any = None
    if planned["pictures"]:
        stage, prompt = "generate_image", vision_taps.seen(model, planned)
        ids, types = to_numpy(prompt.ids)[0], to_numpy(prompt.types)[0]
        more = {"types": types, "features": to_numpy(prompt.features)}
    elif ids is None:
        ids = np.array(tokens_of(model.weights.directory).encode(planned["prompt"]), np.int32)
    watch = _Watch(prefix, emit)
    log: list[dict[str, Any]] = []
    observers = {(canvases, "advance"): watch.advanced, (generation, "decoder"): watch.began}
    with wrapped(observers), drawing(log):
        try:
            outs = finished(model, prompt or ids.tolist(), options, seed, log)
        except PortError:
            outs = refused()
    ins = {"ids": ids, "options": text_bytes(json.dumps(options)), "seed": number(seed)}
    emit(stage, f"{prefix}whole", {**ins, **more, "said": text_bytes(watch.said)}, outs)


class _Watch:
    """What is known of the generation under way."""

    def __init__(self, prefix: str, emit: Emit) -> None:
        self.prefix, self.emit, self.said = prefix, emit, ""
        self.block = -1
        self.steps: list[Step] = []
        self.states: Trace = {}

    def began(self, _model: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """A canvas begins: its caches are as they will be read."""
        caches = args[0]
        self.block, self.steps = self.block + 1, []
        past: dict[str, Any] = {"cursors": np.stack([cursor(cache) for cache in caches])}
        for i, cache in enumerate(caches):
            past[f"past_keys.{i}"], past[f"past_values.{i}"] = visible(cache)
        self.states = computed(past)
        return call()

    def advanced(self, _carry: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """A step was made."""
        step: Step = call()
        settings: Settings = args[2]
        here = f"{self.prefix}canvas={self.block}"
        self.steps.append(step)
        self._step(f"{here}/step={step.number}", step, settings)
        if step.done:
            ins = self._takes(settings)
            outs = as_trace(self.steps, tuple(step.argmax.shape))
            self.emit("denoise_canvas", f"{here}/forced", ins, outs)
            untold = {name: ins[name][:0] for name in ("canvases", "drafts", "reveals", "stops")}
            self.emit("denoise_canvas", f"{here}/free", {**ins, **untold}, outs)
        return step

    def _takes(self, settings: Settings) -> Trace:
        """What the canvas began with and was told, stacked over its steps."""
        befores = [step.before.canvas for step in self.steps]
        tokens = to_numpy(befores[0].tokens)

        def stacked(arrays: list[mx.array], dtype: Any = np.int32) -> np.ndarray:
            return np.stack([to_numpy(x) for x in arrays]) if arrays else np.zeros((0, *tokens.shape), dtype)

        return {
            **self.states,
            "tokens": tokens,
            "noise": stacked([step.noise for step in self.steps if step.noise is not None]),
            "drawn": stacked([step.drawn for step in self.steps if step.drawn is not None]),
            "canvases": stacked([before.tokens for before in befores]),
            "drafts": stacked([before.draft for before in befores]),
            "reveals": stacked([before.revealed for before in befores], bool),
            "stops": np.array([step.done for step in self.steps]),
            "options": _asked(settings),
        }

    def _step(self, here: str, step: Step, settings: Settings) -> None:
        processed, options = to_numpy(step.processed), settings.options
        schedule = np.array([settings.schedule.t_min, settings.schedule.t_max], np.float64)
        ins = {"logits": to_numpy(step.logits), "step": number(step.number), "steps": number(settings.steps)}
        self.emit("temperature", here, {**ins, "schedule": schedule}, {"processed": processed})
        if step.sampled is None or step.after is None or step.noise is None:
            return
        argmax, before, after = to_numpy(step.argmax), step.before.canvas, step.sampled.canvas
        drawn = np.zeros(ABSENT, np.int32) if step.drawn is None else to_numpy(step.drawn)
        chosen = drawn if drawn.size else argmax
        measure, accepted, last = to_numpy(step.sampled.measure), to_numpy(step.sampled.accepted), step.number == 1
        hidden = ~to_numpy(before.revealed)
        if options.sampler == CONFIDENCE:
            limit, kept = options.threshold, to_numpy(after.draft)
            self.emit("token_confidence", here, {"processed": processed, "tokens": chosen}, {"confidence": measure})
            ins = {"confidence": measure, "unrevealed": hidden, "threshold": np.array(limit), "last": np.array(last)}
            self.emit("accept_confidence", here, ins, {"accepted": accepted})
        else:
            limit, kept = settings.entropy_bound, chosen
            self.emit("token_entropy", here, {"processed": processed}, {"entropy": measure})
            self.emit("accept_entropy", here, {"entropy": measure, "bound": np.array(limit)}, {"accepted": accepted})
        noise, tokens, revealed = to_numpy(step.noise), to_numpy(after.tokens), to_numpy(after.revealed)
        self.emit("renoise", here, {"keep": revealed, "tokens": kept, "noise": noise}, {"canvas": tokens})
        asked = {"sampler": options.sampler, "last": last, "threshold": float(limit), "bound": float(limit)}
        state = {"canvas": before.tokens, "draft": before.draft, "revealed": before.revealed}
        ins = {
            **{name: to_numpy(x) for name, x in state.items()},
            "processed": processed,
            "noise": noise,
            "drawn": drawn,
            "options": text_bytes(json.dumps(asked)),
        }
        outs = {"argmax": argmax, "accepted": accepted, "canvas": tokens, "revealed": revealed}
        self.emit("sampler_step", here, ins, {**outs, "draft": to_numpy(after.draft)})
        if not (options.sampler == CONFIDENCE and revealed.all()):
            self._stopping(here, step, settings, processed)

    def _stopping(self, here: str, step: Step, settings: Settings, processed: np.ndarray) -> None:
        rule, shape = settings.stopping, tuple(step.argmax.shape)
        assert step.after is not None

        def kept(history: Any) -> np.ndarray:
            return np.stack([to_numpy(x) for x in history]) if history else np.zeros((0, *shape), np.int32)

        ins = {
            "argmax": to_numpy(step.argmax),
            "processed": processed,
            "history": kept(step.before.history),
            "stability": number(-1 if rule is None else rule.stability),
            "confidence": np.array(0.0 if rule is None else rule.confidence),
        }
        outs = {"stop": np.array(step.stopped), "history": kept(step.after.history)}
        self.emit("stopping", here, ins, outs)


def _asked(settings: Settings) -> np.ndarray:
    """What decides about a canvas, in the table's words and order."""
    options, entropy = settings.options, settings.options.sampler != CONFIDENCE
    config: dict[str, Any] = {"t_min": settings.schedule.t_min, "t_max": settings.schedule.t_max}
    if entropy:
        config["sampler_config"] = {"entropy_bound": settings.entropy_bound}
    if settings.stopping is not None:
        config["stability_threshold"] = settings.stopping.stability
        config["confidence_threshold"] = settings.stopping.confidence
    asked = {
        "sampler": options.sampler,
        "threshold": 0.9 if entropy else options.threshold,
        "temperature": options.temperature,
        "steps": settings.steps,
        "show": options.show,
        "generation_config": config,
    }
    return text_bytes(json.dumps(asked))
