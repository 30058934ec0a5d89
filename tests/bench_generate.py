"""Time per generated token and peak memory, the port against mlx-optiq: run with `nox -s bench`.

Both engines generate the same tokens from the same checkpoint, prompts and seeds, in turn, in one process; which goes
first alternates. What is compared is the sum over the prompts of each engine's fastest round. CPU time is counted
too: on a machine that others use it says more than the wall.
"""

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import mlx.core as mx
import pytest
from generations import default_checkpoint

from oracle.diffusion_gemma import engine, reference
from port.diffusion_gemma import cuts
from port.diffusion_gemma.canvas_record import finished, tokens_of

AIM = 0.8
ROUNDS = 3
PROMPTS = ("The capital of France is", "List three colors, three animals and three cities, each on a line of its own.")
STEPS = {"float32": 8, "bfloat16": 2}
TOKENS = {"float32": 70, "bfloat16": 64}


@dataclass
class Clock:
    """Wall and CPU seconds of the fastest round of each prompt, tokens, and the most memory."""

    wall: dict[int, float] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    peak: int = 0

    def run(self, i: int, generate: Callable[[], list[int]]) -> None:
        """One generation."""
        mx.clear_cache()
        mx.reset_peak_memory()
        wall, cpu = time.perf_counter(), time.process_time()
        tokens = generate()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self.wall[i], self.cpu[i] = min(wall, self.wall.get(i, wall)), min(cpu, self.cpu.get(i, cpu))
        self.tokens[i], self.peak = tokens, max(self.peak, mx.get_peak_memory())


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def sides(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        where = default_checkpoint()
        yield reference.load(where, request.param), cuts.load(where, request.param)


@pytest.mark.parametrize("sampler", ["confidence-threshold", "entropy-bound"])
def test_time_per_token(sides, sampler, capsys):
    oracle, port = sides
    options = {"sampler": sampler, "steps": STEPS[oracle.compute], "max_tokens": TOKENS[oracle.compute]}
    clocks = {"oracle": Clock(), "port": Clock()}
    ids = [tokens_of(port.weights.directory).encode(prompt) for prompt in PROMPTS]
    runs = {
        "oracle": lambda i: engine.generate(oracle, ids[i], options, i).tokens,
        "port": lambda i: finished(port, ids[i], options, i, [])["tokens"].tolist(),
    }
    for one in range(ROUNDS):
        for i in range(len(PROMPTS)):
            for name in ("oracle", "port") if (one + i) % 2 else ("port", "oracle"):
                clocks[name].run(i, lambda name=name, i=i: runs[name](i))
    assert clocks["oracle"].tokens == clocks["port"].tokens
    row = table(clocks)
    with capsys.disabled():
        title = f"{sampler}, {oracle.compute}"
        print(f"\n{title:32}{'oracle':>12}{'port':>12}{'ratio':>8}   aim {AIM}")
        for what, (a, b) in row.items():
            print(f"{what:32}{a:12.2f}{b:12.2f}{b / a:8.3f}")
        print(json.dumps({"sampler": sampler, "compute": oracle.compute, **{k: list(v) for k, v in row.items()}}))


def table(clocks: dict[str, Clock]) -> dict[str, tuple[float, float]]:
    """What is shown of both engines."""

    def both(value: Callable[[Clock], float]) -> tuple[float, float]:
        return value(clocks["oracle"]), value(clocks["port"])

    def tokens(clock: Clock) -> int:
        return sum(len(made) for made in clock.tokens.values())

    return {
        "wall ms a token": both(lambda clock: 1e3 * sum(clock.wall.values()) / tokens(clock)),
        "CPU ms a token": both(lambda clock: 1e3 * sum(clock.cpu.values()) / tokens(clock)),
        "peak MB": both(lambda clock: clock.peak / 1e6),
    }
