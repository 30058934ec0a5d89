"""What a model is trained on: a text as one long row of ids, cut anew at every step, masked by that step's draws."""

from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
from tokenizers import Tokenizer

from port.errors import CheckpointError, PortError

from .config import Config
from .diffusion import antithetic, corrupt, shares


@dataclass(frozen=True)
class Lesson:
    """One step's batch, all [B, T] but t [B]."""

    labels: mx.array
    noisy: mx.array
    masked: mx.array
    t: mx.array


def tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a checkpoint directory.

    Raises:
        CheckpointError: it has none.
    """
    path = directory / "tokenizer.json"
    if not path.exists():
        raise CheckpointError(
            str(path), found="it is missing", expected="a tokenizer", mend="copy the Llama's tokenizer.json there"
        )
    return Tokenizer.from_file(str(path))


def read_text(path: Path, directory: Path, config: Config, length: int) -> np.ndarray:
    """The ids of a text file, int32 [n].

    Raises:
        PortError: the text is shorter than one row of `length`, or the tokenizer knows tokens that the model does not.
    """
    ids = np.array(tokenizer(directory).encode(path.read_text(encoding="utf-8")).ids, np.int32)
    if len(ids) <= length:
        found = f"it has {len(ids)} tokens"
        raise PortError(str(path), found=found, expected=f"more than --length {length}", mend="give a longer text")
    if ids.max() >= config.vocab_size:
        found, expected = f"it has the id {ids.max()}", f"ids below the model's {config.vocab_size}"
        raise PortError(
            str(directory / "tokenizer.json"), found=found, expected=expected, mend="convert the Llama again"
        )
    return ids


def lesson(
    ids: np.ndarray, step: int, *, seed: int, batch: int, length: int, low: float, high: float, mask: int
) -> Lesson:
    """The batch of a step: the same whenever it is asked for, so that a resumed run sees what it would have."""
    draws = np.random.Generator(np.random.PCG64([seed, step]))
    starts = draws.integers(0, len(ids) - length, batch)
    rows = mx.array(np.stack([ids[start : start + length] for start in starts]))
    t_B = mx.array(shares(antithetic(draws.random(), batch), low, high))
    uniform = mx.array(draws.random((batch, length), np.float32))
    masked, noisy = corrupt(rows, None, t_B, uniform, mask)
    return Lesson(rows, noisy, masked, t_B)
