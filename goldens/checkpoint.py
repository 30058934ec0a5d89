"""What a checkpoint is, as one digest and as one for each part, so that a swapped part can be named."""

import hashlib
import json
import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldens.errors import GoldenError

# Beside the tensors: every file of these kinds that decides what a model computes, or how text becomes tokens.
TEXT_FILES = (
    "config.json",
    "*.safetensors.index.json",
    "generation_config.json",
    "chat_template.*",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*preprocessor_config.json",
    "processor_config.json",
)
_WIDTHS = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1} | {
    f"{kind}{8 * size}": size for kind in ("U", "I", "F", "BF") for size in (2, 4, 8)
}
_HEADER_BYTES = 100 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint directory's content.

    Attributes:
        digest: SHA-256 over all parts, in hex.
        parts: SHA-256 by part: ``tensor <name>``, or the name of a file.
    """

    digest: str
    parts: dict[str, str]


def digest(folder: Path) -> Checkpoint:
    """Digest the tensors, configuration, tokenizer and chat template of a checkpoint directory.

    How tensors are spread over shards makes no difference; a shard that cannot be parsed counts by its bytes, as
    ``file <name>``: whether it loads is for the model to say.

    Raises:
        GoldenError: the directory is missing or holds nothing of a checkpoint.
    """
    parts: dict[str, str] = {}
    try:
        for shard in sorted(folder.glob("*.safetensors")):
            for name, sha256 in _shard(shard):
                # A name that two shards hold is two parts, so that neither hides the other.
                parts[f"{name} ({shard.name})" if name in parts else name] = sha256
        for path in sorted({path for pattern in TEXT_FILES for path in folder.glob(pattern)}):
            parts[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise GoldenError(f"the checkpoint cannot be read: {error}", folder) from error
    if not parts:
        raise GoldenError("the checkpoint directory is missing, or holds neither tensors nor a config.json", folder)
    lines = "".join(f"{name} {sha256}\n" for name, sha256 in sorted(parts.items()))
    return Checkpoint(hashlib.sha256(lines.encode()).hexdigest(), parts)


def differing(recorded: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Parts that differ, or that only one checkpoint has.

    Args:
        recorded: digest by part; may be cut short to a prefix, as a manifest keeps it.
        here: full digest by part.
    """
    return sorted(
        name
        for name in recorded.keys() | here.keys()
        if name not in recorded or name not in here or not here[name].startswith(recorded[name])
    )


def _shard(path: Path) -> Iterator[tuple[str, str]]:
    """(``tensor <name>``, SHA-256 of ``dtype:1x2x3:`` and the little-endian bytes) of each tensor in a shard."""
    with path.open("rb") as file:
        header = _header(file.read(8), path, file)
        if header is None:
            file.seek(0)
            yield f"file {path.name}", hashlib.file_digest(file, "sha256").hexdigest()
            return
        start, tensors = header
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            for name, (dtype, shape, begin, end) in tensors.items():
                total = hashlib.sha256(f"{dtype}:{'x'.join(map(str, shape))}:".encode())
                total.update(data[start + begin : start + end])
                yield f"tensor {name}", total.hexdigest()


def _header(first: bytes, path: Path, file: Any) -> tuple[int, dict[str, tuple[str, list[int], int, int]]] | None:
    """Where the data of a shard begin, and (dtype, shape, begin, end) by tensor; None when it is not a whole shard."""
    length = int.from_bytes(first, "little")
    rest = path.stat().st_size - 8 - length
    if len(first) < 8 or length > _HEADER_BYTES or rest < 0:
        return None
    tensors = {}
    try:
        for name, row in json.loads(file.read(length)).items():
            if name == "__metadata__":
                continue
            begin, end = row["data_offsets"]
            dtype, shape = row["dtype"], row["shape"]
            if not 0 <= begin <= end <= rest or end - begin != math.prod(shape) * _WIDTHS[dtype]:
                return None
            tensors[name] = (dtype, shape, begin, end)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return 8 + length, tensors
