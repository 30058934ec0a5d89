"""The model: a Llama that sees both ways and is told how much of its text is masked.

Legend: B batch, T tokens, D hidden, H query heads, G key-value heads, d head width, W timestep width (= D), V
vocabulary with [MASK].
"""

import math

import mlx.core as mx
import numpy as np
from mlx import nn

from .config import Config
from .exponential import by_vectors, gated, softmax

BLOCKED = -1e9  # as the seed: finite, so that a row of nothing but padding stays a number


class Rotary:
    """Rotates the two halves of a head against each other by position (not neighbouring pairs)."""

    def __init__(self, config: Config) -> None:
        self.width = config.head_dim
        # Each rounded once from float64: MLX's own are a power of float32, and turn far positions by more than torch's.
        self.periods = mx.array((config.rope_theta ** (np.arange(0, self.width, 2) / self.width)).astype(np.float32))

    def __call__(self, x_BHTd: mx.array) -> mx.array:
        """The same shape and dtype; positions count from 0."""
        return mx.fast.rope(x_BHTd, self.width, traditional=False, base=None, scale=1.0, offset=0, freqs=self.periods)


class TimestepEmbedding(nn.Module):
    """Sines, then cosines, of t at frequencies that fall from 1 to exactly 1/10000, through a small network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.half = width // 2
        self.mlp = [nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)]

    def __call__(self, t_B: mx.array) -> mx.array:
        """T in [0, 1] to [B, W] in the dtype of the weights.

        Raises:
            ValueError: t is not floating: an integer step is no share of masks.
        """
        if not mx.issubdtype(t_B.dtype, mx.floating):
            raise ValueError(f"t has the dtype {t_B.dtype}; it is a share of masks from 0 to 1, a floating number")
        # half - 1, not half: the last frequency is reached.
        falling = np.exp(np.arange(self.half) * -(math.log(10000.0) / (self.half - 1)))
        phase_BW = t_B[:, None].astype(mx.float32) * mx.array(falling.astype(np.float32))
        x_BW = mx.concatenate([mx.sin(phase_BW), mx.cos(phase_BW)], axis=-1).astype(self.mlp[0].weight.dtype)
        for layer in self.mlp:
            x_BW = layer(x_BW)
        return x_BW


class TimestepResidual(nn.Module):
    """What the timestep adds to every position; starts at zero, so that a converted Llama is not disturbed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.proj.weight, self.proj.bias = mx.zeros((width, width)), mx.zeros((width,))

    def __call__(self, emb_BW: mx.array) -> mx.array:
        """[B, 1, D]."""
        return self.proj(emb_BW)[:, None]


