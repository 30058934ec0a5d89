"""One side of the bench in a process of its own: `python bench_sides.py make|port|oracle FOLDER [NAME]`.

"make" writes weights and a batch, once for both. A side reads them and then, for each line on standard input, does that
piece of work and answers with its seconds. Neither side imports the other's framework.
"""
# ruff: noqa: PLC0415, a process that loads only one side's framework imports where it knows which

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

STEPS = 4
Work = dict[str, Callable[[], object]]


def make(folder: Path) -> None:
    """Weights and batch of the seed's own 50M size; layers and tokens as `folder/asked.json` says."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from port.metadiffusion.config import Config
    from port.metadiffusion.model import MetaDiffusion

    asked = json.loads((folder / "asked.json").read_text())
    layers, tokens = asked["layers"], asked["tokens"]
    config = Config(512, 1408, layers, 8, 4, 64, 32000, 5120, 10000.0, 1e-6, 512, 1, tie_word_embeddings=True)
    mx.random.seed(0)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(MetaDiffusion(config).parameters())))
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
    draws = np.random.default_rng(0)
    labels = draws.integers(4, 32000, (1, tokens)).astype(np.int32)
    masked = draws.random((1, tokens)) < 0.5
    start = np.where(np.arange(tokens) < tokens // 2, labels, 32000).astype(np.int32)
    ids = np.where(masked, 32000, labels).astype(np.int32)
    np.savez(folder / "batch.npz", labels=labels, masked=masked, ids=ids, t=np.array([0.5], np.float32), start=start)


def port(folder: Path) -> Work:
    """MLX's."""
    import mlx.core as mx
    from mlx import nn, optimizers
    from mlx.utils import tree_unflatten

    from port.metadiffusion import diffusion, unmask
    from port.metadiffusion.config import Config
    from port.metadiffusion.model import MetaDiffusion
    from port.metadiffusion.train import updating

    model = MetaDiffusion(Config(**json.loads((folder / "config.json").read_text())))
    weights = mx.load(str(folder / "model.safetensors"))
    model.update(tree_unflatten(list(weights.items())))
    mx.eval(model.parameters())
    batch = {name: mx.array(x) for name, x in np.load(folder / "batch.npz").items()}
    learning = MetaDiffusion(model.config)  # training moves its weights, and the others are timed on the same ones
    learning.update(tree_unflatten([(name, x + 0) for name, x in weights.items()]))
    mx.eval(learning.parameters())
    optimizer = optimizers.AdamW(learning_rate=1e-4)

    def scored(ids: mx.array) -> mx.array:
        return diffusion.flat_loss(learning(ids, batch["t"]), batch["labels"], batch["masked"], 1)

    gradient, update = nn.value_and_grad(learning, scored), updating(learning, optimizer)

    def train() -> np.ndarray:
        loss, grads = gradient(batch["ids"])
        update(grads)
        mx.eval(learning.parameters(), optimizer.state, loss)
        return np.array(loss)

    def forward() -> np.ndarray:
        return np.array(model(batch["ids"], batch["t"]))

    return {
        "forward": forward,
        "train": train,
        "generate": lambda: np.array(unmask.generate(model, batch["start"], STEPS)),
    }


def oracle(folder: Path) -> Work:
    """PyTorch's."""
    import torch
    from safetensors.torch import load_file

    from oracle.metadiffusion import diffusion
    from oracle.metadiffusion.model import Config, MetaDiffusion

    names = {field.name for field in dataclasses.fields(Config)}
    fields = {k: v for k, v in json.loads((folder / "config.json").read_text()).items() if k in names}

    def load() -> MetaDiffusion:
        made = MetaDiffusion(Config(**fields))
        made.load_state_dict(load_file(folder / "model.safetensors"))
        return made

    model, learning = load(), load()
    batch = {name: torch.from_numpy(x) for name, x in np.load(folder / "batch.npz").items()}
    ids, labels, start = (batch[name].long() for name in ("ids", "labels", "start"))
    optimizer = torch.optim.AdamW(learning.parameters(), lr=1e-4)

    def forward() -> np.ndarray:
        with torch.no_grad():
            return model(ids, batch["t"]).numpy()

    def train() -> np.ndarray:
        loss, _ = diffusion.flat_loss(learning(ids, batch["t"]), labels, batch["masked"], 1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning.parameters(), 1.0)
        optimizer.step()
        return loss.detach().numpy()

    return {
        "forward": forward,
        "train": train,
        "generate": lambda: diffusion.generate(model, start, STEPS, "corrected").numpy(),
    }


def serve(work: Work, name: str, folder: Path) -> None:
    """First do each piece once, untimed, and leave its result to be compared; then answer lines."""
    np.savez(folder / f"{name}.npz", **{what: piece() for what, piece in work.items()})
    print("ready", flush=True)
    for line in sys.stdin:
        piece = work[line.strip()]
        begun = time.perf_counter()
        piece()
        print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    side, where = sys.argv[1], Path(sys.argv[2])
    if side == "make":
        make(where)
    else:
        serve({"port": port, "oracle": oracle}[side](where), sys.argv[3], where)
