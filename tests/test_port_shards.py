"""Damaged safetensors files and indexes: refused when they are opened, by name; bad numbers when they are read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from port_files import INDEX, SHARDS, Tensors, copy, edit, header_of, read, shard_of, write

from port.diffusion_gemma import cuts
from port.diffusion_gemma.model import load
from port.errors import CheckpointError, PortError

NORM = "model.decoder.norm.weight"
SCALES = "model.decoder.layers.2.self_attn.q_proj.scales"


def truncate(raw: bytes) -> bytes:
    return raw[:-1]


def halve(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def lengthen(raw: bytes) -> bytes:
    return raw + b"\0"


def empty(raw: bytes) -> bytes:
    return b""


def stub(raw: bytes) -> bytes:
    return raw[:5]


def header_alone(raw: bytes) -> bytes:
    return raw[: 8 + int.from_bytes(raw[:8], "little")]


def boast(raw: bytes) -> bytes:
    return (10**12).to_bytes(8, "little") + raw[8:]


def scramble(raw: bytes) -> bytes:
    return raw[:8] + b"\xff" + raw[9:]


@pytest.mark.parametrize("damage", [truncate, halve, lengthen, empty, stub, header_alone, boast, scramble])
def test_a_damaged_file_is_refused_before_a_tensor_is_read(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    directory = copy(tmp_path)
    path = directory / SHARDS[1]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError) as caught:
        load(directory)
    assert str(path) in str(caught.value)
    assert f"hf download OWNER/NAME {SHARDS[1]}" in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "BF16", "shape": [192], "data_offsets": [0, 10**12]},
        {"dtype": "BF16", "shape": [10**12], "data_offsets": [0, 2 * 10**12]},
        {"dtype": "BF16", "shape": [192], "data_offsets": [-384, 0]},
        {"dtype": "BF16", "shape": [-192], "data_offsets": [0, 384]},
        {"dtype": "F8_E4M3", "shape": [384], "data_offsets": [0, 384]},
        {"dtype": "BF16", "shape": [192]},
        {"dtype": "BF16", "shape": "all", "data_offsets": [0, 384]},
        {"dtype": ["BF16"], "shape": [192], "data_offsets": [0, 384]},
        None,
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, entry: Any) -> None:
    directory = copy(tmp_path)
    path = shard_of(directory, NORM)
    tensors = read(path)
    write(path, tensors, header_of(tensors) | {NORM: entry})
    with pytest.raises(CheckpointError, match=f"tensor {NORM}"):
        load(directory)


def test_a_tensor_that_is_cut_short_says_how_long_it_should_be(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    path = shard_of(directory, NORM)
    tensors = read(path)
    write(path, tensors, header_of(tensors) | {NORM: {"dtype": "BF16", "shape": [4, 48], "data_offsets": [0, 382]}})
    with pytest.raises(CheckpointError, match=r"BF16 \[4, 48\] lies in 382 bytes\. Expected: 384 bytes"):
        load(directory)


def test_tensors_that_overlap_are_refused(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    tensors = read(directory / SHARDS[0])
    header = header_of(tensors)
    names = [name for name, (_, shape, _) in tensors.items() if shape == [192]]
    header[names[1]]["data_offsets"] = header[names[0]]["data_offsets"]
    write(directory / SHARDS[0], tensors, header)
    with pytest.raises(CheckpointError, match="begins at byte"):
        load(directory)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_an_index_that_cannot_be_read(tmp_path: Path, content: str) -> None:
    directory = copy(tmp_path)
    (directory / INDEX).write_text(content)
    with pytest.raises(CheckpointError, match=INDEX):
        load(directory)


@pytest.mark.parametrize(("bits", "what"), [(0x7FC0, "NaN"), (0x7F80, "infinity"), (0xFF80, "minus infinity")])
def test_a_weight_that_is_no_number_is_refused_when_it_is_read(tmp_path: Path, bits: int, what: str) -> None:
    directory = copy(tmp_path)

    def poison(tensors: Tensors) -> None:
        dtype, shape, data = tensors[SCALES]
        at = 2 * (shape[1] + 2)  # row 1, column 2
        tensors[SCALES] = (dtype, shape, data[:at] + bits.to_bytes(2, "little") + data[at + 2 :])

    edit(shard_of(directory, SCALES), poison)
    model = load(directory)
    with pytest.raises(PortError) as caught:
        model.encode(mx.array([[2, 5, 7]]), model.new_cache())
    assert f"tensor {SCALES}: 1 of 192 values are NaN or infinite, the first at [1, 2]" in str(caught.value)
    assert str(directory) in str(caught.value)
    with pytest.raises(CheckpointError, match=f"tensor {SCALES}: 1 of"):
        cuts.load(directory, "bfloat16")
