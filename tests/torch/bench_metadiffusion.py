"""Port against oracle on the same weights, inputs and machine: forward, training step and generation.

Each side has a process of its own, so that neither's libraries are the other's: the oracle with PyTorch's, the port
once with the reference BLAS that MLX's wheel for Linux links and once with OpenBLAS preloaded, where it is installed.
One process works at a time, in turn (A B C, then C B A), so that a busy minute is everybody's. The size is the seed's
own 50M; `BENCH_ROUNDS` (4), `BENCH_TOKENS` (64) and `BENCH_LAYERS` (12) make it smaller, `BENCH_REFERENCE=0` leaves the
reference BLAS out.
"""

import json
import os
import statistics
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import numpy as np
import pytest

ROUNDS, TOKENS, LAYERS = (
    int(os.environ.get(f"BENCH_{n}", d)) for n, d in (("ROUNDS", 4), ("TOKENS", 64), ("LAYERS", 12))
)
ROOT = Path(__file__).parents[2]
SIDES = Path(__file__).with_name("bench_sides.py")
PIECES = ("forward", "train", "generate")
OPENBLAS = find_library("openblas")


class Side:
    """A worker that has done everything once and waits."""

    def __init__(self, name: str, kind: str, folder: Path, preload: str = "") -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, SIDES, kind, folder, name],
            env=environment(preload),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def seconds(self, piece: str) -> float:
        """Of one piece of work."""
        self._process.stdin.write(f"{piece}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        line = self._process.stdout.readline().strip()
        assert line, f"the worker {self.name!r} ended with exit code {self._process.wait()}; its words stand above"
        return line

    def close(self) -> None:
        """Let the worker end."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def environment(preload: str = "") -> dict[str, str]:
    """This one's, with the checkout to import from."""
    kept = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return {**kept, "PYTHONPATH": str(ROOT)} | ({"LD_PRELOAD": preload} if preload else {})


@pytest.fixture
def sides(tmp_path):
    """All workers, once their results agree."""
    (tmp_path / "asked.json").write_text(json.dumps({"layers": LAYERS, "tokens": TOKENS}))
    subprocess.run([sys.executable, SIDES, "make", tmp_path], env=environment(), check=True)
    made = [Side("oracle", "oracle", tmp_path)]
    try:
        if os.environ.get("BENCH_REFERENCE", "1") != "0":
            made.append(Side("port, reference BLAS", "port", tmp_path))
        if sys.platform == "linux" and OPENBLAS:
            made.append(Side("port, OpenBLAS", "port", tmp_path, OPENBLAS))
        theirs = np.load(tmp_path / "oracle.npz")
        for side in made[1:]:
            ours = np.load(tmp_path / f"{side.name}.npz")
            for piece in ("forward", "train"):
                assert np.abs(ours[piece] - theirs[piece]).max() < 1e-4 * np.abs(theirs[piece]).max(), (side, piece)
        yield made
    finally:
        for side in made:
            side.close()


def test_port_beside_oracle(sides, capsys):
    found = {side.name: {piece: [] for piece in PIECES} for side in sides}
    for piece in PIECES:
        for turn in range(ROUNDS):
            for side in sides if turn % 2 == 0 else reversed(sides):
                found[side.name][piece].append(side.seconds(piece))
    medians = {name: {piece: statistics.median(times[piece]) for piece in PIECES} for name, times in found.items()}
    with capsys.disabled():
        print(f"\n{LAYERS} layers, {TOKENS} tokens, {os.cpu_count()} cores, medians of {ROUNDS} rounds")
        if not OPENBLAS:
            print("OpenBLAS is not installed (Debian: libopenblas0-pthread): the port ran without it")
        for piece in PIECES:
            for name, times in medians.items():
                ratio = times[piece] / medians["oracle"][piece]
                print(f"{piece:10} {name:22} {times[piece]:8.3f} s  {ratio:6.2f} x the oracle's")
        print(json.dumps(found))
