"""A MetaDiffusion on disk: `config.json` and safetensors, every tensor there and no other."""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten

from port.errors import CheckpointError
from port.gather import INDEX, gather
from port.shards import Slot

from .config import Config, read, to_json
from .model import MetaDiffusion

COMPUTE = {"float32": mx.float32, "bfloat16": mx.bfloat16}
TEXT = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def slots(directory: Path) -> dict[str, Slot]:
    """Where each tensor of a directory lies, by its stored name.

    Raises:
        CheckpointError: a file is missing or damaged, or index and files disagree.
    """
    return gather(directory, lambda name, _path: name)


def load(directory: Path, compute: str = "float32") -> MetaDiffusion:
    """Open a checkpoint, its floats as `compute` ("float32" or "bfloat16").

    Raises:
        ConfigError: `config.json` is not one of this model.
        CheckpointError: a tensor is missing, unexpected, or of another shape; or a file is damaged.
    """
    model = MetaDiffusion(read(directory))
    found = slots(directory)
    mend = f"python -m port convert LLAMA_DIR {directory}"
    expected = {name: array.shape for name, array in tree_flatten(model.parameters())}
    for name in sorted(expected.keys() ^ found.keys()):
        what = ("it is missing", "a tensor") if name in expected else ("it is not of this model", "no such tensor")
        raise CheckpointError(f"{directory}, tensor {name}", found=what[0], expected=what[1], mend=mend)
    for name, slot in found.items():
        if slot.shape != expected[name]:
            raise CheckpointError(
                f"{slot.shard.path}, tensor {name}",
                found=f"its shape is {list(slot.shape)}",
                expected=f"{list(expected[name])}, as config.json demands",
                mend=mend,
            )
    dtype = COMPUTE[compute]
    model.load_weights([(name, slot.shard.read(slot).astype(dtype)) for name, slot in found.items()])
    mx.eval(model.parameters())
    return model


def save(model: MetaDiffusion, directory: Path, text_from: Path | None = None) -> None:
    """Write a checkpoint: whole or not at all.

    Args:
        model: whose parameters.
        directory: must not exist.
        text_from: a directory whose tokenizer files come along.

    Raises:
        CheckpointError: the directory exists.
    """
    save_groups([dict(tree_flatten(model.parameters()))], 1, model.config, directory, text_from)


def save_groups(
    groups: Iterable[dict[str, mx.array]], count: int, config: Config, directory: Path, text_from: Path | None
) -> None:
    """`save`, of `count` groups of tensors by name, each written to a file of its own before the next is asked for."""
    if directory.exists():
        raise CheckpointError(
            str(directory), found="it exists", expected="a new directory", mend=f"remove it: rm -r {directory}"
        )
    beside = directory.with_name(f".{directory.name}.{os.getpid()}")
    beside.mkdir(parents=True)
    try:
        listed: dict[str, str] = {}
        for i, tensors in enumerate(groups, 1):
            name = "model.safetensors" if count == 1 else f"model-{i:05d}-of-{count:05d}.safetensors"
            mx.save_safetensors(str(beside / name), tensors, metadata={"format": "mlx"})
            listed |= dict.fromkeys(tensors, name)
        if count > 1:
            (beside / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": listed}, indent=1, sort_keys=True))
        (beside / "config.json").write_text(to_json(config))
        for name in TEXT:
            if text_from and (text_from / name).exists():
                shutil.copy(text_from / name, beside / name)
        beside.rename(directory)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
