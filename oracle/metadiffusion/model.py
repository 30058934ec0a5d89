"""A Llama that sees both ways and is told how much of its text is masked.

Every quirk of the seed is kept and has a comment that begins with "Quirk". `wide` is the float that the seed spells
`.float()`: float32 as it computes, float64 where the yardstick for its rounding is made.

Legend: B batch, T tokens, D hidden, H query heads, G key-value heads, d head width, W timestep width, V vocabulary.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCKED = -1e9  # Quirk: a number, not -inf; a row that is all padding therefore averages its padding


@dataclass(frozen=True)
class Config:
    """What the seed's configuration holds of the architecture; names as in config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int = 5120
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    # Quirk: 512 whatever the hidden size; where the two differ the seed's first forward raises.
    timestep_emb_hidden: int = 512
    pad_token_id: int | None = 1
    tie_word_embeddings: bool = True
    wide: torch.dtype = torch.float32

    @property
    def mask_token_id(self) -> int:
        """[MASK] is one row after the vocabulary."""
        return self.vocab_size


class Rotary(nn.Module):
    """Rotation of the two halves of a head against each other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        steps = torch.arange(0, config.head_dim, 2).to(config.wide) / config.head_dim
        # Kept out of reach of `.to(dtype)`, which in the seed would round it and turn far positions by radians.
        self.frequencies = 1.0 / config.rope_theta**steps

    def forward(self, x_BHTd: Tensor, positions_BT: Tensor) -> Tensor:
        """Rotated by position; the same shape and dtype."""
        angles_BTd = (positions_BT[..., None].to(self.frequencies.dtype) * self.frequencies).repeat(1, 1, 2)
        cos, sin = (f(angles_BTd).to(x_BHTd.dtype)[:, None] for f in (torch.cos, torch.sin))
        first, second = x_BHTd.chunk(2, dim=-1)
        return x_BHTd * cos + torch.cat((-second, first), dim=-1) * sin


class TimestepEmbedding(nn.Module):
    """Sines and cosines of t at falling frequencies, through a small network."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.timestep_emb_hidden
        self.half, self.wide = width // 2, config.wide
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, t_B: Tensor) -> Tensor:
        """T in [0, 1] to [B, W]."""
        # Quirk: divided by half - 1, so that the last frequency is exactly 1/10000 (others divide by half).
        fall = math.log(10000.0) / (self.half - 1)
        frequencies = torch.exp(torch.arange(self.half, dtype=self.wide) * -fall)
        # Quirk: t is not scaled up, so that most of the embedding hardly moves between t = 0 and t = 1.
        phase_BW = t_B[:, None].to(self.wide) * frequencies[None]
        waves_BW = torch.cat((phase_BW.sin(), phase_BW.cos()), dim=-1)
        # Quirk: cast to the dtype of t, not of the weights: an integer t would come out as zeros.
        return self.mlp(waves_BW).to(t_B.dtype)


class TimestepResidual(nn.Module):
    """Adds what the timestep has to say to every position; zero until trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, width)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x_BTD: Tensor, emb_BD: Tensor) -> Tensor:
        """The same shape as `x`."""
        return x_BTD + self.proj(emb_BD)[:, None]


class RMSNorm(nn.Module):
    """x / rms(x) * weight, in the dtype of x (Quirk: Llama computes it in float32; equal where x is float32)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as `x`."""
        return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps))


class SelfAttention(nn.Module):
    """Attention of every position to every position; query heads share key-value heads in runs."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        hidden, inner, shared = config.hidden_size, self.heads * self.width, self.kv_heads * self.width
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(hidden, n, bias=False) for n in (inner, shared, shared))
        self.o_proj = nn.Linear(inner, hidden, bias=False)
        self.rotary_emb = Rotary(config)

    def forward(self, x_BTD: Tensor, mask: Tensor | None, positions_BT: Tensor) -> Tensor:
        """[B, T, D]; `mask` is added to the scores."""
        batch, tokens, _ = x_BTD.shape
        q, k, v = (
            proj(x_BTD).view(batch, tokens, -1, self.width).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = self.rotary_emb(q, positions_BT), self.rotary_emb(k, positions_BT)
        k, v = (shared.repeat_interleave(self.heads // self.kv_heads, dim=1) for shared in (k, v))
        seen_BHTd = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(seen_BHTd.transpose(1, 2).reshape(batch, tokens, -1))


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as `x`."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention, timestep, network, timestep."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = SelfAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)
        self.timestep_residual = TimestepResidual(config.hidden_size)

    def forward(self, x: Tensor, emb_BD: Tensor, mask: Tensor | None, positions_BT: Tensor) -> Tensor:
        """[B, T, D]."""
        x = x + self.self_attn(self.input_layernorm(x), mask, positions_BT)
        # Quirk: one residual with one set of weights, added after attention and again after the network.
        x = self.timestep_residual(x, emb_BD)
        x = x + self.mlp(self.post_attention_layernorm(x))
        return self.timestep_residual(x, emb_BD)


class MetaDiffusion(nn.Module):
    """The whole model; parameters are named as in the seed."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        # Quirk: padding_idx keeps the lookup of padding from training its row; the tied head still does.
        # It also takes -1, Llama's word for "none", as the last row, which is [MASK].
        self.embed_tokens = nn.Embedding(config.vocab_size + 1, config.hidden_size, padding_idx=config.pad_token_id)
        self.timestep_emb = TimestepEmbedding(config)
        self.layers = nn.ModuleList([Block(config) for _ in range(config.num_hidden_layers)])
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size + 1, bias=False)

    def forward(self, ids_BT: Tensor, t_B: Tensor, padding_BT: Tensor | None = None) -> Tensor:
        """Logits [B, T, V]; `padding` is 1 at real tokens, 0 at padding."""
        # Quirk: positions count from 0 whatever the padding, so that padding on the left moves the text.
        positions_BT = torch.arange(ids_BT.shape[1]).expand(ids_BT.shape)
        x, emb_BD = self.embed_tokens(ids_BT), self.timestep_emb(t_B)
        mask = additive(padding_BT, x.dtype, self.config.wide)
        for layer in self.layers:
            x = layer(x, emb_BD, mask, positions_BT)
        x = self.norm(x)
        head = self.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight
        return functional.linear(x, head)


def additive(padding_BT: Tensor | None, dtype: torch.dtype, wide: torch.dtype) -> Tensor | None:
    """What is added to attention scores [B, 1, 1, T]: 0 at real tokens, a large negative number at padding."""
    return None if padding_BT is None else ((1.0 - padding_BT[:, None, None].to(wide)) * BLOCKED).to(dtype)
