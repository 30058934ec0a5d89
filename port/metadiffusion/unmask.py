"""Writing text by unmasking it: the surest positions first.

Two schedules. "corrected" reveals every mask exactly once. "seed" is the seed's: its counts seldom sum to the length,
so that it leaves masks behind, or goes on and overwrites what it had revealed. It is kept to be held to its oracle.

Legend: B batch, T tokens, V vocabulary with [MASK].
"""

from collections.abc import Callable
from itertools import pairwise

import mlx.core as mx
import numpy as np

from .exponential import largest_share
from .memory import keep
from .model import MetaDiffusion

SCHEDULES = ("corrected", "seed")
# step, logits, ids before, how many to reveal in each row, ids after
Watcher = Callable[[int, mx.array, mx.array, np.ndarray, mx.array], None]


def best(logits: mx.array, forbidden: tuple[int, ...]) -> tuple[mx.array, mx.array]:
    """(token, probability) of the best token [B, T] that is not forbidden; the lowest of equals."""
    logits = logits.astype(mx.float32)
    if forbidden:
        logits = mx.where((mx.arange(logits.shape[-1])[:, None] == mx.array(forbidden)).any(axis=-1), -mx.inf, logits)
    return mx.argmax(logits, axis=-1).astype(mx.int32), largest_share(logits)


def reveal(ids_BT: mx.array, token_BT: mx.array, confidence_BT: mx.array, count_B: np.ndarray, mask: int) -> mx.array:
    """The `count` surest masked positions of a row, and no other, take their token; the first of equals."""
    hidden_BT = ids_BT == mask
    rank_BT = mx.where(hidden_BT, confidence_BT, -mx.inf)
    return mx.where(hidden_BT, _write(ids_BT, token_BT, rank_BT, count_B), ids_BT)


def reveal_seed(
    ids_BT: mx.array, token_BT: mx.array, confidence_BT: mx.array, count_B: np.ndarray, mask: int
) -> mx.array:
    """As the seed: revealed positions rank last but are not left out, and are overwritten once too few masks remain."""
    return _write(ids_BT, token_BT, mx.where(ids_BT == mask, confidence_BT, -1.0), count_B)


def _write(ids_BT: mx.array, token_BT: mx.array, rank_BT: mx.array, count_B: np.ndarray) -> mx.array:
    # A stable sort, so that the first of equals comes first; MLX's own promises no order among them.
    order_BT = np.argsort(-np.array(rank_BT), axis=-1, kind="stable")
    place_BT = np.empty_like(order_BT)
    np.put_along_axis(place_BT, order_BT, np.arange(order_BT.shape[1])[None], axis=-1)
    return mx.where(mx.array(place_BT < count_B[:, None]), token_BT, ids_BT)


def seed_schedule(tokens: int, steps: int) -> list[tuple[float, int]]:
    """(t, how many to reveal) of each step as the seed counts them, in float32 and cut to whole numbers.

    The times are torch.linspace(1, 0, steps + 1) in float32, which counts up from the nearer end.
    """
    step = np.float32(-1.0 / steps)
    half = (steps + 1) // 2
    times = [np.float32(1) + step * np.float32(i) if i < half else -step * np.float32(steps - i) for i in range(steps)]
    times.append(np.float32(0))
    return [(float(t), max(1, int(np.float32(tokens) * np.float32(t - after)))) for t, after in pairwise(times)]


def corrected_counts(hidden_B: np.ndarray, steps: int) -> np.ndarray:
    """How many masks each step reveals [steps, B]: as even as whole numbers can be, more at first, all in the end."""
    return hidden_B // steps + (np.arange(steps)[:, None] < hidden_B % steps)


def never(model: MetaDiffusion) -> tuple[int, ...]:
    """Tokens that are no text: [MASK] and padding."""
    pad = model.config.pad_token_id
    return (model.config.mask_token_id, *(() if pad is None else (pad,)))


def generate(
    model: MetaDiffusion, start_BT: mx.array, steps: int, schedule: str = "corrected", watch: Watcher | None = None
) -> mx.array:
    """Unmask texts.

    Args:
        model: the model.
        start_BT: int32 ids; [MASK] where text is to be written, all else stays as it is (under "corrected").
        steps: how many passes at most, at least 1.
        schedule: "corrected" or "seed".
        watch: is told of every step.

    Returns:
        the texts [B, T]; without a [MASK] under "corrected".

    Raises:
        ValueError: fewer than 1 step, or a schedule that there is not.
    """
    if steps < 1 or schedule not in SCHEDULES:
        raise ValueError(f"{steps} steps by {schedule!r}; there must be at least 1, by one of {', '.join(SCHEDULES)}")
    keep()
    mask, ids_BT = model.config.mask_token_id, start_BT
    batch, tokens = ids_BT.shape
    planned = corrected_counts(np.array((ids_BT == mask).sum(axis=-1)), steps)
    for step in range(steps):
        if schedule == "seed":
            t, count = seed_schedule(tokens, steps)[step]
            t_B, count_B = mx.full((batch,), t), np.full(batch, count, np.int32)
            forbidden, choose = (), reveal_seed
        else:
            left_B = np.array((ids_BT == mask).sum(axis=-1))
            if not left_B.any():
                break
            t_B, count_B = mx.array((left_B / tokens).astype(np.float32)), planned[step].astype(np.int32)
            forbidden, choose = never(model), reveal
        logits = model.predict(ids_BT, t_B)
        before, ids_BT = ids_BT, choose(ids_BT, *best(logits, forbidden), count_B, mask)
        mx.eval(ids_BT)
        if watch:
            watch(step, logits, before, count_B, ids_BT)
    return ids_BT
