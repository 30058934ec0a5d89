"""Where random tokens come from: MLX's generator, in the order in which the engine asks, or a record of such a run.

Legend: B batch, C canvas tokens, V vocabulary.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import mlx.core as mx


class Draws(Protocol):
    """A source of random tokens; the order of the calls is part of a run's identity."""

    def tokens(self, length: int) -> mx.array:
        """Uniform token ids, int32 [1, length]."""
        ...

    def choose(self, logits_BCV: mx.array) -> mx.array:
        """Token ids drawn by softmax of float32 logits, int32 [B, C]."""
        ...


class Generator:
    """MLX's global generator, which belongs to the thread: seed it on the thread that draws.

    Args:
        vocabulary: V.
        seed: to begin with; None goes on from wherever the generator stands.
    """

    def __init__(self, vocabulary: int, seed: int | None = None) -> None:
        self._vocabulary = vocabulary
        if seed is not None:
            mx.random.seed(seed)

    def tokens(self, length: int) -> mx.array:
        """One draw of uniform token ids, int32 [1, length]."""
        return mx.random.randint(0, self._vocabulary, (1, length)).astype(mx.int32)

    def choose(self, logits_BCV: mx.array) -> mx.array:
        """One categorical draw, int32 [B, C]."""
        return mx.random.categorical(logits_BCV).astype(mx.int32)


class Replay:
    """Recorded draws.

    Args:
        tokens: what `tokens` answers, in order: int32 [1, C] each.
        chosen: what `choose` answers, likewise.
    """

    def __init__(self, tokens: Iterable[mx.array], chosen: Iterable[mx.array] = ()) -> None:
        self._tokens: Iterator[mx.array] = iter(tokens)
        self._chosen: Iterator[mx.array] = iter(chosen)

    def tokens(self, length: int) -> mx.array:
        """The next recorded noise.

        Raises:
            ValueError: the record is used up, or holds another length.
        """
        return _next(self._tokens, length)

    def choose(self, logits_BCV: mx.array) -> mx.array:
        """The next recorded choice.

        Raises:
            ValueError: the record is used up, or holds another length.
        """
        return _next(self._chosen, logits_BCV.shape[1])


def _next(recorded: Iterator[mx.array], length: int) -> mx.array:
    drawn = next(recorded, None)
    if drawn is None or drawn.shape[-1] != length:
        held = "is used up" if drawn is None else f"holds {drawn.shape[-1]} tokens next"
        raise ValueError(f"the engine draws {length} tokens, and the record {held}")
    return drawn
