"""Copies of the nano checkpoint, and the ways to break one: safetensors taken apart and put together by hand."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

NANO = Path(__file__).parent.parent / "goldens" / "nano" / "checkpoint"
INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
SIDECAR = "optiq_vision.safetensors"
Tensors = dict[str, tuple[str, list[int], bytes]]  # name: dtype, shape, little-endian bytes


def copy(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoint"
    shutil.copytree(NANO, directory)
    return directory


def read(path: Path) -> Tensors:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    data = raw[8 + length :]
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def header_of(tensors: Tensors) -> dict[str, Any]:
    header, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    return header


def write(path: Path, tensors: Tensors, header: dict[str, Any] | None = None) -> None:
    text = json.dumps(header_of(tensors) if header is None else header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in tensors.values()))


def edit(path: Path, change: Callable[[Tensors], None]) -> None:
    tensors = read(path)
    change(tensors)
    write(path, tensors)


def edit_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def shard_of(directory: Path, name: str) -> Path:
    return directory / json.loads((directory / INDEX).read_text())["weight_map"][name]
