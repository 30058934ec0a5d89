"""Port against oracle on the same weights and machine, interleaved: forward, training step and generation.

The size is the seed's own 50M; `BENCH_ROUNDS` (3), `BENCH_TOKENS` (64) and `BENCH_LAYERS` (12) make it smaller. MLX's
wheel for Linux links the reference BLAS; to measure it with another, preload that one (LD_PRELOAD=libopenblas.so.0).
"""

import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
import torch
from mlx import nn, optimizers
from mlx.utils import tree_flatten

from goldens import backend
from oracle.metadiffusion import diffusion as oracle_diffusion
from oracle.metadiffusion.model import Config as OracleConfig
from oracle.metadiffusion.model import MetaDiffusion as Oracle
from port.metadiffusion import diffusion, unmask
from port.metadiffusion.config import Config
from port.metadiffusion.model import MetaDiffusion

ROUNDS, TOKENS, LAYERS = (
    int(os.environ.get(f"BENCH_{n}", d)) for n, d in (("ROUNDS", 3), ("TOKENS", 64), ("LAYERS", 12))
)
SEED_SIZE = Config(512, 1408, LAYERS, 8, 4, 64, 32000, 5120, 10000.0, 1e-6, 512, 1, tie_word_embeddings=True)
STEPS = 4


class Pair:
    """The same model twice, and one batch."""

    def __init__(self) -> None:
        self.port = MetaDiffusion(SEED_SIZE)
        mx.eval(self.port.parameters())
        names = {field.name for field in dataclasses.fields(OracleConfig)}
        fields = {k: v for k, v in dataclasses.asdict(SEED_SIZE).items() if k in names}
        self.oracle = Oracle(OracleConfig(**fields))
        weights = {name: torch.from_numpy(np.array(x)) for name, x in tree_flatten(self.port.parameters())}
        self.oracle.load_state_dict(weights)
        draws = np.random.default_rng(0)
        self.labels = draws.integers(4, 32000, (1, TOKENS)).astype(np.int32)
        self.masked = draws.random((1, TOKENS)) < 0.5
        self.ids = np.where(self.masked, 32000, self.labels).astype(np.int32)
        self.t = np.array([0.5], np.float32)
        self.start = np.full((1, TOKENS), 32000, np.int32)
        self.start[:, : TOKENS // 2] = self.labels[:, : TOKENS // 2]
        self.optimizer = optimizers.AdamW(learning_rate=1e-4)
        self.torch_optimizer = torch.optim.AdamW(self.oracle.parameters(), lr=1e-4)
        self.gradient = nn.value_and_grad(self.port, self._scored)

    def _scored(self, ids: mx.array) -> mx.array:
        logits = self.port(ids, mx.array(self.t))
        return diffusion.flat_loss(logits, mx.array(self.labels), mx.array(self.masked), 1)

    def forward_port(self) -> np.ndarray:
        return np.array(self.port(mx.array(self.ids), mx.array(self.t)))

    def forward_oracle(self) -> np.ndarray:
        with torch.no_grad():
            return self.oracle(torch.from_numpy(self.ids).long(), torch.from_numpy(self.t)).numpy()

    def train_port(self) -> None:
        loss, grads = self.gradient(mx.array(self.ids))
        self.optimizer.update(self.port, grads)
        mx.eval(self.port.parameters(), self.optimizer.state, loss)

    def train_oracle(self) -> None:
        logits = self.oracle(torch.from_numpy(self.ids).long(), torch.from_numpy(self.t))
        labels, masked = torch.from_numpy(self.labels).long(), torch.from_numpy(self.masked)
        loss, _ = oracle_diffusion.flat_loss(logits, labels, masked, 1)
        self.torch_optimizer.zero_grad()
        loss.backward()
        self.torch_optimizer.step()

    def generate_port(self) -> None:
        mx.eval(unmask.generate(self.port, mx.array(self.start), STEPS))

    def generate_oracle(self) -> None:
        oracle_diffusion.generate(self.oracle, torch.from_numpy(self.start).long(), STEPS, "corrected")


@pytest.fixture(scope="module")
def pair() -> Pair:
    made = Pair()
    port, oracle = made.forward_port(), made.forward_oracle()
    assert np.abs(port - oracle).max() < 1e-4 * np.abs(oracle).max()
    return made


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_port_beside_oracle(pair, capsys):
    found = {}
    for what in ("forward", "generate", "train"):
        port, oracle = getattr(pair, f"{what}_port"), getattr(pair, f"{what}_oracle")
        port(), oracle()
        rounds = [(seconds(port), seconds(oracle)) for _ in range(ROUNDS)]
        ours, theirs = (statistics.median(side) for side in zip(*rounds, strict=True))
        found[what] = {"port_s": ours, "oracle_s": theirs, "port_over_oracle": ours / theirs}
    with capsys.disabled():
        print(f"\n{LAYERS} layers, {TOKENS} tokens, {ROUNDS} rounds; torch on {torch.get_num_threads()} threads")
        for what, row in found.items():
            ours, theirs, ratio = row.values()
            print(f"{what:10} port {ours:8.3f} s  oracle {theirs:8.3f} s  ratio {ratio:6.2f}")
        print(json.dumps({"backend": backend.describe(), **found}))
