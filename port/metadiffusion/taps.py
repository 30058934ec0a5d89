"""One ordinary run of the port, with every stage's border reported as it is crossed.

The product is not instrumented: for the length of a `with` block its classes' methods are wrapped, then put back.
"""

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from port.crossed_borders import Crossings, Emit, computed
from port.observe import Observer, wrapped

from . import cuts, unmask
from .borders import judged, optional, to_mlx, to_numpy
from .cuts import Opened
from .model import MLP, Attention, Block, Rotary, TimestepEmbedding


def run(opened: Opened, plan: dict[str, Any], emit: Emit) -> None:
    """Execute `plan`, calling `emit(stage, occurrence, ins, outs)` at each border in order of execution."""
    emit("weights", "checkpoint", {}, cuts.weights(opened, {}))
    for way in plan["convert"]:
        emit("convert_ar", f"as={way}", {}, cuts.convert_ar(opened, {"as": way}))
    for i, batch in enumerate(plan["batches"]):
        _train(opened, f"batch={i}", batch, emit)
    for i, one in enumerate(plan["generations"]):
        _generate(opened, f"run={i}/schedule={one['schedule']}", one, emit)


def _train(opened: Opened, prefix: str, batch: dict[str, Any], emit: Emit) -> None:
    takes = {name: batch[name] for name in ("ids", "padding", "u", "uniform", "low", "high")}
    made = cuts.corrupt(opened, {}, **takes)
    emit("corrupt", prefix, takes, made)
    noisy, t, padding = made["noisy"], made["t"], batch["padding"]
    with Crossings(emit) as crossed, wrapped(_Borders(opened, prefix, padding, crossed).observers()):
        logits = opened.model(to_mlx(noisy), to_mlx(t), optional(padding))
        mx.eval(logits)
    emit("forward", prefix, {"ids": noisy, "t": t, "padding": padding}, judged(logits))
    scored = {"labels": batch["ids"], "masked": made["masked"], "t": t}
    takes = {"logits": to_numpy(logits), **scored}
    emit("loss", prefix, takes, cuts.loss(opened, {}, **takes))
    takes = {**takes, "masked": np.ones_like(made["masked"])}
    emit("loss", f"{prefix}/everywhere", takes, cuts.loss(opened, {}, **takes))
    if batch["grad"]:
        takes = {"noisy": noisy, **scored, "padding": padding}
        emit("grad", prefix, takes, cuts.grad(opened, {}, **takes))


def _generate(opened: Opened, prefix: str, one: dict[str, Any], emit: Emit) -> None:
    schedule, model = one["schedule"], opened.model
    counts: list[np.ndarray] = []

    def stepped(step: int, logits: mx.array, before: mx.array, count: np.ndarray, after: mx.array) -> None:
        counts.append(count.astype(np.int32))
        token, confidence = unmask.best(logits, () if schedule == "seed" else unmask.never(model))
        held = {"logits": logits, "before": before, "token": token, "confidence": confidence, "after": after}
        found = computed(held)
        sure = found["confidence"]
        takes = {"logits": found["logits"], "ids": found["before"], "confidence": sure, "count": counts[-1]}
        gives = {"predicted": found["token"], "confidence": sure, "ids": found["after"]}
        emit("unmask_step", f"{prefix}/step={step}", takes, gives)

    final = unmask.generate(model, to_mlx(one["start"]), one["steps"], schedule, stepped)
    takes = {"start": one["start"], "steps": np.array(one["steps"], np.int32)}
    emit("generate", prefix, takes, {"ids": to_numpy(final), "counts": np.stack(counts)})


class _Borders:
    """What stands around the model's methods during one forward pass."""

    def __init__(self, opened: Opened, prefix: str, padding: np.ndarray, emit: Crossings) -> None:
        self.prefix, self.padding, self.emit = prefix, padding, emit
        self.layers: dict[int, int] = {}
        self.norms: dict[int, str] = {id(opened.model.norm): f"{prefix}/final"}
        self.turns: dict[int, Iterator[str]] = {}
        for i, layer in enumerate(opened.model.layers):
            for part in (layer, layer.self_attn, layer.self_attn.rotary_emb, layer.mlp):
                self.layers[id(part)] = i
            self.norms[id(layer.input_layernorm)] = f"{prefix}/layer={i}/input"
            self.norms[id(layer.post_attention_layernorm)] = f"{prefix}/layer={i}/post"
            self.turns[id(layer.self_attn.rotary_emb)] = iter("qk")

    def observers(self) -> dict[tuple[type, str], Observer]:
        """By class and method."""
        known: dict[type, Observer] = {
            TimestepEmbedding: self._timestep,
            nn.RMSNorm: self._norm,
            Rotary: self._rope,
            Attention: self._inner("attention", lambda args: {"x": args[0]}, padded=True),
            MLP: self._inner("mlp", lambda args: {"x": args[0]}, padded=False),
            Block: self._inner("block", lambda args: {"h": args[0], "emb": args[1]}, padded=True),
        }
        return {(cls, "__call__"): observer for cls, observer in known.items()}

    def _timestep(self, _this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        self.emit("timestep_embedding", self.prefix, {"t": args[0]}, {"emb": result})
        return result

    def _norm(self, this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        self.emit("rmsnorm", self.norms[id(this)], {"x": args[0]}, {"h": result})
        return result

    def _rope(self, this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        where = f"{self.prefix}/layer={self.layers[id(this)]}/{next(self.turns[id(this)])}"
        self.emit("rope", where, {"x": args[0]}, {"x": result})
        return result

    def _inner(self, stage: str, named: Callable[[tuple[Any, ...]], dict[str, mx.array]], *, padded: bool) -> Observer:
        def observe(this: Any, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
            result = call()
            takes: dict[str, Any] = {**named(args), **({"padding": self.padding} if padded else {})}
            self.emit(stage, f"{self.prefix}/layer={self.layers[id(this)]}", takes, {"h": result})
            return result

        return observe
