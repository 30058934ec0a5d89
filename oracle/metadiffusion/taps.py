"""One ordinary run of the oracle, with every stage's border reported as it is crossed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from . import cuts, diffusion
from .reference import Reference, to_numpy, to_torch

Trace = dict[str, np.ndarray]
Emit = Callable[[str, str, Trace, Trace], None]


def run(reference: Reference, plan: dict[str, Any], emit: Emit) -> None:
    """Execute `plan` on the reference; `emit(stage, occurrence, ins, outs)` at each border, in order of execution."""
    emit("weights", "checkpoint", {}, cuts.weights(reference, {}))
    for way in plan["convert"]:
        emit("convert_ar", f"as={way}", {}, cuts.convert_ar(reference, {"as": way}))
    for i, batch in enumerate(plan["batches"]):
        _train(reference, f"batch={i}", batch, emit)
    for i, one in enumerate(plan["generations"]):
        _generate(reference, f"run={i}/schedule={one['schedule']}", one, emit)


def _train(reference: Reference, prefix: str, batch: dict[str, Any], emit: Emit) -> None:
    ids, padding = batch["ids"], batch["padding"]
    takes = {name: batch[name] for name in ("ids", "padding", "u", "uniform", "low", "high")}
    made = cuts.corrupt(reference, {}, **takes)
    emit("corrupt", prefix, takes, made)
    # The wide twin runs on the same masks, in its own dtype.
    t = made["t"].astype(to_numpy(reference.model.norm.weight).dtype)
    model = reference.model
    with torch.no_grad(), _hooks(reference, prefix, padding, emit):
        logits = model(to_torch(made["noisy"]), to_torch(t), cuts.padded(padding))
    takes = {"ids": made["noisy"], "t": t, "padding": padding}
    emit("forward", prefix, takes, cuts.judged(to_numpy(logits)))
    takes = {"logits": to_numpy(logits), "labels": ids, "masked": made["masked"], "t": t}
    emit("loss", prefix, takes, cuts.loss(reference, {}, **takes))
    takes = {
        **takes,
        "masked": np.ones_like(made["masked"]),
    }  # padding too, which no corruption masks and no loss may count
    emit("loss", f"{prefix}/everywhere", takes, cuts.loss(reference, {}, **takes))
    if batch["grad"]:
        takes = {"noisy": made["noisy"], "labels": ids, "masked": made["masked"], "t": t, "padding": padding}
        emit("grad", prefix, takes, cuts.grad(reference, {}, **takes))


def _generate(reference: Reference, prefix: str, one: dict[str, Any], emit: Emit) -> None:
    schedule, counts = one["schedule"], []

    def stepped(step: int, logits: Any, before: Any, count: Any, after: Any) -> None:
        best, confidence = diffusion.predict(logits, [] if schedule == "seed" else diffusion.never(reference.model))
        counts.append(to_numpy(count))
        takes = {
            "logits": to_numpy(logits),
            "ids": to_numpy(before),
            "confidence": to_numpy(confidence),
            "count": counts[-1],
        }
        gives = {"predicted": to_numpy(best), "confidence": takes["confidence"], "ids": to_numpy(after)}
        emit("unmask_step", f"{prefix}/step={step}", takes, gives)

    final = diffusion.generate(reference.model, to_torch(one["start"]), one["steps"], schedule, stepped)
    takes = {"start": one["start"], "steps": np.array(one["steps"], np.int32)}
    emit("generate", prefix, takes, {"ids": to_numpy(final), "counts": np.stack(counts)})


@contextmanager
def _hooks(reference: Reference, prefix: str, padding: np.ndarray, emit: Emit) -> Iterator[None]:
    """Torch's own forward hooks, taken away again."""
    handles = []
    model = reference.model

    def on(module: Any, stage: str, where: Callable[[], str], takes: Callable[..., Trace], gives: str) -> None:
        def hook(_module: Any, args: Any, result: Any) -> None:
            emit(stage, where(), takes(*args), {gives: to_numpy(result)})

        handles.append(module.register_forward_hook(hook))

    def x(given: Any, *_: Any) -> Trace:
        return {"x": to_numpy(given)}

    on(model.timestep_emb, "timestep_embedding", lambda: prefix, lambda t: {"t": to_numpy(t)}, "emb")
    on(model.norm, "rmsnorm", lambda: f"{prefix}/final", x, "h")
    for i, layer in enumerate(model.layers):
        here = f"{prefix}/layer={i}"
        turn = iter("qk")
        on(layer.input_layernorm, "rmsnorm", lambda here=here: f"{here}/input", x, "h")
        on(layer.post_attention_layernorm, "rmsnorm", lambda here=here: f"{here}/post", x, "h")
        on(layer.self_attn.rotary_emb, "rope", lambda here=here, turn=turn: f"{here}/{next(turn)}", x, "x")
        on(layer.self_attn, "attention", lambda here=here: here, lambda x, *_: _with(padding, x=x), "h")
        on(layer.mlp, "mlp", lambda here=here: here, x, "h")
        on(layer, "block", lambda here=here: here, lambda h, emb, *_: _with(padding, h=h, emb=emb), "h")
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _with(padding: np.ndarray, **tensors: Any) -> Trace:
    return {**{name: to_numpy(x) for name, x in tensors.items()}, "padding": padding}
