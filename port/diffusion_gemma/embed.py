"""The embedding table, at both ends: tokens to hidden states, and hidden states to logits.

Legend: B batch, T tokens, D hidden, V vocabulary.
"""

from collections.abc import Callable

import mlx.core as mx

from .config import ModelConfig
from .lanes import by_rows
from .linear import Matrix
from .splice import merge
from .weights import Scope


def softcap(cap: float) -> Callable[[mx.array], mx.array]:
    """Cap * tanh(x / cap), in float32 whatever goes in: in bfloat16 it would halve the distinct values.

    The cap is a constant of the compiled graph, as in the reference: a GPU may divide by a constant its own way.
    """

    def capped(x: mx.array) -> mx.array:
        return mx.tanh(x.astype(mx.float32) / cap) * cap

    return mx.compile(capped, shapeless=True)


class Embedding:
    """A table [V, D] that is also the head, transposed.

    Args:
        scope: `model.decoder.embed_tokens`.
        config: the configuration; image and video tokens are not words.
    """

    def __init__(self, scope: Scope, config: ModelConfig) -> None:
        text = config.text_config
        self.table = Matrix(scope, text.vocab_size, text.hidden_size)
        self.scale = text.hidden_size**0.5
        self._pad = text.pad_token_id
        self._foreign = [i for i in (config.image_token_id, config.video_token_id) if i is not None]
        self._softcap = softcap(float(text.final_logit_softcapping))
        self._dense: mx.array | None = None

    @property
    def dense(self) -> mx.array:
        """The whole table unpacked, floats [V, D]: unpacked once, and kept for every later generation."""
        if self._dense is None:
            dense = self.table.dense()
            mx.eval(dense)
            self._dense = dense
        return self._dense

    def prompt(self, ids_BT: mx.array) -> mx.array:
        """Integers [B, T] to floats [B, T, D]; image and video tokens read as padding until features replace them."""
        for token in self._foreign:
            ids_BT = mx.where(ids_BT == token, self._pad, ids_BT)
        return self.canvas(ids_BT)

    def merged(self, ids_BT: mx.array, features_BND: mx.array) -> mx.array:
        """Integers [B, T] and soft tokens, in order, for all image and video tokens among them: floats [B, T, D].

        Raises:
            PictureError: there are more or fewer soft tokens than places for them.
        """
        places_BT = mx.zeros(ids_BT.shape, dtype=mx.bool_)
        for token in self._foreign:
            places_BT = places_BT | (ids_BT == token)
        return merge(self.prompt(ids_BT), places_BT, features_BND)

    def canvas(self, ids_BT: mx.array) -> mx.array:
        """Integers [B, T] to floats [B, T, D], every id a word."""
        # The scale is rounded to the activations' dtype first: 53.0 in bfloat16 for D = 2816, not 53.07.
        return self.table.rows(ids_BT) * self.scale

    def head(self, h_BTD: mx.array) -> mx.array:
        """Floats [B, T, D] to capped logits [B, T, V] in float32."""
        return by_rows(lambda rows: self._softcap(self.table.apply(rows)), h_BTD)
