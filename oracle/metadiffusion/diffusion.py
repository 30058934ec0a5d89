"""Masking, losses and unmasking, as the seed has them; and what the seed leaves out, where the port needs a twin.

Every draw is an argument. Legend: B batch, T tokens, V vocabulary, N steps.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .model import MetaDiffusion

LEAST = 1e-3  # chance of being masked that a loss is divided by; as LLaDA, which draws no smaller t


def corrupt(
    ids_BT: Tensor, real_BT: Tensor, u_B: Tensor, uniform_BT: Tensor, low: float, high: float, mask_id: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(t [B], masked [B, T], noisy ids): each real token is masked where its draw is below t, and at least one is.

    The seed has no such function and never uses its mask_ratio_min and max; this is q(x_t) of LLaDA (Nie et al. 2025).
    """
    t_B = (low + (high - low) * u_B.double()).float()
    masked_BT = (uniform_BT < t_B[:, None]) & real_BT
    lowest = uniform_BT.masked_fill(~real_BT, float("inf")).argmin(-1, keepdim=True)
    lonely = ~masked_BT.any(-1, keepdim=True) & real_BT.any(-1, keepdim=True)
    masked_BT = masked_BT | (torch.zeros_like(masked_BT).scatter(-1, lowest, True) & lonely)
    return t_B, masked_BT, torch.where(masked_BT, mask_id, ids_BT)


def flat_loss(logits: Tensor, labels_BT: Tensor, masked_BT: Tensor, pad: int | None) -> tuple[Tensor, int]:
    """The seed's loss: mean cross entropy over masked positions whose label is not padding, and how many those are.

    Where there are none the seed returns a constant, whose backward raises; here the zero hangs on the logits.
    """
    chosen = masked_BT if pad is None else masked_BT & (labels_BT != pad)
    count = int(chosen.sum())
    if not count:
        return logits.sum() * 0.0, 0
    return functional.cross_entropy(logits[chosen], labels_BT[chosen]), count


def elbo_loss(logits: Tensor, labels_BT: Tensor, masked_BT: Tensor, t_B: Tensor, pad: int | None) -> Tensor:
    """Cross entropy at masked positions, each divided by the chance t of being masked, over all real positions.

    The bound of LLaDA (Nie et al. 2025, eq. 3); the seed does not have it.
    """
    real = torch.ones_like(masked_BT) if pad is None else labels_BT != pad
    chosen = masked_BT & real
    each = functional.cross_entropy(logits.transpose(1, 2), labels_BT, reduction="none") / t_B[:, None].clamp(
        min=LEAST
    ).to(logits.dtype)
    return torch.where(chosen, each, 0.0).sum() / max(int(real.sum()), 1)


def predict(logits: Tensor, forbidden: list[int]) -> tuple[Tensor, Tensor]:
    """The best token and its probability at each position.

    The seed forbids none, so that [MASK] itself can be "unmasked" to.
    """
    if forbidden:
        logits = logits.index_fill(-1, torch.tensor(forbidden), float("-inf"))
    best_BT = logits.argmax(-1)
    return best_BT, logits.softmax(-1).gather(-1, best_BT[..., None])[..., 0]


def reveal_seed(ids_BT: Tensor, best_BT: Tensor, confidence_BT: Tensor, count_B: Tensor, mask_id: int) -> Tensor:
    """The seed's choice: the `count` surest of a row, where revealed positions rank last instead of being left out.

    Quirk: with fewer masks left than `count` it overwrites what was revealed. The seed leaves the order of equals to
    the backend's topk; here the lowest position comes first, one of the outcomes it allows and the same everywhere.
    """
    rank = confidence_BT.masked_fill(ids_BT != mask_id, -1.0)
    return _write(ids_BT, best_BT, rank, count_B)


def reveal(ids_BT: Tensor, best_BT: Tensor, confidence_BT: Tensor, count_B: Tensor, mask_id: int) -> Tensor:
    """The `count` surest masked positions of a row, and no other, take their best token; lowest position first."""
    hidden_BT = ids_BT == mask_id
    rank = confidence_BT.masked_fill(~hidden_BT, float("-inf"))
    return torch.where(hidden_BT, _write(ids_BT, best_BT, rank, count_B), ids_BT)


def _write(ids_BT: Tensor, best_BT: Tensor, rank_BT: Tensor, count_B: Tensor) -> Tensor:
    order_BT = rank_BT.sort(dim=-1, descending=True, stable=True).indices
    place_BT = torch.empty_like(order_BT).scatter_(-1, order_BT, torch.arange(ids_BT.shape[1]).expand_as(order_BT))
    return torch.where(place_BT < count_B[:, None], best_BT, ids_BT)


def seed_schedule(tokens: int, steps: int) -> list[tuple[float, int]]:
    """(t, how many to reveal) of each step, as the seed counts them.

    Quirk: float32 differences, cut to whole numbers: they seldom sum to `tokens`.
    """
    times = torch.linspace(1.0, 0.0, steps + 1)
    return [(float(t), max(1, int(tokens * (t - after)))) for t, after in pairwise(times)]


def corrected_counts(hidden: int, steps: int) -> list[int]:
    """How many of `hidden` masks each step reveals: as even as whole numbers can be, more at first, `hidden` in all."""
    return [hidden // steps + (i < hidden % steps) for i in range(steps)]


@torch.no_grad()
def generate(model: MetaDiffusion, start_BT: Tensor, steps: int, schedule: str, watch: Any = None) -> Tensor:
    """Unmask `start` (the seed always starts from masks alone) by the schedule "seed" or "corrected".

    `watch(step, logits, ids before, count, ids after)` is told of every step.
    """
    config, ids_BT = model.config, start_BT.clone()
    batch, tokens = ids_BT.shape
    hidden_B = (ids_BT == config.mask_token_id).sum(-1)
    planned = torch.tensor([corrected_counts(int(n), steps) for n in hidden_B])
    for step in range(steps):
        if schedule == "seed":
            t, count = seed_schedule(tokens, steps)[step]
            t_B, count_B = torch.full((batch,), t), torch.full((batch,), count)
            forbidden, choose = [], reveal_seed
        else:
            left_B = (ids_BT == config.mask_token_id).sum(-1)
            if not left_B.any():
                break
            t_B, count_B = (left_B.double() / tokens).float(), planned[:, step]
            forbidden, choose = never(model), reveal
        logits = model(ids_BT, t_B.to(model.norm.weight.dtype))
        best_BT, confidence_BT = predict(logits, forbidden)
        before, ids_BT = ids_BT, choose(ids_BT, best_BT, confidence_BT, count_B, config.mask_token_id)
        if watch:
            watch(step, logits, before, count_B, ids_BT)
    return ids_BT


def never(model: MetaDiffusion) -> list[int]:
    """Tokens that the corrected schedule never writes."""
    pad = model.config.pad_token_id
    return [model.config.mask_token_id, *([] if pad is None else [pad])]
