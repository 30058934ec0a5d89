"""Write the nano checkpoint: shards, index, sidecar, configuration and tokenizer, the same bytes every time."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from safetensors.numpy import save

from goldens.nano import parameters, tokenizer
from goldens.nano.architecture import GENERATION, Json, Variant, config
from goldens.nano.draw import Array

HERE = Path(__file__).parent
CHECKPOINT = HERE / "checkpoint"
INLINE_DIGEST = HERE / "inline.sha256"
SHARDS = 2
SIDECAR = "optiq_vision.safetensors"
TEMPLATES: dict[Variant, str] = {"sidecar": "chat_template.jinja", "inline": "chat_template.older.jinja"}


def build(variant: Variant) -> dict[str, bytes]:
    """Every file of the checkpoint by name."""
    text, vision = parameters.text(), parameters.vision(variant)
    model = dict(text.tensors)
    files: dict[str, bytes] = {}
    if variant == "sidecar":
        files[SIDECAR] = _safetensors(vision.tensors)
    else:
        model |= vision.tensors
    files |= _shards(model)
    files["config.json"] = _json(config(text.bits | vision.bits))
    files["generation_config.json"] = _json(GENERATION)
    return dict(sorted((files | tokenizer.files(HERE, TEMPLATES[variant])).items()))


def write(variant: Variant, out: Path) -> dict[str, bytes]:
    """Build the checkpoint into folder `out` (made if absent) and return its files."""
    files = build(variant)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (out / name).write_bytes(content)
    return files


def digest(files: dict[str, bytes]) -> str:
    """One sha256 over the names and contents of a checkpoint's files, in name order, hex."""
    lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _shards(tensors: dict[str, Array]) -> dict[str, bytes]:
    """Shards of about equal size in name order, and their index."""
    total = sum(tensor.nbytes for tensor in tensors.values())
    shards: list[dict[str, Array]] = [{} for _ in range(SHARDS)]
    before = 0
    for name in sorted(tensors):
        shards[before * SHARDS // total][name] = tensors[name]
        before += tensors[name].nbytes
    names = [f"model-{i:05d}-of-{SHARDS:05d}.safetensors" for i in range(1, SHARDS + 1)]
    index: Json = {
        "metadata": {"total_size": total},
        "weight_map": {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard},
    }
    files = {name: _safetensors(shard) for name, shard in zip(names, shards, strict=True)}
    return files | {"model.safetensors.index.json": _json(index)}


def _safetensors(tensors: dict[str, Array]) -> bytes:
    return save(tensors, metadata={"format": "mlx"})


def _json(document: Json) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
