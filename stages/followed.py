"""Trajectories away from the golden's backend: how far the port followed the oracle, and whether a tie parted them.

A decision that rounding can turn is a tie: the oracle's distance to the other one is within its own rounding of that
step (`ties.py`). A forced canvas begins each step anew with the recorded tokens: ties are set aside, one by one. A free
one goes on with its own: from a tie that changes its tokens on nothing can be compared, and only what came before is.
Any other difference is left for the gates to fail.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from goldens.store import Record

from .gates import Tensor
from .ties import NEAR, Near, near

Trace = dict[str, Tensor]
CANVAS, WHOLE = "denoise_canvas", ("generate", "generate_image")
DECISIONS = ("argmax", "accepted", "revealed", "canvas", "stop")
COMPUTED = ("argmax", "logits", "some_logits", "best", "margin", "measure")  # before a step's decisions, or one of them


@dataclass(frozen=True)
class Parting:
    """Where a free trajectory left the oracle at a tie.

    Attributes:
        canvas: its number.
        number: of the step, counting down.
        draws: made until that step.
        tokens: of the canvases before this one.
        note: what a reader is told.
    """

    canvas: int
    number: int
    draws: int
    tokens: int
    note: str

    def parted(self, at: dict[str, Any]) -> bool:
        """Whether a border (its occurrence's parts) follows from that tie."""
        canvas, step = at.get("canvas"), at.get("step")
        if canvas is None or canvas < self.canvas:
            return False
        return bool(canvas > self.canvas or (step is not None and step <= self.number))


@dataclass(frozen=True)
class Settled:
    """What is left to compare: the oracle's side, the port's, a note of what is not, and where they parted."""

    record: Record
    outs: Trace
    note: str = ""
    parting: Parting | None = None


def forced(canvas: Record, outs: Trace) -> Settled:
    """A canvas whose steps were told: ties among its decisions set aside."""
    if any(name not in outs or outs[name].shape != canvas.outs[name].shape for name in DECISIONS):
        return Settled(canvas, outs)
    nearness, port, ratios = near(canvas, canvas), dict(outs), list[float]()
    for name in DECISIONS:
        port[name] = outs[name].copy()
        for step in range(len(port[name])):
            ratios += _set_aside(port[name], canvas.outs[name], step, nearness.of(name, step))
    return Settled(canvas, port, _aside(ratios))


def free(canvas: Record, replayed: Record, outs: Trace, where: int = 0, before: tuple[int, int] = (0, 0)) -> Settled:
    """A canvas that went on with its own tokens: cut before what follows a tie.

    Args:
        canvas: the oracle's.
        replayed: the forced occurrence of the same canvas.
        outs: the port's.
        where: the canvas' number.
        before: draws and tokens of the canvases before it.
    """
    canvas = replace(canvas, wide=replayed.wide, noise=replayed.noise)
    if any(name not in outs or outs[name].shape[1:] != canvas.outs[name].shape[1:] for name in DECISIONS):
        return Settled(canvas, outs)
    nearness, ratios = near(canvas, replayed), list[float]()
    port = {**outs, "argmax": outs["argmax"].copy()}
    for step in range(len(canvas.outs["argmax"])):
        if step >= len(port["argmax"]):
            return Settled(canvas, outs)
        changed = _changed(canvas.outs, port, step)
        last = step >= len(canvas.outs["accepted"])  # what is best there is what the canvas gives
        turned = _turned(canvas.outs, port, nearness, step)
        if turned and max(turned) > NEAR:
            return Settled(canvas, outs)
        ratios += _set_aside(port["argmax"], canvas.outs["argmax"], step, nearness.best[step])
        if turned and (changed or last):
            parting = _parting(canvas, step, turned, where, before)
            cut = {name: _cut(name, tensor, step) for name, tensor in canvas.outs.items()}
            deltas = {name: _cut(name, tensor, step) for name, tensor in (canvas.wide or {}).items()}
            mine = {name: _cut(name, tensor, step) for name, tensor in port.items()}
            return Settled(replace(canvas, outs=cut, wide=deltas), mine, parting.note, parting)
    return Settled(canvas, port, _aside(ratios))


def whole(record: Record, outs: Trace, parting: Parting | None) -> Settled:
    """A generation up to a tie within it: the canvases before that one, and the draws until that step.

    What a categorical draw gives follows from logits, and is compared by what it leads to, not by its digest.
    """
    if outs.keys() != record.outs.keys() or "draws" not in outs:  # something is missing; or another model's generation
        return Settled(record, outs)
    oracle, port = (_numbers_apart(trace) for trace in (record.outs, outs))
    if parting is None or all(np.array_equal(port[name], tensor) for name, tensor in oracle.items()):
        return Settled(replace(record, outs=oracle), port)

    def cut(trace: Trace) -> Trace:
        kept = {"outcome": trace["outcome"], "tokens": trace["tokens"][: parting.tokens]}
        kept |= {"steps": trace["steps"][: parting.canvas], "draws": _listed(_drawn(trace)[: parting.draws])}
        return {name: kept.get(name, tensor[:0]) for name, tensor in trace.items()}

    return Settled(replace(record, outs=cut(oracle)), cut(port), parting.note, parting)


def _numbers_apart(trace: Trace) -> Trace:
    draws = [{n: x for n, x in one.items() if n != "sha256" or one["kind"] != "categorical"} for one in _drawn(trace)]
    return {**trace, "draws": _listed(draws)} if draws else trace


def _drawn(trace: Trace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(trace["draws"].tobytes() or "[]")
    return found


def _listed(draws: list[dict[str, Any]]) -> Tensor:
    return np.frombuffer(json.dumps(draws, sort_keys=True).encode(), np.uint8)


def _set_aside(port: Tensor, oracle: Tensor, step: int, ratio: Tensor) -> list[float]:
    """Let a step's ties be the oracle's decisions; gives their distances."""
    tied = (port[step] != oracle[step]) & (ratio <= NEAR)
    port[step] = np.where(tied, oracle[step], port[step])
    found: list[float] = np.atleast_1d(ratio)[np.atleast_1d(tied)].tolist()
    return found


def _aside(ratios: list[float]) -> str:
    count = f"{len(ratios)} tie{'s' if len(ratios) > 1 else ''} set aside"
    return f"{count}, at most {max(ratios):.2g} times the oracle's rounding apart" if ratios else ""


def _changed(oracle: Trace, port: Trace, step: int) -> bool:
    """Whether a step leaves another canvas behind, or ends it otherwise."""
    pairs = [(oracle[name], port[name]) for name in DECISIONS[1:]]
    return any(
        (len(a) > step) != (len(b) > step) or (len(a) > step and bool(np.any(a[step] != b[step]))) for a, b in pairs
    )


def _turned(oracle: Trace, port: Trace, nearness: Near, step: int) -> list[float]:
    """The distances of all decisions of a step that differ."""
    found: list[float] = []
    for name in DECISIONS:
        if len(oracle[name]) > step and len(port[name]) > step:
            differs = np.atleast_1d(oracle[name][step] != port[name][step])
            found += np.atleast_1d(nearness.of(name, step))[differs].tolist()
    return found


def _parting(canvas: Record, step: int, turned: list[float], where: int, before: tuple[int, int]) -> Parting:
    steps, sampled = len(canvas.outs["argmax"]), min(step, len(canvas.outs["accepted"]))
    count = "1 decision" if len(turned) == 1 else f"{len(turned)} decisions"
    note = (
        f"followed {step} of {steps} steps of canvas {where}, then a tie: {count} within "
        f"{max(turned):.2g} times the oracle's rounding (at most {NEAR:g}); nothing that follows from it is compared"
    )
    each = 2 if len(canvas.ins["drawn"]) else 1
    number = json.loads(canvas.ins["options"].tobytes())["steps"] - step
    return Parting(where, number, before[0] + 1 + each * sampled, before[1], note)


def made(canvas: Record) -> tuple[int, int]:
    """Draws and tokens of a whole canvas."""
    return 1 + len(canvas.ins["noise"]) + len(canvas.ins["drawn"]), canvas.ins["tokens"].shape[1]


def _cut(name: str, tensor: Tensor, step: int) -> Tensor:
    """What was computed before a step's decisions, and decided before that step."""
    return tensor[: step + 1] if name in COMPUTED else tensor[:step]
