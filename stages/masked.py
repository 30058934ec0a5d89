"""MetaDiffusion's cases: sentences to mask and to learn from, texts to unmask. Every draw is an input."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .spec import Case


@dataclass(frozen=True)
class Batch:
    """Sentences that are masked, run forward, and scored.

    Attributes:
        sentences: How many.
        tokens: Length of the longest.
        padding: Padding at the end of each further sentence, times its number; 0 runs without a mask.
        low: Least share of masks.
        high: Largest share of masks.
        grad: Whether gradients are taken.
    """

    sentences: int
    tokens: int
    padding: int = 0
    low: float = 0.0
    high: float = 1.0
    grad: bool = False


@dataclass(frozen=True)
class Unmasking:
    """One run of the sampler: `prompt` fixed tokens, then masks up to `tokens`."""

    sentences: int
    tokens: int
    prompt: int
    steps: int
    schedule: str


@dataclass(frozen=True)
class MaskedCase(Case):
    """One scenario of a masked-diffusion model.

    Attributes:
        convert: Ways ("seed", "corrected") to convert the checkpoint, a Llama's.
        batches: Sentences to learn from.
        unmaskings: Texts to unmask.
    """

    computes: tuple[str, ...] = ("float32",)
    convert: tuple[str, ...] = ()
    batches: tuple[Batch, ...] = ()
    unmaskings: tuple[Unmasking, ...] = ()


def plan(case: MaskedCase, config: dict[str, Any]) -> dict[str, Any]:
    """What a run of `case` executes on a model with this config.json."""
    draws = np.random.Generator(np.random.PCG64(case.seed))
    return {
        "convert": list(case.convert),
        "batches": [_batch(draws, one, config) for one in case.batches],
        "generations": [_generation(draws, one, config) for one in case.unmaskings],
    }


def _batch(draws: np.random.Generator, one: Batch, config: dict[str, Any]) -> dict[str, Any]:
    shape = (one.sentences, one.tokens)
    ids = draws.integers(4, config["vocab_size"], shape, dtype=np.int32)
    padding = np.zeros(0, bool)
    if config["pad_token_id"] >= 0:
        ids[0, 1::5] = config["pad_token_id"]  # within the text: seen by all, and yet not trained by being looked up
    if one.padding:
        padding = np.arange(one.tokens) < one.tokens - one.padding * np.arange(one.sentences)[:, None]
        ids = np.where(padding, ids, config["pad_token_id"]).astype(np.int32)
    return {
        "ids": ids,
        "padding": padding,
        "u": _unit(draws, (one.sentences,)),
        "uniform": _unit(draws, shape),
        "low": np.array(one.low),
        "high": np.array(one.high),
        "grad": one.grad,
    }


def _generation(draws: np.random.Generator, one: Unmasking, config: dict[str, Any]) -> dict[str, Any]:
    start = draws.integers(4, config["vocab_size"], (one.sentences, one.tokens), dtype=np.int32)
    start[:, one.prompt :] = config["vocab_size"]  # [MASK]
    return {"start": start, "steps": one.steps, "schedule": one.schedule}


def _unit(draws: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Multiples of 2**-24 in [0, 1), exact in float32."""
    return (draws.integers(0, 1 << 24, shape) / (1 << 24)).astype(np.float32)
