"""Self-conditioning: what the last step thought, fed to the next as the average embedding under its probabilities.

Legend: B batch, C canvas tokens, D hidden, V vocabulary.
"""

import mlx.core as mx

from .config import TextConfig
from .embed import Embedding
from .linear import Linear
from .ops import RMSNorm, geglu, unit_rms
from .weights import Scope


def confident_probabilities(logits_BCV: mx.array) -> mx.array:
    """Softmax in float32: floats [B, C, V] to the same shape and dtype. The confidence sampler's formula."""
    return mx.softmax(logits_BCV, axis=-1, precise=True)


@mx.compile
def _from_log(logits_BCV: mx.array) -> mx.array:
    return mx.exp(logits_BCV - mx.logsumexp(logits_BCV, axis=-1, keepdims=True))


def entropic_probabilities(logits_BCV: mx.array) -> mx.array:
    """Exp of log-probabilities, float32 [B, C, V]. The entropy sampler's formula: other roundings than softmax."""
    return _from_log(logits_BCV.astype(mx.float32))


def soft_from_table(probabilities_BCV: mx.array, table_VD: mx.array, scale: float) -> mx.array:
    """Average embeddings from a table that was unpacked once, as an engine does between steps.

    Args:
        probabilities_BCV: floats; rounded to the table's dtype before the product.
        table_VD: the embedding, unpacked.
        scale: of the embedding.

    Returns:
        floats [B, C, D] in the table's dtype.
    """
    return (probabilities_BCV.astype(table_VD.dtype) @ table_VD) * scale


def soft_from_logits(embedding: Embedding, logits_BCV: mx.array, dtype: mx.Dtype) -> mx.array:
    """Average embeddings straight from the packed table, as the model does when it is given logits.

    Args:
        embedding: the table and its scale.
        logits_BCV: float32, capped.
        dtype: that of the activations.

    Returns:
        floats [B, C, D] in that dtype. Not bit-equal to `soft_from_table`: the kernels add in different orders.
    """
    probabilities_BCV = confident_probabilities(logits_BCV)
    if embedding.table.packed:
        probabilities_BCV = probabilities_BCV.astype(dtype)
    return embedding.table.combine(probabilities_BCV).astype(dtype) * embedding.scale


class SelfConditioning:
    """Adds a gated network of the signal to the canvas' embeddings, then norms the sum.

    Args:
        scope: `model.decoder.self_conditioning`.
        text: the configuration.
    """

    def __init__(self, scope: Scope, text: TextConfig) -> None:
        hidden, inner = text.hidden_size, text.intermediate_size
        self.pre_norm = RMSNorm(scope / "pre_norm", hidden, text.rms_norm_eps)
        self.gate_proj = Linear(scope / "gate_proj", hidden, inner)
        self.up_proj = Linear(scope / "up_proj", hidden, inner)
        self.down_proj = Linear(scope / "down_proj", inner, hidden)
        self._eps = text.rms_norm_eps

    def __call__(self, embeds_BCD: mx.array, signal_BCD: mx.array) -> mx.array:
        """Embeddings and signal, floats [B, C, D], to the same shape and dtype; no signal is a signal of zeros."""
        x_BCD = self.pre_norm(signal_BCD)
        x_BCD = self.down_proj(geglu(self.gate_proj(x_BCD), self.up_proj(x_BCD)))
        return unit_rms(embeds_BCD + x_BCD, self._eps)
