"""One ordinary generation of the reference, with the engine's borders reported canvas by canvas, step by step."""

from collections.abc import Callable
from typing import Any

import numpy as np

from . import canvas_cuts, engine, facts, vision_taps
from .canvas_record import sampling, stacked, takes
from .cuts import count
from .engine import Canvas, Step
from .reference import Reference
from .state import ABSENT, visible
from .tensors import to_numpy

Trace = dict[str, np.ndarray]
Emit = Callable[[str, str, Trace, Trace], None]


def run(reference: Reference, planned: dict[str, Any], prefix: str, emit: Emit) -> None:
    """Run one planned generation; `emit` at every border, in order of execution."""
    if planned["pictures"]:
        _about_pictures(reference, planned, prefix, emit)
        return
    ids = planned["ids"]
    if ids is None:
        ids = np.array(reference.tokenizer.encode(planned["prompt"], add_special_tokens=True), np.int32)
    options = planned["options"]
    inner = _Generation(reference, options, prefix, emit)
    log: list[dict[str, Any]] = []
    observed = engine.Observed(finished=inner.canvas)
    with observed.watching(), engine.drawing(log):
        found, said = canvas_cuts.outcome(lambda: engine.generate(reference, ids, options, planned["seed"]), log)
    ins = {
        "ids": ids,
        "options": facts.as_json(options),
        "seed": count(planned["seed"]),
        "said": facts.as_bytes(said),
    }
    emit("generate", f"{prefix}whole", ins, found)


def _about_pictures(reference: Reference, planned: dict[str, Any], prefix: str, emit: Emit) -> None:
    """One generation about pictures: looked at once, then answered for in the prefill."""
    ids, types, features = vision_taps.seen(reference, planned)
    ins = {
        "ids": ids,
        "types": types,
        "features": features,
        "options": facts.as_json(planned["options"]),
        "seed": count(planned["seed"]),
        "said": facts.as_bytes(""),
    }
    inner = _Generation(reference, planned["options"], prefix, emit)
    with engine.Observed(finished=inner.canvas).watching():
        found = canvas_cuts.generate_image(reference, {}, **ins)
    emit("generate_image", f"{prefix}whole", ins, found)


def untold(ins: Trace) -> Trace:
    """What only a forced replay is told of the steps, empty."""
    return {name: ins[name][:0] for name in ("canvases", "drafts", "reveals", "stops")}


