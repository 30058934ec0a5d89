"""The port's weights: each tensor used once, read when it is used, and every damaged checkpoint refused by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from port_files import (
    INDEX,
    NANO,
    SHARDS,
    SIDECAR,
    Tensors,
    copy,
    edit,
    edit_json,
    read,
    shard_of,
)

from goldens.nano.build import write as build_nano
from port.diffusion_gemma.config import read as read_config
from port.diffusion_gemma.model import load
from port.diffusion_gemma.weights import Weights
from port.errors import CheckpointError, ConfigError

NORM = "model.decoder.norm.weight"
Q = "model.decoder.layers.2.self_attn.q_proj"
EXPERTS = "model.decoder.layers.3.experts.down_proj"


def equal(a: mx.array, b: mx.array) -> bool:
    if a.dtype == mx.bfloat16:
        a, b = a.view(mx.uint16), b.view(mx.uint16)
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(np.array(a), np.array(b))


def test_every_tensor_is_held_once_with_the_bytes_of_its_file() -> None:
    params = load(NANO).weights.params
    stored = {name: x for shard in SHARDS for name, x in mx.load(str(NANO / shard)).items()}
    stored |= {f"model.encoder.{name}": x for name, x in mx.load(str(NANO / SIDECAR)).items()}
    assert params.keys() == stored.keys()
    assert [name for name, x in stored.items() if not equal(params[name].array, x)] == []


def test_inline_vision_is_held_too(tmp_path: Path) -> None:
    build_nano("inline", tmp_path)
    params = load(tmp_path).weights.params
    stored = {name: x for shard in tmp_path.glob("model*.safetensors") for name, x in mx.load(str(shard)).items()}
    assert params.keys() == stored.keys()
    assert "model.encoder.vision_tower.patch_embedder.input_proj.scales" in params
    assert [name for name, x in stored.items() if not equal(params[name].array, x)] == []


def test_float32_casts_every_float_and_no_code() -> None:
    for param in load(NANO, "float32").weights.params.values():
        packed = param.dtype == "U32"
        assert param.array.dtype == (mx.uint32 if packed else mx.float32)
        assert packed or equal(param.array, param.stored().astype(mx.float32))


def test_nothing_is_read_before_its_layer_runs() -> None:
    model = load(NANO)
    params = model.weights.params
    assert not any(param.is_read for param in params.values())
    h = mx.ones((1, 3, model.config.text_config.hidden_size), dtype=mx.bfloat16)
    model.layers[1].encode(h, "causal", model.new_cache()[1])
    read_now = {name for name, param in params.items() if param.is_read}
    own = {name for name in params if name.startswith("model.decoder.layers.1.")}
    scalar = "model.encoder.language_model.layers.1.layer_scalar"
    # The canvas' scalar is not the prompt's.
    assert read_now == own - {"model.decoder.layers.1.layer_scalar"} | {scalar}


def test_verifying_looks_at_everything_and_keeps_nothing() -> None:
    weights = load(NANO).weights
    weights.verify()
    assert not any(param.is_read for param in weights.params.values())


def test_streaming_gives_memory_back_and_changes_nothing() -> None:
    ids = mx.arange(3, 30)[None]
    whole, streamed = load(NANO), load(NANO, streaming=True)
    caches = whole.new_cache(), streamed.new_cache()
    assert equal(whole.encode(ids, caches[0]), streamed.encode(ids, caches[1]))
    assert equal(whole.decode(ids, caches[0]), streamed.decode(ids, caches[1]))
    held = [name for name, param in streamed.weights.params.items() if param.is_read and ".layers." in name]
    assert held == []
    assert any(param.is_read for name, param in whole.weights.params.items() if ".layers." in name)


def test_a_tensor_has_one_user() -> None:
    model = load(NANO)
    with pytest.raises(CheckpointError, match=rf"tensor {NORM}: it is used twice"):
        model.weights.claim(NORM, (192,), "BF16")


def test_an_unknown_compute_dtype_is_refused() -> None:
    with pytest.raises(ConfigError, match="'float16'"):
        Weights(NANO, read_config(NANO), "float16")


def missing(directory: Path) -> None:
    edit(shard_of(directory, NORM), lambda tensors: tensors.pop(NORM))
    edit_json(directory / INDEX, lambda document: document["weight_map"].pop(NORM))


def missing_though_listed(directory: Path) -> None:
    edit(shard_of(directory, NORM), lambda tensors: tensors.pop(NORM))


def extra(directory: Path) -> None:
    edit(directory / SHARDS[0], lambda tensors: tensors.update({"lm_head.weight": ("BF16", [2], b"\1\2\3\4")}))
    edit_json(directory / INDEX, lambda document: document["weight_map"].update({"lm_head.weight": SHARDS[0]}))


def two_extra(directory: Path) -> None:
    extra(directory)
    edit(directory / SHARDS[0], lambda tensors: tensors.update({"lm_head.bias": ("BF16", [2], b"\1\2\3\4")}))
    edit_json(directory / INDEX, lambda document: document["weight_map"].update({"lm_head.bias": SHARDS[0]}))


def extra_unlisted(directory: Path) -> None:
    edit(directory / SHARDS[0], lambda tensors: tensors.update({"lm_head.weight": ("BF16", [2], b"\1\2\3\4")}))


def wrong_shape(directory: Path) -> None:
    def reshape(tensors: Tensors) -> None:
        dtype, shape, data = tensors[f"{Q}.weight"]
        tensors[f"{Q}.weight"] = (dtype, shape[::-1], data)

    edit(shard_of(directory, f"{Q}.weight"), reshape)


def wrong_dtype(directory: Path) -> None:
    def retype(tensors: Tensors) -> None:
        _, shape, data = tensors[NORM]
        tensors[NORM] = ("F16", shape, data)

    edit(shard_of(directory, NORM), retype)


def repack(directory: Path, module: str, entry: Any) -> None:
    for spelling in ("quantization", "quantization_config"):
        edit_json(directory / "config.json", lambda document, key=spelling: document[key].update({module: entry}))


def wrong_bits(directory: Path) -> None:
    repack(directory, Q, {"bits": 4, "group_size": 64})


def wrong_group(directory: Path) -> None:
    repack(directory, EXPERTS, {"bits": 4, "group_size": 32})


def not_packed(directory: Path) -> None:
    repack(directory, EXPERTS, False)


def twice(directory: Path) -> None:
    tensor = read(shard_of(directory, NORM))[NORM]
    for shard in SHARDS:
        edit(directory / shard, lambda tensors: tensors.update({NORM: tensor}))


def twice_in_a_header(directory: Path) -> None:
    path = shard_of(directory, NORM)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    entry = json.dumps(json.loads(raw[8 : 8 + length])[NORM])
    header = raw[8 : 8 + length].rstrip()[:-1] + f', "{NORM}": {entry}}}'.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + length :])


def no_sidecar(directory: Path) -> None:
    names = read(directory / SIDECAR)
    edit_json(directory / INDEX, lambda document: document["weight_map"].update(dict.fromkeys(names, SIDECAR)))
    (directory / SIDECAR).unlink()


def escapes_upwards(directory: Path) -> None:
    shutil.copy(directory / SHARDS[0], directory.parent / "elsewhere.safetensors")
    edit_json(directory / INDEX, lambda document: document["weight_map"].update({NORM: "../elsewhere.safetensors"}))


def escapes_absolutely(directory: Path) -> None:
    edit_json(directory / INDEX, lambda document: document["weight_map"].update({NORM: "/etc/passwd.safetensors"}))


@pytest.mark.parametrize(
    ("broken", "named", "found", "expected"),
    [
        (missing, NORM, "it is missing", "BF16 [192]"),
        (missing_though_listed, NORM, "it is missing from the file", INDEX),
        (extra, "lm_head.weight", "no part of the model uses it", "config.json"),
        (two_extra, "lm_head.bias", "no part of the model uses it, and 1 more", "config.json"),
        (extra_unlisted, "lm_head.weight", "it is not listed there", "one place a tensor"),
        (wrong_shape, f"{Q}.weight", "it is U32 [48, 64]", "U32 [64, 48]"),
        (wrong_dtype, NORM, "it is F16 [192]", "BF16 [192]"),
        (wrong_bits, f"{Q}.weight", "it is U32 [64, 48]", "U32 [64, 24]"),
        (wrong_group, f"{EXPERTS}.scales", "it is BF16", "as config.json demands"),
        (not_packed, f"{EXPERTS}.weight", "it is U32", "BF16"),
        (twice, NORM, "it is", "one place a tensor"),
        (twice_in_a_header, NORM, "the header lists it twice", "every name once"),
        (no_sidecar, SIDECAR, "it cannot be opened", "a safetensors file"),
        (escapes_upwards, NORM, "its file is '../elsewhere.safetensors'", "inside the directory"),
        (escapes_absolutely, NORM, "its file is '/etc/passwd.safetensors'", "inside the directory"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_checkpoint_that_disagrees_with_itself(
    tmp_path: Path, broken: Callable[[Path], None], named: str, found: str, expected: str
) -> None:
    directory = copy(tmp_path)
    broken(directory)
    with pytest.raises(CheckpointError) as caught:
        load(directory)
    text = str(caught.value)
    assert named in text
    assert found in text
    assert expected in text
    assert "hf download OWNER/NAME" in text
    assert f"--local-dir {directory} --force-download" in text


def test_a_sidecar_is_found_whether_the_index_lists_it_or_not(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    names = read(directory / SIDECAR)
    assert not names.keys() & json.loads((directory / INDEX).read_text())["weight_map"].keys()
    edit_json(directory / INDEX, lambda document: document["weight_map"].update(dict.fromkeys(names, SIDECAR)))
    assert load(directory).weights.params.keys() == load(NANO).weights.params.keys()


def test_a_sidecar_that_is_gone_is_missed_by_tensor(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    (directory / SIDECAR).unlink()
    with pytest.raises(CheckpointError, match=r"vision_tower\.\S+: it is missing"):
        load(directory)


def test_without_an_index_the_shards_are_found_by_name(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    (directory / INDEX).unlink()
    assert load(directory).weights.params.keys() == load(NANO).weights.params.keys()


def test_a_directory_without_weights(tmp_path: Path) -> None:
    shutil.copy(NANO / "config.json", tmp_path)
    with pytest.raises(CheckpointError, match=r"it has no model\*\.safetensors"):
        load(tmp_path)
