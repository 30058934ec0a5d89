"""One observed canvas as plain tensors, stacked over its steps: n steps, m of them that sample, k that leave a signal.

B batch, C canvas tokens, D hidden, V vocabulary.
"""

import hashlib
from typing import Any

import mlx.core as mx
import numpy as np

from .engine import Canvas, Step
from .tensors import to_numpy

Trace = dict[str, np.ndarray]
DIGEST = 8  # bytes of a row's sha256 that are kept
SOME = 16  # numbers of a row that are kept beside its digest, evenly apart: another backend's digest says nothing


def row_digests(x: mx.array) -> np.ndarray:
    """sha256 of each row of the last axis, its first bytes: uint8 [..., 8]."""
    array = np.ascontiguousarray(to_numpy(x))
    flat = array.reshape(-1, array.shape[-1])
    digests = b"".join(hashlib.sha256(row.tobytes()).digest()[:DIGEST] for row in flat)
    return np.frombuffer(digests, np.uint8).reshape(*array.shape[:-1], DIGEST)


def some(x: mx.array) -> np.ndarray:
    """At most 16 numbers of each row of the last axis, evenly apart from the first on: floats [..., 16]."""
    array = to_numpy(x)
    return np.ascontiguousarray(array[..., :: -(-array.shape[-1] // SOME)])


def best_two(processed: mx.array) -> tuple[np.ndarray, np.ndarray]:
    """The highest logit of each position, and by how much it is higher than the next: [B, C] each."""
    second, first = np.moveaxis(np.partition(to_numpy(processed), -2, axis=-1)[..., -2:], -1, 0)
    return first, first - second


def stacked(arrays: list[Any], like: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Arrays [...] as [n, ...]; (0, *like) where there are none."""
    return np.stack([to_numpy(x) for x in arrays]) if arrays else np.zeros((0, *like), dtype)


def takes(canvas: Canvas) -> Trace:
    """What replaying the canvas needs beside its caches and options."""
    tokens = to_numpy(canvas.tokens)
    sampled = sampling(canvas)
    befores = [step["before"] for step in sampled]
    if len(canvas.steps) > len(sampled):  # a last step that does not sample saw what the one before it left
        before = {name: sampled[-1][name] for name in ("draft", "revealed")} if sampled else _nothing(canvas)
        befores.append(before)
    return {
        "tokens": tokens,
        "noise": stacked([step["noise"] for step in sampled], tokens.shape, np.int32),
        "drawn": stacked([step["drawn"] for step in sampled if "drawn" in step.values], tokens.shape, np.int32),
        "canvases": stacked([step["canvas"] for step in canvas.steps], tokens.shape, np.int32),
        "drafts": stacked([before["draft"] for before in befores], tokens.shape, np.int32),
        "reveals": stacked([before["revealed"] for before in befores], tokens.shape, bool),
        "stops": np.array([ends(canvas, step) for step in canvas.steps]),
    }


def _nothing(canvas: Canvas) -> dict[str, mx.array]:
    return {"draft": canvas.tokens, "revealed": mx.zeros(canvas.tokens.shape, dtype=mx.bool_)}


def sampling(canvas: Canvas) -> list[Step]:
    """The steps that sample."""
    return [step for step in canvas.steps if "accepted" in step.values]


def ends(canvas: Canvas, step: Step) -> bool:
    """Whether no step follows."""
    return bool(step.get("stop")) or step.number == 1


def gives(canvas: Canvas) -> Trace:
    """What the steps of a canvas came to, stacked."""
    shape = tuple(canvas.tokens.shape)
    sampled = sampling(canvas)
    softs = [step["soft"] for step in canvas.steps if "soft" in step.values and not ends(canvas, step)]
    best, margin = zip(*(best_two(step["processed"]) for step in canvas.steps), strict=True)
    return {
        "argmax": stacked([step["argmax"] for step in canvas.steps], shape, np.int32),
        "accepted": stacked([step["accepted"] for step in sampled], shape, bool),
        "revealed": stacked([step["revealed"] for step in sampled], shape, bool),
        "canvas": stacked([step["tokens"] for step in sampled], shape, np.int32),
        "stop": np.array([ends(canvas, step) for step in canvas.steps]),
        "logits": np.stack([row_digests(step["logits"]) for step in canvas.steps]),
        "some_logits": np.stack([some(step["logits"]) for step in canvas.steps]),
        "soft": np.stack([row_digests(x) for x in softs]) if softs else np.zeros((0, *shape, DIGEST), np.uint8),
        "some_soft": np.stack([some(x) for x in softs]) if softs else np.zeros((0, *shape, 0), np.float32),
        "best": np.stack(best),
        "margin": np.stack(margin),
        "measure": stacked([step["measure"] for step in sampled], shape, np.float32),
    }
