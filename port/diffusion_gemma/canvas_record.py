"""What the engine did, as plain tensors: the steps of a canvas stacked, and a whole generation.

Legend: B batch, C canvas tokens, V vocabulary, n steps of a canvas, m of them that sample, k that leave a signal.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from .borders import Trace, text_bytes, to_numpy
from .canvas import Step
from .draws import Generator
from .events import Block, Draft, End, Piece
from .generate import stream
from .model import DiffusionGemma
from .options import Options
from .sight import Sight
from .tokens import Tokens

_DIGEST = 8  # bytes of a row's sha256 that are kept
_SOME = 16  # numbers of a row that are kept beside its digest


@lru_cache(maxsize=4)
def tokens_of(directory: Path) -> Tokens:
    """The tokenizer beside a checkpoint."""
    return Tokens(directory)


def row_digests(x: mx.array) -> np.ndarray:
    """sha256 of each row of the last axis, its first bytes: uint8 [..., 8]."""
    array = np.ascontiguousarray(to_numpy(x))
    rows = array.reshape(-1, array.shape[-1])
    digests = b"".join(hashlib.sha256(row.tobytes()).digest()[:_DIGEST] for row in rows)
    return np.frombuffer(digests, np.uint8).reshape(*array.shape[:-1], _DIGEST)


def some(x: mx.array) -> np.ndarray:
    """At most 16 numbers of each row of the last axis, evenly apart from the first on: floats [..., 16]."""
    array = to_numpy(x)
    return np.ascontiguousarray(array[..., :: -(-array.shape[-1] // _SOME)])


def _stacked(arrays: Sequence[mx.array], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.stack([to_numpy(x) for x in arrays]) if arrays else np.zeros((0, *shape), dtype)


def as_trace(steps: Sequence[Step], shape: tuple[int, ...]) -> Trace:
    """Steps as the table spells them, over a canvas of `shape` [B, C]."""
    sampled = [step.sampled for step in steps if step.sampled is not None]
    signals = [step.after.signal for step in steps if step.after is not None and step.after.signal is not None]
    best = [np.partition(to_numpy(step.processed), -2, axis=-1)[..., -2:] for step in steps]
    return {
        "argmax": _stacked([step.argmax for step in steps], shape, np.int32),
        "accepted": _stacked([one.accepted for one in sampled], shape, bool),
        "revealed": _stacked([one.canvas.revealed for one in sampled], shape, bool),
        "canvas": _stacked([one.canvas.tokens for one in sampled], shape, np.int32),
        "stop": np.array([step.done for step in steps]),
        "logits": np.stack([row_digests(step.logits) for step in steps]),
        "some_logits": np.stack([some(step.logits) for step in steps]),
        "soft": np.stack([row_digests(x) for x in signals]) if signals else np.zeros((0, *shape, _DIGEST), np.uint8),
        "some_soft": np.stack([some(x) for x in signals]) if signals else np.zeros((0, *shape, 0), np.float32),
        "best": np.stack([pair[..., 1] for pair in best]),
        "margin": np.stack([pair[..., 1] - pair[..., 0] for pair in best]),
        "measure": _stacked([one.measure for one in sampled], shape, np.float32),
    }


def finished(
    model: DiffusionGemma, ids: list[int] | Sight, asked: dict[str, Any], seed: int, log: list[dict[str, Any]]
) -> Trace:
    """A generation as the table spells it.

    Args:
        model: the model.
        ids: the prompt's tokens, with pictures or without.
        asked: options by the table's names, `generation_config` among them.
        seed: of MLX's generator.
        log: where the draws are noted as the generation makes them.

    Raises:
        OptionError: something that is asked is not allowed.
    """
    options = Options(**{name: value for name, value in asked.items() if name != "generation_config"})
    draws = Generator(model.config.text_config.vocab_size, seed)
    config = asked.get("generation_config") or {}
    events = list(
        stream(model, tokens_of(model.weights.directory), ids, options, generation_config=config, draws=draws)
    )
    end = events[-1]
    assert isinstance(end, End)
    pieces = [event for event in events if isinstance(event, Piece)]
    segments = [piece.text for piece in pieces if not piece.stops]
    return {
        "outcome": text_bytes("finished"),
        "tokens": np.array([piece.token for piece in pieces], np.int32),
        "steps": np.array([event.steps for event in events if isinstance(event, Block)], np.int32),
        "finish": text_bytes(end.finish),
        "segments": text_bytes(json.dumps([*segments, end.text], ensure_ascii=False)),
        "drafts": text_bytes(
            json.dumps([event.text for event in events if isinstance(event, Draft)], ensure_ascii=False)
        ),
        "draws": text_bytes(json.dumps(log, sort_keys=True)),
    }


def refused() -> Trace:
    """The outcome of a generation that the port refuses, as the table spells it."""
    nothing = {name: text_bytes("") for name in ("finish", "segments", "drafts", "draws")}
    return {"outcome": text_bytes("error"), **nothing, **{n: np.zeros(0, np.int32) for n in ("tokens", "steps")}}
