"""Canvases being un-masked, and near-ties of decisions: the golden's side as recorded, the port's as judged."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from reports.more import Cell, NearTie, Trajectory
from reports.verdict import Status, Verdict

from .decisions import Margin
from .gates import FLOATS, Agreement, Tensor, Yardstick, wide
from .run import Answer
from .shelf import Held
from .spec import Out, Stage, Table

CANVAS = "denoise_canvas"
SHOWN = ("argmax", "accepted", "revealed", "canvas")
CLOSEST, KEPT = 4, 40  # near-ties of one occurrence, and of one stage

Found = dict[tuple[str, str, str, str], Verdict]


def _forced(answer: Answer) -> Found:
    return {(v.stage, v.case, v.occurrence, v.tensor): v for v in answer.verdicts if v.mode == "forced"}


def ported(oracle: Tensor, verdict: Verdict | None) -> Tensor | None:
    """What the port gave instead of `oracle`, from what its verdict kept; None where that is not known."""
    if verdict is None or verdict.value is None:
        return None
    if verdict.spread is None:
        return oracle if verdict.status is Status.PASS else None
    if verdict.spread.changed is None or verdict.spread.shape != oracle.shape:
        return None
    port = oracle.copy()
    for place, value in verdict.spread.changed:
        port.reshape(-1)[place] = value
    return port


def trajectories(table: Table, answer: Answer) -> list[Trajectory]:
    """One per case, occurrence and row of the batch; none where the table has no `denoise_canvas`."""
    if CANVAS not in [stage.name for stage in table.stages]:
        return []
    verdicts = _forced(answer)
    found = []
    for name, held in answer.goldens.items():
        words = _Words(held)
        for occurrence in held.golden.occurrences(CANVAS):
            oracle = {tensor: held.golden.read(CANVAS, occurrence).outs[tensor] for tensor in SHOWN}
            known = {n: ported(tensor, verdicts.get((CANVAS, name, occurrence, n))) for n, tensor in oracle.items()}
            port = {n: tensor for n, tensor in known.items() if tensor is not None}
            whole = len(port) == len(oracle)
            found += [
                Trajectory(
                    model=table.model,
                    case=name,
                    occurrence=occurrence + (f", row {row}" if oracle["argmax"].shape[1] > 1 else ""),
                    judged=_judged(oracle, port) if whole else _unknown(known),
                    oracle=tuple(_rows(oracle, row, words)),
                    port=tuple(_rows(port, row, words)) if whole else (),
                )
                for row in range(oracle["argmax"].shape[1])
            ]
    return found


def _judged(oracle: dict[str, Tensor], port: dict[str, Tensor]) -> str:
    apart = {name: int((oracle[name] != port[name]).sum()) for name in oracle}
    if not any(apart.values()):
        return "Both sides made the same decisions at every step and position."
    return "They differ in " + ", ".join(f"{count} of {name}" for name, count in apart.items() if count) + "."


def _unknown(known: dict[str, Tensor | None]) -> str:
    lacking = ", ".join(name for name, tensor in known.items() if tensor is None)
    return f"The port's side is not at hand: no verdict as the code is now says what it gave for {lacking}."


class _Words:
    """Texts of tokens, by the tokenizer beside a checkpoint."""

    def __init__(self, held: Held) -> None:
        self._tokenizer = Tokenizer.from_file(str(held.checkpoint / "tokenizer.json"))
        self._known: dict[int, str] = {}

    def __call__(self, token: int) -> str:
        if token not in self._known:
            text = self._tokenizer.decode([token], skip_special_tokens=False)
            self._known[token] = text or self._tokenizer.id_to_token(token) or f"#{token}"
        return self._known[token]


def _rows(outs: dict[str, Tensor], row: int, words: _Words) -> Iterator[tuple[Cell, ...]]:
    sampled = len(outs["canvas"])
    for step, best in enumerate(outs["argmax"][:, row]):
        if step >= sampled:
            yield tuple(Cell("last", words(int(token)), words(int(token))) for token in best)
            continue
        accepted, revealed = outs["accepted"][step, row], outs["revealed"][step, row]
        yield tuple(
            Cell("accepted" if a else "revealed" if r else "renoised", words(int(token)), words(int(b)))
            for token, b, a, r in zip(outs["canvas"][step, row], best, accepted, revealed, strict=True)
        )


def margins(table: Table, answer: Answer) -> list[NearTie]:
    """The decisions of the oracle that were nearest to another one, by stage, closest first."""
    verdicts = _forced(answer)
    found: list[NearTie] = []
    for stage in table.stages:
        mine: list[NearTie] = []
        for tensor, out in stage.gives.items():
            if any(_decides(gate) for gate in (out.exact, out.portable)):
                for held in answer.goldens.values():
                    mine += _closest(stage, tensor, out, held, verdicts)
        found += sorted(mine, key=lambda tie: (tie.ulp, tie.case, tie.occurrence, tie.index))[:KEPT]
    return found


def _decides(gate: Any) -> bool:
    return bool(getattr(gate, "margins", None)) or (isinstance(gate, Agreement) and bool(gate.scores))


def _closest(stage: Stage, tensor: str, out: Out, held: Held, verdicts: Found) -> Iterator[NearTie]:
    gate: Any = next(gate for gate in (out.portable, out.exact) if _decides(gate))
    for occurrence in held.golden.occurrences(stage.name):
        record = held.golden.read(stage.name, occurrence)
        noises = {name: noise["forced"] for name, noise in (record.noise or {}).items()}
        yardstick = Yardstick(None, noises.get(tensor), record.ins, record.outs, noises)
        chosen = record.outs[tensor]
        margin = _of_best(chosen, gate, yardstick) if isinstance(gate, Agreement) else gate.margins(yardstick)
        if margin is None or not margin.distance.size:
            continue
        port = ported(chosen, verdicts.get((stage.name, held.name, occurrence, tensor)))
        for flat in np.argsort(margin.distance, axis=None, kind="stable")[:CLOSEST]:
            index = np.unravel_index(int(flat), margin.distance.shape)
            distance = float(margin.distance[index])
            if not np.isfinite(distance):  # nothing was decided there
                continue
            yield NearTie(
                model=held.golden.manifest["model"],
                stage=stage.name,
                case=held.name,
                occurrence=occurrence,
                tensor=tensor,
                index=", ".join(f"{axis}={int(i)}" for axis, i in zip(out.axes.split(), index, strict=False)),
                distance=distance,
                ulp=distance / float(margin.spacing[index]),
                noise=distance / margin.noise if margin.noise else None,
                chosen=_said(chosen[index]),
                port="" if port is None else _said(port[index]),
            )


def _said(decision: Any) -> str:
    found = np.asarray(decision)
    return str(sorted(found.tolist()) if found.ndim else found.item())


def _of_best(chosen: Tensor, gate: Agreement, yardstick: Yardstick) -> Margin | None:
    """Of a choice of k: the worst score that was chosen over the best that was not."""
    scores = yardstick.ins.get(gate.scores)
    if scores is None or scores.dtype not in FLOATS or chosen.shape[:-1] != scores.shape[:-1]:
        return None
    count = chosen.shape[-1]
    if count >= scores.shape[-1]:
        return None
    order = np.sort(wide(scores), axis=-1)[..., ::-1]
    last = order[..., count - 1]
    spacing = wide(np.spacing(np.abs(last).astype(scores.dtype)))
    return Margin(last - order[..., count], spacing, yardstick.noise)
