"""Write trained parameters as a checkpoint, in the layout of the one that they came from."""

import shutil
from pathlib import Path

import mlx.core as mx
from safetensors.numpy import load_file, save_file

from . import config as configs
from .borders import Trace, to_numpy
from .floats import Arrays, packed, packing_of
from .weights import SIDECAR


def write(origin: Path, arrays: Arrays, out: Path) -> int:
    """Pack each matrix as `config.json` says, round the rest to bfloat16, and copy every other file.

    Args:
        origin: a checkpoint of the same architecture: its shards, names and configuration are kept.
        arrays: floats by name, matrices unpacked; tensors of the shards that it lacks are copied.
        out: the folder to write, made if absent.

    Returns:
        the bytes of all files.
    """
    packing = packing_of(arrays, configs.read(origin))
    tensors: Trace = {}
    for name, array in arrays.items():
        if name in packing:
            parts = zip(("weight", "scales", "biases"), packed(array, packing[name]), strict=True)
            tensors |= {f"{name.removesuffix('.weight')}.{part}": to_numpy(value) for part, value in parts}
        else:
            tensors[name] = to_numpy(array.astype(mx.bfloat16))
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(origin.iterdir()):
        if file.match("model-*.safetensors"):
            shard = {name: tensors.get(name, held) for name, held in load_file(file).items()}
            save_file(shard, out / file.name, {"format": "mlx"})
        elif file.name == SIDECAR:
            shard = {name: tensors.get(f"model.encoder.{name}", held) for name, held in load_file(file).items()}
            save_file(shard, out / file.name, {"format": "mlx"})
        else:
            shutil.copyfile(file, out / file.name)
    return sum(file.stat().st_size for file in out.iterdir())
