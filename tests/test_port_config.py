"""The port's configuration: every key known, every contradiction refused by name."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from optiq.vlm._mlxvlm.models.diffusion_gemma import config as published
from port_files import NANO, copy, edit_json

from port.diffusion_gemma import config
from port.diffusion_gemma.quantization import Quantization, packing
from port.errors import ConfigError

RAW = json.loads((NANO / "config.json").read_text())


def refused(directory: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        config.read(directory)
    text = str(caught.value)
    assert str(directory / "config.json") in text
    assert "Expected: " in text
    assert "hf download" in text
    return text


def test_every_value_of_the_file_arrives() -> None:
    parsed = config.read(NANO)
    for key, value in RAW["text_config"].items():
        assert getattr(parsed.text_config, key) == value, key
    for key, value in RAW["vision_config"].items():
        assert getattr(parsed.vision_config, key) == value, key
    assert parsed.canvas_length == RAW["canvas_length"]
    assert parsed.eos_token_id == [1, 106]
    assert parsed.quantization == RAW["quantization"]


def test_defaults_are_those_of_the_published_model() -> None:
    parsed = config.from_dict({"model_type": "diffusion_gemma", "text_config": {}}, Path("config.json"))
    text = parsed.text_config
    sizes = (text.hidden_size, text.intermediate_size, text.moe_intermediate_size, text.num_hidden_layers)
    assert sizes == (2816, 2112, 704, 30)
    assert [i for i in range(30) if not text.is_sliding(i)] == [5, 11, 17, 23, 29]
    assert (text.head_size(0), text.kv_heads(0)) == (256, 8)
    assert (text.head_size(5), text.kv_heads(5)) == (512, 2)
    assert text.rope(0) == {"rope_type": "default", "rope_theta": 10000.0}
    assert text.rope(5)["partial_rotary_factor"] == 0.25
    assert parsed.vision_config is None
    assert parsed.canvas_length == 256


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (config.TextConfig, published.TextConfig),
        (config.VisionConfig, published.VisionConfig),
        (config.ModelConfig, published.ModelConfig),
    ],
)
def test_every_default_is_the_references(ours: type, theirs: type) -> None:
    # `quantization` is no field of the reference's: its loader reads the map itself.
    found = {one.name: one.default for one in fields(ours) if not one.metadata.get("raw")}
    assert found == {one.name: one.default for one in fields(theirs)}


def test_the_last_layer_is_full_whatever_the_count() -> None:
    raw = {"model_type": "diffusion_gemma", "text_config": {"num_hidden_layers": 8}}
    text = config.from_dict(raw, Path("config.json")).text_config
    assert [i for i in range(8) if not text.is_sliding(i)] == [5, 7]


def test_full_layers_without_settings_of_their_own_take_the_common_ones() -> None:
    text = {"num_global_key_value_heads": None, "global_head_dim": None}
    parsed = config.from_dict({"model_type": "diffusion_gemma", "text_config": text}, Path("config.json")).text_config
    assert (parsed.head_size(5), parsed.kv_heads(5)) == (256, 8)


@pytest.mark.parametrize("place", [(), ("text_config",), ("vision_config",)])
def test_an_unknown_key_is_refused_by_name(tmp_path: Path, place: tuple[str, ...]) -> None:
    directory = copy(tmp_path)

    def add(document: dict[str, Any]) -> None:
        for step in place:
            document = document[step]
        document["attention_chunk_size"] = 8192

    edit_json(directory / "config.json", add)
    text = refused(directory)
    assert "unknown key attention_chunk_size" in text
    assert (place[0] if place else "top level") in text


def test_keys_that_published_files_carry_are_no_surprise(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    extra = {"transformers_version": "5.12.1", "_name_or_path": "x", "quantization_config": RAW["quantization"],
             "optiq_vision": {"sidecar": "optiq_vision.safetensors"}, "tie_word_embeddings": True}  # fmt: skip
    edit_json(directory / "config.json", lambda document: document.update(extra))
    edit_json(directory / "config.json", lambda document: document["text_config"].update(dtype="bfloat16"))
    assert config.read(directory) == config.read(NANO)


@pytest.mark.parametrize("value", ["gemma4", None])
def test_another_model_type_is_refused(tmp_path: Path, value: str | None) -> None:
    directory = copy(tmp_path)
    edit_json(directory / "config.json", lambda document: document.update(model_type=value))
    assert f"model_type is {value!r}. Expected: 'diffusion_gemma'" in refused(directory)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("text_config", "model_type", "gemma4_text"),
        ("text_config", "num_hidden_layers", 7),
        ("text_config", "layer_types", ["sliding_attention"] * 5 + ["linear_attention"]),
        ("text_config", "num_key_value_heads", 3),
        ("text_config", "num_global_key_value_heads", 3),
        ("text_config", "num_global_key_value_heads", 0),
        ("text_config", "head_dim", 15),
        ("text_config", "top_k_experts", 17),
        ("text_config", "hidden_activation", "silu"),
        ("text_config", "tie_word_embeddings", False),
        ("text_config", "use_bidirectional_attention", "all"),
        ("text_config", "sliding_window", 0),
        ("text_config", "hidden_size", "192"),
        ("text_config", "hidden_size", True),
        ("text_config", "num_experts", "16"),
        ("text_config", "num_global_key_value_heads", "2"),
        ("text_config", "rms_norm_eps", 0),
        ("text_config", "pad_token_id", 704),
        ("vision_config", "model_type", "siglip"),
        ("vision_config", "num_key_value_heads", 3),
        ("vision_config", "attention_bias", True),
        ("vision_config", "patch_size", 0),
    ],
)
def test_a_contradiction_is_refused_by_key_and_value(tmp_path: Path, section: str, key: str, value: Any) -> None:
    directory = copy(tmp_path)
    edit_json(directory / "config.json", lambda document: document[section].update({key: value}))
    text = refused(directory)
    named = "layer_types" if key == "num_hidden_layers" else key
    assert f"{section}.{named} is " in text
    assert named != key or json.dumps(value)[:40] in text


@pytest.mark.parametrize(
    ("rope", "named"),
    [
        ({"rope_type": "yarn", "rope_theta": 10000.0}, "rope_type"),
        ({"rope_type": "default", "rope_theta": 0}, "rope_theta"),
        ({"rope_type": "proportional", "partial_rotary_factor": 1.5}, "partial_rotary_factor"),
        ({"rope_type": "default", "beta_fast": 32}, "beta_fast"),
        ([1], "a JSON object"),
    ],
)
def test_a_rotation_that_the_port_does_not_know_is_refused(tmp_path: Path, rope: Any, named: str) -> None:
    directory = copy(tmp_path)
    change = {"full_attention": rope}
    edit_json(directory / "config.json", lambda document: document["text_config"]["rope_parameters"].update(change))
    text = refused(directory)
    assert "rope_parameters.full_attention" in text
    assert named in text


def test_a_missing_section_is_refused_by_name(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    edit_json(directory / "config.json", lambda document: document.pop("text_config"))
    assert "lacks the key text_config" in refused(directory)


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '"text"', "\xff"])
def test_what_is_not_a_json_object_is_refused(tmp_path: Path, content: str) -> None:
    directory = copy(tmp_path)
    (directory / "config.json").write_bytes(content.encode("latin-1"))
    refused(directory)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [{"bits": 4}, {"group_size": 64}, {"bits": 7, "group_size": 64}, {"bits": 4, "group_size": 48}, "four",
     {"bits": 4, "group_size": 32, "mode": "int4"}],
)  # fmt: skip
def test_an_incomplete_or_unknown_packing_is_refused(tmp_path: Path, entry: Any) -> None:
    directory = copy(tmp_path)
    change = {"model.decoder.x": entry}
    for spelling in ("quantization", "quantization_config"):
        edit_json(directory / "config.json", lambda document, key=spelling: document[key].update(change))
    assert "model.decoder.x" in refused(directory)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_every_width_that_mlx_packs_by_is_read(tmp_path: Path, bits: int) -> None:
    directory, entry = copy(tmp_path), {"bits": bits, "group_size": 64}
    edit_json(directory / "config.json", lambda document: document["quantization"].update({"model.decoder.x": entry}))
    edit_json(directory / "config.json", lambda document: document.pop("quantization_config", None))
    assert config.read(directory).quantization["model.decoder.x"] == entry


def test_two_maps_that_differ_are_refused(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    edit_json(directory / "config.json", lambda document: document.update(quantization_config={"bits": 4}))
    assert "differ" in refused(directory)
    edit_json(directory / "config.json", lambda document: document.pop("quantization"))
    assert "stands alone" in refused(directory)


def test_a_module_is_packed_as_its_own_entry_says_before_the_defaults() -> None:
    table = {"bits": 4, "group_size": 64, "mode": "mxfp4", "a": {"bits": 8, "group_size": 32}, "b": False, "c": True}
    assert packing(table, "a", scaled=True) == Quantization(8, 32, "affine")
    assert packing(table, "b", scaled=True) is None
    assert packing(table, "c", scaled=False) == Quantization(4, 64, "mxfp4")
    assert packing(table, "d", scaled=True) == Quantization(4, 64, "mxfp4")
    assert packing(table, "d", scaled=False) is None
    assert packing(None, "a", scaled=True) is None