class _Generation:
    """The canvases of one generation as they end."""

    def __init__(self, reference: Reference, options: dict[str, Any], prefix: str, emit: Emit) -> None:
        self.reference, self.options, self.prefix, self.emit = reference, options, prefix, emit
        self.block = 0

    def canvas(self, canvas: Canvas) -> None:
        """Report one canvas: its steps, then the whole of it."""
        here = f"{self.prefix}canvas={self.block}"
        self.block += 1
        for step in canvas.steps:
            self._step(f"{here}/step={step.number}", step)
        states: Trace = {}
        cursors = []
        for i, cache in enumerate(canvas.caches):
            states[f"past_keys.{i}"], states[f"past_values.{i}"], cursor = visible(cache)
            cursors.append(cursor)
        ins = {**states, "cursors": np.stack(cursors), **takes(canvas), "options": self._options(canvas)}
        outs = canvas_cuts.gives(canvas)
        self.emit("denoise_canvas", f"{here}/forced", ins, outs)
        self.emit("denoise_canvas", f"{here}/free", {**ins, **untold(ins)}, outs)

    def _options(self, canvas: Canvas) -> np.ndarray:
        """What decides about the canvas, as the loop was seen to use it."""
        first = canvas.steps[0]
        t_min, t_max = first["schedule"]
        limits = [step["limit"] for step in sampling(canvas)] or [0.1]
        config: dict[str, Any] = {"t_min": t_min, "t_max": t_max}
        entropy = self.options.get("sampler") == "entropy-bound"
        if entropy:
            config["sampler_config"] = {"entropy_bound": limits[0]}
        if rule := first.get("rule"):
            config |= {"stability_threshold": 1, "confidence_threshold": 0.005, **rule}
        return facts.as_json(
            {
                "sampler": self.options.get("sampler", "confidence-threshold"),
                "threshold": 0.9 if entropy else limits[0],
                "temperature": self.options.get("temperature", 0.0),
                "steps": first["steps"],
                "show": self.options.get("show", False),
                "generation_config": config,
            }
        )

    def _step(self, here: str, step: Step) -> None:
        value = {name: to_numpy(step[name]) for name in ("logits", "processed", "argmax", "canvas")}
        schedule = np.array(step["schedule"], np.float64)
        number, steps = count(step.number), count(step["steps"])
        ins = {"logits": value["logits"], "step": number, "steps": steps, "schedule": schedule}
        self.emit("temperature", here, ins, {"processed": value["processed"]})
        if step.get("accepted") is None:
            return
        value |= {
            name: to_numpy(step[name]) for name in ("measure", "accepted", "noise", "tokens", "draft", "revealed")
        }
        drawn = to_numpy(step["drawn"]) if step.get("drawn") is not None else np.zeros(ABSENT, np.int32)
        before = {name: to_numpy(x) for name, x in step["before"].items()}
        processed, limit, last = value["processed"], np.array(step["limit"], np.float64), np.array(step.number == 1)
        entropy = self.options.get("sampler") == "entropy-bound"
        chosen = drawn if drawn.size else value["argmax"]
        if entropy:
            self.emit("token_entropy", here, {"processed": processed}, {"entropy": value["measure"]})
            ins = {"entropy": value["measure"], "bound": limit}
            self.emit("accept_entropy", here, ins, {"accepted": value["accepted"]})
        else:
            self.emit(
                "token_confidence", here, {"processed": processed, "tokens": chosen}, {"confidence": value["measure"]}
            )
            ins = {"confidence": value["measure"], "unrevealed": ~before["revealed"], "threshold": limit, "last": last}
            self.emit("accept_confidence", here, ins, {"accepted": value["accepted"]})
        kept = chosen if entropy else value["draft"]
        ins = {"keep": value["revealed"], "tokens": kept, "noise": value["noise"]}
        self.emit("renoise", here, ins, {"canvas": value["tokens"]})
        self._sampled(here, step, value, {"drawn": drawn, "limit": limit, "last": last, **before})

    def _sampled(self, here: str, step: Step, value: Trace, more: Trace) -> None:
        sampler = self.options.get("sampler", "confidence-threshold")
        limits = {"threshold": float(more["limit"]), "bound": float(more["limit"])}
        asked = {"sampler": sampler, "last": bool(more["last"]), **limits}
        ins = {
            "processed": value["processed"],
            "canvas": value["canvas"],
            "draft": more["draft"],
            "revealed": more["revealed"],
            "noise": value["noise"],
            "drawn": more["drawn"],
            "options": facts.as_json(asked),
        }
        outs = {name: value[name] for name in ("argmax", "accepted", "draft", "revealed")}
        self.emit("sampler_step", here, ins, {**outs, "canvas": value["tokens"]})
        if step.get("remembered") is None:
            return
        rule = step["rule"]
        stability = -1 if rule is None else int(rule.get("stability_threshold", 1))
        confidence = 0.0 if rule is None else float(rule.get("confidence_threshold", 0.005))
        shape = value["argmax"].shape
        ins = {
            "argmax": value["argmax"],
            "processed": value["processed"],
            "history": stacked(step["history"], shape, np.int32),
            "stability": count(stability),
            "confidence": np.array(confidence, np.float64),
        }
        outs = {"stop": np.array(step["stable"]), "history": stacked(step["remembered"], shape, np.int32)}
        self.emit("stopping", here, ins, outs)