class Attention(nn.Module):
    """Attention of every position to every position; key-value heads are shared by runs of query heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.width, self.scale = config.head_dim, config.head_dim**-0.5
        hidden = config.hidden_size
        inner, shared = config.num_attention_heads * self.width, config.num_key_value_heads * self.width
        self.q_proj = nn.Linear(hidden, inner, bias=False)
        self.k_proj = nn.Linear(hidden, shared, bias=False)
        self.v_proj = nn.Linear(hidden, shared, bias=False)
        self.o_proj = nn.Linear(inner, hidden, bias=False)
        self.rotary_emb = Rotary(config)

    def __call__(self, x_BTD: mx.array, mask: mx.array | None) -> mx.array:
        """[B, T, D]; `mask` [B, 1, 1, T] is added to the scores."""
        batch, tokens, _ = x_BTD.shape
        q, k, v = (
            proj(x_BTD).reshape(batch, tokens, -1, self.width).swapaxes(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = self.rotary_emb(q), self.rotary_emb(k)
        seen_BHTd = attend(q, k, v, scale=self.scale, mask=mask)
        return self.o_proj(seen_BHTd.swapaxes(1, 2).reshape(batch, tokens, -1))


def attend(q_BHTd: mx.array, k_BGTd: mx.array, v_BGTd: mx.array, *, scale: float, mask: mx.array | None) -> mx.array:
    """softmax(q k^T scale + mask) v [B, H, T, d]; `mask` [B, 1, 1, T] or [T, T]."""
    if not by_vectors(q_BHTd):
        return mx.fast.scaled_dot_product_attention(q_BHTd, k_BGTd, v_BGTd, scale=scale, mask=mask)
    batch, heads, tokens, width = q_BHTd.shape
    together = (batch, k_BGTd.shape[1], -1, width)  # the heads that share a key-value head, one below the other
    score_BGRT = (q_BHTd * scale).reshape(together) @ k_BGTd.swapaxes(-1, -2)
    score_BHTT = score_BGRT.reshape(batch, heads, tokens, -1)
    weight_BHTT = softmax(score_BHTT if mask is None else score_BHTT + mask)
    return (weight_BHTT.reshape(score_BGRT.shape) @ v_BGTd).reshape(q_BHTd.shape)


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """The same shape as `x`."""
        return self.down_proj(gated(self.gate_proj(x), self.up_proj(x)))


class Block(nn.Module):
    """Attention, timestep, network, and the same timestep again."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)
        self.timestep_residual = TimestepResidual(config.hidden_size)

    def __call__(self, x: mx.array, emb_BW: mx.array, mask: mx.array | None) -> mx.array:
        """[B, T, D]."""
        timestep_B1D = self.timestep_residual(emb_BW)
        x = x + self.self_attn(self.input_layernorm(x), mask) + timestep_B1D
        return x + self.mlp(self.post_attention_layernorm(x)) + timestep_B1D


class Embedding(nn.Module):
    """The table; looking padding up does not train its row, though a tied head still does."""

    def __init__(self, rows: int, width: int, pad: int | None) -> None:
        super().__init__()
        self.weight, self.pad = mx.random.normal((rows, width)) * 0.02, pad

    def __call__(self, ids_BT: mx.array) -> mx.array:
        """[B, T, D]."""
        x_BTD = self.weight[ids_BT]
        if self.pad is None:
            return x_BTD
        return mx.where((ids_BT == self.pad)[..., None], mx.stop_gradient(x_BTD), x_BTD)


class MetaDiffusion(nn.Module):
    """The whole model; parameters are named as in the checkpoint."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size + 1, config.hidden_size, config.pad_token_id)
        self.timestep_emb = TimestepEmbedding(config.timestep_emb_hidden)
        self.layers = [Block(config) for _ in range(config.num_hidden_layers)]
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size + 1, bias=False)

    def __call__(self, ids_BT: mx.array, t_B: mx.array, padding_BT: mx.array | None = None) -> mx.array:
        """Logits [B, T, V].

        Args:
            ids_BT: int32, padding on the right.
            t_B: floating, the share of masks.
            padding_BT: bool, true at real tokens; None where all are.
        """
        x, emb_BW = self.embed_tokens(ids_BT), self.timestep_emb(t_B)
        mask = additive(padding_BT, x.dtype)
        for layer in self.layers:
            x = layer(x, emb_BW, mask)
        x = self.norm(x)
        return x @ self.embed_tokens.weight.T if self.config.tie_word_embeddings else self.lm_head(x)

    def predict(self, ids_BT: mx.array, t_B: mx.array, padding_BT: mx.array | None = None) -> mx.array:
        """Logits [B, T, V] for what stands at each position: those of the position before it, where the head shifts."""
        logits = self(ids_BT, t_B, padding_BT)
        return mx.concatenate([logits[:, :1], logits[:, :-1]], axis=1) if self.config.ar_shift else logits


def additive(padding_BT: mx.array | None, dtype: mx.Dtype) -> mx.array | None:
    """What is added to attention scores [B, 1, 1, T]: 0 at real tokens, `BLOCKED` at padding; None for no padding."""
    if padding_BT is None:
        return None
    return mx.where(padding_BT[:, None, None], 0.0, BLOCKED).astype(dtype)
