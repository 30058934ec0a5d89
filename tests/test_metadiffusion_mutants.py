"""Bugs that ports of this model have, each planted in the port and caught at its stage, fed the oracle's inputs."""

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from harness import harness
from mlx import nn

from port.metadiffusion import convert, cuts, diffusion, model, unmask
from port.metadiffusion.model import Attention, Block, Embedding, Rotary, TimestepEmbedding
from stages.cli import table_of

Patch = pytest.MonkeyPatch
TABLE = table_of("metadiffusion")
ORDER = [stage.name for stage in TABLE.stages]


def causal_mask(patch: Patch) -> None:
    plain = Attention.__call__

    def call(self, x, mask):
        tokens = x.shape[1]
        causal = mx.where(mx.tril(mx.ones((tokens, tokens), dtype=mx.bool_)), 0.0, -1e9)
        return plain(self, x, causal if mask is None else mask + causal)

    patch.setattr(Attention, "__call__", call)


def rope_interleaved(patch: Patch) -> None:
    def call(self, x):
        return mx.fast.rope(x, self.width, traditional=True, base=None, scale=1.0, offset=0, freqs=self.periods)

    patch.setattr(Rotary, "__call__", call)


def shared_heads_tiled(patch: Patch) -> None:
    def call(self, x, mask):
        batch, tokens, _ = x.shape
        q, k, v = (
            proj(x).reshape(batch, tokens, -1, self.width).swapaxes(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = self.rotary_emb(q), self.rotary_emb(k)
        k, v = (mx.tile(shared, (1, q.shape[1] // shared.shape[1], 1, 1)) for shared in (k, v))
        seen = mx.fast.scaled_dot_product_attention(q, k, v, scale=self.scale, mask=mask)
        return self.o_proj(seen.swapaxes(1, 2).reshape(batch, tokens, -1))

    patch.setattr(Attention, "__call__", call)


def padding_attended(patch: Patch) -> None:
    for module in (model, cuts):
        patch.setattr(module, "additive", lambda padding, dtype: None)


def timestep_once(patch: Patch) -> None:
    def call(self, x, emb, mask):
        x = self.timestep_residual(x + self.self_attn(self.input_layernorm(x), mask), emb)
        return x + self.mlp(self.post_attention_layernorm(x))

    patch.setattr(Block, "__call__", call)


def _waves(patch: Patch, waves: Callable) -> None:
    def call(self, t):
        x = waves(t, self.half)
        for layer in self.mlp:
            x = layer(x)
        return x

    patch.setattr(TimestepEmbedding, "__call__", call)


def sine_cosine_swapped(patch: Patch) -> None:
    def waves(t, half):
        phase = t[:, None] * mx.exp(mx.arange(half) * -(np.log(10000.0) / (half - 1)))
        return mx.concatenate([mx.cos(phase), mx.sin(phase)], axis=-1)

    _waves(patch, waves)


def half_instead_of_half_less_one(patch: Patch) -> None:
    def waves(t, half):
        phase = t[:, None] * mx.exp(mx.arange(half) * -(np.log(10000.0) / half))
        return mx.concatenate([mx.sin(phase), mx.cos(phase)], axis=-1)

    _waves(patch, waves)


def t_times_1000(patch: Patch) -> None:
    def waves(t, half):
        phase = 1000 * t[:, None] * mx.exp(mx.arange(half) * -(np.log(10000.0) / (half - 1)))
        return mx.concatenate([mx.sin(phase), mx.cos(phase)], axis=-1)

    _waves(patch, waves)


def norm_without_eps(patch: Patch) -> None:
    patch.setattr(nn.RMSNorm, "__call__", lambda self, x: mx.fast.rms_norm(x, self.weight, 0.0))


def mean_without_padding(patch: Patch) -> None:
    patch.setattr(convert, "mask_row", lambda table: mx.concatenate([table[:1], table[2:]]).mean(axis=0, keepdims=True))


def theta_lost(patch: Patch) -> None:
    plain = convert.configure
    patch.setattr(convert, "configure", lambda directory, way="corrected": plain(directory, "seed"))


def loss_everywhere(patch: Patch) -> None:
    patch.setattr(
        diffusion, "chosen", lambda labels, masked, pad: mx.ones_like(masked) if pad is None else labels != pad
    )


def padding_scored(patch: Patch) -> None:
    patch.setattr(diffusion, "chosen", lambda labels, masked, pad: masked)


def elbo_unweighted(patch: Patch) -> None:
    plain = diffusion.elbo_loss
    patch.setattr(diffusion, "elbo_loss", lambda *given: plain(*given[:3], mx.ones_like(given[3]), given[4]))


def padding_trained_by_lookup(patch: Patch) -> None:
    patch.setattr(Embedding, "__call__", lambda self, ids: self.weight[ids])


def padding_masked(patch: Patch) -> None:
    plain = diffusion.corrupt
    patch.setattr(diffusion, "corrupt", lambda ids, real, *rest: plain(ids, None, *rest))


def no_mask_at_all(patch: Patch) -> None:
    def corrupt(ids, real, t, uniform, mask):
        masked = (uniform < t[:, None]) & (mx.ones(ids.shape, dtype=mx.bool_) if real is None else real)
        return masked, mx.where(masked, mask, ids)

    patch.setattr(diffusion, "corrupt", corrupt)


def confidence_of_the_wrong_token(patch: Patch) -> None:
    plain = unmask.best

    def best(logits, forbidden):
        token, _ = plain(logits, forbidden)
        return token, mx.softmax(logits, axis=-1).min(axis=-1)

    patch.setattr(unmask, "best", best)


def surest_of_all_positions(patch: Patch) -> None:
    patch.setattr(unmask, "reveal", lambda ids, token, sure, count, mask: unmask._write(ids, token, sure, count))


def mask_predicted(patch: Patch) -> None:
    plain = unmask.best

    def best(logits, forbidden):
        lifted = mx.where(mx.arange(logits.shape[-1]) == logits.shape[-1] - 1, logits + 20, logits)
        return plain(lifted, ())

    patch.setattr(unmask, "best", best)


def whole_schedule_cut(patch: Patch) -> None:
    patch.setattr(unmask, "corrected_counts", lambda hidden, steps: np.tile(hidden // steps, (steps, 1)))


MUTANTS = (
    (theta_lost, "convert_ar"),
    (mean_without_padding, "convert_ar"),
    (sine_cosine_swapped, "timestep_embedding"),
    (half_instead_of_half_less_one, "timestep_embedding"),
    (t_times_1000, "timestep_embedding"),
    (norm_without_eps, "rmsnorm"),
    (rope_interleaved, "rope"),
    (causal_mask, "attention"),
    (shared_heads_tiled, "attention"),
    (padding_attended, "attention"),
    (timestep_once, "block"),
    (padding_masked, "corrupt"),
    (no_mask_at_all, "corrupt"),
    (loss_everywhere, "loss"),
    (padding_scored, "loss"),
    (elbo_unweighted, "loss"),
    (padding_trained_by_lookup, "grad"),
    (confidence_of_the_wrong_token, "unmask_step"),
    (surest_of_all_positions, "unmask_step"),
    (mask_predicted, "unmask_step"),
    (whole_schedule_cut, "generate"),
)


@pytest.mark.parametrize(("mutant", "stage"), MUTANTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_mutant_is_caught_at_its_stage(mutant, stage, monkeypatch, tmp_path):
    mutant(monkeypatch)
    said = harness(monkeypatch, tmp_path)("run", "--model", "metadiffusion", "--json")
    assert said.code == 1, said.err
    failed = [row for row in said.document["verdicts"] if row["status"] == "FAIL" and row["mode"] == "forced"]
    assert failed
    assert min((row["stage"] for row in failed), key=ORDER.index) == stage
    before = ORDER[: ORDER.index(stage)]
    forced = [row for row in said.document["verdicts"] if row["stage"] in before and row["mode"] == "forced"]
    assert {row["status"] for row in forced} == {"PASS"}


def test_unharmed_everything_passes(monkeypatch, tmp_path):
    said = harness(monkeypatch, tmp_path)("run", "--model", "metadiffusion", "--json")
    assert said.code == 0
    assert {row["stage"] for row in said.document["verdicts"]} == set(ORDER)

    assert said.document["tier"] == "portable"
    assert {row["status"] for row in said.document["verdicts"]} == {"PASS"}
